#!/usr/bin/env bash
# What plugin.sh finds in devstack, for tests: each function writes its call to
# $CALLS, one line, fields separated by tabs. An unknown command ends the test.
#
# devstack_stubs.sh PHASE...: the settings, then plugin.sh once for each phase
# ("stack pre-install", "unstack"), as devstack sources them.
set -o errexit -o nounset

function record {
    local IFS=$'\t'
    echo "$*" >> $CALLS
}

for name in define_plugin setup_develop install_package iniset iniset_multiline \
    get_or_create_role get_or_create_user get_or_add_user_project_role recreate_database \
    run_process stop_process restart_service stop_service echo_summary \
    create_service_user get_or_create_service get_or_create_endpoint write_uwsgi_config \
    remove_uwsgi_config wait_for_service inidelete; do
    eval "function $name { record $name \"\$@\"; }"
done

function enable_service {
    record enable_service "$@"
    ENABLED_SERVICES+=" $*"
}

function is_service_enabled {
    local service
    for service in $ENABLED_SERVICES; do
        # As devstack: a leading minus takes away.
        if [[ " $ENABLED_SERVICES " == *" -$1 "* ]]; then
            return 1
        fi
        if [[ $service == $1 ]]; then
            return 0
        fi
    done
    return 1
}

function iniset_rpc_backend {
    iniset $2 $3 transport_url rabbit://stackrabbit:secret@192.0.2.10:5672/
}

function configure_keystone_authtoken_middleware {
    iniset $1 $3 username $2
    iniset $1 $3 memcached_servers localhost:11211
    iniset $1 $3 service_type $4
}

function get_or_create_project {
    echo "id-of-$1-in-$2"
}

function apache_site_config_for {
    echo $DEST/apache/$1.conf
}

function database_connection_url {
    echo "mysql+pymysql://root:secret@127.0.0.1/$1?charset=utf8"
}

function get_python_exec_prefix {
    echo $BIN
}

function sudo {
    record sudo "$@"
    "$@"
}

function command_not_found_handle {
    echo "no such command: $*" >&2
    exit 127
}

source $PLUGIN/settings
for phase in "$@"; do
    record phase "$phase"
    source $PLUGIN/plugin.sh $phase
done
