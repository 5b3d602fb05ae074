#!/usr/bin/env bash
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

# devstack plugin of kronos-nova: the filters and weighers in nova-scheduler,
# kronos-engine, kronos-executor and kronos-api beside it, and a Prometheus to ask; where they
# are enabled kronos-migfra and a broker, too.

_XTRACE_KRONOS=$(set +o | grep xtrace)
set +o xtrace

function is_kronos_enabled {
    is_service_enabled kronos-engine || is_service_enabled kronos-executor \
        || is_service_enabled kronos-migfra || is_service_enabled kronos-api
}

# Apache serves the API as the others, with TLS where DevStack's proxy has it.
function find_kronos_api_url {
    local protocol=$SERVICE_PROTOCOL
    if is_service_enabled tls-proxy; then
        protocol=https
    fi
    echo $protocol://$SERVICE_HOST/rebalance
}

function install_kronos {
    # nova-scheduler loads us from its own environment; mysql is the driver of the
    # database of the daemons.
    local extras=rebalancer,mysql
    if is_service_enabled kronos-migfra; then
        extras+=,mqtt
    fi
    if is_service_enabled kronos-api; then
        extras+=,api
    fi
    setup_develop $KRONOS_DIR $extras
}

function install_kronos_metrics {
    if is_service_enabled kronos-prometheus; then
        install_package prometheus
    fi
    if is_service_enabled kronos-node-exporter; then
        install_package prometheus-node-exporter
    fi
}

# As it comes it listens on this host alone, to anybody.
function install_kronos_mosquitto {
    if is_service_enabled kronos-mosquitto; then
        install_package mosquitto
    fi
}

# The policy file is one for both doors.
function configure_kronos_policies {
    sudo install -d -o $STACK_USER $KRONOS_CONF_DIR
    cp $KRONOS_POLICIES $KRONOS_CONF_DIR/policies.yaml
}

# Nova compares some of these very strings, and what stands here replaces its
# defaults: nothing of them may be left out.
function configure_kronos_scheduler {
    iniset_multiline $NOVA_CONF filter_scheduler available_filters \
        nova.scheduler.filters.all_filters kronos_nova.filters.all_filters
    iniset $NOVA_CONF filter_scheduler enabled_filters \
        "$KRONOS_NOVA_FILTERS,KronosPlacementFilter,KronosCapacityFilter"
    iniset $NOVA_CONF filter_scheduler weight_classes \
        "nova.scheduler.weights.all_weighers,kronos_nova.weighers.all_weighers"
    iniset $NOVA_CONF filter_scheduler kronos_weight_multiplier "$KRONOS_WEIGHT_MULTIPLIER"
    iniset $NOVA_CONF kronos policies_file $KRONOS_CONF_DIR/policies.yaml
    iniset $NOVA_CONF kronos refresh_interval 10
    iniset $NOVA_CONF kronos settle_seconds 60
    iniset $NOVA_CONF prometheus url $KRONOS_PROMETHEUS_URL
    iniset $NOVA_CONF kronos_channel servers "$KRONOS_MEMCACHED"
    iniset $NOVA_CONF kronos_channel hmac_keys "$KRONOS_CHANNEL_KEY"
}

# A user for each daemon, with the one role that the policy files of Nova and Placement name.
function create_kronos_accounts {
    local role
    local roles="engine executor"
    if is_service_enabled kronos-migfra; then
        roles+=" migfra"
    fi
    for role in $roles; do
        get_or_create_role kronos_$role
        get_or_create_user kronos-$role "$SERVICE_PASSWORD" "$SERVICE_DOMAIN_NAME"
        get_or_add_user_project_role kronos_$role kronos-$role "$SERVICE_PROJECT_NAME" \
            "$SERVICE_DOMAIN_NAME" "$SERVICE_DOMAIN_NAME"
    done
    if is_service_enabled kronos-api; then
        # It has the role service alone, with which Keystone lets it check tokens.
        create_service_user kronos-api
        get_or_create_service kronos rebalance "Rebalancer"
        get_or_create_endpoint rebalance "$REGION_NAME" $(find_kronos_api_url)
    fi
}

function configure_kronos_access {
    sudo install -d -o $STACK_USER $NOVA_CONF_DIR/policy.d $PLACEMENT_CONF_DIR/policy.d
    cp $KRONOS_DIR/etc/kronos/nova-policy.yaml $NOVA_CONF_DIR/policy.d/kronos.yaml
    cp $KRONOS_DIR/etc/kronos/placement-policy.yaml $PLACEMENT_CONF_DIR/policy.d/kronos.yaml
}

