"""Read batteries of fio jobs from directories of results, from our scripts or elsewhere.

A battery is the same fio job run several times in a row. Its directory contains fio's output, a file per job, and
optionally metadata: battery.txt and facts_<id>.txt written by fio_battery.sh, or log lines in the published form. All
other files are recognized by their content, not by their names. Missing values are None, and `left_out` lists files
that could not be read.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from sbench.probe import packed
from sbench.probe.program import Problem
from sbench.probe.spool import Spool
from sbench.studies.volumes import etcd_metrics, fio_facts, fio_jobs, fio_options, fio_output, fio_text
from sbench.studies.volumes.fio_output import Job

# Other files that fio_battery.sh and `sbench fit` write next to the results.
_BESIDE = re.compile(r"job\.fio|import\.yaml|background\.err|fio_.+\.err")
_LARGE = ("options", "columns", "histograms", "disks")
_FOLDER = re.compile(r"(?P<battery>[^_]+?)(_(?P<cluster>.+?))?-fio-(?P<host>.+)")
# Maximum difference in seconds between a log's clock and fio's clock. A log line precedes the end of its job.
_CLOCKS_S = 60
EARLY = "the battery ended early"  # prefix of the fault message
_ERRORS = 4096
# A job ended early if it ran for less than the share _WHOLE of its requested time. The latencies may add up to _MORE
# times the run time, since each includes a little time before fio's run time begins. fio rounds run times to 1 ms.
_WHOLE, _MORE, _CLOCK_S = 0.95, 1.1, 0.01
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
    "error",
)


def read_battery(place: Path) -> dict:
    """Read the results of a battery (a series of fio jobs) from its directory or tarball.

    The result is an item of `Tree.list_batteries`, plus "left_out" ([{"file", "reason"}]) and with histograms converted
    by `convert_to_pairs`. If jobs with different options form several batteries, the one with most jobs is returned.
    """
    if place.is_file():
        tree = Tree(packed.remove_suffix(place.name))
        tree.add_packed(place)
    else:
        tree = Tree(place.resolve().name)
        for path in sorted(place.iterdir()):
            if packed.is_wanted(path.name) and path.is_file():
                tree.add_file(path.name, path)
    battery = max(tree.list_batteries(), key=lambda each: len(each["samples"]))
    return battery | {"histograms": convert_to_pairs(battery["histograms"]), "left_out": tree.left_out}


def convert_to_pairs(
    histograms: dict[str, dict[str, fio_output.Histogram]],
) -> dict[str, dict[str, list[tuple[int, ...]]]]:
    """Convert histograms to the form in which records store them: {job id: {operation: [(ns, count), …]}}.

    Histograms of ranges, such as histograms of etcd, have rows (lowest ns, highest ns, count).
    """
    return {job_id: {name: one.list_rows() for name, one in own.items()} for job_id, own in histograms.items()}


@dataclass
class _Folder:
    # Results of a directory. Large values are in the spool: the `_LARGE` fields of jobs, and all jobs' facts and logs,
    # for which `facts` and `logs` map job ids to places in the spool.
    jobs: list[Job] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    battery: dict[str, object] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    background: Job | None = None


class Tree:
    """The results in a directory tree, to which files are added one by one.

    Attributes:
        left_out: files that could not be read so far, [{"file", "reason"}].
    """

    def __init__(self, name: str, place: str = "") -> None:
        """Create an empty tree. `name` is its top directory, and `place` a prefix for file names in `left_out`."""
        self._name, self._place = name, place
        self._folders: dict[str, _Folder] = {"": _Folder()}
        self._spool = Spool()
        self._log: dict[str, list[tuple[str, fio_facts.LogLine]]] = {}
        self._marks: dict[tuple[str, str], str] = {}
        self._kinds: dict[tuple, tuple] = {}
        self.left_out: list[dict[str, str]] = []

    def add_file(self, name: str, path: Path) -> None:
        """Read a file, which may be compressed, and parse its content. `name` is its path within the tree."""
        try:
            data = packed.read_file(path)
        except Problem as problem:
            self.add_left_out(name, str(problem))
        else:
            self.add_content(packed.remove_suffix(name), data)

    def add_packed(self, path: Path) -> None:
        """Read all members of a tarball or zip file.

        Raises:
            Problem: the archive is unreadable (see `packed.read_members`). The tree is then incomplete: discard it.
        """
        for name, data in packed.read_members(path):
            self.add_content(name, data)

    def add_content(self, name: str, data: bytes) -> None:
        """Parse the content of a file. `name` is its path within the tree."""
        path = PurePosixPath(name)
        parent = "/".join(path.parent.parts)
        folder = self._folders.setdefault(parent, _Folder())
        text = data.decode(json.detect_encoding(data), errors="replace")
        if path.name == "battery.txt":
            folder.battery = fio_facts.parse_battery_facts(text)
        elif match := re.fullmatch(r"facts_(.+)\.txt", path.name):
            folder.facts[match[1]] = self._spool.save_value(fio_facts.parse_key_values(text))
        elif match := re.fullmatch(r"latencies_(.+)\.txt", path.name):
            folder.logs[match[1]] = self._spool.save_value(text)
        elif not _BESIDE.fullmatch(path.name):
            lines = fio_facts.parse_log_lines(text)
            for line in lines:
                self._log.setdefault(line.job_id, []).append((parent, line))
                folder.hosts |= {line.host} - {""}
            self._add_jobs(folder, parent, name, text, beside=bool(lines))

    def _add_jobs(self, folder: _Folder, parent: str, name: str, text: str, *, beside: bool) -> None:
        """Parse the jobs in a file. If `beside` is true, the file may contain only log lines and no jobs."""
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
        if (first := self._marks.get((parent, mark), name)) != name:
            return self.add_left_out(name, f"has the same content as {first}, which counts once")
        try:
            jobs = etcd_metrics.parse_jobs(text)
            documents, wrong = ([], "") if jobs else fio_text.parse_documents(text)
        except Problem as problem:
            if not (beside and str(problem) == fio_text.NOTHING):
                self.add_left_out(name, str(problem))
            return
        problems = [wrong] if wrong else []
        for document in documents:
            try:
                jobs += fio_output.parse_jobs(document)
            except Problem as problem:
                problems.append(str(problem))
        for problem in dict.fromkeys(problems):
            self.add_left_out(name, problem + ("; the rest was read" if jobs else ""))
        if PurePosixPath(name).name == "background.json" and jobs:
            folder.background = jobs[0]
        elif jobs:
            self._marks[parent, mark] = name
            for number, job in enumerate(jobs):
                job.file, job.mark, job.alone = name, f"{mark}-{number}", len(jobs) == 1
            folder.jobs += map(self._move_to_spool, jobs)

    def _move_to_spool(self, job: Job) -> Job:
        kind = tuple(fio_options.resolve_options(job.options).items())
        place = self._spool.save_value({name: getattr(job, name) for name in _LARGE})
        return replace(job, **{name: {} for name in _LARGE}, kind=self._kinds.setdefault(kind, kind), place=place)

    def add_left_out(self, name: str, reason: str) -> None:
        """Add a file to `left_out`, with the reason it was not read."""
        self.left_out.append({"file": f"{self._place}{name}", "reason": reason})

    def list_batteries(self) -> Iterator[dict]:
        """Yield the batteries of each directory. Jobs form one battery if they ran on one host with equal options.

        "samples" are rows of `COLUMNS` in time order, "histograms" are as in `fio_output.Job`, "folder" is the path
        within the tree, and "marks" identify the content of the jobs. A directory without jobs yields a battery without
        samples.
        """
        for path, folder in self._folders.items():
            if folder.jobs and self._get_title(path, folder)["host"] == "unknown":
                fio_jobs.set_hosts(folder.jobs)
            series: dict[tuple, list[Job]] = {}
            for job in folder.jobs:
                series.setdefault((job.host, job.kind), []).append(job)
            for jobs in series.values() or [[]]:
                yield self._build_battery(path, folder, jobs)

    def _build_battery(self, path: str, folder: _Folder, jobs: list[Job]) -> dict:
        title = self._get_title(path, folder)
        title |= {"host": jobs[0].host} if jobs and jobs[0].host else {}
        named = [replace(job, id=job_id) for job, job_id in zip(jobs, fio_jobs.find_job_ids(jobs), strict=True)]
        for job in named:
            job.facts = self._spool.load_value(folder.facts[job.id]) if job.id in folder.facts else {}
            job.line = self._find_log_line(path, job, title["host"])
            job.log = folder.logs.get(job.id)
        timed, facts = fio_jobs.sort_by_start(named), folder.battery
        origin, versions = timed[0].started_s if timed else None, sorted({job.version for job in timed})
        status = str(facts.get("status", "complete"))
        faults = [f"{EARLY}: {status}"] if status != "complete" else []
        faults += fio_jobs.name_jobs(timed)
        if len(versions) > 1:
            faults.append(f"jobs ran with different versions of fio: {', '.join(versions)}")
        options, samples, histograms = {}, [], {}
        for number, job in enumerate(timed, 1):
            whole = replace(job, **self._spool.load_value(job.place))
            if job.log is not None:
                job.open_loop = whole.open_loop = fio_output.set_due_latencies(whole, self._spool.load_value(job.log))
            faults += [f"{job.id}: {fault}" for fault in _check_job(whole)]
            samples.append(_build_row(whole, number, origin, title, facts))
            options = options or whole.options
            histograms |= {job.id: whole.histograms} if whole.histograms else {}
        ended = max((job.ended_s for job in timed if job.ended_s is not None), default=None)
        return {
            **title,
            "fio": ", ".join(versions) or facts.get("fio"),
            "started_utc": facts.get("started_utc") or fio_facts.format_utc(origin),
            "ended_utc": facts.get("ended_utc") or fio_facts.format_utc(ended),
            "pause_s": facts.get("pause_s"),
            "job_options": {key: value for key, value in options.items() if key != "name"},
            "facts": facts,
            "samples": samples,
            "histograms": histograms,
            "background": _describe_background(folder),
            "loop": "open" if timed and all(job.open_loop for job in timed) else "closed",
            "faults": faults,
            "folder": path,
            "marks": [job.mark for job in jobs],
        }

    def _get_title(self, path: str, folder: _Folder) -> dict[str, str]:
        """Return "battery", "cluster" and "host" from battery.txt, or from the directory name if missing there."""
        if parts := _FOLDER.fullmatch(PurePosixPath(path).name or self._name):
            title = parts.groupdict(default="")
        else:
            battery, _, cluster = (path.replace("/", "-") or self._name).partition("_")
            host = next(iter(folder.hosts)) if len(folder.hosts) == 1 else "unknown"
            title = {"battery": battery, "cluster": cluster, "host": host}
        return title | {key: str(folder.battery[key]) for key in title if folder.battery.get(key)}

    def _find_log_line(self, path: str, job: Job, host: str) -> fio_facts.LogLine | None:
        """Find the last log line before a job's end, first in its directory, then in all directories of its host."""
        if not (every := self._log.get(job.id)):
            return None
        short = host.partition(".")[0]
        alone = sum(bool(folder.jobs) for folder in self._folders.values()) == 1
        lines = [line for at, line in every if at == path]
        lines = lines or [line for _, line in every if alone or line.host.partition(".")[0] == short]
        if len(lines) > 1:
            latest = -math.inf if job.ended_s is None else job.ended_s + _CLOCKS_S
            before = [line for line in lines if line.began_s is not None and line.began_s <= latest]
            lines = sorted(before, key=lambda line: line.began_s)[-1:]
        return lines[0] if lines else None


