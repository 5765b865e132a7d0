"""Model the ceilings of volumes and the end of their burst credits (AWS EBS; facts: config/facts/volume_types.yaml).

gp2: a bucket of 5.4 million I/O credits fills at the baseline rate and empties at the rate of the I/Os. With credits
the volume does up to 3,000 I/Os a second, without them only the baseline. A credit is an I/O of the device: a forced
write of a file takes several (data, journal, metadata), `ios_per_write`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.studies.volumes import fio_facts
from sbench.studies.volumes.changes import Segment
from sbench.studies.volumes.promises import Volume, compute_promises
from sbench.studies.volumes.series import Series, get_started_utc

# Part of the text on a volume whose type lacks credits.
NO_CREDITS = "has no burst credits"
# Least ratio of the mean latency to the mean latency before that makes a change a collapse.
COLLAPSE = 1.5
# A bucket counts as full from this share on, and as spent up to 1 - FULL.
FULL = 0.95


class Spent(NamedTuple):
    """A modelled job: credits before and after it, its time, I/Os of the device a second, and allowed I/Os a second."""

    credits_start: float
    credits_end: float
    modelled_s: float
    modelled_iops: float
    allowed_iops: float


def build_credit_tables(
    series: Sequence[Series], segments: Mapping[tuple, list[Segment]]
) -> tuple[list[dict], list[dict]]:
    """Return rows of modelled jobs, and a row per valid battery on a volume with a type, in the order of the series.

    A job has its credits and the I/Os that they allowed. A battery has the credits that it `began` with (`full`,
    `spent`, `partly spent`; "" without a model), and the jobs in which they run out by the model and in which a
    collapse began, as numbers, names and text. Credits carry over between batteries of a volume (store and host). A
    battery begins with full credits if it is the first, its start is unknown or the battery before failed, unless its
    record has a start state.
    """
    batteries = [(one, battery) for one in series for battery in one.batteries]
    jobs: dict[int, list[dict]] = {}
    collapses: dict[int, dict] = {}
    # By volume: the end of its last battery (seconds since 1970), and the credits left.
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
    """Return the first segment whose mean latency (median of its jobs) is 1.5 times the previous segment's or more."""
    middles = [jobs["mean_ms"].iloc[one.first : one.last].median() for one in segments]
    steps = zip(middles, middles[1:], segments[1:], strict=False)
    return next((one for before, after, one in steps if after >= COLLAPSE * before), None)


def estimate_ios_per_write(jobs: pd.DataFrame, slow: pd.DataFrame, volume: Volume) -> tuple[float, str]:
    """Return the I/Os of the device per write of fio, and the source of the figure.

    The device's count comes first. Without it, jobs that the volume seems to have throttled (`slow`) give baseline ×
    time / writes, because there it does its baseline and the I/Os that it earns in the pauses; skip the first of them,
    which began with credits. This is hindsight. Otherwise the figure is 1, the least.
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
    """Return a battery's jobs as the credits allow them, starting with `start` credits (None: a full bucket).

    A job asks for its writes × `each` (device I/Os per write) and its reads in the time that it took. From place
    `collapsed` on it asks for them in the median time of the jobs before, because missing credits made these jobs slow.
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
