"""Pages show text from elsewhere as it is: what users, files and servers can set is planted with HTML and Markdown."""

import json
import re
import shutil
import zlib
from base64 import b64decode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import parse

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from nbconvert.filters import markdown2html

from sbench.design import config as configuration
from sbench.pages import markup, plot_html, plot_svg
from sbench.pages.plot import LONGEST, Figure, Panel, Rule, shorten_names
from sbench.pages.run_files import TEXTS
from sbench.probe.program import escape_text as shown_as
from sbench.studies.blobs.report.results import FACTORS as OF_BLOBS
from sbench.studies.shots.report import results as shots
from sbench.studies.volumes.report import batteries as volumes
from tests.helpers import blobs_tables, browser, records, report_tables, volumes_records, volumes_tables
from tests.helpers.fio_files import imported, make_battery, ours, tarball
from tests.helpers.pages import write, write_index, write_words

pytestmark = [pytest.mark.thorough, pytest.mark.late]

HOSTILE = (
    "<script>window.hit=1</script> <img src=x onerror=window.hit=1> [x](javascript:window.hit=1) **bold** `code` "
    "$x^2$ $$y$$ a|b\n# new <b>line</b> &lt; ~~gone~~ _it_ \\*off\\* ![p](q) </pre></td>\x01marked\x02\x06# \x05block "
    "\x1b[2J\u202ehtap"
)
# As a page shows it: in a line, and with escapes for the characters that the pages' own marks are, and for those that
# turn text around.
SHOWN = " ".join(re.sub(r"[\x00-\x08\x1b\u202e]", lambda sign: shown_as(sign[0]), HOSTILE).split())
OPENINGS = ("# ", "- ", "1. ", "> ")
# Columns whose texts code knows by name and makes of its own, or numbers: a foreign text there is no level of anything.
KNOWN = {"control", "verdict", "metric", "role", "status", "phase", "cache_state", "interval", "segment", "operation"}
KNOWN |= {"factor", "percentile", "rank_s", "repeat", "used_blocks"}
# Levels that the schema allows only from a list, or only as a size or a number.
KNOWN |= set(shots.FACTORS) - {"library", "store"} | set(OF_BLOBS) - {"store"}
COLUMNS = {
    "shots": {*shots.FACTORS, *TEXTS, "obj-id"} - KNOWN,
    "volumes": set(volumes.TEXTS) - KNOWN,
    "blobs": {*OF_BLOBS, *TEXTS} - KNOWN,
}
# What a page reads of facts as a name of its own: kinds of stores (the schema has a list), and levels as in the tables.
KNOWN_FACTS = {"kind", "server", "levels", "requests", "effective"}
FEW = blobs_tables.cells(pattern=("single-file", "broadcast", "sections"), size=("1MiB", "64MiB"))
BUILD = {
    "shots": report_tables.build,
    "volumes": volumes_tables.build,
    "blobs": lambda folder: blobs_tables.build(folder, FEW),
}


def planted(text: str) -> str:
    """Return a text with what it must not do, different for different texts and the same for the same."""
    return f"{OPENINGS[len(text) % len(OPENINGS)]}{HOSTILE} {text}" if text else text


def plant(study: str, folder: Path) -> Path:
    """Plant every text of a study's tables and facts that comes from elsewhere."""
    names: set[str] = set()
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        tables[path] = table = pd.read_csv(path, dtype=str, keep_default_na=False)
        levels = [column for column in table if column in {"library", "store", "job", "host", "cell"} & COLUMNS[study]]
        names.update(*(table[column] for column in levels))
    names -= {"", "all"}
    for path, table in tables.items():
        for column in COLUMNS[study] & set(table):
            # A comparison's sides are levels of any factor.
            own = names if column in ("baseline", "contender", "twin_of") else set(table[column]) - {"all"}
            table[column] = [planted(text) if text in own else text for text in table[column]]
        table.to_csv(path, index=False)
    told = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    (folder / "facts.json").write_text(json.dumps(_planted_facts(told, names)), encoding="utf-8")
    return folder


def _planted_facts(value: object, names: set[str]) -> object:
    match value:
        case str():
            return planted(value)
        case list():
            return [_planted_facts(one, names) for one in value]
        case dict():
            return {
                planted(key) if key in names else key: one if key in KNOWN_FACTS else _planted_facts(one, names)
                for key, one in value.items()
            }
        case _:
            return value


