"""Figures and tables of a report, and what they do where tables or facts are absent."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from sbench.pages import (
    cell_figures,
    cell_tables,
    curves,
    findings,
    judgement,
    names,
    plot_html,
    prose,
    stops,
)
from sbench.pages import comparisons as ratios
from sbench.pages.page import Table, add_unit_prefixes, find_numeric_columns, format_table, remove_shared_columns
from sbench.pages.plot import COLOURS, Figure, Look, Marks, Panel, Rule
from sbench.pages.results import Results
from sbench.pages.run_files import ABSENT
from sbench.studies.shots.report import results
from sbench.verdicts.outcomes import ORDERED
from tests.helpers import browser, records
from tests.helpers.report_tables import changed

# Of each figure its frame's height, the names of its legend, which parts of that are drawn outside, and how many of its
# marks have no text when the mouse is over them.
LEGENDS = """Bokeh.index.roots.filter((view) => view.model.toolbar).map((view) => {
  const {model} = view, legend = model.above.find((one) => one.type === "Legend");
  const outer = view.el.getBoundingClientRect(), box = legend && view.views.find_one(legend).el.getBoundingClientRect();
  const hovered = new Set(model.toolbar.tools.flatMap((tool) => (tool.type === "HoverTool" ? tool.renderers : [])));
  return {height: model.inner_height, names: legend?.items.map((item) => item.label.value) ?? [],
          outside: box ? Math.max(outer.left - box.left, box.right - outer.right, outer.top - box.top) : 0,
          silent: model.renderers.filter((one) => one.glyph.type === "Scatter" && !hovered.has(one)).length};
})"""
PRINTED = ROOT / "results/published/shots/described.csv"


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("shots")


@pytest.fixture(scope="module")
def run(tables: Path) -> Results:
    return results.load_results(tables, tables / "facts.json")


@pytest.mark.rule(21)
def test_lines_join_points_of_several_workers_only(run: Results):
    joined = [mark for panel in curves.draw_curves(run, "workers").panels for mark in panel.marks if mark.joined]
    assert {tuple(mark.points["n"]) for mark in joined} == {(6, 6)}
    single = cell_figures.draw_lone_cells(run)
    assert [panel.rows[0] for panel in single.panels] == ["shot-major · all signals of a shot · no page buffer"]
    assert not any(mark.joined for panel in single.panels for mark in panel.marks)


@pytest.mark.rule(21)
def test_every_repeat_is_drawn_beside_its_median(run: Results):
    numbers = cell_figures.draw_lone_cells(run).numbers
    drawn = sum(len(mark.samples) for panel in cell_figures.draw_lone_cells(run).panels for mark in panel.marks)
    assert drawn == (numbers["repeat"] != "").sum() == 16 * 6 - 1


@pytest.mark.rule(19)
def test_performance_ratio_is_the_base_by_this_one(run: Results):
    figure = curves.draw_speedup(run)
    numbers = figure.numbers[(figure.numbers["repeat"] == "") & (figure.numbers["library"] == "hdf5-2.0.0")]
    seconds = run.cells.set_index("cell")["total_s"]
    expected = numbers["base_total_s"] / numbers["workers"].map(
        run.cells[(run.cells["store"] == "disk") & (run.cells["library"] == "hdf5-2.0.0")]
        .drop_duplicates("workers")
        .set_index("workers")["total_s"]
    )
    assert np.allclose(numbers["performance_ratio"], expected)
    assert np.allclose(numbers["base_total_s"], numbers["base_cell"].map(seconds))
    assert all(f"{numbers['base_total_s'].iloc[0]:.3f} s" in panel.title for panel in figure.panels)


@pytest.mark.rule(23)
def test_invalid_cells_are_drawn_and_marked_and_in_no_median(run: Results):
    [panel] = curves.draw_curves(run, "workers").panels
    [invalid] = [mark for mark in panel.marks if mark.label == "[INVALID]"]
    assert len(invalid.points) == 6
    troubled = cell_tables.build_trouble_table(run).frame
    assert list(troubled[""]) == ["[INVALID]", "failed"]
    assert "page size" in troubled["reasons"].iloc[0]


def test_forest_shows_each_comparison_by_its_verdict(run: Results):
    figure = ratios.draw_comparisons(run, ["library"])
    rows = run.verdicts[(run.verdicts["factor"] == "library") & (run.verdicts["metric"] == "total")]
    drawn = {mark.label: len(mark.points) for panel in figure.panels for mark in panel.marks if len(figure.panels)}
    assert set(drawn) == set(rows["verdict"])
    assert sum(len(panel.rows) for panel in figure.panels) == len(rows)
    assert all(panel.band == (1 / 1.05, 1.05) for panel in figure.panels)
    assert len({(look.colour, look.marker) for look in ratios.LOOKS.values()}) == len(ratios.LOOKS)
    assert not {look.colour for look in ratios.LOOKS.values()} & set(COLOURS), "verdicts are no arms"


def test_comparisons_of_the_question_come_first_by_effect_and_each_ratio_reads_from_its_axis(run: Results):
    figure, _ = ratios.draw_deciding(run)
    [panel], drawn = figure.panels, figure.numbers[figure.numbers["verdict"].isin(ORDERED)]
    own = drawn["factor"] == "library"
    assert list(own) == sorted(own, reverse=True)
    assert 0 < own.sum() < len(own)
    for part in (drawn[own], drawn[~own]):
        effects = np.abs(np.log(part["ratio"].astype(float))).where(part["verdict"].isin(ORDERED))
        assert effects.dropna().is_monotonic_decreasing
    assert len(drawn) > 5
    rows = [row for row, verdict in zip(panel.rows, figure.numbers["verdict"], strict=True) if verdict in ORDERED]
    for row, ratio in zip(rows, drawn["ratio"], strict=True):
        text = f"{1 / ratio:.2f}× as fast" if ratio < 1 else f"{ratio:.2f}× as long"
        assert row.startswith(text)
    ticks = panel.get_x_tick_names()
    assert 1.0 in ticks
    assert all(float(f"{max(tick, 1 / tick):g}") == float(text.rstrip("×")) for tick, text in ticks.items())


@pytest.mark.parametrize(
    "ratio, is_time, text",
    [
        ((0.79, 0.77, 0.80), True, "1.27× as fast [1.25, 1.30]"),
        ((2.3, 2.2, 2.5), True, "2.30× as long [2.20, 2.50]"),
        ((0.79, 0.77, 0.80), False, "0.79× as high [0.77, 0.80]"),
        ((0.5, np.nan, np.nan), True, "2.00× as fast"),
        ((np.nan, np.nan, np.nan), True, ""),
    ],
)
def test_a_ratio_reads_as_a_multiple(ratio: tuple, is_time: bool, text: str):
    assert names.format_multiple(*ratio, is_time) == text


def test_times_in_tables_have_prefixes_in_place_of_zeros():
    frame = pd.DataFrame({"planning / s": [4.84e-5, 2.0, np.nan], "time / s": ["0.0573 [0.0554, 0.0587]", "", "1 ± 2"]})
    table = Table("", "", frame, {"planning / s": prose.format_number}, {"planning / s": [True, False, False]})
    shown = add_unit_prefixes(table)
    assert shown.frame["planning"].to_list() == ["48.4 µs", "2.00 s", ""]
    assert shown.over == {"planning": [True, False, False]}
    assert list(shown.frame) == ["planning", "time / s"], "what is no plain time stays"
    assert add_unit_prefixes(replace(table, frame=frame.head(2))).frame["time"].to_list() == [
        "57.3 ms [55.4, 58.7]",
        "",
    ]
    assert find_numeric_columns(format_table(shown), shown) == {"planning"}


def test_what_all_rows_of_a_wide_table_share_is_in_its_caption():
    frame = pd.DataFrame({f"column {number}": [number, number + number % 2] for number in range(12)})
    shown = remove_shared_columns(Table("", "Sentence.", frame, over={"column 0": [True, True]}))
    assert list(shown.frame) == ["column 0", *(f"column {number}" for number in range(1, 12, 2))]
    assert shown.caption == "Sentence. In all rows: column 2 2, column 4 4, column 6 6, column 8 8, column 10 10."
    narrow = Table("", "Sentence.", frame.iloc[:, :11])
    assert remove_shared_columns(narrow) is narrow


def test_arms_differ_in_colour_and_in_marker():
    looks = [Look.from_arm(arm) for arm in range(6)]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 6


@pytest.mark.rule(11)
def test_high_amplification_and_varying_requests_are_marked(run: Results):
    table = cell_tables.build_request_table(run)
    assert set(table.frame.loc[table.over["amplification"], "amplification"]) == {2.5}
    assert set(table.frame.loc[table.over["spread over repeats"], "spread over repeats"]) == {2}


def test_published_object_times_are_printed_to_all_six_digits(published: Path, tmp_path: Path):
    shutil.copy(published / "ros3-shots" / "ec2-s3-libaws.csv", tmp_path / "samples.csv")
    (tmp_path / "facts.json").write_text('{"settings": {"page_size": 8000000}}')
    run = results.load_results(tmp_path, tmp_path / "facts.json")
    table = results.compute_object_times(run, "signals")
    described = pd.read_csv(PRINTED, dtype=str).set_index("workers")
    assert list(table.index) == [("264MB", workers) for workers in described.index]
    for (_, workers), row in table.iterrows():
        assert [f"{row['count']:.0f}", *(f"{value:.6f}" for value in row[1:])] == list(described.loc[workers])
    printed = results.build_described_table(run, "signals")
    assert [f"{value:.6f}" for value in printed.numbers["mean"]][:2] == ["0.251735", "0.258045"]
    assert [printed.formats["mean / s"](value) for value in printed.frame["mean / s"]][:2] == ["0.252", "0.258"]


@pytest.mark.parametrize(
    "size,page_size,label",
    [
        (268435456, 8_000_000, "264MB"),
        (268435456, 0, "256MiB"),
        (1000, 4 * 2**20, "4MiB"),
        (0, 8_000_000, "off"),
        (-1, 8_000_000, "unset"),
    ],
)
def test_page_buffer_is_called_by_its_effective_size(size: int, page_size: int, label: str):
    assert results.format_buffer(results.compute_effective_buffer(size, page_size)) == label


def test_levels_that_look_like_numbers_stay_text(tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    for name in ("samples", "cells", "verdicts", "matrix"):
        text = (copy / f"{name}.csv").read_text().replace("hdf5-1.14.6", "3.10")
        (copy / f"{name}.csv").write_text(text)
    run = results.load_results(copy, copy / "facts.json")
    assert run.arms[0] == "3.10"
    assert "3.10" in cell_figures.draw_lone_cells(run).panels[0].marks[0].label


@pytest.mark.parametrize("absent", ["samples", "cells", "verdicts", "matrix"])
def test_an_absent_table_leaves_a_sentence_and_the_rest(absent: str, tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    (copy / f"{absent}.csv").unlink()
    run = results.load_results(copy, copy / "facts.json")
    assert ABSENT[absent] in judgement.list_limits(run)
    first = run.report.get_value("first_s")
    shown = [
        curves.draw_curves(run, "workers"),
        curves.draw_speedup(run),
        cell_figures.draw_lone_cells(run),
        ratios.draw_comparisons(run, ["library"]),
    ]
    shown += [
        cell_figures.draw_boxes(run, "boxes", "", "mean-obj-time", "", ""),
        cell_figures.draw_time_parts(run, "parts", "", results.PARTS, "", ""),
    ]
    shown += [cell_figures.draw_values(run, "values", "", [(first, "", True)], "")]
    assert sum(bool(figure.panels) for figure in shown) >= 4
    assert all(figure.panels or figure.numbers.empty for figure in shown)
    parts = (
        cell_tables.build_glance_table,
        cell_tables.build_request_table,
        cell_tables.build_harness_table,
        cell_tables.build_condition_table,
    )
    assert sum(not show(run).frame.empty for show in parts) >= 2


def test_a_table_without_verdicts_has_no_marks(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows.assign(verdict="too few repeats"))
    assert {colour for column in cell_tables.build_glance_table(run).over.values() for colour in column} == {"unknown"}
    assert not any(one.is_decided for one in findings.list_findings(run))


def test_facts_may_lack_everything(tables: Path, tmp_path: Path):
    (tmp_path / "facts.json").write_text('{"libraries": null, "stores": {"s3": null}, "failed_attempts": ["a line"]}')
    run = results.load_results(tables, tmp_path / "facts.json")
    assert findings.list_findings(run)[0].where == "from s3, cold cache"
    assert list(cell_tables.build_attempt_table(run.facts).frame["reasons"]) == ["a line"]
    assert cell_tables.build_machine_table(run.facts).frame.empty


def test_tables_made_of_records_are_understood(tmp_path: Path):
    cells = records.synthetic_cells()
    records.write_synthetic_run(tmp_path, cells, ratio=lambda cell: 1.5 if cell["library"] == "hdf5-2.0.0" else 1.0)
    records.gather(tmp_path, out=".", compare=[{"factor": "library", "baseline": "hdf5-1.14.6"}])
    run = results.load_results(tmp_path)
    assert run.absent == ()
    assert sum(len(one.rows) for one in findings.list_findings(run) if one.verdict == "slower") == 24
    assert len(stops.describe_stops(run)) >= 1
    assert len(curves.draw_curves(run, "workers").panels) == 4
    assert "1 cell measured twice" in judgement.describe_control(run.verdicts)


def arms(number: int, label: str) -> tuple[Marks, ...]:
    """Return `number` arms of two points and four samples each, whose labels begin alike."""
    points = pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 3.0], "y_low": [0.9, 2.8], "y_high": [1.1, 3.2], "n": [2, 2]})
    samples = pd.DataFrame({"x": [1.0, 1.0, 2.0, 2.0], "y": [0.9, 1.1, 2.8, 3.2], "note": 2 * ["first", "second"]})
    return tuple(
        Marks(label and f"{label} {arm}", Look.from_arm(arm), points, samples, joined=True) for arm in range(number)
    )


def page_of(figures: list[Figure], folder: Path) -> Path:
    """Return a page in `folder` that draws figures and nothing else."""
    script = Path("notebooks/templates/offline/static/plots.js").read_text(encoding="utf-8")
    drawn = "".join(map(plot_html.draw_figure, figures))
    page = folder / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{plot_html.render_loader()}{drawn}<script>{script}</script>")
    return page


# Of each figure the boxes of its events' names in its frame, and the frame's width and height.
EVENTS = """Bokeh.index.roots.filter((view) => view.model.toolbar).map(({frame, model}) => {
  const pen = document.createElement("canvas").getContext("2d");
  const names = model.center.filter((one) => one.type === "Label").map((label) => {
    pen.font = `${label.text_font_size} ${label.text_font.value ?? label.text_font}`;
    const x = frame.x_scale.compute(label.x) + label.x_offset - frame.bbox.left;
    const y = frame.y_scale.compute(label.y) - frame.bbox.top;
    return [x, y - 6, x + pen.measureText(label.text.text).width, y + 6];
  });
  return {names, room: [frame.bbox.width, frame.bbox.height]};
})"""


@pytest.mark.parametrize("width", [1300, 500, 400])
def test_names_of_events_are_whole_and_apart(width: int, tmp_path: Path):
    if not browser.browser():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    rules = tuple(Rule(at, f"gone in job {at} (g2)", "x") for at in (1.0, 1.1, 1.5, 1.9, 2.0))
    rules += (Rule(1.8, "a name that is as wide as the frame of a narrow panel, and more", "x"),)
    shared = {"marks": arms(1, "volume"), "rules": rules}
    panels = [Panel("log", "x", "y", y_log=True, **shared), Panel("low", "x", "y", height=200, **shared)]
    figures = [Figure(panel.title, panel.title, "", (panel,), pd.DataFrame()) for panel in panels]
    visit = browser.visit(page_of(figures, tmp_path), {"events": EVENTS, "cut": browser.CUT}, {}, width)
    assert visit.errors == []
    assert visit.answers["cut"] == []
    for events in visit.answers["events"]:
        wide, high = events["room"]
        assert len(events["names"]) == len(rules)
        assert all(x > -1 and y > -1 and right < wide + 1 and low < high for x, y, right, low in events["names"])
        pairs = combinations(events["names"], 2)
        assert not [
            pair
            for pair in pairs
            if all(max(pair[0][i], pair[1][i]) < min(pair[0][i + 2], pair[1][i + 2]) for i in (0, 1))
        ]


@pytest.mark.parametrize("width", [1300, 400])
def test_a_legend_names_all_arms_and_takes_no_room_from_what_is_drawn(width: int, tmp_path: Path):
    if not browser.browser():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    marks = {
        "none": arms(3, ""),
        "one": arms(1, "volume"),
        "some": arms(4, "volume"),
        "many": arms(30, "a long name of"),
    }
    marks["line"] = tuple(replace(mark, look=Look("#000000", ""), samples=mark.samples[:0]) for mark in marks["one"])
    figures = [Figure(name, name, "", (Panel(name, "x", "y", own),), pd.DataFrame()) for name, own in marks.items()]
    visit = browser.visit(page_of(figures, tmp_path), {"legends": LEGENDS}, {}, width)
    assert visit.errors == []
    legends = dict(zip(marks, visit.answers["legends"], strict=True))
    assert {name: one["names"] for name, one in legends.items()} == {
        name: [mark.label for mark in own if mark.label] for name, own in marks.items()
    }
    assert {name: one["silent"] for name, one in legends.items()} == dict.fromkeys(marks, 0)
    assert max(one["outside"] for one in legends.values()) <= 0
    assert max(one["height"] for one in legends.values()) - min(one["height"] for one in legends.values()) <= 20
