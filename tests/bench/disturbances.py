"""How often verdicts are false where something disturbs the blocks of a run: loads, orders, looks, lost records."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sbench.design import blocks
from sbench.design.study import Cell
from sbench.pages.judgement import SERIAL
from sbench.verdicts import MIN_BLOCKS, stats
from sbench.verdicts.outcomes import ORDERED
from tests.bench.common import Row, Say, count_false
from tests.bench.false_verdicts import NOISE, OFTEN, PAIRS, judge_records, judge_volumes

FACTORS = {"library": "abc", "store": "st", "workers": "12"}
COMPARE = [{"factor": factor, "baseline": levels[0]} for factor, levels in FACTORS.items()]
FIRST_SLOWER = 1.1  # how much longer the first battery of a pair takes
LOOKS = ((6, 8, 10, 12, 16, 20), (10, 12, 16, 20))  # blocks after which the results are looked at
LIKENESS = (0.2, 0.3, 0.5)  # of the noise of a cell in one block with that in the block before
UNDECIDED = 0.1  # standard deviation of ln(time) at which nothing is the same, so that each look is a chance
Load = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def orders(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge runs without a difference beside a load that comes and goes, or a drift."""
    loads: dict[str, Load] = {
        f"a load of ±{percent} % with a period of two blocks": _wave(percent / 100) for percent in (3, 5, 10)
    } | {f"a drift of {percent} %": _drift(percent / 100) for percent in (10, 30)}
    for (what, load), repeats in itertools.product(loads.items(), (6, 10)):
        say(f"{what}, {repeats} blocks")
        wrong = sum(_false_families(seed, repeats, load) for seed in range(runs))
        yield count_false(f"false verdicts per family, {what}, {repeats} blocks", wrong, len(FACTORS) * runs)
    for in_turn, which in ((False, ""), (True, " that have burst credits")):
        what = f"identical volumes{which}, the first battery of each pair {100 * (FIRST_SLOWER - 1):.0f} % slower"
        say(what)
        wrong = sum(_first_slower(folder, seed, in_turn) in ORDERED for seed in range(runs))
        yield count_false(f"false verdicts, {what}", wrong, runs)


