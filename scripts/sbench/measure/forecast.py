"""Forecast how long a run that measures until it can decide takes, by resampling blocks of an earlier run."""

import contextlib
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.design import cost
from sbench.design.study import Cell, Study
from sbench.measure import gather, judging, rounds, tables
from sbench.measure.judging import TOTAL
from sbench.probe.program import Problem
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.looks import list_looks

# Totals that do not increase with further rounds.
_ONCE = ("disk_bytes", "made_bytes", "seconds_beside")
# The number of simulated runs per forecast. Each draws different blocks of the earlier run.
RUNS, _PATIENCE_S = 10, 10.0


class Forecast(NamedTuple):
    """The forecast duration of a study's measurements, in seconds.

    Attributes:
        least: the duration of the first round.
        likely: the median of simulated runs; None without an earlier run of the same cells.
        most: the duration if no comparison is decided early, limited by the budget.
    """

    least: float
    likely: float | None
    most: float

    def describe(self) -> str:
        """Describe the forecast in one line."""
        likely = "" if self.likely is None else f", likely {cost.format_duration(self.likely)}"
        least, most = cost.format_duration(self.least), cost.format_duration(self.most)
        return f"until all comparisons are decided: at least {least}{likely}, at most {most}"


def add_forecasts(
    costs: dict[str, cost.Cost], forecasts: dict[str, Forecast], beside_s: float
) -> tuple[Forecast, cost.Totals]:
    """Add up the forecasts of all studies, and `beside_s` seconds of other work.

    Studies without a forecast have a fixed number of repeats; for them, use the cost.

    Returns:
        The forecast of the whole run, and the maximum totals (see `cost.compute_totals`).
    """
    least, most, likely = beside_s, beside_s, [beside_s]
    largest = cost.Totals()
    for study, own in costs.items():
        fixed = own.totals["seconds"]
        of_study = forecasts.get(study, Forecast(fixed, fixed, fixed))
        least, most = least + of_study.least, most + of_study.most
        likely += [] if of_study.likely is None else [of_study.likely]
        growth = of_study.most / of_study.least if of_study.least else 1
        for what, amount in own.totals.items():
            # Data is generated only once.
            largest[what] += amount * (1 if what in _ONCE else growth)
    is_known = len(likely) == 1 + len(costs)
    return Forecast(least, sum(likely) if is_known else None, most), largest


class Simulated(NamedTuple):
    """A simulated run: the duration of all rounds in seconds, and the number of undecided comparisons at the end."""

    seconds: float
    still_open: int


def forecast_rounds(
    config: dict, program: Study, cells: list[Cell], costs: cost.Cost, simulates: bool = True
) -> Forecast | None:
    """Forecast the duration of a study; return None if its repeats are fixed or nothing is left to measure.

    `simulates` is whether to simulate runs, which takes seconds; without them, the likely duration is unknown.
    """
    first, most = program.count_repeats(config), program.count_most_repeats(config)
    if most <= first or not costs.totals["records"]:
        return None
    least = costs.totals["seconds"]
    budget = config.get("budget_s")
    seconds = {cell.name: each for cell, _, each, _ in costs.cells}
    longest = least + (most - first) * sum(seconds.values())
    likely = _simulate_runs(config, program, cells, seconds) if simulates else None
    return Forecast(least, likely, longest if budget is None else max(least, min(longest, budget)))


def _simulate_runs(config: dict, program: Study, cells: list[Cell], seconds: dict[str, float]) -> float | None:
    """Return the median duration of simulated runs; None if no earlier run measured the cells.

    At least one run is simulated, and further ones up to `RUNS` within `_PATIENCE_S` seconds.
    """
    durations: list[float] = []
    # Records of an earlier version may lack fields that the verdicts need; they must not prevent a plan.
    with contextlib.suppress(Problem, OSError, LookupError, ValueError, TypeError, AttributeError):
        if earlier := _read_earlier_run(program, cells):
            random, begun = np.random.default_rng(1), time.monotonic()
            while len(durations) < RUNS and time.monotonic() - begun < _PATIENCE_S:
                durations.append(simulate_run(config, program, cells, *earlier, seconds, random).seconds)
    return statistics.median(durations) if durations else None


def simulate_run(
    config: dict,
    program: Study,
    cells: list[Cell],
    matrix: pd.DataFrame,
    runs: pd.DataFrame,
    seconds: dict[str, float],
    random: np.random.Generator,
) -> Simulated:
    """Simulate a run by drawing blocks of an earlier run with replacement, and judge it at each look.

    Args:
        config: the resolved configuration.
        program: the study.
        cells: the cells to measure.
        matrix: the cells of the earlier run (see `gather.read_study`).
        runs: the runs of the earlier run (see `tables.build_runs_and_samples`).
        seconds: name of the cell -> duration of a measuring job.
        random: the random number generator that draws the blocks.
    """
    most = program.count_most_repeats(config)
    ends = list_looks(program.count_repeats(config), most)
    drawn = random.choice(sorted(runs["repeat"].unique()), most)
    parts = [
        runs[runs["repeat"] == block].assign(
            repeat=number, round=1 + int(np.searchsorted(ends, number)), most_repeats=most
        )
        for number, block in enumerate(drawn, 1)
    ]
    judgement = judging.judge_study(config, program, matrix, pd.concat(parts, ignore_index=True), metrics=[TOTAL])
    names = {cell.name for cell in cells}
    spent, measured, still_open = sum(seconds.values()) * ends[0], ends[0], 0
    last = 1 if judgement.shifted else len(ends)
    for look in range(1, last + 1):
        undecided = rounds.list_open_comparisons(judgement, runs, names, look)
        still_open = len(undecided)
        if not undecided or look == last:
            break
        of_round = rounds.list_cells_of_round(cells, undecided)
        needed = (ends[look] - measured) * sum(seconds[name] for name in of_round)
        if (budget := config.get("budget_s")) is not None and spent + needed > budget:
            break
        spent, measured = spent + needed, ends[look]
    return Simulated(spent, still_open)


def _read_earlier_run(program: Study, cells: list[Cell]) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Find the latest run that measured all `cells` together in at least `MIN_BLOCKS` blocks.

    Returns:
        The matrix and the runs in these blocks; None if such a run does not exist.
    """
    names = {cell.name for cell in cells}
    for folder in sorted(Path("results").glob(f"*/{program.name}/"), key=lambda path: -path.stat().st_mtime):
        with contextlib.suppress(Problem, OSError, LookupError, ValueError):
            matrix, kept = gather.read_study(folder, folder.parent.name, program.name)
            if not names <= set(matrix["cell"]):
                continue
            runs, _ = tables.build_runs_and_samples(matrix, kept)
            good = runs[runs["ok"].astype(bool)].groupby("cell")["repeat"].nunique()
            whole = [block for block, rows in runs.groupby("repeat") if names <= set(rows["cell"])]
            if len(whole) >= MIN_BLOCKS and names <= set(good.index):
                return matrix, runs[runs["repeat"].isin(whole)]
    return None
