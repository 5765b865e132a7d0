"""Whether fio's results without bins are judged more narrowly than the same with bins."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sbench.studies.volumes import fio_output, limits, tables
from sbench.studies.volumes.series import Battery, Series
from sbench.verdicts import histograms
from sbench.verdicts.outcomes import Outcome
from tests import volumes_records
from tests.bench.common import Row, Say

# What fio names by default.
_PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
_LEVELS = ("volume", "etcd", "none", "", "")
_PAUSE_S = 10


def rows(folder: Path, say: Say, runs: int = 300) -> Iterator[Row]:
    """Judge 300 random series of jobs with fio's bins, with its percentiles alone, and with fewer of these."""
    judged = [_judge(np.random.default_rng(seed)) for seed in range(runs)]
    for place, what in enumerate(("by fio's percentiles", "by p50, p99, p99.9 and p99.99"), 1):
        say(what)
        narrower = sum(not _holds(of[place], of[0]) for of in judged)
        turned = [of for of in judged if of[place]["verdict"] not in (of[0]["verdict"], Outcome.UNDECIDED)]
        against = f"another verdict in {len(turned)}"
        limit = {"limit": "0", "within": not narrower} if place == 1 else {}
        yield Row(f"series judged more narrowly {what} than by bins", f"{narrower} of {runs}", against, **limit)


def _holds(wide: dict, narrow: dict) -> bool:
    """Return whether an interval holds another one; nothing holds one that is refused, which decides nothing."""
    if any(map(math.isnan, (narrow["low_ms"], narrow["high_ms"]))):
        return True
    return not (wide["low_ms"] > narrow["low_ms"] or wide["high_ms"] < narrow["high_ms"])


def _judge(random: np.random.Generator) -> list[dict]:
    """Return the rows on a limit within or near the p99 of random jobs: with bins, by percentiles, by few of these."""
    count, shape, spread = random.integers(1, 13), random.uniform(0.1, 1.5), random.choice([0, 0.02, 0.2])
    effects, samples, bins, ranges = np.cumsum(random.normal(0, spread, count)), [], {}, {}
    for number, effect in enumerate(effects, 1):
        ns = 1e6 * random.lognormal(effect, shape, random.integers(1_000, 12_000))
        ns = np.where(random.random(len(ns)) < random.choice([0, 0.01]), 5 * ns, ns).astype(np.int64)
        own = volumes_records.fio_bins(ns)
        samples.append(volumes_records.sample(_at_bins(ns), number, number * _PAUSE_S, device_write_ios=len(ns)))
        named = histograms.percentiles([own], _PERCENTILES)
        by_percent = {p: one.value for p, one in zip(_PERCENTILES, named, strict=True) if math.isfinite(one.value)}
        between = fio_output.ranges_between(by_percent, len(ns), float(ns.min()), float(ns.max()), 0)
        job = samples[-1]["job_Id"]
        bins[job] = {"sync": np.asarray(own, float) / (1e6, 1)}
        ranges[job] = {"sync": np.asarray(between, float) / (1e6, 1e6, 1)}
    height = float(np.median([sample["sync_lat_p99_ms"] for sample in samples])) * math.exp(random.normal(0, 0.05))
    return [_verdict(samples, height, histograms_of) for histograms_of in (bins, ranges, {})]


def _at_bins(ns: np.ndarray) -> np.ndarray:
    """Return latencies as their bins have them, so that a sample's percentiles are fio's."""
    return np.repeat(*volumes_records.fio_bins(ns).T)


def _verdict(samples: list[dict], height: float, by_job: dict) -> dict:
    record = volumes_records.record("volume", samples)
    series = Series("volume", _LEVELS, (Battery("volume", _LEVELS, 1, record, [], by_job),))
    limit = {"name": "mine", "p99_ms": height, "operation": "sync"}
    return limits.verdicts(series, tables.segments_of(series), [limit])[1]
