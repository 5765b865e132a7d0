"""Verdicts on samples of other tools: the error level of a family, proposed numbers of samples, and batches."""

import math

import numpy as np
import pytest

from sbench.verdicts import samples, sessions, stats
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench import tool_samples

FAMILIES, PILOTS = 80, 60


@pytest.mark.rule(17)
@pytest.mark.parametrize("counts", [(10,), (5, 10, 40, 200)])
def test_families_without_a_difference_have_false_verdicts_at_the_level(counts):
    draw = tool_samples.draw_normal
    wrong = sum(tool_samples.judge_family(counts, draw, seed) for seed in range(FAMILIES))
    assert wrong <= stats.compute_binomial_quantiles(FAMILIES, stats.LEVEL)[1]


@pytest.mark.parametrize("paired", [False, True], ids=["samples", "blocks"])
def test_the_proposed_number_detects_the_difference(paired):
    found = [tool_samples.detects_at_proposal(1, paired, seed)[0] for seed in range(PILOTS)]
    assert sum(found) >= stats.compute_binomial_quantiles(PILOTS, tool_samples.POWER)[0]


def test_blocks_have_the_power_for_which_their_number_is_proposed_if_the_scatter_is_known():
    count = int(samples.estimate_needed(0.07, 10**6, 1, 10, sides=1))
    random = np.random.default_rng(6)
    trials = [random.normal(math.log(1.1), 0.07, (count, 1)) for _ in range(300)]
    detected = sum(samples.judge_blocks(d)[0].verdict.verdict == Outcome.SLOWER for d in trials)
    assert detected >= stats.compute_binomial_quantiles(len(trials), samples.NEEDED_POWER)[0]


def test_each_group_of_equal_counts_gets_its_share_of_the_level():
    random = np.random.default_rng(3)
    base, other = ([random.lognormal(0, 0.05, n) for n in (6, 6, 9, 12)] for _ in range(2))
    together = [of.verdict.p for of in samples.judge_samples(base, other)]
    pairs = [samples.judge_samples(base[first:last], other[first:last]) for first, last in ((0, 2), (2, 3), (3, 4))]
    alone = [of.verdict.p for group in pairs for of in group]
    assert together == pytest.approx([min(1, p * factor) for p, factor in zip(alone, (2, 2, 4, 4), strict=True)])


def test_a_group_that_does_not_fit_into_memory_is_divided(monkeypatch):
    random = np.random.default_rng(4)
    base, other = ([random.lognormal(0, 0.05, 6) for _ in range(3)] for _ in range(2))
    alone = [samples.judge_samples([a], [b])[0].verdict.p for a, b in zip(base, other, strict=True)]
    monkeypatch.setattr(samples, "_MOST_T", math.comb(12, 6))
    divided = [of.verdict.p for of in samples.judge_samples(base, other)]
    assert divided == pytest.approx([min(1, 3 * p) for p in alone])


def test_a_group_whose_smallest_p_exceeds_its_share_is_undecided():
    # Splits of 4 and 4 samples have p >= 2 / 70, which times 2 exceeds 0.05.
    few, many = np.array([1.0, 1.001, 1.002, 1.003]), np.linspace(1, 1.01, 10)
    alone = samples.judge_samples([few], [2 * few])[0].verdict
    first, second = samples.judge_samples([few, many], [2 * few, 2 * many])
    assert alone.verdict == second.verdict.verdict == Outcome.SLOWER
    assert first.verdict.verdict == Outcome.NO_EVIDENCE
    assert (math.isinf(first.verdict.detectable_ratio), first.needed) == (True, 5)


def test_the_sides_are_exchangeable():
    random = np.random.default_rng(5)
    base, other = [random.lognormal(0, 0.05, 8)], [random.lognormal(0.3, 0.05, 8)]
    forth, back = (samples.judge_samples(*sides)[0].verdict for sides in ((base, other), (other, base)))
    assert (forth.verdict, back.verdict) == (Outcome.SLOWER, Outcome.FASTER)
    assert (forth.ratio, forth.p) == pytest.approx((1 / back.ratio, back.p))


def test_dependent_samples_are_judged_in_batches():
    # Each sample shares most of its noise with the sample before, as within a process.
    def draw(random: np.random.Generator) -> np.ndarray:
        noise = random.normal(0, 0.02, 3000)
        for n in range(1, len(noise)):
            noise[n] += 0.9 * noise[n - 1]
        return np.exp(noise)

    trials = range(60)
    wrong = 0
    for seed in trials:
        random = np.random.default_rng(seed)
        (judged,) = samples.judge_samples([draw(random)], [draw(random)])
        wrong += judged.verdict.verdict in ORDERED
        assert (judged.verdict.blocks, judged.batch) == (30, 100)
    assert wrong <= stats.compute_binomial_quantiles(len(trials), 1.5 * stats.LEVEL)[1]


@pytest.mark.parametrize("counts, batch, blocks", [((30, 30), 1, 30), ((31, 31), 2, 15), ((10, 9000), 1, 10)])
def test_batches_of_both_sides_have_the_same_size(counts, batch, blocks):
    random = np.random.default_rng(1)
    (judged,) = samples.judge_samples(*([random.lognormal(0, 0.05, n)] for n in counts))
    assert (judged.batch, judged.verdict.blocks) == (batch, blocks)


def test_samples_that_depend_on_their_neighbours_are_reported():
    slow = np.repeat([1.0, 1.5], 10) * np.linspace(1, 1.01, 20)
    random = np.random.default_rng(2).permutation(slow)
    assert samples.judge_samples([slow], [random])[0].is_serial
    assert not samples.judge_samples([random], [random[::-1]])[0].is_serial


@pytest.mark.parametrize("count", [1, 3])
def test_too_few_samples_have_no_verdict(count):
    values = np.linspace(1, 1.1, count)
    (judged,) = samples.judge_samples([values], [values])
    assert judged.verdict.verdict == Outcome.TOO_FEW
    assert math.isnan(judged.needed) == (count == 1)
    assert count == 1 or judged.needed >= sessions.LEAST


def test_more_scatter_a_larger_family_and_a_smaller_difference_need_more_samples():
    base = samples.estimate_needed(0.05, 18, 1, 10, 2)
    assert samples.estimate_needed(0.1, 18, 1, 10, 2) > base
    assert samples.estimate_needed(0.05, 18, 100, 10, 2) > base
    assert samples.estimate_needed(0.05, 18, 1, 5, 2) > base
    assert samples.estimate_needed(0.05, 2, 1, 10, 2) > base
    assert samples.estimate_needed(0, 18, 1, 10, 2) == sessions.LEAST
    assert math.isnan(samples.estimate_needed(50, 18, 1, 10, 2))
