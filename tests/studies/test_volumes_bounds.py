"""Latencies that are known without bins, and writes that reached no disk, decide as much as they can and no more."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from sbench.studies.volumes import fio_output, limits, tables
from sbench.studies.volumes.etcd_metrics import METRICS
from sbench.studies.volumes.series import Battery, Series
from sbench.verdicts import histograms
from sbench.verdicts.outcomes import Outcome
from tests.helpers.volumes_records import (
    OPTIONS,
    battery,
    chosen,
    fio_bins,
    gather,
    job_id,
    latencies,
    nth,
    record,
    sample,
    write_run,
)

# Those that fio names by default.
PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)


def plain(one: dict, percentiles: Sequence[float] = (1, 5, 10, 20, 50, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)) -> dict:
    """Return a record as of fio's JSON without bins: what lies between its percentiles."""
    ranges = {}
    for row in one["samples"]:
        bins = np.repeat(*np.transpose(one["histograms"][row["job_Id"]]["sync"]).astype(int))
        named = {p: int(nth(bins, p)) for p in percentiles}
        rows = fio_output.compute_ranges(named, len(bins), bins.min() * 0.99, bins.max() * 1.01, 0)
        ranges[row["job_Id"]] = {"sync": rows}
    return one | {"histograms": ranges}


@pytest.mark.rule(18)
@pytest.mark.parametrize("jobs", [1, 3, 20])
def test_without_bins_an_interval_is_never_narrower_than_with_them(tmp_path, jobs):
    for seed in range(5):
        medians = np.random.default_rng(seed).lognormal(0, 0.3, jobs)
        one, without = battery("disk", medians, seed), plain(battery("plain", medians, seed))
        found = gather(write_run(tmp_path / str(seed), [one, without]))
        cells = found["cells"].set_index("store")
        for name in ("p50_ms", "p99_ms"):
            assert cells.loc["plain", f"{name}_low"] <= cells.loc["disk", f"{name}_low"]
            assert cells.loc["plain", f"{name}_high"] >= cells.loc["disk", f"{name}_high"]


@pytest.mark.rule(18)
def test_a_limit_between_the_bounds_of_etcds_own_histogram_is_undecided(tmp_path):
    # 1,000 operations at most 1 ms, 8,900 at most 4 ms, 99 between 8 and 16 ms, one above.
    rows = [(0, 1_000_000, 1000), (1_000_000, 4_000_000, 8900), (8_000_000, 16_000_000, 99), (16_000_000, 10**18, 1)]
    row = sample(latencies(1), 1, sync_lat_p99_ms=None, sync_N=10_000, write_ios=None, started_s=None)
    one = record("etcd", [row], {job_id(1): {"sync": rows}}, job_options={"metric": METRICS["wal_fsync"]})
    limits = ["etcd", "etcd-commit", {"name": "low", "p99_ms": 0.5}, {"name": "high", "p99_ms": 17}]
    found = chosen(gather(write_run(tmp_path, imported=[one]), limits=limits)["verdicts"], segment="all")
    # Nobody has to wait a minute, nor for 20 jobs: it is all that this etcd has done.
    assert dict(zip(found["limit"], found["verdict"], strict=True)) == {
        "etcd": "undecided",
        "low": "misses",
        "high": "meets",
    }
    assert found["low_ms"].iloc[0] == pytest.approx(1)
    assert found["high_ms"].iloc[0] == pytest.approx(16)
    low, high = found[["operations_over_percent_low", "operations_over_percent_high"]].iloc[0]
    assert (low, high) == pytest.approx((0.01, 1.0))


@pytest.mark.parametrize(
    "scale, others, options, words",
    [
        (0.003, {}, {}, "half of the operations took 3 µs or less, too fast for a disk"),
        (1, {"device_write_ios": 0}, {}, "the device counted no writes, so none reached it"),
        (1, {}, {"ioengine": "falloc"}, "the engine falloc writes nothing"),
        (1, {"device_write_ios": 4000}, {}, ""),
    ],
)
def test_what_reached_no_disk_meets_no_limit(tmp_path, scale, others, options, words):
    one = battery("disk", np.full(30, scale))
    for number, row in enumerate(one["samples"]):
        row |= others | {"started_s": 10.0 * number}
    one |= {"job_options": OPTIONS | options}
    found = chosen(gather(write_run(tmp_path, [one]), limits=["etcd"])["verdicts"], segment="1").iloc[0]
    assert found["verdict"] == ("undecided" if words else "meets")
    assert words in found["reason"]


