"""What a page shows of a run that measures until it can decide."""

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from sbench.measure import gather
from sbench.pages import comparisons, findings, judgement
from sbench.pages.results import Results
from sbench.studies.shots.report import results as shots
from tests.helpers.rounds import STUDY, Simulation, configure


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """Return the results of a run with a comparison that the first look decides, and another that takes more."""
    monkeypatch.chdir(tmp_path)
    config = configure(tmp_path, most_repeats=20)

    def ratio(levels: dict) -> float:
        return 1.0 if levels["access"] == "shots" else 1.5 if levels["page_buffer"] == "0" else 1.1

    simulation = Simulation(config, ratio, noise=0.06)
    simulation.call()
    table, kept = gather.read_study(simulation.folder, config["run"], STUDY)
    gather.write_tables(gather.build_tables(config, STUDY, table, kept, {}), simulation.folder)
    facts = {"run": config["run"], "study": STUDY, "stores": config["stores"], "equivalence_percent": 5}
    facts |= {"settings": config["studies"][STUDY], "libraries": {}, "repeats": 6, "limits": [], "sessions": ["call-1"]}
    order = gather.count_orders([{"position": 0, "host": {}, **one.record} for one in kept])
    facts |= {"order": json.loads(json.dumps(order))}
    (simulation.folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return shots.load_results(simulation.folder, simulation.folder / "facts.json")


@pytest.mark.rule(5)
def test_the_page_counts_the_comparisons_by_state(measured: Results):
    line = judgement.describe_looks(measured)
    assert line.startswith("After ")
    assert " of at most 20 blocks: " in line
    assert " of 2 comparisons decided" in line


@pytest.mark.rule(5)
def test_the_table_of_verdicts_gives_the_blocks_of_each(measured: Results):
    made = comparisons.build_verdict_table(measured)
    states = list(made.frame["state"])
    assert "decided after 6 of at most 20 blocks" in states
    assert len(set(states)) == 2


@pytest.mark.rule(5, 17)
def test_values_of_all_cells_are_of_the_blocks_that_measured_every_cell(measured: Results):
    assert len(measured.verdicts["blocks"].unique()) > 1
    raw = pd.read_csv("results/synthetic/shots/records.csv")
    assert raw.groupby("cell").size().nunique() > 1
    medians = raw[raw["repeat"] <= 6].groupby("cell")["value"].median()
    shown = measured.measured.set_index("cell")
    assert shown["total_s"].to_dict() == pytest.approx(medians[shown.index].to_dict())
    assert set(shown["n"]) == {6}
    assert set(measured.records["repeat"]) == set(measured.samples["repeat"]) == set(range(1, 7))


@pytest.mark.rule(22)
def test_the_page_counts_the_repeats_that_measured_every_cell(measured: Results):
    more = measured.verdicts["blocks"].max() - 6
    [line, *_] = judgement.describe_method(measured, [])
    assert line.startswith("Each of 6 repeats measured every cell once")
    assert line.endswith(
        f" {more} more measured some of the cells: times and rates of cells leave these out, comparisons do not."
    )


@pytest.mark.rule(5, 22)
def test_verdicts_on_dependent_blocks_are_marked_wherever_they_are_printed(measured: Results):
    def count_marks(run: Results) -> tuple[int, int, int]:
        states = comparisons.build_verdict_table(run).frame["state"]
        texts = [one.text for one in findings.list_findings(run)]
        limits = judgement.list_limits(run)
        return tuple(sum("blocks depend on one another" in text for text in part) for part in (states, texts, limits))

    assert count_marks(measured) == (0, 0, 0)
    later = measured.verdicts["look"] > 1
    notes = measured.verdicts["note"].fillna("").where(~later, "blocks depend on one another")
    run = dataclasses.replace(measured, verdicts=measured.verdicts.assign(note=notes, serial_p=0.004))
    assert count_marks(run)[:2] == (1, 1)
    [line] = [line for line in judgement.list_limits(run) if line.startswith("Successive blocks are correlated")]
    assert f"above all the {later.sum()} verdicts that rest on blocks added after the first look" in line


@pytest.mark.rule(22)
def test_the_limits_of_a_page_say_of_how_many_sessions_its_intervals_are(measured: Results):
    assert any(
        line.startswith("Intervals are of the repeats of 1 session;") for line in judgement.list_limits(measured)
    )


@pytest.mark.rule(5)
def test_the_picture_of_looks_has_the_comparisons_of_more_than_one_look(measured: Results):
    figure = comparisons.draw_looks(measured)
    (panel,) = figure.panels
    assert sorted(figure.numbers["blocks"]) == list(figure.numbers["blocks"])
    assert len(panel.rows) == len(figure.numbers)
    assert "6 blocks" in " ".join(panel.rows)
