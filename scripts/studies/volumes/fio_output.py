"""What fio says of its jobs: its JSON output, of versions 3.x, with the bins of json+ or without."""

import json
import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import gt

from scripts.lib.program import Problem
from scripts.studies.volumes import fio_options

OPERATIONS = ("sync", "read", "write")
PERCENTILES = (50.0, 99.0, 99.9, 99.99)
# Ranges: no job and no operation takes three years, and what fio counts has 63 bits.
_MOST = 2**63 - 1
_MOST_MS = 10**11
_MOST_NS = 10**17
_MOST_DATE_MS = 2**35 * 1000
_MOST_PERCENT = 10**6
_ERRORS = (-4096, 2**31 - 1)
# Percentiles and bins are the middle of a bucket, of 64 to each power of two: they may lie above the maximum by a part.
_BUCKET = 1 / 64
# fio may be told to start jobs by another clock than that of the world; such starts are small.
_EPOCH_MS = 1e12
_BEGIN = re.compile(r'\{\s*"fio version"')
# Some versions print these where a number is undefined; JSON has no such numbers.
_NO_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Bins:
    """A histogram: latencies in ns, in order, and how often each was counted."""

    ns: array
    counts: array

    def total(self) -> int:
        """Return how many latencies it holds."""
        return sum(self.counts)

    def pairs(self) -> list[tuple[int, int]]:
        """Return it as [(ns, count), …]."""
        return list(zip(self.ns, self.counts, strict=True))

    def percentile(self, percentile: float) -> int:
        """Return a percentile as fio has it: the value of the first bin at which so many have been counted."""
        counted = list(accumulate(self.counts))
        return self.ns[min(bisect_left(counted, percentile / 100 * counted[-1]), len(counted) - 1)]


@dataclass(frozen=True)
class Latency:
    """The latencies of one kind of operation, in ns.

    Attributes:
        n: how many there were; None where this version does not say.
        maximum: the longest.
        mean: their mean.
        stddev: their standard deviation.
        percentiles: percentile -> ns.
        bins: the histogram; None without json+.
    """

    n: int | None
    maximum: float | None
    mean: float | None
    stddev: float | None
    percentiles: dict[float, float]
    bins: Bins | None

    def at(self, percentile: float) -> float | None:
        """Return a percentile: what fio says, else from the bins, else None."""
        if percentile in self.percentiles:
            return self.percentiles[percentile]
        return self.bins.percentile(percentile) if self.bins else None


@dataclass(frozen=True)
class Traffic:
    """What was read, or written: operations, bytes, and the seconds from first to last."""

    ios: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """What one job did, all its processes together.

    Attributes:
        name: the job's name.
        version: fio's version.
        options: the job's options, with the global ones.
        latencies: operation -> its latencies, for those that took place.
        traffic: "read" and "write".
        began_s: when it began, seconds since 1970 (UTC), as far as it can be told.
        ended_s: when it ended.
        usr_percent: processor time in user mode, in percent of a job's process.
        sys_percent: processor time in the kernel.
        error: fio's number of the error that ended it, 0 without one.
        errors: how many operations failed where it went on.
        exact_start: whether fio itself says when it began.
        disks: fio's figures of the devices, by name; none where jobs in turn share them.
    """

    name: str
    version: str
    options: dict[str, str]
    latencies: dict[str, Latency]
    traffic: dict[str, Traffic]
    began_s: float | None
    ended_s: float | None
    usr_percent: float | None
    sys_percent: float | None
    error: int
    errors: int
    exact_start: bool
    disks: dict[str, dict[str, float]]

    @property
    def seconds(self) -> float:
        """Return how long it read or wrote."""
        return max(traffic.seconds for traffic in self.traffic.values())


