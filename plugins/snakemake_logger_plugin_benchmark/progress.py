"""Describe the outcomes of finished jobs, the time left, and errors."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from logging import LogRecord
from pathlib import Path

LARGEST_ARTEFACT = 5_000_000  # bytes; larger files are not read, so as not to disturb a running measurement
MISTAKES = {"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError", "ValueError"}
# Flags that Snakemake appends to output names, such as " (update)".
FLAGS = re.compile(r" \([a-z, ]+\)$")
# Rules whose jobs are skipped if an input failed. Other rules only inspect artefacts, and run anyway.
NEED_ALL = {"provision", "measure"}
FRAME = re.compile(r'  File "(.+)", line \d+, in ')
# The operating system's refusal to create a directory or write a file. A full disk may have space for data, but not for
# directory entries.
REFUSED = re.compile(
    r"OSError: \[Errno \d+\] (?P<why>No space left on device|Read-only file system|.*quota.*)(: '(?P<path>.*)')?"
)
FREE = "; free disk space or inodes (df -i), or make the folder writable, and repeat the command"
# An error of the operating system, as printed by Python.
OF_SYSTEM = re.compile(r"^(?:\w+: )?(\[Errno \d+\] .+)$", re.MULTILINE)
# The workflow's command lines contain the configuration, which is thousands of characters long.
COMMAND = re.compile(r"^Command '.*' returned", re.MULTILINE | re.DOTALL)


def format_duration(seconds: float) -> str:
    """Format a duration as `0.4 s`, `12 s`, `2 min 10 s` or `1 h 5 min`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def describe_job(job: LogRecord) -> str:
    """Return the message of a job's rule, or else the rule's name and wildcards."""
    named = [job.rule_name.replace("_", " "), *(f"{key} {value}" for key, value in job.wildcards.items())]
    return job.rule_msg or "  ".join(named)


def read_outcome(outputs: Iterable[str]) -> tuple[str, str]:
    """Read the outcome of a finished job, and the reason for it, from the first JSON file among its outputs.

    A failed step writes an artefact with status "failed" and exits with status 0. The reason is the name of the failed
    input for a skipped step, and the result of the look for a look. A cell that cannot read the existing data is "left
    out".

    Returns:
        ("FAILED" | "skipped" | "left out" | "invalid" | "done", reason). Unreadable files count as done.
    """
    artefact = None
    if path := next((Path(name) for name in map(remove_flags, outputs) if name.endswith(".json")), None):
        with contextlib.suppress(OSError, ValueError):
            small = path.stat().st_size <= LARGEST_ARTEFACT
            data = path.read_bytes() if small else b""
            artefact = json.loads(data) if b'"failed"' in data or b"false" in data or is_look(path) else None
    if not isinstance(artefact, dict):
        return "done", ""
    reasons = artefact.get("reasons")
    reason = str(reasons[0]) if isinstance(reasons, list) and reasons else "no reason given"
    if artefact.get("status") == "failed":
        if artefact.get("cause"):
            return "skipped", str(artefact["cause"])
        return ("left out" if artefact.get("unable") else "FAILED"), reason
    if path and is_look(path):
        return "done", reason
    return ("invalid", reason) if artefact.get("valid") is False else ("done", "")


def is_look(path: Path) -> bool:
    """Return whether a file contains an interim look at a study's results."""
    return path.parent.name == "looks"


def remove_flags(name: str) -> str:
    """Return an input or output name from Snakemake's log without its flags."""
    return FLAGS.sub("", name)