function configure_kronos {
    sudo install -d -o $STACK_USER $KRONOS_STATE_DIR
    install -m 640 /dev/null $KRONOS_CONF
    iniset $KRONOS_CONF DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset_rpc_backend kronos $KRONOS_CONF DEFAULT
    iniset $KRONOS_CONF oslo_concurrency lock_path $KRONOS_STATE_DIR/lock
    iniset $KRONOS_CONF database connection $(database_connection_url kronos)
    # Commands and all daemons of this host run as the same user.
    iniset $KRONOS_CONF signing key_repository $KRONOS_CONF_DIR/signing-keys

    iniset $KRONOS_CONF engine dry_run "$KRONOS_DRY_RUN"
    iniset $KRONOS_CONF engine evaluation_interval "$KRONOS_INTERVAL"
    iniset $KRONOS_CONF engine policies_file $KRONOS_CONF_DIR/policies.yaml
    iniset $KRONOS_CONF engine instance_cooldown "$KRONOS_COOLDOWN"
    iniset $KRONOS_CONF engine cooldown "$KRONOS_COOLDOWN"
    # devstack's disks are local to each host.
    iniset $KRONOS_CONF engine allow_disk_copy True
    iniset $KRONOS_CONF engine snapshot_dir $KRONOS_STATE_DIR/snapshots

    iniset $KRONOS_CONF prometheus url $KRONOS_PROMETHEUS_URL
    iniset $KRONOS_CONF kronos_channel servers "$KRONOS_MEMCACHED"
    iniset $KRONOS_CONF kronos_channel hmac_keys "$KRONOS_CHANNEL_KEY"
    iniset $KRONOS_CONF monitoring engine_port "$KRONOS_ENGINE_PORT"
    iniset $KRONOS_CONF monitoring executor_port "$KRONOS_EXECUTOR_PORT"

    configure_kronos_login engine $KRONOS_ENGINE_CONF
    configure_kronos_login executor $KRONOS_EXECUTOR_CONF
    if is_service_enabled kronos-migfra; then
        configure_kronos_migfra
    fi
    if is_service_enabled kronos-api; then
        configure_kronos_api
    fi
}

function configure_kronos_api {
    install -m 640 /dev/null $KRONOS_API_CONF
    configure_keystone_authtoken_middleware $KRONOS_API_CONF kronos-api keystone_authtoken rebalance
    # python-memcached unpickles answers: a client of memcached could run code in kronos-api.
    inidelete $KRONOS_API_CONF keystone_authtoken memcached_servers
    iniset $KRONOS_API_CONF keystone_authtoken service_token_roles_required True
    iniset $KRONOS_API_CONF oslo_middleware enable_proxy_headers_parsing True
    iniset $KRONOS_API_CONF kronos_api operator_projects \
        $(get_or_create_project "$KRONOS_OPERATOR_PROJECT" default)

    write_uwsgi_config $KRONOS_UWSGI_CONF $KRONOS_UWSGI /rebalance "" kronos-api
    iniset $KRONOS_UWSGI_CONF uwsgi env "OS_KRONOS_CONFIG_FILES=$KRONOS_CONF;$KRONOS_API_CONF"
}

function configure_kronos_migfra {
    configure_kronos_login migfra $KRONOS_MIGFRA_CONF
    iniset $KRONOS_MIGFRA_CONF monitoring migfra_port "$KRONOS_MIGFRA_PORT"
    iniset $KRONOS_MIGFRA_CONF mqtt host "$KRONOS_MQTT_HOST"
    iniset $KRONOS_MIGFRA_CONF mqtt port "$KRONOS_MQTT_PORT"
    iniset $KRONOS_MIGFRA_CONF mqtt username "$KRONOS_MQTT_USERNAME"
    iniset $KRONOS_MIGFRA_CONF mqtt password "$KRONOS_MQTT_PASSWORD"
    iniset $KRONOS_MIGFRA_CONF migfra allow "$KRONOS_MIGFRA_ALLOW"
}

function configure_kronos_login {
    local role=$1
    local file=$2

    install -m 640 /dev/null $file
    iniset $file nova auth_type password
    iniset $file nova auth_url "$KEYSTONE_SERVICE_URI"
    iniset $file nova username kronos-$role
    iniset $file nova password "$SERVICE_PASSWORD"
    iniset $file nova user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset $file nova project_name "$SERVICE_PROJECT_NAME"
    iniset $file nova project_domain_name "$SERVICE_DOMAIN_NAME"
    iniset $file nova region_name "$REGION_NAME"
    # devstack's catalogue has public endpoints alone.
    iniset $file nova valid_interfaces public
}

function init_kronos {
    recreate_database kronos
    $KRONOS_BIN_DIR/kronos-manage --config-file $KRONOS_CONF db sync
    # An earlier stack may have left its keys.
    if [[ ! -e $KRONOS_CONF_DIR/signing-keys/0.pem ]]; then
        $KRONOS_BIN_DIR/kronos-manage --config-file $KRONOS_CONF signing-key create
    fi
}

