"""Synthetic results of fio for tests: files, batteries and tarballs as they come from elsewhere.

Latencies are drawn by tests.helpers.fio_results, which says what `Job` and `Battery` have.
"""

import csv
import json
import tarfile
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from sbench.studies.volumes import import_fio
from tests.helpers.fio_results import BLOCK, OPTIONS, Battery, Job, ids, log_line, output, text, write_battery

# The batteries of the published study: host and what the report calls the volume, by cluster.
PUBLISHED = {
    "t1": ("ip-10-0-137-218.ec2.internal", "gp2x1"),
    "t2": ("ip-10-0-142-88.ec2.internal", "gp2x2"),
    "t3": ("ip-10-0-137-24.ec2.internal", "gp3x1"),
    "t4": ("ip-10-0-133-152.ec2.internal", "gp3x2"),
}


def job(job_id: str = "a1", writes: int = 1000, **settings: object) -> Job:
    """Return a job whose options ask for so many writes; `settings` are others of `Job`."""
    return Job(**{"job_id": job_id, "writes": writes, "options": {**OPTIONS, "size": str(writes * BLOCK)}, **settings})


def make_json(
    path: Path,
    job_id: str = "a1",
    seed: int = 1,
    change: Callable[[dict], object] = lambda told: None,
    **settings: object,
) -> Path:
    """Write one output of fio and return its path.

    Args:
        path: the file.
        job_id: the job's id.
        seed: of what is drawn.
        change: what to do to the output before it is written, to plant a fault.
        settings: mean_ms, p99_ms, writes, bins and others of `Job`.
    """
    told = output(job(job_id, **settings), seed)
    change(told)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(told), encoding="utf-8")
    return path


def make_battery(parent: Path, first: Job | None = None, **settings: object) -> Path:
    """Write a battery's folder into `parent` and return it.

    Args:
        parent: where the folder goes.
        first: the first of its jobs, of 1,000 writes by default.
        settings: battery, cluster, host, jobs, collapse_after, log, seed and others of `Battery`.
    """
    return write_battery(parent, Battery(**{"job": first or job(), "jobs": 5, **settings}))


def tarball(folder: Path, suffix: str = ".tar.gz", *, inside: bool = True) -> Path:
    """Pack a folder into a tarball beside it and return that.

    Args:
        folder: what is packed.
        suffix: of the tarball's name, which says how it is packed.
        inside: whether the names in it begin with the folder's.
    """
    path = folder.with_name(folder.name + suffix)
    mode = {".tar": "w", ".tar.xz": "w:xz"}.get(suffix, "w:gz")
    with tarfile.open(path, mode) as archive:
        archive.add(folder, folder.name if inside else ".")
    return path


def old(told: dict, version: str) -> dict:
    """Return an output as older versions print it, which have no N and print percentiles of what did not happen.

    3.1 has no section sync; 3.7 has one whose latencies stand before its number.
    """
    entry = told["jobs"][0]
    entry.pop("job_start", None)
    for name in ("read", "write", "trim"):
        for key in ("slat_ns", "clat_ns", "lat_ns"):
            entry[name][key].pop("N", None)
        entry[name]["clat_ns"].setdefault("percentile", dict.fromkeys(("50.000000", "99.000000", "99.900000"), 0))
    sync = entry.pop("sync")
    if version != "fio-3.1":
        sync["lat_ns"].pop("N")
        entry["sync"] = {"lat_ns": sync["lat_ns"], "total_ios": sync["total_ios"]}
    return told | {"fio version": version}


