"""The words of pages, pinned by hand-made runs: two libraries, two page buffers, times and requests as written here."""

import importlib
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from sbench.design.records import Kept
from sbench.measure import tables
from sbench.measure.families import OTHER_CODE
from sbench.measure.judging import build_verdicts_table
from sbench.pages import answer, headline, judgement, leaders, pages, recommendation
from sbench.pages.markup import render_markdown_line
from sbench.pages.results import Results
from sbench.studies.volumes.report import answers
from tests.helpers.synthetic_runs import REPORTS, STORES, _results, draw

# Tables of words: that of all pages, and those of single studies, each used within the folder that its own is in.
TABLES = sorted((ROOT / "scripts").rglob("words.py"))
OLD, NEW = "hdf5-1.14.6", "hdf5-2.0.0"
FIXED = {"store": "s3", "driver": "ros3", "layout": "shot-major", "access": "shots", "workers": "1", "cache": "cold"}
WHERE = "From S3 (emulated, 20 ms), cold cache, "
LIBRARIES = {name: {"hdf5": name.removeprefix("hdf5-")} for name in (OLD, NEW)}


def make_run(
    times: dict[tuple[str, str], float], blocks: int = 8, null: dict | None = None, **requests: int
) -> Results:
    """Return a run whose cells (library, page buffer) take so many seconds, give or take half a percent."""
    cells = [
        {
            "cell": f"{library} {buffer}",
            "library": library,
            **FIXED,
            "page_buffer": buffer,
            "control": "",
            "twin_of": "",
        }
        for library, buffer in times
    ]
    factors = [name for name in REPORTS["shots"].names if name in cells[0]]
    matrix, random, kept = pd.DataFrame(cells), np.random.default_rng(1), []
    for cell, block in itertools.product(cells, range(1, blocks + 1)):
        key = (cell["library"], cell["page_buffer"])
        total, levels = times[key] * float(np.exp(random.normal(0, 0.005))), {name: cell[name] for name in factors}
        count = {
            "count": requests.get(f"of_{cell['page_buffer']}", 10),
            "bytes_offered": 2**20,
            "bytes_delivered": 2**20,
        }
        record = {
            **{"record": 1, "status": "done", "run": "made", "study": "shots", "name": cell["cell"], "repeat": block},
            **{"cell": levels | {"control": ""}, "valid": True, "reasons": [], "session": "1", "host": {"node": "a"}},
            "seconds": {"total": total, "null": total * (null or {}).get(key, 0.001)},
            **{"work": {}, "requests": {"GET": count}, "samples": [], "provenance": {}},
        }
        kept.append(Kept(cell["cell"], levels, block, Path("made"), record))
    runs, _ = tables.build_runs_and_samples(matrix[["cell", *factors, "control", "twin_of"]], kept)
    compare = [{"factor": "library", "baseline": OLD}, {"factor": "page_buffer", "baseline": "0"}]
    compare = [entry for entry in compare if matrix[entry["factor"]].nunique() > 1]
    verdicts = build_verdicts_table(matrix[["cell", *factors, "control", "twin_of"]], runs, compare, 5, 1)
    facts = {"run": "made", "study": "shots", "stores": STORES, "settings": {"compare": compare}}
    facts["libraries"] = LIBRARIES
    return _results(matrix[["cell", *factors, "control", "twin_of"]], runs, verdicts, facts, REPORTS["shots"])


SLOWER = {(OLD, "0"): 1.0, (NEW, "0"): 1.25}
SIZES = ("0", "1MiB", "16MiB", "64MiB", "256MiB")
SEVERAL = {
    (library, size): seconds
    for library, times in ((OLD, (1.0, 0.9, 0.8, 0.5, 0.7)), (NEW, (1.0, 0.9, 0.8, 0.7, 0.25)))
    for size, seconds in zip(SIZES, times, strict=True)
}
TURNS = SLOWER | {(OLD, "64MiB"): 0.5, (NEW, "64MiB"): 0.4}


@pytest.mark.parametrize(
    "times, options, words",
    [
        (SLOWER, {}, f"{WHERE}HDF5 2.0.0 took 25 % longer than 1.14.6."),
        ({(OLD, "0"): 3.0, (NEW, "0"): 1.0}, {}, f"{WHERE}HDF5 2.0.0 was 3.0× as fast as 1.14.6."),
        (
            TURNS,
            {},
            f"{WHERE}HDF5 2.0.0 took 25 % longer than 1.14.6 with no page buffer; 20 % less time with a 64 MiB page "
            "buffer.",
        ),
        (
            {(OLD, "0"): 1.0, (NEW, "0"): 1.0},
            {},
            "HDF5 2.0.0 and 1.14.6 were the same within ±5 % in 1 comparison of 1.",
        ),
        (SLOWER, {"blocks": 5}, "No verdict yet: 5 complete repeats of at least 6."),
        (
            {(OLD, "0"): 1.0, (NEW, "0"): 1.01},
            {"null": {(NEW, "0"): 0.3}},
            "Undecided: HDF5 2.0.0 vs 1.14.6: medians 1.01 s and 1.00 s.",
        ),
        (
            {(OLD, "0"): 5.0, (NEW, "0"): 1.0},
            {"null": {(OLD, "0"): 0.4}},
            f"{WHERE}HDF5 2.0.0 was at least 3.0× as fast as 1.14.6.",
        ),
    ],
    ids=["slower", "faster", "turns", "same", "few", "harness", "bound"],
)
def test_a_headline_has_these_words(times, options, words):
    text, statements = headline.write_headline(run := make_run(times, **options))
    assert text == words
    assert all(one.is_supported_by(run.checks) for one in statements)


