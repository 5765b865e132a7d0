"""Decide whether a series of jobs meets a latency limit: meets, misses or undecided."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sbench.probe.program import Problem
from sbench.studies.volumes import etcd_metrics, fio_facts, fio_options
from sbench.studies.volumes.config_files import LIMITS, read_facts, read_job
from sbench.studies.volumes.series import Series, estimate_percentiles, get_histograms, get_ranges
from sbench.verdicts import histograms, stats
from sbench.verdicts.changes import Segment
from sbench.verdicts.outcomes import Outcome

# A battery with fewer jobs or seconds never meets a limit, however fast: caches and burst credits may outlast it.
LEAST_JOBS, LEAST_S = 20, 60.0
# A sync takes longer than this on any disk. A median below it shows that the operations did not reach a disk.
_LEAST_SYNC_MS = 0.01
# Batteries on the same volume differ by a few percent. A single battery therefore misses a limit only if its p99 is at
# least SURE × the limit, or SURE_FEW × the limit for a battery with few jobs.
SURE, SURE_FEW = 1.1, 2.0
# The metric name in etcd's metrics to which its fsync limit applies.
_WAL = etcd_metrics.METRICS["wal_fsync"]
# Writes that are larger or smaller than an application's writes by this factor do not represent the application.
_OTHER_SIZE = 4
# Upper bound of the estimated autocorrelation of jobs; few jobs do not allow a better estimate.
_MOST_ALIKE = 0.9
# Columns of a verdict: percentage of operations, and of time, at or above the limit, with 95 % CI.
SHARES = tuple(f"{name}_over_percent{end}" for name in ("operations", "time") for end in ("", "_low", "_high"))


def resolve_limits(entries: Sequence[str | dict]) -> list[dict]:
    """Replace names of documented limits by their entries in config/facts/limits.yaml. Leave other limits unchanged.

    A limit has a "name", "p99_ms", which the p99 must stay below, the "operation" that it applies to, and optionally a
    "source".
    """
    documented = read_facts(LIMITS)["limits"]
    return [{"name": entry, **documented[entry]} if isinstance(entry, str) else entry for entry in entries]


def judge_limits(series: Series, segments: Sequence[Segment], limits: Sequence[dict], seed: int = 1) -> list[dict]:
    """Judge a series and each of its segments by each limit.

    The series meets a limit only if every segment meets it, and misses it if any segment does: the p99 of a volume that
    is fast for an hour and then slow lies between the two, and describes neither. A single battery may not suffice for
    a miss (`find_doubt`). A series with files in memory is undecided. Limits of other operations are skipped: a limit
    of fsync does not apply to reads or to etcd's backend commits.

    Returns:
        For each limit, a row for the entire series (segment "all"), then a row per segment: its jobs, the p99 with its
        confidence interval, and the verdict. `kept_s` is the time from a battery's start to the first segment that does
        not meet the limit (the minimum over batteries).
    """
    jobs = series.jobs
    options = next((battery.record.get("job_options") for battery in series.valid), None) or {}
    # A histogram of etcd covers all operations since its start, so the minimum size of a battery does not apply.
    short = {} if "metric" in options else _find_short_batteries(jobs)
    memory = [fio_facts.find_memory_kind(battery.record.get("battery") or {}) for battery in series.batteries]
    memory = next((f"the files were in memory ({kind}), not on a volume" for kind in memory if kind), "")
    memory = memory or _describe_unreached(series, options)
    unproven = _describe_unproven(series, options)
    parts = [jobs.iloc[one.first : one.last] for one in segments]
    estimates = [_estimate_p99(part, seed) for part in parts]
    # A single segment is the entire series.
    estimates.insert(0, estimates[0] if len(parts) == 1 else _estimate_p99(jobs, seed))
    # In an open loop, operations are evenly spaced in time, so their share equals the share of time.
    in_flight, rows = math.nan if series.loop == "open" else fio_options.count_in_flight(options), []
    for limit in limits:
        if series.operation and limit.get("operation") not in (None, series.operation):
            continue
        if options.get("metric", _WAL) != limit.get("metric", _WAL):
            continue
        height, own = float(limit["p99_ms"]), []
        head = {"limit": limit["name"], "metric": "p99", "limit_ms": height, "kept_s": math.nan}
        head["source"] = " ".join(limit.get("source", "").split())
        for number, (part, estimate) in enumerate(zip((jobs, *parts), estimates, strict=True)):
            ids, repeats = [*part["job_Id"]] or [""], part["repeat"].unique()
            row = head | {
                **{"segment": str(number or "all"), "repeat": int(repeats[0]) if len(repeats) == 1 else None},
                **{"first_job": ids[0], "last_job": ids[-1], "jobs": len(part)},
                **{
                    "jobs_over": int((part["p99_ms"] >= height).sum()),
                    **_compute_shares(part, height, in_flight, seed),
                },
                **{"value_ms": estimate.value, "low_ms": estimate.low, "high_ms": estimate.high},
            }
            if estimate.reason and not estimate.low >= height:
                row["low_ms"] = math.nan
            lacking = short.get(repeats[0], "") or unproven if number else ""
            verdict = _judge_segment(part, estimate, height, memory, lacking) if number else {}
            own.append(row | verdict | _check_write_size(options, limit, verdict.get("verdict", "")))
        whole = _judge_series(jobs, parts, [row["verdict"] for row in own[1:]])
        near = find_doubt(own[1:], whole["verdict"], height) if "metric" not in options else ""
        rows += [own[0] | whole | ({"verdict": Outcome.UNDECIDED, "reason": near} if near else {}), *own[1:]]
    return rows


def find_doubt(parts: Sequence[dict], verdict: str, height: float) -> str:
    """Return the reason why the segments' `verdict` does not settle the series, or an empty string if it does.

    A miss by a single battery counts if the lower bound of its p99 is at least `SURE` × the limit, or `SURE_FEW` × the
    limit with few jobs. Otherwise more than half of the batteries, and at least 2, must miss the limit.
    """
    batteries, deciding = {row["repeat"] for row in parts}, [row for row in parts if row["verdict"] == verdict]
    counted = {row["repeat"] for row in deciding}
    if verdict == Outcome.MISSES and (len(counted) == 1 or 2 * len(counted) <= len(batteries)):
        # The segment that is closest to deciding: its lower bound as a multiple of the limit, and the multiple needed.
        least = [SURE if row["jobs"] >= stats.MIN_BLOCKS else SURE_FEW for row in deciding]
        seen = ((row["low_ms"] / height, sure, row["jobs"]) for row, sure in zip(deciding, least, strict=True))
        low, sure, jobs = max(seen, key=lambda segment: segment[0] / segment[1])
        if low < sure:
            of = f"{len(counted)} of {len(batteries)} batteries" if len(batteries) > 1 else "a single battery"
            few = f" of {jobs} job{'s' * (jobs > 1)}" if sure == SURE_FEW else ""
            return (
                f"only {of} missed it, at {math.floor(100 * low + 1e-6) / 100:g} × the limit; a single battery{few}"
                f" decides from {sure:g} × on, otherwise more than half must miss it, and at least 2"
            )
    return ""


def _describe_unproven(series: Series, options: Mapping[str, str]) -> str:
    """Return a message if writes were measured but there is no evidence that they reached a device.

    Otherwise return an empty string. Evidence is a device that counted writes, fsync or fdatasync calls that fio timed,
    or files opened with O_DIRECT or O_SYNC.
    """
    if series.operation != "write" or series.jobs["device_writes"].sum() > 0:
        return ""
    if any(str(options.get(name, "0")) not in ("", "0", "none") for name in ("direct", "sync")):
        return ""
    return "no evidence that writes reached a device: fio timed no sync, and no device counted writes"


def _check_write_size(options: Mapping[str, str], limit: dict, verdict: str) -> dict:
    """Return an `undecided` verdict if the write size makes the given verdict inconclusive, otherwise an empty dict.

    Larger writes take longer. So a miss is inconclusive if the writes are much larger than in the limit's job, and a
    limit that is met is inconclusive if they are much smaller.
    """
    if "job" not in limit or "bs" not in options:
        return {}
    theirs = fio_options.get_block_bytes(fio_options.parse_job_file(read_job(limit["job"])))
    try:
        own = fio_options.get_block_bytes(options)
    except (Problem, ValueError):
        return {}
    says_nothing = {Outcome.MISSES: own >= _OTHER_SIZE * theirs, Outcome.MEETS: own * _OTHER_SIZE <= theirs}
    if not says_nothing.get(verdict):
        return {}
    return {
        "verdict": Outcome.UNDECIDED,
        "reason": f"writes of {own:,} bytes differ from {limit['name']}'s {theirs:,} bytes",
    }


def _estimate_p99(jobs: pd.DataFrame, seed: int) -> histograms.Percentile:
    """Estimate the p99 of jobs with its confidence interval.

    If there are too few operations for a p99, the lower bound of the highest percentile that can be estimated is used
    as its lower bound.
    """
    own = estimate_percentiles(jobs, (99, 95, 90, 50), seed)
    p99 = own.pop(99, histograms.Percentile(*[math.nan] * 4, "no job has a p99"))
    if p99.reason:
        return p99._replace(low=next((one.low for one in own.values() if not one.reason), math.nan))
    middle, wider = p99.value if math.isfinite(p99.value) else math.sqrt(p99.low * p99.high), _compute_widening(jobs)
    if wider == 1 or not middle > 0:
        return p99
    # Without bins, the merged percentile may be anywhere in its interval, so widen each end relative to the other.
    below, above = (middle, middle) if get_histograms(jobs) else (p99.high, p99.low)
    return p99._replace(low=below * (p99.low / below) ** wider, high=above * (p99.high / above) ** wider)


def _compute_widening(jobs: pd.DataFrame) -> float:
    """Return the factor by which to widen a confidence interval because consecutive jobs are correlated.

    If the logarithms of the p99s of n jobs have a positive autocorrelation r at lag 1, their effective number is
    n (1 - r) / (1 + r) (Bayley & Hammersley, The "effective" number of independent observations, 1946).
    """
    own = np.log(jobs["p99_ms"].to_numpy(float))
    own = own - own.mean()
    squares = float(own @ own)
    if len(own) < stats.MIN_BLOCKS or not (math.isfinite(squares) and squares > 0):
        return 1.0
    r = min(max(0.0, float(own[:-1] @ own[1:]) / squares), _MOST_ALIKE)
    return math.sqrt((1 + r) / (1 - r))


def _compute_shares(jobs: pd.DataFrame, height: float, in_flight: float, seed: int) -> dict[str, float]:
    """Compute the share of operations, and of time, with latencies of at least `height` ms, in percent with 95 % CI.

    The share of time is the sum of these latencies / (run time of the jobs × operations in flight). Jobs are resampled
    for the CI, which is never narrower than the bounds from the bins.
    """
    if not (merged := get_ranges(jobs)):
        return dict.fromkeys(SHARES, math.nan)
    over = np.stack([histograms.compute_at_or_above(own, height) for own in merged])
    wholes = (jobs["N"].astype(float), 1000 * in_flight * jobs["seconds"].astype(float))
    ends = []
    for place, whole in enumerate(wholes):
        estimate = stats.estimate_total_ratio(over[:, 1, place], whole, seed)
        least, most = over[:, [0, 2], place].sum(axis=0) / whole.sum(skipna=False)
        ends += [estimate.value, np.fmin(estimate.low, least), np.fmax(estimate.high, most)]
    return {key: 100 * min(float(end), 1.0) for key, end in zip(SHARES, ends, strict=True)}


def _describe_unreached(series: Series, options: Mapping[str, str]) -> str:
    """Return the reason why a series' writes cannot have reached a disk, or an empty string if they may have."""
    jobs = series.jobs
    if options.get("ioengine") in ("falloc", "null"):
        return f"the engine {options['ioengine']} writes nothing"
    middle = jobs["p50_ms"].fillna(jobs["mean_ms"]).median() if len(jobs) else math.nan
    if series.operation == "sync" and middle < _LEAST_SYNC_MS:
        return f"half of the operations took {1000 * middle:.2g} µs or less, too fast for a disk"
    seen = jobs["device_writes"]
    if len(jobs) and seen.notna().all() and not seen.sum() and jobs["writes"].sum() and jobs["seconds"].sum() > 1:
        return "the device counted no writes, so none reached it"
    return ""


