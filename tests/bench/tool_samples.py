"""Rates of false alarms and of detected differences in samples of other tools, and of the rule that projects use."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from sbench.verdicts import samples
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench.common import Row, Say, count_false, simulate

FAMILY, NOISE, SLOWER, DETECT_PERCENT = 20, 0.05, 1.1, 10
MEDIAN_LIMIT = 1.05  # the largest ratio of medians of five that many projects accept
POWER = 0.9
# Numbers of samples per side: the same in all benchmarks, or a number in each, more than 30 in batches.
COUNTS = {"10": (10,), "5": (5,), "5 to 200": (5, 10, 40, 200)}
Draw = Callable[[np.random.Generator, int, float], np.ndarray]


def draw_normal(random: np.random.Generator, count: int, ratio: float) -> np.ndarray:
    """Return times with normal noise of ln(time)."""
    return ratio * np.exp(random.normal(0, NOISE, count))


def draw_spikes(random: np.random.Generator, count: int, ratio: float) -> np.ndarray:
    """Return times of which a tenth take up to twice as long."""
    return draw_normal(random, count, ratio) * (1 + (random.random(count) < 0.1) * random.random(count))


def judge_tool_samples(folder: Path, say: Say, runs: int = 10_000, pilots: int = 1000) -> Iterator[Row]:
    """Judge simulated results of other tools without a difference, and measure again with the proposed samples."""
    what = f"alarms per family of {FAMILY} by the ratio of medians of 5 > {MEDIAN_LIMIT:g}, noise {100 * NOISE:.0f} %"
    alarms = simulate(what, _exceeds_median_limit, runs, say)
    yield Row(what, f"{sum(alarms)} of {runs}", f"{100 * np.mean(alarms):.0f} %")
    for name, counts in COUNTS.items():
        for noise, draw in (("normal noise", draw_normal), ("spikes", draw_spikes)):
            what = f"false verdicts per family of {FAMILY}, {name} samples, {noise}"
            # Spikes and unequal counts are further cases; the smaller number keeps the benchmark short.
            number = runs if name == "10" and draw is draw_normal else max(1, runs // 10)
            yield count_false(what, simulate(what, partial(judge_family, counts, draw), number, say))
    for family, paired in ((1, False), (FAMILY, False), (1, True), (FAMILY, True)):
        kind = "blocks" if paired else "samples"
        what = (
            f"×{SLOWER:g} at {100 * NOISE:.0f} % noise, family of {family}, with the number of {kind} proposed after 10"
        )
        answers = simulate(what, partial(detects_at_proposal, family, paired), pilots, say)
        share = np.mean([is_detected for is_detected, _ in answers])
        median = np.median([count for _, count in answers])
        yield Row(
            f"found: {what}", f"{100 * share:.1f} %", f"{median:g} {kind} in the median", "", "≥ 90 %", share >= POWER
        )


def _exceeds_median_limit(seed: int) -> bool:
    sides = np.exp(np.random.default_rng(seed).normal(0, NOISE, (2, 5, FAMILY)))
    base, other = np.median(sides, axis=1)
    return bool((other / base > MEDIAN_LIMIT).any())


def judge_family(counts: tuple[int, ...], draw: Draw, seed: int) -> bool:
    """Return whether a family without a difference has a false verdict."""
    random = np.random.default_rng(seed)
    base, other = ([draw(random, counts[n % len(counts)], 1) for n in range(FAMILY)] for _ in range(2))
    return any(of.verdict.verdict in ORDERED for of in samples.judge_samples(base, other))


def detects_at_proposal(family: int, paired: bool, seed: int) -> tuple[bool, int]:
    """Return whether a slowdown is found with the number of samples that a first measurement proposed, and this number.

    Only the first benchmark of the family is slower.
    """
    random = np.random.default_rng(seed)
    ratios = [SLOWER, *[1.0] * (family - 1)]

    def judge(count: int) -> samples.Judgement:
        base, other = ([draw_normal(random, count, ratio) for ratio in of] for of in ([1.0] * family, ratios))
        if paired:
            return samples.judge_blocks(
                np.log(np.transpose(other) / np.transpose(base)), detect_percent=DETECT_PERCENT
            )[0]
        return samples.judge_samples(base, other, detect_percent=DETECT_PERCENT)[0]

    count = int(judge(10).needed)
    return judge(count).verdict.verdict == Outcome.SLOWER, count
