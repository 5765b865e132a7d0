"""Parse the JSON output of fio 3.x, with or without the histogram bins of json+."""

import json
import math
import re
import statistics
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import NamedTuple

from sbench.probe.program import Problem
from sbench.studies.volumes import fio_facts, fio_options, fio_text

OPERATIONS = ("sync", "read", "write")
PERCENTILES = (50, 99, 99.9, 99.99)
# The largest number allowed in a record (design/record.yaml).
_MOST = 10**18
# fio reports percentiles and bins as the midpoints of buckets, 64 per power of two. These may exceed the exact maximum
# by this fraction.
_BUCKET = 1 / 64
_LAST_BIN = 17_112_760_320
# fio may report job starts by a clock other than wall time; such starts are smaller than this.
_EPOCH_MS = 1e12
_LOGGED = re.compile(r"^\d+, (\d+), ([01]),", re.MULTILINE)


class Histogram(NamedTuple):
    """A histogram of latencies, stored as rows in a flat array.

    Rows are bins (ns, count), sorted by ns, or ranges (lowest ns, highest ns, count).
    """

    width: int  # numbers per row: 2 for bins, 3 for ranges
    numbers: array

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, ...]], width: int) -> "Histogram":
        """Build a histogram from rows of `width` numbers."""
        return cls(width, array("q", chain.from_iterable(rows)))

    def list_rows(self) -> list[tuple[int, ...]]:
        """Return the rows as tuples."""
        return list(zip(*[iter(self.numbers)] * self.width, strict=True))


@dataclass(slots=True)
class Job:
    """The results of a fio job, over all its processes. Times are seconds since 1970 (UTC), None if unknown."""

    name: str
    version: str  # fio's version
    options: dict[str, str]  # including fio's global options
    columns: dict[str, float | None]  # values of a sample: latencies in ms, counts, rates, run time
    histograms: dict[str, "Histogram"]  # by operation
    began_s: float | None
    exact_start: bool  # whether fio reports the start time
    ended_s: float | None
    errors: int  # failed operations that did not end the job
    disks: dict[str, dict[str, float | None]]  # I/O counters by device; {} if they include other jobs of the same host
    # The next three are from fio's output; the others are set later from file names, logs and facts.
    host: str = ""  # as reported by fio's client
    signal: str = ""  # the signal that ended fio early
    unlike: bool = False  # whether fio merged several jobs with different options
    file: str = ""
    mark: str = ""  # identifies the content: hash of the text and position of the job
    alone: bool = True  # whether the file contains no other job
    id: str = ""  # empty until set
    facts: dict[str, str] = field(default_factory=dict)  # facts_<id>.txt of fio_battery.sh
    line: fio_facts.LogLine | None = None  # the log line written before the job
    kind: tuple = ()  # resolved options; equal for equal jobs
    place: int = 0  # place of its large fields in a spool
    log: int | None = None  # place of its log of operations in the spool
    open_loop: bool = False  # whether latencies are measured from the time at which operations were due
    started_s: float | None = None  # start time by a clock that is available for all jobs of the battery


