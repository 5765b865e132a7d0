"""Decide whether a volume meets a latency limit: run the application's fio job in three batteries with pauses between.

A battery has at least 20 jobs and lasts at least a minute; on a slow disk, a job ends after 20 s. The verdict is the
same as in the report: `meets`, `misses` or `undecided`. Results are saved in results/fit/, with a configuration from
which `sbench import` builds a report. With --quick, a single job runs for at most 10 s, and the verdict `below`
replaces `meets`.
"""

import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from sbench.pages import prose
from sbench.probe import host, provenance
from sbench.probe.program import Problem, expect_room, find_tool, print_json, write_json
from sbench.studies.volumes import config_files, fio, fio_options, import_fio, limits, measure, series, study, tables
from sbench.studies.volumes.report import phrases
from sbench.studies.volumes.report.statements import Jobs, build_limit
from sbench.studies.volumes.settings import Job, Levels, Settings
from sbench.verdicts import histograms
from sbench.verdicts.outcomes import Outcome

BATTERIES = 3
RESULTS = Path("results/fit")
STATUS = {"meets": 0, "below": 0, "misses": 1, "undecided": 3}
# A job ends after this many seconds, even if it has not written its entire files.
_JOB_S, _QUICK_S = 20, 10
_TOLD_S = 60  # seconds between progress lines if standard error is not a terminal
_INTERRUPTED = 130
_BEGUN = re.compile(r"\[\w+\] (\d+) of \d+, ")
_TIME_LIMIT_S = 36_000
_NAME = 60  # maximum length of the volume's name
_NEXT = {
    "below": "this is not a verdict: caches and burst credits outlast {seconds} s; run without --quick to decide",
    Outcome.MEETS: "it holds for this load at this hour; measure volumes with burst credits for hours: docs/volumes.md",
    Outcome.MISSES: "move {limit}'s data to a faster volume, or other load off this volume, and run again",
    Outcome.UNDECIDED: "run again at another hour or with a longer --pause; if jobs differ widely, something else uses "
    "the volume",
}
Say = Callable[[str], None]


def print_verdict(limit_name: str, directory: str, pause: str, quick: bool, as_json: bool = False) -> int:
    """Measure the volume, and print the verdict, its reason and the next step. Return the verdict's exit status.

    Args:
        limit_name: name of a limit in `config_files.LIMITS`.
        directory: a directory on the volume.
        pause: seconds between two batteries.
        quick: run a single job of at most 10 s.
        as_json: print a JSON object.

    Raises:
        Problem: an argument is invalid, the directory is unsuitable, or fio failed.
    """
    limit, place = get_limit(limit_name), require_folder(directory)
    pause_s = float(pause) if re.fullmatch(r"\d+(\.\d+)?", pause) else math.inf
    if pause_s > 86400:
        raise Problem(f"--pause must be a number of seconds between batteries, from 0 to 86400 (got {pause})")
    folder = RESULTS / f"{limit['name']}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    console, course = Console(stderr=True, highlight=False, markup=False), Course(limit)
    try:
        with console.status("") as status:
            show = status.update if console.is_terminal else _build_minute_printer(console.print)
            word, reason = judge_volume(
                place, course, folder, pause_s=pause_s, quick=quick, say=console.print, show=show
            )
    except KeyboardInterrupt:
        so_far = course.describe_reason().splitlines() if course.rows else []
        ended = f"interrupted; the volume is clean, and the results so far are in {folder}"
        print(*so_far, ended, sep="\n", file=sys.stderr)
        return _INTERRUPTED
    after = _NEXT[word].format(limit=limit["name"], seconds=_QUICK_S)
    command = f"sbench import --config {folder}/import.yaml"
    if as_json:
        whole = {name: course.rows[0][name] for name in ("value_ms", "low_ms", "high_ms", "jobs", "jobs_over")}
        answer = {"word": word, "limit": limit["name"], "limit_ms": limit["p99_ms"], **whole, "reason": reason}
        print_json(answer | {"next": after, "report": command})
    else:
        print(word, *reason.splitlines(), f"Next: {after}.", f"Report: {command}", sep="\n")
    return STATUS[word]


