"""Decide what to measure next after each round of a study (METHOD 5).

There are three possibilities: nothing, blocks that replace missing records, or another round with only the cells that
undecided comparisons need. The decision depends on earlier looks only through the blocks that they ordered. Verdicts
depend on the records alone.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sbench.design import blocks, matrix
from sbench.design import study as studies
from sbench.design.blocks import Order
from sbench.design.study import Cell, Study
from sbench.measure import gather, judging, tables
from sbench.measure.judging import CONTEST, CONTROL, GUARD, TOTAL, Judged, Judgement
from sbench.probe import provenance, sizes
from sbench.verdicts.looks import GIVEN_UP, OPEN, State, list_looks
from sbench.verdicts.outcomes import Outcome

# The slowed control that is measured in every round, and compared until its slowdown is detected.
_FOUND = "slow10"


class _Cost(NamedTuple):
    """The time that a study's measuring jobs have taken so far, and the estimated time of a round, in seconds."""

    spent: float
    round: float


def take_look(config: dict, study: str, folder: Path, number: int) -> dict:
    """Judge the records of a study and decide which blocks to measure next.

    Args:
        config: the resolved configuration.
        study: the name of the study.
        folder: the folder with the study's results.
        number: the number of the look in this call of the workflow, starting at 1.

    Returns:
        The artefact of the look: its status, `reasons` (a sentence that explains the decision), the entries of the
        `Order` to measure next, and, if a round was considered, the comparisons.
    """
    program, cells = studies.get_study(study), matrix.expand_matrix(config, study)[0]
    opened = blocks.read_blocks(folder / "blocks.json")
    orders = [opened.order, *blocks.read_orders(folder / "looks")[: number - 1]]
    sessions = blocks.read_measured_blocks(config, cells)
    # Cells without records were skipped, because their libraries or data could not be made.
    tried = [cell for cell in matrix.select_cells(cells, config["only"]) if cell.name in sessions]
    taken = blocks.list_begun_blocks(sessions).union(*(order.blocks for order in orders))
    in_vain = config["again"] or len(blocks.list_failing_cells(tried, sessions)) == len(tried)
    if in_vain:
        return _build_look(Order([], None, orders[-1].round), "no further blocks")
    lacking = _count_lacking(config, program, tried, sessions, orders)
    extra = config["extra_blocks"] - sum(len(order.blocks) for order in _list_extra(orders))
    if added := min(lacking, extra):
        order = orders[-1]._replace(blocks=blocks.list_next_blocks(taken, added))
        words = f"{sizes.format_count(added, 'block')} more, as {lacking} are missing"
        return _build_look(_draw_order(config, program, tried, order, opened), words)
    most = program.count_most_repeats(config)
    if most <= program.count_repeats(config):
        return _build_look(Order([], None, orders[-1].round), "no further blocks")
    return _choose_round(config, program, tried, folder, orders, opened, taken)


