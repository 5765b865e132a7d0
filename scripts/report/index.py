"""The first page: what every study found, a sentence and a picture each, with links to what is behind it."""

from pathlib import Path

from scripts.lib.program import Problem, read_json
from scripts.report import prose
from scripts.report.markup import bullets, heading, link
from scripts.report.page import Page

ADVICE = 2  # pieces of advice of a study; its own page has all


def load(paths: list[str]) -> list[dict]:
    """Return the answers that studies left, each with the link to its page; their sentences hold marks of `markup`.

    Raises:
        Problem: a file is missing or is not a study's answers.
    """
    studies = []
    for path in paths:
        study = read_json(path)
        if "source" not in study:
            raise Problem(f"{path} holds no answers of a study; build its report again")
        name = Path(path).name.removesuffix("_answers.json")
        studies.append(study | {"page": name, "folder": str(Path(path).parent)})
    return studies


def show(page: Page, studies: list[dict]) -> None:
    """Show the run, links to the studies' pages, and a section for each of them."""
    run = next((study["run"] for study in studies if study.get("run")), "")
    page.text(heading(1, f"What was found{f' on {run}' if run else ''}"))
    page.text(" · ".join(link(study["title"], f"{study['page']}.html") for study in studies))
    # A study of one library says no more of the machine than one of several.
    sources = dict.fromkeys(study["source"] for study in studies)
    page.text(*(one for one in sources if not any(one != other and other.startswith(one) for other in sources)))
    for study in studies:
        name, title, picture = study["page"], study["title"], study["picture"]
        page.text(heading(2, title), study.get("caution", ""), study["headline"])
        if picture:
            page.image(Path(study["folder"], picture), picture, title)
        page.text(bullets(study["advice"][:ADVICE]))
        trouble = [f"{study[kind]} {kind}" for kind in ("failed", "invalid") if study[kind]]
        summary = ", ".join([prose.count(study["cells"], "cell"), *trouble])
        page.text(f"{link('All figures and tables', f'{name}.html')} ({link('Markdown', f'{name}.md')}): {summary}")
