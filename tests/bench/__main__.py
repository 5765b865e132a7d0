"""Measures what the project itself costs, beside what it is compared with in the same run, and prints a table.

What is compared is done in turn, round by round; a ratio is the median of the rounds' ratios with its 95 % interval.
Limits are printed and never a reason to fail: machines differ and are shared. A machine that does nothing else gives
figures to keep.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from sbench.probe import host
from sbench.probe.program import Problem, run
from tests.bench import (
    advice,
    arrays,
    between_runs,
    bisections,
    blobs,
    builds,
    clusters,
    disturbances,
    false_advice,
    false_limits,
    false_releases,
    false_verdicts,
    fio,
    instruments,
    null_cells,
    particles,
    plain_results,
    project,
    readers,
    scale,
    shots,
)
from tests.bench.common import Row


class Benchmark(NamedTuple):
    """What `--only` can name: what measures, (folder, say) -> rows, and what it is called with at its smallest."""

    rows: Callable[..., Iterator[Row]]
    smallest: dict[str, object]

    @property
    def about(self) -> str:
        """What it does, in a line."""
        return self.rows.__doc__.partition("\n")[0].rstrip(".")


_ROUND = {"rounds": 1}
BENCHMARKS = {
    "project": Benchmark(project.rows, {}),
    "verdicts": Benchmark(false_verdicts.rows, {"runs": 2}),
    "orders": Benchmark(disturbances.orders, {"runs": 2}),
    "looks": Benchmark(disturbances.looks, {"runs": 2}),
    "dependence": Benchmark(disturbances.dependence, {"runs": 2}),
    "losses": Benchmark(disturbances.losses, {"runs": 2}),
    "between-runs": Benchmark(between_runs.rows, {"runs": 2}),
    "releases": Benchmark(false_releases.rows, {"runs": 2}),
    "gains": Benchmark(false_advice.rows, {"runs": 2}),
    "limits": Benchmark(false_limits.rows, {"runs": 2}),
    "plain": Benchmark(plain_results.rows, {"runs": 2}),
    "reading": Benchmark(shots.loop, _ROUND),
    "ros3": Benchmark(shots.ros3, {"shots": 2, "workers": (1,)} | _ROUND),
    "instruments": Benchmark(instruments.rows, {"megabytes": 4} | _ROUND),
    "cell": Benchmark(null_cells.rows, {"repeats": 1, "starts": 1}),
    "plan": Benchmark(scale.planning, {"cells": 50} | _ROUND),
    "report": Benchmark(scale.reporting, {"records": 96} | _ROUND),
    "compare": Benchmark(scale.comparing, {"records": 96} | _ROUND),
    "published": Benchmark(scale.publishing, {"target": "reports/published-partial/arrays-audit.html"} | _ROUND),
    "audit": Benchmark(scale.auditing, {"rows": 500, "many": 1000} | _ROUND),
    "fio": Benchmark(fio.rows, {"job": "etcd-short"} | _ROUND),
    "import": Benchmark(scale.importing, {"sizes": (50,), "many": 60} | _ROUND),
    "blobs": Benchmark(blobs.rows, {"file_size": "64MiB", "patterns": ("sections",)} | _ROUND),
    "large-blobs": Benchmark(blobs.large, {"size": "64MiB"}),
    "particles": Benchmark(particles.loop, {"particles": 100_000} | _ROUND),
    "tasks": Benchmark(particles.tasks, {"counts": (200,)}),
    "memory": Benchmark(particles.memory, {"times": 1}),
    "arrays": Benchmark(arrays.rows, {"shape": "3000x2200"} | _ROUND),
    "look": Benchmark(readers.looking, {"files": 20, "groups": 50, "depth": 50}),
    "drivers": Benchmark(readers.requests, {"shots": 2, "rounds": 1, "arms": (("ros3", "default", "hdf5-2.0.0"),)}),
    "advice": Benchmark(advice.rows, {"shapes": ("contiguous",), "repeats": 1}),
    "bisect": Benchmark(bisections.rows, {"wheels": ("s3fs", "2024.9.0", "2024.10.0"), "sources": (), "empty": False}),
    "clusters": Benchmark(clusters.rows, {"repeats": 1, "cells": 50} | _ROUND),
    "builds": Benchmark(builds.rows, {"empty": False}),
}
# On the file system of real results: the state of the page cache cannot be set where a temporary folder lies in memory.
_FOLDER = Path("results")
_WIDTH = 160  # of the table where there is no terminal


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks and print them; return 1 if one could not be run, however slow they were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = "; ".join(f"{name}: {benchmark.about}" for name, benchmark in BENCHMARKS.items()).replace("%", "%%")
    parser.add_argument("--only", nargs="+", default=list(BENCHMARKS), choices=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument("--smallest", action="store_true", help="see that they run: once, of as little as they can")
    arguments = parser.parse_args(argv)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    # Also where it runs in the background, for which a shell has the first ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    rows, broken = [], False
    for name in arguments.only:
        try:
            rows += _rows(name, BENCHMARKS[name].smallest if arguments.smallest else {}, console)
        except KeyboardInterrupt:
            console.print("interrupted; what was measured until then:")
            broken = True
            break
        except Exception as error:
            # What is measured after it has nothing to do with it.
            broken = True
            words = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
            rows.append(Row(BENCHMARKS[name].about, f"not run: {words.splitlines()[0]}", within=False))
    console.print(_table(rows))
    return int(broken)


def _rows(name: str, settings: dict[str, object], console: Console) -> list[Row]:
    """Run one benchmark in a folder of its own; its rounds are told in one line of a terminal, or a line each."""
    console.print(f"{name}: {BENCHMARKS[name].about}")
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_FOLDER) as folder, console.status("") as status:
        say = status.update if console.is_terminal else lambda words: console.print(f"  {words}")
        return list(BENCHMARKS[name].rows(Path(folder).resolve(), say, **settings))


def _table(rows: list[Row]) -> Table:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"{host.facts()['cpu']}, {host.usable_cores()} cores, load {load}"
    table = Table("what", "measured", "against", "ratio (95 % interval)", "limit", title=title, title_justify="left")
    for row in rows:
        style = {None: None, True: "green", False: "red"}[row.within]
        table.add_row(row.what, row.value, row.against, row.ratio, row.limit, style=style)
    return table


if __name__ == "__main__":
    run(main)
