import sys
from pathlib import Path

import pytest
from conftest import program

from scripts.benchmarks import common, planning


def test_one_benchmark_prints_its_row_and_leaves_nothing_behind(clone: Path):
    done = program("bench", "--only", "reading", cwd=clone)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if "reading loop, from disk, warm" in line)
    assert "bare h5py loop" in row
    assert "≤ 1.03" in row
    assert "round 1 of" in done.stdout
    assert list((clone / "results").iterdir()) == []


def test_help_names_every_benchmark():
    done = program("bench", "--help")
    assert done.returncode == 0, done.stderr
    for name in ("reading", "ros3", "cell", "plan", "report", "fio", "import", "blobs", "large-blobs", "builds"):
        assert f"{name}:" in done.stdout


def test_a_plan_of_few_cells_is_taken_from_a_copy_of_the_project(tmp_path: Path):
    told = []
    rows = list(planning.rows(tmp_path, told.append, cells=100, rounds=1))
    assert [row.what for row in rows] == ["plan of 100 cells, processor time", "plan of 100 cells, memory"]
    assert told == ["round 1 of 1"]


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
