"""Injects faults at sampled points of a small run of all studies; nothing may be lost, and the next call succeeds.

The faults of a call are in jobs that do not depend on each other: a cell each, or a page each. What is amiss is printed
with the points of the call; each of them can be repeated alone.
"""

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.conftest import copy_project, sbench
from tests.inject import points
from tests.inject.calls import Call
from tests.inject.finished import ROWS, copy_without, link_cache, write_config

# In turn; a call has up to 39 faults in cells, 3 in data, 2 in the first page, 5 in pages.
TURNS = ("cells", "call", "index", "call", "data", "call", "pages", "call")


def main() -> int:
    """Inject the faults and return 1 if anything is amiss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="", help="what the points are sampled by (default: the time)")
    parser.add_argument("--points", type=int, default=100, help="number of faults (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=400, help="no call begins later (default: %(default)s)")
    parser.add_argument(
        "--point", nargs="*", default=[], type=points.parse_point, help="repeat these alone, as they were printed"
    )
    parser.add_argument("--keep", type=Path, help="a folder that is kept, with the finished run, which is used again")
    arguments = parser.parse_args()
    seed = arguments.seed or f"{time.time():.0f}"
    print(f"seed {seed}", flush=True)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="faults."))
    try:
        return Stage(folder, seed).run(arguments.points, arguments.seconds, arguments.point)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)


class Stage:
    """The finished run, the counts of its calls of functions, and the faults injected so far."""

    def __init__(self, folder: Path, seed: str) -> None:
        """Measure the run in `folder`."""
        self._folder, self._seed = folder, seed
        self._began = time.monotonic()
        self._finished = folder / "finished"
        self._library = points.compile_library(folder)
        self._table, self._table_of_calls = folder / "counts", folder / "counts-of-calls"
        if not self._table.exists():
            write_config(copy_project(self._finished))
            self._count(self._finished, self._table)
        if not self._table_of_calls.exists():
            copy_without("call", "", self._finished, folder / "counted")
            self._count(folder / "counted", self._table_of_calls)
        self._cache = link_cache(folder)
        self._lock, self._failed, self._amiss, self._poor = threading.Lock(), 0, 0, 0
        print(f"the run that is injected into took {self._seconds()} to measure", flush=True)

    def run(self, number: int, seconds: int, chosen: list[points.Point]) -> int:
        """Inject a number of faults, or the chosen ones, in two calls at a time, and return 1 if anything is amiss."""
        numbers = count()

        def work() -> None:
            while True:
                with self._lock:
                    if self._failed >= number or time.monotonic() - self._began > seconds:
                        return
                    index = next(numbers)
                self._make(self._sample(index), index)

        if chosen:
            (part,) = {part_of(point.job) for point in chosen}
            self._make(Call(part, study_of(chosen[0].job) if part == "data" else "", chosen), 0)
        else:
            with ThreadPoolExecutor() as pool:
                for worker in [pool.submit(work) for _ in range(2)]:
                    worker.result()
        print(
            f"{self._failed} faults after {self._seconds()}: {self._amiss} calls amiss, {self._poor} poor reasons;"
            f" seed {self._seed}"
        )
        return 1 if self._amiss else 0

    def _sample(self, index: int) -> Call:
        """Return the call of an index, with its points."""
        draw, part = random.Random(f"{self._seed} {index}"), TURNS[index % len(TURNS)]
        table = self._table_of_calls if part == "call" else self._table
        study = draw.choice([name for name in ROWS if name != "volumes"]) if part == "data" else ""
        jobs = sorted({job for job, *_ in points.read_rows(table) if part_of(job) == part})
        if part == "data":
            jobs = draw.sample([job for job in jobs if study_of(job) == study], 3)
        if part == "pages":
            jobs = [draw.choice([job for job in jobs if study_of(job) == name]) for name in ROWS]
        chosen = points.sample(draw, table, jobs)
        if part == "cells":
            # In the next block, and in the first that is appended, they fail elsewhere.
            for block in (3, 4):
                again = points.sample(draw, table, jobs)
                chosen += [replace(point, job=point.job.replace("repeat=2", f"repeat={block}")) for point in again]
        return Call(part, study, chosen)

    def _make(self, call: Call, index: int) -> None:
        """Make a call and the next one and print what came of them."""
        folder = Path(tempfile.mkdtemp(prefix=f"call-{index}.", dir=self._folder)) / "in"
        began = time.monotonic()
        call.make(self._finished, folder, self._cache, self._library)
        if not call.amiss:
            shutil.rmtree(folder.parent)
        with self._lock:
            self._failed += len(call.failed)
            self._amiss += bool(call.amiss)
            self._poor += len(call.poor)
            print(
                f"call {index}: {len(call.failed)} of {len(call.chosen)} faults in {call.part},"
                f" {time.monotonic() - began:.0f} s",
                *(f"  amiss: {line}" for line in call.amiss),
                *(f"  a poor reason: {line}" for line in call.poor),
                *(f"  --point '{point}'" for point in call.failed if call.amiss),
                sep="\n",
                flush=True,
            )

    def _count(self, clone: Path, table: Path) -> None:
        """Call the workflow in a clone and write the table of what it called."""
        part = table.with_suffix(".part")
        points.make_table(part)
        env = os.environ | {"LD_PRELOAD": str(self._library), "INJECT_TABLE": str(part)}
        done = sbench("run", "--cores", 2, cwd=clone, env=env)
        if done.returncode:
            raise SystemExit(f"the run without faults failed:\n{done.stdout}{done.stderr}")
        part.rename(table)

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"


def part_of(job: str) -> str:
    """Return the part of a run that a job belongs to (`finished.MISSING`); "" for what is not injected into."""
    if "/records/" in job:
        return "" if job.endswith("repeat=1.json") else "cells"
    if job == "-":
        return "call"
    if job in ("reports/smoke/index.html", "results/smoke/checked.json"):
        return "index"
    if job in ROWS or job.startswith("reports/") or "/looks/" in job:
        return "pages"
    return "data"


def study_of(job: str) -> str:
    """Return the study that a job belongs to."""
    return next((name for name in ROWS if name in job), "shots")


if __name__ == "__main__":
    raise SystemExit(main())
