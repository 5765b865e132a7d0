"""Batteries of fio: what a folder of its results says, whoever ran it.

A battery is a job of fio some times in a row. Its folder holds fio's JSON output, a file a job, and perhaps what was
written down beside it: battery.txt and facts_<id>.txt of fio_battery.sh, or the published log lines. Whatever
is missing is None, what cannot be read is named in `left_out`, and the rest is read.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path, PurePosixPath

from scripts.lib.program import Problem
from scripts.studies.volumes import fio_facts, fio_options, fio_output, fio_samples
from scripts.studies.volumes.fio_options import job_name, names, signature
from scripts.studies.volumes.fio_output import Result
from scripts.studies.volumes.fio_samples import COLUMNS, Job

__all__ = ["COLUMNS", "FILE_BYTES", "Tree", "job_name", "names", "operation_of", "read_battery", "signature", "walk"]

# A file of results has 0.5 MB with all bins of json+, times the processes without group_reporting; no larger is read.
FILE_BYTES = 16 * 2**20
_FOLDER = re.compile(r"(?P<battery>[^_]+?)(_(?P<cluster>.+?))?-fio-(?P<host>.+)")
_UNKNOWN_HOST = "unknown"
# A log line was written before its job ended; clocks of a log and of fio are the same or nearly so.
_CLOCKS_S = 60
# A file within a folder of results that is no result of a job of the battery.
_BACKGROUND = "background.json"


def read_battery(folder: Path) -> dict:
    """Return what a battery's folder says: the fio part of a record.

    Returns:
        {"battery", "cluster", "host", "fio", "started_utc", "ended_utc", "pause_s", "job_options", "facts", "samples"
        (rows of `COLUMNS`, in time order), "histograms" ({id: {operation: [(ns, count), …]}}), "left_out" ([{"file",
        "reason"}]), "background", "faults"}. Jobs whose options differ are a fault.

    Raises:
        Problem: there is no such folder.
    """
    if not folder.is_dir():
        raise Problem(f"{folder} is not a folder")
    tree = Tree(folder.resolve().name)
    for path in sorted(folder.iterdir()):
        if path.is_file():
            tree.add_file(path.name, path)
    batteries = list(tree.batteries())
    one = batteries[0] if len(batteries) == 1 else tree.together()
    if len(batteries) > 1:
        jobs_of = {battery["signature"]: [row["job_Id"] for row in battery["samples"]] for battery in batteries}
        parts = "; ".join(f"{name}: {_listed(ids)}" for name, ids in sorted(jobs_of.items()))
        one["faults"].append(f"the jobs' options differ ({parts})")
    return {key: one[key] for key in one if key not in ("marks", "folder", "signature")} | {"left_out": tree.left_out}


def operation_of(row: dict) -> str:
    """Return the operation whose latency a sample is about: sync where there was one, else what there was more of."""
    if row["sync_N"] or row["sync_lat_mean_ms"] is not None:
        return "sync"
    return "read" if (row["read_ios"] or 0) > (row["write_ios"] or 0) else "write"


def walk(folder: Path) -> list[Path]:
    """Return the files below a folder in order; hidden ones, links to folders and what is no file are passed over."""
    kept = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (Path(root, name) for name in sorted(files) if not name.startswith("."))
        kept += [path for path in paths if path.is_file()]
    return kept


@dataclass
class _Folder:
    jobs: list[Job] = field(default_factory=list)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    battery: dict[str, object] = field(default_factory=dict)
    log: dict[str, list[fio_facts.LogLine]] = field(default_factory=dict)
    background: Result | None = None


class Tree:
    """A tree of results, read file after file; each folder of it that holds fio's output is a battery, or several.

    Attributes:
        left_out: [{"file", "reason"}] of what could not be read so far.
        files: how many files have been looked at.
    """

    def __init__(self, name: str, place: str = "") -> None:
        """Begin a tree whose outermost folder has this name; `place` stands before the names of files left out."""
        self._name, self._place = name, place
        self._folders: dict[str, _Folder] = {}
        self._marks: dict[tuple[str, str], str] = {}
        self.left_out: list[dict[str, str]] = []
        self.files = 0

    def add_file(self, name: str, path: Path) -> None:
        """Read a file that lies on disk, if it is `wanted`; `name` is its path within the tree."""
        if not wanted(name):
            return
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
        self.files += 1
        parent = path.parent.as_posix()
        folder = self._folders.setdefault("" if parent == "." else parent, _Folder())
        if path.suffix in (".log", ".txt"):
            self._add_text(folder, path, _text(data))
            return
        try:
            results = fio_output.results(_text(data))
        except Problem as problem:
            self.leave_out(name, str(problem))
            return
        mark = hashlib.blake2b(data, digest_size=12).hexdigest()
        if path.name == _BACKGROUND:
            folder.background = results[0]
        elif (parent, mark) in self._marks:
            self.leave_out(name, f"has the content of {self._marks[parent, mark]}, which is taken once")
        else:
            self._marks[parent, mark] = name
            marks = (f"{mark}-{number}" for number, _ in enumerate(results))
            folder.jobs += map(Job, results, repeat(name), marks, repeat(len(results) == 1))

    def leave_out(self, name: str, reason: str) -> None:
        """Name a file that is not read."""
        self.left_out.append({"file": f"{self._place}{name}", "reason": reason})

    def batteries(self) -> Iterator[dict]:
        """Yield each battery, as `read_battery` does; jobs of a folder whose options differ are batteries apart.

        Beside what `read_battery` returns each has "signature", "folder" within the tree, and "marks": id -> a mark of
        the content.
        """
        for path, folder in self._folders.items():
            if folder.battery and not folder.jobs:
                status = folder.battery.get("status", "no status")
                self.leave_out(str(PurePosixPath(path, "battery.txt")), f"tells of a battery without results: {status}")
            series: dict[tuple, list[Job]] = {}
            for job in folder.jobs:
                series.setdefault(tuple(fio_options.canonical(job.result.options).items()), []).append(job)
            for jobs in series.values():
                yield self._battery(path, folder, jobs)

    def together(self) -> dict:
        """Return all of the tree as one battery, whatever its jobs' options."""
        jobs = [job for folder in self._folders.values() for job in folder.jobs]
        return self._battery("", self._folders.get("", _Folder()), jobs)

    def _add_text(self, folder: _Folder, path: PurePosixPath, text: str) -> None:
        if path.name == "battery.txt":
            folder.battery = fio_facts.battery(text)
        elif match := re.fullmatch(r"facts_(.+)\.txt", path.name):
            folder.facts[match[1]] = fio_facts.key_values(text)
        elif "<=>" in text:
            for line in fio_facts.log_lines(text):
                folder.log.setdefault(line.job_id, []).append(line)

    def _battery(self, path: str, folder: _Folder, jobs: list[Job]) -> dict:
        title = self._title(path, folder)
        renamed = [replace(job, id=job_id) for job, job_id in zip(jobs, fio_samples.told_ids(jobs), strict=True)]
        for job in renamed:
            job.facts, job.line = folder.facts.get(job.id, {}), self._line(path, job, title["host"])
        timed = fio_samples.in_time_order(renamed)
        faults = fio_samples.name_jobs(timed)
        origin = timed[0].began_s if timed else None
        versions = sorted({job.result.version for job in timed})
        if len(versions) > 1:
            faults.append(f"fio was not the same for all jobs: {', '.join(versions)}")
        faults += [f"{job.id}: {fault}" for job in timed for fault in fio_samples.faults(job)]
        if (status := str(folder.battery.get("status", "complete"))) != "complete":
            faults.insert(0, f"the battery ended early: {status}")
        ended = max((job.result.ended_s for job in timed if job.result.ended_s is not None), default=None)
        options = timed[0].result.options if timed else {}
        return {
            **title,
            "fio": ", ".join(versions) or folder.battery.get("fio"),
            "started_utc": folder.battery.get("started_utc") or fio_facts.utc(origin),
            "ended_utc": folder.battery.get("ended_utc") or fio_facts.utc(ended),
            "pause_s": folder.battery.get("pause_s"),
            "job_options": {key: value for key, value in options.items() if key != "name"},
            "facts": folder.battery,
            "samples": [
                fio_samples.row(job, number, origin, title, folder.battery) for number, job in enumerate(timed, 1)
            ],
            "histograms": {job.id: bins for job in timed if (bins := fio_samples.histograms(job.result))},
            "background": _background(folder),
            "faults": faults,
            "signature": signature(options),
            "folder": path,
            "marks": {job.id: job.mark for job in timed},
        }

    def _title(self, path: str, folder: _Folder) -> dict[str, str]:
        """Return {"battery", "cluster", "host"}: of battery.txt, of the folder's name, or as far as they are known."""
        own = PurePosixPath(path).name or self._name
        parts = _FOLDER.fullmatch(own)
        if parts:
            title = parts.groupdict(default="")
        else:
            battery, _, cluster = (path.replace("/", "-") or self._name).partition("_")
            title = {"battery": battery, "cluster": cluster, "host": _UNKNOWN_HOST}
            hosts = {line.host for lines in folder.log.values() for line in lines if line.host}
            if len(hosts) == 1:
                title["host"] = hosts.pop()
        return title | {key: str(folder.battery[key]) for key in title if folder.battery.get(key)}

    def _line(self, path: str, job: Job, host: str) -> fio_facts.LogLine | None:
        """Return the log line of a job: of its own folder, else of any folder where the host is the same."""
        holders = [folder for folder in self._folders.values() if folder.jobs]
        for at, folder in sorted(self._folders.items(), key=lambda pair: pair[0] != path):
            lines = folder.log.get(job.id, [])
            if at != path and len(holders) > 1:
                lines = [line for line in lines if _same_host(line.host, host)]
            ended = job.result.ended_s
            if ended is not None and len(lines) > 1:
                before = [line for line in lines if line.began_s is not None and line.began_s <= ended + _CLOCKS_S]
                lines = sorted(before, key=lambda line: line.began_s)[-1:]
            if len(lines) == 1:
                return lines[0]
        return None


