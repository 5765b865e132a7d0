import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts.report import account, answer, caveats, curves, findings, judgement, listings, names, pages, rows, scaling
from scripts.report import comparisons as ratios
from scripts.report.markup import markdown_line
from scripts.report.plot import COLOURS, Look
from scripts.report.results import ABSENT, Results
from scripts.studies.shots.report import results
from tests import records
from tests.report_tables import default_cells

PRINTED = {
    8: "488 .251735 .031577 .237753 .242595 .245573 .249351 .513524",
    16: "974 .258045 .011587 .238073 .250987 .254876 .260530 .320893",
    24: "1461 .318738 .028183 .241442 .303169 .316548 .331542 .934952",
    32: "1947 .420436 .054816 .238095 .384260 .415481 .453103 .903244",
    48: "2801 .629601 .126111 .240100 .546357 .620591 .703173 1.621520",
    64: "3815 .841275 .192385 .246335 .704887 .825595 .960420 1.944003",
}


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("shots")


@pytest.fixture(scope="module")
def run(tables: Path) -> Results:
    return results.load(tables, tables / "facts.json")


def changed(folder: Path, source: Path, table: str, change) -> Results:
    """Return the results of a copy of the tables in which one was changed."""
    copy = shutil.copytree(source, folder / "changed")
    frame = pd.read_csv(copy / table, dtype=str, keep_default_na=False)
    change(frame).to_csv(copy / table, index=False)
    return results.load(copy, copy / "facts.json")


# What people read first


def told(found: list[findings.Finding]) -> list[str]:
    return [markdown_line(one.text) for one in found]


@pytest.mark.rule(22)
def test_a_finding_gives_effect_interval_and_blocks_of_the_tables(run: Results):
    opens = run.verdicts[(run.verdicts["factor"] == "library") & (run.verdicts["metric"] == "open")]
    slower = opens[opens["verdict"] == "slower"]
    [finding] = [one for one in findings.find(run, "open") if one.factor == "library" and one.verdict == "slower"]
    assert len(finding.rows) == len(slower) == 8
    effect = names.effect(slower["ratio"], slower["ratio_low"].min(), slower["ratio_high"].max())
    assert effect.text in finding.text
    assert f"{effect.interval} to open a file {effect.than} 1.14.6 (8 comparisons of 6 blocks)" in finding.text
    assert finding.where == "from S3 at 20 ms, 50 MiB/s, cold cache"


def test_one_comparison_reads_as_a_plain_sentence(tables: Path, tmp_path: Path):
    run = changed(
        tmp_path,
        tables,
        "verdicts.csv",
        lambda rows: rows[(rows["verdict"] == "slower") & (rows["metric"] == "total")].head(1),
    )
    row = run.verdicts.iloc[0]
    percent = [f"{100 * (row[key] - 1):.0f}" for key in ("ratio", "ratio_low", "ratio_high")]
    assert told(findings.find(run)) == [
        f"HDF5 2.0.0 **took {percent[0]} % longer** [{percent[1]}, {percent[2]}] than 1.14.6 (6 blocks)."
    ]


@pytest.mark.parametrize(
    "ratios,ends,text,interval",
    [
        ([1.24], (1.21, 1.29), "took 24 % longer", "[21, 29]"),
        ([0.7, 0.9], (0.65, 0.95), "took 10–30 % less time", "[5, 35]"),
        ([1.8, 2.3], (1.66, 2.51), "took 1.8–2.3× as long", "[1.7, 2.5]"),
        ([0.35], (0.25, 0.5), "was 2.9× as fast", "[2.0, 4.0]"),
        ([0.1], (0.08, 12.5), "was 10× as fast", "[0.08, 12]"),
    ],
)
def test_a_ratio_and_its_interval_are_turned_together(ratios, ends, text, interval):
    assert names.effect(ratios, *ends)[:2] == (text, interval)


def test_what_holds_under_the_same_conditions_is_one_sentence(run: Results):
    buffers = [one for one in findings.find(run) if one.factor == "page_buffer" and one.decided]
    assert sum(len(one.rows) for one in buffers) > len(buffers)
    for one in buffers:
        inside = run.comparisons("total")
        inside = inside[(inside["factor"] == "page_buffer") & (inside["store"] == "s3")]
        for factor, levels in one.conditions.items():
            inside = inside[inside[factor].isin(levels)]
        assert set(inside["verdict"]) == {one.verdict}, "the conditions hold of nothing else"
        assert len(inside) == len(one.rows)


