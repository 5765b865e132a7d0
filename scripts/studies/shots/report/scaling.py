"""Figures of total runtime and of the performance ratio: each sample, the median, the interval."""

from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import judgement, prose
from scripts.report.plot import GREY, SAME_Y, Figure, Look, Marks, Panel, Rule, beside
from scripts.statistics import verdicts
from scripts.studies.shots.report.results import FACTORS, PLACE, Results

CONTEXT = [*PLACE, "layout", "access"]
INTERVAL = "Small marks: each repeat; large mark and bar: median and its 95 % CI."
INVALID = Look(GREY, "x")


def runtime_by_workers(results: Results) -> Figure:
    """Return total runtime against workers, a panel a context in which more than one number of workers was measured."""
    panels = []
    for context, cells in contexts(results, scaling=True):
        marks = [
            Marks(text, look, _points(arm), _samples(arm, results), joined=True)
            for text, look, arm in arms(cells, results)
        ]
        marks += _invalid(cells, results)
        panels.append(_panel(_title(context, results), "Total runtime / s", marks, cells))
    caption = f"Total runtime in seconds against the number of Dask workers; lower is better. {INTERVAL}"
    if not panels:
        caption = "One number of workers was measured in each place, layout and access: nothing is drawn against it."
    numbers = _numbers(results, scaling=True)
    return Figure("runtime-workers", "Total runtime against workers", caption, tuple(panels), numbers, 2)


def runtime_in_rows(results: Results) -> Figure:
    """Return total runtime where one number of workers was measured: rows of dots, no lines (METHOD 21)."""
    flat = [cells for _, cells in contexts(results, scaling=False)]
    panels = []
    for place, cells in _by_place(pd.concat(flat) if flat else results.measured.iloc[:0]):
        factors = results.varying(cells, [factor for factor in FACTORS if factor != "library"])
        rows = results.names.sorted_rows(cells, factors) if factors else [()]
        y = {
            row["cell"]: _dodge(row["library"], results) - rows.index(tuple(row[factor] for factor in factors))
            for row in cells.to_dict("records")
        }
        marks = []
        for text, look, arm in [*arms(cells, results, by_buffer=False), *_invalid_arm(cells)]:
            points = arm.assign(x=arm["total_s"], y=arm["cell"].map(y) + 0.04)
            points = points.rename(columns={"total_s_low": "x_low", "total_s_high": "x_high"})
            samples = _samples(arm, results)
            # A little below their median, whose bar would hide them.
            samples = samples.assign(x=samples["y"], y=samples["cell"].map(y) - 0.1)
            points, samples = points[["x", "y", "x_low", "x_high", "n"]], samples[["x", "y", "note"]]
            # Invalid repeats have no median: each is drawn as large as one.
            marks.append(Marks(text, look, samples) if look is INVALID else Marks(text, look, points, samples))
        levels = [dict(zip(factors, row, strict=True)) for row in rows]
        panels.append(
            Panel(
                title=prose.capital(results.names.place(place)),
                x_label="Total runtime / s",
                marks=tuple(marks),
                rows=tuple(results.names.row(row, factors) for row in levels),
            )
        )
    caption = f"Total runtime in seconds where one number of workers was measured; further left is better. {INTERVAL}"
    if not panels:
        caption = ""
    return Figure("runtime", "Total runtime", caption, tuple(panels), _numbers(results, scaling=False))


