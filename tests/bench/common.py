"""Shared by the benchmarks: rows of the table, simulated runs, rounds in turn, and the resources of a command."""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from sbench.probe.processes import run_process
from sbench.probe.program import Problem, write_json
from sbench.verdicts import stats

# The parts of the tree that a run of the workflow needs.
TREE = ("Snakefile", "sbench", "rules", "scripts", "config", "envs", "notebooks", "plugins", "profiles")
LIBRARIES = {f"hdf5-{version}": {"kind": "source", "hdf5": version} for version in ("1.14.6", "2.0.0")}
DISK, S3 = {"kind": "posix"}, {"kind": "s3", "bucket": "bench", "server": "embedded"}

Say = Callable[[str], None]
Floats = Sequence[float]


@dataclass(frozen=True)
class Row:
    """A line of the table: the figure of something, what it is compared with, their ratio, and the goal."""

    what: str
    value: str
    against: str = ""
    ratio: str = ""
    goal: str = ""
    within: bool | None = None  # None without a goal


class Usage(NamedTuple):
    """The seconds of a command, and the peak of the sum of its processes' resident bytes."""

    seconds: float
    peak_bytes: int


def simulate(what: str, judge: Callable[[int], object], runs: int, say: Say) -> list:
    """Return the answers in so many simulated runs, whose seeds are 0, 1, and so on."""
    say(what)
    return [judge(seed) for seed in range(runs)]


def count_false(what: str, answers: Sequence[int], rate: float = stats.LEVEL, families: int = 1) -> Row:
    """Return the row of the wrong answers in runs of some families; a rule of that rate misses the goal in 2.5 %."""
    wrong, trials = sum(answers), families * len(answers)
    share, most = stats.estimate_share(wrong, trials), stats.compute_binomial_quantiles(trials, rate)[1]
    interval = f"[{100 * share.low:.1f}, {100 * share.high:.1f}] %"
    return Row(what, f"{wrong} of {trials}", interval, goal=f"≤ {most} of {trials}", within=wrong <= most)


def count_right(what: str, answers: Sequence[bool], note: str = "") -> Row:
    """Return the row of the right answers in simulated runs."""
    return Row(what, f"{sum(answers)} of {len(answers)}", note)


def at_most(what: str, value: float, goal: float | None, unit: str, against: str = "") -> Row:
    """Return the row of a figure and its upper goal, if there is one."""
    limit, within = ("", None) if goal is None else (f"≤ {goal:,g} {unit}", value <= goal)
    return Row(what, f"{value:,.1f} {unit}", against, "", limit, within)


def compare_times(what: str, ours: Floats, name: str, others: Floats, goal: float | None = None) -> Row:
    """Return the row of seconds that were measured in turn: medians, and their ratio with its 95 % interval."""
    logs = np.log(np.asarray(ours) / np.asarray(others))
    low, high = (float(np.exp(edge[0])) for edge in stats.compute_bootstrap_interval(logs[:, None]))
    ratio = float(np.exp(np.median(logs)))
    interval = "" if math.isnan(low) else f" ({low:.3f} … {high:.3f})"
    limit, within = ("", None) if goal is None else (f"≤ {goal:g}", ratio <= goal)
    return Row(what, format_seconds(ours), f"{name}: {format_seconds(others)}", f"{ratio:.3f}{interval}", limit, within)


def format_seconds(values: Floats) -> str:
    """Return the median of some seconds with its unit, and its 95 % interval if there are enough."""
    middle = stats.estimate_median(values)
    unit, scale = ("s", 1) if middle.value >= 1 else ("ms", 1000)
    value, low, high = (f"{of:.0f}" if of >= 100 else f"{of:.3g}" for of in scale * np.asarray(middle[:3]))
    return f"{value} {unit}" + ("" if math.isnan(middle.low) else f" ({low} … {high})")


def run_command(command: Sequence[str], cwd: Path | str = ".") -> Usage:
    """Run a command and return the resources that it took; a Problem has the last words of one that fails."""
    start = time.perf_counter()
    with (
        ThreadPoolExecutor(1) as pool,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words,
        run_process(command, words, dict(os.environ), cwd=cwd, stdin=subprocess.DEVNULL) as process,
    ):
        peak = pool.submit(_sample_peak, psutil.Process(process.pid))
        status, seconds = process.wait(), time.perf_counter() - start
        if status:
            words.seek(0)
            last = [line.strip() for line in words if line.strip()][-1:] or ["it printed nothing"]
            # Its arguments may be a whole configuration.
            name = next((word for word in command if word.startswith("scripts/")), Path(command[0]).name)
            raise Problem(f"{name} ended with status {status}: {last[0]}")
        return Usage(seconds, peak.result())


def _sample_peak(process: psutil.Process) -> int:
    """Return the largest sum of resident bytes of a process and all processes below it, until it ends."""
    peak = 0
    with suppress(psutil.NoSuchProcess):
        while total := process.memory_info().rss:
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += child.memory_info().rss
            peak = max(peak, total)
            time.sleep(0.02)
    return peak


def copy_tree(folder: Path, names: Iterable[str] = TREE) -> Path:
    """Return a copy of the project, without results, in which Snakemake can run."""
    copy = folder / "tree"
    copy.mkdir()
    for name in names:
        (shutil.copytree if Path(name).is_dir() else shutil.copy)(name, copy / name)
    return copy


def write_configuration(file: Path, libraries: dict, stores: dict, repeats: int = 1, **section: object) -> Path:
    """Write the configuration of a run of shots with this section, and return its file."""
    values = {"run": "bench", "repeats": repeats, "libraries": libraries, "stores": stores}
    write_json(file, values | {"studies": {"shots": {"control_cells": 0, **section}}})
    return file


def snakemake(config: Path, *arguments: object) -> list[str]:
    """Return a command of Snakemake with a configuration, on two cores."""
    words = ("--cores", "2", "--configfile", str(config), *map(str, arguments))
    return [str(Path(sys.executable).with_name("snakemake")), *words]
