"""Looks at a growing run: one error level for all, and verdicts that later blocks do not change."""

import math

import numpy as np
import pytest

from sbench.verdicts import looks, stats
from sbench.verdicts.outcomes import ORDERED, Outcome

ENDS = looks.list_looks(6, 20)


def draw(seed: int, many: int, noise: float = 0.1, effects: tuple[float, ...] = ()) -> np.ndarray:
    d = np.random.default_rng(seed).normal(0, noise, (20, many))
    d[:, : len(effects)] += np.log(effects)
    return d


def judge(d: np.ndarray, ends: list[int] = ENDS, **given) -> list[looks.State]:
    """Return the last state of each comparison."""
    return [states[-1] for states in looks.judge_looks(d, looks.plan_schedule(ends, [20] * len(ends)), **given)]


def outcomes(stops: list[looks.State]) -> list[Outcome]:
    return [stop.verdict.verdict for stop in stops]


@pytest.mark.rule(5)
def test_looks_are_at_even_numbers_of_blocks_up_to_the_most():
    assert ENDS == [6, 8, 10, 12, 16, 20]
    assert looks.list_looks(6, 12) == [6, 8, 10, 12]
    assert looks.list_looks(6, 14) == [6, 8, 10, 12, 14]
    assert looks.list_looks(10, 20) == [10, 12, 16, 20]
    assert looks.list_looks(6, 6) == [6]


@pytest.mark.rule(5)
def test_the_level_grows_from_one_in_32_to_less_than_that_of_a_single_look():
    spent = looks.plan_schedule(ENDS, [20] * 6).levels
    assert spent[0] == 1 / 32
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(0.9 * stats.LEVEL)
    assert looks.plan_schedule([10], [10]).levels == [stats.LEVEL]


@pytest.mark.rule(5)
def test_a_raised_most_leaves_earlier_levels_alone_and_spends_half_of_the_rest():
    ends = [6, 8, 10, 16, 20, 40]
    levels = looks.plan_schedule(ends, [10, 10, 10, 20, 20, 40]).levels
    assert levels[:3] == looks.plan_schedule(ends[:3], [10] * 3).levels
    assert levels[2] == pytest.approx(0.045)
    assert levels[4] == pytest.approx(0.0475)
    assert levels[5] == pytest.approx(0.04875)
    assert levels == sorted(levels)


@pytest.mark.rule(5)
@pytest.mark.parametrize("seed", range(5))
def test_a_raised_most_changes_no_verdict(seed: int):
    d = draw(seed, 6, effects=(2.0, 1.3, 1.15))
    short = looks.judge_looks(d[:10], looks.plan_schedule([6, 8, 10], [10] * 3))
    longer = looks.judge_looks(d, looks.plan_schedule([6, 8, 10, 16, 20], [10, 10, 10, 20, 20]))
    for before, after in zip(short, longer, strict=True):
        if before[-1].name in (looks.DECIDED, looks.SAME):
            assert after[len(before) - 1].verdict.verdict == before[-1].verdict.verdict
            assert len(after) == len(before)


@pytest.mark.rule(17)
@pytest.mark.parametrize("seed", range(20))
def test_the_first_look_judges_as_a_fixed_run_of_six_blocks(seed: int):
    d = draw(seed, 8, effects=(1.5, 0.7, 1.1))
    d[2, 3] = math.nan
    stops = judge(d[:6], [6])
    fixed = stats.judge_family(d[:6])
    assert outcomes(stops) == [verdict.verdict for verdict in fixed]
    for stop, verdict in zip(stops, fixed, strict=True):
        assert stop.verdict[1:6] == pytest.approx(verdict[1:6], nan_ok=True)
        assert stop.verdict.detectable_ratio == pytest.approx(verdict.detectable_ratio, rel=0.05, nan_ok=True)


