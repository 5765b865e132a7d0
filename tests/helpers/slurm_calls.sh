#!/bin/bash
# Within tests/helpers/slurm.sh, in a clone: the calls of Snakemake that tests/measure/test_clusters.py looks at. A job is cancelled, one is over
# its time, and Snakemake is killed while a job runs. What each call says is in its log, its status on standard output.
set -euo pipefail
call=(.venv/bin/snakemake --workflow-profile profiles/slurm --configfile config/pairs.yaml)
patience_s=300
until_true() { # waits, while a process lives, for a command that succeeds
    local alive=$1 end=$((SECONDS + patience_s)) && shift
    until "$@"; do
        { kill -0 "$alive" 2>/dev/null || "$@"; } || given_up "Snakemake has ended before: $*"
        [ $SECONDS -lt $end ] || given_up "not within $patience_s s: $*"
        sleep 0.05
    done
}
given_up() {
    echo "$1" >&2
    squeue --format='%i %T %k %r' >&2
    tail --lines=30 -- *.log >&2
    exit 98
}
runs() { # sets job: the number of one that runs
    job=$(squeue --noheader --states=running --format='%i %k' | awk -v what="$1" '$2 ~ what {print $1; exit}')
    [ -n "$job" ]
}
is_held() { # stops the program that measures a study in a job that runs; sets job and held
    runs "rule_measure.*_$1_.*_$2\$" || return
    held=
    for file in $(grep --files-with-matches "sbench.studies.$1.measure" /proc/[0-9]*/cmdline 2>/dev/null); do
        if tr '\0' '\n' <"${file%/*}/environ" | grep --quiet --line-regexp "SLURM_JOB_ID=$job"; then
            held+=" $(basename "${file%/*}")"
        fi
    done 2>/dev/null
    # shellcheck disable=SC2086  # the numbers are words
    [ -n "$held" ] && kill -STOP $held
}
is_begun() { # sets job: that of a cell of shots in the first block
    ls results/hpc/logs/shots/*/repeat=1.begun >/dev/null 2>&1 && runs 'rule_measure.*_shots_.*_1$'
}
queue_is_empty() { [ -z "$(squeue --noheader)" ]; }
ended() {
    local status=0
    wait "$1" || status=$?
    echo "$2: $status"
}

"${call[@]}" >first.log 2>&1 &
first=$!
# Which of the two studies is submitted first differs.
(until_true $first is_begun && scancel "$job") &
cancelling=$!
until_true $first is_held blobs 1
scontrol update JobId="$job" TimeLimit=1
wait $cancelling
ended $first first

"${call[@]}" >second.log 2>&1 &
second=$!
until_true $second is_held blobs 3
kill -KILL $second
ended $second second
"${call[@]}" --unlock >>second.log 2>&1
"${call[@]}" >third.log 2>&1 &
ended $! third
# shellcheck disable=SC2086  # the numbers are words
kill -CONT $held
until_true $$ queue_is_empty
"${call[@]}" >fourth.log 2>&1 &
ended $! fourth

"${call[@]/pairs/wide}" >wide.log 2>&1 &
ended $! wide

.venv/bin/snakemake --workflow-profile profiles/blocks --configfile config/blocks.yaml >blocks.log 2>&1 &
ended $! blocks

sbatch --wait --time=10 profiles/slurm/run.sbatch config/single.yaml >fifth.log 2>&1 &
ended $! fifth
cat storage-benchmarks-*.log >>fifth.log
