"""Batteries of fio: what a folder of its results says, whoever ran it.

A battery is a job of fio some times in a row. Its folder holds fio's JSON output, a file a job, and perhaps what was
written down beside it: battery.txt and facts_<id>.txt of fio_battery.sh, or the published log lines. Whatever
is missing is None, what cannot be read is named in `left_out`, and the rest is read.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from scripts.lib.program import Problem
from scripts.studies.volumes import fio_facts, fio_options, fio_output, fio_samples, open_loop
from scripts.studies.volumes.fio_output import Job

# A file of results has 0.5 MB with all bins of json+, times the processes without group_reporting; no larger is read.
FILE_BYTES = 16 * 2**20
_FOLDER = re.compile(r"(?P<battery>[^_]+?)(_(?P<cluster>.+?))?-fio-(?P<host>.+)")
# A log line was written before its job ended; clocks of a log and of fio are the same or nearly so.
_CLOCKS_S = 60


def read_battery(folder: Path) -> dict:
    """Return what a battery's folder says: the fio part of a record.

    Returns:
        {"battery", "cluster", "host", "fio", "started_utc", "ended_utc", "pause_s", "job_options", "facts", "samples"
        (rows of `fio_samples.COLUMNS`, in time order), "histograms" ({id: {operation: [(ns, count), …]}}), "left_out"
        ([{"file", "reason"}]), "background", "loop", "faults"}; of jobs whose options differ, those like the first.
    """
    tree = Tree(folder.resolve().name)
    for path in sorted(folder.iterdir()):
        if wanted(path.name) and path.is_file():
            tree.add_file(path.name, path)
    battery = next(tree.batteries())
    return battery | {"histograms": pairs(battery["histograms"]), "left_out": tree.left_out}


def pairs(histograms: dict[str, dict[str, array]]) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """Return the histograms of a battery's jobs as a record has them: {id: {operation: [(ns, count), …]}}."""
    return {
        job_id: {operation: list(zip(bins[::2], bins[1::2], strict=True)) for operation, bins in by_operation.items()}
        for job_id, by_operation in histograms.items()
    }


def wanted(name: str) -> bool:
    """Return whether a file may have something to say: fio's output, or what was written beside it."""
    path = PurePosixPath(name)
    return path.suffix in (".json", ".log", ".txt") and not path.name.startswith(".")


@dataclass
class _Folder:
    jobs: list[Job] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    battery: dict[str, object] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    background: Job | None = None