def test_an_effect_that_only_one_level_has_is_told_apart(run: Results):
    layouts = [
        one for one in findings.find(run) if one.factor == "layout" and one.conditions.get("access") == ["shots"]
    ]
    assert len(layouts) == 2, "with the buffer six times, without five percent: not one range"
    assert {tuple(one.conditions["page_buffer"]) for one in layouts} == {("0",), ("64MiB",)}


def test_every_comparison_is_in_one_sentence(run: Results):
    rows = run.comparisons("total")
    for verdict in rows["verdict"].unique():
        found = [one for one in findings.find(run) if one.verdict == verdict]
        assert sum(len(one.rows) for one in found) == (rows["verdict"] == verdict).sum() > 0


def test_parts_without_a_common_name_stay_one_sentence(run: Results):
    random = np.random.default_rng(1)
    cells = [cell for cell in default_cells() if cell["store"] == "s3" and not cell["control"]]
    rows = pd.DataFrame([{**cell, "workers": str(n)} for cell in cells for n in range(8)])
    rows["ratio"] = 1.1
    chosen = rows[random.random(len(rows)) < 0.5]
    [(part, conditions)] = findings.parts(chosen, rows, run)
    assert len(part) == len(chosen)
    assert conditions is None


@pytest.mark.rule(17)
def test_no_evidence_names_the_difference_that_could_be_detected_and_why_an_interval_does_not_decide(
    tables: Path, tmp_path: Path
):
    def doubt(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows[(rows["factor"] == "library") & (rows["metric"] == "total")].head(2)
        ends = {"ratio": ["1.02", "1.03"], "ratio_low": ["1.01", "0.99"], "ratio_high": ["1.03", "1.07"]}
        return rows.assign(verdict="no evidence", detectable_ratio=["1.04", "1.09"], **ends)

    [text] = told(findings.find(changed(tmp_path, tables, "verdicts.csv", doubt)))
    assert "**no evidence** that HDF5 2.0.0 and 1.14.6 differ: ratio 1.02 to 1.03" in text
    assert "this run could have detected 1.04× to 1.09×" in text
    assert "1 of 2 intervals excludes 1, but not after correction for all comparisons of this factor" in text


def test_parts_of_a_run_are_told_only_beyond_what_counts_as_the_same(tables: Path, tmp_path: Path):
    def small(rows: pd.DataFrame) -> pd.DataFrame:
        opens = (rows["metric"] == "open") & (rows["factor"] == "library")
        rows.loc[opens, ["verdict", "ratio", "ratio_low", "ratio_high"]] = ["slower", "1.03", "1.01", "1.06"]
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", small)
    _, secondary = pages.of_run(run)
    assert not [one for one in secondary if (one.metric, one.factor) == ("open", "library")]
    assert not [one for one in secondary if "**" in markdown_line(one.text)], "they are of the second rank"
    assert (listings.glance(run).frame["one open"] == "1.03 slower").any()


def test_what_other_code_measured_is_said_once_and_not_pair_by_pair(tables: Path, tmp_path: Path):
    def other(rows: pd.DataFrame) -> pd.DataFrame:
        mixed = (rows["factor"] == "page_buffer") & (rows["metric"] == "total")
        rows.loc[mixed, ["verdict", "note"]] = [
            "not comparable",
            "the measuring code differs between the arms in block 1",
        ]
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", other)
    mixed = run.comparisons("total")["factor"].eq("page_buffer").sum()
    assert not any(one.factor == "page_buffer" for one in findings.find(run))
    [line] = [line for line in caveats.limits(run) if "measuring code" in line]
    assert line.startswith(f"{mixed} comparisons of cells that different versions")


def test_the_headline_answers_by_the_factor_of_the_question(run: Results, tables: Path, tmp_path: Path):
    found, secondary = pages.of_run(run)
    text = markdown_line(answer.headline(run, found, secondary))
    assert text.startswith("**From S3 at 20 ms, 50 MiB/s, cold cache, HDF5 2.0.0 took ")
    assert "than 1.14.6" in text
    assert "to open a file" in text
    few = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows.assign(verdict="too few repeats", blocks="3"))
    assert (
        answer.headline(few, *pages.of_run(few)).strip("\x01\x02")
        == "No verdict: 3 complete repeats of the 6 that it needs."
    )


def test_the_picture_has_the_largest_decided_effects_and_the_rest_is_not_lost(run: Results):
    picture, rest = ratios.deciding(run)
    rows = run.comparisons("total")
    assert len(picture.numbers) == ratios.ROWS
    assert len(picture.numbers) + len(rest.numbers) == len(rows)
    effects = np.abs(np.log(picture.numbers.loc[picture.numbers["factor"] != "library", "ratio"]))
    assert effects.is_monotonic_decreasing


