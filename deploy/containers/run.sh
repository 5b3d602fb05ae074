#!/bin/sh
# Runs daemons of kronos-nova in containers of this host: run.sh kronos-executor kronos-engine
# See "Run it in containers" in the documentation.
set -eu
for daemon in "$@"; do
    case $daemon in
        kronos-engine) port=9585 ;;
        kronos-executor) port=9586 ;;
        kronos-migfra) port=9587 ;;
        *) echo "run.sh: $daemon is none of kronos-engine, kronos-executor, kronos-migfra" >&2
           exit 2 ;;
    esac
    ask="import urllib.request as web; web.urlopen('http://127.0.0.1:$port/healthz', timeout=9)"
    podman run --detach --name "$daemon" --replace --restart unless-stopped --stop-timeout 150 \
        --network host --read-only --cap-drop all --security-opt no-new-privileges \
        --volume /etc/kronos:/etc/kronos:ro --volume /var/lib/kronos:/var/lib/kronos \
        --health-cmd "python3 -c \"$ask\"" localhost/kronos-nova "$daemon"
done