def _build_minute_printer(say: Say) -> Say:
    """Build a function that prints lines with `say`, but drops all within a minute of the last printed line."""
    latest = time.monotonic()

    def pass_on(line: str) -> None:
        nonlocal latest
        if time.monotonic() - latest >= _TOLD_S:
            latest = time.monotonic()
            say(line)

    return pass_on


def get_limit(name: str) -> dict:
    """Look up a documented latency limit. Only limits whose documentation recommends a fio job are valid."""
    names = [name for name, entry in config_files.read_facts(config_files.LIMITS)["limits"].items() if "job" in entry]
    if name not in names:
        raise Problem(f"--limit must be one of {', '.join(names)} (got {name})")
    return limits.resolve_limits([name])[0]


def require_folder(name: str) -> Path:
    """Return the absolute path of the directory to measure in.

    Raises:
        Problem: the directory is missing or in memory, or fio is missing.
    """
    place = Path(name)
    if not place.is_dir():
        raise Problem(f"{name} is not a folder; name a folder on the volume, such as /var/lib/etcd")
    if memory := host.find_memory_backing(place):
        study.refuse_memory(place, memory)
    find_tool("fio", remedy=study.NO_FIO)
    return place.resolve()


class Course:
    """The results of the batteries measured so far, and the verdict on the volume.

    Attributes:
        limit: a limit of `limits.resolve_limits` that has a job.
        batteries: results of the finished batteries (`fio.read_battery`).
        rows: rows of `judge_limit`: the entire volume, then each segment.
    """

    def __init__(self, limit: dict) -> None:
        """Start with no results."""
        self.limit = limit
        self.batteries: list[dict] = []
        self._judged: list[dict] = []
        self.rows: list[dict] = []

    def judge_batteries(self, *further: dict) -> None:
        """Update the verdict, based on the finished batteries and on `further` batteries that are still running."""
        self._judged = [*self.batteries, *further]
        self.rows = judge_limit(self._judged, self.limit)

    @property
    def is_missed(self) -> bool:
        """Return whether the results so far miss the limit, which makes further batteries unnecessary."""
        return self.rows[0]["verdict"] == Outcome.MISSES

    def get_verdict(self) -> str:
        """Return the verdict on the volume, or `undecided` if the jobs or the device counters do not support it."""
        verdict = self.rows[0]["verdict"]
        return (
            Outcome.UNDECIDED if (verdict == Outcome.MEETS and self.is_unproven) or not self.is_borne_out else verdict
        )

    @property
    def is_borne_out(self) -> bool:
        """Return whether fio's p99s of the jobs support the verdict. If they do not, this program has a bug."""
        operation = self.limit["operation"]
        rows = [
            {"repeat": repeat, "p99_ms": row.get(f"{operation}_lat_p99_ms"), "status": "done", "valid": True} | row
            for repeat, battery in enumerate(self._judged or self.batteries, 1)
            for row in battery["samples"]
        ]
        return build_limit((), self.rows[0], self.rows[1:]).is_supported_by(Jobs(pd.DataFrame(rows)))

    @property
    def is_unproven(self) -> bool:
        """Return whether there is no evidence that the writes of any job reached a device."""
        return not any(row.get("device_write_ios") for one in self.batteries for row in one["samples"])

    def describe_p99(self) -> str:
        """Describe the p99 so far; return an empty string if it is unknown."""
        row = self.rows[-1] if self.rows else {"value_ms": math.nan, "low_ms": math.nan, "high_ms": math.nan}
        return f"p99 {phrases.format_latency(row)} so far" if phrases.format_latency(row) else ""

    def describe_reason(self) -> str:
        """Describe the result of each battery, or of each of its segments if the latency changed, and what follows."""
        limit, parts = self.limit, Counter(row["repeat"] for row in self.rows[1:])
        lines = [f"p99 of {limit['operation']} latency; {limit['name']}'s limit is {limit['p99_ms']:g} ms:"]
        for row in self.rows[1:]:
            changed = parts[row["repeat"]] > 1
            jobs = (
                f", jobs {row['first_job']} to {row['last_job']}"
                if changed
                else f", {prose.format_count(row['jobs'], 'job')}"
            )
            figures = f"{phrases.format_latency(row)}: {row['verdict']} ({row['reason']})"
            lines.append(f"  battery {row['repeat']}{jobs}: {figures}")
            lines += [f"    at or above the limit: {over}"] if (over := phrases.format_shares(row)) else []
        if self.rows[0]["verdict"] == Outcome.UNDECIDED and Outcome.MISSES in (row["verdict"] for row in self.rows):
            lines.append(f"  {self.rows[0]['reason']}; a busier hour is as likely as a slow volume")
        if not self.is_borne_out:
            lines.append("  fio's output of the jobs does not support this: a bug of this program; please report it")
        if self.is_unproven and self.rows[0]["verdict"] == Outcome.MEETS:
            lines.append("  the kernel counts no writes of this volume: evidence that they reached a disk is missing")
        return "\n".join([*lines, *self._list_consequences()])

    def _list_consequences(self) -> list[str]:
        own = [bins for one in self.batteries for bins in _list_histograms(one, self.limit["operation"])]
        lines = []
        for consequence in self.limit.get("consequences", []) if own else []:
            over = sum(histograms.compute_at_or_above(bins, consequence["ms"])[1][0] for bins in own)
            if over:
                share = prose.format_number(100 * over / sum(bins[:, -1].sum() for bins in own))
                lines.append(f"  {share} % took {consequence['ms']:,} ms or more: {consequence['means']}")
        return lines


