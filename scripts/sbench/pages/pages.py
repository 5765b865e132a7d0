"""Show the opening and closing sections of a study's page, and the index page with summaries of all studies."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sbench.design.matrix import build_permanent_name
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
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, bullets, code, heading, link, paragraph, quotation
from sbench.pages.page import Page, Table
from sbench.pages.plot import Figure
from sbench.pages.results import Results
from sbench.probe.program import Problem, read_json, write_json

FURTHER = 6  # findings shown below the headline before the rest is folded
UNDECIDED = 4
ADVICE = 2  # sentences of advice per study on the index page; the study's page shows all


@dataclass(frozen=True)
class Answer:
    """A study's answer to a question that pairwise comparisons of factors cannot answer.

    Attributes:
        headline: the answer.
        to_do: next steps.
        picture: figure to show with the answer.
    """

    headline: str
    to_do: Sequence[str]
    picture: Figure


def show_opening(
    page: Page, run: Results, why: Iterable[Sentence] = (), own: Answer | None = None, headline: str = ""
) -> None:
    """Show the headline, a figure of the main comparisons, reasons, advice and the fastest configurations.

    Args:
        page: page to write to.
        run: results of the study.
        why: additional sentences on the reasons.
        own: the study's answer, which replaces all of this except the reasons.
        headline: text that replaces the headline.
    """
    if own:
        reasons = [*run.select_sentences(answer.list_reasons(run, get_findings(run)[0])), *run.select_sentences(why)]
        show_first_screen(page, run, own.headline, own.picture, {"Why": reasons, "Next steps": list(own.to_do)})
        return
    leads = leaders.find_leads(run) if run.report.contest else []
    sentences = leaders.write_headline(leads, run) if leads else [headlines.write_headline(run)]
    # Write the headline first: if two statements contradict each other, the page prints only the earlier one.
    headline = headline or bold(select_headline(sentences, run))
    reasons = [*run.select_sentences(answer.list_reasons(run, get_findings(run)[0])), *run.select_sentences(why)]
    advice = run.select_sentences([*leaders.write_others(leads, run), *recommendation.list_recommendations(run)])
    advice += recommendation.describe_needed_repeats(run)
    (picture, rest), (few, _) = (comparisons.draw_deciding(run, most) for most in (comparisons.ROWS, comparisons.FEW))
    show_first_screen(page, run, headline, picture, {"Why": reasons, "Next steps": advice}, few)
    if rest.panels:
        with page.fold(f"and {prose.format_count(len(rest.numbers), 'more comparison')}"):
            page.show_figure(rest)
    page.show_table(answer.build_best_table(run), "")


def select_headline(sentences: Iterable[Sentence], run: Results) -> str:
    """Return the sentences of a headline that the data support, or if there are none, a notice that it was withheld."""
    return " ".join(run.select_sentences(sentences)) or words.fill("withheld", many="The headline")


def show_first_screen(
    page: Page,
    run: Results,
    headline: str,
    picture: Figure,
    beside: dict[str, list[str]],
    few: Figure | None = None,
    summary: Table | None = None,
) -> None:
    """Show the run, question, headline and main figure with lists beside it, and save them for the index page.

    Args:
        page: page to write to.
        run: results of the study.
        headline: the headline.
        picture: main figure.
        beside: lists beside the figure, by heading.
        few: figure for the index page; `picture` by default.
        summary: table that the index page shows; its Markdown then omits pictures and links.
    """
    facts, report, question = run.facts, run.report, headlines.write_question(run)
    not_provided = [paragraph(f"{bold('Not measured')}: {line}.") for line in facts.get("not_provided") or []]
    source, caution = describe_source(facts), judgement.find_insensitivity(run)
    audit = [link("Audit: claims tested with the data", f"{report.study}-audit.html")] if "published" in facts else []
    page.show_text(
        *not_provided,
        paragraph(" · ".join([source, *_list_permanent_name(facts)])),
        *audit,
        quotation(question),
        paragraph(headline),
        *filter(None, [caution, "" if run.report.contest else headlines.write_tally(run)]),
    )
    page.show_lead(picture, beside)
    answers = {
        **{"study": report.study, "title": report.title, "question": question, "run": facts.get("run", "")},
        **{
            # A run can be cited; a comparison of runs cannot.
            "name": "" if "sides" in facts else facts.get("name", ""),
            "source": source,
            "caution": caution,
            "headline": headline,
            "picture": page.save_picture(few or picture),
        },
        **{"advice": beside.get("Next steps", []), "cells": len(run.cells)},
        **({"summary": {"caption": summary.caption, "rows": summary.frame.to_dict("records")}} if summary else {}),
        **{kind: int(run.cells[kind].sum()) for kind in ("failed", "invalid")},
    }
    write_json(page.files / "answers.json", answers)


@functools.lru_cache(maxsize=1)
def get_findings(run: Results) -> tuple[list[Finding], list[Finding]]:
    """Return the findings on the primary metric, and the clear findings on all other metrics.

    The other metrics form many families of comparisons, so that false alarms are likely among them. Their findings are
    included only if the entire 95 % CI is outside the range that counts as the same.
    """
    bound = 1 + run.same_percent / 100
    others = [
        one for metric in run.report.metrics[1:] for one in findings.list_findings(run, metric.name) if one.is_decided
    ]
    beyond = [(one.rows["ratio_low"] > bound) | (one.rows["ratio_high"] < 1 / bound) for one in others]
    beyond = [one for one, is_beyond in zip(others, beyond, strict=True) if is_beyond.all()]
    return select_findings(findings.list_findings(run), run), select_findings(beyond, run)


def select_findings(group: list[Finding], run: Results) -> list[Finding]:
    """Return the findings whose statements the data support."""
    return [one for one in group if run.select_sentences([(one.text, (one.statement,) if one.statement else ())])]


def show_further_findings(page: Page, run: Results, limits: list[str]) -> None:
    """Show further findings, undecided comparisons and the limitations of the data."""
    primary, secondary = get_findings(run)
    page.show_text(judgement.describe_looks(run), describe_usual_levels(run))

    def get_rank(finding: Finding) -> tuple[bool, float]:
        return finding.factor != run.report.headline, -finding.size

    decided = sorted((one for one in primary if one.is_decided), key=get_rank)
    show_findings(page, run, decided, sorted(secondary, key=get_rank), [one for one in primary if not one.is_decided])
    page.show_section("Limits of these data", bullets(limits))
    page.show_text(
        judgement.describe_control(run.verdicts),
        judgement.describe_slowed(run.facts),
        *judgement.describe_further_twins(run),
    )
    show_verdicts(page, run)


def show_verdicts(page: Page, run: Results) -> None:
    """Show all verdicts, and the intervals after each interim analysis (look), in two collapsible sections."""
    table, looks = comparisons.build_verdict_table(run), comparisons.draw_looks(run)
    if len(table.frame):
        with page.fold("All verdicts"):
            page.show_table(table)
    if looks.panels:
        with page.fold("Looks: intervals as blocks were added"):
            page.show_figure(looks)


def show_findings(
    page: Page,
    run: Results,
    decided: list[Finding],
    secondary: list[Finding],
    undecided: list[Finding],
    about: str = "Parts of a run: the source of the differences",
) -> None:
    """Show findings on the primary metric, and those on other metrics in a collapsible section titled `about`."""
    _show_under_heading(page, "Findings", decided, FURTHER, run)
    if secondary:
        with page.fold(about):
            _show_by_place(page, secondary, run)
    _show_under_heading(page, "Not decided", undecided, UNDECIDED, run)


def describe_usual_levels(run: Results) -> str:
    """Describe the most common level of each factor, because sentences and row labels omit it.

    Return an empty string if there is none to describe.
    """
    compared = {run.report.headline, *run.verdicts.get("factor", ())}
    own = [factor.name for factor in run.report.factors if not (factor.place or factor.given)]
    sentences = [name for name in own if run.usual_levels.get(name, "") not in ("", run.report.added.get(name))]
    levels = [run.names.format_subject(name, run.usual_levels[name]) for name in sentences if name not in compared]
    return f"Unless noted: {', '.join(levels)}." if levels else ""


def _show_under_heading(page: Page, title: str, group: list[Finding], most: int, run: Results) -> None:
    if group:
        page.show_text(heading(3, title))
    _show_by_place(page, group[:most], run)
    if len(group) > most:
        with page.fold(f"{len(group) - most} more"):
            _show_by_place(page, group[most:], run)


def _show_by_place(page: Page, group: list[Finding], run: Results) -> None:
    for place in dict.fromkeys(one.where for one in group):
        if place:
            page.show_text(f"{prose.capitalize_first(place)}:")
        lines = [(one.key, prose.capitalize_first(one.text)) for one in group if one.where == place]
        page.show_findings(lines, f"{place}; {format_citation(run)}")


def describe_source(facts: dict) -> str:
    """Describe the run, date, machine and versions in one line.

    For a published study, return its title, authors and date.
    """
    if published := facts.get("published"):
        return " · ".join(published[key] for key in ("title", "by", "date") if published[key] != "unknown")
    machine = facts.get("machine") or {}
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    parts = [
        [f"Run {facts['run']}"] if facts.get("run") else [],
        _list_days(facts),
        [", ".join(filter(None, [machine.get("cpu", ""), cores]))],
        dict.fromkeys(
            names.describe_software(*each) for each in names.select_libraries(facts).items() if each[1].get("hdf5")
        ),
    ]
    return " · ".join(filter(None, (prose.format_list(part) for part in parts if part)))


def format_citation(run: Results) -> str:
    """Return the source of a copied sentence: run, date and the permanent name of the records."""
    facts = run.facts
    return ", ".join([f"run {facts.get('run', 'unknown')}", *_list_days(facts), *_list_permanent_name(facts)])


def _list_permanent_name(facts: dict) -> list[str]:
    return [facts["name"]] if facts.get("name") else []


def _list_days(facts: dict) -> list[str]:
    return list(dict.fromkeys(session[:10] for session in facts.get("sessions") or []))


def show_left_out(page: Page, run: Results, repeat: str = "repeat") -> None:
    """Show failed and invalid repeats, omitted combinations, and earlier failed attempts."""
    if "published" in run.facts:
        page.show_text(f"The study does not publish failed {prose.make_plural(repeat)} or omitted combinations.")
        return
    page.show_table(cell_tables.build_trouble_table(run), f"All {prose.make_plural(repeat)} are valid.")
    page.show_table(cell_tables.build_omitted_table(run.matrix, run.report.added), "The matrix omits no combination.")
    page.show_table(cell_tables.build_attempt_table(run.facts), "Earlier attempts: no failures.")


def show_closing(page: Page, run: Results, tables: Iterable[Table], method: list[str]) -> None:
    """Show the method, the machine, additional tables of the study, and the version of the code."""
    page.show_text(bullets(method))
    page.show_table(cell_tables.build_machine_table(run.facts), "The machine is not known.")
    page.show_table(cell_tables.build_node_table(run.facts), "")
    for table in tables:
        page.show_table(table, "")
    page.show_text(prose.describe_provenance(run.facts))


def show_index(page: Page, paths: list[str], extra: Sequence[str] = ()) -> None:
    """Show the index page: the run, and the summary of each study that its page saved in a file.

    Args:
        page: page to write to.
        paths: summary files (`_answers.json`) of the studies.
        extra: artefacts of the user's notebooks; each results in a link, or a message with the reason for its failure.

    Raises:
        Problem: a file is missing or does not contain a study's summary.
    """
    studies = [read_json(path) | {"page": Path(path).name.removesuffix("_answers.json")} for path in paths]
    for path, study in zip(paths, studies, strict=True):
        if "source" not in study:
            raise Problem(f"{path} must contain the answers of a study; build its report again")
    run = next((study["run"] for study in studies if study.get("run")), "")
    page.show_text(heading(1, f"Results{f' of {run}' if run else ''}"))
    own, failed = _list_notebooks(extra)
    links = [link(study["title"], f"{study['page']}.html") for study in studies]
    # Pages with a summary table are pasted elsewhere, where relative links would break.
    alone = any("summary" in study for study in studies)
    page.show_text(" · ".join([*links, *own]), bullets(failed), in_markdown=not alone)
    # Omit sources that are part of another one, for example from a study with fewer libraries.
    sources = dict.fromkeys(study["source"] for study in studies)
    page.show_text(*(one for one in sources if not any(set(one.split()) < set(other.split()) for other in sources)))
    if names := sorted(study["name"] for study in studies if study.get("name")):
        page.show_text(f"To cite: {code(build_permanent_name(run, names))}")
    for path, study in zip(paths, studies, strict=True):
        name, title, picture = study["page"], study["title"], study["picture"]
        page.show_text(heading(2, title), study["headline"], study.get("caution", ""))
        if picture:
            page.show_image(Path(path).parent / picture, picture, title, in_markdown=not alone)
        if summary := study.get("summary"):
            page.show_table(Table("summary", summary["caption"], pd.DataFrame(summary["rows"])), "", linked=False)
        page.show_text(bullets(study["advice"][:ADVICE]))
        trouble = [f"{study[kind]} {kind}" for kind in ("failed", "invalid") if study[kind]]
        amount = ", ".join([prose.format_count(study["cells"], study.get("of", "cell")), *trouble])
        of_page = f"{link('All figures and tables', f'{name}.html')} ({link('Markdown', f'{name}.md')}): {amount}"
        page.show_text(of_page, in_markdown=not alone)


def _list_notebooks(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return links to the pages of the user's notebooks, and messages about failed notebooks."""
    links, failed = [], []
    for name, made in ((Path(path).stem, read_json(path)) for path in paths):
        book = f"notebooks/extra/{name}.ipynb"
        if made.get("status") == "done":
            links.append(link(made["title"], f"extra/{name}.html"))
        else:
            reasons = "; ".join(made.get("reasons", ["no reason given"]))
            failed.append(f"{book} failed: {reasons.split(f'{book}: ')[-1]}")
    return links, failed