def wanted(name: str) -> bool:
    """Return whether a file within a tree may have something to say: fio's output, or what was written beside it."""
    path = PurePosixPath(name)
    return path.suffix in (".json", ".log", ".txt") and not path.name.startswith(".")


def _background(folder: _Folder) -> dict | None:
    """Return what the job beside the battery did; its bytes and operations are over all of its run."""
    result = folder.background
    if result is None:
        return None
    facts = {
        f"{kind}_{what}": value
        for kind, traffic in result.traffic.items()
        for what, value in (
            ("bytes", traffic.nbytes),
            ("iops", traffic.ios / traffic.seconds if traffic.seconds else None),
            ("mib_s", traffic.nbytes / 2**20 / traffic.seconds if traffic.seconds else None),
        )
    }
    job = folder.battery.get("background")
    return {
        "job": job if job not in (None, "none") else signature(result.options),
        "fio": result.version,
        "job_options": result.options,
        "runtime_s": result.seconds,
        **facts,
        "error": result.error,
    }


def _text(data: bytes) -> str:
    return data.decode(json.detect_encoding(data), errors="replace")


def _same_host(first: str, second: str) -> bool:
    return bool(first) and (first == second or first.partition(".")[0] == second.partition(".")[0])


def _listed(ids: list[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} … {ids[-1]}"
