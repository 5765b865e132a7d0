"""Statements of pages against the records that they rest on: synthetic runs, checked by brute force."""

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from sbench.measure import tables
from sbench.pages import answer, headline, leaders, pages, recommendation
from sbench.pages.headline import Sentence
from sbench.pages.markup import render_markdown_line
from sbench.pages.results import Results
from sbench.pages.statements import Comparison, Counts, Leader, Outcomes, Recommendation, Records, Statement
from sbench.probe.program import write_json
from tests.helpers.pages import write_words
from tests.helpers.synthetic_runs import REPORTS, Synthetic, draw

pytestmark = pytest.mark.late

# 300 of each study are free of problems; so many take a minute.
RUNS = 100


def state(run: Results) -> list[Sentence]:
    """Return everything that a page states, in words and as statements, in its order."""
    leads = leaders.find_leads(run) if run.report.contest else []
    said = leaders.write_headline(leads, run) if leads else [headline.write_headline(run)]
    pages.select_headline(said, run)
    primary, secondary = pages.get_findings(run)
    said += [
        *answer.list_reasons(run, primary),
        *leaders.write_others(leads, run),
        *recommendation.list_recommendations(run),
    ]
    return [*said, *((finding.text, (finding.statement,)) for finding in (*primary, *secondary))]


@pytest.mark.thorough
@pytest.mark.rule(22)
@pytest.mark.parametrize("study", REPORTS)
def test_every_statement_of_synthetic_runs_is_borne_out_by_their_records(study):
    wrong = [problem for seed in range(RUNS) for problem in find_problems(draw(study, seed), seed)]
    assert wrong == []


@pytest.mark.thorough
@pytest.mark.rule(22)
@pytest.mark.parametrize("study, seed", [("shots", 7), *((study, 3) for study in REPORTS)])
def test_a_page_of_a_drawn_run_has_what_is_stated_of_it_and_withholds_nothing(study, seed, tmp_path):
    run = draw(study, seed).run
    frames = {"cells": run.cells, "verdicts": run.verdicts, "records": run.raw, "matrix": run.matrix}
    for name, table in frames.items():
        tables.write_table(table, tmp_path / f"{name}.csv", digits=12)
    write_json(tmp_path / "facts.json", run.facts)
    page = write_words(study, tmp_path, tmp_path / "page.html").with_suffix(".md").read_text(encoding="utf-8")
    (headline_of_page, *_), primary = state(run), pages.get_findings(run)[0]
    for text in (headline_of_page[0], *(finding.text for finding in primary)):
        assert plain(render_markdown_line(text)) in plain(page)
    assert "withheld" not in page


def plain(text: str) -> str:
    """Return Markdown without its marks, in small letters."""
    return " ".join(re.sub(r"[*`\\]", "", text).lower().split())


def find_problems(drawn: Synthetic, seed: int) -> Iterator[str]:
    """Yield what is wrong with the statements of a run, by brute force."""
    run = drawn.run
    said = state(run)
    statements = [one for _, some in said for one in some]
    yield from (
        f"{seed}: does not hold: {text}" for text, some in said for one in some if not one.is_supported_by(run.checks)
    )
    yield from (f"{seed}: withheld: {text}" for text in run.withheld)
    yield from (f"{seed}: contradict each other: {pair}" for pair in find_contradictions(statements))
    for one in statements:
        if isinstance(one, Recommendation):
            yield from (f"{seed}: {problem}" for problem in _find_wrong_choice(one, drawn))
        if isinstance(one, Leader):
            yield from (f"{seed}: {problem}" for problem in _find_wrong_leader(one, drawn))
        for comparison in one.comparisons if isinstance(one, Outcomes) else ():
            yield from (f"{seed}: {problem}" for problem in _find_wrong_order(comparison, drawn))
    yield from (f"{seed}: {problem}" for problem in _find_wrong_headline(said[0][0], drawn))


def find_contradictions(statements: list[Statement]) -> Iterator[tuple[object, ...]]:
    """Yield what is stated twice and not alike: outcomes of a comparison, choices for a situation, and counts."""
    outcomes, choices, counts, lost = {}, {}, {}, set()
    for one in statements:
        chosen = one.choices if isinstance(one, Recommendation) else ()
        for comparison in (*getattr(one, "comparisons", ()), *(c for choice in chosen for c in choice.comparisons)):
            key = (comparison.baseline, comparison.contender, comparison.column)
            outcomes.setdefault(key, set()).add(comparison.outcome)
            if comparison.column == "value" and comparison.outcome in ("faster", "slower"):
                lost.add(key[:2] if comparison.outcome == "faster" else key[1::-1])
        if isinstance(one, Recommendation):
            choices.setdefault(one.situation, set()).add(one.cell)
        if isinstance(one, Counts):
            for (column, *spans), cells in itertools.product(one.counts, [one.cells]):
                for own, span in zip(cells, spans, strict=True):
                    counts.setdefault((own, column), set()).add(span)
    for said in (outcomes, choices, counts):
        yield from ((key, *values) for key, values in said.items() if len(values) > 1)
    recommended = [(one.cell, other) for one in statements if isinstance(one, Recommendation) for other in one.cells]
    yield from ((pair, "is recommended, and lost") for pair in recommended if pair in lost)


