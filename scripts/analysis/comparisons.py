"""Figures of comparisons: the ratio with its interval, marked by verdict, beside the range that counts as the same."""

from dataclasses import replace

import pandas as pd

from scripts.analysis import prose
from scripts.analysis.plot import GREY, Figure, Look, Marks, Panel, ratio_ticks
from scripts.analysis.shots import words
from scripts.analysis.shots.results import FACTORS, Results

LOOKS = {
    "faster": Look("#009E73", "circle"),
    "slower": Look("#D55E00", "square"),
    "same": Look("#0072B2", "diamond"),
    "no evidence": Look(GREY, "triangle", filled=False),
    "too few repeats": Look(GREY, "hex", filled=False),
    "not comparable": Look(GREY, "x"),
}
COLUMNS = ["factor", "baseline", "contender", *FACTORS, "metric", "blocks", "baseline_s", "contender_s"]
JUDGED = ["ratio", "ratio_low", "ratio_high", "p", "verdict", "detectable_ratio", "note"]


def comparisons(results: Results, factors: list[str] | None = None, metric: str = "total") -> Figure:
    """Return a row a comparison of `factors` (default: all but the control), a panel a place and pair of levels."""
    verdicts = results.verdicts
    name = "-".join(["comparison", *(factors or ["all"]), *([metric] if metric != "total" else [])])
    title = f"Ratio of {words.METRICS[metric]}" + (
        f" by {prose.listing(_plain(f) for f in factors)}" if factors else ""
    )
    rows = verdicts[(verdicts["metric"] == metric) & (verdicts["role"] != "control")] if len(verdicts) else verdicts
    rows = rows[rows["factor"].isin(factors)] if factors and len(rows) else rows
    if rows.empty:
        return Figure(name, title, "No comparison was made here.", (), pd.DataFrame())
    places = list(words.PLACE)
    panels = [
        _panel(group, results) for _, group in rows.groupby(["factor", "baseline", "contender", *places], sort=False)
    ]
    percent = words.equivalence(results.facts)
    caption = (
        f"Ratio = {words.METRICS[metric]} of the contender / of the baseline, block by block: median and 95 % interval "
        f"(right: in numbers). Left of 1 the contender is faster. Shaded: ±{percent:g} %, which counts as the same."
    )
    return Figure(name, title, caption, tuple(panels), rows[[c for c in COLUMNS + JUDGED if c in rows]])


def _plain(factor: str) -> str:
    return factor.replace("_", " ")


def _panel(rows: pd.DataFrame, results: Results) -> Panel:
    head = rows.iloc[0]
    inside = [factor for factor in FACTORS if factor not in (*words.PLACE, head["factor"])]
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
    new, old = (words.level(head["factor"], head[side], results.facts) for side in ("contender", "baseline"))
    percent = words.equivalence(results.facts) / 100
    where = words.place(head, results.facts) if head["factor"] not in words.PLACE else _plain(head["factor"])
    panel = Panel(
        title=prose.capital(f"{new} against {old}: {where}"),
        x_label=f"{prose.capital(words.METRICS[head['metric']])}: {new} / {old} (left of 1: {new} is faster)",
        marks=marks,
        rows=tuple(words.label(dict(zip(varies, levels, strict=True)), varies, results.facts) for levels in order),
        row_notes=tuple(_note(row) for _, row in rows.iterrows()),
        row_height=26 if len(order) <= 20 else 19,
        x_log=True,
        rule=1.0,
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
