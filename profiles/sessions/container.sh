#!/bin/sh
# Measures a session in a container of this machine, and sends its archive:
#   profiles/sessions/container.sh config/config.yaml 0 s3://bucket/prefix
# The same command continues an interrupted session. ENGINE (docker) may be podman, IMAGE another image than
# storage-benchmarks (see Containerfile).
set -eu
[ $# -eq 3 ] || {
    echo "usage: $0 CONFIG INDEX FOLDER|s3://bucket/prefix" >&2
    exit 2
}
config=$(realpath "$1") index=$2 to=$3
set --
# In the container, a folder of this machine is /archives.
case $to in
s3://*) ;;
*)
    mkdir -p "$to"
    set -- --volume "$(realpath "$to"):/archives"
    to=/archives
    ;;
esac
# The name refuses a second session at the same time, which would disturb this one. Records and builds are in volumes,
# which the next container continues. --init passes signals on.
exec "${ENGINE:-docker}" run --rm --init --name storage-benchmarks "$@" \
    --volume "storage-benchmarks-session-$index:/bench/results" \
    --volume storage-benchmarks-cache:/root/.cache \
    --volume "$config:/config.yaml:ro" \
    --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY --env AWS_SESSION_TOKEN \
    --env AWS_REGION --env AWS_ENDPOINT_URL \
    "${IMAGE:-storage-benchmarks}" ./sbench run /config.yaml --session "$index" --to "$to" --yes
