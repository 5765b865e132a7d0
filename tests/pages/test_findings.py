"""What a report says of verdicts: sentences, the headline, advice and limits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sbench.pages import answer, cell_tables, findings, headline, judgement, names, pages, recommendation
from sbench.pages import comparisons as ratios
from sbench.pages.markup import render_markdown_line
from sbench.pages.results import Results
from sbench.studies.shots.report import results
from tests.helpers.report_tables import changed, default_cells


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("shots")


@pytest.fixture(scope="module")
def run(tables: Path) -> Results:
    return results.load_results(tables, tables / "facts.json")


def told(found: list[findings.Finding]) -> list[str]:
    return [render_markdown_line(one.text) for one in found]


@pytest.mark.rule(22)
def test_a_finding_gives_effect_interval_and_blocks_of_the_tables(run: Results):
    opens = run.verdicts[(run.verdicts["factor"] == "library") & (run.verdicts["metric"] == "open")]
    slower = opens[opens["verdict"] == "slower"]
    [finding] = [
        one for one in findings.list_findings(run, "open") if one.factor == "library" and one.verdict == "slower"
    ]
    assert len(finding.rows) == len(slower) == 8
    effect = names.describe_effect(slower["ratio"], slower["ratio_low"].min(), slower["ratio_high"].max())
    assert effect.text in finding.text
    assert f"{effect.interval} {effect.than} 1.14.6 (8 comparisons, 6 blocks each)" in finding.text
    assert finding.where == "from S3 (emulated, 20 ms, 50 MiB/s), cold cache"


def test_one_comparison_reads_as_a_plain_sentence(tables: Path, tmp_path: Path):
    run = changed(
        tmp_path,
        tables,
        "verdicts.csv",
        lambda rows: rows[(rows["verdict"] == "slower") & (rows["metric"] == "total")].head(1),
    )
    row = run.verdicts.iloc[0]
    percent = [f"{100 * (row[key] - 1):.0f}" for key in ("ratio", "ratio_low", "ratio_high")]
    assert told(findings.list_findings(run)) == [
        f"HDF5 2.0.0 **took {percent[0]} % longer** [{percent[1]}, {percent[2]}] than 1.14.6 (6 blocks)."
    ]


@pytest.mark.parametrize(
    "slow, said",
    [
        ((0, 0), ""),
        ((0, 1), "in 1 of 6 blocks HDF5 2.0.0 took 3.00× its usual time relative to the other"),
        ((2, 0), "in 2 of 6 blocks 1.14.6 took 3.00× its usual time relative to the other"),
        ((2, 1), "in 3 of 6 blocks the ratio was off by 3.00×"),
    ],
)
def test_blocks_that_took_far_longer_are_told_of_the_side_on_which_they_are(tables, tmp_path, slow, said):
    def spoiled(rows: pd.DataFrame) -> pd.DataFrame:
        row = rows[(rows["verdict"] == "slower") & (rows["metric"] == "total")].head(1)
        return row.assign(slow_baseline=slow[0], slow_contender=slow[1], slow_ratio=3.0)

    [sentence] = told(findings.list_findings(changed(tmp_path, tables, "verdicts.csv", spoiled)))
    assert said in sentence
    assert ("the ratio was off" in sentence) == all(slow)
    assert ("3.00×" in sentence) == any(slow)


def test_slow_blocks_are_counted_among_those_of_all_comparisons_of_a_sentence(tables: Path, tmp_path: Path):
    def spoiled(rows: pd.DataFrame) -> pd.DataFrame:
        pair = rows[(rows["factor"] == "page_buffer") & (rows["metric"] == "total")].head(2)
        slow = {"slow_baseline": 0, "slow_contender": ["3", "0"], "slow_ratio": ["2.0", ""]}
        return pair.assign(verdict="faster", ratio=0.5, ratio_low=0.4, ratio_high=0.6, blocks=6, note="", **slow)

    [sentence] = told(findings.list_findings(changed(tmp_path, tables, "verdicts.csv", spoiled)))
    assert "(2 comparisons, 6 blocks each; in 3 of 12 blocks " in sentence


@pytest.mark.rule(2)
@pytest.mark.parametrize(
    "note", ["the measuring code differs in block 1", "blocks 1, 2 measured in different sessions, not used"]
)
def test_arms_that_do_not_belong_together_are_told_once_and_not_per_pair(tables: Path, tmp_path: Path, note: str):
    def apart(rows: pd.DataFrame) -> pd.DataFrame:
        library, buffer = (rows["factor"] == factor for factor in ("library", "page_buffer"))
        rows.loc[library, ["verdict", "note"]] = ["not comparable", note]
        rows.loc[buffer, "note"] = "block 4 measured on different machines, not used"
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", apart)
    assert {finding.factor for finding in findings.list_findings(run)} == {"page_buffer", "layout"}
    limits = " ".join(map(render_markdown_line, judgement.list_limits(run)))
    counts = run.get_comparisons()["factor"].value_counts()
    assert f"{counts['library']} comparisons are left out: different versions of the measuring code" in limits
    assert (
        f"{counts['page_buffer']} comparisons lack blocks, because their two sides were not measured in the same"
        in limits
    )


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
    assert names.describe_effect(ratios, *ends)[:2] == (text, interval)


def test_what_holds_under_the_same_conditions_is_one_sentence(run: Results):
    buffers = [one for one in findings.list_findings(run) if one.factor == "page_buffer" and one.is_decided]
    assert sum(len(one.rows) for one in buffers) > len(buffers)
    for one in buffers:
        inside = run.get_comparisons("total")
        inside = inside[(inside["factor"] == "page_buffer") & (inside["store"] == "s3")]
        for factor, levels in one.conditions.items():
            inside = inside[inside[factor].isin(levels)]
        assert set(inside["verdict"]) == {one.verdict}, "the conditions hold of nothing else"
        assert len(inside) == len(one.rows)


def test_an_effect_that_only_one_level_has_is_told_apart(run: Results):
    layouts = [
        one
        for one in findings.list_findings(run)
        if one.factor == "layout" and one.conditions.get("access") == ["shots"]
    ]
    assert len(layouts) == 2, "with the buffer six times, without five percent: not one range"
    assert {tuple(one.conditions["page_buffer"]) for one in layouts} == {("0",), ("64MiB",)}


def test_every_comparison_is_in_one_sentence(run: Results):
    rows = run.get_comparisons("total")
    for verdict in rows["verdict"].unique():
        found = [one for one in findings.list_findings(run) if one.verdict == verdict]
        assert sum(len(one.rows) for one in found) == (rows["verdict"] == verdict).sum() > 0


def test_parts_without_a_common_name_stay_one_sentence(run: Results):
    random = np.random.default_rng(1)
    cells = [cell for cell in default_cells() if cell["store"] == "s3" and not cell["control"]]
    rows = pd.DataFrame([{**cell, "workers": str(n)} for cell in cells for n in range(8)])
    rows["ratio"] = 1.1
    chosen = rows[random.random(len(rows)) < 0.5]
    [(part, conditions)] = findings.split_by_levels(chosen, rows, run)
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

    [text] = told(findings.list_findings(changed(tmp_path, tables, "verdicts.csv", doubt)))
    assert "HDF5 2.0.0 vs 1.14.6: **no evidence** of a difference: ratio 1.02–1.03" in text
    assert "a difference of 1.04–1.09× would have been detected" in text
    assert "1 of 2 intervals excludes 1, but the corrected p is too large" in text


def test_parts_of_a_run_are_told_only_beyond_what_counts_as_the_same(tables: Path, tmp_path: Path):
    def small(rows: pd.DataFrame) -> pd.DataFrame:
        opens = (rows["metric"] == "open") & (rows["factor"] == "library")
        rows.loc[opens, ["verdict", "ratio", "ratio_low", "ratio_high"]] = ["slower", "1.03", "1.01", "1.06"]
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", small)
    _, secondary = pages.get_findings(run)
    assert not [one for one in secondary if (one.metric, one.factor) == ("open", "library")]
    assert not [one for one in secondary if "**" in render_markdown_line(one.text)], "they are of the second rank"
    assert (cell_tables.build_glance_table(run).frame["time to open a file"] == "1.03× as long").any()


def test_the_headline_answers_by_the_factor_of_the_question(run: Results, tables: Path, tmp_path: Path):
    text, _ = headline.write_headline(run)
    assert text.startswith("From S3 (emulated, 20 ms, 50 MiB/s), cold cache, HDF5 2.0.0 took ")
    assert "than 1.14.6" in text
    assert len(text.split()) <= 35
    few = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows.assign(verdict="too few repeats", blocks="3"))
    assert headline.write_headline(few)[0] == "No verdict yet: 3 complete repeats of at least 6."


def test_the_headline_of_a_run_that_compares_something_else_is_about_that(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows[rows["factor"] == "page_buffer"])
    text, _ = headline.write_headline(run)
    assert text.startswith("From ")
    assert "page buffer" in text.partition(" took ")[0] + text.partition(" was ")[0]
    assert "asks about" not in text


def test_the_picture_has_the_largest_decided_effects_and_the_rest_is_not_lost(run: Results):
    picture, rest = ratios.draw_deciding(run)
    rows = run.get_comparisons("total")
    assert len(picture.numbers) == ratios.ROWS
    assert len(picture.numbers) + len(rest.numbers) == len(rows)
    assert sum(len(ratios.draw_comparisons(run, [factor]).numbers) for factor in rows["factor"].unique()) == len(rows)
    effects = np.abs(np.log(picture.numbers.loc[picture.numbers["factor"] != "library", "ratio"]))
    assert effects.is_monotonic_decreasing


def test_one_configuration_is_recommended_for_each_thing_that_is_read(run: Results):
    said = recommendation.list_recommendations(run)
    texts = [render_markdown_line(text) for text, _ in said]
    assert any(text.partition(":")[0].endswith("reading all signals of a shot") for text in texts)
    assert all("× as fast as" in text for text in texts)
    situations = [one.situation for _, statements in said for one in statements]
    assert len(situations) == len(set(situations))


def test_advice_says_what_makes_good_the_blocks_that_are_lacking(tables: Path, tmp_path: Path):
    def lacking(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[rows.index[:2], ["verdict", "blocks"]] = ["too few repeats", "4"]
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", lacking)
    run = replace(run, facts=run.facts | {"repeats": 6})
    count = int((run.get_comparisons()["verdict"] == "too few repeats").sum())
    first = render_markdown_line(recommendation.describe_needed_repeats(run)[0])
    assert first.startswith(f"{count} comparison")
    assert "without a verdict: run again, which appends 2 blocks of every cell" in first
    few = replace(run, facts=run.facts | {"repeats": 4})
    assert "without a verdict: raise `repeats` to 6 and run again" in render_markdown_line(
        recommendation.describe_needed_repeats(few)[0]
    )


def test_reasons_are_the_requests_and_bytes_of_both_sides(run: Results):
    found, _ = pages.get_findings(run)
    *lines, cost = [text for text, _ in answer.list_reasons(run, found)]
    assert 0 < len(lines) <= answer.REASONS
    assert all("request" in line and "MiB" in line for line in lines)
    assert "1,000 such reads cost " in cost


def test_reasons_name_the_place_where_they_are_of_several(run: Results):
    found = findings.list_findings(run)
    assert not any("cold cache" in line for line, _ in answer.list_reasons(run, found))
    apart = [replace(one, where=f"from store {number}") for number, one in enumerate(found)]
    assert all(line.startswith("From store ") for line, _ in answer.list_reasons(run, apart))


def test_the_first_reason_is_that_of_the_headline(tables: Path, tmp_path: Path):
    def more(rows: pd.DataFrame) -> pd.DataFrame:
        requests = pd.to_numeric(rows["requests"])
        return rows.assign(requests=requests + (rows["library"] == "hdf5-2.0.0"))

    run = changed(tmp_path, tables, "cells.csv", more)
    lines = [text for text, _ in answer.list_reasons(run, pages.get_findings(run)[0])]
    assert ["HDF5 2.0.0 transferred" in line for line in lines] == [True, False, False]


def test_the_best_configuration_of_each_layout_stands_beside_the_others(run: Results):
    table = answer.build_best_table(run)
    place = ["store", "driver", "cache", "access", "layout"]
    fastest = run.measured.groupby(place)["total_s"].min()
    found = table.numbers.set_index(place)["total_s"]
    assert found.sort_index().to_dict() == fastest.sort_index().to_dict()
    assert {"shot-major", "signal-major"} <= set(table.numbers["layout"])


@pytest.mark.rule(15)
def test_what_failed_now_and_then_is_best_only_where_all_did(run: Results, tables: Path, tmp_path: Path):
    best = answer.build_best_table(run).numbers
    failing = changed(
        tmp_path, tables, "cells.csv", lambda cells: cells.assign(failed=(cells["cell"] == best["cell"][0]).astype(int))
    )
    assert best["cell"][0] not in set(answer.build_best_table(failing).numbers["cell"])
    every = answer.build_best_table(
        changed(tmp_path / "every", tables, "cells.csv", lambda cells: cells.assign(failed="2"))
    )
    assert list(every.numbers["cell"]) == list(best["cell"])
    assert every.frame["time / s"].str.endswith(" (2 of 8 failed)").all()


@pytest.mark.rule(8)
def test_words_for_the_cache_come_from_its_state_and_not_from_the_level(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "cells.csv", lambda cells: cells.assign(cache_state="unverified"))
    assert all("cache state unverified" in one.where for one in findings.list_findings(run))
    warm = changed(tmp_path / "warm", tables, "cells.csv", lambda cells: cells.assign(cache_state="warm"))
    assert any(one.where.startswith("from memory (page cache, files on disk)") for one in findings.list_findings(warm))


@pytest.mark.parametrize("drivers, place", [(["ros3", "s3fs"], "by ros3, cold cache"), (["ros3"], "cold cache")])
def test_a_comparison_of_stores_names_the_driver_where_there_are_several(run: Results, drivers: list, place: str):
    matrix = {"store": ["s3", "s3-tls"], "driver": drivers}
    called = names.Names(run.report, {"settings": {"matrix": matrix}})
    row = {"factor": "store", "baseline": "s3", "contender": "s3-tls", "store": "", "driver": "ros3", "cache": "cold"}
    assert called.format_place(row) == place


@pytest.mark.rule(6)
@pytest.mark.parametrize("verdict", ["slower", "faster"])
def test_control_counts_false_alarms(tables: Path, tmp_path: Path, verdict: str):
    def alarm(rows: pd.DataFrame) -> pd.DataFrame:
        rows.loc[rows.index[(rows["role"] == "control") & (rows["metric"] == "total")][0], "verdict"] = verdict
        return rows

    text = judgement.describe_control(changed(tmp_path, tables, "verdicts.csv", alarm).verdicts)
    assert "2 cells measured twice" in text
    assert "false alarms in 1 of 2 comparisons of the total and in 0 of 6 of its parts" in text


@pytest.mark.rule(22)
def test_limits_say_what_was_emulated_and_what_is_missing(run: Results):
    text = " ".join(judgement.list_limits(run))
    for part in (
        "an emulated network: 20 ms",
        "no TLS",
        "hypervisor",
        "1 repeat of 1 cell failed",
        "6 repeats of 1 cell",
    ):
        assert part in text


@pytest.mark.rule(15)
def test_attempts_that_failed_stand_in_the_sentence_with_their_interval(tables: Path, tmp_path: Path):
    def failing(rows: pd.DataFrame) -> pd.DataFrame:
        rows[["attempts_baseline", "failed_baseline", "attempts_contender", "failed_contender"]] = "8", "0", "8", "2"
        return rows

    run = changed(tmp_path, tables, "verdicts.csv", failing)
    texts = [one.text for one in findings.list_findings(run) if one.factor == "library"]
    assert texts
    assert any("in 2 of 8 attempts [3, 65 %], " in text and "in 0 of 8 attempts [0, 37 %]" in text for text in texts)
    (tmp_path / "none").mkdir()
    run = changed(tmp_path / "none", tables, "verdicts.csv", lambda rows: failing(rows).assign(failed_contender="0"))
    assert not any("attempts" in one.text for one in findings.list_findings(run))


@pytest.mark.rule(20)
def test_what_the_network_lets_through_is_that_of_one_connection_per_worker(tables: Path, tmp_path: Path):
    run = changed(tmp_path, tables, "cells.csv", lambda cells: cells.assign(workers="4"))
    column = next(column for column in run.report.moved if column.title.startswith("bound"))
    bounds = column.of(run, run.measured)
    emulated = run.measured["store"] == "s3"
    assert set(bounds[emulated]) == {200}, "50 MiB/s each"
    assert bounds[~emulated].isna().all()


@pytest.mark.rule(17)
@pytest.mark.parametrize("p, told", [(0.009, True), (0.02, False), (float("nan"), False)])
def test_limits_say_that_blocks_resemble_those_before_them(tables: Path, tmp_path: Path, p: float, told: bool):
    run = changed(tmp_path, tables, "verdicts.csv", lambda rows: rows.assign(serial_p=str(p)))
    assert any(f"(p = {p:.2g} over all comparisons)" in line for line in judgement.list_limits(run)) == told


@pytest.mark.rule(17)
def test_the_limits_have_the_stalls_that_no_block_of_the_same_arms_need_have_met(run: Results):
    assert (run.get_comparisons()["verdict"] == "same").any()
    assert [line for line in judgement.list_limits(run) if "stalls in fewer than 39 % of reads" in line]


def test_the_page_says_how_many_families_its_verdicts_are_of(run: Results):
    [line] = judgement.describe_families(run.verdicts)
    rows = run.verdicts[run.verdicts["role"] == "decides"]
    count = rows["factor"].nunique()
    assert f"{count} on the deciding metric (together at most {5 * count} %)" in line
    [line] = judgement.describe_families(run.verdicts.assign(looks=2))
    assert "at most 6.9 % of runs" in line, "blocks were added after a first look"
    assert judgement.describe_families(run.verdicts.iloc[:0]) == []
