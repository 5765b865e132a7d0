"""Synthetic results of fio, which nothing measured: batteries whose latencies are drawn from a lognormal."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from scipy.special import ndtr, ndtri

BLOCK = 2300
OPTIONS = {"rw": "write", "ioengine": "sync", "fdatasync": "1", "size": "200m", "bs": str(BLOCK)}
_PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
_BEGAN_S = 1_627_900_000.0
_WRITE_MS = 0.005
_HISTOGRAM_BITS, _HISTOGRAM_GROUPS = 6, 29


@dataclass(frozen=True)
class Job:
    """What a synthetic job is to have done; `mean_ms` and `p99_ms` are those of fdatasync."""

    job_id: str = "a1"
    mean_ms: float = 1.06
    p99_ms: float = 2.3
    writes: int = 200 * 2**20 // BLOCK  # each with an fdatasync
    bins: bool = True  # as with json+
    options: dict[str, str] = field(default_factory=lambda: dict(OPTIONS))
    began_s: float = _BEGAN_S  # since 1970
    version: str = "fio-3.33"
    device_writes: float = 2.0  # writes that the device saw, in units of the job's
    error: int = 0  # fio's number of the error that ended it

    @property
    def seconds(self) -> float:
        """Return how long it ran."""
        return self.writes * (self.mean_ms + _WRITE_MS) / 1000


@dataclass(frozen=True)
class Battery:
    """What a synthetic battery is to have done: a job again and again, slower after some of them where it collapses."""

    battery: str = "b2"
    cluster: str = "t1"
    host: str = "ip-10-0-137-218.ec2.internal"
    jobs: int = 50
    job: Job = field(default_factory=Job)  # the first of them
    collapse_after: int | None = None  # number of the last job before the latencies grow
    collapse: float = 5.5  # how many times as long operations take from then on
    noise: float = 0.03  # standard deviation of ln(latency) from job to job
    pause_s: float = 10
    log: bool = True  # whether the published log lines are there
    seed: int = 1

    @property
    def folder(self) -> str:
        """Return the name of its folder."""
        return f"{self.battery}_{self.cluster}-fio-{self.host}"


def ids() -> Iterator[str]:
    """Yield a1 … a5, b1 … z5, aa1 and so on."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            for number in range(1, 6):
                yield f"{''.join(letters)}{number}"


def planned(battery: Battery) -> list[Job]:
    """Return the jobs of a battery, in time order."""
    random = np.random.default_rng(battery.seed)
    jobs, began_s = [], battery.job.began_s
    for number, job_id in enumerate(islice(ids(), battery.jobs), 1):
        scale = math.exp(random.normal(0, battery.noise))
        if battery.collapse_after is not None and number > battery.collapse_after:
            scale *= battery.collapse
        latencies = {"mean_ms": battery.job.mean_ms * scale, "p99_ms": battery.job.p99_ms * scale}
        jobs.append(replace(battery.job, job_id=job_id, began_s=began_s, **latencies))
        began_s += jobs[-1].seconds + battery.pause_s
    return jobs


def write_battery(parent: Path, battery: Battery) -> Path:
    """Write the folder of a battery into `parent` and return it."""
    folder = parent / battery.folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, job in enumerate(planned(battery)):
        path = folder / f"fio_results_{job.options['rw']}_{job.job_id}.json"
        path.write_text(text(output(job, battery.seed * 1000 + number)), encoding="utf-8")
        lines.append(log_line(job, battery.host, 0.5 + number / 100))
    if battery.log:
        (folder / "runtime.log").write_text("".join(lines), encoding="utf-8")
    return folder


def log_line(job: Job, host: str, load: float) -> str:
    """Return the line that was written before a job, in the published form."""
    at = time.gmtime(job.began_s)
    date, clock = time.strftime("%a %b %e %H:%M:%S UTC %Y", at), time.strftime("%H:%M:%S", at)
    up = f" {clock} up  3:02,  0 users,  load average: {load:.2f}, {load / 2:.2f}, {load / 4:.2f}"
    return f"[{job.job_id}] <=> {host} <=> {date} <=> {up}\n"


def text(value: dict) -> str:
    """Return fio's output as text: each value in a line of its own, as fio writes it."""
    return json.dumps(value, separators=(", ", " : ")).replace(", ", ",\n            ") + "\n"


