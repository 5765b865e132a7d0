"""Samples of a battery: its jobs in time order, each a row, and what is wrong with what they did."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from scripts.studies.volumes import fio_facts, fio_options
from scripts.studies.volumes.fio_output import OPERATIONS, PERCENTILES, Result

_ERRORS, _NAME = 4096, 200
_LATENCIES = ("p50", "p99", "p99.9", "p99.99", "max", "mean", "stddev")
_PUBLISHED = ("max", "mean", "stddev", "p99", "p99.9")
COLUMNS = (
    *("battery_id", "node_name", "layout", "job_Id"),
    *(f"sync_lat_{metric}_ms" for metric in _PUBLISHED),
    *("sync_lat_p50_ms", "sync_lat_p99.99_ms", "sync_N"),
    *(
        column
        for kind in ("read", "write")
        for column in (*(f"{kind}_lat_{metric}_ms" for metric in _LATENCIES), f"{kind}_N")
    ),
    *("read_iops", "write_iops", "read_mib_s", "write_mib_s", "read_bytes", "write_bytes", "read_ios", "write_ios"),
    *("runtime_s", "number", "started_utc", "started_s"),
    *("load1_before", "load1_after", "load5_before", "load15_before", "steal_percent"),
    *("free_gib_before", "free_gib_after", "device", "device_util_percent", "device_read_ios", "device_write_ios"),
    *("ios_per_write", "cpu_usr_percent", "cpu_sys_percent", "error"),
)


@dataclass
class Job:
    """One job, and what was written down beside it.

    Attributes:
        result: what fio says.
        file: the file that says it.
        mark: a mark of the content.
        alone: whether there is no other job in the file.
        id: the job's id; "" until it has one.
        facts: facts_<id>.txt of the runner.
        line: the log line written before the job.
        began_s: when it began, seconds since 1970 (UTC).
    """

    result: Result
    file: str
    mark: str
    alone: bool = True
    id: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    line: fio_facts.LogLine | None = None
    began_s: float | None = None

    def clocks(self) -> tuple[float | None, ...]:
        """Return when it began by each of those who may say so, the best first.

        The runner's facts, a log with its zone, fio's start of the job, fio's end of it less its run time, a log
        without a zone.
        """
        started = (fio_facts.date(self.facts.get(key, ""))[0] for key in ("started_s", "started_utc"))
        logged, zoned = (self.line.began_s, self.line.zoned) if self.line else (None, False)
        exact = self.result.began_s if self.result.exact_start else None
        return next(filter(None, started), None), logged if zoned else None, exact, self.result.began_s, logged


def in_time_order(jobs: list[Job]) -> list[Job]:
    """Return jobs in the order in which they began, by the best clock that all of them have; else in that of their ids.

    Sets `began_s` where there is such a clock.
    """
    for times in zip(*(job.clocks() for job in jobs), strict=True):
        if None not in times:
            for job, began_s in zip(jobs, times, strict=True):
                job.began_s = began_s
            return sorted(jobs, key=lambda job: (job.began_s, _natural(job.id), _natural(job.file)))
    return sorted(jobs, key=lambda job: (_natural(job.id), _natural(job.file)))


def told_ids(jobs: list[Job]) -> list[str]:
    """Return the ids of jobs: of their names, `fio_io_<id>` or `…etcd<id>`, else of their files, else "" for each.

    Files are `fio_results_<rw>_<id>.json`. Ids that are missing for some, or are all the same, tell no jobs apart.
    """
    by_name = [_first_match(job.result.name, r"fio_io_(.+)", r".*etcd[_-]?([a-z]+[0-9]+)") for job in jobs]
    files = [PurePosixPath(job.file).name if job.alone else "" for job in jobs]
    by_file = [_first_match(name, r"fio_results_[a-z]+_(.+)\.json") for name in files]
    for ids in (by_name, by_file):
        if all(ids) and (len(jobs) == 1 or len(set(ids)) > 1):
            return ids
    return [""] * len(jobs)


def name_jobs(jobs: list[Job]) -> list[str]:
    """Give each job an id of its own; return what is wrong with those they had.

    Those without get numbers in time order, or where no time is known the names of their files.
    """
    timed = all(job.began_s is not None for job in jobs)
    for number, job in enumerate(jobs, 1):
        job.id = job.id or (str(number) if timed else PurePosixPath(job.file).stem)
    uses = Counter(job.id for job in jobs)
    faults = []
    for twice in [name for name, count in uses.items() if count > 1]:
        alike = [job for job in jobs if job.id == twice]
        faults.append(f"{twice} is there {len(alike)} times: {', '.join(sorted({job.file for job in alike}))}")
        for number, job in enumerate(alike[1:], 2):
            job.id = f"{twice}-{number}"
    return faults


def row(job: Job, number: int, origin_s: float | None, title: dict[str, str], battery: dict[str, object]) -> dict:
    """Return a job as a row of `COLUMNS`; what is not known is None.

    Args:
        job: the job.
        number: its place in time order, from 1.
        origin_s: when the first job began.
        title: the battery's {"battery", "cluster", "host"}.
        battery: battery.txt, as far as it is there.
    """
    result, facts = job.result, job.facts
    writes = result.traffic["write"]
    values: dict[str, object] = {
        "battery_id": "_".join(filter(None, (title["battery"], title["cluster"]))),
        "node_name": title["host"],
        "job_Id": job.id,
        "runtime_s": result.seconds,
        "number": number,
        "started_utc": fio_facts.utc(job.began_s),
        "started_s": None if job.began_s is None else round(job.began_s - origin_s, 3),
        "steal_percent": fio_facts.steal_percent(facts.get("stat_before", ""), facts.get("stat_after", "")),
        "cpu_usr_percent": result.usr_percent,
        "cpu_sys_percent": result.sys_percent,
        "error": result.error,
    }
    for operation in OPERATIONS:
        values |= _latency(result, operation)
    for kind, traffic in result.traffic.items():
        seconds = traffic.seconds
        values |= {
            f"{kind}_ios": traffic.ios,
            f"{kind}_bytes": traffic.nbytes,
            f"{kind}_iops": traffic.ios / seconds if seconds else None,
            f"{kind}_mib_s": traffic.nbytes / 2**20 / seconds if seconds else None,
        }
    before = fio_facts.loads(facts.get("load_before", ""))
    if before[0] is None and job.line:
        before = job.line.load
    values |= dict(zip(("load1_before", "load5_before", "load15_before"), before, strict=True))
    values["load1_after"] = fio_facts.loads(facts.get("load_after", ""))[0]
    for when in ("before", "after"):
        free = fio_facts.count(facts.get(f"free_bytes_{when}", ""))
        values[f"free_gib_{when}"] = None if free is None else free / 2**30
    values |= _device(job, battery)
    device_writes = values["device_write_ios"]
    values["ios_per_write"] = device_writes / writes.ios if writes.ios and device_writes is not None else None
    return {column: values.get(column) for column in COLUMNS}


def _latency(result: Result, operation: str) -> dict[str, float | None]:
    latency = result.latencies.get(operation)
    if latency is None:
        return {f"{operation}_N": 0 if operation != "sync" or not fio_options.syncs(result.options) else None}
    values = {"max": latency.maximum, "mean": latency.mean, "stddev": latency.stddev}
    values |= {f"p{percentile:g}": latency.at(percentile) for percentile in PERCENTILES}
    columns = {f"{operation}_lat_{key}_ms": None if ns is None else ns / 1e6 for key, ns in values.items()}
    return columns | {f"{operation}_N": latency.n}


def _device(job: Job, battery: dict[str, object]) -> dict[str, object]:
    """Return the device's columns, as fio says them, else between the runner's two looks at its counters.

    fio looks a few times a second: of a short job it may have seen nothing, which does not mean that there was nothing.
    """
    disks, facts = job.result.disks, job.facts
    device = PurePosixPath(str(battery.get("device", ""))).name
    name = next((name for name in disks if device.startswith(name)), next(iter(disks), device or None))
    counts: dict[str, float | None] = disks.get(name, {})
    if not any(counts.get(key) for key in ("read_ios", "write_ios", "util")):
        began, ended = (fio_facts.date(facts.get(key, ""))[0] for key in ("started_s", "ended_s"))
        seconds = None if began is None or ended is None else ended - began
        counts = fio_facts.device_counts(facts.get("diskstats_before", ""), facts.get("diskstats_after", ""), seconds)
    return {
        "device": name,
        "device_util_percent": counts.get("util"),
        "device_read_ios": counts.get("read_ios"),
        "device_write_ios": counts.get("write_ios"),
    }


def histograms(result: Result) -> dict[str, list[tuple[int, int]]]:
    """Return {operation: [(ns, count), …]} of the operations that have bins."""
    return {operation: latency.bins.pairs() for operation, latency in result.latencies.items() if latency.bins}


def faults(job: Job) -> Iterator[str]:
    """Yield why what a job did is not what its options ask for (METHOD 9)."""
    result, options = job.result, job.result.options
    if result.error:
        words = f" ({os.strerror(result.error)})" if 0 < result.error < _ERRORS else ""
        yield f"fio ended with error {result.error}{words}"
    elif job.facts.get("status", "0") != "0":
        yield f"fio ended with status {job.facts['status']}"
    if result.errors:
        yield f"{result.errors} operations failed"
    writes = result.traffic["write"].ios
    done = sum(traffic.nbytes for traffic in result.traffic.values())
    expected = fio_options.asked_bytes(options)
    if expected and abs(done - expected[0]) > expected[1]:
        yield f"{done} bytes were read and written, {expected[0]} asked"
    elif not done:
        yield "nothing was read or written"
    sync, counts = result.latencies.get("sync"), fio_options.asked_syncs(options, writes)
    if counts and sync is None and counts[0] > counts[1]:
        yield f"{result.version} does not say how long it took to force writes to the disk"
    elif counts and sync and sync.n is not None and abs(sync.n - counts[0]) > counts[1]:
        yield f"{writes} writes were forced to the disk {sync.n} times, {counts[0]:.0f} asked"
    for operation, latency in result.latencies.items():
        counted = latency.bins.total() if latency.bins else None
        if counted is not None and latency.n is not None and counted != latency.n:
            yield f"the bins of {operation} hold {counted} of {latency.n} latencies"


def _first_match(text: str, *forms: str) -> str:
    return next((match[1] for form in forms if (match := re.fullmatch(form, text[:_NAME]))), "")


def _natural(text: str) -> tuple:
    """Return a key that sorts a1 … a5, b1 … z5, aa1 …, and numbers in any text by their value."""
    if match := re.fullmatch(r"([a-z]+)([0-9]+)", text):
        return 0, len(match[1]), match[1], int(match[2])
    parts = re.split(r"([0-9]+)", text)
    return 1, 0, "", 0, *[(int(part), "") if part.isdigit() else (-1, part) for part in parts]
