"""Model the IOPS limits of AWS EBS volumes, and when their burst credits run out.

The limits are in config/facts/volume_types.yaml. For gp2, a bucket of 5.4 million I/O credits fills at the baseline
rate and drains at the I/O rate. With credits left, the volume delivers up to 3,000 IOPS, otherwise only its baseline.
A credit pays for an I/O of the device. A synced file write takes several (data, journal, metadata): `ios_per_write`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.studies.volumes import fio_facts
from sbench.studies.volumes.promises import Volume, compute_promises
from sbench.studies.volumes.series import Series, get_started_utc
from sbench.verdicts.changes import Segment

# Part of the message about a volume type without burst credits.
NO_CREDITS = "has no burst credits"
# A change counts as a collapse if it raises the mean latency by at least this factor.
COLLAPSE = 1.5
# The bucket counts as full if at least this share of its credits is left, and as spent if at most 1 - FULL is left.
FULL = 0.95


class Spent(NamedTuple):
    """Modelled credit use of a job.

    Attributes:
        credits_start: credits left before the job.
        credits_end: credits left after the job.
        modelled_s: duration of the job in seconds.
        modelled_iops: mean device IOPS during the job.
        allowed_iops: the volume's limit: the baseline if credits run out in the job, otherwise the burst rate.
    """

    credits_start: float
    credits_end: float
    modelled_s: float
    modelled_iops: float
    allowed_iops: float


def build_credit_tables(
    series: Sequence[Series], segments: Mapping[tuple, list[Segment]]
) -> tuple[list[dict], list[dict]]:
    """Model the burst credits of all valid batteries on volumes of a known type.

    Credits carry over between batteries on the same volume (same store and host). If the record has a start state, that
    state sets the credits. Otherwise the bucket starts full for a volume's first battery, if the start time is unknown,
    or if the previous battery failed.

    Returns:
        A row per modelled job, with its credits and the IOPS they allowed; and a row per battery, in the order of
        `series`. A battery's row has `began`, the initial state of the bucket (`full`, `spent` or `partly spent`; an
        empty string if the credits could not be modelled). It has the job in which the model predicts that credits run
        out and the job at which latency was observed to collapse, each as an id and a number, and a text.
    """
    batteries = [(one, battery) for one in series for battery in one.batteries]
    jobs: dict[int, list[dict]] = {}
    collapses: dict[int, dict] = {}
    # End of the last battery (seconds since 1970) and the remaining credits, by volume.
    left: dict[tuple, tuple[float, float]] = {}
    for place, (one, battery) in sorted(enumerate(batteries), key=lambda each: get_started_utc(each[1][1])):
        before = left.pop((one.levels[0], one.levels[-1]), None)
        volume = compute_promises(one.volume)
        places = np.flatnonzero(one.jobs["repeat"] == battery.repeat) if battery.valid and volume.volume_type else []
        if not len(places):
            continue
        own, started, start = one.jobs.iloc[places], fio_facts.parse_date(get_started_utc(battery))[0], None
        if before and started:
            ended, credits = before
            start = credits + volume.baseline_iops * max(started - ended, 0)
        if state := (battery.record.get("start") or {}).get("state"):
            start = volume.credits if state == "full" else 0.0
        parts = [part for part in segments[one.levels] if places[0] <= part.first <= places[-1]]
        fall = find_collapse(one.jobs, parts)
        slow = one.jobs.iloc[fall.first : fall.last] if fall else own.iloc[:0]
        observed = fall.first - int(places[0]) if fall else None
        each, source = estimate_ios_per_write(own, slow, volume)
        complete = np.isfinite(own[["writes", "reads", "seconds"]].to_numpy(float)).all()
        complete = complete and math.isfinite(volume.credits + volume.baseline_iops)
        spent = compute_spending(own, volume, each, observed, start) if complete else []
        if spent and started:
            ended = started + float(own["start_s"].iloc[-1] + own["seconds"].iloc[-1])
            left[one.levels[0], one.levels[-1]] = ended, spent[-1].credits_end
        per_write = {"ios_per_write": each, "ios_per_write_source": source} if spent else {}
        modelled = zip(own.to_dict("records"), spent, strict=False)
        jobs[place] = [{**one.head, **job, **credits._asdict(), **per_write} for job, credits in modelled]
        row = {**one.head, "repeat": battery.repeat, **volume._asdict(), "ios_per_write_source": "", **per_write}
        share = spent[0].credits_start / volume.credits if spent else math.nan
        row["began"] = "full" if share >= FULL else "spent" if share <= 1 - FULL else "partly spent" if spent else ""
        predicted = next((number for number, job in enumerate(spent) if job.credits_end <= 0), None)
        for name, number in (("predicted", predicted), ("observed", observed)):
            job = {"job_Id": "", "number": None} if number is None else own.iloc[number]
            row |= {f"{name}_job": job["job_Id"], f"{name}_number": job["number"]}
        collapses[place] = row | {"text": _describe_credits(row, volume, spent, start is not None)}
    order = sorted(collapses)
    return [row for place in order for row in jobs[place]], [collapses[place] for place in order]


def _describe_credits(row: dict, volume: Volume, spent: Sequence[Spent], carried: bool) -> str:
    name = volume.volume_type if math.isnan(volume.size_gib) else f"{volume.size_gib:g} GiB {volume.volume_type}"
    seen = f"latency rose at job {row['observed_number']}" if row["observed_job"] else "latency did not rise"
    if math.isnan(volume.credits):
        return f"{volume.note or f'a {name} volume {NO_CREDITS}'}; {seen}"
    if not spent:
        unknown = "the size of the volume" if math.isnan(volume.baseline_iops) else "the work or the time of the jobs"
        return f"the burst credits of a {name} volume cannot be modelled, as {unknown} is unknown; {seen}"
    ending = f"last longer than these jobs ({spent[-1].credits_end / 1e6:.1f} million left)"
    if row["predicted_job"]:
        ending = f"run out in job {row['predicted_number']}"
    start = "credits left by the previous battery" if carried else "a full bucket"
    each = f"{row['ios_per_write']:.2f} device I/Os per write: {row['ios_per_write_source']}"
    return f"the model predicts that the burst credits of a {name} volume {ending}; {seen} (from {start}; {each})"


def find_collapse(jobs: pd.DataFrame, segments: Sequence[Segment]) -> Segment | None:
    """Return the first segment with at least 1.5 times the latency of the previous one, or None.

    The latency of a segment is the median of its jobs' mean latencies.
    """
    middles = [jobs["mean_ms"].iloc[one.first : one.last].median() for one in segments]
    steps = zip(middles, middles[1:], segments[1:], strict=False)
    return next((one for before, after, one in steps if after >= COLLAPSE * before), None)


def estimate_ios_per_write(jobs: pd.DataFrame, slow: pd.DataFrame, volume: Volume) -> tuple[float, str]:
    """Estimate the device I/Os per fio write, and describe the source of the estimate.

    Device counters are used if available. Otherwise the estimate comes from the jobs that the volume appears to have
    throttled (`slow`), as baseline × time / writes: a throttled volume performs its baseline rate plus the I/Os earned
    in pauses. The first of these jobs is skipped, as it began with credits. This uses hindsight. Failing both, the
    estimate is 1, the minimum.
    """
    counted = jobs[jobs["device_writes"].astype(float).notna() & (jobs["writes"].astype(float) > 0)]
    if len(counted):
        return float(counted["device_writes"].sum() / counted["writes"].sum()), "counted by the device"
    slow = slow.iloc[1:] if len(slow) > 1 else slow
    writes = float(slow["writes"].sum(skipna=False))
    time = float((slow["seconds"] + slow["pause_s"]).sum(skipna=False))
    if writes > 0 and volume.baseline_iops * time / writes >= 1:
        return volume.baseline_iops * time / writes, "throttled segment (hindsight)"
    return 1.0, "assumed (the minimum)"


def compute_spending(
    jobs: pd.DataFrame, volume: Volume, each: float, collapsed: int | None = None, start: float | None = None
) -> list[Spent]:
    """Model how a battery's jobs spend burst credits, starting with `start` credits, or all credits if it is None.

    The demand of a job is its writes × `each` (device I/Os per write) plus its reads, over its measured duration. For
    jobs from index `collapsed` on, the duration is the median of the jobs before, as a lack of credits slowed them.
    """
    demand = jobs["writes"].to_numpy(float) * each + jobs["reads"].to_numpy(float)
    seconds = jobs["seconds"].to_numpy(float).copy()
    if collapsed:
        seconds[collapsed:] = np.median(seconds[:collapsed])
    left = volume.credits if start is None else min(start, volume.credits)
    spending = []
    for ios, wanted, pause in zip(demand, seconds, jobs["pause_s"].to_numpy(float), strict=True):
        spending.append(_compute_job_spending(left, ios, wanted, volume))
        left = min(spending[-1].credits_end + volume.baseline_iops * pause, volume.credits)
    return spending


def _compute_job_spending(left: float, ios: float, wanted: float, volume: Volume) -> Spent:
    rate = min(ios / wanted, volume.burst_iops) if wanted > 0 else math.nan
    above = rate - volume.baseline_iops
    if above > 0 and ios / rate >= left / above:
        lasting = left / above
        seconds = lasting + (ios - rate * lasting) / volume.baseline_iops
        return Spent(left, 0.0, seconds, ios / seconds, volume.baseline_iops)
    seconds = ios / rate if rate > 0 else wanted
    return Spent(left, min(left - above * seconds, volume.credits), seconds, rate, volume.burst_iops)
