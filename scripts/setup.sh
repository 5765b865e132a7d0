#!/bin/sh
# Brings this machine to where `.venv/bin/snakemake` works: system packages, Python environment, progress display.
# Does only what is missing, so a second call takes no time. `make` calls it; everything else builds itself.
set -eu
cd "$(dirname "$0")/.."
# It would have every Python look for its own library elsewhere.
unset PYTHONHOME
say() { printf '%s\n' "$*" >&2; }
[ "$(uname -s)" = Linux ] || {
    say "Only Linux is supported: the page cache, processes and host facts are read there. Finished reports open anywhere;"
    say "to measure from $(uname -s), use a Linux machine or a virtual machine with Debian 12."
    exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }
# Tries the programs of a name on PATH, or the one of a path, until one works: called with the arguments it ends with status
# 0. Its path is in `found`; where none works, the words of the last one are added to `amiss`.
works() {
    name=$1 folders=$PATH: words="" && shift
    case $name in */*) folders=${name%/*}: name=${name##*/} ;; esac
    while [ -n "$folders" ]; do
        found=${folders%%:*}/$name folders=${folders#*:}
        [ -f "$found" ] && [ -x "$found" ] || continue
        case $name in python*)
            # Names and folders that are links lead to the same Python, which is tried once; an environment's may be broken.
            # shellcheck disable=SC3013  # every shell that is sh has it
            for other in $pythons; do [ "$found" -ef "$other" ] && continue 2; done
            [ -e "${found%/*}/../pyvenv.cfg" ] || pythons="$pythons $found"
            ;;
        esac
        words=$(timeout 60 "$found" "$@" 2>&1 </dev/null) && return
        [ $? -ne 124 ] || words='no answer within 60 s'
        # The last line of a traceback is its reason; other programs begin with theirs.
        case $words in Traceback*) words=$(printf '%s\n' "$words" | tail -n 1) ;; esac
        words="; $found does not work ($(printf '%s\n' "$words" | head -n 1))"
    done
    amiss=$amiss$words
    return 1
}
header() { printf '#include <%s>\n' "$1" | "$compiler" -E - >/dev/null 2>&1; }
# Finds a Python that can make an environment, in the folder that is named, if any.
python_ready() {
    if [ -n "${PYTHON:-}" ]; then set -- "$1" "$PYTHON"; else set -- "$1" python3 python3.13 python3.12 python3.11; fi
    folder=$1 pythons="" && shift
    for python in "$@"; do
        works "$python" -c 'import ensurepip, os, ssl, sys, sysconfig, venv
sys.version_info >= (3, 11) or sys.exit("it is Python %d.%d" % sys.version_info[:2])
os.path.exists(sysconfig.get_path("include") + "/Python.h") or sys.exit("it has no Python.h")' || continue
        python=$found
        # This writes many files: on a slow file system it takes minutes, for which no Python is to blame.
        [ -n "$folder" ] || return 0
        words=$("$python" -c 'import sys, venv
venv.create(sys.argv[1], clear=True, symlinks=True, with_pip=True)' "$folder" 2>&1 </dev/null) && return
        amiss="$amiss; $python does not make $folder ($(printf '%s\n' "$words" | tail -n 1))"
    done
    return 1
}
expect_python() {
    amiss=""
    python_ready "$1" && return
    say "No Python of at least 3.11 with headers and venv works$amiss; name one: PYTHON=/path/to/python3.12 make setup"
    exit 2
}
# Cargo is only needed where the official sources of HDF5 cannot be reached: the registry's crate holds them too.
sources_ready() {
    works cargo --version && works rustc --version || { works curl --version && "$found" --silent --fail --location --head \
        --max-time 10 --output /dev/null "$(sed -n 's/^ *tarball: //p' envs/sources.yaml | head -n 1)"; }
}

need() { debian="$debian $1" redhat="$redhat $2"; }
look() {
    debian="" redhat="" amiss="" compiler=cc
    works git --version || need git git
    { works "${CC:-gcc}" -S -o - -x c /dev/null || works cc -S -o - -x c /dev/null; } && compiler=$found &&
        works g++ --version && works make --version || need "gcc g++ make" "gcc gcc-c++ make"
    works curl --version || need curl curl
    header curl/curl.h || need libcurl4-openssl-dev libcurl-devel
    header openssl/ssl.h || need libssl-dev openssl-devel
    header zlib.h || need zlib1g-dev zlib-devel
    works fio --version || need fio fio
    # One that is named is not installed.
    python_ready "" || [ -n "${PYTHON:-}" ] || need "python3 python3-venv python3-dev" "python3.11 python3.11-devel"
}

# Calls apt-get as root; waits while another one holds its lock.
apt() {
    [ "$(id -u)" = 0 ] && as_root="" || as_root="sudo -n"
    tries=0
    # shellcheck disable=SC2086  # the words are words
    until output=$($as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" 2>&1); do
        error=$(printf '%s\n' "$output" | grep -m 1 '^E: ') || error="it gave no reason"
        case $error in *"Could not get lock"*) tries=$((tries + 1)) ;; *) tries=121 ;; esac
        [ $tries -le 120 ] || { say "apt-get $1 failed: $error" && return 1; }
        [ $tries -gt 1 ] || say "Waiting for another apt: $error"
        sleep 5
    done
}
install() {
    if have apt-get && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
        say "Installing with apt:$1"
        apt update || true # the lists that are there may do
        # shellcheck disable=SC2086  # the names are words
        apt install -y --no-install-recommends $1 || exit 2
    else
        how="apt install$1 (as root)"
        ! have dnf && ! have yum || how="dnf install$2 (as root; on RHEL-likes the workflow is untested)"
        say "Missing: $how, then call again$amiss."
        exit 2
    fi
}

