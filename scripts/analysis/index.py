"""The first page: what every study found, in words, with links to what is behind it."""

from pathlib import Path

from scripts.analysis import prose
from scripts.analysis.page import bullets
from scripts.lib.program import Problem, read_json

SHOWN = 12  # sentences of one kind; the study's own page has all


def load(paths: list[str]) -> list[dict]:
    """Return the answers that studies left, each with the link to its page.

    Raises:
        Problem: a file is missing or is not a study's answers.
    """
    studies = []
    for path in paths:
        study = read_json(path)
        if "study" not in study:
            raise Problem(f"{path} holds no answers of a study; build its report again")
        studies.append(study | {"page": Path(path).name.removesuffix("_answers.json")})
    return studies


def heading(studies: list[dict]) -> str:
    """Return the page's title: the run and what was asked of it."""
    run = next((study["run"] for study in studies if study.get("run")), "")
    return f"# What was found{f' on {run}' if run else ''}"


def section(study: dict) -> list[str]:
    """Return one study's section as paragraphs of Markdown."""
    page, title = study["page"], study.get("title") or study["study"]
    lines = [f"## {title}"]
    if study.get("question"):
        lines.append(f"> {study['question']}")
    if study.get("conditions"):
        lines.append(study["conditions"])
    lines.append(_outline(study.get("answers", []), page) or "Nothing was decided.")
    for key, heading in (("secondary", "Where the difference arises"), ("undecided", "Not decided")):
        if found := _outline(study.get(key, []), page):
            lines += [f"### {heading}", found]
    if study.get("limits"):
        lines += ["### What these data cannot say", bullets(study["limits"])]
    if study.get("control"):
        lines.append(study["control"])
    trouble = [f"{study[kind]} {kind}" for kind in ("failed", "invalid") if study.get(kind)]
    measured = f"{study['cells']} cells" if study.get("cells") else ""
    told = ", ".join([*([measured] if measured else []), *trouble])
    lines.append(f"**[All figures and tables]({page}.html)** ([Markdown]({page}.md)){f': {told}' if told else ''}")
    return lines


def _outline(found: list[dict], page: str) -> str:
    more = f"\n- … and {len(found) - SHOWN} more on [the study's page]({page}.html)" if len(found) > SHOWN else ""
    return prose.outline(found[:SHOWN], "") + more
