"""How often `sbench compare` blames a library for the days or the machines of its sessions, and what it can detect."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.runs import compare
from sbench.runs.sides import Side
from sbench.verdicts import sessions
from tests.bench.common import Row, Say, count_false

NOISE, CELLS, MANY = 0.02, 4, 24  # sd of ln(time) of a cell in a session, cells of a side, those for the power
# ln(week 2 / week 1), ln(machine 2 / machine 1); of days the sd and the autocorrelation.
WEEK, MACHINE, DAY, KEPT = 0.03, 0.1, 0.05, 0.8
# Orders of the sessions of both sides, and their machines.
BESIDE, IN_TURN, TWO = "AAAABBBB", "ABBABAAB", "MNNMNMMN"
Effects = Callable[[np.random.Generator, str, str], Sequence[float]]


def rows(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Compare 400 simulated pairs of sides of one library, and others of a slower one."""
    simulated: dict[str, tuple[str, str, Effects]] = {
        f"in two weeks that differ by {100 * WEEK:.0f} %": (BESIDE, "", _weeks),
        f"in turn, in two weeks that differ by {100 * WEEK:.0f} %": (IN_TURN, "", _weeks),
        f"on 8 consecutive days, AR(1) {KEPT:g}": (BESIDE, "", _days),
        f"on 16 consecutive days, AR(1) {KEPT:g}": (8 * "A" + 8 * "B", "", _days),
        f"in turn, AR(1) {KEPT:g}": (IN_TURN, "", _days),
        f"in turn on two machines that differ by {100 * MACHINE:.0f} %": (IN_TURN, TWO, _machines),
    }
    for what, case in simulated.items():
        say(what)
        judged = [_compared(np.random.default_rng(seed), *case) for seed in range(runs)]
        wrong = sum(verdicts.isin(("faster", "slower")).any() for verdicts in judged)
        yield count_false(f"false verdicts between sides measured {what}", wrong, runs)
    for ratio in (1.05, 1.1, 1.2):
        say(f"a library that takes {ratio:g} times as long")
        right = sum(_detected(np.random.default_rng(seed), ratio) for seed in range(runs))
        what = (
            f"power for ×{ratio:.2f} among {MANY} cells at {sessions.LEAST} sessions a side, noise {100 * NOISE:.0f} %"
        )
        yield Row(what, f"{right / runs:.2f}", f"{right} of {runs} comparisons")


def _weeks(random: np.random.Generator, order: str, machines: str) -> Sequence[float]:
    return WEEK * (np.arange(len(order)) >= len(order) / 2)


def _days(random: np.random.Generator, order: str, machines: str) -> Sequence[float]:
    """Return the effects of days, each like that of the day before it."""
    effects = [random.normal(0, DAY)]
    while len(effects) < len(order):
        effects.append(KEPT * effects[-1] + random.normal(0, DAY * (1 - KEPT**2) ** 0.5))
    return effects


def _machines(random: np.random.Generator, order: str, machines: str) -> Sequence[float]:
    return [MACHINE * (machine == "N") for machine in machines]


def _detected(random: np.random.Generator, ratio: float) -> bool:
    """Return whether the one of many cells that takes longer is called slower."""
    base, other = random.normal(0, NOISE, (2, sessions.LEAST, MANY))
    other[:, 0] += np.log(ratio)
    return sessions.judge(base, other)[0].verdict == "slower"


def _compared(random: np.random.Generator, order: str, machines: str, effects: Effects) -> pd.Series:
    """Return the verdicts of `sbench compare` on sides whose sessions differ by `effects`."""
    seconds = np.exp(
        random.normal(0, NOISE, (len(order), CELLS)) + np.asarray(effects(random, order, machines))[:, None]
    )
    head = dict.fromkeys(sessions.COLUMNS, "") | dict.fromkeys(sessions.COUNTS, np.nan)
    head |= {"repeat": 1, "valid": True, "figure": "total", "unit": "s"}
    records = [
        {"cell": f"c{cell}", "access": f"c{cell}", **head, "session": f"2026-11-{day:02}T01:00:00Z"}
        | {"value": value, "run": f"{side}{day}", "machine": f"cpu {machine}", "side": side}
        for day, (side, machine, of_day) in enumerate(zip(order, machines or "M" * len(order), seconds, strict=True), 1)
        for cell, value in enumerate(of_day)
    ]
    table = pd.DataFrame(records)
    both = [
        Side({"shots": of.drop(columns="side").reset_index(drop=True)}, {"shots": [{"run": side}]})
        for side, of in table.groupby("side")
    ]
    return compare.of_study("shots", *both)[1]["verdicts"]["verdict"]
