#!/bin/sh
# Brings this machine to where `.venv/bin/snakemake` works: system packages, Python environment, progress display.
# Does only what is missing, so a second call takes no time. `make` calls it; everything else builds itself.
set -eu
cd "$(dirname "$0")/.."
# It would have every Python look for its own library elsewhere.
unset PYTHONHOME
# What was unpacked from an archive of `make pack` is complete: nothing is installed, and no network is asked.
[ ! -e packed/pack.json ] || exec sh scripts/relocate.sh >/dev/null

say() { printf '%s\n' "$*" >&2; }
[ "$(uname -s)" = Linux ] || {
    say "Only Linux is supported: the page cache, processes and host facts are read there. Finished reports open anywhere;"
    say "to measure from $(uname -s), use a Linux machine or a virtual machine with Debian 12."
    exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }
header() { printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1; }
python_ready() {
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.13 python3.12 python3.11; fi
    for python in "$@"; do
        if "$python" -c 'import ensurepip, ssl, sys, sysconfig, os
sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null; then
            return 0
        fi
    done
    return 1
}
# Cargo is only needed where the official sources of HDF5 cannot be reached: the registry's crate holds them too.
# Rustup's is there without a toolchain, too.
sources_ready() {
    cargo --version >/dev/null 2>&1 || curl --silent --fail --location --head --max-time 10 --output /dev/null \
        "$(sed -n 's/^ *tarball: //p' envs/sources.yaml | head -n 1)"
}

debian="" redhat=""
need() { debian="$debian $1" redhat="$redhat $2"; }
have git || need git git
have gcc && have g++ && have make || need "gcc g++ make" "gcc gcc-c++ make"
have curl || need curl curl
header curl/curl.h || need libcurl4-openssl-dev libcurl-devel
header openssl/ssl.h || need libssl-dev openssl-devel
header zlib.h || need zlib1g-dev zlib-devel
have fio || need fio fio
python_ready || need "python3 python3-venv python3-dev" "python3.11 python3.11-devel"

install() {
    if have apt-get && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo -n"
        say "Installing with apt:$1"
        $as_root apt-get update -qq
        # shellcheck disable=SC2086  # the names are words
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $1 >/dev/null
    elif have dnf || have yum; then
        say "Missing: dnf install$2 (as root; on RHEL-likes the workflow is untested), then call again."
        exit 2
    else
        say "Missing: apt install$1 (as root), then call again."
        exit 2
    fi
}

[ -z "$debian" ] || install "$debian" "$redhat"
stamp=".venv/.$(cat envs/workflow.lock scripts/setup.sh | sha256sum | cut -c1-16)"
if [ ! -e "$stamp" ] && ! sources_ready; then
    package=cargo
    ! have apt-cache || [ -z "$(apt-cache policy cargo-web 2>/dev/null)" ] || package=cargo-web
    install " $package" " cargo"
fi
python_ready || { say "No Python of at least 3.11 with headers and venv was found; name one: make PYTHON=/path/to/python3.12"; exit 2; }

if [ ! -e "$stamp" ]; then
    say "Making .venv from envs/workflow.lock"
    # Tools write to names there that others could have taken before.
    TMPDIR=$(mktemp -d) && export TMPDIR && trap 'rm -rf "$TMPDIR"' EXIT
    .venv/bin/python -c "import ssl" 2>/dev/null || { rm -rf .venv && "$python" -m venv .venv; }
    if [ ! -x .venv/bin/uv ]; then # uv itself, by its hash in the lock
        awk '/^uv==/ {found = 1} found {print} found && !/\\$/ {exit}' envs/workflow.lock >.venv/uv.txt
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement .venv/uv.txt
    fi
    .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes --compile-bytecode envs/workflow.lock
    # The progress display is a plugin of Snakemake that lies in this folder; Snakemake finds plugins by name on the path.
    .venv/bin/python -c 'import pathlib, sysconfig
path = pathlib.Path(sysconfig.get_path("purelib"), "storage-benchmarks.pth")
path.write_text(str(pathlib.Path("plugins").resolve()) + "\n")'
    rm -f .venv/.????????????????
    touch "$stamp"
fi
