#!/bin/sh
# Runs a battery: the same fio job several times in a row, recording the state of the machine before and after each run.
# Needs fio 3, and coreutils and util-linux, or busybox. Works in dash, bash and busybox sh. See --help.
# Only the last line runs anything, so that the script can be read from standard input: sh -s -- --help <FILE
set -u
export LC_ALL=C

usage() {
    cat <<'END'
fio_battery.sh --battery NAME --cluster NAME --directory DIR --job FILE (--out DIR | --tar) [options]

Runs a job of fio many times in DIR. Keeps fio's JSON, and the load, the free space and the counters of the disk before
and after each run, in a folder {battery}_{cluster}-fio-{hostname}.

  --battery NAME, --cluster NAME  name of the battery, such as b2 and t1
  --directory DIR                 a folder on the volume under test; the files are in DIR/storage-benchmarks-fio, which
                                  is emptied and removed at the end
  --device DEVICE --erase         instead of --directory: an unused raw block device; its content is lost
  --job FILE                      the job file, with a single job, [fio_io]; its runs are named fio_io_a1, fio_io_a2 …
  --jobs N, --pause SECONDS       number of runs (50), and the time between two runs (10)
  --at-least SECONDS              shortest time of the battery; further runs follow if necessary (0)
  --background FILE               a job that runs from before the first run until after the last
  --background-directory DIR      folder of the background job (default: on the volume under test)
  --out DIR                       make the folder of results in DIR
  --tar                           write the folder of results to standard output, as .tar.gz
  --time-limit SECONDS            start no run after it, and end a run in progress; the results so far are kept
  --reserve MIB                   free space to leave on the file system, in addition to the files (256)
  --watch-input                   end, as at the time limit, when standard input ends, as the caller has ended; after the
                                  line "enough" on it, the finished jobs are the whole battery
  --job-text TEXT --job-name NAME, --background-text TEXT --background-name NAME
                                  text and name of a job instead of its file

collect_fio.sh runs it on another machine, which needs only fio and a shell, and writes the results to the folder --out
(the current folder) as {battery}_{cluster}-fio-{hostname}.tar.gz, which `sbench import` reads. It has the same options;
--job is config/fio/etcd-published.fio by default. COMMAND … is the command that opens a shell there if `sh` follows it:

  collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- ssh root@host
  collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- podman exec -i etcd
  collect_fio.sh --battery b2 --cluster t1 --directory /var/lib/etcd -- oc debug --quiet node/NAME -- chroot /host

Status: 0 complete; 1 interrupted or failed, with the results so far; 2 nothing was started, or no results came back.
END
}

say() { printf '%s\n' "$*" >&2; }

# Exits before anything has started, with an error that the user can fix.
refuse() {
    say "problem: $*"
    exit 2
}

main() {
    elsewhere='' battery='' cluster='' directory='' device='' erase='' out='' tar='' time_limit='' watch_input='' reserve=256
    jobs=50 at_least=0 pause=10 job_text='' job_name='' background_text='' background_name='' background_directory=''
    read_options "$@"
    [ -z "$elsewhere" ] || collect "$@"
    check_options
    check_tools
    exec 3<&0
    claimed='' child='' background='' ended='' failed='' alarm='' watcher='' stopping='' sufficient='' done_jobs=0
    temp=$(mktemp -d "${TMPDIR:-/tmp}/fio_battery.XXXXXX") || refuse "cannot make a folder in ${TMPDIR:-/tmp}"
    trap clean_up EXIT
    trap '' PIPE
    trap 'end_early "signal HUP"' HUP
    trap 'end_early "signal INT"' INT
    trap 'end_early "signal TERM"' TERM
    trap 'end_early "the time limit of $time_limit s"' USR1
    trap suffice USR2
    check_jobs
    if [ -n "$device" ]; then check_device; else check_directory; fi
    claim "$own"
    [ -z "$background_text" ] || [ "$beside" = "$own" ] || claim "$beside"
    make_results
    watch_over
    [ -z "$background_text" ] || start_background
    run_jobs
    [ -z "$background" ] || stop_background
    finish
}

# --- Options and jobs ---