look
if [ -n "$debian" ]; then
    install "$debian" "$redhat" && look
    [ -z "$debian" ] || { say "Missing, though apt has installed it:$debian$amiss" && exit 2; }
fi
not_installed() {
    say "Not all of .venv was installed: $1 could not be; see that pip's index can be reached and the disk has room, then call again"
    exit 2
}
base() { "$1" -c 'import os, ssl, sys; print(os.path.realpath(sys.executable))' 2>/dev/null; }
stamp=".venv/.$(cat envs/workflow.lock scripts/setup.sh | sha256sum | cut -c1-16)"
if [ ! -e "$stamp" ] && ! sources_ready; then
    package=cargo
    ! have apt-cache || [ -z "$(apt-cache policy cargo-web 2>/dev/null)" ] || package=cargo-web
    install " $package" " cargo"
fi
if [ -n "${PYTHON:-}" ]; then
    expect_python ""
    if [ -e .venv ] && [ "$(base .venv/bin/python)" != "$(base "$python")" ]; then
        say "Removing .venv, which was made from another Python than $PYTHON"
        rm -rf .venv
    fi
fi
if [ ! -e "$stamp" ] || ! base .venv/bin/python >/dev/null; then
    say "Making .venv from envs/workflow.lock"
    # Tools write to names there that others could have taken before.
    TMPDIR=$(mktemp -d) && export TMPDIR && trap 'rm -rf "$TMPDIR"' EXIT
    base .venv/bin/python >/dev/null || expect_python .venv
    if [ ! -x .venv/bin/uv ]; then # uv itself, by its hash in the lock
        awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' envs/workflow.lock >.venv/uv.txt
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --require-hashes \
            --no-deps --requirement .venv/uv.txt ||
            not_installed uv
    fi
    .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes --compile-bytecode envs/workflow.lock ||
        not_installed "the packages of envs/workflow.lock"
    # The progress display is a plugin of Snakemake that lies in this folder; Snakemake finds plugins by name on the path.
    .venv/bin/python -c 'import pathlib, sysconfig
path = pathlib.Path(sysconfig.get_path("purelib"), "storage-benchmarks.pth")
path.write_text(str(pathlib.Path("plugins").resolve()) + "\n")'
    rm -f .venv/.????????????????
    touch "$stamp"
fi