def published_tarballs(source: Path, folder: Path) -> list[Path]:
    """Pack the published table as the tarballs that it was made from: version 3.7, no bins, no N, no times in the JSON.

    Args:
        source: all_metrics_long.csv.
        folder: where the tarballs go.
    """
    with open(source, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    packed = []
    for cluster, (host, _) in PUBLISHED.items():
        battery = Battery(cluster=cluster, host=host)
        inside = folder / battery.folder
        inside.mkdir(parents=True)
        own = [row for row in rows if row["battery_id"] == f"b2_{cluster}"]
        lines = []
        for number, row in enumerate(own):
            done = Job(row["job_Id"], bins=False, began_s=Job().began_s + 150 * number)
            (inside / f"fio_results_write_{done.job_id}.json").write_text(text(_published(done, row)), encoding="utf-8")
            lines.append(log_line(done, host, 0.5 + number / 100))
        (inside / "runtime.log").write_text("".join(lines), encoding="utf-8")
        packed.append(tarball(inside))
    return packed


def _published(done: Job, row: dict[str, str]) -> dict:
    told = old(output(done), "fio-3.7")
    del told["timestamp"], told["timestamp_ms"], told["disk_util"]
    ns = {name: float(row[f"sync_lat_{name}_ms"]) * 1e6 for name in ("max", "mean", "stddev", "p99", "p99.9")}
    told["jobs"][0]["sync"]["lat_ns"] = {
        "min": 0,
        "max": round(ns["max"]),
        "mean": round(ns["mean"], 6),
        "stddev": round(ns["stddev"], 6),
        "percentile": {"99.000000": round(ns["p99"]), "99.900000": round(ns["p99.9"])},
    }
    return told


def imported(folder: Path, imports: Iterable[object], **arguments: object) -> dict:
    """Run the import into `folder`/imported.json and return what it wrote."""
    out = folder / "imported.json"
    options = [part for key, value in arguments.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    told = json.dumps([one if isinstance(one, dict) else str(one) for one in imports])
    assert import_fio.main(["--imports", told, "--run", "elsewhere", "--out", str(out), *options]) == 0
    return json.loads(out.read_text(encoding="utf-8"))


BATTERY = """format: 1
battery: b7
cluster: c-1
host: node.internal
started_utc: 2026-11-20T10:00:00Z
ended_utc: 2026-11-20T10:05:00Z
fio: fio-3.33
jobs: 2
pause_s: 0.5
job: etcd-short
background: background
kernel: 6.1
cores: 2
device: /dev/nvme1n1p1
file_system_bytes: 1000
status: {status}
"""


def changed(**values: object) -> Callable[[dict], None]:
    """Return a change of the first job's own values, for `make_json`."""
    return lambda told: told["jobs"][0].update(values)


def dig(told: dict, *keys: object) -> dict:
    for key in keys:
        told = told[key]
    return told


def timeless(told: dict) -> None:
    del told["timestamp"], told["timestamp_ms"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


def edited(**values: object) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | values))


def ours(folder: Path, status: str = "complete", jobs: int = 2) -> Path:
    folder = make_battery(folder, jobs=jobs, log=False)
    (folder / "battery.txt").write_text(BATTERY.format(status=status))
    for number, name in enumerate(list(islice(ids(), jobs))):
        (folder / f"facts_{name}.txt").write_text(
            f"started_utc: 2026-11-20T10:0{number}:00Z\nstarted_s: {1795168800 + 60 * number}.25\n"
            f"ended_s: {1795168810 + 60 * number}.25\nstatus: 0\n"
            "load_before: 0.50 0.40 0.30 1/123 456\nload_after: 1.50 0.40 0.30 1/123 456\n"
            "stat_before: cpu  100 0 100 800 0 0 0 0 0 0\nstat_after: cpu  200 0 200 1600 0 0 0 50 0 0\n"
            f"free_bytes_before: {2**31}\nfree_bytes_after: {2**30}\n"
            "diskstats_before: 259 0 nvme1n1p1 10 0 80 5 100 7 800 50 0 1000 55\n"
            "diskstats_after: 259 0 nvme1n1p1 11 0 88 6 3100 9 900 60 0 6000 66\n"
        )
    make_json(folder / "background.json", "x", 99, changed(jobname="background"))
    return folder
