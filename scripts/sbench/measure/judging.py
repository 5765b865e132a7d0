"""Judge runs: which arm is faster, and by how much (METHOD 6, 7, 17)."""

import functools
import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sbench.design.blocks import list_factor_pairs
from sbench.design.study import ANEW, Study
from sbench.measure.families import JUDGEMENT, LOOKED, Blocks, Family, Pair, is_true
from sbench.measure.tables import get_levels, list_factors, list_metrics
from sbench.probe.slowed import SHARES
from sbench.verdicts import looks, stats
from sbench.verdicts.looks import Schedule, State

# Families in which the baseline and the contender are named by cell, not by the level of a factor.
CONTEST, CONTROL = "contest", "control"
OF_CELLS = (CONTEST, CONTROL)
# The metric whose verdicts answer a study's question.
TOTAL = "total"
# The p value below which blocks are considered dependent, or later rounds different from the first.
GUARD = 0.01
DEPENDENT = "blocks depend on one another"


class Judged(NamedTuple):
    """The result of a comparison on a metric.

    Attributes:
        factor: the compared factor, or "contest" or "control".
        baseline: the row of the matrix of the baseline.
        contender: the row of the matrix of the contender.
        metric: the metric.
        role: "decides", "secondary" or "control".
        values: the entries in verdicts.csv.
        states: the state at each look; empty if the number of repeats is fixed.
    """

    factor: str
    baseline: dict
    contender: dict
    metric: str
    role: str
    values: dict
    states: list[State]


class Judgement(NamedTuple):
    """The judged comparisons of a study.

    Attributes:
        rows: the result for each comparison and metric, in the order of `compare`, then of the matrix.
        serial_p: the p value of the test for serial dependence of blocks (see `stats.compute_serial_p`).
        schedule: the looks; None if the number of repeats is fixed.
        shifted: the look at which later rounds differed from the first, so that only the first round counts; 0 if they
            did not differ.
    """

    rows: list[Judged]
    serial_p: float
    schedule: Schedule | None
    shifted: int


