#!/bin/bash
# Runs a command in a Slurm cluster of one node, made for it: tests/slurm.sh FOLDER COMMAND…
# The cluster has a network, a host name and an /etc/slurm of its own, so nothing of it can be seen from outside, and all of it
# ends with the command. Needs root, util-linux, iproute2, munge, slurmctld, slurmd and slurm-client.
set -euo pipefail
if [ -z "${SLURM_TEST_INSIDE-}" ]; then
    export SLURM_TEST_INSIDE=1
    # --kill-child: the kernel ends what is in the process namespace with its first process.
    exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
folder=$1 && shift
node=node1
mkdir -p "$folder"/{state,spool,munge,etc}
hostname $node
ip link set lo up
# Slurm resolves names only where an address other than 127.0.0.1 is there.
ip addr add 10.99.0.1/32 dev lo
{ cat /etc/hosts && echo "127.0.0.1 $node"; } >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/etc" /etc/slurm
cat >/etc/slurm/slurm.conf <<END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
MpiDefault=none
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES State=UP
END
head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 400 "$folder/munge/key"
munged --force --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --seed-file="$folder/munge/seed" --log-file="$folder/munge/log" 2>/dev/null &
slurmctld -D >"$folder/slurmctld.log" 2>&1 &
slurmctld=$!
until [ -S "$folder/munge/socket" ]; do sleep 0.05; done
slurmd -D >"$folder/slurmd.log" 2>&1 &
until sinfo --noheader --format=%T 2>/dev/null | grep --quiet idle; do
    kill -0 $slurmctld $! || exit 99 # one of them has ended: its log says why
    sleep 0.1
done
"$@"
