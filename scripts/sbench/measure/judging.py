"""Judge runs: which arm is faster, and by how much (METHOD 6, 7, 17)."""

import functools
import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.design.blocks import list_factor_pairs
from sbench.design.study import ANEW, Study
from sbench.measure.families import JUDGEMENT, LOOKED, Blocks, Family, Pair, is_true
from sbench.measure.tables import get_levels, list_factors, list_metrics
from sbench.probe.slowed import SHARES
from sbench.verdicts import looks, stats
from sbench.verdicts.looks import Schedule, State

# Families whose baseline and contender are cells, not levels of a factor.
CONTEST, CONTROL = "contest", "control"
OF_CELLS = (CONTEST, CONTROL)
# Metric that decides.
TOTAL = "total"
# Largest p at which blocks are taken to depend on one another, or later rounds to differ from the first.
GUARD = 0.01
DEPENDENT = "blocks depend on one another"


class Judged(NamedTuple):
    """A comparison on a metric: its cells, its entries of verdicts.csv, and its states at the looks, if any."""

    factor: str
    baseline: dict
    contender: dict
    metric: str
    role: str
    values: dict
    states: list[State]


class Judgement(NamedTuple):
    """The judged runs of a study.

    Attributes:
        rows: comparisons and metrics, in the order of `compare`, then of the matrix.
        serial_p: p of blocks that resemble their predecessors (`stats.compute_serial_p`).
        schedule: the looks; None if repeats are fixed.
        shifted: the look at which later rounds differed from the first, so that only the first counts; 0 otherwise.
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

    A cell at the baseline's level is compared with each cell that differs from it in that factor alone. All comparisons
    of a factor on one metric are one family, whose p are adjusted jointly (`stats.judge_family`).

    Two families have cells as baseline and contender. Factor `contest`: pairs of a contest that `compare` does not
    name, on `total` alone, all contests together. Factor `control`: a cell and its control, whose level is in column
    `control`; controls enter no other comparison. A/A twins are a family. Each slowed control and further twin
    (`study.ANEW`) is judged on `total` alone, as another member of the largest other family, so that it is as hard to
    detect as any difference of its size.

    If the harness takes more than 10 % of the `total` of an arm, that share is a bound: it may belong to an arm alone,
    so the ratio is the remaining ratio closest to 1, and `harness_percent` is the share. If that decides no order, the
    comparison is `not comparable`, without a ratio.

    A block counts if both arms have a valid record of one session on one machine and, if they read from one store, from
    one device and mount. A record that its time limit ended counts with the limit, a lower bound of its time. Arms are
    `not comparable`, without a ratio and outside families, if they differ in such a block in measuring code, data,
    amount of data, or software (except deliberate differences of their libraries), or if they have valid records but no
    such block.

    An arm that lost two records more than the other is not `faster`, nor are the arms the `same`.

    If the records name their rounds, the families are judged after each round (`looks.judge_looks`), with
    `resolve_percent` to give comparisons up. If later rounds differ from the first (`looks.compute_shift_p`), only the
    first counts.

    `matrix` and `runs` are from `tables.read_matrix` and `tables.build_runs_and_samples`. `compare` has mappings with
    `factor` and `baseline`, its level. `contest` returns the contest of a cell from its levels, or None. Metrics
    `of_tasks` are of single tasks: they do not compare arms of different numbers of tasks. Only `metrics` are judged,
    by default all.
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
    matrix: pd.DataFrame,
    runs: pd.DataFrame,
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
    contest: Callable[[dict], Hashable | None] = lambda cell: None,
    of_tasks: Collection[str] = (),
    resolve_percent: float = 10,
) -> pd.DataFrame:
    """Return verdicts.csv: one row per comparison and metric (`judge_runs`), in the order of `compare` and matrix.

    Column `serial_p` is the p of blocks that resemble their predecessors, one for the whole table. Runs that measure
    until they can decide have the columns `LOOKED`, too: the look that ended the comparison, the largest number of
    blocks, and its state (`decision`).
    """
    settings = (compare, equivalence_percent, seed, contest, of_tasks, resolve_percent)
    return format_verdicts(matrix, judge_runs(matrix, runs, *settings))


def judge_study(
    config: dict, program: Study, matrix: pd.DataFrame, runs: pd.DataFrame, metrics: Collection[str] | None = None
) -> Judgement:
    """Judge the runs of a study with the settings of its configuration (`judge_runs`)."""
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
    """Return the cells of a matrix that take a time to compare."""
    return matrix.loc[[program.is_timed(levels) for levels in get_levels(matrix).values()]]


def format_verdicts(matrix: pd.DataFrame, judgement: Judgement) -> pd.DataFrame:
    """Return verdicts.csv of judged runs (`build_verdicts_table`)."""
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
    """Return the factor, baseline and contender of a comparison, and the levels that its cells share."""
    level = "cell" if judged.factor in OF_CELLS else judged.factor
    head = {"factor": judged.factor, "baseline": judged.baseline[level], "contender": judged.contender[level]}
    for name in list_factors(matrix):
        alike = judged.factor == CONTROL or judged.baseline[name] == judged.contender[name]
        head[name] = judged.contender[name] if alike else ""
    return head


def build_looks_table(matrix: pd.DataFrame, judgement: Judgement) -> pd.DataFrame:
    """Return looks.csv: the comparisons on the deciding metric at each look, until the look that ended each.

    Returns:
        the columns of verdicts.csv that name a comparison; baseline_cell and contender_cell; look, from 1; at, the
        blocks at that look; blocks, those of the comparison that are complete; ratio with its interval; t and critical,
        |t| and its threshold; verdict; decision, the state.
    """
    rows = [
        {
            **_build_head(one, matrix),
            **{"metric": one.metric, "role": one.role},
            **{"baseline_cell": one.baseline["cell"], "contender_cell": one.contender["cell"]},
            **{"look": state.look, "at": judgement.schedule.ends[state.look - 1], "blocks": state.verdict.blocks},
            **{"ratio": state.verdict.ratio, "ratio_low": state.verdict.low, "ratio_high": state.verdict.high},
            **{"t": state.t, "critical": state.critical, "verdict": state.verdict.verdict, "decision": state.name},
        }
        for one in judgement.rows
        if judgement.schedule and one.metric == TOTAL
        for state in one.states
    ]
    return pd.DataFrame(rows)


def _find_shift(d: stats.Floats, ends: Sequence[int], seed: int) -> int:
    """Return the first look at which later rounds differ from the first, or 0."""
    shifts = (looks.compute_shift_p(d[:end], ends[0], seed) for end in ends[1:])
    return next((look for look, p in enumerate(shifts, 2) if p < GUARD), 0)


def _list_pairs(matrix: pd.DataFrame, factor: str, baseline: str) -> list[Pair]:
    originals = matrix[matrix["twin_of"] == ""]
    cells = {cell["cell"]: cell for cell in originals.to_dict("records")}
    return [(cells[base], cells[other]) for base, other in list_factor_pairs(get_levels(originals), factor, baseline)]


def _list_contest_pairs(matrix: pd.DataFrame, contest: Callable[[dict], Hashable | None]) -> list[Pair]:
    """Return all pairs of cells of each contest, in the order of the matrix; twins are in no contest."""
    contests: dict[Hashable, list[dict]] = {}
    for cell in matrix[matrix["twin_of"] == ""].to_dict("records"):
        contests.setdefault(contest(cell), []).append(cell)
    return [pair for name, cells in contests.items() if name is not None for pair in itertools.combinations(cells, 2)]