def test_advice_says_what_to_choose_for_each_thing_that_is_read(run: Results):
    advice = [markdown_line(line) for line in answer.advice(run)]
    assert [line.split(":")[0] for line in advice] == [
        "Reading all signals of a shot",
        "Reading one signal of all shots",
    ]
    assert all("× as fast**" in line for line in advice)


def test_reasons_are_the_requests_and_bytes_of_both_sides(run: Results):
    found, _ = pages.of_run(run)
    lines = answer.reasons(run, found)
    assert 0 < len(lines) <= answer.REASONS
    assert all("request" in line and "MiB" in line for line in lines)


def test_the_best_configuration_of_each_layout_stands_beside_the_others(run: Results):
    table = answer.best(run)
    place = ["store", "driver", "cache", "access", "layout"]
    fastest = run.measured.groupby(place)["total_s"].min()
    found = table.numbers.set_index(place)["total_s"]
    assert found.sort_index().to_dict() == fastest.sort_index().to_dict()
    assert {"shot-major", "signal-major"} <= set(table.numbers["layout"])


@pytest.mark.rule(8)
def test_words_for_the_cache_come_from_its_state_and_not_from_the_level(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "cells.csv", lambda cells: cells.assign(cache_state="unverified"))
    assert {one.where.split(", ")[-1] for one in findings.find(run)} == {"cache state unverified"}
    warm = changed(tmp_path / "warm", tables, "cells.csv", lambda cells: cells.assign(cache_state="warm"))
    assert "from memory (page cache of disk)" in {one.where for one in findings.find(warm)}