def _list_histograms(battery: dict, operation: str) -> list[np.ndarray]:
    """Return an operation's latency histogram for each job of a battery, with bins in ms."""
    own = (np.asarray(by_name.get(operation) or np.empty((0, 2)), float) for by_name in battery["histograms"].values())
    return [bins / (*[1e6] * (bins.shape[1] - 1), 1) for bins in own if len(bins)]


def judge_volume(
    place: Path,
    course: Course,
    folder: Path,
    *,
    jobs: int = limits.LEAST_JOBS,
    at_least_s: float = limits.LEAST_S,
    pause_s: float = 180,
    job_text: str = "",
    quick: bool = False,
    say: Say = print,
    show: Say = print,
) -> tuple[str, str]:
    """Measure a volume, and return the verdict and its reason.

    Measuring stops as soon as the limit is certainly missed (`Course.is_missed`).

    Args:
        place: directory on the volume; files written there are removed again.
        course: receives the batteries and the verdict.
        folder: directory for the results, in a form that `sbench import` reads.
        jobs: minimum number of jobs per battery.
        at_least_s: minimum duration of a battery in seconds.
        pause_s: seconds between two batteries.
        job_text: a job file that replaces the limit's job.
        quick: run a single job instead of batteries.
        say: prints a permanent line.
        show: prints a progress line.
    """
    limit = course.limit
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(place))[-_NAME:].strip("-.") or "root"
    text = f"{job_text or config_files.read_job(limit['job'])}\nruntime={_QUICK_S if quick else _JOB_S}\n"
    cell, store = Levels(name, limit["job"], "none"), {"kind": "posix", "path": str(place)}
    jobs, at_least_s = (1, 0) if quick else (jobs, at_least_s)
    settings = Settings(cell, store, Job(limit["job"], text), jobs, at_least_s, pause_s=0)
    section = {"limits": [limit["name"]], "imports": [{"from": str(folder), "name": name}]}
    expect_room(folder / "import.yaml")
    # JSON is a subset of YAML.
    write_json(folder / "import.yaml", {"run": f"fit-{folder.name}", "studies": {"volumes": section}})
    options = fio_options.parse_job_file(text)
    forced = " and ".join(name for name in ("fdatasync", "fsync") if name in options)
    size = fio_options.get_block_bytes(options)
    say(f"job {limit['job']}: writes of {size:,} bytes, each followed by {forced or 'none'}")
    clock = _Clock(settings, pause_s, 1 if quick else BATTERIES)
    for number in range(1, clock.batteries + 1):
        if number > 1:
            say(f"pausing for {pause_s:g} s")
            time.sleep(pause_s)
        say(clock.describe_progress(number))
        course.batteries.append(_run_battery(settings, folder, number, clock, course, show))
        course.judge_batteries()
        if course.is_missed:
            break
    if not quick:
        return course.get_verdict(), course.describe_reason()
    row = course.rows[-1]
    if row["high_ms"] < limit["p99_ms"] and not course.is_unproven:
        row |= {"verdict": "below", "reason": f"at most {row['high_ms']:.3g} ms"}
    elif row["verdict"] == Outcome.MISSES:
        # The rule for batteries, which may doubt this, does not apply.
        course.rows[0] |= {"verdict": Outcome.MISSES}
        row |= {"reason": f"{row['reason']}; with --quick, this job alone decides"}
    return row["verdict"], course.describe_reason()


