#!/bin/sh
# Runs commands on a machine that has nothing: tests/helpers/bare_machine.sh FOLDER SCRIPT. There is the C library with the
# compiler's runtime and busybox, and nothing else of this machine: no Python, no bash, no git, no compiler, no network but
# the loopback, neither this clone nor a cache. FOLDER becomes its root; the commands are those of nobody (65534).
# Needs root, util-linux, iproute2 and busybox.
set -eu
if [ -z "${BARE_MACHINE-}" ]; then
    # --kill-child: the kernel ends what is in the process namespace with its first process.
    export BARE_MACHINE=1
    exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
root=$1 script=$2
hostname bare
ip link set lo up
mkdir -p "$root/bin" "$root/etc" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/home"
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for name in $("$root/bin/busybox" --list); do
    [ -e "$root/bin/$name" ] || ln -s busybox "$root/bin/$name"
done
# What busybox lacks here, and the certificates that Amazon's S3 stack wants to see before it makes any request.
cp "$(command -v flock)" "$root/bin/flock"
mkdir -p "$root/etc/ssl/certs"
cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
# A library is where it is here, and so is the loader, whose path is in programs.
for name in c m dl pthread rt util resolv stdc++ gcc_s; do
    ldconfig -p | sed -n "s/^\tlib$name\.so\.[0-9]* (libc6[^)]*) => //p"
done >"$root/etc/libraries"
ldd "$(command -v flock)" | sed -n 's/^\t\(\/[^ ]*\) (.*/\1/p' >>"$root/etc/libraries"
while read -r path; do
    mkdir -p "$root/$(dirname "$path")"
    cp --dereference "$path" "$root/$path"
done <"$root/etc/libraries"
echo 'nobody:x:65534:65534:nobody:/home:/bin/sh' >"$root/etc/passwd"
echo '127.0.0.1 localhost bare' >"$root/etc/hosts"
chown 65534:65534 "$root/home"
mount --bind "$root" "$root"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
cd "$root"
exec "$(command -v env)" -i HOME=/home PATH=/bin "$(command -v chroot)" --userspec=65534:65534 . /bin/sh -eu "$script"