def output(job: Job, seed: int = 1) -> dict:
    """Return what fio 3.33 would have printed of a job with --output-format=json+, or json without its bins."""
    random = np.random.default_rng(seed)
    milliseconds, ended = round(job.seconds * 1000), job.began_s + job.seconds
    latencies = {name: dict.fromkeys(("min", "max", "mean", "stddev", "N"), 0) for name in ("slat_ns", "lat_ns")}
    written = lognormal(random, _WRITE_MS, 4 * _WRITE_MS, job.writes, job.bins)
    nothing = {**_traffic(0, 0.0, 0), **latencies, "clat_ns": latencies["lat_ns"]}
    sync = lognormal(random, job.mean_ms, job.p99_ms, job.writes, job.bins)
    return {
        "fio version": job.version,
        "timestamp": int(ended),
        "timestamp_ms": round(ended * 1000),
        "time": time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(ended)),
        "jobs": [
            {
                "jobname": f"fio_io_{job.job_id}",
                **{"groupid": 0, "error": job.error, "eta": 0, "elapsed": int(job.seconds) + 1},
                "job options": {"name": f"fio_io_{job.job_id}", **job.options},
                "read": nothing,
                "write": {
                    **_traffic(job.writes, job.writes / job.seconds, milliseconds),
                    **latencies,
                    "clat_ns": written,
                },
                "trim": nothing,
                "sync": {"total_ios": 0, "lat_ns": sync},
                "job_runtime": milliseconds,
                **{"usr_cpu": 0.9, "sys_cpu": 5.1, "ctx": 3 * job.writes, "majf": 0, "minf": 12},
            }
        ],
        "disk_util": [
            {
                **{"name": "nvme1n1", "read_ios": 0, "write_ios": round(job.device_writes * job.writes)},
                **{"read_merges": 0, "write_merges": job.writes // 10, "read_ticks": 0, "write_ticks": milliseconds},
                **{"in_queue": milliseconds, "util": 97.5},
            }
        ],
    }


def lognormal(random: np.random.Generator, mean_ms: float, p99_ms: float, n: int, bins: bool) -> dict:
    """Return latencies as fio prints them, drawn from a lognormal with this mean and 99th percentile (below 14 means).

    Mean, standard deviation and percentiles are those of what was drawn.
    """
    normal = float(ndtri(0.99))
    sigma = normal - math.sqrt(normal**2 - 2 * math.log(p99_ms / mean_ms))
    mu = math.log(mean_ms * 1e6) - sigma**2 / 2
    values, upper = grid()
    shares = np.diff(ndtr((np.log(upper) - mu) / sigma), prepend=0.0)
    shares[-1] += 1 - shares.sum()
    counts = random.multinomial(n, np.clip(shares, 0, 1))
    held = counts > 0
    values, counts = values[held], counts[held]
    mean = float(np.average(values, weights=counts))
    total = np.cumsum(counts)
    at = np.minimum(np.searchsorted(total, np.array(_PERCENTILES) / 100 * n), len(values) - 1)
    return {
        "min": int(values[0]),
        "max": int(values[-1]),
        "mean": round(mean, 6),
        "stddev": round(math.sqrt(float(np.sum(counts * (values - mean) ** 2)) / max(1, n - 1)), 6),
        "N": n,
        "percentile": {f"{p:.6f}": int(values[place]) for p, place in zip(_PERCENTILES, at, strict=True)},
        **({"bins": dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))} if bins else {}),
    }


@cache
def grid() -> tuple[np.ndarray, np.ndarray]:
    """Return the value that fio prints for each of its bins, and the upper edge of each, in ns.

    64 bins between a power of two and the next; a bin is told by its middle.
    """
    size = 2**_HISTOGRAM_BITS
    number = np.arange(size * _HISTOGRAM_GROUPS)
    shift = np.maximum(number // size - 1, 0)
    first = np.where(number < 2 * size, number, (size + number % size) << shift)
    middle = np.where(number < 2 * size, number, first + (1 << shift) // 2)
    return middle, (first + (1 << shift)).astype(float)


def write_many(folder: Path, files: int) -> list[Path]:
    """Write batteries of 50 files, and one of the rest, into a folder; return theirs. Every second one collapses."""
    folders = []
    for number, first in enumerate(range(0, files, 50), 1):
        place = {"cluster": f"t{number}", "host": f"ip-10-0-0-{number}.ec2.internal", "seed": number}
        collapse_after = 32 if number % 2 else None
        battery = Battery(jobs=min(50, files - first), collapse_after=collapse_after, **place)
        folders.append(write_battery(folder, battery))
    return folders


def _traffic(ios: int, rate: float, milliseconds: int) -> dict:
    nbytes = ios * BLOCK
    return {
        **{"io_bytes": nbytes, "io_kbytes": nbytes // 1024},
        **{"bw_bytes": int(rate * BLOCK), "bw": int(rate * BLOCK / 1024), "iops": round(rate, 6)},
        **{"runtime": milliseconds, "total_ios": ios, "short_ios": 0, "drop_ios": 0},
    }