def _find_short_batteries(jobs: pd.DataFrame) -> dict[int, str]:
    """Return, for each repeat, why its battery is too short to meet a limit, or an empty string if it is long enough.

    A battery of unknown duration needs only enough jobs.
    """
    reasons = {}
    for repeat, own in jobs.groupby("repeat"):
        seconds = float(own["start_s"].iloc[-1] + own["seconds"].iloc[-1])
        time = "" if math.isnan(seconds) else f" in {seconds:.0f} s"
        count = f"{len(own)} job{'s' * (len(own) > 1)}{time}"
        few = len(own) < LEAST_JOBS or seconds < LEAST_S
        reasons[int(repeat)] = f"the battery is too short to meet a limit: {count}" if few else ""
    return reasons


def _judge_segment(
    jobs: pd.DataFrame, estimate: histograms.Percentile, height: float, memory: str, lacking: str
) -> dict:
    verdict, reason = Outcome.UNDECIDED, f"{height:g} ms is within the interval"
    # A percentile from bins is the midpoint of a bin, which may contain the limit.
    half = 0 if get_ranges(jobs) and not get_histograms(jobs) else histograms.RESOLUTION / 2
    low, high = estimate.low * (1 - half), estimate.high * (1 + half)
    if memory or (lacking and high < height):
        return {"verdict": verdict, "reason": estimate.reason or memory or lacking}
    if high < height:
        verdict, reason = Outcome.MEETS, f"at most {estimate.high:.3g} ms"
    elif low >= height:
        verdict, reason = Outcome.MISSES, f"at least {estimate.low:.3g} ms"
        if estimate.reason:
            return {"verdict": verdict, "reason": f"{reason}, by a lower percentile; {estimate.reason}"}
    few = f"; {len(jobs)} job{'s are' if len(jobs) > 1 else ' is'} too few to resample"
    few = few if len(jobs) < stats.MIN_BLOCKS else ""
    without = "the percentiles of each job" if get_ranges(jobs) else "the p99 of each job, as histograms are missing"
    doubt = few if get_histograms(jobs) else f"; bounds from {without}"
    return {"verdict": verdict, "reason": estimate.reason or reason + doubt}


def _judge_series(jobs: pd.DataFrame, parts: Sequence[pd.DataFrame], verdicts: Sequence[str]) -> dict:
    """Combine the verdicts on segments into a verdict on the series, with a reason and the time it met the limit."""
    if not parts:
        return {"verdict": Outcome.UNDECIDED, "reason": "no valid battery"}
    if set(verdicts) == {Outcome.MEETS}:
        return {"verdict": Outcome.MEETS, "reason": "every segment meets it"}
    whole = Outcome.MISSES if Outcome.MISSES in verdicts else Outcome.UNDECIDED
    judged = zip(parts, verdicts, strict=True)
    kept = [float(part["start_s"].iloc[0]) for part, verdict in judged if verdict != Outcome.MEETS]
    where = [
        f"segment {number} (jobs {part['number'].iloc[0]} to {part['number'].iloc[-1]})"
        for number, (part, verdict) in enumerate(zip(parts, verdicts, strict=True), 1)
        if verdict == whole
    ]
    derived = "" if jobs["timed"].all() else "; times are estimates from latencies and pauses"
    reason = f"{' and '.join(where)}: {whole}{derived}"
    return {"verdict": whole, "kept_s": min(filter(math.isfinite, kept), default=math.nan), "reason": reason}
