"""What every study's page opens and closes with, and the first page, which has the answers of all studies."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sbench.design.matrix import permanent_name
from sbench.pages import (
    answer,
    cell_tables,
    comparisons,
    findings,
    judgement,
    leaders,
    names,
    prose,
    recommendation,
    words,
)
from sbench.pages import headline as headlines
from sbench.pages.findings import Finding
from sbench.pages.headline import Said
from sbench.pages.markup import bold, bullets, code, heading, link, paragraph, quotation
from sbench.pages.page import Page, Table
from sbench.pages.plot import Figure
from sbench.pages.results import Results
from sbench.probe.program import Problem, read_json, write_json

FURTHER = 6  # findings that stand open below the headline
UNDECIDED = 4
ADVICE = 2  # pieces of advice of a study on the first page; its own page has all


@dataclass(frozen=True)
class Answer:
    """A study's own answer, where a run was made for a question that comparisons factor by factor do not answer."""

    headline: str
    to_do: Sequence[str]
    picture: Figure


def opening(page: Page, run: Results, why: Iterable[Said] = (), own: Answer | None = None, headline: str = "") -> None:
    """Show the answer, the picture of what decided it, its reason, what to do next and the best configurations.

    `why` are the study's own sentences about the reason, `headline` is its own sentence, and `own` all of its answer.
    """
    if own:
        reasons = [*run.select(answer.reasons(run, of_run(run)[0])), *run.select(why)]
        first_screen(page, run, own.headline, own.picture, {"Why": reasons, "What to do next": list(own.to_do)})
        return
    leads = leaders.find(run) if run.report.contest else []
    said = leaders.write_headline(leads, run) if leads else [headlines.write_headline(run)]
    # What is stated first stays where two statements contradict each other.
    headline = headline or bold(select_headline(said, run))
    reasons = [*run.select(answer.reasons(run, of_run(run)[0])), *run.select(why)]
    advice = run.select([*leaders.write_others(leads, run), *recommendation.recommend(run)])
    advice += recommendation.more_repeats(run)
    (picture, rest), (few, _) = (comparisons.deciding(run, most) for most in (comparisons.ROWS, comparisons.FEW))
    first_screen(page, run, headline, picture, {"Why": reasons, "What to do next": advice}, few)
    if rest.panels:
        with page.fold(f"and {prose.count(len(rest.numbers), 'more comparison')}"):
            page.figure(rest)
    page.table(answer.best(run), "")


def select_headline(said: Iterable[Said], run: Results) -> str:
    """Return the sentences of a headline that hold; where none does, that it was withheld."""
    return " ".join(run.select(said)) or words.fill("withheld", many="The headline")


def first_screen(
    page: Page,
    run: Results,
    headline: str,
    picture: Figure,
    beside: dict[str, list[str]],
    few: Figure | None = None,
    summary: Table | None = None,
) -> None:
    """Show run, question, answer and picture with what stands beside it; leave them, or `few` of it, for the index.

    Where there is a `summary`, the index has that in Markdown in place of pictures and links.
    """
    facts, report, question = run.facts, run.report, headlines.write_question(run)
    not_provided = [paragraph(f"{bold('Not measured')}: {line}.") for line in facts.get("not_provided") or []]
    source, caution = source_line(facts), judgement.find_insensitivity(run)
    audit = [link("What its data say of what it claims", f"{report.study}-audit.html")] if "published" in facts else []
    page.text(
        *not_provided,
        paragraph(" · ".join([source, *_name(facts)])),
        *audit,
        quotation(question),
        paragraph(headline),
        *filter(None, [caution, "" if run.report.contest else headlines.write_tally(run)]),
    )
    page.lead(picture, beside)
    answers = {
        **{"study": report.study, "title": report.title, "question": question, "run": facts.get("run", "")},
        **{
            # What is cited are runs, not that they were compared.
            "name": "" if "sides" in facts else facts.get("name", ""),
            "source": source,
            "caution": caution,
            "headline": headline,
            "picture": page.leave(few or picture),
        },
        **{"advice": beside.get("What to do next", []), "cells": len(run.cells)},
        **({"summary": {"caption": summary.caption, "rows": summary.frame.to_dict("records")}} if summary else {}),
        **{kind: int(run.cells[kind].sum()) for kind in ("failed", "invalid")},
    }
    write_json(page.files / "answers.json", answers)


