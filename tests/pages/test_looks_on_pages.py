"""What a page shows of a run that measures until it can decide."""

import json
from pathlib import Path

import pytest

from sbench.measure import gather
from sbench.pages import comparisons, judgement
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
    facts |= {"settings": config["studies"][STUDY], "libraries": {}, "order": {}, "repeats": 6, "limits": []}
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


@pytest.mark.rule(5)
def test_the_picture_of_looks_has_the_comparisons_of_more_than_one_look(measured: Results):
    figure = comparisons.draw_looks(measured)
    (panel,) = figure.panels
    assert sorted(figure.numbers["blocks"]) == list(figure.numbers["blocks"])
    assert len(panel.rows) == len(figure.numbers)
    assert "6 blocks" in " ".join(panel.rows)