def judge_runs(
    matrix: pd.DataFrame,
    runs: pd.DataFrame,
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
    contest: Callable[[dict], Hashable | None] = lambda cell: None,
    of_tasks: Collection[str] = (),
    resolve_percent: float = 10,
    metrics: Collection[str] | None = None,
) -> Judgement:
    """Judge the comparisons of a study on each metric.

    Pairs: each cell at the baseline's level is compared with every cell that differs from it only in the compared
    factor. All comparisons of a factor on one metric form a family, whose p values are adjusted jointly (see
    `stats.judge_family`).

    In two additional families, the baseline and the contender are named by cell:

    - `contest` contains all pairs of cells in the same contest that `compare` does not include. It is only judged on
      `total`.
    - `control` contains pairs of a cell and its control, with the kind of control in the column `control`. Controls are
      in no other comparison. All A/A twins together are a family. Each slowed control, and each further twin
      (`study.ANEW`), is only judged on `total`, as an additional member of the largest other family, so that it is as
      hard to detect as any other difference of the same size.

    Harness: if the harness takes more than 10 % of an arm's `total`, this share could belong to one of the arms alone.
    The ratio is then the possible ratio closest to 1, and `harness_percent` is the share. If it is unclear which arm is
    faster, the comparison is `not comparable`, without a ratio.

    Blocks: a block counts if both arms have a valid record of the same session on the same machine and, if they use the
    same store, on the same device and mount. For a measurement that was stopped by its time limit, use the limit, which
    is a lower bound on the time. The arms are `not comparable`, have no ratio and belong to no family if they differ in
    such a block in measuring code, data, amount of data, or software (except for deliberate differences between
    libraries), or if they have valid records but no such block.

    Losses: arms are not called the `same` if either lost a record, and an arm that lost at least two records more than
    the other is not called `faster`.

    Rounds: if the records contain their rounds, each family is judged after each round (see `looks.judge_looks`). If
    later rounds differ from the first (see `looks.compute_shift_p`), only the first round counts.

    Args:
        matrix: the table from `tables.read_matrix`.
        runs: the table from `tables.build_runs_and_samples`.
        compare: mappings with the compared `factor` and the level `baseline`.
        equivalence_percent: arms that differ by at most this percentage are the `same`.
        seed: the seed of the resampling.
        contest: returns the contest of a cell from its levels; None if it is in no contest.
        of_tasks: the metrics of single tasks, which are not compared between arms with different numbers of tasks.
        resolve_percent: the difference to resolve. A comparison that would need too many blocks for it is given up.
        metrics: the metrics to judge; None for all.
    """
    families: dict[str, list[Pair]] = {}
    for entry in compare:
        families.setdefault(entry["factor"], []).extend(_list_pairs(matrix, entry["factor"], str(entry["baseline"])))
    named = {frozenset((base["cell"], other["cell"])) for pairs in families.values() for base, other in pairs}
    families[CONTEST] = [
        pair for pair in _list_contest_pairs(matrix, contest) if frozenset(c["cell"] for c in pair) not in named
    ]
    cells = {cell["cell"]: cell for cell in matrix.to_dict("records")}
    controls = [(cells[cell["twin_of"]], cell) for cell in cells.values() if cell["twin_of"] in cells]
    alone = [pair for pair in controls if pair[1].get("control") in (*SHARES, *ANEW)]
    families[CONTROL] = [pair for pair in controls if pair not in alone]
    names = [name for name in list_metrics(runs) if metrics is None or name in metrics]
    rows = []
    ended = is_true(runs["timed_out"].to_numpy()) if "timed_out" in runs else False
    runs = runs.assign(counts=runs["ok"].astype(bool) | ended, attempted=runs.get("attempted", True))
    by_block = Blocks(runs)
    largest = np.empty((len(by_block.blocks), 0))
    of_total = [largest]
    judged = [(factor, pairs, factor != CONTEST) for factor, pairs in families.items()]
    for factor, pairs, on_all in [*judged, *((CONTROL, [pair], False) for pair in alone)]:
        if not pairs:
            continue
        family = Family(by_block, pairs, equivalence_percent, seed, resolve_percent)
        beside = largest if pairs[0] in alone else None
        judgements = {name: family.judge_metric(name, beside) for name in names if on_all or name == TOTAL}
        if beside is None:
            of_total.append(family.differences[TOTAL])
        if factor != CONTROL:
            largest = max(largest, family.differences[TOTAL], key=lambda d: int(stats.has_enough_blocks(d).sum()))
        for number, (base, other) in enumerate(pairs):
            for name, of_pairs in judgements.items():
                if name in of_tasks and family.find_differing("tasks")[number]:
                    continue
                role = CONTROL if factor == CONTROL else "decides" if name == TOTAL else "secondary"
                rows.append(Judged(factor, base, other, name, role, *of_pairs[number]))
    d = np.hstack(of_total)
    if by_block.schedule and (shifted := _find_shift(d, by_block.schedule.ends, seed)):
        first = by_block.blocks[: by_block.schedule.ends[0]]
        settings = (compare, equivalence_percent, seed, contest, of_tasks, resolve_percent, metrics)
        return judge_runs(matrix, runs[runs["repeat"].isin(first)], *settings)._replace(shifted=shifted)
    return Judgement(rows, stats.compute_serial_p(d, seed), by_block.schedule, 0)


def build_verdicts_table(
    matrix: pd.DataFrame, runs: pd.DataFrame, compare: Sequence[dict], *settings: Any, **more_settings: Any
) -> pd.DataFrame:
    """Judge the runs with `judge_runs` and build verdicts.csv, with one row per comparison and metric.

    The column `serial_p` is the p value of the test for serial dependence of blocks, the same in all rows. In runs that
    measure until they can decide, the table also has the columns `LOOKED`: the look that ended the comparison, the
    maximum number of blocks, and the state of the comparison (`decision`).
    """
    return format_verdicts(matrix, judge_runs(matrix, runs, compare, *settings, **more_settings))


def judge_study(
    config: dict, program: Study, matrix: pd.DataFrame, runs: pd.DataFrame, metrics: Collection[str] | None = None
) -> Judgement:
    """Judge the runs of a study with the settings in its configuration (see `judge_runs`)."""
    contest = functools.partial(program.get_contest, config=config)
    return judge_runs(
        select_timed(program, matrix),
        runs,
        program.get_section(config)["compare"],
        config["equivalence_percent"],
        config["seed"],
        contest,
        program.of_tasks,
        config.get("resolve_percent", 10),
        metrics,
    )


