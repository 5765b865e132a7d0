"""Measures the project itself and prints tables of figures beside goals.

What is compared is measured in turn; a ratio is the median of the rounds' ratios with its 95 % interval. A figure
beyond its goal fails nothing: machines differ and are shared. An idle machine gives figures to keep.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sbench.probe import host
from sbench.probe.program import Problem, run_main
from tests.bench import (
    adaptive,
    advice,
    counts,
    false_answers,
    false_verdicts,
    host_verdicts,
    instruments,
    null_cells,
    project,
    scale,
    tool_samples,
)
from tests.bench.common import Row

_TWO, _ROUND = {"runs": 2}, {"rounds": 1}
# Functions (folder, say) -> rows, and the settings of the smallest benchmark.
BENCHMARKS: dict[str, tuple[Callable[..., Iterator[Row]], dict[str, object]]] = {
    "project": (project.measure_project, {}),
    "verdicts": (false_verdicts.judge_runs, _TWO),
    "orders": (false_verdicts.judge_orders, _TWO),
    "looks": (false_verdicts.judge_looks, _TWO),
    "adaptive": (adaptive.judge_adaptive_runs, _TWO | {"mixed": 1}),
    "tools": (tool_samples.judge_tool_samples, _TWO | {"pilots": 2}),
    "between-runs": (false_answers.compare_sides, _TWO),
    "hosts": (host_verdicts.judge_hosts, _TWO),
    "gains": (false_answers.advise_on_files, _TWO),
    "limits": (false_answers.judge_volumes, _TWO),
    "releases": (false_answers.bisect_releases, _TWO),
    "instruments": (instruments.measure_network, {"megabytes": 4} | _ROUND),
    "counts": (counts.compare_counts, {"requests": 200, "gets": 20}),
    "cell": (null_cells.measure_null_cells, {"repeats": 1, "starts": 1}),
    "plan": (scale.plan_cells, {"cells": 50} | _ROUND),
    "report": (scale.report_records, {"records": 96} | _ROUND),
    "compare": (scale.compare_archives, {"records": 96} | _ROUND),
    "audit": (scale.audit_tables, {"rows": (500,)} | _ROUND),
    "import": (scale.import_files, {"files": 60} | _ROUND),
    "advice": (advice.try_advice, {"shapes": ("contiguous",), "repeats": 1}),
}
# On the file system of real results: where temporary folders are in memory the page cache cannot be set.
_FOLDER = Path("results")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks and print a table of each; return 1 if one could not be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = "; ".join(f"{name}: {_read_title(name)}" for name in BENCHMARKS).replace("%", "%%")
    parser.add_argument("--only", nargs="+", default=list(BENCHMARKS), choices=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument("--smallest", action="store_true", help="run each once, as small as possible")
    arguments = parser.parse_args(argv)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    is_broken = False
    for name in arguments.only:
        try:
            rows = _measure(name, BENCHMARKS[name][1] if arguments.smallest else {}, console)
        except Exception as error:
            is_broken = True
            words = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
            rows = [Row(_read_title(name), f"not run: {words.splitlines()[0]}", within=False)]
        console.print(_make_table(rows))
    return int(is_broken)


def _read_title(name: str) -> str:
    return BENCHMARKS[name][0].__doc__.partition("\n")[0].rstrip(".")


def _measure(name: str, settings: dict[str, object], console: Console) -> list[Row]:
    """Run a benchmark in a temporary folder."""
    console.print(f"{name}: {_read_title(name)}")
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_FOLDER) as folder:
        return list(BENCHMARKS[name][0](Path(folder).resolve(), console.print, **settings))


def _make_table(rows: list[Row]) -> Table:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"{host.read_facts()['cpu']}, {host.count_usable_cores()} cores, load {load}"
    table = Table("what", "measured", "against", "ratio (95 % interval)", "goal", title=title, title_justify="left")
    for row in rows:
        style = {None: None, True: "green", False: "red"}[row.within]
        table.add_row(row.what, row.value, row.against, row.ratio, row.goal, style=style)
    return table


if __name__ == "__main__":
    run_main(main)
