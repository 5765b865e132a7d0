"""Error, power, cost, bias and coverage of runs that measure until they can decide, against runs of fixed blocks."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbench.measure.judging import GUARD
from sbench.verdicts import looks, stats
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench.common import Row, Say, count_false, simulate

MOST, FIRST = 20, 6
ENDS = looks.list_looks(FIRST, MOST)
SCHEDULE = looks.plan_schedule(ENDS, [MOST] * len(ENDS))
# Effects of the mixes: contender / baseline of 24 comparisons in 3 families.
MIXES = {
    "default-like effects": (3, 2, 1.5, 1.25, 1.1, 1.1, 1.05, 1.02, 1, 1, 0.9, 0.8, 0.6, 0.4),
    "small effects": (1, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12),
    "large effects": (1.4, 2, 3, 4, 1 / 1.4, 1 / 2, 1 / 3, 1 / 4),
}
NOISES = (0.01, 0.03, 0.08, 0.12)
FAMILIES, COMPARISONS, SHARING, CONTROLS = 3, 8, 2, 3  # two comparisons share a baseline
SPREAD = 0.6  # noise of a cell: that of the mix, times e^±0.6


class _Run(NamedTuple):
    """A simulated run: records measured, and the stops with the true ln ratios."""

    records: int
    stops: list[looks.State]
    truths: np.ndarray


def judge_adaptive_runs(folder: Path, say: Say, runs: int = 400, mixed: int = 30) -> Iterator[Row]:
    """Judge runs that measure until they can decide: false verdicts, power, cost, bias and coverage."""
    draws = {
        "noise 2 %": lambda random, shape: random.normal(0, 0.02, shape),
        "noise 10 %": lambda random, shape: random.normal(0, 0.1, shape),
        "noise 10 %, t(3)": lambda random, shape: 0.1 * random.standard_t(3, shape) / np.sqrt(3),
    }
    for (noise, draw), many in itertools.product(draws.items(), (1, 8, 24)):
        what = f"false verdicts per family of {many}, six looks, {noise}"
        yield count_false(what, simulate(what, partial(_has_false_verdict, many, draw), runs, say))
    what = "false verdicts per family of 8, six looks, noise 10 %, a tenth of the records lost"
    yield count_false(what, simulate(what, partial(_has_false_verdict, 8, _draw_with_losses), runs, say))
    for correlation, blocks in itertools.product((0.0, 0.1, 0.2, 0.3), (6, 10, MOST)):
        what = f"dependent blocks noticed, autocorrelation {correlation:g}, {blocks} blocks"
        noticed = simulate(what, partial(_is_dependence_noticed, correlation, blocks), runs // 2, say)
        yield Row(what, f"{100 * np.mean(noticed):.0f} %")
    for shift in (0.0, 0.02, 0.05):
        what = f"shift of {100 * shift:.0f} % between first and later rounds noticed"
        yield Row(what, f"{100 * np.mean(simulate(what, partial(_is_shift_noticed, shift), runs // 2, say)):.0f} %")
    for mix, noise in itertools.product(MIXES, NOISES):
        what = f"{mix}, noise {100 * noise:.0f} %"
        fixed = {
            most: simulate(f"{what}, {most} blocks", partial(_run, mix, noise, most, most), mixed, say)
            for most in (6, 10, 16)
        }
        adaptive = simulate(f"{what}, 6 to {MOST} blocks", partial(_run, mix, noise, FIRST, MOST), mixed, say)
        others = "; ".join(f"{most} blocks: {_describe(some)}" for most, some in fixed.items())
        yield Row(what, _describe(adaptive), others)
        yield Row(f"{what}: bias and coverage of those decided", _describe_estimates(adaptive))


def _has_false_verdict(many: int, draw: Callable, seed: int) -> bool:
    d = draw(np.random.default_rng(seed), (MOST, many))
    return any(states[-1].verdict.verdict in ORDERED for states in looks.judge_looks(d, SCHEDULE))


def _draw_with_losses(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.where(random.random(shape) < 0.1, np.nan, random.normal(0, 0.1, shape))


def _is_dependence_noticed(correlation: float, blocks: int, seed: int) -> bool:
    """Return whether the test of dependent blocks ends a run of 26 cells whose noise follows AR(1)."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.05, (blocks, 26))
    for block in range(1, blocks):
        noise[block] = correlation * noise[block - 1] + np.sqrt(1 - correlation**2) * noise[block]
    d = noise[:, 1::2] - noise[:, ::2]
    return stats.compute_serial_p(d, seed) < GUARD


