"""Pages of reports in tests: written as the workflow writes them, and what they link to."""

from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from conftest import program

from sbench import pages
from sbench.pages import notebook


def write(study: str, tables: Path, out: Path) -> Path:
    """Write a study's page with the facts beside its tables, if there are any; return it."""
    assert notebook.main(_arguments(study, tables, out)) == 0
    return out


def write_afresh(study: str, tables: Path, out: Path) -> Path:
    """Write a study's page as the rules do: identifiers in its figures count from the start of a process."""
    done = program("report", *_arguments(study, tables, out))
    assert done.returncode == 0, done.stderr
    return out


def _arguments(study: str, tables: Path, out: Path) -> list[str]:
    facts = ["--facts", str(tables / "facts.json")] if (tables / "facts.json").exists() else []
    return ["--notebook", f"notebooks/{study}.ipynb", "--tables", str(tables), *facts, "--out", str(out)]


def write_words(study: str, tables: Path, out: Path) -> Path:
    """Write a study's page as `write` does, with its figures left blank, which take most of the time."""
    blank = SimpleNamespace(render_loader=lambda: "", draw_figure=lambda _: "")
    with (
        patch.object(pages, "plot_html", blank, create=True),
        patch.object(pages, "plot_svg", blank, create=True),
    ):
        return write(study, tables, out)


def write_index(pages: list[Path]) -> Path:
    """Write the index of studies' pages beside the first of them; return it."""
    answers = [str(page.with_name(f"{page.stem}_answers.json")) for page in pages]
    index = pages[0].with_name("index.html")
    given = ["--notebook", "notebooks/index.ipynb", "--answers", *answers]
    assert notebook.main([*given, "--out", str(index)]) == 0
    return index


class Links(HTMLParser):
    """Links within the page's folder, what leads elsewhere, panels of figures and the page's policy."""

    def __init__(self, text: str) -> None:  # noqa: D107
        super().__init__()
        self.inside, self.elsewhere, self.scripts, self.panels, self.policy = [], [], 0, 0, ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "a":
            self.inside.append(given.get("href") or "")
        elif tag == "img" and (given.get("src") or "").startswith("data:"):
            pass
        elif tag == "link" or {"src", "href", "srcset", "data", "action"} & given.keys():
            self.elsewhere.append(self.get_starttag_text())
        self.panels += given.get("class") == "panel"
        self.policy = given["content"] if given.get("http-equiv") == "Content-Security-Policy" else self.policy
