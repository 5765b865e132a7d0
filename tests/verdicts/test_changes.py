"""Changes of level are found where they are, and not where there are none."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import signal
from scipy import stats as scipy_stats

from sbench.verdicts import changes

NOISES = {
    "lognormal": lambda random, n: 0.1 * random.normal(size=n),
    "autocorrelated": lambda random, n: signal.lfilter([1], [1, -0.3], 0.1 * random.normal(size=n + 50))[50:],
    "heavy tails": lambda random, n: 0.1 * random.standard_t(3, size=n),
}


def starts(values):
    """The first places of the segments after the first."""
    return [segment.first for segment in changes.find_segments(values)[1:]]


def at_most(hits, runs, rate):
    """Whether a rate is not above `rate`, with 99.9 % confidence that a higher one would be seen."""
    return scipy_stats.binomtest(hits, runs).proportion_ci(0.999).low <= rate


@pytest.mark.thorough
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("jobs", [6, 12, 50, 200])
def test_a_series_without_a_change_is_given_one_in_at_most_5_percent(noise, jobs):
    random = np.random.default_rng(jobs)
    runs = 500
    alarms = sum(bool(starts(np.exp(NOISES[noise](random, jobs)))) for _ in range(runs))
    assert alarms / runs <= 0.05


@pytest.mark.thorough
def test_a_jump_by_half_amid_10_percent_of_noise_is_found_at_its_job():
    random = np.random.default_rng(1)
    runs, found = 300, 0
    for _ in range(runs):
        job = int(random.integers(5, 46))
        level = np.where(np.arange(50) >= job, 1.5, 1.0)
        places = starts(level * np.exp(NOISES["lognormal"](random, 50)))
        found += len(places) == 1 and abs(places[0] - job) <= 1
    assert found / runs >= 0.95


def test_each_of_several_changes_is_found_up_and_down():
    level = np.repeat([1.0, 3.0, 1.2, 5.0], [12, 10, 15, 13])
    values = level * np.exp(0.05 * np.random.default_rng(2).normal(size=50))
    found = changes.find_segments(values)
    assert [(segment.first, segment.last) for segment in found] == [(0, 12), (12, 22), (22, 37), (37, 50)]
    for segment, jump in zip(found[1:], (3, 0.4, 5 / 1.2), strict=True):
        assert segment.low <= jump <= segment.high
        assert segment.jump == pytest.approx(jump, rel=0.06)
    assert [segment.level for segment in found] == pytest.approx([1, 3, 1.2, 5], rel=0.05)
    assert math.isnan(found[0].jump)


def test_spikes_of_single_jobs_are_no_change():
    values = np.exp(0.05 * np.random.default_rng(3).normal(size=50))
    values[[7, 20, 21, 40]] *= 6
    assert starts(values) == []


def test_a_change_that_does_not_matter_is_none():
    random = np.random.default_rng(4)
    steady = np.exp(0.004 * random.normal(size=50))
    assert starts(steady * np.where(np.arange(50) < 25, 1, 1.08)) == []
    assert starts(steady * np.where(np.arange(50) < 25, 1, 1.12)) == [25]
    assert starts(steady * np.where(np.arange(50) < 25, 1, 0.85)) == [25]
    larger = changes.find_segments(steady * np.where(np.arange(50) < 25, 1, 1.12), equivalence_percent=15)
    assert len(larger) == 1


def test_fewer_than_six_jobs_tell_no_change():
    assert starts([1, 1, 50, 50, 50]) == []
    assert starts([1, 1, 1, 50, 50, 50]) == [3]
    assert changes.find_segments([]) == []
    assert changes.find_segments([2.0])[0].level == 2.0


def test_jobs_that_agree_to_the_bin_have_no_change():
    values = np.full(40, 18.219008)
    values[::3] *= 1 + 1 / 64
    assert starts(values) == []


def test_the_unit_does_not_matter():
    values = np.where(np.arange(30) < 9, 1, 2) * np.exp(0.1 * np.random.default_rng(5).normal(size=30))
    assert starts(values) == starts(1e6 * values) == [9]


def test_few_jobs_on_a_side_give_a_wide_interval():
    random = np.random.default_rng(6)
    values = np.exp(0.05 * random.normal(size=20)) * np.where(np.arange(20) < 17, 1, 4)
    segment = changes.find_segments(values)[1]
    own = values[17:] / np.median(values[:17])
    assert segment.low <= own.min()
    assert own.max() <= segment.high


def test_the_published_volumes_change_where_they_did(published):
    rows = pd.read_csv(published / "fio-ebs" / "all_metrics_long.csv")
    found = {}
    for layout, jobs in rows.groupby("layout"):
        found[layout] = [jobs["job_Id"].iloc[place] for place in starts(jobs["sync_lat_p99_ms"].to_numpy())]
    assert found == {"gp2x1": ["g3"], "gp2x2": ["h3"], "gp3x1": [], "gp3x2": []}
