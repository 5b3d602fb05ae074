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
    run_process stop_process restart_service stop_service echo_summary; do
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
