"""What the benchmarks share: rows of the table, rounds taken in turn, and what a command takes of the machine."""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil

from sbench.probe.processes import owned
from sbench.probe.program import Problem, make_command, write_json
from sbench.verdicts import stats

# What a run of the workflow needs of the tree; results and reports of others stay where they are.
TREE = ("Snakefile", "sbench", "rules", "scripts", "config", "envs", "notebooks", "plugins", "profiles")
LIBRARIES = {f"hdf5-{version}": {"kind": "source", "hdf5": version} for version in ("1.14.6", "2.0.0")}
LIBRARIES["arrays"] = {"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/arrays.lock"}
LIBRARIES["readers"] = {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"}
LIBRARIES["hdf5-2.2.0"] = {"kind": "source", "hdf5": "2.2.0"}
DISK, S3 = {"kind": "posix"}, {"kind": "s3", "bucket": "bench", "server": "embedded"}
_SAMPLE_S = 0.02

Say = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """A line of the table: what was measured, its figure, what it is compared with, the ratio, and the limit."""

    what: str
    value: str
    against: str = ""
    ratio: str = ""
    limit: str = ""
    within: bool | None = None  # None where there is no limit


@dataclass(frozen=True)
class Usage:
    """What a command took: wall and processor seconds, and the peak of its processes' resident bytes together."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def count_false(what: str, wrong: int, runs: int, rate: float = stats.LEVEL) -> Row:
    """Return the row of what is wrong in some runs; a rule that is at `rate` exceeds the limit in 2.5 % of cases."""
    share = stats.share(wrong, runs)
    limit = stats.binomial_quantiles(runs, rate)[1]
    ends = f"[{100 * share.low:.1f}, {100 * share.high:.1f}] %"
    return Row(what, f"{wrong} of {runs}", ends, limit=f"≤ {limit} of {runs}", within=wrong <= limit)


def at_most(what: str, value: float, limit: float, unit: str, against: str = "", ratio: str = "") -> Row:
    """Return the row of a figure that has an upper limit."""
    return Row(what, f"{value:,.1f} {unit}", against, ratio, f"≤ {limit:,g} {unit}", value <= limit)


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a function that does `work` and returns the seconds that it took."""

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def numbered(rounds: int, say: Say) -> Iterator[int]:
    """Yield the numbers of rounds, from 0, and say which one begins."""
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        yield number


def in_turn(
    rounds: int, first: Callable[[], Result], second: Callable[[], Result], say: Say
) -> tuple[list[Result], list[Result]]:
    """Return the results of two ways to do something: once each unseen, then in turn, each as often ahead as behind."""
    first(), second()
    results: tuple[list[Result], list[Result]] = ([], [])
    for number in numbered(rounds, say):
        ways = [(results[0], first), (results[1], second)]
        for own, way in ways if number % 2 else reversed(ways):
            own.append(way())
    return results


def compared(
    what: str,
    ours: Sequence[float],
    name: str,
    others: Sequence[float],
    limit: float | None = None,
    note: str = "",
    size: int | None = None,
) -> Row:
    """Return the row of two ways that were timed in turn: medians, and the ratio by rounds with its 95 % interval.

    Of two ways to read `size` bytes it has bandwidths, and the limit is the least that their ratio should be.
    """
    logs = np.log(np.asarray(ours) / np.asarray(others)) * (-1 if size else 1)
    low, high = (float(np.exp(edge[0])) for edge in stats.bootstrap_interval(logs[:, None]))
    ratio = float(np.exp(np.median(logs)))
    interval = "" if math.isnan(low) else f" ({low:.3f} … {high:.3f})"
    figures = [bandwidth(size, float(np.median(each))) if size else seconds_of(each) for each in (ours, others)]
    bound, within = "", None
    if limit is not None:
        bound, within = f"{'≥' if size else '≤'} {limit:g}", ratio >= limit if size else ratio <= limit
    against = f"{name}: {figures[1]}" + (f"; {note}" if note else "")
    return Row(what, figures[0], against, f"{ratio:.3f}{interval}", bound, within)


def bandwidth(size: int, seconds: float) -> str:
    """Return bytes divided by seconds, with its unit."""
    return f"{size / 2**20 / seconds:,.0f} MiB/s"


def seconds_of(values: Sequence[float]) -> str:
    """Return the median of some seconds with its unit, and its 95 % interval where there are enough."""
    middle = stats.median(values)
    unit, scale = ("s", 1) if middle.value >= 1 else ("ms", 1000)
    value, low, high = (
        f"{seconds * scale:.0f}" if seconds * scale >= 100 else f"{seconds * scale:.3g}" for seconds in middle[:3]
    )
    return f"{value} {unit}" + ("" if math.isnan(middle.low) else f" ({low} … {high})")


def used(command: Sequence[str], cwd: Path | str = ".", **variables: str) -> Usage:
    """Run a command to its end and return what it took.

    The peak is sampled over the command and all that it started. What wait4(2) says will not do: it begins
    at the size of the process that started the command, and takes the largest process instead of their sum.

    Raises:
        Problem: it failed; the line has its last words.
    """
    start = time.perf_counter()
    with (
        ThreadPoolExecutor(1) as pool,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words,
        owned(command, words, os.environ | variables, cwd=cwd, stdin=subprocess.DEVNULL) as process,
    ):
        sampled = pool.submit(_peak, process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            words.seek(0)
            last = [line.strip() for line in words if line.strip()][-1:] or ["it said nothing"]
            # Its arguments may be a whole configuration.
            name = next((word for word in command if word.startswith(("scripts/", "tests."))), Path(command[0]).name)
            raise Problem(f"{name} ended with status {process.returncode}: {last[0]}")
        return Usage(seconds, usage.ru_utime + usage.ru_stime, sampled.result())


def program(name: str, *arguments: object) -> list[str]:
    """Return the command of a program of the workflow."""
    return make_command(name, *arguments)


def copy_tree(folder: Path, names: Iterable[str] = TREE) -> Path:
    """Return a copy of the project, without results, in which Snakemake can run."""
    copy = folder / "tree"
    copy.mkdir()
    for name in names:
        if Path(name).is_dir():
            shutil.copytree(name, copy / name)
        else:
            shutil.copy(name, copy / name)
    return copy


def configuration(file: Path, libraries: dict, stores: dict, repeats: int = 1, **section: object) -> Path:
    """Write the configuration of a run of shots, with this section, and return its file."""
    studies = {"shots": {"control_cells": 0, **section}}
    values = {"run": "bench", "repeats": repeats, "libraries": libraries, "stores": stores, "studies": studies}
    write_json(file, values)
    return file


def snakemake(config: Path, *arguments: object) -> list[str]:
    """Return a command of Snakemake with a configuration, on two cores, in plain words."""
    executable = str(Path(sys.executable).with_name("snakemake"))
    return [executable, "--cores", "2", "--configfile", str(config), *map(str, arguments)]


def _peak(pid: int) -> int:
    """Return the largest sum of resident bytes of a process and all below it, until it ends."""
    peak = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        while True:
            total = root.memory_info().rss
            for child in root.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += child.memory_info().rss
            peak = max(peak, total)
            time.sleep(_SAMPLE_S)
    return peak