class Tree:
    """A tree of results, read file after file; each folder of it that holds fio's output is a battery, or several.

    Attributes:
        left_out: [{"file", "reason"}] of what could not be read so far.
    """

    def __init__(self, name: str, place: str = "") -> None:
        """Begin a tree whose outermost folder has this name; `place` stands before the names of files left out."""
        self._name, self._place = name, place
        self._folders: dict[str, _Folder] = {"": _Folder()}
        self._log: dict[str, list[tuple[str, fio_facts.LogLine]]] = {}
        self._marks: dict[tuple[str, str], str] = {}
        self.left_out: list[dict[str, str]] = []

    def add_file(self, name: str, path: Path) -> None:
        """Read a file that lies on disk and is `wanted`; `name` is its path within the tree."""
        try:
            if path.stat().st_size > FILE_BYTES:
                self.leave_out(name, f"has more than {FILE_BYTES // 2**20} MiB")
            else:
                self.add(name, path.read_bytes())
        except OSError as error:
            self.leave_out(name, f"cannot be read: {error.strerror}")

    def add(self, name: str, data: bytes) -> None:
        """Read the content of a file that is `wanted`; `name` is its path within the tree."""
        path = PurePosixPath(name)
        parent = "/".join(path.parent.parts)
        folder = self._folders.setdefault(parent, _Folder())
        text = data.decode(json.detect_encoding(data), errors="replace")
        if path.name == "battery.txt":
            folder.battery = fio_facts.battery(text)
        elif match := re.fullmatch(r"facts_(.+)\.txt", path.name):
            folder.facts[match[1]] = fio_facts.key_values(text)
        elif match := re.fullmatch(r"latencies_(.+)\.txt", path.name):
            folder.logs[match[1]] = text
        elif path.suffix != ".json":
            for line in fio_facts.log_lines(text):
                self._log.setdefault(line.job_id, []).append((parent, line))
                folder.hosts |= {line.host} - {""}
        else:
            self._add_jobs(folder, parent, name, text)

    def _add_jobs(self, folder: _Folder, parent: str, name: str, text: str) -> None:
        try:
            jobs = fio_output.jobs(text)
        except Problem as problem:
            return self.leave_out(name, str(problem))
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
        if PurePosixPath(name).name == "background.json":
            folder.background = jobs[0]
        elif (first := self._marks.setdefault((parent, mark), name)) != name:
            self.leave_out(name, f"has the content of {first}, which is taken once")
        else:
            for number, job in enumerate(jobs):
                job.file, job.mark, job.alone = name, f"{mark}-{number}", len(jobs) == 1
            folder.jobs += jobs

    def leave_out(self, name: str, reason: str) -> None:
        """Name a file that is not read."""
        self.left_out.append({"file": f"{self._place}{name}", "reason": reason})

    def batteries(self) -> Iterator[dict]:
        """Yield the batteries of each folder, as `read_battery` does; jobs whose options differ are batteries apart.

        Histograms are those of `fio_output.Job`. Each has "folder", its path within the tree, and "marks" of its
        jobs' content; a folder without jobs gives one without samples.
        """
        for path, folder in self._folders.items():
            series: dict[tuple, list[Job]] = {}
            for job in folder.jobs:
                series.setdefault(tuple(fio_options.canonical(job.options).items()), []).append(job)
            for jobs in series.values() or [[]]:
                yield self._battery(path, folder, jobs)

    def _battery(self, path: str, folder: _Folder, jobs: list[Job]) -> dict:
        title = self._title(path, folder)
        for job, job_id in zip(jobs, fio_samples.told_ids(jobs), strict=True):
            job.id = job_id
            if job_id in folder.logs:
                job.open_loop = open_loop.count_from_due(job, folder.logs[job_id])
            job.facts, job.line = folder.facts.get(job_id, {}), self._line(path, job, title["host"])
        timed, facts = fio_samples.in_time_order(jobs), folder.battery
        faults = fio_samples.name_jobs(timed)
        origin = timed[0].started_s if timed else None
        versions = sorted({job.version for job in timed})
        if len(versions) > 1:
            faults.append(f"fio was not the same for all jobs: {', '.join(versions)}")
        faults += [f"{job.id}: {fault}" for job in timed for fault in fio_samples.faults(job)]
        if (status := str(facts.get("status", "complete"))) != "complete":
            faults.insert(0, f"the battery ended early: {status}")
        ended = max((job.ended_s for job in timed if job.ended_s is not None), default=None)
        return {
            **title,
            "fio": ", ".join(versions) or facts.get("fio"),
            "started_utc": facts.get("started_utc") or fio_facts.utc(origin),
            "ended_utc": facts.get("ended_utc") or fio_facts.utc(ended),
            "pause_s": facts.get("pause_s"),
            "job_options": {key: value for key, value in (timed[0].options if timed else {}).items() if key != "name"},
            "facts": facts,
            "samples": [fio_samples.row(job, number, origin, title, facts) for number, job in enumerate(timed, 1)],
            "histograms": {job.id: job.histograms for job in timed if job.histograms},
            "background": _background(folder),
            "loop": "open" if timed and all(job.open_loop for job in timed) else "closed",
            "faults": faults,
            "folder": path,
            "marks": [job.mark for job in jobs],
        }

    def _title(self, path: str, folder: _Folder) -> dict[str, str]:
        """Return {"battery", "cluster", "host"}: of battery.txt, of the folder's name, or as far as they are known."""
        if parts := _FOLDER.fullmatch(PurePosixPath(path).name or self._name):
            title = parts.groupdict(default="")
        else:
            battery, _, cluster = (path.replace("/", "-") or self._name).partition("_")
            host = next(iter(folder.hosts)) if len(folder.hosts) == 1 else "unknown"
            title = {"battery": battery, "cluster": cluster, "host": host}
        return title | {key: str(folder.battery[key]) for key in title if folder.battery.get(key)}

    def _line(self, path: str, job: Job, host: str) -> fio_facts.LogLine | None:
        """Return the log line of a job: of its own folder, else of any folder where the host is the same."""
        every = self._log.get(job.id, [])
        alone = sum(bool(folder.jobs) for folder in self._folders.values()) == 1
        short = host.partition(".")[0]
        lines = [line for at, line in every if at == path]
        lines = lines or [line for _, line in every if alone or (line.host and line.host.partition(".")[0] == short)]
        ended = job.ended_s
        if ended is not None and len(lines) > 1:
            before = [line for line in lines if line.began_s is not None and line.began_s <= ended + _CLOCKS_S]
            lines = sorted(before, key=lambda line: line.began_s)[-1:]
        return lines[0] if len(lines) == 1 else None


def _background(folder: _Folder) -> dict | None:
    """Return what the job beside the battery did; its bytes and operations are over all of its run."""
    load = folder.background
    if load is None:
        return None
    job = folder.battery.get("background")
    rates = [f"{kind}_{what}" for kind in ("read", "write") for what in ("bytes", "iops", "mib_s")]
    return {
        "job": job if job not in (None, "none") else fio_options.signature(load.options),
        "fio": load.version,
        "job_options": load.options,
        **{key: load.columns.get(key) for key in ("runtime_s", *rates, "error")},
    }
