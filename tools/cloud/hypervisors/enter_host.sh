#!/bin/bash
# Make the private file systems of a host and keep its namespaces open; started by
# "unshare --mount --uts --net". Arguments: HOST DIRECTORY ADDRESS INSTANCES STORE KEY
#   DIRECTORY  what the host keeps: libvirt's files, its disks
#   ADDRESS    where libvirtd, QEMU and sshd listen for migrations
#   INSTANCES  nova's instances_path, the same path on every host
#   STORE      a directory that all hosts share, or "" for disks of the host's own
#   KEY        the private key of nova's user, who copies disks of cold migrations by ssh
set -euo pipefail
host=$1 directory=$2 address=$3 instances=$4 store=$5 key=$6

hostname "$host"
mkdir -p "$directory"/{etc,ssh,run,lib,log,cache,instances,tmp} "$instances"
if [ ! -e "$directory/uuid" ]; then
    cp -a /etc/libvirt/. "$directory/etc/"
    # Debian's default network is not for these hosts.
    rm -rf "$directory/etc/qemu/networks/autostart"
    cat /proc/sys/kernel/random/uuid > "$directory/uuid"
fi
cat > "$directory/etc/libvirtd.conf" <<EOF
listen_tls = 0
listen_tcp = 1
listen_addr = "$address"
auth_tcp = "none"
auth_unix_rw = "none"
host_uuid = "$(cat "$directory/uuid")"
# A scrape waits 30 s for the statistics of a guest that arrives, and holds a worker meanwhile;
# Prometheus scrapes every second here, and the end of a migration needs a worker.
max_workers = 100
log_outputs = "2:file:$directory/libvirtd.log"
EOF
cat > "$directory/etc/qemu.conf" <<EOF
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
migration_address = "$address"
migration_host = "$address"
EOF
[ -e "$directory/ssh/host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$directory/ssh/host_key"
cat > "$directory/ssh/sshd_config" <<EOF
ListenAddress $address
HostKey /etc/ssh/host_key
AuthorizedKeysFile $key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
EOF
# nova-compute has the machine's network, and its ssh that of the host.
cat > "$directory/ssh/ssh_config" <<EOF
Host *
    IdentityFile $key
    ProxyCommand nsenter --target $$ --net nc %h %p
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
EOF
mkdir -p /run/sshd /etc/ssh
mount --bind "$directory/ssh" /etc/ssh
mount --bind "$directory/etc" /etc/libvirt
for part in lib log cache; do
    mkdir -p "/var/$part/libvirt"
    mount --bind "$directory/$part" "/var/$part/libvirt"
done
mkdir -p /run/libvirt
mount --bind "$directory/run" /run/libvirt
if [ -n "$store" ]; then
    # libvirt migrates without a copy only from a file system that it knows to be shared.
    bindfs -o subtype=glusterfs,fsname=sandbox:/store "$store" "$instances"
else
    mount --bind "$directory/instances" "$instances"
fi
touch "$directory/ready"
exec sleep infinity