def judge_limit(batteries: Sequence[dict], limit: dict) -> list[dict]:
    """Apply `limits.judge_limits` to a volume's batteries. Return a row for the volume, and then one per segment."""
    code = provenance.describe_code([])
    records = [
        record | {"provenance": code | record["provenance"]}
        for record in import_fio.build_records(list(batteries), "fit")
    ]
    imported = {"status": "done", "records": records}
    (volume,) = series.build_series(pd.DataFrame(columns=["twin_of"]), [], imported, {})
    return limits.judge_limits(volume, tables.list_segments(volume), [limit])


class _Clock:
    """Tracks the progress of the batteries, and estimates the remaining time from the jobs so far."""

    def __init__(self, settings: Settings, pause_s: float, batteries: int) -> None:
        self.batteries = batteries
        self._jobs, self._at_least_s, self._pause_s = settings.jobs, settings.at_least_s, pause_s
        self._began, self._battery_s = time.monotonic(), study.STUDY.estimate_record(asdict(settings))["seconds"]

    def describe_progress(self, number: int, job: int = 0) -> str:
        """Describe the current battery and job, and the remaining time."""
        if job < 2:
            self._began = time.monotonic()
        spent = time.monotonic() - self._began
        if job > 1:
            self._battery_s = max(self._jobs * spent / (job - 1), self._at_least_s)
        left = max(self._battery_s - spent, 0) + (self.batteries - number) * (self._battery_s + self._pause_s)
        named = f", job {job}" if job else ""
        return f"battery {number} of {self.batteries}{named}; about {phrases.format_duration(left)} left"


def _run_battery(settings: Settings, folder: Path, number: int, clock: _Clock, course: Course, show: Say) -> dict:
    """Run a battery, but stop early if the limit is certainly missed. Return its results (`fio.read_battery`)."""

    def read_results() -> dict:
        (place,) = folder.glob(f"b{number}_*")
        return fio.read_battery(place) | {"source": str(place), "entry": {"name": settings.cell.store}}

    def receive_line(line: str) -> bool:
        match = _BEGUN.match(line)
        if match and int(match[1]) > 1:
            battery = read_results()
            # Missing jobs are not a fault of a battery that is still running.
            battery["faults"] = [fault for fault in battery["faults"] if not fault.startswith(fio.EARLY)]
            course.judge_batteries(battery | {"facts": battery["facts"] | {"jobs": len(battery["samples"])}})
        if match:
            show("; ".join(filter(None, (course.describe_p99(), clock.describe_progress(number, int(match[1]))))))
        return bool(match and course.rows and course.is_missed)

    job = {"run": "fit", "repeat": number, "time_limit_s": _TIME_LIMIT_S, "scratch": str(folder)}
    measure.run_battery(measure.build_battery_command(job, settings), receive_line)
    battery = read_results()
    if battery["faults"]:
        raise Problem(
            f"battery {number} of {clock.batteries}: {battery['faults'][0]}; the results so far are in {folder}"
        )
    return battery