def _choose_round(
    config: dict,
    program: Study,
    tried: list[Cell],
    folder: Path,
    orders: list[Order],
    opened: blocks.Open,
    taken: set[int],
) -> dict:
    """Judge the records, and order a round for the undecided comparisons if the limits on blocks and time allow it."""
    last = orders[-1]
    rows, kept = gather.read_study(folder, config["run"], program.name)
    runs, _ = tables.build_runs_and_samples(rows, kept)
    if "round" not in runs or runs["round"].isna().all():
        # All records are of an earlier call of fixed repeats, which counts as the first round.
        runs = runs.assign(round=1, most_repeats=program.count_most_repeats(config))
    judgement = judging.judge_study(config, program, rows, runs, metrics=[TOTAL])
    comparisons = [one for one in judgement.rows if one.role == "decides" and one.factor != CONTEST]
    undecided = list_open_comparisons(judgement, runs, {cell.name for cell in tried})
    names = list_cells_of_round(tried, undecided)
    measured, most = len(runs["repeat"].unique()), program.count_most_repeats(config)
    # Do not count blocks without these cells or with a failed record.
    complete = max((one.states[-1].verdict.blocks for one in undecided), default=0)
    ordered = sum(len(order.blocks) for order in orders)
    ends = list_looks(program.count_repeats(config), most) if ordered < most + config["extra_blocks"] else []
    target = next((end for end in ends if end > complete), complete)
    order = Order(blocks.list_next_blocks(taken, target - complete), names, last.round + 1)
    cost = _estimate_cost(runs, order)
    budget = config.get("budget_s")
    reason = ""
    if not undecided:
        reason = "no further blocks"
    elif judgement.shifted:
        reason = "stopped: later blocks differ from the first round, which alone counts"
    elif judgement.serial_p < GUARD:
        reason = "stopped: blocks depend on one another"
    elif not order.blocks:
        reason = f"stopped at most_repeats ({most})"
    elif budget is not None and cost.spent + cost.round > budget:
        reason = (
            f"stopped: {cost.spent:.0f} s of budget_s ({budget:g} s) are spent, a round would take {cost.round:.0f} s"
        )
    words = _describe_states(measured, comparisons, undecided)
    if reason:
        order = Order([], None, last.round)
    else:
        many = f"{sizes.format_count(len(order.blocks), 'block')} of {sizes.format_count(len(names), 'cell')}"
        reason = f"next: {many}, about {cost.round:.0f} s"
        order = _draw_order(config, program, tried, order, opened)
    look = _build_look(order, f"{words}; {reason}")
    return look | {
        "ends": judgement.schedule.ends if judgement.schedule else [measured],
        "levels": judgement.schedule.levels if judgement.schedule else [],
        "comparisons": list_looks_of_comparisons(rows, judgement),
        "serial_p": judgement.serial_p if math.isfinite(judgement.serial_p) else None,
        "shifted": judgement.shifted,
        "seconds": cost._asdict(),
        **provenance.describe_code(provenance.list_package_modules("verdicts", "measure")),
    }


def list_looks_of_comparisons(rows: pd.DataFrame, judgement: Judgement) -> list[dict]:
    """Return the rows of looks.csv as dictionaries for JSON, with None instead of NaN and infinity."""
    table = judging.build_looks_table(rows, judgement).astype(object)
    return table.where(~table.isin([math.nan, math.inf]), None).to_dict("records")


def list_open_comparisons(
    judgement: Judgement, runs: pd.DataFrame, tried: set[str], look: int | None = None
) -> list[Judged]:
    """Return the comparisons that are still open after a look (default: the last), so that more blocks may decide them.

    Only comparisons of factors, of the fastest cells of each contest, and of the control that is slowed by 10 % are
    considered. Comparisons that are not comparable, or whose cells lack a valid record, are not open.
    """
    able = set(runs.loc[runs["ok"].astype(bool), "cell"]) & tried
    leaders = _list_leaders(one for one in judgement.rows if one.factor == CONTEST)

    def is_considered(judged: Judged) -> bool:
        pair = {judged.baseline["cell"], judged.contender["cell"]}
        if not pair <= able or judged.values["verdict"] == Outcome.NOT_COMPARABLE:
            return False
        if judged.factor == CONTEST:
            return not leaders.isdisjoint(pair)
        if judged.factor == CONTROL:
            return bool(judged.contender.get("control") == _FOUND)
        return judged.role == "decides"

    def is_open(states: Sequence[State]) -> bool:
        last = len(states) if look is None else look
        return 0 < last <= len(states) and states[last - 1].name == OPEN

    return [one for one in judgement.rows if is_open(one.states) and is_considered(one)]


def _list_leaders(contests: Iterable[Judged]) -> set[str]:
    """Return the cells that are not slower, by the median ratio, than any other cell in their contest."""
    cells, beaten = set(), set()
    for one in contests:
        cells |= {one.baseline["cell"], one.contender["cell"]}
        if one.values["ratio"] != 1:
            beaten.add((one.baseline if one.values["ratio"] < 1 else one.contender)["cell"])
    return cells - beaten