class Shown(HTMLParser):
    """What a page shows: its text, the elements that mean something with theirs, addresses of links and pictures."""

    MEANING = ("a", "b", "strong", "em", "del", "code", "h1", "h2", "h3")

    def __init__(self, text: str) -> None:  # noqa: D107
        super().__init__()
        self.words, self.elements, self.addresses, self.tags, self._open, self._hidden = [], [], [], set(), [], 0
        self._code = False
        self.feed(text)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.tags.add(tag)
        # A figure's data are no text, nor is the notebook's own code.
        self._code |= tag == "pre" and given.get("class") == "code"
        self._hidden += tag in ("script", "style")
        if tag == "img" and (given.get("src") or "").startswith("data:image/svg+xml"):
            # A page's own picture; what it shows is looked at where it lies beside the page.
            self.tags.discard("img")
            return
        self.addresses += [given[name] or "" for name in ("href", "src") if name in given]
        if tag in self.MEANING:
            self._open.append((tag, len(self.words)))

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")
        self._code &= tag != "pre"
        if tag in self.MEANING:
            tag, start = self._open.pop()
            self.elements.append((tag, " ".join("".join(self.words[start:]).split())))

    def handle_data(self, data: str) -> None:
        if not self._hidden and not self._code:
            self.words.append(data)


def assert_shown_as_it_is(shown: Shown) -> None:
    """See that every planted text stands there whole and made no element."""
    assert shown.text.count(SHOWN) > 10
    assert not re.search(r"[\x00-\x08\x1b\u202e]", shown.text)
    assert "window.hit" not in shown.text.replace(SHOWN, "")
    opened = re.findall(f"(?:{'|'.join(map(re.escape, OPENINGS))}){re.escape(SHOWN)}", shown.text)
    assert len(opened) == shown.text.count(SHOWN)
    for tag, text in shown.elements:
        assert text not in ("x", "bold", "code", "line", "gone", "it", "off", "p", "marked"), tag
        assert "window.hit" not in text or (SHOWN in text and tag in ("strong", "code", "h1", "b")), (tag, text)
    assert "del" not in shown.tags
    # Markdown's renderers make a link of a bare address by themselves, as of those where limits come from.
    for address in {address for address in shown.addresses if address not in shown.text}:
        assert re.fullmatch(r"(#|[a-z]+(_files/[A-Za-z0-9._-]+|\.html|\.md)|\.\./\.\./docs/method\.md#).*", address), (
            address
        )


@pytest.fixture(scope="module")
def pages(once: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what builds a study's page, or the first page of all three, once."""

    def page(name: str) -> Path:
        return once(f"planted-{name}", lambda folder: make(name, folder)) / f"{name}.html"

    def make(name: str, folder: Path) -> None:
        if name == "index":
            for study in BUILD:
                shutil.copytree(page(study).parent, folder, dirs_exist_ok=True)
            write_index([folder / f"{study}.html" for study in BUILD])
        elif name == "imported":
            write("volumes", of_a_tarball(tmp_path_factory.mktemp(name)), folder / f"{name}.html")
        else:
            # The figures of blobs, which are many, are drawn by the functions that draw those of shots.
            make_page = write_words if name == "blobs" else write
            make_page(name, plant(name, BUILD[name](tmp_path_factory.mktemp(name))), folder / f"{name}.html")

    return page


def of_a_tarball(folder: Path) -> Path:
    """Import a tarball whose battery.txt, job names and options are hostile; return the folder of its tables."""
    source = ours(folder / "in")
    notes = source / "battery.txt"
    words = " ".join(HOSTILE.split())
    lines = [line.partition(": ") for line in notes.read_text(encoding="utf-8").splitlines()]
    kept = ("format", "jobs", "jobs_done", "pause_s", "status")
    told = [f"{key}: {value if key in kept else f'# {words} {value}'}" for key, _, value in lines]
    notes.write_text("\n".join(told) + "\n", encoding="utf-8")
    ended = make_battery(folder / "other", jobs=2, host="b", log=False, seed=2)
    (ended / "battery.txt").write_text(f"host: # {words} b\nstatus: # {words} killed\n", encoding="utf-8")
    artefact = imported(folder, [tarball(source), tarball(ended)])
    run = volumes_records.write_run(folder / "volumes", imported=artefact["records"], left_out=artefact["left_out"])
    volumes_records.gather(run)
    (run / "plan.json").write_text('{"cells": {}}', encoding="utf-8")
    told = records.facts(configuration.load_config("config/import.yaml"), "volumes", folder, run / "imported.json")
    (run / "out" / "facts.json").write_text(json.dumps(told), encoding="utf-8")
    return run / "out"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2.0.0",
            "64 MiB",
            "hdf5-2.0.0_s3",
            "1.12 [1.05, 1.20], 6 blocks",
            "-5 % (-0.3 ms)",
            "R&D",
            "C:\\data",
            "2021-08",
        ),
        *("p <= 0.05", "a -> b", "+76 %", "10.0.0.1:9000", "[::1]:9000", "2. of 3", "#1", "-"),
    ],
)
def test_ordinary_text_reads_the_same_and_is_hardly_escaped(text: str):
    for form in (
        markup.render_markdown_line(text),
        f"- {markup.render_markdown_line(text)}",
        f"> {markup.render_markdown_line(text)}",
    ):
        assert Shown(markdown2html(form)).text == text
    table = f"| a |\n|---|\n| {markup.render_markdown_cell(text)} |"
    assert Shown(markdown2html(table)).text.removeprefix("a ") == text
    assert len(markup.render_markdown_line(text)) <= len(text) + 3


