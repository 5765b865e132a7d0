"""Limits of latency with their sources, and whether a series of jobs keeps them: meets, misses or undecided."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from scripts.statistics import histograms, resampling
from scripts.studies.volumes import study
from scripts.studies.volumes.changes import Segment
from scripts.studies.volumes.series import histograms_of, percentiles

METRIC = "p99"
# A battery below these has not met a limit, however fast: it ended before a volume's caches and credits did.
LEAST_JOBS, LEAST_S = 20, 60.0


class Limit(NamedTuple):
    """A p99 in ms that a latency must stay below, who says so, and of which operation; "" is of any."""

    name: str
    ms: float
    source: str
    operation: str = ""


def read(entries: Sequence[str | dict]) -> list[Limit]:
    """Return the limits of a configuration: names in config/facts/limits.yaml, or mappings like those there."""
    documented = study.documented(study.LIMITS)["limits"]
    named = [{"name": entry, **documented[entry]} if isinstance(entry, str) else entry for entry in entries]
    return [
        Limit(one["name"], float(one["p99_ms"]), " ".join(one.get("source", "").split()), one.get("operation", ""))
        for one in named
    ]


def p99(jobs: pd.DataFrame, seed: int = 1) -> histograms.Percentile:
    """Return the p99 of jobs together with its interval (`series.percentiles`)."""
    return percentiles(jobs, [99], seed).get(99, histograms.Percentile(*[math.nan] * 4, "no job has a p99"))


def judge(estimate: histograms.Percentile, limit_ms: float) -> str:
    """Return `meets` if the interval lies below the limit, `misses` if at it or above, else `undecided`."""
    if estimate.high < limit_ms:
        return "meets"
    return "misses" if estimate.low >= limit_ms else "undecided"


def verdicts(
    jobs: pd.DataFrame, segments: Sequence[Segment], limits: Sequence[Limit], seed: int = 1, memory: str = ""
) -> list[dict]:
    """Return a row a limit and segment of a series, "all" first: its jobs, the p99 with its interval, the verdict.

    The whole series meets a limit only if every segment does, and misses it if any does: a volume that is fast for an
    hour and slow ever after has a p99 between the two that it never showed. Its figures are of all jobs. `kept_s` is
    the time from a battery's start until the first segment that does not meet the limit, the shortest of several
    batteries, empty if all meet it. Where something (`memory`) kept the files in memory, nothing is decided.
    """
    short = _short(jobs)
    parts = [jobs.iloc[one.first : one.last] for one in segments]
    estimates = [p99(part, seed) for part in parts]
    whole = p99(jobs, seed) if len(parts) != 1 else estimates[0]
    rows = []
    for limit in limits:
        head = {"limit": limit.name, "metric": METRIC, "limit_ms": limit.ms, "source": limit.source}
        judged = []
        for number, (part, estimate) in enumerate(zip(parts, estimates, strict=True), 1):
            word = judge(estimate, limit.ms)
            doubt = f"the files lay in memory ({memory}), on no volume" if memory else ""
            doubt = doubt or (short[int(part["repeat"].iloc[0])] if word == "meets" else "")
            word = "undecided" if doubt else word
            judgement = {"verdict": word, "kept_s": math.nan, "reason": _reason(part, estimate, limit, word, doubt)}
            judged.append({**head, "segment": str(number), **_figures(part, estimate, limit), **judgement})
        words = [row["verdict"] for row in judged]
        rows += [{**head, "segment": "all", **_figures(jobs, whole, limit), **_whole(jobs, parts, words)}, *judged]
    return rows


def _short(jobs: pd.DataFrame) -> dict[int, str]:
    """Why a battery is too short to meet a limit, by its repeat; "" where it is not, or its time is not known."""
    reasons = {}
    for repeat, own in jobs.groupby("repeat"):
        seconds = float(own["start_s"].iloc[-1] + own["seconds"].iloc[-1])
        few = len(own) < LEAST_JOBS or seconds < LEAST_S
        time = "" if math.isnan(seconds) else f" in {seconds:.0f} s"
        count = f"{len(own)} job{'s' * (len(own) > 1)}{time}"
        reasons[int(repeat)] = f"{count} is too short a battery to meet a limit" if few else ""
    return reasons


def _figures(jobs: pd.DataFrame, estimate: histograms.Percentile, limit: Limit) -> dict:
    return {
        "repeat": int(jobs["repeat"].iloc[0]) if jobs["repeat"].nunique() == 1 else None,
        "first_job": jobs["job_Id"].iloc[0] if len(jobs) else "",
        "last_job": jobs["job_Id"].iloc[-1] if len(jobs) else "",
        "jobs": len(jobs),
        "jobs_over": int((jobs["p99_ms"] >= limit.ms).sum()),
        "value_ms": estimate.value,
        "low_ms": estimate.low,
        "high_ms": estimate.high,
    }


def _whole(jobs: pd.DataFrame, parts: list[pd.DataFrame], words: list[str]) -> dict:
    if not parts:
        return {"verdict": "undecided", "kept_s": math.nan, "reason": "no valid battery"}
    if set(words) == {"meets"}:
        return {"verdict": "meets", "kept_s": math.nan, "reason": "every segment meets it"}
    verdict = "misses" if "misses" in words else "undecided"
    kept = [float(part["start_s"].iloc[0]) for part, word in zip(parts, words, strict=True) if word != "meets"]
    where = [
        f"segment {number} (jobs {part['number'].iloc[0]} to {part['number'].iloc[-1]})"
        for number, (part, word) in enumerate(zip(parts, words, strict=True), 1)
        if word == verdict
    ]
    derived = "" if jobs["timed"].all() else "; times are derived from latencies and pauses"
    kept_s = float(np.nanmin(kept)) if np.isfinite(kept).any() else math.nan
    return {"verdict": verdict, "kept_s": kept_s, "reason": f"{' and '.join(where)}: {verdict}{derived}"}


def _reason(jobs: pd.DataFrame, estimate: histograms.Percentile, limit: Limit, word: str, doubt: str) -> str:
    if estimate.reason:
        return estimate.reason
    bound = {
        "meets": f"at most {estimate.high:.3g} ms",
        "misses": f"at least {estimate.low:.3g} ms",
        "undecided": doubt or f"{limit.ms:g} ms lies in the interval",
    }[word]
    few = f"; {len(jobs)} jobs are too few to resample" if len(jobs) < resampling.LEAST else ""
    return bound + (few if histograms_of(jobs) else "; bounds of the jobs' own p99, as there are no bins to merge")