def speedup(results: Results) -> Figure:
    """Return the performance ratio base / this one: all arms against one base, then each against its own."""
    panels, numbers = [], []
    for context, cells in contexts(results, scaling=True):
        drawn = arms(cells, results)
        fewest = min(float(arm["workers"].iloc[0]) for *_, arm in drawn)
        named, common = next((text, arm.iloc[0]) for text, _, arm in drawn if float(arm["workers"].iloc[0]) == fewest)
        for one in (True, False) if len(drawn) > 1 else (True,):
            bases = [common if one else arm.iloc[0] for *_, arm in drawn]
            ratios = [_ratios(arm, base, results) for (*_, arm), base in zip(drawn, bases, strict=True)]
            marks = [
                Marks(text, look, *ratio, joined=True) for (text, look, _), ratio in zip(drawn, ratios, strict=True)
            ]
            names = [named] if one else [text for text, *_ in drawn]
            pairs = zip(names, bases, strict=False)
            told = "; ".join(", ".join(filter(None, [name, _base(base, results)])) for name, base in pairs)
            title = f"{_title(context, results)}. {'One base' if one else 'Own base'}: {told}"
            panels.append(_panel(title, f"Performance ratio, {'one' if one else 'own'} base", marks, cells, (SAME_Y,)))
            for (*_, arm), base, ratio in zip(drawn, bases, ratios, strict=True):
                numbers.append(_ratio_numbers(arm, base, *ratio).assign(against="one base" if one else "its own base"))
    if not panels:
        return Figure("performance-ratio", "Performance ratio against workers", "", (), pd.DataFrame())
    caption = (
        "Performance ratio = median total runtime of the base / total runtime of this one; above 1 is faster than the "
        "base. Left: all arms against one base; right: each arm against its own smallest number of workers. "
        "Bars: 95 % CI of the arm's median; the base's own uncertainty is not in them."
    )
    table = pd.concat(numbers)
    return Figure("performance-ratio", "Performance ratio against workers", caption, tuple(panels), table, 2)


def where_it_stops(results: Results) -> list[str]:
    """Return a sentence an arm and context: its base, and beyond how many workers it gains no more."""
    records = results.records[results.records["valid"]]
    percent = judgement.equivalence(results.facts)
    lines: dict[str, list[str]] = {}
    for context, cells in contexts(results, scaling=True):
        for text, _, arm in arms(cells, results):
            found = verdicts.stops_scaling(
                records[records["cell"].isin(arm["cell"])], ["library"], equivalence_percent=percent
            )
            for row in found.itertuples():
                base = f"{results.names.level('workers', str(row.base_workers))}, {prose.number(row.base_s)} s"
                who = " · ".join(filter(None, [text, _title(context, results)]))
                lines.setdefault(row.words, []).append(f"{who} (base: {base})")
    if len(lines) == 1 and len(next(iter(lines.values()))) > 2:
        return [f"In each context and arm: {told}." for told in lines]
    return [f"{'; '.join(who)}: {told}." for told, who in lines.items()]


def contexts(results: Results, scaling: bool) -> list[tuple[dict, pd.DataFrame]]:
    """Return (levels, cells) of each place, layout and access; those with several numbers of workers or the others.

    Cells that are invalid as a whole are among them, with n = 0 and no median.
    """
    cells = pd.concat([results.measured, results.invalid]) if len(results.invalid) else results.measured
    found = [(dict(zip(CONTEXT, levels, strict=True)), group) for levels, group in cells.groupby(CONTEXT, sort=False)]
    found = [(levels, group) for levels, group in found if (group["n"] > 0).any()]
    return [(levels, group) for levels, group in found if (group["workers"].nunique() > 1) == scaling]


def arms(cells: pd.DataFrame, results: Results, by_buffer: bool = True) -> list[tuple[str, Look, pd.DataFrame]]:
    """Return (label, look, valid cells by workers) of each library and, with `by_buffer`, page buffer."""
    cells = cells[cells["n"] > 0]
    buffers = results.names.sorted_rows(cells, ["page_buffer"]) if by_buffer else []
    found = []
    for number, library in enumerate(results.arms):
        own = cells[cells["library"] == library]
        text = results.names.subject("library", library)
        if len(buffers) < 2:
            # One line an arm: it has a dash of its own, beside colour and marker.
            found.append((text, replace(Look.of(number, number), filled=True), own))
            continue
        for style, (buffer,) in enumerate(buffers):
            named = f"{text}, {results.names.level('page_buffer', buffer)}"
            found.append((named, Look.of(number, style), own[own["page_buffer"] == buffer]))
    return [
        (text, look, arm.sort_values("workers", key=lambda column: pd.to_numeric(column, errors="coerce")))
        for text, look, arm in found
        if len(arm)
    ]


def _invalid_arm(cells: pd.DataFrame) -> list[tuple[str, Look, pd.DataFrame]]:
    cells = cells[cells["n"] == 0]
    return [("[INVALID]", INVALID, cells)] if len(cells) else []