read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --help) usage && exit ;;
        --) [ -z "$elsewhere" ] || return 0 ;;
        --erase | --tar | --watch-input | --elsewhere) set_option "$1" yes && shift && continue ;;
        esac
        [ $# -gt 1 ] && [ "$2" != -- ] || refuse "$1 is not an option, or lacks its value; --help lists the options"
        case $1 in
        --job | --background) read_job "$1" "$2" ;;
        --battery | --cluster | --directory | --device | --jobs | --at-least | --pause | --out | --time-limit | --reserve | \
            --job-text | --job-name | --background-text | --background-name | --background-directory) set_option "$1" "$2" ;;
        *) refuse "$1 is not an option; --help lists the options" ;;
        esac
        shift 2
    done
}

# Sets the variable that belongs to an option, such as job_text for --job-text.
set_option() {
    case ${1#--} in
    *-*) option=${1#--} && eval "${option%-*}_${option#*-}=\$2" ;;
    *) eval "${1#--}=\$2" ;;
    esac
}

# Reads the text and the name of the job, or of the background job, from a file.
read_job() {
    [ -f "$2" ] || refuse "the job file $2 does not exist; correct the path"
    text=$(cat "$2") || refuse "the job file $2 cannot be read"
    name=${2##*/}
    set_option "$1-text" "$text" && set_option "$1-name" "${name%.fio}"
}

check_options() {
    check_name --battery "$battery"
    check_name --cluster "$cluster"
    case $battery in *_*) refuse "--battery must not contain _, which separates battery and cluster in names of results (got '$battery')" ;; esac
    [ -n "$job_text" ] || refuse "--job is missing; name a job file"
    check_name --job-name "$job_name"
    [ -z "$background_text" ] || check_name --background-name "$background_name"
    [ -n "$background_text" ] || [ -z "$background_directory" ] || refuse "--background-directory needs --background"
    check_number --jobs "$jobs" whole
    [ "$jobs" -gt 0 ] || refuse "--jobs must be at least 1 (got 0)"
    check_number --at-least "$at_least" whole
    check_number --pause "$pause"
    check_number --reserve "$reserve" whole
    [ -z "$time_limit" ] || check_number --time-limit "$time_limit"
    [ -n "$directory$device" ] || refuse "--directory is missing; name a folder on the volume"
    [ -z "$directory" ] || [ -z "$device" ] || refuse "--directory and --device exclude each other"
    [ -z "$device" ] || [ -n "$erase" ] || refuse "the battery would erase $device; add --erase to allow this"
    [ -z "$device" ] || [ -z "$background_text" ] || [ -n "$background_directory" ] ||
        refuse "a raw device cannot hold the files of the background job; add --background-directory"
    case $directory$background_directory in *"
"*) refuse "--directory: the name of a folder must not contain a line break; rename the folder" ;; esac
    [ -n "$out$tar" ] || refuse "--out is missing; name a folder for the results, or add --tar for standard output"
    [ -z "$out" ] || [ -z "$tar" ] || refuse "--out and --tar exclude each other"
}

check_name() {
    [ -n "$2" ] || refuse "$1 is missing"
    case $2 in
    [!A-Za-z0-9]* | *[!A-Za-z0-9._-]* | *-fio-*)
        refuse "$1 must be a name of letters, digits, dots, _ and -, without -fio- (got '$2')"
        ;;
    esac
}

check_number() {
    case $2 in
    '' | . | *[!0-9.]* | *.*.*) refuse "$1 must be a number (got '$2')" ;;
    *.*) [ $# -eq 2 ] || refuse "$1 must be a whole number (got '$2')" ;;
    esac
}

check_tools() {
    host=$(uname -n)
    # Use the first executable in PATH that starts and reports a version of fio.
    folders=$PATH: fio_version=''
    while [ -n "$folders" ]; do
        fio=${folders%%:*}/fio folders=${folders#*:}
        { [ -x "$fio" ] && fio_version=$("$fio" --version 2>&1); } || continue
        case $fio_version in fio-*) break ;; esac
    done
    case $fio_version in
    '') refuse "fio is not on $host; install it: apt install fio, or dnf install fio" ;;
    fio-[12].*) refuse "$fio_version on $host is too old; fio 3 or later is needed" ;;
    fio-[1-9]*) ;;
    *) refuse "fio on $host does not start: $fio_version" ;;
    esac
    for tool in cat cut date df du env flock grep ln mkdir mktemp mv readlink rm rmdir sed sleep tail tr ${tar:+tar gzip}; do
        command -v "$tool" >/dev/null || refuse "$tool is not on $host; install coreutils, util-linux, $tool or busybox"
    done
}

