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

# rebalance.sh BUSY IDLE OUTPUT: on the controller of a devstack with two hosts.
#
# Boots instances that do nothing but compute on BUSY; then one more anywhere, which has
# to be booted on IDLE; then waits until one of the busy ones was live-migrated to IDLE.
# What was seen is kept in OUTPUT. Exits with 1 when something does not happen in time.
set -o errexit -o nounset -o pipefail

busy=$1
idle=$2
output=$3
patience=${KRONOS_PATIENCE:-900}
pause=${KRONOS_PAUSE:-5}
conf=(--config-file /etc/kronos/kronos.conf)
prefix=kronos-rebalance
cloud=(openstack --os-cloud devstack-admin-demo --os-compute-api-version 2.74)

function say {
    echo "$(date -u +%H:%M:%S) $*" | tee -a "$output/log"
}

# until_true WHAT FUNCTION [ARGUMENT...]: 1 when it did not happen in time.
function until_true {
    local what=$1
    local end

    shift
    end=$((SECONDS + patience))
    say "waiting until $what"
    until "$@"; do
        if ((SECONDS >= end)); then
            say "not within $patience s: $what"
            return 1
        fi
        sleep "$pause"
    done
}

function ready {
    curl -sf http://127.0.0.1:9585/readyz > "$output/engine.json" &&
        curl -sf http://127.0.0.1:9586/readyz > "$output/executor.json"
}

# The load of both hosts, as the policy file has it: "host load", one a line.
function loads {
    curl -sfG http://127.0.0.1:9090/api/v1/query --data-urlencode 'query=
        1 - avg by (nodename) (
            sum by (instance, cpu) (rate(node_cpu_seconds_total{mode=~"idle|iowait"}[1m]))
            * on (instance) group_left (nodename)
            max by (instance, nodename) (node_uname_info))' |
        python3 -c 'import json, sys
rows = json.load(sys.stdin)["data"]["result"]
print(*(row["metric"]["nodename"] + " " + row["value"][1] for row in rows), sep="\n")'
}

function both_measured {
    loads > "$output/loads" && [ "$(wc -l < "$output/loads")" -ge 2 ]
}

function loaded {
    loads > "$output/loads" || return 1
    awk -v busy="$busy" -v idle="$idle" '{ load[$1] = $2 }
        END { exit !(busy in load && idle in load && load[busy] - load[idle] > 0.2) }' \
        "$output/loads"
}

function host_of {
    "${cloud[@]}" server show "$1" -f value -c OS-EXT-SRV-ATTR:host
}

# Of the busy instances, those on IDLE; tasks that are not over are kept as they are seen.
function moved {
    kronos task list "${conf[@]}" -f value >> "$output/tasks" || return 1
    "${cloud[@]}" server list --host "$idle" --name "$prefix-busy" --status ACTIVE \
        -f value -c ID > "$output/moved" && [ -s "$output/moved" ]
}

# kronos-api by its address in the catalogue, with a token of the role admin: its plans have the
# task of an instance that moved.
function api_tells {
    local url
    local token

    url=$("${cloud[@]}" endpoint list --service rebalance --interface public -f value -c URL) &&
        token=$("${cloud[@]}" token issue -f value -c id) &&
        curl -sf -H "X-Auth-Token: $token" "$url/v1/tasks?limit=500" > "$output/api.json" &&
        grep -qf "$output/moved" "$output/api.json"
}

mkdir -p "$output"
until_true "engine and executor are ready" ready
until_true "Prometheus measures both hosts" both_measured

"${cloud[@]}" flavor create --ram 128 --disk 1 --vcpus 1 "$prefix" > /dev/null
image=$("${cloud[@]}" image list -f value -c Name | grep -m 1 ^cirros)
printf '#!/bin/sh\nwhile :; do :; done &\n' > "$output/busy.sh"
# Half of the host's processors, so that it is the busiest without being stuck.
count=$((($(nproc) + 1) / 2))
say "booting $count busy instances on $busy"
for ((number = 1; number <= count; number++)); do
    "${cloud[@]}" server create --flavor "$prefix" --image "$image" --network private \
        --host "$busy" --user-data "$output/busy.sh" --wait "$prefix-busy-$number" > /dev/null
done
until_true "$busy is busier than $idle" loaded

"${cloud[@]}" server create --flavor "$prefix" --image "$image" --network private \
    --wait "$prefix-calm" > /dev/null
calm=$(host_of "$prefix-calm")
say "nova-scheduler has chosen $calm"
if [ "$calm" != "$idle" ]; then
    say "$busy is busy, and a new instance was booted there"
    exit 1
fi

until_true "a busy instance is on $idle" moved
if ! grep -q " $busy $idle " "$output/tasks"; then
    say "it moved, but kronos task list has not shown a task from $busy to $idle"
    exit 1
fi
until_true "kronos-api tells of the task" api_tells
# What Tempest boots next is not ours to move.
kronos pause "${conf[@]}" --reason "the tests of Tempest"
say "rebalanced: $(tr '\n' ' ' < "$output/moved")"
"${cloud[@]}" server list --long --name "$prefix" -f value -c Name > "$output/servers"
while read -r name; do
    "${cloud[@]}" server delete --wait "$name"
done < "$output/servers"