def _is_shift_noticed(shift: float, seed: int) -> bool:
    """Return whether the test of a shift ends a run in which each contender shifts by its amount after 6 blocks."""
    random = np.random.default_rng(seed)
    d = random.normal(0, 0.03, (MOST, 13))
    d[FIRST:] += random.normal(0, shift, 13) if shift else 0
    return any(looks.compute_shift_p(d[:end], FIRST, seed) < GUARD for end in ENDS[1:])


def _run(mix: str, noise: float, first: int, most: int, seed: int) -> _Run:
    """Simulate a run: after each look, measure only cells of open comparisons and the controls."""
    random = np.random.default_rng(seed)
    many = FAMILIES * COMPARISONS
    truths = np.log(random.permutation(np.resize(MIXES[mix], many)))
    scales = noise * np.exp(random.uniform(-SPREAD, SPREAD, (2, many)))
    bases = np.arange(many) // SHARING
    contenders = truths + scales[0] * random.normal(size=(most, many))
    baselines = (scales[1] * random.normal(size=(most, many)))[:, bases]
    d = contenders - baselines
    ends = looks.list_looks(first, most)
    records, made = 0, 0
    stops: list[looks.State] = []
    open_now = np.ones(many, dtype=bool)
    for number, blocks in enumerate(ends, 1):
        cells = int(open_now.sum()) + len(set(bases[open_now])) + CONTROLS
        records += cells * (blocks - made)
        made = blocks
        schedule = looks.plan_schedule(ends[:number], [most] * number)
        stops = [
            states[-1]
            for family in np.split(d[:blocks], FAMILIES, axis=1)
            for states in looks.judge_looks(family, schedule)
        ]
        open_now = np.array([stop.name == looks.OPEN for stop in stops])
        if not open_now.any():
            break
    return _Run(records, stops, truths)


def _describe(runs: list[_Run]) -> str:
    truths = np.concatenate([run.truths for run in runs])
    outcomes = np.array([stop.verdict.verdict for run in runs for stop in run.stops])
    sizes, ordered = np.abs(truths), np.isin(outcomes, ORDERED)
    large, small = sizes >= np.log(1.1) - 1e-9, (sizes >= np.log(1.05) - 1e-9) & (sizes < np.log(1.1) - 1e-9)
    decided = (ordered | (outcomes == Outcome.SAME)).mean()
    found = ", ".join(f"{ordered[those].mean():.2f}" if those.any() else "–" for those in (large, small))
    wrong = int((ordered & (sizes < 1e-9)).sum())
    cost = np.median([run.records for run in runs])
    return f"{cost:.0f} records, decided {decided:.2f}, ≥ 10 % and 5–10 % found {found}, false {wrong}"


def _describe_estimates(runs: list[_Run]) -> str:
    pairs = [
        (stop.verdict, truth)
        for run in runs
        for stop, truth in zip(run.stops, run.truths, strict=True)
        if stop.verdict.blocks >= FIRST
    ]
    decided = [(verdict, truth) for verdict, truth in pairs if verdict.verdict in ORDERED]
    small = [(verdict, truth) for verdict, truth in decided if 0 < abs(truth) < np.log(1.12)]
    off = [np.sign(truth) * (np.log(verdict.ratio) - truth) for verdict, truth in small]
    bias = f"{100 * np.mean(off):.1f} %" if small else "–"
    return f"bias {bias}; intervals with the truth: all {_cover(pairs)}, decided small effects {_cover(small)}"


def _cover(pairs: list[tuple[stats.Verdict, float]]) -> str:
    covered = [verdict.low <= np.exp(truth) <= verdict.high for verdict, truth in pairs]
    return f"{np.mean(covered):.3f}" if covered else "–"