@pytest.mark.rule(18)
def test_without_bins_no_interval_is_narrower_than_with_them():
    """Random jobs with their bins and with fio's percentiles alone."""
    for seed in range(40):
        with_bins, with_ranges = judge_random_jobs(np.random.default_rng(seed))
        assert with_ranges["verdict"] in (with_bins["verdict"], Outcome.UNDECIDED)
        if not math.isnan(with_ranges["low_ms"]):
            assert with_ranges["low_ms"] <= with_bins["low_ms"]
            assert with_ranges["high_ms"] >= with_bins["high_ms"]


def judge_random_jobs(random: np.random.Generator) -> list[dict]:
    """Return the rows on a limit within or near the p99 of random jobs: with bins, and by fio's percentiles."""
    count, shape, spread = random.integers(1, 13), random.uniform(0.1, 1.5), random.choice([0, 0.02, 0.2])
    samples, bins, ranges = [], {}, {}
    for number, effect in enumerate(np.cumsum(random.normal(0, spread, count)), 1):
        ns = 1e6 * random.lognormal(effect, shape, random.integers(1_000, 12_000))
        ns = np.where(random.random(len(ns)) < random.choice([0, 0.01]), 5 * ns, ns).astype(np.int64)
        of_job = fio_bins(ns)
        # Latencies as their bins have them, so that a sample's percentiles are fio's.
        samples.append(sample(np.repeat(*of_job.T), number, 10 * number, device_write_ios=len(ns)))
        estimates = zip(PERCENTILES, histograms.percentiles([of_job], PERCENTILES), strict=True)
        named = {p: estimate.value for p, estimate in estimates if math.isfinite(estimate.value)}
        between = fio_output.compute_ranges(named, len(ns), float(ns.min()), float(ns.max()), 0)
        bins[job_id(number)] = {"sync": of_job / (1e6, 1)}
        ranges[job_id(number)] = {"sync": np.asarray(between, float) / (1e6, 1e6, 1)}
    height = float(np.median([row["sync_lat_p99_ms"] for row in samples])) * math.exp(random.normal(0, 0.05))
    limit, levels, rows = {"name": "mine", "p99_ms": height, "operation": "sync"}, ("disk", "etcd", "none", "", ""), []
    for by_job in (bins, ranges):
        volume = Series("disk", levels, (Battery("disk", levels, 1, record("disk", samples), [], by_job),))
        rows.append(limits.judge_limits(volume, tables.list_segments(volume), [limit])[1])
    return rows


