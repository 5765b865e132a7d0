#!/bin/sh
# Runs a battery of fio jobs on another machine, which needs only fio and a shell, and copies the results back as
# {battery}_{cluster}-fio-{hostname}.tar.gz for `sbench import`. See --help.
exec sh "$(dirname "$0")/fio_battery.sh" --elsewhere "$@"