check_jobs() {
    check_job "$temp/job.fio" "$job_name" "$job_text"
    needed=$bytes
    kind=$(option "$temp/job.fio" rw readwrite)
    kind=${kind%%:*}
    kind=${kind:-read}
    # A job with a rate is an open loop. The log of all latencies is needed to compute the waiting times of operations.
    logged=''
    [ -z "$(option "$temp/job.fio" rate_iops)" ] || logged=--write_lat_log=$temp/run
    [ -z "$background_text" ] || check_job "$temp/background.fio" "$background_name" "$background_text"
    needed_beside=$bytes
}

# Writes the job named $2 with the text $3 to the file $1, and sets bytes to the total size of its files.
# Refuses invalid job files, those with other or several jobs, and those that set the location of their files.
check_job() {
    printf '%s\n' "$3" >"$1" || refuse "$temp cannot be written to"
    sections=$(sed -n 's/^[[:space:]]*\[\([^]]*\)\].*/\1/p' "$1" | grep -vx global)
    [ "$sections" = fio_io ] ||
        refuse "$2.fio must have a single job, [fio_io] (got: $(printf '%s' "${sections:-none}" | tr '\n' ' '))"
    for key in directory filename filename_format opendir include; do
        ! grep -q "^[[:space:]]*${key}[[:space:]=]" "$1" ||
            refuse "$2.fio must not set $key, because the battery places the files; remove the line"
    done
    words=$("$fio" --parse-only "$1" 2>&1) || refuse "$2.fio: fio refuses it: $(printf '%s\n' "$words" | last_words)"
    bytes=$(bytes_of "$(option "$1" size filesize)") || refuse "$2.fio must give the size of its files; add a line such as size=200m"
    processes=$(option "$1" numjobs)
    bytes=$((bytes * ${processes:-1}))
}

# Prints the value of option $2 in the job file $1; if it is missing, that of option $3.
option() {
    for key in "$2" "${3:-$2}"; do
        value=$(sed -n "s/^[[:space:]]*${key}[[:space:]]*=[[:space:]]*\([^;#[:space:]]*\).*/\1/p" "$1" | tail -n 1)
        [ -z "$value" ] || break
    done
    printf '%s\n' "$value"
}

# Converts a size such as 2300, 16k, 200m or 1GiB to bytes, with fio's units.
bytes_of() {
    digits=${1%%[!0-9]*}
    [ -n "$digits" ] || return 1
    case ${1#"$digits"} in
    '') power=0 ;;
    [kK]*) power=10 ;;
    [mM]*) power=20 ;;
    [gG]*) power=30 ;;
    [tT]*) power=40 ;;
    *) return 1 ;;
    esac
    printf '%s\n' "$((digits << power))"
}

# Prints the last informative line of standard input, skipping empty lines and fio's messages about exited processes.
last_words() { sed 's/[[:space:]]*$//' | grep . | grep -v '^fio: pid=' | tail -n 1; }

# --- Directories and devices ---

check_directory() {
    directory=$(folder_of "$directory") || exit
    own=$directory/storage-benchmarks-fio
    where=--directory=$(escaped "$own/files")
    find_mount
    check_beside "$directory"
    check_free "$directory" "$needed"
}

# Checks that there is space for the files of the background job. On the battery's file system, their size is added to
# the space that the battery needs.
check_beside() {
    [ -n "$background_text" ] || return 0
    background_directory=$(folder_of "${background_directory:-$1}") || exit
    beside=$background_directory/storage-benchmarks-fio
    where_beside=--directory=$(escaped "$beside/background")
    if [ -n "$1" ] && [ "$(mount_of "$1")" = "$(mount_of "$background_directory")" ]; then
        needed=$((needed + needed_beside))
    else
        check_free "$background_directory" "$needed_beside"
    fi
}

# Prints the canonical path of a directory, which must be writable.
folder_of() {
    [ -d "$1" ] || refuse "the folder $1 does not exist on $host; correct the path"
    [ -w "$1" ] || refuse "$1 is not writable; change its permissions, or name another folder"
    (cd "$1" && pwd -P) || refuse "$1 cannot be entered"
}

# Escapes the colons in a file name, as fio interprets a colon as a separator.
escaped() { printf '%s\n' "$1" | sed 's/:/\\:/g'; }

mount_of() { df -P "$1" | sed -n '$s/.*[0-9-]%* \(\/.*\)/\1/p'; }