def read_sentences(reports: Path) -> Iterator[tuple[str, str]]:
    """Yield (text, path) for each study's page: its title, headline and caution. Skip unreadable files."""
    for path in sorted(reports.glob("*_answers.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
            study = json.loads(path.read_bytes())
            words = " ".join(filter(None, [study["headline"], study.get("caution")]))
            yield f"{study['title']}: {words}", str(path).replace("_answers.json", ".html")


def format_error(text: str, exception: str) -> str:
    """Format a Snakemake error, without its traceback if the user or the operating system caused it.

    A user's error is a WorkflowError, whose message explains it, or a file or option that Snakemake itself rejects
    before it reads the workflow.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and (refused := REFUSED.fullmatch(lines[-1])):
        return f"problem: {refused['path'] or 'a file, perhaps in TMPDIR'}: {refused['why']}{FREE}"
    if exception == "WorkflowError" and len(lines) > 1 and " in rule " not in lines[0]:
        return "problem: " + "\n".join(line for line in lines[1:] if not FRAME.match(line))
    if refused := OF_SYSTEM.findall(text):
        return f"problem: {refused[-1]}"
    frames = [match[1] for line in lines if (match := FRAME.match(line))]
    if exception in MISTAKES and frames and all("/snakemake/" in file or file == "<string>" for file in frames):
        return f"problem: {lines[-1].partition(': ')[2]}"
    return COMMAND.sub("Its command returned", text)


@dataclass
class Rule:
    """Progress of the jobs of a Snakemake rule.

    Attributes:
        jobs: number of jobs.
        ended: number of ended jobs.
        durations: durations of ended jobs, in seconds.
        running: start times of running jobs, by job number.
        at_once: maximum number of jobs that have run concurrently.
    """

    jobs: int = 0
    ended: int = 0
    durations: list[float] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    at_once: int = 1

    def record_start(self, job: int, now: float) -> None:
        """Record that a job has been running since `now`."""
        self.running[job] = now
        self.at_once = max(self.at_once, len(self.running))

    def record_end(self, job: int, now: float, counts: bool) -> None:
        """Record that a job ended; `counts` states whether its duration is typical of the rule's jobs."""
        self.ended += 1
        started = self.running.pop(job, now)
        self.durations += [now - started] * counts

    def count_unfinished(self) -> int:
        """Return the number of jobs that have not ended."""
        return max(self.jobs - self.ended, len(self.running))

    def estimate_seconds_left(self, now: float) -> float | None:
        """Return the estimated time until the rule's last job ends, in seconds; None if no job was timed yet.

        The estimate uses the mean duration, because the median would be far off if half of the cells are slow.
        """
        if not self.durations:
            return None
        mean = sum(self.durations) / len(self.durations)
        begun = [max(mean - (now - started), 0.0) for started in self.running.values()]
        return ((self.count_unfinished() - len(begun)) * mean + sum(begun)) / self.at_once


def describe_time_left(rules: Iterable[Rule], now: float, by_plan: float = 0.0) -> str:
    """Describe the time left in the run, and the number of jobs of unknown duration.

    A duration is unknown if no job of the same rule was timed. If such jobs are the majority, the plan's estimate is
    used. So it is while less than a quarter of a rule's jobs have ended: the first study may have the longest jobs.

    Args:
        rules: rules of the run.
        now: current time in seconds.
        by_plan: seconds left by the plan; zero or less if unknown or exceeded.
    """
    rules = [rule for rule in rules if rule.count_unfinished()]
    unfinished = [(rule.count_unfinished(), rule.estimate_seconds_left(now)) for rule in rules]
    untimed = sum(jobs for jobs, left in unfinished if left is None)
    if not unfinished:
        return "nothing left"
    unknown = f"{untimed} job{'s' * (untimed > 1)} of unknown length"
    # A rule's only job cannot have an ended predecessor.
    if 2 * untimed > sum(jobs for jobs, _ in unfinished) and max(j for j, left in unfinished if left is None) > 1:
        return f"about {format_duration(by_plan)} left, as planned" if by_plan > 0 else "estimating the time left"
    if by_plan > 0 and any(rule.durations and rule.count_unfinished() > 3 * rule.ended for rule in rules):
        return f"about {format_duration(by_plan)} left, as planned"
    if all(left is None for _, left in unfinished):
        return f"{unknown} left"
    seconds = sum(left for _, left in unfinished if left is not None)
    text = f"about {format_duration(seconds)} left" if seconds >= 10 else "a few seconds left"
    return f"{text} + {unknown}" if untimed else text