@functools.lru_cache(maxsize=1)
def of_run(run: Results) -> tuple[list[Finding], list[Finding]]:
    """Return the findings on the metric that decides, and those on the others that lie beyond what counts as the same.

    The others are many families, so false alarms are among them: a sentence is made of those whose
    95 % CI lies outside what counts as the same.
    """
    bound = 1 + run.same_percent / 100
    others = [one for metric in run.report.metrics[1:] for one in findings.find(run, metric.name) if one.decided]
    beyond = [(one.rows["ratio_low"] > bound) | (one.rows["ratio_high"] < 1 / bound) for one in others]
    beyond = [one for one, is_beyond in zip(others, beyond, strict=True) if is_beyond.all()]
    return select(findings.find(run), run), select(beyond, run)


def select(group: list[Finding], run: Results) -> list[Finding]:
    """Return the findings whose statements hold."""
    return [one for one in group if run.select([(one.text, (one.statement,) if one.statement else ())])]


def further(page: Page, run: Results, limits: list[str]) -> None:
    """Show what else was found, what was not decided, and what these data cannot say."""
    primary, secondary = of_run(run)
    page.text(unless_noted(run))

    def first(finding: Finding) -> tuple[bool, float]:
        return finding.factor != run.report.headline, -finding.size

    decided = sorted((one for one in primary if one.decided), key=first)
    lists(page, run, decided, sorted(secondary, key=first), [one for one in primary if not one.decided])
    page.section("What these data cannot say", bullets(limits))
    page.text(judgement.control(run.verdicts), judgement.slowed(run.facts), *judgement.write_anew(run))


def lists(
    page: Page,
    run: Results,
    decided: list[Finding],
    secondary: list[Finding],
    undecided: list[Finding],
    about: str = "Where the differences arise: parts of a run",
) -> None:
    """Show findings, those on the metrics that do not decide under a line that is `about` them."""
    _list(page, "Findings", decided, FURTHER, run)
    if secondary:
        with page.fold(about):
            _show(page, secondary, run)
    _list(page, "Not decided", undecided, UNDECIDED, run)


def unless_noted(run: Results) -> str:
    """Return the levels that most cells share, which sentences and rows leave out; "" where there are none."""
    compared = {run.report.headline, *run.verdicts.get("factor", ())}
    own = [factor.name for factor in run.report.factors if not (factor.place or factor.given)]
    said = [name for name in own if run.usual.get(name, "") not in ("", run.report.added.get(name))]
    levels = [run.names.subject(name, run.usual[name]) for name in said if name not in compared]
    return f"Unless noted: {', '.join(levels)}." if levels else ""


def _list(page: Page, title: str, group: list[Finding], most: int, run: Results) -> None:
    if group:
        page.text(heading(3, title))
    _show(page, group[:most], run)
    if len(group) > most:
        with page.fold(f"{len(group) - most} more"):
            _show(page, group[most:], run)


def _show(page: Page, group: list[Finding], run: Results) -> None:
    for place in dict.fromkeys(one.where for one in group):
        if place:
            page.text(f"{prose.capital(place)}:")
        lines = [(one.key, prose.capital(one.text)) for one in group if one.where == place]
        page.findings(lines, f"{place}; {source(run)}")


def source_line(facts: dict) -> str:
    """Return run, date, machine and versions in one line; of a published study its title, its authors and its date."""
    if published := facts.get("published"):
        return " · ".join(published[key] for key in ("title", "by", "date") if published[key] != "unknown")
    machine = facts.get("machine") or {}
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    parts = [
        [f"Run {facts['run']}"] if facts.get("run") else [],
        _days(facts),
        [", ".join(filter(None, [machine.get("cpu", ""), cores]))],
        dict.fromkeys(names.software(*each) for each in names.libraries(facts).items() if each[1].get("hdf5")),
    ]
    return " · ".join(filter(None, (prose.listing(part) for part in parts if part)))