function configure_kronos_prometheus {
    local exporter
    local targets=""

    for exporter in ${KRONOS_NODE_EXPORTERS//,/ }; do
        targets+="${targets:+, }'$exporter'"
    done
    sudo tee $KRONOS_PROMETHEUS_CONF > /dev/null <<EOF
global:
  scrape_interval: $KRONOS_SCRAPE_INTERVAL
scrape_configs:
  - job_name: node
    static_configs:
      - targets: [$targets]
EOF
    # They listen on this host alone.
    if is_kronos_enabled; then
        sudo tee -a $KRONOS_PROMETHEUS_CONF > /dev/null <<EOF
  - job_name: kronos-engine
    static_configs:
      - targets: ['127.0.0.1:$KRONOS_ENGINE_PORT']
  - job_name: kronos-executor
    static_configs:
      - targets: ['127.0.0.1:$KRONOS_EXECUTOR_PORT']
EOF
    fi
    if is_service_enabled kronos-migfra; then
        sudo tee -a $KRONOS_PROMETHEUS_CONF > /dev/null <<EOF
  - job_name: kronos-migfra
    static_configs:
      - targets: ['127.0.0.1:$KRONOS_MIGFRA_PORT']
EOF
    fi
    restart_service prometheus
}

function start_kronos {
    run_process kronos-engine "$KRONOS_BIN_DIR/kronos-engine --config-file $KRONOS_CONF --config-file $KRONOS_ENGINE_CONF"
    run_process kronos-executor "$KRONOS_BIN_DIR/kronos-executor --config-file $KRONOS_CONF --config-file $KRONOS_EXECUTOR_CONF"
    if is_service_enabled kronos-migfra; then
        run_process kronos-migfra "$KRONOS_BIN_DIR/kronos-migfra --config-file $KRONOS_CONF --config-file $KRONOS_MIGFRA_CONF"
    fi
    if is_service_enabled kronos-api; then
        run_process kronos-api "$(which uwsgi) --procname-prefix kronos-api --ini $KRONOS_UWSGI_CONF"
        if ! wait_for_service $SERVICE_TIMEOUT $(find_kronos_api_url)/healthcheck; then
            die $LINENO "kronos-api did not start"
        fi
    fi
}

function stop_kronos {
    # Nothing new is decided or planned while the executor ends.
    if is_service_enabled kronos-api; then
        stop_process kronos-api
    fi
    stop_process kronos-engine
    if is_service_enabled kronos-migfra; then
        stop_process kronos-migfra
    fi
    stop_process kronos-executor
    if is_service_enabled kronos-mosquitto; then
        stop_service mosquitto
    fi
    if is_service_enabled kronos-prometheus; then
        stop_service prometheus
    fi
    if is_service_enabled kronos-node-exporter; then
        stop_service prometheus-node-exporter
    fi
}

function cleanup_kronos {
    if is_service_enabled kronos-api; then
        remove_uwsgi_config $KRONOS_UWSGI_CONF kronos-api
        sudo rm -f $(apache_site_config_for kronos-api)
    fi
    sudo rm -rf $KRONOS_CONF_DIR $KRONOS_STATE_DIR
    sudo rm -f $NOVA_CONF_DIR/policy.d/kronos.yaml $PLACEMENT_CONF_DIR/policy.d/kronos.yaml
}

KRONOS_BIN_DIR=$(get_python_exec_prefix)

case "$1/${2:-}" in
    stack/pre-install)
        echo_summary "Installing Prometheus for kronos-nova"
        install_kronos_metrics
        install_kronos_mosquitto
        ;;
    stack/install)
        if is_kronos_enabled || is_service_enabled n-sch; then
            echo_summary "Installing kronos-nova"
            install_kronos
        fi
        ;;
    stack/post-config)
        # Before nova-scheduler and the APIs start.
        if is_kronos_enabled || is_service_enabled n-sch; then
            echo_summary "Configuring kronos-nova"
            configure_kronos_policies
        fi
        if is_service_enabled n-sch; then
            configure_kronos_scheduler
        fi
        if is_service_enabled n-api; then
            configure_kronos_access
        fi
        if is_kronos_enabled; then
            create_kronos_accounts
            configure_kronos
            init_kronos
        fi
        # An earlier unstack has stopped them.
        if is_service_enabled kronos-mosquitto; then
            restart_service mosquitto
        fi
        if is_service_enabled kronos-node-exporter; then
            restart_service prometheus-node-exporter
        fi
        if is_service_enabled kronos-prometheus; then
            configure_kronos_prometheus
        fi
        ;;
    stack/extra)
        # Nova and Placement answer.
        if is_kronos_enabled; then
            echo_summary "Starting kronos-nova"
            start_kronos
        fi
        ;;
    unstack/)
        stop_kronos
        ;;
    clean/)
        cleanup_kronos
        ;;
esac

$_XTRACE_KRONOS
