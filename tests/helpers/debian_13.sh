#!/bin/sh
# Runs a command in a clone on a Debian 13 that debootstrap makes: tests/helpers/debian_13.sh FOLDER COMMAND…
# The system lies in FOLDER, which a second call finds. It has git and make, its own packages and this machine's network,
# certificates and address book, and nothing else of it. Needs root, util-linux and debootstrap.
set -eu
root=$1
if [ -z "${DEBIAN_13-}" ]; then
    [ -e "$root/etc/debian_version" ] ||
        debootstrap --variant=minbase --include=ca-certificates,git,make trixie "$root"
    [ -e "$root/root/clone" ] || git clone --quiet "$(git rev-parse --show-toplevel)" "$root/root/clone"
    # --kill-child: the kernel ends what is in the process namespace with its first process.
    DEBIAN_13=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi
shift
cp --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
# Facts about a host name the mount point of a folder.
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# uv and pip bring authorities of their own, which need not be this machine's.
bundle=/etc/ssl/certs/ca-certificates.crt
exec "$(command -v env)" -i HOME=/root LANG=C.UTF-8 SSL_CERT_FILE=$bundle PIP_CERT=$bundle \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "$(command -v chroot)" "$root" /bin/sh -c 'cd /root/clone && exec "$@"' sh "$@"