def list_cells_of_round(tried: Sequence[Cell], undecided: Iterable[Judged]) -> list[str]:
    """Return the cells to measure in a round, in matrix order.

    These are the cells of the undecided comparisons, and the slowed control with the cell that it repeats and that
    cell's A/A twin.
    """
    names = {arm["cell"] for one in undecided for arm in (one.baseline, one.contender)}
    slowed = next((cell for cell in tried if cell.levels.get("control") == _FOUND), None)
    if slowed:
        trio = {cell.name for cell in tried if cell.twin_of == slowed.twin_of and cell.levels["control"] == "twin"}
        names |= {slowed.name, slowed.twin_of, *trio}
    return [cell.name for cell in tried if cell.name in names]


def _count_lacking(
    config: dict, program: Study, tried: list[Cell], sessions: blocks.Measured, orders: list[Order]
) -> int:
    """Count the blocks that are missing because of failed records.

    In the first round, all cells must have `repeats` blocks. In a later round, only the blocks and cells of that round
    count.
    """
    compare, last = program.get_section(config)["compare"], orders[-1]
    ordered = [order for order in orders[1:] if order.round == last.round and order.round > orders[0].round]
    if not ordered:
        return blocks.count_lacking_blocks(tried, compare, sessions, program.count_repeats(config))
    begun = ordered[0].blocks[0]
    of_round = {
        name: {block: session for block, session in of_cell.items() if block >= begun}
        for name, of_cell in sessions.items()
    }
    cells = [cell for cell in tried if cell.name in last.select_cells([cell.name])]
    return blocks.count_lacking_blocks(cells, compare, of_round, len(ordered[0].blocks))


def _list_extra(orders: Sequence[Order]) -> list[Order]:
    """Return the orders that replaced missing records, which have the same round as the order before them."""
    return [order for before, order in itertools.pairwise(orders) if order.round == before.round]


def _draw_order(config: dict, program: Study, tried: list[Cell], order: Order, opened: blocks.Open) -> Order:
    """Choose the random cell orders for the blocks of an order, unless the study measures cells in matrix order."""
    if opened.draw is None:
        return order._replace(draw=None)
    cells = [cell for cell in tried if order.select_cells([cell.name])]
    compare, seed = program.get_section(config)["compare"], blocks.get_order_seed(config, program.name)
    return order._replace(draw=blocks.choose_draw(cells, compare, seed, order.blocks))


def _estimate_cost(runs: pd.DataFrame, order: Order) -> _Cost:
    """Estimate the time of an order from the medians of its cells; a cell without times takes the typical time."""
    seconds = runs["step_seconds"].astype(float).dropna() if "step_seconds" in runs else pd.Series(dtype=float)
    medians = seconds.groupby(runs["cell"]).median()
    typical = statistics.median(medians) if len(medians) else 0.0
    each = (float(medians.get(name, typical)) for name in order.cells or ())
    return _Cost(float(seconds.sum()), len(order.blocks) * sum(each))


def _describe_states(measured: int, comparisons: Sequence[Judged], undecided: Sequence[Judged]) -> str:
    """Write how many comparisons are decided, given up, not comparable, open, and without valid records.

    `undecided` are the comparisons that further blocks may decide, including the control slowed by 10 % until it is
    detected.
    """
    compared = [one for one in comparisons if one.values["verdict"] != Outcome.NOT_COMPARABLE]
    names = [one.states[-1].name if one.states else OPEN for one in compared]
    still = sum(one.factor not in (CONTEST, CONTROL) for one in undecided)
    counts = {
        "given up": names.count(GIVEN_UP),
        "not comparable": len(comparisons) - len(compared),
        "without valid records": names.count(OPEN) - still,
        "open": still,
    }
    decided = len(names) - names.count(GIVEN_UP) - names.count(OPEN)
    words = (
        f"after {sizes.format_count(measured, 'block')}, {decided} of"
        f" {sizes.format_count(len(comparisons), 'comparison')} decided"
    )
    parts = [words, *(f"{count} {state}" for state, count in counts.items() if count)]
    is_control_open = any(one.factor == CONTROL for one in undecided)
    return ", ".join(parts + ["the slowdown of the control not found"] * is_control_open)


def _build_look(order: Order, words: str) -> dict:
    return {"status": "done", "reasons": [words], **order._asdict()}
