"""Figures of comparisons: the ratio with its interval, marked by verdict, beside the range that counts as the same."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import judgement, prose
from scripts.report.findings import DECIDED
from scripts.report.names import ratio_with_interval
from scripts.report.plot import GREY, SAME_X, Figure, Look, Marks, Panel, round_ticks
from scripts.report.results import Results

NO_EVIDENCE = Look(GREY, "triangle", filled=False)
TOO_FEW = Look(GREY, "hex", filled=False)
OTHER = Look(GREY, "x")
LOOKS = {
    "faster": Look("#009E73", "circle"),
    "slower": Look("#D55E00", "square"),
    "same": Look("#5f6f81", "diamond"),
    "no evidence": NO_EVIDENCE,
    "too few repeats": TOO_FEW,
    "not comparable": OTHER,
}
JUDGED = ["ratio", "ratio_low", "ratio_high", "p", "verdict", "detectable_ratio", "note"]
PANELS = 24  # pairs and places that are drawn; more are no picture that anyone looks through
ROWS = 12  # of the picture that a page opens with


def by(results: Results, factors: list[str] | None = None, metric: str = "", otherwise: bool = True) -> Figure:
    """Return the comparisons of `factors` (default: all) on a metric (default: the one that decides).

    Where there is none, a figure without panels says so if `otherwise`.
    """
    metric = metric or results.report.metrics[0].name
    rows = results.comparisons(metric)
    rows = rows[rows["factor"].isin(factors)] if factors and len(rows) else rows
    extra = [metric] if metric != results.report.metrics[0].name else []
    name = "-".join(["comparison", *(factors or ["all"]), *extra])
    if rows.empty and not otherwise:
        return Figure(name, "", "", (), rows)
    named = f" by {prose.listing(factor.replace('_', ' ') for factor in factors)}" if factors else ""
    return of_rows(results, rows, name, f"Ratio of {results.report.metric(metric).title}{named}")


def of_rows(results: Results, rows: pd.DataFrame, name: str, title: str) -> Figure:
    """Return comparisons on one metric, one row each, one panel per place and pair of levels."""
    if rows.empty:
        return Figure(name, title, "No comparison was made here.", (), pd.DataFrame())
    keys = ["factor", "baseline", "contender", *results.report.places, "state"]
    groups = [group for _, group in rows.groupby(keys, sort=False)]
    drawn = f" The first {PANELS} of {len(groups)} panels are drawn; all are in the numbers."
    caption = _caption(results, rows) + (drawn if len(groups) > PANELS else "")
    panels = tuple(_of_pair(group, results) for group in groups[:PANELS])
    return Figure(name, title, caption, panels, _numbers(results, rows))


def deciding(results: Results) -> tuple[Figure, Figure]:
    """Return the picture that a page opens with, the largest decided effects first, and one of what is left."""
    rows = results.comparisons(results.report.metrics[0].name)
    if rows.empty:
        nothing = Figure("deciding", "", "", (), rows)
        return nothing, replace(nothing, name="deciding-rest")
    decided = rows["verdict"].isin(DECIDED)
    effect = np.abs(np.log(rows["ratio"].astype(float))).fillna(0).where(rows["verdict"] != "same", 0)
    own = rows["factor"] == results.report.headline
    rows = rows.assign(decided=decided, own=own, effect=effect)
    rows = rows.sort_values(["decided", "effect"], ascending=False, kind="stable")
    # The factor that the question is about has half of the rows, if it needs them.
    first = pd.concat([rows[rows["own"] & rows["decided"]].head(ROWS // 2), rows])
    first = first[~first.index.duplicated()].head(ROWS).sort_values(["own", "decided", "effect"], ascending=False)
    rest = rows[~rows.index.isin(first.index)].head(5 * ROWS)
    caption = _caption(results, first)
    return tuple(
        Figure(name, title, caption, (_mixed(some, results),) if len(some) else (), _numbers(results, some))
        for name, title, some in (
            ("deciding", "What was compared, the largest decided effects first", first),
            ("deciding-rest", "The other comparisons", rest),
        )
    )


def _caption(results: Results, rows: pd.DataFrame) -> str:
    metric, blocks = results.report.metric(rows["metric"].iloc[0]), results.report.unit == "block"
    return (
        f"Ratio of {metric.title}{', block by block: median' if blocks else ''} with its 95 % CI. "
        f"Left of 1, the first named is {'faster' if metric.is_time else 'lower'}. "
        f"Shaded: ±{judgement.equivalence(results.facts):g} %, which counts as the same."
    )


def _numbers(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    columns = ["factor", "baseline", "contender", *results.report.names, "state", "metric", "blocks"]
    columns += ["baseline_s", "contender_s", *JUDGED]
    return rows[[column for column in columns if column in rows]]


def _mixed(rows: pd.DataFrame, results: Results) -> Panel:
    """Comparisons of several factors and places in one panel, each named in full."""
    named = results.names
    places = [named.place(row) for row in rows.to_dict("records")]
    alike = len(set(places)) == 1
    labels = [
        ", ".join(filter(None, [_pair(row, results), _inside(row, rows, results), "" if alike else place]))
        for row, place in zip(rows.to_dict("records"), places, strict=True)
    ]
    y = -np.arange(len(rows), dtype=float)
    title = prose.capital(places[0]) if alike else ""
    return _panel(rows.assign(y=y), tuple(labels), title, "time of the first named / time of the second", results)


def _pair(row: Mapping, results: Results) -> str:
    new, old = (results.names.level(row["factor"], row[side]) for side in ("contender", "baseline"))
    if new.startswith("HDF5 ") and old.startswith("HDF5 "):
        old = old.removeprefix("HDF5 ")
    return f"{new} vs {old}"


def _inside(row: Mapping, rows: pd.DataFrame, results: Results) -> str:
    """A row's levels of the factors that vary among `rows`, its place apart."""
    inside = [name for name in results.report.names if name not in results.report.places and rows[name].nunique() > 1]
    return results.names.row(row, [name for name in inside if row[name]]) if any(row[name] for name in inside) else ""


