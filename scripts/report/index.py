"""The first page: what every study found, in words, with links to what is behind it."""

from pathlib import Path

from scripts.lib.program import Problem, read_json
from scripts.report import prose
from scripts.report.markup import bold, bullets, heading, link, quotation

SHOWN = 12  # sentences of one kind; the study's own page has all


def load(paths: list[str]) -> list[dict]:
    """Return the answers that studies left, each with the link to its page; their sentences hold marks of `markup`.

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


def title(studies: list[dict]) -> str:
    """Return the page's title: the run and what was asked of it."""
    run = next((study["run"] for study in studies if study.get("run")), "")
    return heading(1, f"What was found{f' on {run}' if run else ''}")


def section(study: dict) -> list[str]:
    """Return one study's section, block by block."""
    page = study["page"]
    lines = [heading(2, study.get("title") or study["study"]), quotation(study.get("question", ""))]
    if study.get("conditions"):
        lines.append(study["conditions"])
    lines.append(_outline(study.get("answers", []), page) or "Nothing was decided.")
    for key, about in (("secondary", "Where the difference arises"), ("undecided", "Not decided")):
        if found := _outline(study.get(key, []), page):
            lines += [heading(3, about), found]
    if study.get("limits"):
        lines += [heading(3, "What these data cannot say"), bullets(study["limits"])]
    if study.get("control"):
        lines.append(study["control"])
    trouble = [f"{study[kind]} {kind}" for kind in ("failed", "invalid") if study.get(kind)]
    measured = f"{study['cells']} cells" if study.get("cells") else ""
    told = ", ".join([*([measured] if measured else []), *trouble])
    everything = f"{bold(link('All figures and tables', f'{page}.html'))} ({link('Markdown', f'{page}.md')})"
    lines.append(f"{everything}{f': {told}' if told else ''}")
    return lines


def _outline(found: list[dict], page: str) -> str:
    page = link("the study's page", f"{page}.html")
    more = [f"… and {len(found) - SHOWN} more on {page}"] if len(found) > SHOWN else []
    return prose.outline(found[:SHOWN], "") + bullets(more)
