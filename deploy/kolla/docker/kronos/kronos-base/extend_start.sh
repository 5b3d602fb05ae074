#!/bin/bash

if [[ ! -d "/var/log/kolla/kronos" ]]; then
    mkdir -p /var/log/kolla/kronos
fi
if [[ $(stat -c %a /var/log/kolla/kronos) != "755" ]]; then
    chmod 755 /var/log/kolla/kronos
fi

. /usr/local/bin/kolla_kronos_extend_start