def looks(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge families without a difference again and again, as blocks are added."""
    for at, many in itertools.product(LOOKS, (1, 8, 24)):
        say(f"{many} comparisons, looked at after {', '.join(map(str, at))} blocks")
        wrong = sum(_decided_at_some_look(np.random.default_rng(seed), at, many) for seed in range(runs))
        what = f"false verdicts per family of {many}, looked at after {' '.join(map(str, at))} blocks"
        yield count_false(what, wrong, runs, stats.LEVEL if at[0] == MIN_BLOCKS else stats.MOST)


def losses(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge arms of which one loses records that the other one does not."""
    for repeats in (10, 20):
        say(f"an arm of {repeats} records that loses its slow ones")
        wrong = sum(_without_slow(folder, seed, repeats) == "faster" for seed in range(runs))
        yield count_false(f"false verdicts for an arm that loses its slow records, {repeats} blocks", wrong, runs)
        say(f"an arm of {repeats} records of which a fifth stalls and fails")
        alike = sum(_with_stalls(folder, seed, repeats) == "same" for seed in range(runs))
        share = f"{100 * OFTEN:.0f} %"
        yield Row(f"called the same though {share} of records stall and fail, {repeats} blocks", f"{alike} of {runs}")


def dependence(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Test whether blocks resemble those before them, where cells do and where they do not."""
    for repeats in (6, 10, 20):
        for likeness in (0, *LIKENESS):
            say(f"cells whose noise has the autocorrelation {likeness:g}, {repeats} blocks")
            judged = [_of_dependent(np.random.default_rng(seed), repeats, likeness) for seed in range(runs)]
            noticed, wrong = (sum(each) for each in zip(*judged, strict=True))
            what = f"blocks said to resemble those before them, autocorrelation {likeness:g}, {repeats} blocks"
            if likeness:
                against = f"false verdicts in {wrong} of {len(FACTORS) * runs} families"
                yield Row(what, f"{noticed} of {runs}", against)
            else:
                yield count_false(what, noticed, runs, SERIAL)


def _wave(size: float) -> Load:
    return lambda when, random: size * np.sin(np.pi * when + random.uniform(0, 2 * np.pi))


def _drift(size: float) -> Load:
    return lambda when, random: math.log1p(size) * when / when.max()


def _cells() -> dict[str, Cell]:
    levels = [dict(zip(FACTORS, each, strict=True)) for each in itertools.product(*FACTORS.values())]
    return {"".join(own.values()): Cell("".join(own.values()), "shots", own, {}, "", "") for own in levels}


def _of_dependent(random: np.random.Generator, repeats: int, likeness: float) -> tuple[bool, int]:
    """Return whether it is noticed that blocks resemble those before them, and in how many families verdicts are false.

    The noise of each cell has that autocorrelation from block to block.
    """
    steps = random.normal(0, NOISE, (repeats, len(_cells())))
    logs = np.array([*itertools.accumulate(steps, lambda last, step: likeness * last + step)])
    families = _differences(logs)
    return stats.serial_p(np.hstack(families)) < SERIAL, sum(map(_is_decided, families))


def _differences(logs: np.ndarray) -> list[np.ndarray]:
    """Return d of each family of `COMPARE`, of the ln of the times of `_cells` by block."""
    column = {name: number for number, name in enumerate(_cells())}
    families = [blocks.pairs(_cells().values(), [entry]) for entry in COMPARE]
    return [
        np.column_stack([logs[:, column[other]] - logs[:, column[base]] for base, other in pairs]) for pairs in families
    ]


def _is_decided(d: np.ndarray) -> bool:
    return any(one.verdict in ORDERED for one in stats.judge(d))


def _false_families(seed: int, repeats: int, load: Load) -> int:
    """Return in how many families a verdict is false; `load` is by time, in blocks."""
    random, cells = np.random.default_rng(seed), _cells()
    numbers = range(1, repeats + 1)
    draw = blocks.draw_orders([*cells.values()], COMPARE, str(seed), numbers)
    orders_of = [blocks.order(list(cells), str(seed), block, draw) for block in numbers]
    places = np.array([[order.index(name) for name in cells] for order in orders_of])
    when = np.arange(repeats)[:, None] + places / len(cells)
    logs = random.normal(0, NOISE, when.shape) + load(when, random)
    return sum(map(_is_decided, _differences(logs)))


def _first_slower(folder: Path, seed: int, in_turn: bool) -> str:
    """Return the verdict on identical volumes of which the one that is measured first in a block is slower."""
    random, cells = (
        np.random.default_rng(seed),
        [Cell(store, "volumes", {"store": store}, {}, "", "") for store in "ab"],
    )
    draw = blocks.draw_orders(cells, [{"factor": "store", "baseline": "a"}], str(seed), range(1, PAIRS + 1))

    def place(store: str, repeat: int) -> int:
        return blocks.order(["a", "b"], str(seed), repeat, None if in_turn else draw).index(store)

    def scale(store: str, repeat: int) -> float:
        return math.exp(random.normal(0, NOISE)) * (1 if place(store, repeat) else FIRST_SLOWER)

    return judge_volumes(folder, random, scale, lambda store, repeat: 2 * repeat + place(store, repeat))


def _decided_at_some_look(random: np.random.Generator, at: Sequence[int], many: int) -> bool:
    d = random.normal(0, UNDECIDED, (at[-1], many))
    return any(one.verdict in ORDERED for look, n in enumerate(at, 1) for one in stats.judge(d[:n], looks=look))


def _without_slow(folder: Path, seed: int, repeats: int) -> str:
    """Return the verdict on an arm that differs only in losing the records that are slower by a standard deviation."""
    base, other = np.random.default_rng(seed).normal(0, UNDECIDED, (2, repeats))
    return _judge_with_lost(folder, base, np.where(other > UNDECIDED, np.nan, other))


def _with_stalls(folder: Path, seed: int, repeats: int) -> str:
    random = np.random.default_rng(seed)
    base, other = random.normal(0, NOISE, (2, repeats))
    return _judge_with_lost(folder, base, np.where(random.random(repeats) < OFTEN, np.nan, other))


def _judge_with_lost(folder: Path, base: np.ndarray, other: np.ndarray) -> str:
    sessions = ["1"] * len(base)
    return judge_records(folder, ([*np.exp(base)], sessions, [*np.exp(other)], sessions))