def _medians(drawn: Synthetic) -> pd.Series:
    return drawn.times.groupby("cell")["total"].median()


def _find_wrong_choice(one: Recommendation, drawn: Synthetic) -> Iterator[str]:
    medians, cells = _medians(drawn), drawn.run.cells.set_index("cell")
    if medians[one.cell] > medians.reindex(one.cells).min() * (1 + 1e-9):
        yield f"{one.cell} is recommended, and took more than the least of {one.cells}"
    situation = dict(one.situation)
    for name in cells.index:
        alike = all(cells.loc[name, key] == level for key, level in situation.items() if key in cells)
        if alike and cells.loc[name, "control"] == "" and cells.loc[name, "n"] and not cells.loc[name, "failed"]:
            group = drawn.run.report.contest
            same_work = not group or group.group(cells.loc[name].to_dict()) == situation["group"]
            if same_work and name not in one.cells:
                yield f"{name} was left out of the situation of {one.cell}"
    for choice in one.choices:
        for comparison in choice.comparisons:
            other = ({comparison.baseline, comparison.contender} - {one.cell}).pop()
            factors = [f for f in drawn.run.report.names if cells.loc[other, f] != cells.loc[one.cell, f]]
            contest = drawn.run.report.contest
            if factors != [choice.factor] and not (contest and set(factors) <= set(contest.arm)):
                yield f"{choice.factor} is recommended by cells that differ in {factors}"


def _find_wrong_leader(one: Leader, drawn: Synthetic) -> Iterator[str]:
    """An arm that took less and has no verdict leaves the place undecided."""
    cells, medians, contest = drawn.run.cells.set_index("cell"), _medians(drawn), drawn.run.report.contest
    for leading, others in zip(one.cells, one.others, strict=True):
        first = cells.loc[leading[0]]
        apart = [name for name in drawn.run.report.names if name not in contest.arm]
        for name in cells.index:
            other = cells.loc[name]
            if other["control"] or not other["n"] or any(other[key] != first[key] for key in apart):
                continue
            if contest.group(other.to_dict()) != contest.group(first.to_dict()) or name in (*leading, *others):
                continue
            if medians[name] < medians.reindex(list(leading)).min():
                yield f"{leading} lead, though {name} took less and has no verdict"


def _find_wrong_order(one: Comparison, drawn: Synthetic) -> Iterator[str]:
    """The order and the size of a comparison on the total, recomputed from the records as they were drawn."""
    if one.column != "value" or not one.winner or one.is_bound:
        return
    times = drawn.times.set_index(["cell", "repeat"])["total"]
    base, other = (times[cell] for cell in (one.baseline, one.contender))
    ratios = (other / base).dropna()
    if len(ratios) < 6 or (np.median(np.log(ratios)) < 0) != (one.outcome == "faster"):
        yield f"{one} has the other order, or too few blocks"
    if not np.isclose(np.exp(np.median(np.log(ratios))), one.ratio):
        yield f"{one} has another ratio than its records"


def _find_wrong_headline(text: str, drawn: Synthetic) -> Iterator[str]:
    """The headline is about the factor that was asked for, if that was varied."""
    run, asked = drawn.run, drawn.asked
    cells = run.cells[run.cells["control"] == ""]
    if (
        run.report.contest
        or run.measured.empty
        or cells[asked].nunique() < 2
        or text.startswith("No comparison varies")
    ):
        return
    named = [run.names.format_subject(asked, level) for level in cells[asked].unique()]
    short = [one.removeprefix("HDF5 ") for one in named]
    if not any(one in text for one in (*named, *short)) and "No verdict" not in text:
        yield f"the headline is not about {asked}: {text}"


@pytest.mark.parametrize("study", REPORTS)
def test_a_changed_record_makes_the_statements_false_that_rest_on_it(study):
    flipped = set()
    for run in (draw(study, seed).run for seed in range(24)):
        for one in (one for _, some in state(run) for one in some):
            if (spoiled := spoil(one, run.raw)) is not None:
                assert not one.is_supported_by(Records(spoiled)), one
                flipped.add(type(one))
    assert flipped >= {Outcomes, Counts} | ({Leader} if REPORTS[study].contest else {Recommendation})


def spoil(one: Statement, raw: pd.DataFrame) -> pd.DataFrame | None:
    """Return records that were changed so that a statement is false; None where it states no order or count."""
    match one:
        case Counts():
            column = one.counts[0][0]
            return raw.assign(**{column: raw[column].mask(raw["cell"].isin(one.cells[0]), raw[column] * 2)})
        case Recommendation():
            others = [cell for cell in one.cells if cell != one.cell]
            return (
                raw.assign(value=raw["value"].mask(raw["cell"].isin(others), raw["value"] / 1000)) if others else None
            )
        case Outcomes() | Leader():
            ordered = [comparison for comparison in one.comparisons if comparison.winner]
            if not ordered:
                return None
            first, column = ordered[0], ordered[0].column
            factor = 1000 if first.winner == first.contender else 0.001
            return raw.assign(**{column: raw[column].mask(raw["cell"] == first.contender, raw[column] * factor)})
