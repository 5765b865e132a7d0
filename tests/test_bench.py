import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import copy_project, need_slurm, program

from tests.bench import common, project
from tests.bench.__main__ import BENCHMARKS


@pytest.mark.usefixtures("environments")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_runs_at_its_smallest_and_leaves_nothing_behind(tmp_path: Path, name: str):
    if name == "clusters":
        need_slurm()
    whole = copy_project(tmp_path / "clone", published=True)
    committed = sorted((whole / "results").iterdir())
    done = program("bench", "--smallest", "--only", name, cwd=whole)
    assert done.returncode == 0, done.stdout + done.stderr
    assert name == "project" or "round 1 of 1" in done.stdout or "rounds" not in BENCHMARKS[name].smallest
    assert sorted((whole / "results").iterdir()) == committed


def test_help_names_every_benchmark():
    done = program("bench", "--help")
    assert done.returncode == 0, done.stderr
    assert [name for name in BENCHMARKS if f"{name}:" not in done.stdout] == []


def test_a_benchmark_that_fails_is_one_line_and_the_others_go_on(clone: Path):
    (clone / "tests/bench/fio.py").write_text("def rows(*_, **__):\n    'Break.'\n    yield {}['settings']\n")
    (clone / "Snakefile").write_text("no rule")
    done = program("bench", "--smallest", "--only", "fio", "plan", "reading", cwd=clone)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    fio, plan = (line for line in done.stdout.splitlines() if "not run: " in line)
    assert "not run: KeyError: 'settings'" in fio
    assert "not run: snakemake ended with status 1" in plan
    assert "bare h5py loop" in done.stdout


def test_what_was_measured_until_the_end_from_outside_is_printed(clone: Path):
    stand_in = "import os, signal\nfrom tests.bench.common import Row\n\ndef rows(*_, **__):\n    'Stand in.'\n    {}\n"
    last = "os.kill(os.getpid(), signal.SIGTERM); yield Row('second', '2')"
    (clone / "tests/bench/fio.py").write_text(stand_in.format("yield Row('first', '1')"))
    (clone / "tests/bench/builds.py").write_text(stand_in.format(last))
    done = program("bench", "--only", "fio", "builds", cwd=clone)
    assert done.returncode == 1
    assert "interrupted; what was measured until then:" in done.stdout
    assert "first" in done.stdout
    assert "second" not in done.stdout


def test_the_size_of_the_project_and_the_time_of_its_tests_are_told(clone: Path, monkeypatch: pytest.MonkeyPatch):
    test = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--junitxml={clone / project.TIMES}"]
    subprocess.run([*test, "tests/test_transfer.py"], check=True, capture_output=True)
    monkeypatch.chdir(clone)
    before = {row.what: row for row in (*project.lines(), *project.times())}
    assert before["time of `make test`"].limit == "≤ 21 min on 2 idle cores"
    assert "  test_transfer" in before
    (clone / "scripts/sbench/studies/shots/report/further.py").write_text("\n" * 20_000)
    cell = {"cell_type": "code", "source": ["first\n", "second"], "outputs": ["a line\n"] * 100}
    (clone / "notebooks/further.ipynb").write_text(json.dumps({"cells": [cell]}, indent=1))
    project.TIMES.unlink()
    after = {row.what: row for row in (*project.lines(), *project.times())}
    own, whole = (
        [int(rows[what].value.replace(",", "")) for rows in (before, after)]
        for what in ("  of shots", "lines outside tests")
    )
    assert own[1] == own[0] + 20_000
    assert whole[1] == whole[0] + 20_000 + 2
    assert not after["lines outside tests"].within
    assert not after["  of shots"].within
    assert "time of `make test`" in after
    assert "  test_transfer" not in after


def test_a_ratio_above_its_limit_is_marked_and_one_below_is_not():
    slow = common.compared("ours", [2.0] * 8, "bare", [1.0] * 8, 1.03)
    assert (slow.ratio, slow.limit, slow.within) == ("2.000 (2.000 … 2.000)", "≤ 1.03", False)
    assert common.compared("ours", [1.0] * 8, "bare", [1.0] * 8, 1.03).within
    assert common.compared("ours", [1.0] * 8, "bare", [1.0] * 8).within is None


def test_what_a_command_took_counts_the_processes_below_it():
    held = 200_000_000
    below = f"import time; kept = bytearray({held}); time.sleep(2)"
    usage = common.used(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"]
    )
    assert held < usage.peak_bytes < 2 * held
    assert 0 < usage.cpu_seconds < usage.seconds


def test_a_command_that_fails_is_a_problem_with_its_last_words():
    with pytest.raises(common.Problem, match="status 3: no luck"):
        common.used([sys.executable, "-c", "import sys; print('no luck'); sys.exit(3)"])
    with pytest.raises(common.Problem, match=r"^scripts\.gather ended with status 2: "):
        common.used(common.program("sbench.measure.gather", "--config", "{}"))
