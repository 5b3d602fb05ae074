#!/bin/busybox sh
# The first and only program of a test guest, in an initramfs with busybox and virtio modules.
# Each second it writes a heartbeat to the serial console:
#   HB boot=<8 hex digits> up=<seconds> seq=<number> cpu=<percent> dirty=<MiB>@<MiB/s> passes=<n>
# and it obeys lines that arrive there:
#   cpu PERCENT        use so much of one processor
#   dirty MIB RATE     rewrite MIB of memory, again and again, RATE MiB each second
#   disk MIB           write MIB of data to the disk, then print its sum as for "sum"
#   sum MIB            print DISK <md5 of the first MIB of the disk>, read from the disk itself
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
# In the order of their dependencies.
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    insmod /modules/$module.ko
done
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty raw -echo opost onlcr

read -r boot rest < /proc/sys/kernel/random/boot_id
boot=${boot%%-*}
echo 0 > /tmp/cpu
echo 0 0 > /tmp/dirty
echo 0 > /tmp/passes
# Data that do not compress.
dd if=/dev/urandom of=/tmp/data0 bs=1M count=1 2> /dev/null
# MiB that one process rewrites: a new process costs more than the writing.
chunk=8

burn_processor() {
    while :; do :; done &
    burner=$!
    while :; do
        read -r percent < /tmp/cpu
        if [ "$percent" -le 0 ]; then
            kill -STOP $burner
            usleep 300000
        else
            kill -CONT $burner
            usleep $((percent * 1000))
            if [ "$percent" -lt 100 ]; then
                kill -STOP $burner
                usleep $(((100 - percent) * 1000))
            fi
        fi
    done
}

rewrite_memory() {
    passes=0
    filled=0
    while :; do
        read -r size rate < /tmp/dirty
        if [ "$size" -le 0 ] || [ "$rate" -le 0 ]; then
            rm -f /tmp/rewritten
            filled=0
            usleep 300000
            continue
        fi
        position=0
        while [ $position -lt "$size" ]; do
            if [ "$size" -gt $filled ]; then
                dd if=/tmp/data0 of=/tmp/rewritten bs=1M count=1 seek=$position conv=notrunc \
                    2> /dev/null
                position=$((position + 1))
                usleep $((1000000 / rate))
            else
                dd if=/tmp/rewritten of=/tmp/rewritten bs=1M count=$chunk skip=$position \
                    seek=$position conv=notrunc 2> /dev/null
                position=$((position + chunk))
                usleep $((1000000 * chunk / rate))
            fi
            read -r size rate < /tmp/dirty
            [ "$rate" -gt 0 ] || break
        done
        filled=$size
        passes=$((passes + 1))
        echo $passes > /tmp/passes
    done
}

print_sum() {
    echo 3 > /proc/sys/vm/drop_caches
    echo "DISK $(dd if=/dev/vda bs=1M count="$1" 2> /dev/null | md5sum)"
}

burn_processor &
rewrite_memory &
seq=0
while :; do
    line=
    if read -r -t 1 line; then
        # A terminal may end lines with CR.
        line=$(echo "$line" | tr -cd 'a-z0-9 ')
        set -- $line
        case "$1" in
            cpu) echo "$2" > /tmp/cpu ;;
            dirty) echo "$2 $3" > /tmp/dirty ;;
            disk)
                i=0
                while [ $i -lt "$2" ]; do
                    dd if=/tmp/data0 of=/dev/vda bs=1M count=1 seek=$i conv=notrunc,fsync 2> /dev/null
                    i=$((i + 1))
                done
                print_sum "$2"
                ;;
            sum) print_sum "$2" ;;
        esac
    fi
    read -r up rest < /proc/uptime
    read -r percent < /tmp/cpu
    read -r size rate < /tmp/dirty
    read -r passes < /tmp/passes
    echo "HB boot=$boot up=$up seq=$seq cpu=$percent dirty=$size@$rate passes=$passes"
    seq=$((seq + 1))
done