def test_a_figure_keeps_a_name_that_looks_like_mathematics_or_a_number_or_is_long():
    panel = Panel("title", "x", rows=("$$x^2$$", 500 * "long name ", "0.12345 s"), rules=(Rule(1.0, "\\(y\\)"),))
    figure = shorten_names(Figure("name", "title", "caption", (panel,), pd.DataFrame()))
    [packed] = re.findall('class="plot">([^<]+)<', plot_html.draw_figure(figure))
    drawn = zlib.decompress(b64decode(packed)).decode()
    # Bokeh takes no name of a row for TeX; elsewhere it has to be told.
    assert f'["text",{json.dumps(figure.panels[0].rows, separators=(",", ":"))}]' in drawn
    limit = re.escape(json.dumps(figure.panels[0].rules[0].label))
    assert re.search(rf'"name":"PlainText","id":"p\d+","attributes":\{{"text":{limit}', drawn)
    assert len(figure.panels[0].rows[1]) == LONGEST
    assert all(f">{name}<" in plot_svg.draw_figure(figure) for name in ("$$x^2$$", "0.12345 s"))


NAMES = [*BUILD, "imported", "index"]


@pytest.mark.parametrize("name", NAMES)
def test_a_browser_shows_text_from_elsewhere_as_it_is(name: str, pages: Callable[[str], Path]):
    if not browser.browser():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    screen = {"hit": "typeof window.hit", "text": "document.querySelector('main').innerHTML"}
    visit = browser.visit(pages(name), screen)
    assert visit.answers["hit"] == "undefined"
    assert visit.errors == []
    shown = Shown(visit.answers["text"])
    assert "img" not in shown.tags
    assert not re.search(r"https?:", "".join(shown.addresses))
    assert_shown_as_it_is(shown)


@pytest.mark.parametrize("name", [*BUILD, "imported"])
def test_pictures_and_numbers_stand_beside_the_page_and_are_no_more_than_that(name: str, pages: Callable[[str], Path]):
    page = pages(name)
    files = list((page.parent / f"{page.stem}_files").iterdir())
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+\.(csv|svg)", file.name) for file in files)
    drawn = [file for file in files if file.suffix == ".svg" and file.stat().st_size]
    tags = {node.tag.rpartition("}")[2] for file in drawn for node in parse(file).iter()}
    assert "path" in tags
    assert not tags & {"script", "a", "image", "foreignObject"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "render",
    [markdown2html, MarkdownIt("commonmark").enable(["table", "strikethrough"]).render],
    ids=["nbconvert", "commonmark"],
)
def test_markdown_shows_text_from_elsewhere_as_it_is(render: Callable, name: str, pages: Callable[[str], Path]):
    assert_shown_as_it_is(Shown(render(pages(name).with_suffix(".md").read_text(encoding="utf-8"))))
