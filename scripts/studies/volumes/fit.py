"""Says in one word whether a volume keeps a limit: three batteries of the application's own job, apart in time.

Each battery lasts a minute and 20 jobs at least. The word is that of the report: `meets`, `misses` or `undecided`. What
was measured stays in results/fit/, with a configuration that makes a report of it.
"""

import argparse
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from scripts.lib import host, provenance
from scripts.lib.program import Problem, expect_room, run, tool, write_json
from scripts.report import prose
from scripts.report.names import with_interval
from scripts.studies.volumes import fio, import_fio, limits, measure, series, study, tables
from scripts.studies.volumes.report import phrases

BATTERIES = 3
RESULTS = Path("results/fit")
STATUS = {"meets": 0, "misses": 1, "undecided": 3}
_INTERRUPTED = 130
_BEGUN = re.compile(r"\[\w+\] (\d+) of \d+, ")
_TIME_LIMIT_S = 36_000
_NAME = 60  # characters of the volume's name
_NEXT = {
    "meets": "it holds for this load at this hour; burst credits last longer: measure a volume that has them for hours "
    "(docs/volumes.md)",
    "misses": "put {limit}'s data on a faster volume, or move other load off this one, and call again",
    "undecided": "call again at another hour or with a longer PAUSE; jobs that differ widely mean that something else "
    "uses the volume",
}
Say = Callable[[str], None]


def main(argv: list[str] | None = None) -> int:
    """Measure, and say the word, its reason and what to do next; return the word's status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", default="", help=f"name of a limit in {study.LIMITS}")
    parser.add_argument("--directory", default="", help="a folder on the volume")
    parser.add_argument("--pause", default="180", help="seconds between two batteries (180)")
    arguments = parser.parse_args(argv)
    limit, place = limit_of(arguments.limit), folder_of(arguments.directory)
    pause_s = float(arguments.pause) if re.fullmatch(r"\d+(\.\d+)?", arguments.pause) else math.inf
    if pause_s > 86400:
        raise Problem(f"PAUSE={arguments.pause}: write the seconds between two batteries, from 0 to 86400")
    folder = RESULTS / f"{limit['name']}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    console = Console(stderr=True, highlight=False, markup=False)
    try:
        with console.status("") as status:
            # A terminal has one line that changes; elsewhere a line for each battery and each pause is enough.
            show = status.update if console.is_terminal else lambda text: None
            word, reason = fit(place, limit, folder, pause_s=pause_s, say=console.print, show=show)
    except KeyboardInterrupt:
        print(f"interrupted; the volume is clean, and what was measured is in {folder}", file=sys.stderr)
        return _INTERRUPTED
    print(word, reason, f"Next: {_NEXT[word].format(limit=limit['name'])}.", sep="\n")
    print(f"The report: make import CONFIG={folder}/import.yaml")
    return STATUS[word]


def limit_of(name: str) -> dict:
    """Return a documented limit, with the job that its application's documentation recommends."""
    names = [name for name, entry in study.documented(study.LIMITS)["limits"].items() if "job" in entry]
    if name not in names:
        raise Problem(f"LIMIT={name or '…'}: name one of {', '.join(names)}, such as make fit LIMIT={names[0]} DIR=…")
    return limits.read([name])[0]


def folder_of(name: str) -> Path:
    """Return the folder to measure in: it is there and not in memory, and fio is here."""
    place = Path(name)
    if not name or not place.is_dir():
        raise Problem(f"DIR={name or '…'}: name a folder on the volume, such as DIR=/var/lib/etcd")
    if memory := host.in_memory(place):
        study.refuse_memory(place, memory)
    tool("fio", remedy=study.NO_FIO)
    return place.resolve()


