#!/bin/bash
# Runs a command in a Slurm cluster made for it: tests/helpers/slurm.sh FOLDER COMMAND…, with NODES (1) nodes, each a slurmd of this
# machine with all of its cores. The cluster has a network, a host name and an /etc/slurm of its own, so nothing of it can be seen from outside, and all of it
# ends with the command. Needs root, util-linux, iproute2, munge, slurmctld, slurmd and slurm-client.
set -euo pipefail
if [ -z "${SLURM_TEST_INSIDE-}" ]; then
    export SLURM_TEST_INSIDE=1
    # --kill-child: the kernel ends what is in the process namespace with its first process.
    exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
folder=$1 && shift
nodes=$(seq --format=node%.0f "${NODES:-1}")
mkdir -p "$folder"/{state,munge,etc}
hostname node1
ip link set lo up
# Slurm resolves names only where an address other than 127.0.0.1 is there.
ip addr add 10.99.0.1/32 dev lo
{ cat /etc/hosts && echo "127.0.0.1" $nodes; } >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
# Sockets lie there too, as their names have 107 bytes at most.
mount --bind "$folder/etc" /etc/slurm
cat >/etc/slurm/slurm.conf <<END
ClusterName=test
SlurmctldHost=node1(127.0.0.1)
SlurmctldPort=16817
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=/etc/slurm/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=/etc/slurm/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
MpiDefault=none
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP
END
port=16818
memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
for node in $nodes; do
    echo "NodeName=$node NodeHostname=node1 NodeAddr=127.0.0.1 Port=$port CPUs=$(nproc) RealMemory=$memory State=UNKNOWN"
    port=$((port + 1))
done >>/etc/slurm/slurm.conf
head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 400 "$folder/munge/key"
munged --force --foreground --key-file="$folder/munge/key" --socket=/etc/slurm/munge --pid-file="$folder/munge/pid" \
    --seed-file="$folder/munge/seed" --log-file="$folder/munge/log" 2>/dev/null &
munged=$!
slurmctld -D >"$folder/slurmctld.log" 2>&1 &
slurmctld=$!
daemons="$munged $slurmctld"
until [ -S /etc/slurm/munge ]; do
    # shellcheck disable=SC2086  # the numbers are words
    kill -0 $daemons || exit 99
    sleep 0.05
done
for node in $nodes; do
    mkdir "/etc/slurm/spool.$node"
    slurmd -N "$node" -D >"$folder/slurmd.$node.log" 2>&1 &
    daemons+=" $!"
done
until [ "$(sinfo --Node --noheader --states=idle 2>/dev/null | wc -l)" = "${NODES:-1}" ]; do
    # shellcheck disable=SC2086  # the numbers are words
    kill -0 $daemons || exit 99 # one of them has ended: its log says why
    sleep 0.1
done
"$@"
