"""Determine the hosts, ids and order of fio jobs."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePosixPath

from sbench.studies.volumes import fio_facts
from sbench.studies.volumes.fio_output import Job

_IN_NAME, _IN_FILE = re.compile(r"fio_io_(.+)|.*etcd[_-]?([a-z]+[0-9]+)"), re.compile(r"fio_results_[a-z]+_(.+)\.json")
# Search only this many characters of a name, which bounds the time of the regular expressions.
_NAME = 200
# A host name in a file name: the file then contains results of that host.
_HOST = re.compile(
    r"(?<![a-z])((?:master|worker|node|host|server|control-?plane|infra|vm)[-_]?[0-9a-f]+(?:\.[a-z][\w.-]*?)?|"
    r"ip-\d+-\d+-\d+-\d+(?:\.[a-z][\w.-]*?)?|\d+\.\d+\.\d+\.\d+)(?![a-z0-9])",
    re.IGNORECASE,
)


def set_hosts(jobs: list[Job]) -> None:
    """Derive the hosts of jobs from their file names, if each file seems to contain the results of a single host.

    This is assumed if all file names contain host names, if jobs have no ids and the file names differ in more than
    numbers, or if jobs of different files ran at the same time, since the jobs of a battery run one after another.
    """
    stems = {job.file: PurePosixPath(job.file).stem for job in jobs if not job.host}
    hosts = {file: match[1] for file, stem in stems.items() if (match := _HOST.search(stem))}
    if len(hosts) == len(stems):
        named = hosts
    elif len(stems) > 1 and (
        _has_concurrent_jobs(jobs) or (not any(find_job_ids(jobs)) and _has_unlike_names(stems.values()))
    ):
        named = stems
    else:
        return
    for job in jobs:
        job.host = job.host or named[job.file]


def _has_unlike_names(stems: Iterable[str]) -> bool:
    forms = Counter(re.sub(r"\d+", "#", stem) for stem in stems)
    return max(forms.values()) == 1


def _has_concurrent_jobs(jobs: list[Job]) -> bool:
    """Return whether jobs of different files overlapped by more than 1 s, the resolution of fio's clock."""
    spans: dict[str, tuple[float, float]] = {}
    for job in jobs:
        if job.began_s is None or job.ended_s is None:
            return False
        began, ended = spans.get(job.file, (math.inf, -math.inf))
        spans[job.file] = min(began, job.began_s), max(ended, job.ended_s)
    ordered = sorted(spans.values())
    return any(former - later > 1 for (_, former), (later, _) in pairwise(ordered))


def sort_by_start(jobs: list[Job]) -> list[Job]:
    """Sort jobs by start time, or by id without start times; set `started_s`.

    Start times come from the best source that is available for all jobs: the facts of fio_battery.sh, log lines with a
    time zone, fio's start time, fio's end time minus the run time, log lines without a time zone.
    """
    clocks = []
    for job in jobs:
        facts = (fio_facts.parse_date(job.facts.get(key, ""))[0] for key in ("started_s", "started_utc"))
        logged, zoned = (job.line.began_s, job.line.zoned) if job.line else (None, False)
        exact = job.began_s if job.exact_start else None
        clocks.append((next(filter(None, facts), None), logged if zoned else None, exact, job.began_s, logged))
    best = next((times for times in zip(*clocks, strict=True) if None not in times), ())
    for job, started_s in zip(jobs, best, strict=False):
        job.started_s = started_s
    # Without start times, shorter names come first: a1 … z5 before aa1, and run9 before run10.
    return sorted(jobs, key=lambda job: (job.started_s or 0, len(job.id), job.id, len(job.file), job.file))


def find_job_ids(jobs: list[Job]) -> list[str]:
    """Find job ids in the names of jobs or of their files. Return empty strings if ids are missing or all equal."""
    names = [job.name for job in jobs]
    files = [PurePosixPath(job.file).name if job.alone else "" for job in jobs]
    for texts, form in ((names, _IN_NAME), (files, _IN_FILE)):
        matches = [form.fullmatch(text[:_NAME]) for text in texts]
        ids = [match[match.lastindex] for match in matches if match]
        if len(ids) == len(jobs) and (len(jobs) == 1 or len(set(ids)) > 1):
            return ids
    return [""] * len(jobs)


def name_jobs(jobs: list[Job]) -> list[str]:
    """Number jobs without an id in time order, or name them after their files if start times are unknown.

    Duplicate ids get a suffix.

    Returns:
        A message per duplicate id.
    """
    timed = all(job.started_s is not None for job in jobs)
    for number, job in enumerate(jobs, 1):
        job.id = job.id or (str(number) if timed else PurePosixPath(job.file).stem)
    faults, by_id = [], {}
    for job in jobs:
        by_id.setdefault(job.id, []).append(job)
    for twice, alike in by_id.items():
        if len(alike) > 1:
            faults.append(f"job {twice} occurs {len(alike)} times: {', '.join(sorted({job.file for job in alike}))}")
        for number, job in enumerate(alike[1:], 2):
            job.id = f"{twice}-{number}"
    return faults