def _invalid(cells: pd.DataFrame, results: Results) -> list[Marks]:
    """Each repeat of the invalid cells, as large as a median: they have none."""
    return [Marks(text, look, _samples(arm, results)) for text, look, arm in _invalid_arm(cells)]


def _by_place(cells: pd.DataFrame) -> list[tuple[dict, pd.DataFrame]]:
    groups = cells.groupby(list(PLACE), sort=False)
    return [(dict(zip(PLACE, levels, strict=True)), group) for levels, group in groups]


def _points(arm: pd.DataFrame) -> pd.DataFrame:
    names = {"total_s": "y", "total_s_low": "y_low", "total_s_high": "y_high"}
    return arm.assign(x=arm["workers"].astype(float)).rename(columns=names)[["x", *names.values(), "n"]]


def _samples(arm: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Each repeat of an arm's cells; of a cell with valid repeats these alone."""
    found = results.records[results.records["cell"].isin(arm["cell"])]
    found = found[found["valid"] | ~found["cell"].isin(results.measured["cell"])]
    workers = pd.to_numeric(found["workers"], errors="coerce")
    notes = "repeat " + found["repeat"].astype(str)
    return pd.DataFrame({"x": workers, "y": found["total_s"], "note": notes, "cell": found["cell"]})


def _ratios(arm: pd.DataFrame, base: pd.Series, results: Results) -> tuple[pd.DataFrame, pd.DataFrame]:
    points, samples = _points(arm), _samples(arm, results)
    seconds = base["total_s"]
    flipped = {"y": seconds / points["y"], "y_low": seconds / points["y_high"], "y_high": seconds / points["y_low"]}
    return points.assign(**flipped), samples.assign(y=seconds / samples["y"])


def _base(base: pd.Series, results: Results) -> str:
    return f"{results.names.level('workers', base['workers'])}, {prose.number(base['total_s'])} s"


def _ratio_numbers(arm: pd.DataFrame, base: pd.Series, ratio: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    names = {"y": "performance_ratio", "y_low": "performance_ratio_low", "y_high": "performance_ratio_high"}
    medians = arm[[*FACTORS, "n"]].assign(repeat="", **{new: ratio[old] for old, new in names.items()})
    levels = arm.set_index("cell")[list(FACTORS)]
    single = samples.join(levels, on="cell").rename(columns=names).assign(repeat=samples["note"])
    table = pd.concat([medians, single[[*FACTORS, "repeat", "performance_ratio"]]])
    return table.assign(base_cell=base["cell"], base_total_s=base["total_s"])


def _numbers(results: Results, scaling: bool) -> pd.DataFrame:
    chosen = [cells for _, cells in contexts(results, scaling)]
    if not chosen:
        return pd.DataFrame()
    medians = pd.concat(chosen).assign(repeat="")
    single = results.records[results.records["cell"].isin(medians["cell"])]
    columns = ["cell", *FACTORS, "repeat", "n", "total_s", "total_s_low", "total_s_high"]
    return pd.concat([medians[columns], single[["cell", *FACTORS, "repeat", "valid", "total_s"]]])


def _panel(title: str, label: str, marks: list[Marks], cells: pd.DataFrame, rules: tuple[Rule, ...] = ()) -> Panel:
    levels = np.sort(cells["workers"].astype(float).unique())
    wide = bool(levels[-1] >= 8 * levels[0])
    return Panel(
        title=title,
        x_label="Number of Dask workers",
        y_label=label,
        marks=beside(marks, levels, wide),
        x_log=wide,
        x_ticks=tuple(levels),
        rules=rules,
    )


def _title(context: dict, results: Results) -> str:
    inside = [results.names.level(factor, context[factor]) for factor in ("layout", "access") if context[factor]]
    return prose.capital(" · ".join(filter(None, [results.names.place(context), *inside])))


def _dodge(library: str, results: Results) -> float:
    arms_of = results.arms
    if len(arms_of) < 2 or library not in arms_of:
        return 0.0
    return 0.2 - 0.4 * arms_of.index(library) / (len(arms_of) - 1)