@pytest.mark.rule(18)
@pytest.mark.parametrize("jobs, low, high", [(1, 1.0, 30.0), (5, 1.0, 30.0), (6, 10.2, 10.2)])
def test_of_few_jobs_without_bins_or_ranges_neighbouring_percentiles_are_the_interval(tmp_path, jobs, low, high):
    """A limit just below the p99 of a single job is undecided: how far others would differ is not known."""
    named = {"sync_lat_p50_ms": 1.0, "sync_lat_p99_ms": 10.2, "sync_lat_p99.9_ms": 30.0}
    samples = [sample(latencies(number), number, 60.0 * number, **named) for number in range(1, jobs + 1)]
    made = gather(write_run(tmp_path, [record("disk", samples)]), limits=["etcd"])["verdicts"]
    found = chosen(made, segment="1").iloc[0]
    assert (found["low_ms"], found["high_ms"]) == pytest.approx((low, high))
    assert found["verdict"] == ("misses" if jobs == 6 else "undecided")


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    "counted, options, verdict",
    [
        (None, {}, "undecided"),
        (4000, {}, "meets"),
        (None, {"direct": "1"}, "meets"),
        (None, {"sync": "dsync"}, "meets"),
        (None, {"direct": "0", "sync": "none"}, "undecided"),
    ],
)
def test_writes_without_a_sign_that_they_reached_a_device_meet_no_limit(tmp_path, counted, options, verdict):
    """Of writes that nobody forces to the disk, nothing but their device or its options tells where they ended."""
    one = battery("disk", np.full(30, 1))
    for number, row in enumerate(one["samples"]):
        latency = {key.replace("sync", "write"): row.pop(key) for key in list(row) if key.startswith("sync")}
        row |= latency | {"started_s": 10.0 * number, "device_write_ios": counted}
    one["histograms"] = {job: {"write": of["sync"]} for job, of in one["histograms"].items()}
    one["job_options"] = {key: value for key, value in OPTIONS.items() if key != "fdatasync"} | options
    limit = {"name": "mine", "p99_ms": 50}
    found = chosen(gather(write_run(tmp_path, [one]), limits=[limit])["verdicts"], segment="1").iloc[0]
    assert found["verdict"] == verdict
    assert ("no evidence that writes reached a device" in found["reason"]) == (verdict == "undecided")
    slow = chosen(gather(write_run(tmp_path, [one]), limits=[limit | {"p99_ms": 0.5}])["verdicts"], segment="1").iloc[0]
    assert slow["verdict"] == "misses"


@pytest.mark.parametrize(
    "scale, size, verdict",
    [(0.1, "128k", "meets"), (100, "128k", "undecided"), (0.1, "512", "undecided"), (100, "512", "misses")],
)
def test_writes_of_another_size_decide_only_what_follows_for_etcds(tmp_path, scale, size, verdict):
    one = battery("disk", np.full(30, scale))
    one["samples"] = [row | {"started_s": 10.0 * number} for number, row in enumerate(one["samples"])]
    one["job_options"] = OPTIONS | {"bs": size}
    found = chosen(gather(write_run(tmp_path, [one]), limits=["etcd"])["verdicts"], segment="1").iloc[0]
    assert found["verdict"] == verdict
    assert (verdict == "undecided") == ("bytes differ from etcd's 2,300 bytes" in found["reason"])


@pytest.mark.rule(18)
def test_a_lower_percentile_above_the_limit_decides_where_the_p99_is_refused(tmp_path):
    found = gather(write_run(tmp_path, [battery("disk", [200.0], operations=300)]), limits=["etcd"])["verdicts"]
    row = chosen(found, segment="1").iloc[0]
    assert (row["verdict"], np.isnan(row["value_ms"])) == ("misses", True)
    assert row["low_ms"] > 10
    assert "by a lower percentile; p99 is refused" in row["reason"]


@pytest.mark.rule(18)
def test_jobs_that_are_like_those_before_them_are_fewer(tmp_path):
    """The same 24 jobs, once each like the one before it and once in an order without a pattern."""
    medians = np.exp(0.15 * np.sin(np.arange(24)))
    mixed = np.random.default_rng(4).permutation(medians)
    widths = {}
    for name, own in (("alike", np.sort(medians)), ("mixed", mixed)):
        found = gather(write_run(tmp_path / name, [battery("disk", own, 1)]), limits=["etcd"])["verdicts"]
        row = chosen(found, segment="all").iloc[0]
        widths[name] = np.log(row["high_ms"] / row["low_ms"])
    assert widths["alike"] > 1.5 * widths["mixed"]


def test_a_limit_above_the_first_bucket_of_etcds_histogram_is_met(tmp_path):
    row = sample(latencies(1), 1, sync_lat_p99_ms=None, sync_N=10_000, write_ios=None, started_s=None)
    histogram = {job_id(1): {"sync": [(0, 1_000_000, 10_000)]}}
    one = record("etcd", [row], histogram, job_options={"metric": METRICS["wal_fsync"]})
    found = chosen(gather(write_run(tmp_path, imported=[one]), limits=["etcd"])["verdicts"], segment="all")
    assert [*found["verdict"]] == ["meets"]