@pytest.mark.rule(6)
def test_control_counts_false_alarms(tables: Path, tmp_path: Path):
    def alarm(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[rows.index[(rows["role"] == "control") & (rows["metric"] == "total")][0], "verdict"] = "slower"
        return rows

    text = judgement.control(changed(tmp_path, tables, "verdicts.csv", alarm).verdicts)
    assert "2 cells measured twice" in text
    assert "1 false alarm out of 2 on the total runtime and 0 false alarms out of 6 on its parts" in text


@pytest.mark.rule(22)
def test_limits_say_what_was_emulated_and_what_is_missing(run: Results):
    text = " ".join(caveats.limits(run))
    for part in (
        "an emulated network: 20 ms",
        "no TLS",
        "hypervisor",
        "1 repeat of 1 cell failed",
        "6 repeats of 1 cell",
    ):
        assert part in text


# Figures and tables


@pytest.mark.rule(21)
def test_lines_join_points_of_several_workers_only(run: Results):
    joined = [mark for panel in curves.against(run, "workers").panels for mark in panel.marks if mark.joined]
    assert {tuple(mark.points["n"]) for mark in joined} == {(6, 6)}
    single = rows.alone(run)
    assert [panel.rows[0] for panel in single.panels] == ["shot-major · all signals of a shot · no page buffer"]
    assert not any(mark.joined for panel in single.panels for mark in panel.marks)


@pytest.mark.rule(21)
def test_every_repeat_is_drawn_beside_its_median(run: Results):
    numbers = rows.alone(run).numbers
    drawn = sum(len(mark.samples) for panel in rows.alone(run).panels for mark in panel.marks)
    assert drawn == (numbers["repeat"] != "").sum() == 16 * 6 - 1


@pytest.mark.rule(19)
def test_performance_ratio_is_the_base_by_this_one(run: Results):
    figure = curves.speedup(run)
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
    [panel] = curves.against(run, "workers").panels
    [invalid] = [mark for mark in panel.marks if mark.label == "[INVALID]"]
    assert len(invalid.points) == 6
    troubled = listings.troubled(run).frame
    assert list(troubled[""]) == ["[INVALID]", "failed"]
    assert "page size" in troubled["reasons"].iloc[0]


def test_forest_shows_each_comparison_by_its_verdict(run: Results):
    figure = ratios.by(run, ["library"])
    rows = run.verdicts[(run.verdicts["factor"] == "library") & (run.verdicts["metric"] == "total")]
    drawn = {mark.label: len(mark.points) for panel in figure.panels for mark in panel.marks if len(figure.panels)}
    assert set(drawn) == set(rows["verdict"])
    assert sum(len(panel.rows) for panel in figure.panels) == len(rows)
    assert all(panel.band == (1 / 1.05, 1.05) for panel in figure.panels)
    assert len({(look.colour, look.marker) for look in ratios.LOOKS.values()}) == len(ratios.LOOKS)
    assert not {look.colour for look in ratios.LOOKS.values()} & set(COLOURS), "verdicts are no arms"


def test_arms_differ_in_colour_and_in_marker():
    looks = [Look.of(arm) for arm in range(6)]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 6


@pytest.mark.rule(11)
def test_high_amplification_and_varying_requests_are_marked(run: Results):
    table = listings.requests(run)
    assert set(table.frame.loc[table.over["amplification"], "amplification"]) == {2.5}
    assert set(table.frame.loc[table.over["spread over repeats"], "spread over repeats"]) == {2}


def test_published_object_times_are_printed_to_all_six_digits(published: Path, tmp_path: Path):
    shutil.copy(published / "ros3-shots" / "ec2-s3-libaws.csv", tmp_path / "samples.csv")
    (tmp_path / "facts.json").write_text('{"settings": {"page_size": 8000000}}')
    run = results.load(tmp_path, tmp_path / "facts.json")
    table = results.object_time_table(run, "signals")
    assert list(table.index) == [("264MB", str(workers)) for workers in PRINTED]
    for (_, workers), row in table.iterrows():
        count, *seconds = PRINTED[int(workers)].split()
        assert row["count"] == int(count)
        assert [f"{value:.6f}" for value in row[1:]] == [f"{float(text):.6f}" for text in seconds]
    printed = results.described(run, "signals")
    assert [printed.formats["mean"](value) for value in printed.frame["mean"]][:2] == ["0.251735", "0.258045"]


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
    assert results.buffer_label(results.effective_buffer(size, page_size)) == label


def test_levels_that_look_like_numbers_stay_text(tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    for name in ("samples", "cells", "verdicts", "matrix"):
        text = (copy / f"{name}.csv").read_text().replace("hdf5-1.14.6", "3.10")
        (copy / f"{name}.csv").write_text(text)
    run = results.load(copy, copy / "facts.json")
    assert run.arms[0] == "3.10"
    assert "3.10" in rows.alone(run).panels[0].marks[0].label


@pytest.mark.parametrize("absent", ["samples", "cells", "verdicts", "matrix"])
def test_an_absent_table_leaves_a_sentence_and_the_rest(absent: str, tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables")
    (copy / f"{absent}.csv").unlink()
    run = results.load(copy, copy / "facts.json")
    assert ABSENT[absent] in caveats.limits(run)
    first = run.report.value("first_s")
    shown = [curves.against(run, "workers"), curves.speedup(run), rows.alone(run), ratios.by(run, ["library"])]
    shown += [
        rows.boxes(run, "boxes", "", "mean-obj-time", "", ""),
        rows.parts(run, "parts", "", results.PARTS, "", ""),
    ]
    shown += [rows.values(run, "values", "", [(first, "", True)], "")]
    assert sum(bool(figure.panels) for figure in shown) >= 4
    assert all(figure.panels or figure.numbers.empty for figure in shown)
    parts = (listings.glance, listings.requests, listings.harness, listings.conditions)
    assert sum(not show(run).frame.empty for show in parts) >= 2


def test_a_table_without_verdicts_has_no_marks(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows.assign(verdict="too few repeats"))
    assert {colour for column in listings.glance(run).over.values() for colour in column} == {"unknown"}
    assert not any(one.decided for one in findings.find(run))


def test_facts_may_lack_everything(tables: Path, tmp_path: Path):
    (tmp_path / "facts.json").write_text('{"libraries": null, "stores": {"s3": null}, "failed_attempts": ["a line"]}')
    run = results.load(tables, tmp_path / "facts.json")
    assert findings.find(run)[0].where == "from s3, cold cache"
    assert list(account.attempts(run.facts).frame["reasons"]) == ["a line"]
    assert account.machine(run.facts).frame.empty


def test_tables_made_of_records_are_understood(tmp_path: Path):
    cells = records.synthetic_cells()
    records.write_synthetic_run(tmp_path, cells, ratio=lambda cell: 1.5 if cell["library"] == "hdf5-2.0.0" else 1.0)
    records.gather(tmp_path, out=".", compare=[{"factor": "library", "baseline": "hdf5-1.14.6"}])
    run = results.load(tmp_path)
    assert run.absent == ()
    assert sum(len(one.rows) for one in findings.find(run) if one.verdict == "slower") == 24
    assert len(scaling.where_it_stops(run)) >= 1
    assert len(curves.against(run, "workers").panels) == 4
    assert "1 cell measured twice" in judgement.control(run.verdicts)
