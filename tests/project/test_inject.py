"""Faults that `tests.inject` injects: the library counts calls in all processes and lets the chosen ones fail."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from tests.inject import finished, points
from tests.inject.__main__ import part_of, study_of
from tests.inject.points import Point

pytestmark = pytest.mark.late

# Writes two files, the second by a process without LD_PRELOAD, as measuring programs are started.
CODE = """
import os, subprocess, sys
code = "import os; os.write(os.open('results/b', os.O_CREAT | os.O_TRUNC | os.O_WRONLY), b'b')"
open("results/a", "w").write("a")
env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
sys.exit(subprocess.run([sys.executable, "-c", code], env=env).returncode)
"""


@pytest.fixture
def inject(tmp_path: Path):
    """Return a function that runs the code with points, and returns the process."""
    library, table, listed = points.compile_library(tmp_path), tmp_path / "table", tmp_path / "points"
    (tmp_path / "results").mkdir()

    def run(*chosen: Point, command: Sequence[str] = ("-c", CODE), cwd: Path = tmp_path) -> subprocess.CompletedProcess:
        points.make_table(table)
        listed.write_text("".join(point.line for point in chosen), encoding="utf-8")
        env = {"LD_PRELOAD": str(library), "INJECT_TABLE": str(table), "INJECT_POINTS": str(listed)}
        words = [sys.executable, *command]
        return subprocess.run(words, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)

    return run


def test_calls_are_counted_in_all_processes_and_a_chosen_one_fails(inject, tmp_path: Path):
    assert inject().returncode == 0
    [(job, program, counts, _)] = points.read_rows(tmp_path / "table")
    assert (job, program) == ("-", "spawned")
    assert dict(zip(points.FUNCTIONS, counts, strict=True)) == {
        **dict.fromkeys(points.FUNCTIONS, 0),
        **{"open": 2, "write": 2, "fork": 1},
    }
    second = Point("-", "spawned", "write", 2, "ENOSPC")
    done = inject(second)
    assert "No space left on device" in done.stderr
    assert [(tmp_path / "results" / name).read_text() for name in "ab"] == ["a", ""]
    assert points.read_failed(tmp_path / "table", [second, Point("-", "spawned", "write", 3, "EIO")]) == [second]


def test_points_are_sampled_by_a_seed_and_can_be_named_again(inject, tmp_path: Path):
    inject()
    names = {str(points.sample(random.Random(seed), tmp_path / "table", ["-"])[0]) for seed in "aab"}
    assert len(names) == 2
    assert {str(points.parse_point(name)) for name in names} == names


def test_the_run_that_is_injected_into_has_all_studies_of_the_smoke_run(tmp_path: Path):
    (tmp_path / "config").mkdir()
    finished.write_config(tmp_path)
    studies = yaml.safe_load((tmp_path / "config/config.yaml").read_text(encoding="utf-8"))["studies"]
    assert studies.keys() == finished.ROWS.keys()
    assert all(section["compare"] == [] for section in studies.values())
    record = "results/smoke/containers/records/arrays_disk_hdf5_map-0123456789/repeat=2.json"
    assert (part_of(record), study_of(record)) == ("cells", "containers")


def test_a_point_that_is_none_is_refused_in_one_line():
    command = [sys.executable, "-m", "tests.inject", "--point", "results/smoke write"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("invalid parse_point value: 'results/smoke write'")