# Sets size_bytes and free_bytes to the size and free space of the file system of a directory.
read_space() {
    df -Pk "$1" | sed -n '$s/.* \([0-9][0-9]*\)  *[0-9][0-9]*  *\(-*[0-9][0-9]*\)  *[0-9-][0-9]*%* .*/\1 \2/p' >"$temp/space"
    read -r size_kib free_kib <"$temp/space" || size_kib=0 free_kib=0
    size_bytes=$((size_kib * 1024)) free_bytes=$((free_kib * 1024))
}

check_free() {
    read_space "$1"
    [ "$free_bytes" -ge "$(($2 + reserve * 1048576))" ] ||
        refuse "$1 has $((free_bytes / 1048576)) MiB free; the files need $((($2 + 1048575) / 1048576)), and $reserve must" \
            "stay free (--reserve); free some space, or name another folder"
}

# Sets the mount_… variables of the file system of the directory, and block to the name of its block device, if any.
find_mount() {
    mount_point=$(mount_of "$directory" | sed 's/ /\\040/g') mount_options='' mount_numbers='' mount_type='' mount_source=''
    while read -r _ _ numbers _ point options rest; do
        [ "$point" = "$mount_point" ] || continue
        rest=${rest#*- }
        mount_numbers=$numbers mount_type=${rest%% *}
        rest=${rest#* }
        mount_source=${rest%% *}
        # Options of the mount, followed by those of the file system (nobarrier, sync, data=).
        mount_options=$options,${rest#* }
    done </proc/self/mountinfo
    block=$(readlink -f "/sys/dev/block/$mount_numbers")
    [ -e "$block/stat" ] || block=$(readlink -f "$mount_source")
    block=${block##*/}
    [ -e "/sys/class/block/$block/stat" ] || block=''
}

# Refuses a device that is in use, since only an unused disk or partition may be overwritten.
check_device() {
    [ -b "$device" ] || refuse "$device is not a block device of $host"
    [ -w "$device" ] || refuse "$device is not writable; run this as root"
    device=$(readlink -f "$device")
    block=${device##*/}
    [ -e "/sys/class/block/$block/size" ] || refuse "$device is not in /sys/class/block"
    for part in "/sys/class/block/$block/partition" "/sys/class/block/$block/"*/partition; do
        part=${part%/partition}
        [ ! -e "$part/dev" ] || check_unused "${part##*/}" "$(cat "$part/dev")"
    done
    read -r sectors <"/sys/class/block/$block/size"
    [ "$needed" -le "$((sectors * 512))" ] ||
        refuse "$device has $((sectors / 2048)) MiB, the job needs $((needed / 1048576))"
    # Put the lock file in a directory that is not writable by other users, unlike /tmp.
    own=/run
    [ -w "$own" ] || own=${XDG_RUNTIME_DIR:-$temp}
    own=$own/storage-benchmarks-fio-$block
    where=--filename=$(escaped "$device")
    check_beside ''
}

# Refuses the device with the name $1 and device number $2 if it is mounted, used as swap, or part of another device.
check_unused() {
    users=$(
        while read -r _ _ numbers _ point _ rest; do
            rest=${rest#*- }
            rest=${rest#* }
            [ "$numbers" != "$2" ] && [ "$(readlink -f "${rest%% *}")" != "/dev/$1" ] || printf 'the mount %s\n' "$point"
        done </proc/self/mountinfo
        while read -r swap _; do
            [ "$(readlink -f "$swap")" != "/dev/$1" ] || printf 'swap\n'
        done </proc/swaps
        for holder in "/sys/class/block/$1/holders/"* /sys/fs/btrfs/*/devices/"$1"; do
            [ ! -e "$holder" ] || printf '%s\n' "${holder##*/}"
        done
    )
    [ -z "$users" ] ||
        refuse "/dev/$1 is in use by $(printf '%s\n' "$users" | sed -n 1p); name an unused device"
}

# --- Locks and cleaning up ---

# Locks a directory for this battery, and removes files that a killed battery left there. The kernel releases the lock
# however this process ends. The lock file contains process ids, and marks the directory as created by a battery.
claim() {
    for link in "$1" "$1/lock"; do
        [ ! -L "$link" ] || refuse "$link is a link, which batteries do not make; remove it"
    done
    if [ -d "$1" ] && [ ! -f "$1/lock" ] && ! rmdir "$1" 2>/dev/null; then
        refuse "$1 has files of other programs; move them away"
    fi
    mkdir -p "$1" && true 2>/dev/null >>"$1/lock" || refuse "$1 cannot be made"
    if [ -z "$claimed" ]; then held=8 && exec 8>>"$1/lock"; else held=9 && exec 9>>"$1/lock"; fi
    # The previous owner may have removed the directory in the meantime, so check that the lock file is still the same.
    flock -n "$held" && [ "$1/lock" -ef "/proc/$$/fd/$held" ] ||
        refuse "another battery is running in $1 (process $(tail -n 1 "$1/lock")); wait for its end"
    if [ -s "$1/lock" ]; then
        end_strays "$1"
        rm -rf "$1/files" "$1/background"
        say "removed the files that a killed battery left in $1"
    fi
    printf '%s\n' $$ >>"$1/lock" || refuse "$1/lock cannot be written to"
    claimed="$claimed$1
"
}

# Replaces this process with a command that does not inherit the locks, as it may outlive the battery.
apart() {
    exec 8<&- 9<&-
    exec "$@"
}

# Kills remaining fio processes of a directory that this battery has locked. Process groups do not help, because fio's
# processes create sessions of their own.
end_strays() {
    for process in /proc/[0-9]*; do
        read -r called 2>/dev/null <"$process/comm" && [ "$called" = fio ] || continue
        tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qxF "STORAGE_BENCHMARKS_FIO=$1" &&
            kill -s KILL "${process##*/}" 2>/dev/null
    done
}

# Removes the files and locks in the directories of this battery.
release() {
    printf '%s' "$claimed" | while read -r folder; do
        end_strays "$folder"
        rm -rf "$folder/files" "$folder/background" "$folder/lock"
        rmdir "$folder" || say "$folder is not empty: it has files of other programs"
    done
    claimed=''
}

# shellcheck disable=SC2329  # a trap calls it
clean_up() {
    code=$?
    # Bash also runs this trap when subshells exit, in which $$ is the same.
    read -r self _ </proc/self/stat
    [ "$self" = $$ ] || exit "$code"
    trap '' HUP INT TERM USR1
    [ -z "$alarm" ] || kill "$alarm" 2>/dev/null
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
    release
    rm -rf "$temp"
    exit "$code"
}

# --- The battery ---

make_results() {
    title=${battery}_$cluster-fio-$host
    results=${out:-$temp}/$title
    [ ! -e "$results" ] || refuse "$results exists already; move it away, or give the battery another name"
    mkdir -p "$results" || refuse "$results cannot be made"
    mv "$temp/job.fio" "$results/job.fio"
    zero=0 && read_time && zero=$now epoch=$(date +%s)
    read_time
    started=$(utc)
    write_facts interrupted
    say "battery ${battery}_$cluster on $host: $job_name, $jobs times, in ${directory:-$device}"
}

# Sets now to the time since the battery began in hundredths of a second, by a monotonic clock.
read_time() {
    read -r now _ </proc/uptime || refuse "/proc/uptime cannot be read; close programs with many open files, or raise ulimit -n"
    now=$((${now%.*} * 100 + 1${now#*.} - 100 - zero))
}

# Prints the time now as UTC, ignoring changes of the system clock since the battery began.
utc() { date -u -d "@$((epoch + now / 100))" +%Y-%m-%dT%H:%M:%SZ; }

# Writes battery.txt with the status $1. The status is "interrupted" until the battery has ended.
write_facts() {
    read_time
    {
        printf '%s: %s\n' format 1 battery "$battery" cluster "$cluster" host "$host" started_utc "$started"
        printf '%s: %s\n' ended_utc "$(utc)" fio "$fio_version" jobs "$jobs" jobs_done "$done_jobs" pause_s "$pause" job "$job_name"
        printf '%s: %s\n' directory "${directory:-$device}" background "${background_name:-none}"
        printf '%s: %s\n' background_directory "$background_directory" time_limit_s "$time_limit"
        printf '%s: %s\n' kernel "$(uname -r)" cpu "$(sed -n '/^model name/{s/.*: //p;q;}' /proc/cpuinfo)"
        printf '%s: %s\n' cores "$(grep -c ^processor /proc/cpuinfo)" device "$block"
        if [ -n "$directory" ]; then
            read_space "$directory"
            printf '%s: %s\n' mount_point "$mount_point" mount_source "$mount_source" mount_type "$mount_type"
            printf '%s: %s\n' mount_options "$mount_options" file_system_bytes "$size_bytes"
        fi
        printf '%s: %s\n' ended_by "$ended" status "$1"
    } | grep -v ': $' >"$results/.battery.txt"
    mv "$results/.battery.txt" "$results/battery.txt"
}

# Makes the battery end at its time limit and, with --watch-input, when its standard input is closed.
watch_over() {
    if [ -n "$time_limit" ]; then
        {
            exec 8<&- 9<&-
            before=${!:-}
            trap '[ "${!:-}" = "$before" ] || kill "$!"; exit' TERM
            sleep "$time_limit" &
            wait "$!"
            kill -s USR1 $$
        } >/dev/null 2>&1 &
        alarm=$!
    fi
    [ -z "$watch_input" ] || watch_starter
}

# Ends this program when its standard input is closed, and the battery after a line "enough".
watch_starter() {
    {
        exec 8<&- 9<&-
        while read -r word; do [ "$word" != enough ] || kill -s USR2 $$; done
        kill -s TERM $$
    } <&3 >/dev/null 2>&1 &
    watcher=$!
}

# Ends the battery because the finished jobs are enough; a job in progress is discarded.
# shellcheck disable=SC2329  # a trap calls it
suffice() {
    sufficient=yes
    if [ -n "$child" ]; then stop "$child"; fi
}

# Ends the battery early, saving the results so far; $1 is the reason.
# shellcheck disable=SC2329  # traps call it
end_early() {
    # Do not use || here: bash skips the command after it if the signal arrived while a pipeline was starting.
    ended=${ended:-$1}
    if [ -n "$child" ]; then stop "$child"; fi
}

# Sends SIGTERM to a child process every second until it exits, since fio ignores it while starting jobs. Sends SIGKILL
# after 20 seconds.
stop() {
    kill -s TERM "$1" 2>/dev/null
    [ "$1" != "$stopping" ] || return 0
    stopping=$1
    {
        exec 8<&- 9<&-
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            sleep 1
            kill -s TERM "$1" || exit
        done
        kill -s KILL "$1"
    } >/dev/null 2>&1 &
}

# Waits until a child process has exited, even if signals interrupt the wait; sets status to its exit status.
wait_for() {
    child=$1
    [ -z "$ended$sufficient" ] || stop "$child"
    while
        wait "$child"
        status=$?
        kill -0 "$child" 2>/dev/null
    do :; done
    child=''
}

start_background() {
    early="the background $background_name ended before the battery"
    mkdir "$beside/background" || failed="$beside/background cannot be made"
    apart env STORAGE_BENCHMARKS_FIO="$beside" "$fio" "$where_beside" --fallocate=none --eta=never \
        --output-format=json+ "$temp/background.fio" >"$temp/background.out" 2>"$temp/background.err" &
    background=$! tries=0
    # The files are not preallocated, so they occupy blocks only after the first writes.
    until [ "$(du -sk "$beside/background" | cut -f 1)" -gt 16 ]; do
        tries=$((tries + 1))
        alive "$background" || failed=$early
        [ "$tries" -lt 600 ] || failed="the background $background_name does not write"
        [ -z "$failed$ended" ] || return
        sleep 0.1 2>/dev/null || sleep 1
    done
    say "background: $background_name writes in $background_directory"
}

alive() {
    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    case ${line##*) } in
    [ZX]*) return 1 ;;
    esac
}

run_jobs() {
    number=0 id=''
    while ! enough && [ -z "$ended$failed$sufficient" ]; do
        if [ "$number" -gt 0 ] && [ "$pause" != 0 ]; then
            apart sleep "$pause" &
            wait_for $!
            [ -z "$ended$sufficient" ] || break
        fi
        number=$((number + 1)) previous=$id
        name_job "$number"
        [ -n "$device" ] || prepare_files
        read_time
        begun=$now
        # Add a second, because the times in reports are truncated to whole seconds.
        [ "$number" -gt 1 ] || enough_at=$((begun + 100 * (at_least + (at_least > 0))))
        run_job
    done
}

# Succeeds if all jobs are done and the last job began after the minimum duration of the battery.
enough() { [ "$done_jobs" -ge "$jobs" ] && [ "$begun" -ge "$enough_at" ]; }

# Sets id to the id of the job with this number: a1 … a5, b1 … z5, aa1 …
name_job() {
    group=$((($1 + 4) / 5)) id=$((($1 + 4) % 5 + 1))
    while [ "$group" -gt 0 ]; do
        letters=abcdefghijklmnopqrstuvwxyz skip=$(((group - 1) % 26))
        while [ "$skip" -gt 0 ]; do
            letters=${letters#?} skip=$((skip - 1))
        done
        id=${letters%"${letters#?}"}$id group=$(((group - 1) / 26))
    done
}

# Renames the files of the previous job for the next job, which reuses them. Sequential writes (rw=write) have new files.
prepare_files() {
    mkdir -p "$own/files" || failed="$own/files cannot be made"
    for file in "$own/files/fio_io_$previous".*; do
        [ ! -e "$file" ] || mv "$file" "$own/files/fio_io_$id${file#"$own/files/fio_io_$previous"}"
    done
}

# This function and those it calls avoid command substitutions, because bash 5.2 fails on signals during them.
run_job() {
    sed "s/^[[:space:]]*\[fio_io\]/[fio_io_$id]/" "$results/job.fio" >"$temp/run.fio"
    facts=$results/facts_$id.txt
    date -u "+[$id] $number of $jobs, %H:%M:%S UTC" >&2
    date -u "+[$id] <=> $host <=> %a %b %e %H:%M:%S UTC %Y <=> " | tr -d '\n' >>"$results/runtime.log"
    read -r one five fifteen _ </proc/loadavg
    printf 'load average: %s, %s, %s\n' "$one" "$five" "$fifteen" >>"$results/runtime.log"
    { machine before && clock started; } >"$facts"
    apart env STORAGE_BENCHMARKS_FIO="$own" "$fio" "$where" ${logged:+"$logged"} --eta=never --output-format=json+ "$temp/run.fio" \
        >"$temp/run.out" 2>"$temp/run.err" &
    wait_for $!
    { clock ended && printf 'status: %s\n' "$status" && machine after; } >>"$facts"
    [ "$kind" != write ] || rm -rf "$own/files"
    if [ -n "$sufficient" ] && [ "$status" -ne 0 ]; then
        rm -f "$facts"
        return
    fi
    keep run "fio_results_${kind}_$id.json" "fio_$id.err"
    [ ! -e "$temp/run_lat.1.log" ] || mv "$temp/run_lat.1.log" "$results/latencies_$id.txt"
    judge
}

# Prints the time as seconds since 1970 and as UTC. Avoids command substitutions, see run_job.
clock() {
    read_time
    printf '%s_s: %s.%02d\n%s_utc: ' "$1" $((epoch + now / 100)) $((now % 100)) "$1"
    utc
}

# Prints the load average, CPU time, free space, and I/O counters of the device.
machine() {
    read -r line </proc/loadavg
    printf 'load_%s: %s\n' "$1" "$line"
    read -r line </proc/stat
    printf 'stat_%s: %s\n' "$1" "$line"
    if [ -n "$directory" ]; then
        read_space "$directory"
        printf 'free_bytes_%s: %s\n' "$1" "$free_bytes"
    fi
    [ -z "$block" ] || sed -n "s/^ *\(.* $block .*\)/diskstats_$1: \1/p" /proc/diskstats
}

# Saves fio's JSON, and its messages in a separate file: fio prints some before the JSON, for example about signals.
keep() {
    sed -n '/^{/,$p' "$temp/$1.out" >"$temp/json"
    [ ! -s "$temp/json" ] || mv "$temp/json" "$results/$2"
    { sed '/^{/,$d' "$temp/$1.out" && cat "$temp/$1.err"; } | grep . |
        grep -v '^fio: terminating' >"$results/$3" || rm -f "$results/$3"
}

judge() {
    [ -z "$ended" ] || return
    words=''
    [ ! -e "$results/fio_$id.err" ] || words=$(last_words <"$results/fio_$id.err")
    if [ "$status" -ne 0 ]; then
        failed="$id: ${words:-fio ended with status $status}"
    elif [ ! -e "$results/fio_results_${kind}_$id.json" ]; then
        failed="$id: fio left no JSON${words:+: $words}"
    else
        done_jobs=$((done_jobs + 1))
    fi
    [ -z "$background" ] || alive "$background" || failed=$early
}

stop_background() {
    alive "$background" || failed=$early
    stop "$background"
    wait_for "$background"
    keep background background.json background.err
    if [ -n "$failed" ] && [ -e "$results/background.err" ]; then
        failed="$failed: $(last_words <"$results/background.err")"
    fi
}

finish() {
    outcome=complete code=0
    [ -z "$sufficient" ] || jobs=$done_jobs
    [ "$done_jobs" -ge "$jobs" ] || outcome=interrupted code=1
    [ -z "$failed" ] || outcome="failed: $failed" code=1
    write_facts "$outcome"
    release
    say "battery ${battery}_$cluster: $outcome${ended:+ ($ended)}, $done_jobs of $jobs jobs done"
    [ -z "$tar" ] || (cd "$temp" && tar -cf - "$title") | gzip -c
    exit "$code"
}

# --- Running on another machine ---

# Runs the battery on another machine through the command after --, and copies its results back.
collect() {
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
    [ $# -gt 1 ] || refuse "the command for a shell on the other machine is missing; add for example: -- ssh root@host"
    shift
    out=${out:-.}
    [ -n "$job_text" ] || read_job --job "$(dirname "$0")/../../../config/fio/etcd-published.fio"
    check_options
    [ -d "$out" ] && [ -w "$out" ] || refuse "$out must be a writable folder; correct --out"
    ask_name "$@"
    temp=$(mktemp -d "$out/.collect_fio.XXXXXX") || refuse "cannot make a folder in $out"
    exec 3<&0
    watcher=''
    trap 'rm -rf "$temp"; [ -z "$watcher" ] || kill "$watcher" 2>/dev/null' EXIT
    trap '' PIPE
    mkfifo "$temp/input" || refuse "cannot make a pipe in $out"
    "$@" sh -s <"$temp/input" >"$temp/tarball" &
    shell=$! ended='' sufficient=''
    trap hang_up HUP INT TERM
    exec 4>"$temp/input"
    [ -z "$watch_input" ] || watch_starter
    # Send the options as the first line of the script, so that no shell in between splits or expands them.
    { printf 'set -- --tar --watch-input%s\n' "$(quoted_options)" && cat "$0"; } >&4
    wait_for "$shell"
    exec 4>&-
    # With status 2, the battery has printed the problem itself.
    [ "$status" -ne 2 ] || exit 2
    check_tarball "$temp/tarball" || refuse "the results from $host are incomplete ('$*' ended with status $status)"
    mv "$temp/tarball" "$out/$title.tar.gz" || refuse "$out/$title.tar.gz cannot be written"
    say "$out/$title.tar.gz: $outcome"
    [ "$outcome" = complete ]
    exit
}

# Gets the name of the other machine, to detect a command that does not work, or existing results, before measuring.
ask_name() {
    host=$(printf 'uname -n\n' | "$@" sh -s | tail -n 1)
    case $host in
    '' | *[!A-Za-z0-9._-]*) refuse "'$*' must open a shell that prints its host's name (got '$host')" ;;
    esac
    title=${battery}_$cluster-fio-$host
    [ ! -e "$out/$title.tar.gz" ] || refuse "$out/$title.tar.gz exists already; move it away, or give the battery another name"
}

# Prints the options that are set, quoted for a shell. Jobs are passed as text, as their files are not on that machine.
quoted_options() {
    for name in battery cluster directory device erase jobs at_least pause time_limit reserve \
        job_text job_name background_text background_name background_directory; do
        eval "value=\$$name"
        [ -n "$value" ] || continue
        printf ' --%s' "$(printf '%s' "$name" | tr _ -)"
        [ "$name" = erase ] || printf " '%s'" "$(printf '%s' "$value" | sed "s/'/'\\\\''/g")"
    done
}

# Ends the battery on the other machine by closing its standard input; it then sends the results so far.
# shellcheck disable=SC2329  # traps call it
hang_up() {
    say "ending the battery on $host; interrupt again to give up its results"
    exec 4>&-
    trap 'kill "$shell" 2>/dev/null; exit 2' HUP INT TERM
}

# Checks that the tarball is complete and contains only expected files; sets outcome to the status of the battery.
check_tarball() {
    names=$(tar -tzf "$1" 2>/dev/null) || return 1
    ! printf '%s\n' "$names" | grep -qv "^$title/[A-Za-z0-9._-]*$" || return 1
    outcome=$(tar -xzOf "$1" "$title/battery.txt" 2>/dev/null | sed -n 's/^status: //p')
    [ -n "$outcome" ]
}

main "$@"
