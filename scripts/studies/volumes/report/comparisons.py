"""The figure of comparisons: the difference in percent with its interval, beside the range that counts as the same."""

from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import judgement
from scripts.report.comparisons import NO_EVIDENCE, OTHER, TOO_FEW
from scripts.report.plot import SAME_X, Figure, Look, Marks, Panel, round_ticks
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Results
from scripts.studies.volumes.series import FACTORS

LOOKS = {
    "higher": Look("#D55E00", "triangle"),
    "lower": Look("#0072B2", "inverted_triangle"),
    "same": Look("#009E73", "diamond"),
    "no evidence": NO_EVIDENCE,
    "too few jobs": TOO_FEW,
    "too few batteries": TOO_FEW,
}
PANELS = 12  # pairs that are drawn; more are no picture that anyone looks through


def comparisons(results: Results) -> Figure:
    """Return a row a metric, phase and place, a panel a pair of levels."""
    title = "Differences in percent"
    rows = results.comparisons
    rows = rows[rows["percent"].notna()] if len(rows) else rows
    if rows.empty:
        return Figure("comparisons", title, "No comparison was made here.", (), pd.DataFrame())
    pairs = [group for _, group in rows.groupby(["factor", "baseline", "contender"], sort=False)]
    panels = [_panel(group, results) for group in pairs[:PANELS]]
    percent = judgement.equivalence(results.facts)
    caption = (
        "Difference of the contender from the baseline with its 95 % CI (right: in numbers). A higher latency is "
        f"worse, a higher rate better. Shaded: ±{percent:g} %, which counts as the same. The axis is one of ratios: "
        "+100 % and -50 % are equally far from none."
        + (
            f" Drawn are the first {PANELS} of {len(pairs)} pairs; all are in the numbers."
            if len(pairs) > PANELS
            else ""
        )
    )
    return Figure("comparisons", title, caption, tuple(panels), results.comparisons)


def _panel(rows: pd.DataFrame, results: Results) -> Panel:
    head = rows.iloc[0]
    rows = rows.assign(x=1 + rows["percent"] / 100, x_low=1 + rows["low"] / 100, x_high=1 + rows["high"] / 100)
    # A ratio of 0 or less has no place on the axis, nor in percent: nothing is less than none.
    rows = rows[rows["x"] > 0].assign(x_low=rows["x_low"].where(rows["x_low"] > 0))
    order = {row: -place for place, row in enumerate(rows.index)}
    rows = rows.assign(y=pd.Series(order))
    marks = []
    for verdict in dict.fromkeys([*LOOKS, *rows["verdict"]]):
        if (own := rows[rows["verdict"] == verdict]).size:
            marks.append(Marks(verdict, LOOKS.get(verdict, OTHER), own[["x", "x_low", "x_high", "y"]]))
    bound = 1 + judgement.equivalence(results.facts) / 100
    varies = [factor for factor in FACTORS if factor != head["factor"] and rows[factor].nunique() > 1]
    new, old = (words.level(head["factor"], head[side]) for side in ("contender", "baseline"))
    panel = Panel(
        title=f"{new} against {old}{_common(head, varies, results)}",
        x_label=f"{new} against {old} (right of 0: {new} is higher)",
        marks=tuple(marks),
        rows=tuple(f"{_note(row)}: {_row(row, varies, results)}" for row in rows.to_dict("records")),
        x_log=True,
        rules=(SAME_X,),
        band=(1 / bound, bound),
    )
    ticks = _readable(*panel.x_range())
    return replace(panel, x_ticks=ticks, x_tick_texts=tuple(_tick(tick) for tick in ticks))


def _readable(low: float, high: float) -> tuple[float, ...]:
    """Round ratios, 1 first and then outwards, as far from each other as their texts in percent need."""
    kept: list[float] = []
    for tick in sorted(round_ticks(low, high), key=lambda tick: abs(np.log(tick))):
        if all(abs(np.log(tick / other)) > 0.09 * np.log(high / low) for other in kept):
            kept.append(tick)
    return tuple(sorted(kept))


def _tick(ratio: float) -> str:
    return "0" if ratio == 1 else f"{100 * (ratio - 1):+.3g} %"


def _common(head: pd.Series, varies: list[str], results: Results) -> str:
    """What all rows of a panel share, where the run has several levels of it."""
    shared = [factor for factor in ("store", *words.varying(results)) if factor not in (*varies, head["factor"])]
    levels = [words.level(factor, head[factor]) for factor in shared if head[factor]]
    return f": {', '.join(levels)}" if levels else ""


def _row(row: dict, varies: list[str], results: Results) -> str:
    parts = [words.metric(row["metric"]), *(words.level(factor, row[factor]) for factor in varies)]
    parts += [row["phase"]] if row["phase"] != "all" else ["all jobs"]
    return " · ".join(filter(None, parts))


def _note(row: dict) -> str:
    return f"{words.signed(row['percent'])}{words.interval(row['low'], row['high'], words.signed)} {row['verdict']}"
