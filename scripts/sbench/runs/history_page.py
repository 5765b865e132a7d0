"""Build the page of a history: the series of each comparison with its changes, and the table of sessions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.pages import prose
from sbench.pages.markup import bold, bullets, heading, paragraph
from sbench.pages.names import format_with_interval
from sbench.pages.page import Page, Table
from sbench.pages.plot import SAME_Y, Figure, Look, Marks, Panel, Rule, choose_round_ticks
from sbench.pages.run_files import read_facts, read_table
from sbench.probe.program import write_json
from sbench.runs.history import ARMS
from sbench.verdicts import MIN_BLOCKS, changes

# The largest number of comparisons in the first picture and in the second one, and of ticks on the axis of sessions.
_FIRST, _DRAWN, _TICKS = 6, 18, 4
# The largest number of changed properties in a row of the table of sessions; all are in its numbers.
_NAMED = 4
_LIMITS = (
    f"A change of less than {changes.MIN_JUMP_PERCENT:.0f} %, or in the first or last {changes.MIN_SEGMENT - 1}"
    " sessions, is not reported.",
    "A change of both arms may also come from software that both share, or from the store; the table of sessions lists"
    " everything that was recorded.",
    "If times drift slowly, the method reports steps that do not exist.",
)


def show_history(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Render the page of a history, and write its headline for the index page.

    Args:
        page: page to render to.
        tables: folder of the tables of the history.
        facts: path of facts.json.
    """
    folder, about = Path(tables), read_facts(facts)
    texts = ("comparison", "factor", *ARMS, "session", "run", "machine", "cpu", "kernel", "versions")
    texts += ("changed", "left_out", "owner", "arm", "moved")
    sessions, series, shifts = (read_table(folder / f"{name}.csv", texts) for name in ("sessions", "series", "changes"))
    days = dict.fromkeys(sessions.dropna(subset="number")["session"].str[:10].iloc[[0, -1]])
    source = f"{prose.format_count(len(about['runs']), 'run')}, {' to '.join(days)}"
    page.show_text(heading(1, about["title"]), paragraph(source), paragraph(bold(about["headline"])))
    page.show_text(bullets([*about["sentences"], *about["notes"]]))
    order = dict.fromkeys([*shifts["comparison"], *series["comparison"]])
    first, rest = list(order)[:_FIRST], list(order)[_FIRST:]
    picture = draw_series("history", first, series, shifts, sessions, about)
    page.show_figure(picture)
    if rest:
        with page.fold(f"and {prose.format_count(len(rest), 'more comparison')}"):
            page.show_figure(draw_series("more", rest, series, shifts, sessions, about))
    page.show_table(_build_changes_table(shifts), "")
    page.show_text(heading(2, "Sessions"))
    page.show_table(_build_sessions_table(sessions))
    page.show_section("Limits", bullets(_LIMITS))
    answers = {
        **{"study": about["study"], "title": about["title"], "run": "", "name": "", "source": source, "caution": ""},
        **{"headline": bold(about["headline"]), "picture": page.save_picture(picture), "failed": 0, "invalid": 0},
        **{"advice": about["sentences"], "cells": about["sessions"], "of": "session"},
    }
    write_json(page.files / "answers.json", answers)


def draw_series(
    name: str,
    comparisons: list[str],
    series: pd.DataFrame,
    shifts: pd.DataFrame,
    sessions: pd.DataFrame,
    about: dict,
) -> Figure:
    """Draw the ratio and the times of each comparison over the sessions, with vertical lines at the changes."""
    names = sessions.dropna(subset="number").set_index("number")["session"]
    places = names.index[np.unique(np.linspace(0, len(names) - 1, min(len(names), _TICKS)).round().astype(int))]
    axis = {"x_ticks": tuple(map(float, places)), "x_tick_texts": tuple(names[place][:10] for place in places)}
    axis |= {"x_ends": (0.5, len(names) + 0.5), "y_log": True, "height": 260}
    panels = []
    for comparison in comparisons[:_DRAWN]:
        own = series[series["comparison"] == comparison]
        rules = tuple(_list_rules(shifts[shifts["comparison"] == comparison]))
        ratio, times = _select_points(own, "ratio", "ratio", names), []
        for number, arm in enumerate(ARMS):
            points = _select_points(own, f"{arm}_value", arm, names)
            times.append(Marks(own[arm].iloc[0], Look.from_arm(number), points, joined=True, size=6))
        marks = (Marks("", Look.from_arm(2), ratio, joined=True, size=6),)
        title = f"{prose.capitalize_first(about['metric'])} / {about['unit']}"
        panels.append(Panel(comparison, "Session", "Ratio", marks, rules=(SAME_Y, *rules), **axis))
        panels.append(Panel("Times", "Session", title, tuple(times), rules=rules, **axis))
    caption = (
        "Left: ratio of the contender to the baseline in each session. Right: median time of each arm. Both have their"
        f" 95 % CI from {MIN_BLOCKS} blocks on. A dotted line is a change."
    )
    if (hidden := len(comparisons) - _DRAWN) > 0:
        caption += f" {prose.format_count(hidden, 'more comparison')} without a picture: see the numbers."
    numbers = series[series["comparison"].isin(comparisons)]
    panels = [replace(panel, y_ticks=choose_round_ticks(*panel.compute_y_range())) for panel in panels]
    return Figure(name, "Series of sessions", caption, tuple(panels), numbers, 2)


def _list_rules(shifts: pd.DataFrame) -> Iterator[Rule]:
    for row in shifts.to_dict("records"):
        jump = prose.format_ratio(row[f"{row['moved']}_jump"])
        yield Rule(row["number"] - 0.5, f"{row['arm'] or row['owner']} ×{jump}", "x", dash="dotted")


def _select_points(series: pd.DataFrame, column: str, ends: str, names: pd.Series) -> pd.DataFrame:
    points = series[["number", column, f"{ends}_low", f"{ends}_high"]].set_axis(["x", "y", "y_low", "y_high"], axis=1)
    return points.assign(note=[f"session {number}, {names[number]}" for number in series["number"]])


def _build_changes_table(shifts: pd.DataFrame) -> Table:
    if shifts.empty:
        return Table("changes", "", shifts)
    frame = shifts[["number", "comparison"]].rename(columns={"number": "session"})
    frame["change of"] = shifts["arm"].where(shifts["arm"] != "", shifts["owner"])
    for name in (*ARMS, "ratio"):
        ends = shifts[[f"{name}_jump", f"{name}_low", f"{name}_high"]].itertuples(index=False)
        frame[f"{name} ×"] = [format_with_interval(*row, prose.format_ratio) for row in ends]
    caption = "Each change in each comparison: the factor by which both times and their ratio changed [95 % CI]."
    return Table("changes", caption, frame, numbers=shifts)


def _build_sessions_table(sessions: pd.DataFrame) -> Table:
    columns = ["number", "session", "run", "machine", "cpu", "kernel", "versions", "changed", "left_out"]
    frame = sessions[[name for name in columns if sessions[name].astype(str).ne("").any()]]
    frame = frame.rename(columns={"changed": "changed since the session before", "left_out": "left out"})
    formats = {"number": "{:.0f}".format, "changed since the session before": _shorten_list}
    caption = "All sessions in the order of their times. Machines are hashes of their kind and of their name."
    return Table("sessions", caption, frame, formats, numbers=sessions)


def _shorten_list(text: str) -> str:
    parts = text.split("; ")
    return "; ".join(parts[:_NAMED]) + (f"; and {len(parts) - _NAMED} more" if len(parts) > _NAMED else "")
