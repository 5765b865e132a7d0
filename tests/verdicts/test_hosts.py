"""Verdicts with the host as the unit, and the share of the spread that is between hosts."""

import numpy as np
import pytest

from sbench.verdicts import hosts, stats
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench import host_verdicts

SIX = [host for host in "abcdef" for _ in range(2)]


def test_many_sessions_of_few_hosts_have_no_verdict():
    d = np.full((30, 1), 0.2)
    assert hosts.judge_hosts(d, [*"abcde"] * 6)[0].verdict == Outcome.TOO_FEW
    verdict = hosts.judge_hosts(d, [*"abcdef"] * 5)[0]
    assert (verdict.verdict, verdict.blocks) == (Outcome.SLOWER, 6)
    assert verdict.ratio == pytest.approx(np.exp(0.2))


def test_a_host_with_more_sessions_counts_as_one():
    d = np.array([[0.0], [0.2], *[[0.1]] * 5, [np.nan]])
    values = hosts.average_hosts(d, [*"aabcdefg"])
    assert values[:, 0].tolist() == pytest.approx([0.1] * 6 + [np.nan], nan_ok=True)


def test_a_host_whose_sessions_disagree_keeps_the_others_from_a_verdict():
    d = np.array([[0.1]] * 10 + [[-0.3], [-0.3]])
    assert hosts.judge_hosts(d, SIX)[0].verdict == Outcome.NO_EVIDENCE


@pytest.mark.rule(17)
def test_same_requires_the_mean_times_to_agree():
    d = np.zeros((12, 1))
    assert hosts.judge_hosts(d, SIX)[0].verdict == Outcome.SAME
    assert hosts.judge_hosts(d, SIX, means=d + 0.2)[0].verdict == Outcome.NO_EVIDENCE


def test_the_spread_is_that_of_a_balanced_analysis_of_variance():
    """Three hosts of two sessions: the mean squares are 0.02 between hosts and 0.005 within."""
    d = np.array([-0.15, -0.05, -0.05, 0.05, 0.05, 0.15])
    spread = hosts.estimate_spread(d, [*"aabbcc"])
    assert spread.within**2 == pytest.approx(0.005)
    assert spread.between**2 == pytest.approx((0.02 - 0.005) / 2)
    assert spread.share == pytest.approx(0.0075 / 0.0125)
    assert 0 <= spread.low < spread.share < spread.high <= 1


def test_the_interval_of_the_share_has_its_coverage():
    covered = []
    for seed in range(400):
        random = np.random.default_rng(seed)
        d = np.repeat(random.normal(0, 0.05, 6), 2) + random.normal(0, 0.05, 12)
        spread = hosts.estimate_spread(d, SIX)
        covered.append(spread.low <= 0.5 <= spread.high)
    assert stats.estimate_share(sum(covered), len(covered)).low <= 0.95 <= np.mean(covered) + 0.02


@pytest.mark.parametrize("d, names", [([0.1, 0.2, 0.3], "abc"), ([0.1, 0.2], "aa"), ([0.1, np.nan, 0.2], "aab")])
def test_the_spread_is_unknown_without_two_sessions_on_a_host_and_two_hosts(d, names):
    assert np.isnan(hosts.estimate_spread(np.array(d), [*names])).all()


@pytest.mark.rule(17)
def test_a_host_that_is_slower_in_both_arms_causes_no_verdict_and_a_difference_is_detected():
    """The benchmark `hosts` has more runs of the same simulations."""
    runs = [host_verdicts.judge_simulated_hosts(host_verdicts.SLOW_HOST, seed) for seed in range(60)]
    assert (
        sum(any(verdict in ORDERED for verdict in run) for run in runs) <= stats.compute_binomial_quantiles(60, 0.05)[1]
    )
    runs = [host_verdicts.judge_simulated_hosts(host_verdicts.DIFFERENT, seed) for seed in range(60)]
    assert sum(run[0] == Outcome.SLOWER for run in runs) >= 54
