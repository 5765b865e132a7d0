"""How often a volume that keeps a limit misses it by batteries of fio, and one that misses it meets it."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sbench.studies.volumes import fit, limits, tables
from sbench.studies.volumes.series import Battery, Series
from sbench.verdicts.outcomes import Outcome
from tests import volumes_records
from tests.bench.common import Row, Say, count_false

# Jobs of a battery and their writes; sd of ln(p99) between batteries, and between jobs, which are like those before.
JOBS, WRITES, BATTERIES, SPREADS, NOISE, KEPT = 20, 2_000, (1, 3), (0.03, 0.05), 0.05, 0.5
BELOW, ABOVE, LIMIT_MS = 0.97, 1.03, 10.0
_SHAPE = 0.5  # sd of ln(latency) within a job
_P99 = math.exp(2.326 * _SHAPE)
_LEVELS = ("volume", "etcd", "none", "", "")
_LIMIT = {"name": "etcd", "p99_ms": LIMIT_MS, "operation": "sync", "job": "etcd"}
_RATE = 0.1


def rows(folder: Path, say: Say, runs: int = 200) -> Iterator[Row]:
    """Judge 200 simulated volumes of each kind whose p99 is 3 % below a limit, or above it, and clear ones."""
    for spread in SPREADS:
        for height, wrong in ((BELOW, Outcome.MISSES), (ABOVE, Outcome.MEETS)):
            what = f"`{wrong}` at {height:g} of the limit, batteries differ by {100 * spread:.0f} %"
            say(what)
            words = [_judge(np.random.default_rng(seed), height, spread) for seed in range(runs)]
            for place, source in enumerate((*(f"report of {count}" for count in BATTERIES), "sbench fit")):
                yield count_false(f"{what}: {source}", [of[place] for of in words].count(wrong), runs, _RATE)
    for height, right in ((0.8, Outcome.MEETS), (1.2, Outcome.MISSES)):
        say(f"a volume at {height:g} of the limit")
        words = [_judge(np.random.default_rng(seed), height, SPREADS[-1]) for seed in range(runs)]
        counts = (f"{[of[place] for of in words].count(right)}" for place in range(3))
        what = f"`{right}` at {height:g} of the limit, batteries differ by {100 * SPREADS[-1]:.0f} %"
        yield Row(what, f"{', '.join(counts)} of {runs}", "reports of 1 and 3 batteries, sbench fit")


def _judge(random: np.random.Generator, height: float, spread: float) -> tuple[str, ...]:
    """Return the words on a volume whose p99 is `height` × the limit: of reports of 1 and 3 batteries, and of fit."""
    batteries = [_battery(random, repeat, height, spread) for repeat in range(1, max(BATTERIES) + 1)]
    course = fit.Course(_LIMIT)
    judged = {count: _verdicts(batteries[:count]) for count in range(1, max(BATTERIES) + 1)}
    for count, course.rows in judged.items():
        course.batteries = [battery.record for battery in batteries[:count]]
        if course.is_missed:
            break
    return (*(judged[count][0]["verdict"] for count in BATTERIES), course.word())


def _verdicts(batteries: list[Battery]) -> list[dict]:
    series = Series("volume", _LEVELS, tuple(batteries))
    return limits.verdicts(series, tables.segments_of(series), [_LIMIT])


def _battery(random: np.random.Generator, repeat: int, height: float, spread: float) -> Battery:
    """Return a battery whose jobs have a common effect, and one each that is like that of the job before."""
    battery, job, samples, histograms, started = random.normal(0, spread), random.normal(0, NOISE), [], {}, 0.0
    for number in range(1, JOBS + 1):
        job = KEPT * job + random.normal(0, NOISE * math.sqrt(1 - KEPT**2))
        median = height * LIMIT_MS / _P99 * math.exp(battery + job)
        latencies = 1e6 * median * random.lognormal(0, _SHAPE, WRITES)
        samples.append(volumes_records.sample(latencies, number, started, device_write_ios=2 * WRITES))
        bins = volumes_records.fio_bins(latencies) / (1e6, 1)
        histograms[samples[-1]["job_Id"]] = {"sync": bins}
        started += samples[-1]["runtime_s"] + 10
    return Battery("volume", _LEVELS, repeat, volumes_records.record("volume", samples), [], histograms)
