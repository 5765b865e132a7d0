"""Draw the ratios of comparisons with their intervals, marked by verdict, and the range that counts as the same."""

from dataclasses import replace

import numpy as np
import pandas as pd

from sbench.measure.judging import DEPENDENT
from sbench.pages import prose, row_labels, words
from sbench.pages.headline import list_asked_factors
from sbench.pages.names import format_multiple, format_ratio_with_interval
from sbench.pages.page import Table
from sbench.pages.plot import GREY, SAME_X, Figure, Look, Marks, Panel, choose_round_ticks, format_tick
from sbench.pages.results import Results
from sbench.verdicts.outcomes import DECIDED, ORDERED, Outcome

LOOKS = {
    Outcome.FASTER: Look("#009E73", "circle"),
    Outcome.SLOWER: Look("#D55E00", "square"),
    Outcome.SAME: Look("#5f6f81", "diamond"),
    Outcome.NO_EVIDENCE: Look(GREY, "triangle", filled=False),
    Outcome.TOO_FEW: Look(GREY, "hex", filled=False),
    Outcome.NOT_COMPARABLE: Look(GREY, "x"),
}
JUDGED = ["ratio", "ratio_low", "ratio_high", "p", "verdict", "detectable_ratio", "note"]
PANELS = 12  # pairs and places with separate panels
ROWS, FEW = 12, 4  # in the opening picture of a page; in its picture on the first page
REST = 5 * ROWS  # in the picture of the other comparisons
TICKS = 6  # ticks besides 1; beyond this, every second has a name
FIXED = ("blocks", "looks")  # in the table of verdicts if repeats are fixed
LOOKED = 10  # comparisons in the picture of looks
TIMES = "← times as fast · times as long →"


def draw_comparisons(
    results: Results, factors: list[str] | None = None, metric: str = "", otherwise: bool = True
) -> Figure:
    """Draw comparisons on a metric, one per row.

    There is a panel for each place and pair of levels, or a single panel if there would be more than `PANELS`. If
    `factors` are given and the metric is the deciding one, include comparisons that the configuration does not request.
    Without comparisons, the figure is empty.

    Args:
        results: the results of the run.
        factors: the compared factors; None for all.
        metric: the metric; an empty string for the one that decides.
        otherwise: whether an empty figure reports that it is empty.
    """
    decides = results.report.metrics[0].name
    rows = results.get_comparisons(metric)
    if factors:
        rows = pd.concat([rows, results.contest]) if metric in ("", decides) else rows
        rows = rows[rows["factor"].isin(factors)]
    name = "-".join(["comparison", *(factors or ["all"]), *([metric] if metric not in ("", decides) else [])])
    if rows.empty and not otherwise:
        return Figure(name, "", "", (), rows)
    named = f" by {prose.format_list(map(prose.format_name, factors))}" if factors else ""
    title = f"Ratio of {results.report.get_metric(metric or decides).title}{named}"
    if rows.empty:
        return Figure(name, title, "No comparisons.", (), pd.DataFrame())
    groups = [group for _, group in rows.groupby(results.pair_keys, sort=False)]
    note, shown = write_caption(results, rows), select_numbers(results, rows)
    if len(groups) <= PANELS:
        return Figure(name, title, note, tuple(_build_pair_panel(group, results) for group in groups), shown)
    drawn = f" The first {REST} of {len(rows)} are drawn; the numbers have all." if len(rows) > REST else ""
    return Figure(name, title, note + drawn, _build_joint_panel(rows.head(REST), results), shown)