def parse_jobs(output: dict) -> list[Job]:
    """Convert a JSON document of fio (see `fio_text.parse_documents`) to jobs, in the document's order.

    Processes of the same job, which fio lists separately without group_reporting, are merged. Successive jobs and the
    hosts of fio's client mode stay separate.

    Raises:
        Problem: the document is from an old version or invalid. The message begins with a verb, so that callers can
            prefix the file name.
    """
    version = str(output["fio version"])
    number = re.search(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < (2, 99):
        raise Problem(f"is from {version}; use fio 3 or later")
    entries = _list_objects(output.get("jobs"))
    # In client mode, fio adds an entry that combines all clients.
    entries += [entry for entry in _list_objects(output.get("client_stats")) if entry.get("jobname") != fio_text.ALL]
    if not entries:
        raise Problem("contains no jobs")
    shared = _get_options(output.get("global options"))
    disks: dict[str, dict] = {}
    for disk in _list_objects(output.get("disk_util")):
        counts = {key: _get_number(disk, key, "disk") for key in ("read_ios", "write_ios", "util")}
        disks.setdefault(_get_host(disk), {})[str(disk.get("name"))] = counts
    ended_ms = _get_number(output, "timestamp_ms") or 1000 * (_get_number(output, "timestamp") or 0)
    groups: dict[tuple, list[dict]] = {}
    for entry in entries:
        options = shared | _get_options(entry.get("job options"))
        place = _get_host(entry), str(entry.get("groupid"))
        groups.setdefault((*place, *fio_options.resolve_options(options).items()), []).append(entry)
    made: list[Job] = []
    ended_s, last = ended_ms / 1000 or None, None
    for (host, group, *_), members in reversed(groups.items()):
        if last not in (None, (host, group)):
            # The groups of a host run one after another, and fio writes its output after the last. Hosts run in
            # parallel.
            ended_s = made[-1].began_s if last[0] == host else ended_ms / 1000 or None
        alone = sum(other[0] == host for other in groups) == 1
        made.append(_build_job(members, version, shared, disks.get(host, {}) if alone else {}, ended_s))
        made[-1].host, made[-1].signal = host, str(output.get(fio_text.SIGNAL, ""))
        last = host, group
    return made[::-1]


def _get_host(part: dict) -> str:
    """Return the host name that fio's client mode adds to parts of its output, or an empty string if missing."""
    return str(part.get("hostname") or "")


def _build_job(entries: list[dict], version: str, shared: dict, disks: dict, ended_s: float | None) -> Job:
    options = shared | _get_options(entries[0].get("job options"))
    columns, histograms, seconds = {}, {}, 0.0
    if any("mixed" in entry for entry in entries):
        raise Problem("counts reads and writes together; remove unified_rw_reporting from the job")
    for operation in OPERATIONS:
        sections = [part if isinstance(part := entry.get(operation), dict) else {} for entry in entries]
        latency = _merge_latencies([part for section in sections if (part := _parse_latency(section, operation))])
        if latency:
            columns |= build_latency_columns(operation, latency)
            if latency["bins"]:
                histograms[operation] = Histogram.from_rows(latency["bins"].items(), 2)
            elif latency["ranges"]:
                histograms[operation] = Histogram.from_rows(latency["ranges"], 3)
        elif operation != "sync" or not fio_options.has_timed_syncs(options):
            columns[f"{operation}_N"] = 0
        if operation != "sync":
            traffic, own = _compute_traffic(sections, operation)
            columns, seconds = columns | traffic, max(seconds, own)
    starts = [start for entry in entries if (start := _get_number(entry, "job_start") or 0) > _EPOCH_MS]
    errors = [_get_count(entry, "error") or 0 for entry in entries]
    columns |= {"runtime_s": seconds, "error": next(filter(None, errors), 0)}
    began_s = min(starts) / 1000 if starts else None if ended_s is None else ended_s - seconds
    failed, name = sum(_get_count(entry, "total_err") or 0 for entry in entries), str(entries[0].get("jobname", ""))
    # fio reports merged jobs with the options of the last job.
    unlike = fio_text.MIXED in entries[0] or fio_options.is_contradicted(
        options, columns["read_ios"], columns["write_ios"]
    )
    options = {} if unlike else options
    job = Job(name, version, options, columns, histograms, began_s, bool(starts), ended_s, failed, disks)
    job.unlike = unlike
    return job


def build_latency_columns(operation: str, latency: dict) -> dict[str, float | None]:
    """Build an operation's columns of a sample, in ms, from a result of `_parse_latency`, in ns."""
    named = {key: latency[key] for key in ("max", "mean", "stddev")}
    named |= {f"p{p:g}": _find_percentile(latency, p) for p in PERCENTILES}
    columns = {f"{operation}_lat_{key}_ms": None if ns is None else ns / 1e6 for key, ns in named.items()}
    return columns | {f"{operation}_N": latency["n"]}


def _compute_traffic(sections: list[dict], kind: str) -> tuple[dict[str, float | None], float]:
    """Return counts and rates of reads or writes over all processes, and the longest run time in seconds."""
    ios = [_get_count(section, "total_ios", kind) or 0 for section in sections]
    runtimes = [_get_number(section, "runtime", kind) for section in sections]
    if any(count and runtime == 0 for count, runtime in zip(ios, runtimes, strict=True)):
        raise Problem(f"has operations of {kind} with a run time of 0")
    seconds = max(runtime or 0 for runtime in runtimes) / 1000
    nbytes = sum(_get_count(section, "io_bytes", kind) or 0 for section in sections)
    columns = {f"{kind}_ios": sum(ios), f"{kind}_bytes": nbytes}
    if seconds:
        columns |= {f"{kind}_iops": sum(ios) / seconds, f"{kind}_mib_s": nbytes / 2**20 / seconds}
    return columns, seconds


def _parse_latency(section: dict, operation: str) -> dict | None:
    """Parse the latencies of an operation, or return None if there were no operations.

    Return "n", "max", "mean", "stddev", "percentiles", "bins" and "ranges"; all but "n" are in ns.

    Completion latency is preferred. With lat_percentiles=1 alone, fio reports percentiles of total latency only, which
    is then used.
    """
    chosen = [part for key in ("clat_ns", "lat_ns") if isinstance(part := section.get(key), dict)]
    if not chosen:
        return None
    part = next((part for part in chosen if part.get("percentile") or part.get("bins")), chosen[0])
    latency = {key: _get_number(part, key, operation) for key in ("max", "mean", "stddev")}
    bins, n = _parse_bins(part.get("bins")), _get_count(part, "N", operation)
    if n is None:
        n = sum(bins.values()) or _get_count(section, "total_ios", operation) or None
    named = part["percentile"] if isinstance(part.get("percentile"), dict) else {}
    named = {key: _get_number(named, key, operation) for key in named if re.fullmatch(r"[0-9]{1,3}(\.[0-9]*)?", key)}
    percentiles = {round(float(key), 6): ns for key, ns in named.items() if ns is not None}
    if n == 0 or not (latency["max"] or latency["mean"]):
        return None
    ordered = [ns for _, ns in sorted(percentiles.items())]
    if ordered != sorted(ordered):
        raise Problem(f"has percentiles of {operation} that decrease")
    most = math.inf if latency["max"] is None else latency["max"] * (1 + _BUCKET) + 1
    for what, ns in (latency | {"percentile": max(ordered, default=0), "bin": max(bins, default=0)}).items():
        if (ns or 0) > most:
            raise Problem(f"has a {what} of {operation} above the maximum")
    least, rounded = _get_number(part, "min", operation) or 0, _get_number(part, fio_text.ROUNDED, operation) or 0
    # Rounding may put the mean slightly below the minimum.
    if (latency["mean"] if latency["mean"] is not None else math.inf) + 1 + rounded < least:
        raise Problem(f"has a mean of {operation} below the minimum")
    ranges = (
        []
        if bins or n is None or latency["max"] is None
        else compute_ranges(percentiles, n, max(0, least - rounded), latency["max"] + rounded, rounded)
    )
    return latency | {"n": n, "percentiles": percentiles, "bins": bins, "ranges": ranges}


def compute_ranges(
    percentiles: dict[float, float], n: int, least: float, most: float, rounded: float
) -> list[tuple[int, int, int]]:
    """Derive from fio's percentiles in which range each latency is. Return rows (lowest ns, highest ns, count).

    A percentile bounds the latency of a single operation to a bin. The operations between two percentiles form a range.

    Args:
        percentiles: latency in ns by percentile.
        n: number of operations.
        least: minimum latency in ns.
        most: maximum latency in ns.
        rounded: number of ns by which fio may have rounded percentiles up.
    """
    ranges, counted, floor = [], 0, least
    for p, ns in sorted(percentiles.items()):
        place = math.ceil(round(n * p / 100, 9))
        # The last bin also counts all longer latencies.
        low, high = (ns - rounded) * (1 - _BUCKET / 2), most if ns >= _LAST_BIN else ns * (1 + _BUCKET / 2)
        # A percentile may exceed the maximum by a fraction of its bin.
        low, high = min(max(low, least), most), min(high, most)
        if place > counted + 1:
            ranges.append((floor, high, place - 1 - counted))
        if place > counted:
            ranges.append((low, high, 1))
        counted, floor = max(place, counted), max(low, floor)
    if n > counted:
        ranges.append((floor, most, n - counted))
    return [(math.floor(low), math.ceil(high), count) for low, high, count in ranges]


def _parse_bins(part: object) -> dict[int, int]:
    """Parse bins to {ns: count}, sorted by ns and without empty bins."""
    if not isinstance(part, dict):
        return {}
    try:
        bins = {int(ns): count for ns, count in part.items()}
    except ValueError as error:
        raise Problem("is damaged: its bins must be numbers") from error
    if not set(map(type, bins.values())) <= {int}:
        raise Problem("is damaged: its bins must be numbers")
    if min(bins, default=0) < 0 or min(bins.values(), default=0) < 0:
        raise Problem("has a bin below zero")
    if max(bins, default=0) > _MOST or sum(bins.values()) > _MOST:
        raise Problem("has bins that exceed any count of fio")
    return {ns: bins[ns] for ns in sorted(bins) if bins[ns]}


def _merge_latencies(parts: list[dict]) -> dict | None:
    """Merge the latencies of several processes: histograms are added, percentiles are never combined (METHOD 18)."""
    if len(parts) < 2:
        return parts[0] if parts else None
    merged = {"n": None, "mean": None, "stddev": None, "percentiles": {}, "bins": {}, "ranges": []}
    merged["max"] = max((part["max"] for part in parts if part["max"] is not None), default=None)
    if all(part["n"] is not None for part in parts):
        n = merged["n"] = sum(part["n"] for part in parts)
        if all(part[key] is not None for part in parts for key in ("mean", "stddev")):
            mean = merged["mean"] = sum(part["n"] * part["mean"] for part in parts) / n
            squares = (part["stddev"] ** 2 * (part["n"] - 1) + part["n"] * (part["mean"] - mean) ** 2 for part in parts)
            merged["stddev"] = math.sqrt(sum(squares) / (n - 1)) if n > 1 else None
    if all(part["bins"] for part in parts):
        merged["bins"] = dict(sorted(sum((Counter(part["bins"]) for part in parts), Counter()).items()))
    elif all(part["ranges"] for part in parts):
        merged["ranges"] = [own for part in parts for own in part["ranges"]]
    return merged


def _find_percentile(latency: dict, p: float) -> float | None:
    """Return a percentile in ns: as reported by fio if possible, otherwise from the bins, or None without bins."""
    if p in latency["percentiles"] or not latency["bins"]:
        return latency["percentiles"].get(p)
    counted = list(accumulate(latency["bins"].values()))
    return list(latency["bins"])[bisect_left(counted, p / 100 * counted[-1])]


def _get_options(part: object) -> dict[str, str]:
    return {key: str(value) for key, value in part.items()} if isinstance(part, dict) else {}


def _list_objects(part: object) -> list[dict]:
    return [one for one in part if isinstance(one, dict)] if isinstance(part, list) else []


def _get_number(part: dict, key: str, of: str = "") -> float | None:
    """Return a number in fio's output, or None if missing. `of` is the operation or device for error messages."""
    value = part.get(key)
    if value is None or (type(value) in (int, float) and 0 <= value <= _MOST):
        return value
    shown = json.dumps(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise Problem(f"has {f'{of} {key}'.strip()} {shown}, which is impossible")


def _get_count(part: dict, key: str, of: str = "") -> int | None:
    value = _get_number(part, key, of)
    if value is not None and value != int(value):
        raise Problem(f"has {f'{of} {key}'.strip()} {value:g}, which must be a whole number")
    return None if value is None else int(value)


def set_due_latencies(job: Job, log: str) -> bool:
    """Replace the latencies of a fixed-rate job (rate_iops) by open-loop latencies. Return whether this was possible.

    fio measures each operation from its actual start, so a stall affects a single latency, however many operations were
    due meanwhile. Latencies since the due times are computed from all latencies in fio's log (write_lat_log: a line per
    operation, in ns).
    """
    rate, lines = fio_options.get_open_loop_rate(job.options), _LOGGED.findall(log)
    kinds = {kind for _, kind in lines}
    if not rate or len(kinds) != 1:
        return False
    kind = "read" if kinds == {"0"} else "write"
    if len(lines) != job.columns[f"{kind}_N"]:
        return False
    latencies = compute_due_latencies([int(ns) for ns, _ in lines], rate)
    bins = dict(sorted(Counter(map(_compute_bucket_middle, latencies)).items()))
    latency = {"n": len(latencies), "max": max(latencies), "mean": statistics.fmean(latencies), "percentiles": {}}
    latency |= {"stddev": statistics.stdev(latencies) if len(latencies) > 1 else None, "bins": bins}
    job.columns |= build_latency_columns(kind, latency)
    job.histograms = {kind: Histogram.from_rows(bins.items(), 2)}
    return True


def compute_due_latencies(latencies_ns: Sequence[int], rate: float) -> list[int]:
    """Convert latencies (ns) since the start of each operation to latencies since the time it was due.

    An operation is due 1 / rate seconds after the previous operation was due. It begins as soon as it is due and the
    previous operation is done (Lindley, Mathematical Proceedings of the Cambridge Philosophical Society 48, 1952).
    """
    every, late, counted = 1e9 / rate, 0.0, []
    for ns in latencies_ns:
        counted.append(round(late + ns))
        late = max(0.0, late + ns - every)
    return counted


def _compute_bucket_middle(ns: int) -> int:
    """Return the midpoint of the bucket in which fio counts a latency; each power of two has 64 buckets."""
    width = 1 << max(ns.bit_length() - 7, 0)
    return ns // width * width + width // 2
