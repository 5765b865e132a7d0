"""Runs of the workflow that take seconds: their configuration, how they are started, what they left."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import yaml
from conftest import artefact, program, sbench

from sbench.design import config as configuration

SNAKEMAKE = (str(Path(sys.executable).with_name("snakemake")), "--cores", "2", "--logger=benchmark")
# As far as a test looks: a page takes as long as ten cells.
MEASURE = ("--until", "measure")
PAGE = "reports/tiny/shots.html"
# Small enough that one call takes seconds: a wheel, one file, the disk.
TINY = {
    "run": "tiny",
    "repeats": 2,
    "libraries": {"hdf5-2.0.0": {"kind": "wheel", "hdf5": "2.0.0"}},
    "stores": {"disk": {"kind": "posix"}},
    "studies": {
        "shots": {
            "question": "Which access takes longer?",
            "data": {"shots": 2, "signals": 4},
            "control_cells": 0,
            "matrix": {
                "library": ["hdf5-2.0.0"],
                "store": ["disk"],
                "driver": ["sec2"],
                "layout": ["single-shot"],
                "access": ["shots", "signals"],
                "workers": [1],
                "page_buffer": ["unset"],
                "cache": ["any"],
            },
            "compare": [{"factor": "access", "baseline": "shots"}],
        }
    },
}
# Two cells that a test plans and does not measure.
TWO_CELLS = {
    "run": "small",
    "repeats": 2,
    "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}},
    "stores": {"disk": {"kind": "posix"}},
    "studies": {
        "shots": {
            "control_cells": 0,
            "matrix": {
                **{"library": ["wheel"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
                **{"access": ["shots"], "workers": [1], "page_buffer": ["unset"], "cache": ["cold", "warm"]},
            },
        }
    },
}
_SHOTS = TINY["studies"]["shots"]
SINGLE = TINY | {
    "repeats": 1,
    "studies": {"shots": _SHOTS | {"matrix": _SHOTS["matrix"] | {"access": ["shots"]}, "compare": []}},
}


def snakemake(clone: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess:
    """Call Snakemake in a clone."""
    return subprocess.run([*SNAKEMAKE, *arguments], cwd=clone, capture_output=True, text=True, check=False, **options)


def write(clone: Path, values: dict) -> None:
    """Make `values` the default configuration of a clone."""
    (clone / "config/config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def records(clone: Path, run: str = "tiny", study: str = "shots") -> dict[str, dict]:
    """Return the records of a run by their path."""
    folder = clone / "results" / run / study / "records"
    return {str(path.relative_to(folder)): artefact(path) for path in sorted(folder.glob("*/repeat=*.json"))}


def drop(clone: Path, pattern: str = "*/*") -> None:
    """Remove the records of the run `tiny` whose <cell>/repeat=<n>.json matches."""
    for path in (clone / "results/tiny/shots/records").glob(pattern):
        path.unlink()


def planned(clone: Path, *arguments: str) -> dict[str, int]:
    """Return how many jobs of each rule a dry run would start."""
    done = snakemake(clone, "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    words = (line.split() for line in (done.stdout + done.stderr).splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isdigit()}


def launch(clone: Path, *arguments: object, **options: object) -> subprocess.CompletedProcess:
    """Call `sbench run` on two cores."""
    return sbench("run", "--cores", 2, *arguments, cwd=clone, **options)


def wait_for(condition: Callable[[], object], process: subprocess.Popen, limit_s: float = 120.0) -> None:
    """Wait until a condition holds while a process runs."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run did not get there"
        time.sleep(0.05)


def check(clone: Path) -> subprocess.CompletedProcess:
    """Call what a run ends with, for a test that has not made the first page before."""
    config = json.dumps(configuration.load_config(clone / "config/config.yaml"))
    written = ("--reports", "reports/tiny", "--log", "check.log", "--out", "checked.json")
    return program("check", "--config", config, *written, cwd=clone)


def both(clone: Path) -> list[int]:
    """Return the blocks of the run `tiny` in which both of its cells were measured in one session."""
    sessions: dict[int, list[str]] = defaultdict(list)
    for record in records(clone).values():
        sessions[record["repeat"]] += [record["session"]] * record["valid"]
    return [block for block, ofs in sorted(sessions.items()) if len(ofs) == 2 and len(set(ofs)) == 1]