def test_a_headline_of_several_arms_says_which_took_least_in_which_cases():
    run = make_run(SEVERAL)
    (entry,) = (one for one in run.facts["settings"]["compare"] if one["factor"] == "page_buffer")
    run.facts["settings"]["compare"] = [entry]
    text, statements = headline.write_headline(run)
    assert text == (
        f"{WHERE}among 5 page buffers, a 64 MiB page buffer took the least time in 1 of 2 cases (2.0× as fast"
        " as no page "
        "buffer) and a 256 MiB page buffer in 1 of 2 cases (4.0× as fast as no page buffer)."
    )
    assert all(one.is_supported_by(run.checks) for one in statements)


def test_arms_that_other_code_measured_are_in_no_headline():
    run = make_run(TURNS)
    run.verdicts.loc[run.verdicts["factor"] == "library", ["verdict", "note"]] = ["not comparable", OTHER_CODE]
    assert headline.write_headline(run)[0] == "No comparison varies the library, which the question asks about."


def test_a_recommendation_names_one_configuration_and_what_was_shown_to_matter():
    run = make_run(TURNS)
    assert [render_markdown_line(text) for text, _ in recommendation.list_recommendations(run)] == [
        "Use **HDF5 2.0.0** (1.2× as fast as HDF5 1.14.6) and **a 64 MiB page buffer** (3.1× as fast as no page "
        "buffer): 399 ms."
    ]


def test_a_driver_is_a_choice_where_the_configuration_asks_about_it_and_else_a_place():
    for run in (draw("shots", seed).run for seed in range(12)):
        is_asked = any(entry["factor"] == "driver" for entry in run.facts["settings"]["compare"])
        assert ("driver" in run.situation_factors) != is_asked
        situations = [dict(one.situation) for _, some in recommendation.list_recommendations(run) for one in some]
        assert all(("driver" in situation) != is_asked for situation in situations)


def test_findings_and_reasons_have_these_words():
    run = make_run({(OLD, "0"): 1.0, (OLD, "64MiB"): 0.5}, of_0=100, of_64MiB=4)
    (finding,), _ = pages.get_findings(run)
    assert render_markdown_line(finding.text) == (
        "a 64 MiB page buffer **was 2.0× as fast** [2.0, 2.0] as no page buffer (8 blocks)."
    )
    assert [render_markdown_line(text) for text, _ in answer.list_reasons(run, [finding])] == [
        "A 64 MiB page buffer transferred 1.00 MiB in 4 requests; no page buffer transferred 1.00 MiB in 100 requests.",
        "1,000 such reads cost 0.00160 USD with a 64 MiB page buffer and 0.0400 USD with no page buffer (as requests"
        " to S3 standard in us-east-1, list prices of 2026-11).",
    ]


def test_a_sentence_that_contradicts_what_was_said_before_is_withheld_and_counted():
    run = make_run(SLOWER)
    text, statements = headline.write_headline(run)
    (outcomes,) = statements
    wrong = type(outcomes)(tuple(type(one)(**vars(one) | {"outcome": "faster"}) for one in outcomes.comparisons))
    assert run.select_sentences([(text, statements)]) == [text]
    assert run.select_sentences([("the opposite", (wrong,))]) == []
    assert run.withheld == ["the opposite"]


def test_tables_of_words_are_found():
    assert {path.parent.name for path in TABLES} >= {"files", "pages", "report"}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.parent.relative_to(ROOT / "scripts/sbench")))
def test_each_template_is_used(path: Path):
    table = importlib.import_module(".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts))
    home = path.parents[1] if path.parent.name == "report" else path.parent
    users = [file for file in home.rglob("*.py") if file.name != "words.py"]
    code = "".join(file.read_text(encoding="utf-8") for file in users).replace("'", '"')
    kinds = {*leaders.UNJUDGED, *judgement.TROUBLES, *answers.IN_ORDER}
    assert [name for name in table.TEMPLATES if f'"{name}"' not in code and name not in kinds] == []
