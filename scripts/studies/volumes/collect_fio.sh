#!/bin/sh
# Runs a battery of fio on another machine, with nothing but fio and a shell there, and brings its results back as
# {battery}_{cluster}-fio-{hostname}.tar.gz, which `make import` reads. --help says how to call it.
set -u
export LC_ALL=C

usage() {
    cat <<'END'
collect_fio.sh --battery NAME --cluster NAME --directory DIR [options] -- COMMAND …

COMMAND … is what comes before `sh` to get a shell over there:

  scripts/studies/volumes/collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- ssh root@host
  scripts/studies/volumes/collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- podman exec -i etcd
  scripts/studies/volumes/collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- oc debug --quiet node/NAME -- chroot /host

  --job FILE         the job, 50 times 10 s apart (config/fio/etcd-published.fio)
  --background FILE  a job that runs meanwhile
  --out DIR          the folder here that gets the tarball (the current one)

and the options of scripts/studies/volumes/fio_battery.sh, which runs there: --jobs, --at-least, --pause, --background-directory, --device, --erase,
--time-limit, --reserve. Ctrl-C ends the battery; what was measured until then is brought back.

Status: 0 complete; 1 what was measured is here, but it is not all; 2 nothing came back.
END
}

say() { printf '%s\n' "$*" >&2; }

refuse() {
    say "problem: $*"
    exit 2
}

# Adds words to those that the battery is called with, in quotes, for a shell to read.
pass() {
    for word in "$@"; do
        words="$words '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'"
    done
}

# Adds the text and the name of a job file, since the file is not over there: $1 is --job or --background.
pass_job() {
    [ -f "$2" ] || refuse "there is no job file $2"
    base=${2##*/}
    pass "$1-text" "$(cat "$2")" "$1-name" "${base%.fio}"
}

# Reads the options that matter here; the others are the battery's, which knows them.
read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --help) usage && exit ;;
        --) return ;;
        --erase) pass "$1" && shift && continue ;;
        esac
        [ $# -gt 1 ] && [ "$2" != -- ] || refuse "$1 is no option, or has no value; --help lists the options"
        case $1 in
        --job) job=$2 ;;
        --background) pass_job "$1" "$2" ;;
        --out) out=$2 ;;
        --battery) battery=$2 && pass "$1" "$2" ;;
        --cluster) cluster=$2 && pass "$1" "$2" ;;
        *) pass "$1" "$2" ;;
        esac
        shift 2
    done
}

# Asks the machine for its name, so that a command that leads nowhere, or results that are here already, are seen now.
ask_name() {
    host=$(printf 'uname -n\n' | "$@" sh -s | tail -n 1)
    case $host in
    '' | *[!A-Za-z0-9._-]*) refuse "'$*' does not lead to a shell: asked for its name, it said '$host'" ;;
    esac
    title=${battery}_$cluster-fio-$host
    [ ! -e "$out/$title.tar.gz" ] || refuse "$out/$title.tar.gz is there already; move it away, or give the battery another name"
}

# Sees that the tarball is whole and holds what it should; sets status to how the battery ended.
check_tarball() {
    names=$(tar -tzf "$1" 2>/dev/null) || return 1
    ! printf '%s\n' "$names" | grep -qv "^$title/[A-Za-z0-9._-]*$" || return 1
    status=$(tar -xzOf "$1" "$title/battery.txt" 2>/dev/null | sed -n 's/^status: //p')
    [ -n "$status" ]
}

# Ends the battery over there by ending its standard input; it sends what it has measured.
# shellcheck disable=SC2329  # traps call it
hang_up() {
    say "ending the battery on $host; once more to give up its results"
    exec 4>&-
    trap 'kill "$shell" 2>/dev/null; exit 2' HUP INT TERM
}

battery='' cluster='' out=. job=$(dirname "$0")/../../../config/fio/etcd-published.fio words=''
read_options "$@"
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 1 ] && shift || refuse "how is the other machine reached? Add for example: -- ssh root@host"
[ -n "$battery" ] && [ -n "$cluster" ] || refuse "what is it called? Add for example: --battery b2 --cluster t1"
pass_job --job "$job"
[ -d "$out" ] && [ -w "$out" ] || refuse "$out is no folder that can be written to"
ask_name "$@"
temp=$(mktemp -d "$out/.collect_fio.XXXXXX") || refuse "no folder can be made in $out"
trap 'rm -rf "$temp"' EXIT
trap '' PIPE
mkfifo "$temp/input" || refuse "no pipe can be made in $out"
"$@" sh -s <"$temp/input" >"$temp/tarball" &
shell=$!
trap hang_up HUP INT TERM
exec 4>"$temp/input"
# All that is said over there is one script: its options are its first line, so no shell between takes them apart.
{ printf 'set -- --tar --watch-input%s\n' "$words" && cat "$(dirname "$0")/fio_battery.sh"; } >&4
while
    wait "$shell"
    code=$?
    kill -0 "$shell" 2>/dev/null
do :; done
exec 4>&-
# Where the battery itself refused, it has said why.
[ "$code" -ne 2 ] || exit 2
check_tarball "$temp/tarball" || refuse "no whole results came back from $host ('$*' ended with status $code)"
mv "$temp/tarball" "$out/$title.tar.gz" || refuse "$out/$title.tar.gz cannot be written"
say "$out/$title.tar.gz: $status"
[ "$status" = complete ]