def _of_pair(rows: pd.DataFrame, results: Results) -> Panel:
    head, named = rows.iloc[0], results.names
    inside = [name for name in results.report.names if name not in (*results.report.places, head["factor"])]
    varies = [name for name in inside if rows[name].nunique() > 1] or [name for name in inside if head[name]][:1]
    order = named.sorted_rows(rows, varies)
    rows = rows.assign(y=[-order.index(tuple(levels)) for levels in rows[varies].to_numpy()])
    rows = rows.sort_values("y", ascending=False)
    pair = _pair(head, results)
    where = named.place(head) or results.report.factor(head["factor"]).title
    labels = tuple(named.row(dict(zip(varies, levels, strict=True)), varies) for levels in order)
    metric = results.report.metric(head["metric"])
    axis = f"{metric.title}: ratio{' of times' if metric.is_time else ''}, {pair}"
    return _panel(rows, labels, prose.capital(f"{pair}: {where}"), axis, results)


def _panel(rows: pd.DataFrame, labels: tuple[str, ...], title: str, axis: str, results: Results) -> Panel:
    names = {"ratio": "x", "ratio_low": "x_low", "ratio_high": "x_high", "blocks": "n"}
    marks = tuple(
        Marks(verdict, look, rows[rows["verdict"] == verdict].rename(columns=names)[["x", "x_low", "x_high", "y", "n"]])
        for verdict, look in LOOKS.items()
        if (rows["verdict"] == verdict).any()
    )
    percent = judgement.equivalence(results.facts) / 100
    panel = Panel(
        title=title,
        x_label=prose.capital(axis),
        marks=marks,
        rows=tuple(f"{_note(row)}: {label}" for row, label in zip(rows.to_dict("records"), labels, strict=True)),
        x_log=True,
        rules=(SAME_X,),
        band=(1 / (1 + percent), 1 + percent),
    )
    return replace(panel, x_ticks=round_ticks(*panel.x_range()))


def _note(row: Mapping) -> str:
    ratio = ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
    return f"{row['verdict']} {ratio}" if ratio else row["verdict"]
