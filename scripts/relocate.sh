#!/bin/sh
# Sets up a tree that was unpacked from an archive of `sbench pack` where it is now: the pyvenv.cfg of an environment has to
# name the folder of its Python. A second call does nothing, one after the folder was moved sets it up again.
set -eu
cd "$(dirname "$0")/.."

refuse() {
    printf '%s\n' "$*" >&2
    exit 2
}
# What the archive says of itself, such as the machine that it is for.
fact() { sed -n "s/^ \"$1\": \"\(.*\)\",*\$/\1/p" packed/pack.json; }

[ -e packed/pack.json ] || refuse "$PWD was not unpacked from an archive of sbench pack: in a clone, type make setup"
here="$(uname -s) on $(uname -m)"
[ "$here" = "Linux on $(fact machine)" ] ||
    refuse "This archive is for Linux on $(fact machine), and here is $here: call sbench pack on a machine like this one"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
glibc=${glibc#glibc }
[ -z "$glibc" ] || [ "$(printf '%s\n' "$(fact glibc)" "$glibc" | sort -t . -k 1,1n -k 2,2n | head -n 1)" = "$(fact glibc)" ] ||
    refuse "This archive needs glibc $(fact glibc), and here is $glibc: call sbench pack where it is no newer, or use a container"
for program in packed/python/bin/* packed/fio/bin/*; do
    words=$("$program" --version 2>&1) || refuse "$program does not start here: $(printf '%s\n' "$words" | tail -n 1)"
done

home="home = $PWD/packed/python/bin" done=""
for file in .venv/pyvenv.cfg packed/*/pyvenv.cfg; do
    if [ -e "$file" ] && ! grep -qxF "$home" "$file"; then
        { printf '%s\n' "$home" && grep -v '^home = ' "$file"; } 2>/dev/null >"$file.new" && mv -f "$file.new" "$file" ||
            refuse "$PWD/$file cannot be written: make the folder writable, or unpack the archive again in one that is"
        done=yes
    fi
done
if [ -z "$done" ]; then
    echo "Nothing to do: this archive is set up in $PWD"
    exit 0
fi
echo "Set up in $PWD; type there: .venv/bin/snakemake --cores 2 --configfile $(fact configuration)"
