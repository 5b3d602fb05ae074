#!/bin/bash

if [[ ! -d "/var/log/kolla/kronos" ]]; then
    mkdir -p /var/log/kolla/kronos
fi
if [[ $(stat -c %a /var/log/kolla/kronos) != "755" ]]; then
    chmod 755 /var/log/kolla/kronos
fi
# config.json asks for this directory, too; kolla 20 (2025.1) does not read that.
if [[ ! -d "/var/lib/kronos/tmp" ]]; then
    mkdir -p -m 700 /var/lib/kronos/tmp
fi

. /usr/local/bin/kolla_kronos_extend_start