def _describe_background(folder: _Folder) -> dict | None:
    """Describe the background job of a directory, if any, with its options and the totals of its entire run."""
    load = folder.background
    if load is None:
        return None
    job = folder.battery.get("background")
    rates = [f"{kind}_{what}" for kind in ("read", "write") for what in ("bytes", "iops", "mib_s")]
    return {
        "job": job if job not in (None, "none") else fio_options.format_signature(load.options),
        "fio": load.version,
        "job_options": load.options,
        **{key: load.columns.get(key) for key in ("runtime_s", *rates, "error")},
    }


def _build_row(
    job: Job, number: int, origin_s: float | None, title: dict[str, str], battery: dict[str, object]
) -> dict:
    """Build the row of samples (`COLUMNS`) of a battery's `number`-th job. `origin_s` is when the battery began."""
    facts, load = job.facts, fio_facts.parse_load_averages(job.facts.get("load_before", ""))
    load = job.line.load if load[0] is None and job.line else load
    values = job.columns | {
        "battery_id": "_".join(filter(None, (title["battery"], title["cluster"]))),
        "node_name": title["host"],
        "job_Id": job.id,
        "number": number,
        "started_utc": fio_facts.format_utc(job.started_s),
        "started_s": None if job.started_s is None else round(job.started_s - origin_s, 3),
        **dict(zip(("load1_before", "load5_before", "load15_before"), load, strict=True)),
        "load1_after": fio_facts.parse_load_averages(facts.get("load_after", ""))[0],
        "steal_percent": fio_facts.compute_steal_percent(facts.get("stat_before", ""), facts.get("stat_after", "")),
    }
    for when in ("before", "after"):
        free = fio_facts.parse_count(facts.get(f"free_bytes_{when}", ""))
        values[f"free_gib_{when}"] = None if free is None else free / 2**30
    # fio samples the device counters a few times per second and may miss a short job. Then use the difference of the
    # readings that fio_battery.sh took before and after the job.
    device = PurePosixPath(str(battery.get("device", ""))).name
    name = next((name for name in job.disks if device.startswith(name)), next(iter(job.disks), device or None))
    counts = job.disks.get(name, {})
    if not any(counts.values()):
        began, ended = (fio_facts.parse_date(facts.get(key, ""))[0] for key in ("started_s", "ended_s"))
        seconds = None if began is None or ended is None else ended - began
        counts = fio_facts.compute_device_counts(
            facts.get("diskstats_before", ""), facts.get("diskstats_after", ""), seconds
        )
    values |= {"device": name, "device_util_percent": counts.get("util")}
    values |= {f"device_{key}": counts.get(key) for key in ("read_ios", "write_ios")}
    return {column: values.get(column) for column in COLUMNS}