@pytest.mark.rule(5)
@pytest.mark.parametrize("seed", range(10))
def test_a_comparison_that_left_keeps_its_verdict_whatever_its_later_blocks_are(seed: int):
    d = draw(seed, 6, effects=(3.0, 1.5, 1.15))
    stops = judge(d)
    gone, other = d.copy(), d.copy()
    for number, stop in enumerate(stops):
        blocks = ENDS[stop.look - 1]
        gone[blocks:, number] = math.nan
        other[blocks:, number] = np.random.default_rng(1000 + seed).normal(1, 1, 20 - blocks)
    assert {stop.look for stop in stops} != {1}
    for changed in (gone, other):
        assert judge(changed) == stops


@pytest.mark.rule(17)
@pytest.mark.parametrize("seed", range(10))
def test_exchanged_arms_mirror_the_verdicts(seed: int):
    d = draw(seed, 6, effects=(1.3, 0.8, 1.05))
    for stop, mirrored in zip(judge(d), judge(-d), strict=True):
        assert stop.verdict.verdict.mirrored == mirrored.verdict.verdict
        assert (stop.look, stop.is_given_up) == (mirrored.look, mirrored.is_given_up)
        assert stop.verdict.ratio == pytest.approx(1 / mirrored.verdict.ratio)
        assert stop.verdict.p == pytest.approx(mirrored.verdict.p)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_comparisons_does_not_matter(seed: int):
    d = draw(seed, 6, effects=(1.3, 0.8, 1.05))
    order = np.random.default_rng(seed).permutation(6)
    stops, shuffled = judge(d), judge(d[:, order])
    for place, number in enumerate(order):
        assert stops[number].name == shuffled[place].name
        assert stops[number].verdict == pytest.approx(shuffled[place].verdict)


@pytest.mark.rule(5)
def test_a_comparison_is_given_up_if_the_most_blocks_would_not_show_it():
    [quiet] = judge(draw(1, 1, 0.08)[:8], [6, 8])
    [noisy] = judge(draw(1, 1, 0.5)[:8], [6, 8])
    assert (quiet.is_given_up, quiet.name) == (False, looks.OPEN)
    assert (noisy.is_given_up, noisy.name) == (True, looks.GIVEN_UP)
    assert noisy.verdict.verdict == Outcome.NO_EVIDENCE
    assert noisy.needed > 20 > quiet.needed
    [early] = judge(draw(1, 1, 0.5)[:6], [6])
    assert early.name == looks.OPEN, "6 blocks do not show how much times scatter"


def test_the_means_hold_back_a_verdict_same():
    d = draw(1, 1, 0.01)
    equal, apart = (stats.Estimate(ratio, ratio - 0.01, ratio + 0.01, 6) for ratio in (1.0, 1.2))
    assert outcomes(judge(d[:6], [6], estimate_mean=lambda *_: equal)) == [Outcome.SAME]
    assert outcomes(judge(d[:6], [6], estimate_mean=lambda *_: apart)) == [Outcome.NO_EVIDENCE]


def test_comparisons_beside_belong_to_the_family_without_a_verdict():
    d = draw(3, 8)
    alone = judge(d[:, :2], beside=d[:, 2:])
    assert len(alone) == 2
    assert alone[0].verdict.p > judge(d[:, :2])[0].verdict.p


def test_holes_and_too_few_blocks_stay_open():
    d = draw(2, 2, effects=(2.0, 2.0))
    d[1:4, 1] = math.nan
    first, second = judge(d[:8], [6, 8])
    assert (first.verdict.verdict, first.look) == (Outcome.SLOWER, 1)
    assert (second.verdict.verdict, second.verdict.blocks, second.name) == (Outcome.TOO_FEW, 5, looks.OPEN)


@pytest.mark.thorough
@pytest.mark.rule(17)
@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize("many", [1, 8])
def test_all_looks_together_raise_a_false_alarm_in_at_most_5_percent_of_families(many: int, noise: float):
    families = [outcomes(judge(draw(seed, many, noise))) for seed in range(200)]
    wrong = sum(any(outcome in ORDERED for outcome in family) for family in families)
    assert wrong <= stats.compute_binomial_quantiles(200, stats.LEVEL)[1]
