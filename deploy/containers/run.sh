#!/bin/sh
# Runs a daemon of kronos-nova in a container that stays, and any other command in one that ends
# with it: run.sh kronos-engine; run.sh kronos status
# See "Run it in containers" in the documentation.
set -eu
name=$1
path=healthz
case $name in
    kronos-engine) port=9585 ;;
    kronos-executor) port=9586 ;;
    kronos-migfra) port=9587 ;;
    kronos-api)
        port=9588
        path=healthcheck
        shift
        set -- uwsgi --plugin python3 --virtualenv /opt/kronos --ini /etc/kronos/kronos-api.ini "$@"
        ;;
    *) port= ;;
esac
set -- --network host --read-only --cap-drop all --security-opt no-new-privileges \
    --volume /etc/kronos:/etc/kronos:ro --volume /var/lib/kronos:/var/lib/kronos \
    localhost/kronos-nova "$@"
if [ -z "$port" ]; then
    exec podman run --rm "$@"
fi
ask="import urllib.request as web; web.urlopen('http://127.0.0.1:$port/$path', timeout=9)"
exec podman run --detach --name "$name" --replace --restart unless-stopped --stop-timeout 150 \
    --health-cmd "python3 -c \"$ask\"" "$@"