def results(text: str) -> list[Result]:
    """Return what fio's output says of its jobs, in its order.

    The processes of a job, which are told apart without group_reporting, are merged; jobs of the same options that ran
    one after the other are not.

    Raises:
        Problem: this is not fio's output, cannot be read, or has a number that fio cannot have counted or measured; the
            message begins with a verb.
    """
    output = _document(text)
    version = str(output["fio version"])
    number = re.search(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < (2, 99):
        raise Problem(f"is of {version}; fio 3 and later are read")
    if "client_stats" in output:
        raise Problem("is from fio's client mode; let each host write its own file")
    entries = [entry for entry in _list(output.get("jobs")) if isinstance(entry, dict)]
    if not entries:
        raise Problem("has no jobs in it")
    shared = _options(output.get("global options"))
    disks = {str(disk.get("name")): _disk(disk) for disk in _list(output.get("disk_util")) if isinstance(disk, dict)}
    ended = _number(output, "timestamp_ms", _MOST_DATE_MS)
    ended_s = ended / 1000 if ended else _number(output, "timestamp", _MOST_DATE_MS / 1000)
    groups: dict[tuple, list[dict]] = {}
    for entry in entries:
        options = shared | _options(entry.get("job options"))
        groups.setdefault((str(entry.get("groupid")), *fio_options.canonical(options).items()), []).append(entry)
    merged: list[Result] = []
    group = None
    for key, members in reversed(groups.items()):
        if merged and key[0] != group:
            # Groups run one after the other; the output is written when the last of them is done.
            ended_s = merged[-1].began_s
        group = key[0]
        merged.append(_result(members, version, shared, disks if len(groups) == 1 else {}, ended_s))
    return merged[::-1]


def _document(text: str) -> dict:
    """Return fio's JSON; there may be words before it (warnings, a banner) and after it."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    if len(begins) > 1:
        raise Problem(f"holds {len(begins)} outputs of fio; give each a file of its own, without --status-interval")
    try:
        output = _decoded(text[begins[0] :]) if begins else json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise Problem("is not an output of fio") from error
    except ValueError as error:
        if not begins:
            raise Problem("is not JSON") from error
        raise Problem(_damage(error)) from error
    if not isinstance(output, dict) or "fio version" not in output:
        raise Problem("is not an output of fio")
    return output


def _decoded(text: str) -> dict:
    decoder = json.JSONDecoder(parse_constant=_refuse)
    try:
        return decoder.raw_decode(text)[0]
    except ValueError:
        return decoder.raw_decode(_NO_NUMBER.sub(r"\1null", text))[0]


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which fio does not write so."""
    raise Problem(f"has the number {constant}, which fio cannot have measured")


def _damage(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        rest = error.doc[error.pos :]
        if "Unterminated" in error.msg or not rest.strip() or re.fullmatch(r'\s*[\w".+-]*\s*', rest):
            return "is cut off: fio was stopped, or the file was not copied whole"
        return f"is damaged in line {error.lineno} of fio's output ({error.msg})"
    return "is damaged: it has a number of more digits than fio can have counted"


def _result(entries: list[dict], version: str, shared: dict, disks: dict, ended_s: float | None) -> Result:
    """Return the entries of the processes of one job as one result."""
    first = entries[0]
    options = shared | _options(first.get("job options"))
    latencies, traffic = {}, {}
    for operation in OPERATIONS:
        sections = [_section(entry, operation, options) for entry in entries]
        if operation != "sync":
            traffic[operation] = _traffic(sections, operation)
        parts = [part for section in sections if (part := _latency(section, operation)) is not None]
        if parts:
            latencies[operation] = _merged(parts)
    seconds = max(one.seconds for one in traffic.values())
    starts = [start for entry in entries if (start := _number(entry, "job_start", _MOST_DATE_MS) or 0) > _EPOCH_MS]
    began_s = min(starts) / 1000 if starts else (None if ended_s is None else ended_s - seconds)
    weights = [max(1, _number(entry, "job_runtime", _MOST_MS) or 1) for entry in entries]
    failures = [_count(entry, "error", *_ERRORS) or 0 for entry in entries]
    return Result(
        name=str(first.get("jobname", "")),
        version=version,
        options=options,
        latencies=latencies,
        traffic=traffic,
        began_s=began_s,
        ended_s=ended_s,
        usr_percent=_weighted([_number(entry, "usr_cpu", _MOST_PERCENT) for entry in entries], weights),
        sys_percent=_weighted([_number(entry, "sys_cpu", _MOST_PERCENT) for entry in entries], weights),
        error=next(filter(None, failures), 0),
        errors=sum(_count(entry, "total_err") or 0 for entry in entries),
        exact_start=bool(starts),
        disks=disks,
    )


def _section(entry: dict, operation: str, options: dict) -> dict:
    """Return what an entry says of an operation; with unified reporting that of the only one that took place."""
    section = entry.get(operation)
    if section is None and "mixed" in entry and operation != "sync":
        rw = options.get("rw", "read").removeprefix("rand").partition(":")[0]
        if rw not in ("read", "write"):
            raise Problem("counts reads and writes together (unified_rw_reporting), which cannot be told apart")
        section = entry["mixed"] if rw == operation else None
    return section if isinstance(section, dict) else {}


def _traffic(sections: list[dict], operation: str) -> Traffic:
    ios = [_count(section, "total_ios", of=operation) or 0 for section in sections]
    runtimes = [_number(section, "runtime", _MOST_MS, of=operation) for section in sections]
    if any(count and runtime == 0 for count, runtime in zip(ios, runtimes, strict=True)):
        raise Problem(f"says that operations of {operation} took no time")
    return Traffic(
        ios=sum(ios),
        nbytes=sum(_count(section, "io_bytes", of=operation) or 0 for section in sections),
        seconds=max(runtime or 0 for runtime in runtimes) / 1000,
    )


def _latency(section: dict, operation: str) -> Latency | None:
    """Return the latencies in a section, None where nothing took place.

    Completion latency where there is one; with lat_percentiles=1 alone, fio has percentiles of the total only.
    """
    chosen = [part for key in ("clat_ns", "lat_ns") if isinstance(part := section.get(key), dict)]
    detailed = [part for part in chosen if part.get("percentile") or part.get("bins")]
    if not chosen:
        return None
    part = (detailed or chosen)[0]
    bins = _bins(part.get("bins"))
    n = _count(part, "N", of=operation)
    if n is None:
        n = bins.total() if bins else _count(section, "total_ios", of=operation) or None
    maximum, mean, stddev = (_number(part, key, _MOST_NS, of=operation) for key in ("max", "mean", "stddev"))
    percentiles = _percentiles(part.get("percentile"), operation)
    if n == 0 or not (maximum or mean):
        return None
    ordered = [ns for _, ns in sorted(percentiles.items())]
    if ordered != sorted(ordered):
        raise Problem(f"has percentiles of {operation} of which a higher one is less than a lower one")
    if maximum is not None:
        largest = {
            "mean": mean,
            "stddev": stddev,
            "percentile": max(ordered, default=0),
            "bin": bins.ns[-1] if bins else 0,
        }
        if above := [key for key, ns in largest.items() if (ns or 0) > maximum * (1 + _BUCKET) + 1]:
            raise Problem(f"has a {above[0]} of {operation} above the maximum")
    return Latency(n, maximum, mean, stddev, percentiles, bins)


def _percentiles(part: object, operation: str) -> dict[float, float]:
    """Return percentile -> ns; what is no percentile is passed over."""
    by_percent = {}
    for key in part if isinstance(part, dict) else ():
        at, ns = _as_float(key), _number(part, key, _MOST_NS, of=operation)
        if at is not None and 0 < at <= 100 and ns is not None:
            by_percent[round(at, 6)] = ns
    return by_percent


def _bins(part: object) -> Bins | None:
    """Return bins in the order of ns; None where there are none, or where they are numbered instead (before 3.0)."""
    if not isinstance(part, dict) or "FIO_IO_U_PLAT_NR" in part:
        return None
    try:
        if bool in set(map(type, part.values())):
            raise TypeError
        ns, counts = array("q", map(int, part)), array("q", part.values())
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem("is damaged: its bins are no numbers") from error
    if min(ns, default=0) < 0 or min(counts, default=0) < 0:
        raise Problem("has a bin below zero")
    if any(map(gt, ns, islice(ns, 1, None))) or min(counts, default=1) < 1:
        return _ordered({one: count for one, count in zip(ns, counts, strict=True) if count > 0})
    return Bins(ns, counts) if ns else None


def _ordered(total: dict[int, int]) -> Bins | None:
    ns = sorted(total)
    return Bins(array("q", ns), array("q", map(total.__getitem__, ns))) if ns else None


def _merged(parts: list[Latency]) -> Latency:
    """Return the latencies of several processes: histograms are merged, percentiles never (METHOD 18)."""
    if len(parts) == 1:
        return parts[0]
    counts = [part.n for part in parts]
    maximum = max((part.maximum for part in parts if part.maximum is not None), default=None)
    n, mean, stddev, bins = None, None, None, None
    if None not in counts:
        n = sum(counts)
        if all(part.mean is not None for part in parts):
            mean = sum(part.n * part.mean for part in parts) / n
            if n > 1 and all(part.stddev is not None for part in parts):
                within = sum((part.n - 1) * part.stddev**2 for part in parts)
                between = sum(part.n * (part.mean - mean) ** 2 for part in parts)
                stddev = math.sqrt((within + between) / (n - 1))
    if all(part.bins for part in parts):
        total = dict(parts[0].bins.pairs())
        for part in parts[1:]:
            for ns, count in part.bins.pairs():
                total[ns] = total.get(ns, 0) + count
        bins = _ordered(total)
    return Latency(n, maximum, mean, stddev, {}, bins)


def _weighted(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if None in values:
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _options(part: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in part.items()} if isinstance(part, dict) else {}


def _list(part: object) -> list:
    return part if isinstance(part, list) else []


def _disk(part: dict) -> dict[str, float]:
    """Return fio's figures of a device: what it did, and for how many percent of the time it was busy."""
    ranges = {"read_ios": _MOST, "write_ios": _MOST, "util": _MOST_PERCENT}
    return {key: number for key, most in ranges.items() if (number := _number(part, key, most, of="disk")) is not None}


def _number(part: dict, key: str, most: float = _MOST, least: float = 0, of: str = "") -> float | None:
    """Return a number of the output, None where it has none; `of` says in a message whose it is.

    Raises:
        Problem: it is no number, or none within its range.
    """
    value = part.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        shown = json.dumps(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
        raise Problem(f"has {' '.join(filter(None, (of, key)))} {shown}, which is no number from {least:g} to {most:g}")
    return value


def _count(part: dict, key: str, least: int = 0, most: int = _MOST, of: str = "") -> int | None:
    """Return a whole number of the output (see `_number`)."""
    value = _number(part, key, most, least, of)
    if value is not None and value != int(value):
        raise Problem(f"has {' '.join(filter(None, (of, key)))} {value:g}, which is no whole number")
    return None if value is None else int(value)


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
