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

# devstack_phases.sh PHASE...: runs phases of our plugin ("stack pre-install", "unstack") by
# DevStack's own run_phase, among DevStack's own functions. The checkout of DevStack is
# $DEVSTACK; the programs that would change the machine are those of $STAND_INS, first in PATH.
set -o errexit

TOP_DIR=$DEVSTACK
FILES=$TOP_DIR/files
# stackrc asks the machine's network for an address that is not set.
HOST_IP=192.0.2.10
SERVICE_HOST=$HOST_IP
DATABASE_PASSWORD=secret
RABBIT_PASSWORD=secret
SERVICE_PASSWORD='pass word'

source $TOP_DIR/functions
source $TOP_DIR/stackrc
GetDistro
# Folders of this run in the place of /opt/stack and /etc.
STACK_USER=$(id -un)
DEST=$STACK_HOME
DATA_DIR=$STACK_HOME/data
REQUIREMENTS_DIR=$STACK_HOME/requirements
SYSTEMD_DIR=$STACK_HOME/systemd
DEVSTACK_VENV=$STACK_HOME/venv
GLOBAL_VENV=True
NOVA_CONF_DIR=$STACK_HOME/nova
NOVA_CONF=$NOVA_CONF_DIR/nova.conf
PLACEMENT_CONF_DIR=$STACK_HOME/placement
APACHE_CONF_DIR=$STACK_HOME/apache
SSL_BUNDLE_FILE=$STACK_HOME/data/ca-bundle.pem
NO_UPDATE_REPOS=True
ENABLED_SERVICES=$STACK_SERVICES
DISABLED_SERVICES=$STACK_DISABLED
# stack.sh asks the people who stack for these.
REGION_NAME=RegionOne
DATABASE_TYPE=mysql
RABBIT_HOST=$SERVICE_HOST
RABBIT_USERID=stackrabbit
source $TOP_DIR/lib/database
source $TOP_DIR/lib/rpc_backend
source $TOP_DIR/lib/tls
source $TOP_DIR/lib/apache
source $TOP_DIR/lib/keystone
initialize_database_backends
define_database_baseurl

# What enable_plugin of local.conf does, without its git clone.
GITDIR[kronos-nova]=$KRONOS_DIR
DEVSTACK_PLUGINS=kronos-nova
run_phase source
for phase in "$@"; do
    run_phase $phase
done
