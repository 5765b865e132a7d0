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

from scripts.lib import fio_options
from scripts.lib.program import Problem

OPERATIONS = ("sync", "read", "write")
PERCENTILES = (50.0, 99.0, 99.9, 99.99)
# fio's numbers have 64 bits.
_BOUND = 2**64
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
        Problem: this is not fio's output, or cannot be read; the message begins with a verb.
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
    disks = {str(disk.get("name")): _numbers(disk) for disk in _list(output.get("disk_util")) if isinstance(disk, dict)}
    ended = _number(output.get("timestamp_ms"))
    ended_s = ended / 1000 if ended else _number(output.get("timestamp"))
    groups: dict[tuple, list[dict]] = {}
    for entry in entries:
        options = shared | _options(entry.get("job options"))
        groups.setdefault((str(entry.get("groupid")), *fio_options.canonical(options).items()), []).append(entry)
    found: list[Result] = []
    group = None
    for key, members in reversed(groups.items()):
        if found and key[0] != group:
            # Groups run one after the other; the output is written when the last of them is done.
            ended_s = found[-1].began_s
        group = key[0]
        found.append(_result(members, version, shared, disks if len(groups) == 1 else {}, ended_s))
    return found[::-1]


def _document(text: str) -> dict:
    """Return fio's JSON; there may be words before it (warnings, a banner) and after it."""
    begins = [match.start() for match in _BEGIN.finditer(text)]
    if len(begins) > 1:
        raise Problem(f"holds {len(begins)} outputs of fio; give each a file of its own, without --status-interval")
    try:
        output = _decoded(text[begins[0] :]) if begins else json.loads(text)
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
    decoder = json.JSONDecoder()
    try:
        return decoder.raw_decode(text)[0]
    except ValueError:
        return decoder.raw_decode(_NO_NUMBER.sub(r"\1null", text))[0]


def _damage(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        rest = error.doc[error.pos :]
        if "Unterminated" in error.msg or not rest.strip() or re.fullmatch(r'\s*[\w".+-]*\s*', rest):
            return "is cut off: fio was stopped, or the file was not copied whole"
        return f"is damaged in line {error.lineno} of fio's output ({error.msg})"
    return f"is damaged ({error})"


def _result(entries: list[dict], version: str, shared: dict, disks: dict, ended_s: float | None) -> Result:
    """Return the entries of the processes of one job as one result."""
    first = entries[0]
    options = shared | _options(first.get("job options"))
    latencies, traffic = {}, {}
    for operation in OPERATIONS:
        sections = [_section(entry, operation, options) for entry in entries]
        if operation != "sync":
            traffic[operation] = _traffic(sections)
        parts = [part for section in sections if (part := _latency(section)) is not None]
        if parts:
            latencies[operation] = _merged(parts)
    seconds = max(one.seconds for one in traffic.values())
    starts = [start for entry in entries if (start := _number(entry.get("job_start")) or 0) > _EPOCH_MS]
    began_s = min(starts) / 1000 if starts else (None if ended_s is None else ended_s - seconds)
    weights = [max(1, _number(entry.get("job_runtime")) or 1) for entry in entries]
    failures = [int(_number(entry.get("error")) or 0) for entry in entries]
    return Result(
        name=str(first.get("jobname", "")),
        version=version,
        options=options,
        latencies=latencies,
        traffic=traffic,
        began_s=began_s,
        ended_s=ended_s,
        usr_percent=_weighted([_number(entry.get("usr_cpu")) for entry in entries], weights),
        sys_percent=_weighted([_number(entry.get("sys_cpu")) for entry in entries], weights),
        error=next(filter(None, failures), 0),
        errors=sum(int(_number(entry.get("total_err")) or 0) for entry in entries),
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


def _traffic(sections: list[dict]) -> Traffic:
    return Traffic(
        ios=sum(int(_number(section.get("total_ios")) or 0) for section in sections),
        nbytes=sum(int(_number(section.get("io_bytes")) or 0) for section in sections),
        seconds=max((_number(section.get("runtime")) or 0) for section in sections) / 1000,
    )


def _latency(section: dict) -> Latency | None:
    """Return the latencies in a section, None where nothing took place.

    Completion latency where there is one; with lat_percentiles=1 alone, fio has percentiles of the total only.
    """
    chosen = [part for key in ("clat_ns", "lat_ns") if isinstance(part := section.get(key), dict)]
    told = [part for part in chosen if part.get("percentile") or part.get("bins")]
    if not chosen:
        return None
    part = (told or chosen)[0]
    bins = _bins(part.get("bins"))
    n = _number(part.get("N"))
    if n is None or n < 0:
        n = bins.total() if bins else max(0, _number(section.get("total_ios")) or 0) or None
    maximum, mean = _number(part.get("max")), _number(part.get("mean"))
    if n == 0 or not (maximum or mean):
        return None
    percentiles = {}
    for key, value in part["percentile"].items() if isinstance(part.get("percentile"), dict) else ():
        at, ns = _as_float(key), _number(value)
        if at and ns is not None:
            percentiles[round(at, 6)] = ns
    return Latency(None if n is None else int(n), maximum, mean, _number(part.get("stddev")), percentiles, bins)


def _bins(part: object) -> Bins | None:
    """Return bins in the order of ns; None where there are none, or where they are numbered instead (before 3.0)."""
    if not isinstance(part, dict) or "FIO_IO_U_PLAT_NR" in part:
        return None
    try:
        ns, counts = array("q", map(int, part)), array("q", part.values())
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem("is damaged: its bins are no numbers") from error
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


def _numbers(part: dict) -> dict[str, float]:
    return {key: number for key, value in part.items() if (number := _number(value)) is not None}


def _number(value: object) -> float | None:
    """Return a number of the output; None for anything else, and for what fio cannot have counted."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _BOUND:
        return None
    return value


def _as_float(text: str) -> float | None:
    try:
        return _number(float(text))
    except ValueError:
        return None
