"""Load published data in the same way as a run, and draw them in the run's figures only."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from sbench.pages import prose, words
from sbench.pages.declaration import Value
from sbench.pages.plot import DASHES, GREY, Figure, Look, Panel
from sbench.pages.results import Results

_UNKNOWN = ("", "unknown", "published", "any")  # unknown levels, which match any level
_MARKERS = ("hex", "inverted_triangle", "star", "diamond")


def load_with_published(load: Callable[..., Results], tables: Path | str, facts: Path | str | None = None) -> Results:
    """Load a run and the published data that it names.

    Args:
        load: function that loads a run or published data.
        tables: directory with the run's tables; published data are searched for next to it, then in `results`.
        facts: path of the run's facts.
    """
    run = load(tables, facts)
    places = [
        [Path(root, name, "tables") for root in (Path(tables).parent, "results")] for name in list_published(run.facts)
    ]
    folders = [next((place for place in each if place.is_dir()), each[-1]) for each in places]
    return replace(run, references=tuple(load(folder, folder / "facts.json") for folder in folders))


def list_published(facts: Mapping) -> list[str]:
    """List the published data named in a study's facts, as published/<study>."""
    named = (facts.get("settings") or {}).get("reference") or []
    return [named] if isinstance(named, str) else named


def iter_arms(
    cells: pd.DataFrame, run: Results, value: Value, axis: str = "", rows: bool = False
) -> Iterator[tuple[str, Look, pd.DataFrame]]:
    """Yield the label, look and cells of each published arm that is comparable with some cells of a run.

    Published cells must match these cells in the reader's work and in the factors of panels, or, with `rows`, in all
    factors except the question's. In the other factors, matching cells are preferred; if there are none, the label
    states their levels.

    Args:
        cells: cells of the run.
        run: results of the run.
        value: value to draw.
        axis: factor on the x axis, if any.
        rows: whether cells are drawn in rows instead of along a factor.
    """
    for reference in run.references:
        own = run.report.headline
        drawn = _select_alike(reference, cells, run, value, axis, rows)
        tells = [own, *(name for name in run.report.names if name not in (own, axis))]
        tells = [name for name in tells if name == own or _is_telling(name, drawn, reference, cells, run)]
        labelled = drawn[tells].mask(drawn[tells].isin(_UNKNOWN), "")
        for number, levels in enumerate(labelled.drop_duplicates().to_dict("records")):
            arm = drawn[(labelled == list(levels.values())).all(axis=1)]
            named = reference.names.format_levels(arm.iloc[0].to_dict() | levels, tells)
            label = " · ".join(filter(None, [format_label(reference), named]))
            marker = _MARKERS[reference.arms.index(arm[own].iloc[0]) % len(_MARKERS)]
            yield label, Look(GREY, marker, DASHES[number % len(DASHES)], False), arm.assign(published=label)


def format_label(reference: Results) -> str:
    """Return the label of published data in figures."""
    return f"published: {reference.facts['published']['title']}"


def draw_with_published(draw: Callable[[Results], Figure], run: Results) -> Figure:
    """Draw a figure of a run, and append the panels and numbers of its published data."""
    figure, others = draw(run), [(format_label(reference), draw(reference)) for reference in run.references]
    panels = [_convert_to_grey(panel, name) for name, other in others for panel in other.panels]
    numbers = [other.numbers.assign(published=name) for name, other in others]
    caption = " ".join([figure.caption, *([words.fill("grey marks")] if panels else [])])
    numbers = pd.concat([figure.numbers, *numbers]) if numbers else figure.numbers
    return replace(figure, panels=(*figure.panels, *panels), caption=caption, numbers=numbers)


def _convert_to_grey(panel: Panel, name: str) -> Panel:
    marks = (
        replace(mark, label=f"{name} · {mark.label}", look=replace(mark.look, colour=GREY, filled=False))
        for mark in panel.marks
    )
    rules = (replace(rule, colour=GREY) for rule in panel.rules)
    return replace(panel, title=f"{name}: {panel.title}", marks=tuple(marks), rules=tuple(rules))


def list_limits(run: Results) -> Iterator[str]:
    """Yield a sentence for each limitation of the published data, and for the figures that cannot include them."""
    report = run.report
    axes = [one.name for one in report.factors if one.axis and run.measured[one.name].nunique() > 1]
    for reference in run.references:
        name = prose.capitalize_first(format_label(reference))
        limits_of = reference.facts.get("limits") or []
        yield from (words.fill("reference limit", reference=name, limit=line) for line in limits_of)
        lone = replace(run, references=(reference,))
        missed = [report.get_factor(axis).title for axis in axes if not _is_drawn(lone, axis)]
        if missed:
            yield words.fill("reference not against", reference=name, axes=prose.format_list(missed, "or"))
        elif report.values and not axes and not _is_drawn(lone, ""):
            yield words.fill("reference nowhere", reference=name)


def _is_drawn(run: Results, axis: str) -> bool:
    report = run.report
    keys = [name for name in (report.panels if axis else report.names) if name not in (axis, report.headline)]
    groups = run.measured.groupby(keys, sort=False)
    return any(True for _, cells in groups for _ in iter_arms(cells, run, report.values[0], axis, not axis))


def _select_alike(
    reference: Results, cells: pd.DataFrame, run: Results, value: Value, axis: str, rows: bool
) -> pd.DataFrame:
    report, there = run.report, reference.measured
    there = there[there[value.column].notna()] if value.column in there else there.head(0)
    given = [factor.name for factor in report.factors if factor.given or factor.place]
    exact = set(report.names if rows else (*report.panels, *given)) - {report.headline}
    for name in report.names if not there.empty else ():
        own = {*_convert_to_kinds(run, name, cells[name]), *_UNKNOWN}
        agree = there[_convert_to_kinds(reference, name, there[name]).isin(own)]
        if name != axis and (name in exact or len(agree)):
            there = agree
    return there if not axis or set(there[axis]) & set(run.measured[axis]) else there.head(0)


def _convert_to_kinds(run: Results, factor: str, levels: pd.Series) -> pd.Series:
    """Replace the names of stores, which differ between runs, with the kinds of these stores."""
    kinds = {name: spec["kind"] for name, spec in (run.facts.get("stores") or {}).items() if "kind" in spec}
    return levels.replace(kinds) if factor == "store" else levels


def _is_telling(name: str, drawn: pd.DataFrame, reference: Results, cells: pd.DataFrame, run: Results) -> bool:
    """Return whether a factor distinguishes published cells from each other or from a run's cells."""
    place = name in run.report.places and reference.measured[name].nunique() > 1
    apart = set(_convert_to_kinds(reference, name, drawn[name])) - {
        *_convert_to_kinds(run, name, cells[name]),
        *_UNKNOWN,
    }
    return bool(place or apart or drawn[name].nunique() > 1)
