"""Figures of comparisons: the ratio with its interval, marked by verdict, beside the range that counts as the same."""

from dataclasses import replace
from types import ModuleType

import pandas as pd

from scripts.report import judgement, prose
from scripts.report.plot import GREY, SAME_X, Figure, Look, Marks, Panel, ratio_ticks

NO_EVIDENCE = Look(GREY, "triangle", filled=False)
TOO_FEW = Look(GREY, "hex", filled=False)
OTHER = Look(GREY, "x")
LOOKS = {
    "faster": Look("#009E73", "circle"),
    "slower": Look("#D55E00", "square"),
    "same": Look("#0072B2", "diamond"),
    "no evidence": NO_EVIDENCE,
    "too few repeats": TOO_FEW,
    "not comparable": OTHER,
}
JUDGED = ["ratio", "ratio_low", "ratio_high", "p", "verdict", "detectable_ratio", "note"]
PANELS = 24  # pairs and places that are drawn; more are no picture that anyone looks through


def comparisons(name: str, title: str, rows: pd.DataFrame, facts: dict, words: ModuleType) -> Figure:
    """Return a row a comparison, a panel a place and pair of levels.

    Args:
        name: of the figure's files.
        title: of the figure.
        rows: of verdicts.csv, on one metric.
        facts: of the run.
        words: the study's: FACTORS, PLACE, METRICS, level, label, place, varying, sorted_levels.
    """
    if rows.empty:
        return Figure(name, title, "No comparison was made here.", (), pd.DataFrame())
    timed = words.METRICS[rows["metric"].iloc[0]]
    keys = ["factor", "baseline", "contender", *words.PLACE]
    groups = [group for _, group in rows.groupby(keys, sort=False)]
    drawn = f" Drawn are the first {PANELS} of {len(groups)} panels; all are in the numbers."
    caption = (
        f"Ratio = {timed} of the contender / of the baseline, block by block: median and 95 % interval "
        "(right: in numbers). Left of 1 the contender is faster. "
        f"Shaded: ±{judgement.equivalence(facts):g} %, which counts as the same."
        + (drawn if len(groups) > PANELS else "")
    )
    columns = ["factor", "baseline", "contender", *words.FACTORS, "metric", "blocks", "baseline_s", "contender_s"]
    panels = tuple(_panel(group, facts, words) for group in groups[:PANELS])
    return Figure(name, title, caption, panels, rows[[column for column in columns + JUDGED if column in rows]])


def _panel(rows: pd.DataFrame, facts: dict, words: ModuleType) -> Panel:
    head = rows.iloc[0]
    inside = [factor for factor in words.FACTORS if factor not in (*words.PLACE, head["factor"])]
    varies = words.varying(rows, inside) or [factor for factor in inside if head[factor]][:1]
    order = words.sorted_levels(rows, varies)
    rows = rows.assign(y=[-order.index(tuple(levels)) for levels in rows[varies].to_numpy()])
    rows = rows.sort_values("y", ascending=False)
    names = {"ratio": "x", "ratio_low": "x_low", "ratio_high": "x_high", "blocks": "n"}
    marks = tuple(
        Marks(verdict, look, rows[rows["verdict"] == verdict].rename(columns=names)[["x", "x_low", "x_high", "y", "n"]])
        for verdict, look in LOOKS.items()
        if (rows["verdict"] == verdict).any()
    )
    new, old = (words.level(head["factor"], head[side], facts) for side in ("contender", "baseline"))
    percent = judgement.equivalence(facts) / 100
    where = words.place({factor: head[factor] for factor in words.PLACE}, facts) or head["factor"].replace("_", " ")
    panel = Panel(
        title=prose.capital(f"{new} against {old}: {where}"),
        x_label=f"{prose.capital(words.METRICS[head['metric']])}: {new} / {old} (left of 1: {new} is faster)",
        marks=marks,
        rows=tuple(words.label(dict(zip(varies, levels, strict=True)), varies, facts) for levels in order),
        row_notes=tuple(_note(row) for _, row in rows.iterrows()),
        row_height=26 if len(order) <= 20 else 19,
        x_log=True,
        rules=(SAME_X,),
        band=(1 / (1 + percent), 1 + percent),
    )
    return replace(panel, x_ticks=ratio_ticks(*panel.x_range()))


def _note(row: pd.Series) -> str:
    if pd.isna(row["ratio"]):
        return row["verdict"]
    interval = (
        f" [{prose.ratio(row['ratio_low'])}, {prose.ratio(row['ratio_high'])}]" if pd.notna(row["ratio_low"]) else ""
    )
    return f"{prose.ratio(row['ratio'])}{interval} {row['verdict']}"
