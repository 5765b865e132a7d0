"""Samples of a battery: its jobs in time order, each a row, and what is wrong with what they did."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from scripts.studies.volumes import fio_facts, fio_options
from scripts.studies.volumes.fio_output import Job

_ERRORS, _NAME = 4096, 200
_LATENCIES = ("p50", "p99", "p99.9", "p99.99", "max", "mean", "stddev")
COLUMNS = (
    *("battery_id", "node_name", "layout", "job_Id"),
    *(f"sync_lat_{metric}_ms" for metric in ("max", "mean", "stddev", "p99", "p99.9", "p50", "p99.99")),
    "sync_N",
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


def in_time_order(jobs: list[Job]) -> list[Job]:
    """Return jobs in the order in which they began, by the best clock that all of them have; else in that of their ids.

    Sets `started_s` where there is such a clock. The clocks, the best first: the runner's facts, a log with its zone,
    fio's start of the job, fio's end of it less its run time, a log without a zone.
    """
    clocks = []
    for job in jobs:
        facts = (fio_facts.date(job.facts.get(key, ""))[0] for key in ("started_s", "started_utc"))
        logged, zoned = (job.line.began_s, job.line.zoned) if job.line else (None, False)
        exact = job.began_s if job.exact_start else None
        clocks.append((next(filter(None, facts), None), logged if zoned else None, exact, job.began_s, logged))
    best = next((times for times in zip(*clocks, strict=True) if None not in times), ())
    for job, started_s in zip(jobs, best, strict=False):
        job.started_s = started_s
    # Without times the shorter name is the earlier one: a1 … z5, aa1, and run9 before run10.
    return sorted(jobs, key=lambda job: (job.started_s or 0, len(job.id), job.id, len(job.file), job.file))


def told_ids(jobs: list[Job]) -> list[str]:
    """Return the ids of jobs: of their names, `fio_io_<id>` or `…etcd<id>`, else of their files, else "" for each.

    Files are `fio_results_<rw>_<id>.json`. Ids that are missing for some, or are all the same, tell no jobs apart.
    """
    names = [job.name[:_NAME] for job in jobs]
    files = [PurePosixPath(job.file).name[:_NAME] if job.alone else "" for job in jobs]
    for texts, form in (
        (names, r"fio_io_(.+)|.*etcd[_-]?([a-z]+[0-9]+)"),
        (files, r"fio_results_[a-z]+_(.+)\.json"),
    ):
        matches = [re.fullmatch(form, text) for text in texts]
        ids = [match[match.lastindex] for match in matches if match]
        if len(ids) == len(jobs) and (len(jobs) == 1 or len(set(ids)) > 1):
            return ids
    return [""] * len(jobs)


def name_jobs(jobs: list[Job]) -> list[str]:
    """Give each job an id of its own; return what is wrong with those they had.

    Those without get numbers in time order, or where no time is known the names of their files.
    """
    timed = all(job.started_s is not None for job in jobs)
    for number, job in enumerate(jobs, 1):
        job.id = job.id or (str(number) if timed else PurePosixPath(job.file).stem)
    faults = []
    for twice, count in Counter(job.id for job in jobs).items():
        alike = [job for job in jobs if job.id == twice]
        if count > 1:
            faults.append(f"{twice} is there {count} times: {', '.join(sorted({job.file for job in alike}))}")
        for number, job in enumerate(alike[1:], 2):
            job.id = f"{twice}-{number}"
    return faults


def row(job: Job, number: int, origin_s: float | None, title: dict[str, str], battery: dict[str, object]) -> dict:
    """Return a job as a row of `COLUMNS`; what is not known is None.

    `number` is its place in time order, from 1; `origin_s` when the first job began; `title` the battery's {"battery",
    "cluster", "host"}; `battery` what battery.txt says.
    """
    facts = job.facts
    load = fio_facts.loads(facts.get("load_before", ""))
    if load[0] is None and job.line:
        load = job.line.load
    values = job.columns | {
        "battery_id": "_".join(filter(None, (title["battery"], title["cluster"]))),
        "node_name": title["host"],
        "job_Id": job.id,
        "number": number,
        "started_utc": fio_facts.utc(job.started_s),
        "started_s": None if job.started_s is None else round(job.started_s - origin_s, 3),
        **dict(zip(("load1_before", "load5_before", "load15_before"), load, strict=True)),
        "load1_after": fio_facts.loads(facts.get("load_after", ""))[0],
        "steal_percent": fio_facts.steal_percent(facts.get("stat_before", ""), facts.get("stat_after", "")),
    }
    for when in ("before", "after"):
        free = fio_facts.count(facts.get(f"free_bytes_{when}", ""))
        values[f"free_gib_{when}"] = None if free is None else free / 2**30
    # fio looks a few times a second: of a short job it may have seen nothing, which does not mean that there was
    # nothing. Then the runner's two looks at the counters tell.
    device = PurePosixPath(str(battery.get("device", ""))).name
    name = next((name for name in job.disks if device.startswith(name)), next(iter(job.disks), device or None))
    counts = job.disks.get(name, {})
    if not any(counts.values()):
        began, ended = (fio_facts.date(facts.get(key, ""))[0] for key in ("started_s", "ended_s"))
        seconds = None if began is None or ended is None else ended - began
        counts = fio_facts.device_counts(facts.get("diskstats_before", ""), facts.get("diskstats_after", ""), seconds)
    values |= {"device": name, "device_util_percent": counts.get("util")}
    values |= {f"device_{key}": counts.get(key) for key in ("read_ios", "write_ios")}
    if values["write_ios"] and values["device_write_ios"] is not None:
        values["ios_per_write"] = values["device_write_ios"] / values["write_ios"]
    return {column: values.get(column) for column in COLUMNS}


def faults(job: Job) -> Iterator[str]:
    """Yield why what a job did is not what its options ask for (METHOD 9)."""
    columns, options = job.columns, job.options
    if error := columns["error"]:
        yield f"fio ended with error {error}{f' ({os.strerror(error)})' if error < _ERRORS else ''}"
    elif job.facts.get("status", "0") != "0":
        yield f"fio ended with status {job.facts['status']}"
    if job.errors:
        yield f"{job.errors} operations failed"
    writes, done = columns["write_ios"], columns["read_bytes"] + columns["write_bytes"]
    due = fio_options.asked_bytes(options)
    if due and abs(done - due[0]) > due[1]:
        yield f"{done} bytes were read and written, {due[0]} asked"
    elif not done:
        yield "nothing was read or written"
    syncs, counts = columns.get("sync_N"), fio_options.asked_syncs(options, writes)
    if counts and "sync_lat_mean_ms" not in columns and counts[0] > counts[1]:
        yield f"{job.version} does not say how long it took to force writes to the disk"
    elif counts and syncs is not None and abs(syncs - counts[0]) > counts[1]:
        yield f"{writes} writes were forced to the disk {syncs} times, {counts[0]:.0f} asked"
    for operation, bins in job.histograms.items():
        counted, n = sum(bins[1::2]), columns[f"{operation}_N"]
        if n is not None and counted != n:
            yield f"the bins of {operation} hold {counted} of {n} latencies"