def _check_job(job: Job) -> Iterator[str]:
    """Yield differences between a job's results and its options, and implausible results (METHOD 9)."""
    columns, options, seconds = job.columns, job.options, job.columns["runtime_s"]
    if columns["write_ios"] is None:
        return
    if error := columns["error"]:
        yield f"fio ended with error {error}{f' ({os.strerror(error)})' if error < _ERRORS else ''}"
    elif job.facts.get("status", "0") != "0":
        yield f"fio ended with status {job.facts['status']}"
    if job.errors:
        yield f"{job.errors} operations failed"
    writes, done = columns["write_ios"], columns["read_bytes"] + columns["write_bytes"]
    if job.unlike:
        yield "fio merged jobs with different options (group_reporting); write each job to a separate file"
        return
    due, asked_s = fio_options.compute_asked_bytes(options), fio_options.compute_asked_seconds(options, done)
    if job.signal or seconds < _WHOLE * asked_s:
        of = f" of {asked_s:g}" if asked_s else ""
        yield f"it ended early, after {seconds:.3g}{of} s{f', by {job.signal}' if job.signal else ''}"
    if due and abs(done - due[0]) > due[1]:
        yield f"it read and wrote {done} bytes instead of {due[0]}"
    elif not done:
        yield "it read and wrote 0 bytes"
    syncs, counts = columns.get("sync_N"), fio_options.compute_asked_syncs(options, writes)
    if off := fio_options.find_latency_switch(options):
        yield f"{off} switched its latencies off; remove that option"
    elif counts and "sync_lat_mean_ms" not in columns and counts[0] > counts[1]:
        yield f"{job.version} lacks the latencies of fsync and fdatasync"
    elif counts and syncs is not None and abs(syncs - counts[0]) > counts[1]:
        yield f"it synced {writes} writes {syncs} times instead of {counts[0]:.0f}"
    for operation, own in job.histograms.items():
        counted, n = sum(own.numbers[own.width - 1 :: own.width]), columns[f"{operation}_N"]
        if n is not None and counted != n:
            yield f"the bins of {operation} hold {counted} of {n} latencies"
    for operation in () if job.open_loop else fio_output.OPERATIONS:
        n, mean_ms = columns.get(f"{operation}_N"), columns.get(f"{operation}_lat_mean_ms")
        took_s, most_s = (n or 0) * (mean_ms or 0) / 1000, (seconds + _CLOCK_S) * fio_options.count_in_flight(options)
        if took_s > _MORE * most_s:
            yield f"its {operation} latencies add up to {took_s:.3g} s, more than run time × depth = {most_s:.3g} s"