def fit(
    place: Path,
    limit: dict,
    folder: Path,
    *,
    jobs: int = limits.LEAST_JOBS,
    at_least_s: float = limits.LEAST_S,
    pause_s: float = 180,
    job_text: str = "",
    say: Say = print,
    show: Say = print,
) -> tuple[str, str]:
    """Return the verdict on the volume of a folder, and its reason.

    It stops after a battery that misses the limit, as no other could change the verdict then. Nothing stays in `place`;
    `folder` gets the batteries' results, as `make import` reads them. `limit` is one of `limits.read` with the name of
    its `job`, in whose place `job_text` may stand. A battery has `jobs` at least and lasts `at_least_s`, and `pause_s`
    lie between two. `say` prints a line that stays, `show` what is under way.
    """
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(place))[-_NAME:].strip("-.") or "root"
    text = job_text or study.job_text(limit["job"])
    settings = {"cell": {"store": name}, "store": {"kind": "posix", "path": str(place)}, "background": None}
    settings |= {"job": {"name": limit["job"], "text": text}, "jobs": jobs, "at_least_s": at_least_s, "pause_s": 0}
    section = {"limits": [limit["name"]], "imports": [{"from": str(folder), "name": name}]}
    expect_room(folder / "import.yaml")
    # JSON is YAML.
    write_json(folder / "import.yaml", {"run": f"fit-{folder.name}", "studies": {"volumes": section}})
    batteries, clock = [], _Clock(settings, pause_s)
    for number in range(1, BATTERIES + 1):
        if number > 1:
            say(f"a pause of {pause_s:g} s")
            time.sleep(pause_s)
        say(clock.at(number))
        batteries.append(_battery(settings, folder, number, clock, show))
        rows = judged(batteries, limit)
        if rows[0]["verdict"] == "misses":
            break
    return rows[0]["verdict"], _reason(rows, limit)


def judged(batteries: Sequence[dict], limit: dict) -> list[dict]:
    """Return the rows of `limits.verdicts` on batteries of one volume: of all of them first, then of each segment."""
    described, code = zip(batteries, import_fio.records(list(batteries), "fit"), strict=True), provenance.facts([])
    records = [
        record | {"histograms": battery["histograms"], "provenance": code | record["provenance"]}
        for battery, record in described
    ]
    imported = {"status": "done", "records": records}
    (volume,) = series.read(pd.DataFrame(columns=["twin_of"]), [], imported, {})
    return limits.verdicts(volume, tables.segments_of(volume), [limit])


class _Clock:
    """How far the batteries are, and the time that is left, by the jobs so far."""

    def __init__(self, settings: dict, pause_s: float) -> None:
        self._jobs, self._at_least_s, self._pause_s = settings["jobs"], settings["at_least_s"], pause_s
        self._began, self._battery_s = time.monotonic(), study.STUDY.estimate(settings)["seconds"]

    def at(self, number: int, job: int = 0) -> str:
        """Return which battery and which of its jobs are under way, and the time that is left."""
        if job < 2:
            self._began = time.monotonic()
        spent = time.monotonic() - self._began
        if job > 1:
            self._battery_s = max(self._jobs * spent / (job - 1), self._at_least_s)
        left = max(self._battery_s - spent, 0) + (BATTERIES - number) * (self._battery_s + self._pause_s)
        named = f", job {job}" if job else ""
        return f"battery {number} of {BATTERIES}{named}; about {phrases.duration(left)} left"


def _battery(settings: dict, folder: Path, number: int, clock: _Clock, show: Say) -> dict:
    """Run a battery, and return what its folder says, as one of `import_fio.gather`."""

    def hear(line: str) -> None:
        if match := _BEGUN.match(line):
            show(clock.at(number, int(match[1])))

    job = {"settings": settings, "run": "fit", "repeat": number, "time_limit_s": _TIME_LIMIT_S, "scratch": str(folder)}
    measure.run_battery(measure.battery(job), hear)
    (results,) = folder.glob(f"b{number}_*")
    battery = fio.read_battery(results)
    if battery["faults"]:
        raise Problem(f"battery {number} of {BATTERIES}: {battery['faults'][0]}; what was measured is in {folder}")
    return battery | {"source": str(results), "entry": {"name": settings["cell"]["store"]}}


def _reason(rows: Sequence[dict], limit: dict) -> str:
    """Return the figures of each battery, or of its segments where its level changed."""
    parts = Counter(row["repeat"] for row in rows[1:])
    lines = [f"p99 of {limit['operation']} latency; {limit['name']}'s limit is {limit['p99_ms']:g} ms:"]
    for row in rows[1:]:
        changed = parts[row["repeat"]] > 1
        jobs = f", jobs {row['first_job']} to {row['last_job']}" if changed else f", {row['jobs']} jobs"
        value = with_interval(row["value_ms"], row["low_ms"], row["high_ms"], prose.number)
        lines.append(f"  battery {row['repeat']}{jobs}: {value} ms: {row['verdict']} ({row['reason']})")
        lines += [f"    at or above the limit: {over}"] if (over := phrases.over(row)) else []
    return "\n".join(lines)


if __name__ == "__main__":
    run(main)