def draw_deciding(results: Results, most: int = ROWS) -> tuple[Figure, Figure]:
    """Draw the main comparisons in one figure and the others in a second one.

    The main comparisons are those of the factor in the study's question, followed by the largest decided effects, up to
    `most` in all.
    """
    rows = results.get_comparisons()
    decided = rows["verdict"].isin(DECIDED)
    effect = np.abs(np.log(rows.get("ratio", decided).astype(float))).fillna(0)
    effect = effect.where(rows["verdict"] != Outcome.SAME, 0)
    rows = rows.assign(decided=decided, own=rows["factor"] == list_asked_factors(results)[0], effect=effect)
    rows = rows.sort_values(["decided", "effect"], ascending=False, kind="stable")
    # Reserve up to half of the rows for the factor in the question.
    first = pd.concat([rows[rows["own"]].head(most // 2), rows])
    first = first[~first.index.duplicated()].head(most)
    first = first.sort_values(["own", "decided", "effect"], ascending=False, kind="stable")
    rest = rows[~rows.index.isin(first.index)].head(REST)
    note = write_caption(results, first) if len(first) else ""
    factor = results.report.get_factor(list_asked_factors(results)[0]).title
    order = words.fill("question first", factor=factor) if first["own"].nunique() > 1 else ""
    name, title = "deciding" if most == ROWS else "deciding-few", "Main comparisons"
    return (
        Figure(name, title, note + order, _build_joint_panel(first, results), select_numbers(results, first)),
        Figure(
            "deciding-rest",
            "The other comparisons",
            note,
            _build_joint_panel(rest, results),
            select_numbers(results, rest),
        ),
    )


def write_caption(results: Results, rows: pd.DataFrame) -> str:
    """Write the caption of a figure of comparisons."""
    metric, blocks = results.report.get_metric(rows["metric"].iloc[0]), results.report.unit == "block"
    name = "comparisons of blocks" if blocks else "comparisons of jobs"
    less = "faster" if metric.is_time else "lower"
    return words.fill(name, title=metric.title) + words.fill("first is", less=less, percent=results.same_percent)


def select_numbers(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Select the columns that the CSV file of a figure of comparisons contains."""
    columns = ["factor", "baseline", "contender", *results.report.names, "state", "metric", "blocks"]
    columns += ["baseline_s", "contender_s", *JUDGED]
    return rows[[column for column in columns if column in rows]]


def build_verdict_table(results: Results) -> Table:
    """Build the table of all comparisons on the deciding metric.

    It shows the ratio with its interval, the corrected p value, the number of blocks and looks, and the verdict.
    """
    rows = pd.concat([results.get_comparisons(), results.contest]).reset_index(drop=True)
    if rows.empty:
        return Table("all-verdicts", "", pd.DataFrame())
    labels, title = _name_comparisons(rows, results)
    ratios = rows[["ratio", "ratio_low", "ratio_high"]].itertuples(index=False, name=None)
    frame = pd.DataFrame(
        {
            "comparison": labels,
            "ratio [95 % CI]": [format_ratio_with_interval(*ratio) for ratio in ratios],
            "p": rows["p"],
            **(
                {"state": _format_states(rows)}
                if "most_repeats" in rows
                else {name: rows[name] for name in FIXED if name in rows}
            ),
            "verdict": [words.get_outcome(verdict, results.same_percent) for verdict in rows["verdict"]],
        }
    )
    caption = words.fill("table of verdicts", title=results.report.metrics[0].title, where=f" {title}." * bool(title))
    return Table("all-verdicts", caption, frame, {"p": "{:.2g}".format}, numbers=select_numbers(results, rows))


def _format_states(rows: pd.DataFrame) -> list[str]:
    """Write, for each comparison, after how many blocks it was decided, given up or left undecided, and the maximum."""
    states = rows[["decision", "blocks", "most_repeats", "note"]].fillna("").itertuples(index=False, name=None)
    how = {"same": "decided", "open": "undecided"}
    return [
        f"{how.get(state, state)} after {blocks} of at most {most:.0f} blocks{f'; {DEPENDENT}' * (DEPENDENT in note)}"
        if state
        else ""
        for state, blocks, most, note in states
    ]


def draw_looks(results: Results) -> Figure:
    """Draw the interval of each comparison after each look.

    Only comparisons with several looks are shown, at most `LOOKED`. Without any, the figure is empty.
    """
    rows = results.looks
    name, title = "looks", "Intervals as blocks were added"
    if rows.empty:
        return Figure(name, title, "", (), rows)
    rows = rows[rows["role"] == "decides"]
    keys = ["baseline_cell", "contender_cell"]
    rows = rows.assign(taken=rows.groupby(keys, sort=False)["look"].transform("max"))
    rows = rows[rows["taken"] > 1].sort_values("taken", ascending=False, kind="stable")
    chosen = list(rows.groupby(keys, sort=False))[:LOOKED]
    if not chosen:
        return Figure(name, title, "", (), rows)
    shown = pd.concat([of_pair.sort_values("look") for _, of_pair in chosen], ignore_index=True)
    labels, place = _name_comparisons(shown, results)
    labels = [f"{label}, {blocks} blocks" for label, blocks in zip(labels, shown["blocks"], strict=True)]
    note = f"{write_caption(results, shown)} {words.fill('looks', many=LOOKED)}"
    return Figure(name, title, note, (build_panel(shown, labels, place, results),), select_numbers(results, shown))


def _build_joint_panel(rows: pd.DataFrame, results: Results) -> tuple[Panel, ...]:
    """Build a panel of comparisons with different factors and places, labeled with their full names."""
    if rows.empty:
        return ()
    return (build_panel(rows, *_name_comparisons(rows, results), results),)


def _name_comparisons(rows: pd.DataFrame, results: Results) -> tuple[list[str], str]:
    """Return a label for each comparison, and a text with the place and levels that all or most of them share."""
    named, cells = results.names, rows.to_dict("records")
    places = {named.format_place(row) for row in cells}
    inside = results.select_varying_factors(
        rows, [name for name in results.report.names if name not in results.report.places]
    )

    def format_label(row: dict) -> str:
        pair, place = (
            " vs ".join(named.format_pair(row, named.format_level)),
            named.format_place(row) if len(places) > 1 else "",
        )
        return ", ".join(filter(None, [pair, named.format_levels(row, inside), place]))

    names, noted = row_labels.format_row_labels(cells, inside, results, format_label)
    return names, prose.capitalize_first("; ".join(filter(None, [*(places if len(places) == 1 else ()), noted])))


def _build_pair_panel(rows: pd.DataFrame, results: Results) -> Panel:
    head, named, report = rows.iloc[0], results.names, results.report
    inside = [name for name in report.names if name not in (*report.places, head["factor"])]
    varies = results.select_varying_factors(rows, inside) or [name for name in inside if head[name]][:1]
    rows = named.sort_rows(rows, varies)
    levels = [named.format_row(row, varies) for row in rows.to_dict("records")]
    pair = " vs ".join(named.format_pair(head, named.format_level))
    where = named.format_place(head) or report.get_factor(head["factor"]).title
    return build_panel(rows, levels, prose.capitalize_first(f"{pair}: {where}"), results)


def build_panel(rows: pd.DataFrame, names: list[str], title: str, results: Results) -> Panel:
    """Build a panel of comparisons, from top to bottom in the order of `rows`.

    Each row is labeled with its ratio and name, and with its verdict unless this is faster or slower.
    """
    metric = results.report.get_metric(rows["metric"].iloc[0])
    ratios = rows[["ratio", "ratio_low", "ratio_high"]].itertuples(index=False, name=None)
    rows = rows.assign(text=[format_multiple(*ratio, metric.is_time) for ratio in ratios])
    columns = {"ratio": "x", "ratio_low": "x_low", "ratio_high": "x_high", "blocks": "n"}
    points = rows.assign(y=-np.arange(len(rows), dtype=float)).rename(columns=columns)
    marks = tuple(
        Marks(
            words.get_mark(verdict),
            look,
            points.loc[points["verdict"] == verdict, ["x", "x_low", "x_high", "y", "n", "text"]],
        )
        for verdict, look in LOOKS.items()
        if (points["verdict"] == verdict).any()
    )
    judged = rows[["verdict", "text"]].itertuples(index=False, name=None)
    notes = [
        text if verdict in ORDERED else ", ".join(filter(None, [words.get_mark(verdict), text]))
        for verdict, text in judged
    ]
    percent = results.same_percent / 100
    panel = Panel(
        title=title,
        x_label=TIMES if metric.is_time else f"{prose.capitalize_first(metric.title)}: first named / second",
        marks=marks,
        rows=tuple(f"{note}: {label}" for note, label in zip(notes, names, strict=True)),
        x_log=True,
        rules=(SAME_X,),
        band=(1 / (1 + percent), 1 + percent),
    )
    low, high = panel.compute_x_range()
    if not metric.is_time:
        return replace(panel, x_ticks=choose_round_ticks(low, high))
    # Place ticks at round multiples on both sides of 1. Left of 1, they mean times as fast; right of 1, times as long.
    steps = [tick for tick in choose_round_ticks(1.0, max(high, 1 / low)) if tick > 1]
    if sum((low <= 1 / step) + (step <= high) for step in steps) > TICKS:
        steps = steps[1::2]
    texts = {1 / step: f"{format_tick(step)}×" for step in steps[::-1]} | {1.0: "1"}
    texts |= {step: f"{format_tick(step)}×" for step in steps}
    texts = {tick: text for tick, text in texts.items() if low <= tick <= high}
    return replace(panel, x_ticks=tuple(texts), x_tick_texts=tuple(texts.values()))
