"""Measures what the project itself costs, beside what it is compared with in the same run, and prints a table.

What is compared is done in turn, round by round; a ratio is the median of the rounds' ratios with its 95 % interval.
Limits are printed and never a reason to fail: machines differ and are shared. A machine that does nothing else gives
figures to keep.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts.benchmarks import blobs, builds, cells, fio, importing, large_blobs, planning, reading, reporting, ros3
from scripts.benchmarks.common import Row
from scripts.lib import host
from scripts.lib.program import Problem, run

BENCHMARKS = {
    "reading": reading.rows,
    "ros3": ros3.rows,
    "cell": cells.rows,
    "plan": planning.rows,
    "report": reporting.rows,
    "fio": fio.rows,
    "import": importing.rows,
    "blobs": blobs.rows,
    "large-blobs": large_blobs.rows,
    "builds": builds.rows,
}
_ABOUT = {
    "reading": "the reading loop against a bare h5py loop over the same files",
    "ros3": "ROS3 against bare ranged GETs of the same ranges from the same server",
    "cell": "a cell that reads next to nothing, and what it spends its time on",
    "plan": "Snakemake's plan of 10,000 cells",
    "report": "2,000 records of 46 samples to tables and report",
    "fio": "fio started by the workflow against fio by hand",
    "import": "200 and 2,000 JSON files of fio to tables and report",
    "blobs": "readers of objects against the bare calls of their clients and against fio, and the memory they take",
    "large-blobs": "an object of 4 GiB in sections through both servers; takes minutes and 10 GB of disk",
    "builds": "both libraries from nothing; takes minutes",
}
# On the file system of real results: the state of the page cache cannot be set where a temporary folder lies in memory.
_FOLDER = Path("results")
_WIDTH = 160  # of the table where there is no terminal


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks and print them; return 1 if one could not be run, however slow they were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    descriptions = "; ".join(f"{name}: {what}" for name, what in _ABOUT.items())
    parser.add_argument(
        "--only", nargs="+", default=list(BENCHMARKS), choices=BENCHMARKS, metavar="NAME", help=descriptions
    )
    arguments = parser.parse_args(argv)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    rows: list[Row] = []
    broken = False
    try:
        for name in arguments.only:
            try:
                rows += _rows(name, console)
            except Problem as problem:
                broken = True
                rows.append(Row(_ABOUT[name], f"not run: {problem}", within=False))
    except KeyboardInterrupt:
        console.print("interrupted; what was measured until then:")
        broken = True
    console.print(_table(rows))
    return int(broken)


def _rows(name: str, console: Console) -> list[Row]:
    """Run one benchmark in a folder of its own; its rounds are told in one line of a terminal, or a line each."""
    console.print(f"{name}: {_ABOUT[name]}")
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_FOLDER) as folder, console.status("") as status:

        def say(words: str) -> None:
            if console.is_terminal:
                status.update(words)
            else:
                console.print(f"  {words}")

        return list(BENCHMARKS[name](Path(folder).resolve(), say))


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
