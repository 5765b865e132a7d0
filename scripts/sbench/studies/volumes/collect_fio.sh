#!/bin/sh
# Runs a battery of fio on another machine, with nothing but fio and a shell there, and brings its results back as
# {battery}_{cluster}-fio-{hostname}.tar.gz, which `sbench import` reads. --help says how to call it.
exec sh "$(dirname "$0")/fio_battery.sh" --elsewhere "$@"