def source(run: Results) -> str:
    """Return what a sentence that is copied was made of: run, date and the permanent name of the records."""
    facts = run.facts
    return ", ".join([f"run {facts.get('run', 'unknown')}", *_days(facts), *_name(facts)])


def _name(facts: dict) -> list[str]:
    return [facts["name"]] if facts.get("name") else []


def _days(facts: dict) -> list[str]:
    return list(dict.fromkeys(session[:10] for session in facts.get("sessions") or []))


def left_out(page: Page, run: Results, repeat: str = "repeat") -> None:
    """Show what failed or broke a rule, which combinations were left out, and which attempts failed before."""
    if "published" in run.facts:
        page.text(f"Whether a {repeat} failed, or a combination was left out, is not published.")
        return
    page.table(cell_tables.troubled(run), f"No {repeat} failed, and none broke a rule of measuring.")
    page.table(cell_tables.omitted(run.matrix, run.report.added), "No combination of the matrix was left out.")
    page.table(cell_tables.attempts(run.facts), "No earlier attempt failed.")


def closing(page: Page, run: Results, tables: Iterable[Table], method: list[str]) -> None:
    """Show how it was measured, by which machine and code, and a study's own tables about the run."""
    page.text(bullets(method))
    page.table(cell_tables.machine(run.facts), "The machine is not known.")
    page.table(cell_tables.nodes(run.facts), "")
    for table in tables:
        page.table(table, "")
    page.text(prose.provenance(run.facts))


def index(page: Page, paths: list[str], extra: Sequence[str] = ()) -> None:
    """Show the first page: the run, and what each study's page opens with, of the answers that studies left in files.

    `extra` are the artefacts of the user's own notebooks: each is a link, or a line that says why it failed.

    Raises:
        Problem: a file is missing or is not a study's answers.
    """
    studies = [read_json(path) | {"page": Path(path).name.removesuffix("_answers.json")} for path in paths]
    for path, study in zip(paths, studies, strict=True):
        if "source" not in study:
            raise Problem(f"{path} holds no answers of a study; build its report again")
    run = next((study["run"] for study in studies if study.get("run")), "")
    page.text(heading(1, f"What was found{f' on {run}' if run else ''}"))
    own, failed = _own_notebooks(extra)
    links = [link(study["title"], f"{study['page']}.html") for study in studies]
    # What has a summary is pasted elsewhere, where no link leads anywhere.
    alone = any("summary" in study for study in studies)
    page.text(" · ".join([*links, *own]), bullets(failed), in_markdown=not alone)
    # A study of one library says no more of the machine than one of several.
    sources = dict.fromkeys(study["source"] for study in studies)
    page.text(*(one for one in sources if not any(set(one.split()) < set(other.split()) for other in sources)))
    if names := sorted(study["name"] for study in studies if study.get("name")):
        page.text(f"To cite: {code(permanent_name(run, names))}")
    for path, study in zip(paths, studies, strict=True):
        name, title, picture = study["page"], study["title"], study["picture"]
        page.text(heading(2, title), study["headline"], study.get("caution", ""))
        if picture:
            page.image(Path(path).parent / picture, picture, title, in_markdown=not alone)
        if summary := study.get("summary"):
            page.table(Table("summary", summary["caption"], pd.DataFrame(summary["rows"])), "", linked=False)
        page.text(bullets(study["advice"][:ADVICE]))
        trouble = [f"{study[kind]} {kind}" for kind in ("failed", "invalid") if study[kind]]
        amount = ", ".join([prose.count(study["cells"], study.get("of", "cell")), *trouble])
        of_page = f"{link('All figures and tables', f'{name}.html')} ({link('Markdown', f'{name}.md')}): {amount}"
        page.text(of_page, in_markdown=not alone)


def _own_notebooks(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the links to pages of the user's own notebooks, and what is said of those that failed."""
    links, failed = [], []
    for name, made in ((Path(path).stem, read_json(path)) for path in paths):
        book = f"notebooks/extra/{name}.ipynb"
        if made.get("status") == "done":
            links.append(link(made["title"], f"extra/{name}.html"))
        else:
            reasons = "; ".join(made.get("reasons", ["no reason given"]))
            failed.append(f"{book} failed: {reasons.split(f'{book}: ')[-1]}")
    return links, failed