def select_timed(program: Study, matrix: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a matrix for cells that measure a time that can be compared."""
    return matrix.loc[[program.is_timed(levels) for levels in get_levels(matrix).values()]]


def format_verdicts(matrix: pd.DataFrame, judgement: Judgement) -> pd.DataFrame:
    """Build verdicts.csv from judged comparisons (see `build_verdicts_table`)."""
    rows = []
    for one in judgement.rows:
        values = dict(one.values)
        if judgement.serial_p < GUARD and values.get("look", 1) > 1:
            values["note"] = "; ".join(filter(None, (values["note"], DEPENDENT)))
        rows.append({**_build_head(one, matrix), "metric": one.metric, "role": one.role, **values})
    columns = ["factor", "baseline", "contender", *list_factors(matrix), "metric", "role", *JUDGEMENT]
    columns += LOOKED if judgement.schedule else ()
    return pd.DataFrame(rows, columns=columns).assign(serial_p=judgement.serial_p)


def _build_head(judged: Judged, matrix: pd.DataFrame) -> dict[str, str]:
    """Return the factor, baseline and contender of a comparison, and the levels that its cells have in common.

    Other levels are empty strings. For a control, all levels are those of the control.
    """
    level = "cell" if judged.factor in OF_CELLS else judged.factor
    head = {"factor": judged.factor, "baseline": judged.baseline[level], "contender": judged.contender[level]}
    for name in list_factors(matrix):
        alike = judged.factor == CONTROL or judged.baseline[name] == judged.contender[name]
        head[name] = judged.contender[name] if alike else ""
    return head


def build_looks_table(matrix: pd.DataFrame, judgement: Judgement) -> pd.DataFrame:
    """Build looks.csv, with a row for each comparison on the total time at each look until it ended.

    Returns:
        The following columns:

        - the columns of verdicts.csv that identify a comparison, baseline_cell and contender_cell;
        - look (counts from 1), at (the number of blocks at that look), and blocks (complete blocks of the comparison);
        - ratio, ratio_low and ratio_high (its interval);
        - t and critical (|t| and its threshold);
        - verdict, and decision (the state of the comparison).
    """
    rows = [
        {
            **_build_head(one, matrix),
            **{"metric": one.metric, "role": one.role},
            **{"baseline_cell": one.baseline["cell"], "contender_cell": one.contender["cell"]},
            **{"look": state.look, "at": judgement.schedule.ends[state.look - 1], "blocks": state.verdict.blocks},
            **{"ratio": state.verdict.ratio, "ratio_low": state.verdict.low, "ratio_high": state.verdict.high},
            **{"t": state.t, "critical": state.critical, "verdict": state.outcome, "decision": state.name},
        }
        for one in judgement.rows
        if judgement.schedule and one.metric == TOTAL
        for state in one.states
    ]
    return pd.DataFrame(rows)


def _find_shift(d: stats.Floats, ends: Sequence[int], seed: int) -> int:
    """Return the number of the first look that finds later rounds different from the first; 0 if all are alike."""
    shifts = (looks.compute_shift_p(d[:end], ends[0], seed) for end in ends[1:])
    return next((look for look, p in enumerate(shifts, 2) if p < GUARD), 0)


def _list_pairs(matrix: pd.DataFrame, factor: str, baseline: str) -> list[Pair]:
    originals = matrix[matrix["twin_of"] == ""]
    cells = {cell["cell"]: cell for cell in originals.to_dict("records")}
    return [(cells[base], cells[other]) for base, other in list_factor_pairs(get_levels(originals), factor, baseline)]


def _list_contest_pairs(matrix: pd.DataFrame, contest: Callable[[dict], Hashable | None]) -> list[Pair]:
    """Return all pairs of cells in the same contest, in matrix order, excluding controls."""
    contests: dict[Hashable, list[dict]] = {}
    for cell in matrix[matrix["twin_of"] == ""].to_dict("records"):
        contests.setdefault(contest(cell), []).append(cell)
    return [pair for name, cells in contests.items() if name is not None for pair in itertools.combinations(cells, 2)]
