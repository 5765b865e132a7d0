"""Percentiles of histograms are those of the operations, and their intervals hold what they promise."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from sbench.verdicts import histograms, stats
from tests.helpers.volumes_records import fio_bins, nth


def exact(values):
    """A histogram with a bin a value."""
    return np.column_stack(np.unique(values, return_counts=True)).astype(float)


def drifting(random, jobs, operations, drift=0.1):
    """Latencies of jobs whose level drifts: (jobs, operations)."""
    return random.lognormal(0, 0.5, (jobs, operations)) * random.lognormal(0, drift, (jobs, 1))


def bounds(hits, runs):
    """The 99.9 % interval of a simulated rate (Clopper-Pearson)."""
    return scipy_stats.binomtest(hits, runs).proportion_ci(0.999)


@pytest.mark.parametrize("p", [1, 50, 99, 99.9])
def test_a_percentile_is_the_operation_of_its_rank(p):
    values = np.random.default_rng(1).exponential(size=20_000)
    assert histograms.percentiles([exact(values)], [p])[0].value == nth(values, p)


@pytest.mark.parametrize("p", [50, 90, 99, 99.9])
def test_in_bins_of_fio_a_percentile_is_within_0_8_percent(p):
    values = np.random.default_rng(2).lognormal(14, 1, 30_000)
    found = histograms.percentiles([fio_bins(values)], [p])[0].value
    assert found == pytest.approx(nth(values, p), rel=0.0079)


@pytest.mark.parametrize("p", [50, 99])
def test_one_jobs_interval_is_that_of_order_statistics(p):
    values = np.random.default_rng(3).exponential(size=3_000)
    found = histograms.percentiles([exact(values)], [p])[0]
    expected = scipy_stats.quantile_test(values, p=p / 100).confidence_interval(0.95)
    assert (found.low, found.high, found.n) == (expected.low, expected.high, 3_000)


@pytest.mark.rule(18)
def test_jobs_are_merged_and_not_averaged():
    random = np.random.default_rng(4)
    fast, slow = random.exponential(1, 9_000), random.exponential(10, 3_000)
    found = histograms.percentiles([exact(fast), exact(slow)], [99])[0]
    assert found.value == nth(np.concatenate([fast, slow]), 99)
    assert found.value > 1.2 * np.mean([np.quantile(job, 0.99) for job in (fast, slow)])


@pytest.mark.rule(18)
def test_a_percentile_is_refused_where_fewer_than_ten_operations_lie_beyond():
    values = np.random.default_rng(5).exponential(size=10_000)
    told, small = histograms.percentiles([exact(values)], [99.9, 0.1])
    assert (values > told.value).sum() == 10
    assert (told.reason, small.reason) == ("", "")
    refused, below = histograms.percentiles([exact(values[:-1])], [99.9, 0.05])
    assert np.isnan(refused[:3]).all()
    assert refused.reason == "p99.9 is refused: 9 of 9,999 operations lie beyond it, 10 are needed"
    assert "5 of 9,999" in below.reason
    assert histograms.describe_refusal(math.nan, 99.99) == ""


def test_merged_jobs_have_the_interval_of_a_bootstrap_of_jobs():
    random = np.random.default_rng(6)
    values = drifting(random, 12, 1_000)
    picks = random.integers(0, 12, (2_000, 12))
    drawn = [nth(values[pick], 99) for pick in picks]
    tail = scipy_stats.norm.cdf(-math.sqrt(12 / 11) * scipy_stats.t.ppf(0.975, 11))
    found = histograms.percentiles([exact(job) for job in values], [99])[0]
    np.testing.assert_allclose([found.low, found.high], np.quantile(drawn, [tail, 1 - tail]), rtol=0.02)
    merged, resampled = histograms.resample_percentiles([exact(job) for job in values], [50, 99])
    assert merged == [nth(values, 50), nth(values, 99)]
    assert resampled.shape == (2_000, 2)
    again = histograms.percentiles([exact(job) for job in values], [50, 99])[1]
    assert again == found
    assert histograms.percentiles([exact(job) for job in values], [99], seed=2)[0] != found


def test_jobs_that_agree_have_the_interval_of_their_operations():
    values = np.random.default_rng(7).exponential(size=2_000)
    found = histograms.percentiles([exact(values)] * 10, [99])[0]
    expected = scipy_stats.quantile_test(np.tile(values, 10), p=0.99).confidence_interval(0.95)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("jobs", [2, 5])
def test_few_jobs_have_the_range_of_their_own(jobs):
    values = drifting(np.random.default_rng(8), jobs, 2_000, drift=0.5)
    own = np.quantile(values, 0.99, axis=1, method="inverted_cdf")
    found = histograms.percentiles([exact(job) for job in values], [99])[0]
    assert found.low <= own.min() < own.max() <= found.high


@pytest.mark.rule(18)
@pytest.mark.thorough
@pytest.mark.parametrize("jobs", [6, 20, 50])
def test_merged_intervals_hold_the_p99_of_drifting_jobs(jobs):
    """The level of the jobs drifts by 10 %; the order statistics of the operations, which know of none, hold less."""
    random = np.random.default_rng(jobs)
    truth = np.quantile(drifting(random, 4_000, 300).ravel(), 0.99)
    runs, hits, alone = 100, 0, 0
    for _ in range(runs):
        latencies = 1e6 * drifting(random, jobs, 300)
        found = histograms.percentiles(list(map(fio_bins, latencies)), [99])[0]
        hits += found.low <= truth * 1e6 * 1.008 and truth * 1e6 * 0.992 <= found.high
        once = histograms.percentiles([fio_bins(latencies.ravel())], [99])[0]
        alone += once.low <= truth * 1e6 <= once.high
    assert bounds(hits, runs).high >= 0.95
    assert hits / runs >= 0.9
    assert alone < hits


def test_without_bins_the_merged_percentile_lies_within_the_bounds():
    random = np.random.default_rng(9)
    for _ in range(200):
        jobs = [random.lognormal(random.normal(), 1, random.integers(100, 500)) for _ in range(random.integers(1, 9))]
        own = [nth(job, 99) for job in jobs]
        found = histograms.compute_bounds(own)
        assert found.low <= nth(np.concatenate(jobs), 99) <= found.high
        assert found.value == np.median(own)
    assert np.isnan(histograms.compute_bounds([math.nan])[:4]).all()


@pytest.mark.rule(18)
def test_a_percentile_of_ranges_reaches_from_their_lowest_ends_to_their_highest():
    bins = np.array([[1e-3, 90], [2e-3, 900], [4e-3, 100]])
    (of_bins,), (same,) = (way([bins], [50]) for way in (histograms.percentiles, histograms.bounded_percentiles))
    half = histograms.RESOLUTION / 2
    assert same.value == pytest.approx(of_bins.value)
    assert (same.low, same.high) == pytest.approx((of_bins.low * (1 - half), of_bins.high * (1 + half)))
    wide = np.array([[1e-3, 1.1e-3, 90], [1.5e-3, 2e-3, 900], [4e-3, 5e-3, 100]])
    (apart, tail) = histograms.bounded_percentiles([wide], [50, 95])
    assert math.isnan(apart.value)
    assert (apart.low, apart.high, apart.n) == (1.5e-3, 2e-3, 1090)
    assert (tail.low, tail.high) == (4e-3, 5e-3)
    (refused,) = histograms.bounded_percentiles([wide], [99.9])
    assert refused.reason.startswith("p99.9 is refused")


def test_moments_are_those_of_the_operations():
    values = np.random.default_rng(10).lognormal(14, 0.7, 5_000)
    found = histograms.compute_moments(exact(values))
    assert found == pytest.approx((5_000, values.mean(), values.std(ddof=1), values.max()))
    binned = histograms.compute_moments(fio_bins(values))
    assert binned == pytest.approx(found, rel=0.008)
    assert histograms.compute_moments(np.empty((0, 2))).n == 0
    assert np.isnan(histograms.compute_moments(exact(values[:1])).stddev)
    assert histograms.compute_moments(exact(values[:2])).stddev == pytest.approx(values[:2].std(ddof=1))


@pytest.mark.rule(18)
def test_an_operation_lies_somewhere_in_its_bin():
    """Of the 64 bins between a power of two and the next, the one at 100 reaches from 99.22 to 100.78."""
    histogram = np.array([[50, 9], [100, 3], [200, 2]])
    sums = {99: [5, 5, 5], 99.5: [2, 5, 5], 100: [2, 5, 5], 100.5: [2, 2, 5], 101: [2, 2, 2]}
    for limit, counts in sums.items():
        assert histograms.compute_at_or_above(histogram, limit)[:, 0].tolist() == counts
    least, middle, most = histograms.compute_at_or_above(histogram, 99)[:, 1]
    assert middle == 700
    assert (least, most) == pytest.approx((700 * (1 - 1 / 128), 700 * (1 + 1 / 128)))


def test_the_pooled_standard_deviation_is_that_of_all_operations():
    random = np.random.default_rng(11)
    jobs = [random.normal(mean, 1 + mean, size) for mean, size in ((1, 50), (5, 400), (2, 3))]
    told = [[job.mean() for job in jobs], [job.std(ddof=1) for job in jobs], [len(job) for job in jobs]]
    assert histograms.compute_pooled_stddev(*told) == pytest.approx(np.concatenate(jobs).std(ddof=1))
    assert math.isnan(histograms.compute_pooled_stddev([1.0], [math.nan], [math.nan]))


def test_resampled_medians_of_few_values_are_the_values_and_of_more_lie_between():
    assert set(histograms.resample_medians([3, 1, 2, 9, 7])) == {1, 2, 3, 7, 9}
    values = np.random.default_rng(15).normal(size=50)
    drawn = histograms.resample_medians(values)
    assert drawn.std() == pytest.approx(np.sqrt(np.pi / 2 / 50), rel=0.3), "that of a median of normal values"
    assert not (drawn == histograms.resample_medians(values, arm=1)).all()


@pytest.mark.rule(16)
def test_a_rate_is_a_total_over_a_total_with_its_interval():
    random = np.random.default_rng(12)
    amounts, seconds = random.integers(100, 1_000, 20), random.uniform(1, 9, 20)
    found = stats.estimate_total_ratio(amounts, seconds)
    assert found.value == pytest.approx(amounts.sum() / seconds.sum())
    picks = random.integers(0, 20, (4_000, 20))
    drawn = amounts[picks].sum(axis=1) / seconds[picks].sum(axis=1)
    tail = scipy_stats.norm.cdf(-math.sqrt(20 / 19) * scipy_stats.t.ppf(0.975, 19))
    np.testing.assert_allclose([found.low, found.high], np.quantile(drawn, [tail, 1 - tail]), rtol=0.03)
    few = stats.estimate_total_ratio([10, 30, math.nan], [1, 1, 1])
    assert few == (20, 10, 30, 2)
    assert np.isnan(stats.estimate_total_ratio([10], [1])[1:3]).all()
    assert math.isnan(stats.estimate_total_ratio([], []).value)


def test_jobs_without_operations_change_nothing():
    jobs = [exact(job) for job in drifting(np.random.default_rng(13), 8, 500)]
    empty = np.array([[5.0, 0.0]])
    assert histograms.percentiles([*jobs, empty], [50, 99]) == histograms.percentiles(jobs, [50, 99])
    assert math.isnan(histograms.percentiles([empty], [50])[0].value)


def test_percentiles_rise_and_lie_in_their_intervals():
    jobs = [fio_bins(1e6 * job) for job in drifting(np.random.default_rng(14), 50, 20_000)]
    asked = np.linspace(1, 99, 34)
    found = histograms.percentiles(jobs, asked)
    assert [one.value for one in found] == sorted(one.value for one in found)
    assert all(one.low <= one.value <= one.high for one in found)
