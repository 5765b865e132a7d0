#!/bin/sh
# Measures a session on each of several machines over ssh, all at the same time:
#   profiles/sessions/ssh.sh config/config.yaml s3://bucket/prefix alice@one two three
# Each machine needs a clone with the configuration, in ~/storage-benchmarks or the folder CLONE, and credentials for the
# bucket. The same command continues interrupted sessions. FIRST (0) is the number of the first session: with 3, these
# machines measure sessions 3, 4 and 5.
set -eu
[ $# -ge 3 ] || {
    echo "usage: $0 CONFIG FOLDER|s3://bucket/prefix HOST…" >&2
    exit 2
}
config=$1 to=$2 index=${FIRST:-0} sessions=""
shift 2
for host; do
    command="cd '${CLONE:-storage-benchmarks}' && ./sbench run '$config' --session $index --to '$to' --yes"
    ssh -n "$host" "$command" >"storage-benchmarks-session-$index.log" 2>&1 &
    sessions="$sessions $!:$index:$host"
    index=$((index + 1))
done
failed=0
for session in $sessions; do
    place=${session#*:}
    wait "${session%%:*}" || {
        failed=1
        echo "session ${place%%:*} on ${place#*:} has failed: see storage-benchmarks-session-${place%%:*}.log" >&2
    }
done
exit $failed
