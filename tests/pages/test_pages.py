"""What holds of every study's page; the Markdown of the synthetic runs is kept as it should be."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from sbench.pages.markup import render_markdown_line
from sbench.pages.names import format_multiple
from tests.helpers import axe, browser, paper
from tests.helpers.browser import Visit
from tests.helpers.pages import Links, write_afresh, write_index, write_words

STUDIES = ("shots", "volumes", "blobs", "particles", "arrays")
# Closes all chapters, then follows each link of the contents bar: is its chapter open, and in sight?
FOLLOW = """(async () => {
  const found = {};
  for (const link of document.querySelectorAll('nav a[href^="#"]')) {
    document.querySelectorAll("details").forEach((part) => (part.open = false));
    link.click();
    await new Promise((done) => setTimeout(done, 50));
    const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    const top = target ? target.getBoundingClientRect().top : Infinity;
    found[link.textContent] = Boolean(target && target.open && Math.abs(top) < innerHeight);
  }
  return found;
})()"""
# Figures, and how many of them are a picture that is seen.
PICTURES = """(() => {
  const figures = [...document.querySelectorAll("figure")].filter((one) => one.querySelector(".panels"));
  const shown = figures.filter((one) => {
    const picture = one.querySelector("img.paper");
    return picture.naturalWidth > 100 && picture.getBoundingClientRect().width > 100;
  });
  return {figures: figures.length, shown: shown.length};
})()"""

# What does not fit on paper, which cannot be scrolled.
CUT = """[...document.querySelectorAll(".scroll, pre, figure")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.innerText.slice(0, 80))"""
# Cells on paper that have room for fewer letters than their longest word has, up to five: text and width.
BROKEN = """[...document.querySelectorAll("td")].filter((cell) => {
  const longest = Math.max(...cell.innerText.split(/[\\s_.-]/).map((word) => word.length));
  const {fontSize, paddingLeft} = getComputedStyle(cell);
  return cell.clientWidth - 2 * parseFloat(paddingLeft) < Math.min(5, longest) * 0.6 * parseFloat(fontSize);
}).map((cell) => `${cell.innerText}: ${cell.clientWidth}`)"""
SIDEWAYS = "[document.documentElement.scrollWidth, innerWidth]"
# Tables that are wider than the page, by their heads.
WIDER = """[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.querySelector("thead").innerText)"""
# What stands over a mark: its label, its value, an interval, of how many, and a note.
NUMBER = r"-?[\d,]*\.?\d+"
TIP = re.compile(rf": {NUMBER}(× as \w+)?( \[{NUMBER}, {NUMBER}\])?(, n = [\d,]+)?( \(.+\))?$")
# How much of its panel's width each name of a row takes, and of its row's height, for its marks to be seen below it.
NAMES = """(() => {
  const pen = document.createElement("canvas").getContext("2d");
  return Bokeh.documents.flatMap((one) => one.roots()).flatMap((panel) => {
    return (panel.center ?? []).filter((one) => one.type === "LabelSet").flatMap((labels) => {
      pen.font = `${labels.text_font_size.value} ${labels.text_font.value}`;
      return labels.source.data.text.map((name, _, names) => {
        const lines = name.split("\\n");
        const wide = Math.max(...lines.map((line) => pen.measureText(line).width));
        return [wide / panel.inner_width, (15 * lines.length * names.length) / panel.inner_height, name];
      });
    });
  });
})()"""


# Texts that are crossed by a line, a mark, each other or the edge of their picture: what is drawn without them has
# several colours where they are.
# All texts of the pictures for Markdown are looked at, and the names of rows in the figures of the page.
CROSSED = """(async () => {
  const crossed = [];
  const look = (canvas, scale, boxes) => {
    const pen = canvas.getContext("2d");
    boxes.forEach(([left, top, wide, high, text], number) => {
      const place = [left, top + 1, wide, high - 2].map((one) => Math.round(one * scale));
      const {data} = pen.getImageData(...place);
      const others = boxes.filter(([x, y, w, h], other) => other !== number
        && x < left + wide - 1 && left < x + w - 1 && y < top + high - 1 && top < y + h - 1);
      if (others.length || data.some((part, at) => Math.abs(part - data[at % 4]) > 9)) crossed.push(text);
    });
  };
  for (const {src} of document.querySelectorAll("img.paper")) {
    const holder = document.createElement("div");
    holder.innerHTML = decodeURIComponent(src.slice(src.indexOf(",") + 1)).replace(/^[^]*?(?=<svg)/, "");
    document.body.append(holder);
    const svg = holder.firstChild, all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map((one) => [one.getBoundingClientRect(), one.textContent]).map(([box, text]) =>
      [box.x - all.x, box.y - all.y, box.width, box.height, text]);
    crossed.push(...boxes.filter(([x, y, w, h]) =>
      Math.min(x, y) < -1 || x + w > all.width + 1 || y + h > all.height + 1).map((box) => box[4]));
    texts.forEach((one) => one.remove());
    const picture = new Image(), canvas = document.createElement("canvas");
    picture.src = `data:image/svg+xml,${encodeURIComponent(holder.innerHTML)}`;
    await picture.decode();
    [canvas.width, canvas.height] = [all.width, all.height];
    canvas.getContext("2d").drawImage(picture, 0, 0);
    holder.remove();
    look(canvas, 1, boxes);
  }
  for (const view of Bokeh.index.roots) {
    const names = view.model.center?.find((one) => one.type === "LabelSet");
    if (!names) continue;
    const {bbox, y_scale} = view.frame, {y, text} = names.source.data;
    const measure = document.createElement("canvas").getContext("2d");
    measure.font = `${names.text_font_size.value} ${names.text_font.value}`;
    const boxes = text.map((name, row) => {
      const lines = name.split("\\n"), high = 12 + 15 * (lines.length - 1);
      const wide = Math.max(...lines.map((line) => measure.measureText(line).width));
      return [bbox.left + 3, y_scale.compute(y[row]) - high / 2, wide, high, name];
    });
    names.text_alpha = 0;
    const {canvas} = view.export("png", false), scale = canvas.width / view.bbox.width;
    names.text_alpha = 1;
    look(canvas, scale, boxes);
  }
  return crossed;
})()"""


class MarkdownFile(SingleFileSnapshotExtension):
    """Keeps a snapshot as a Markdown file, so that its difference can be read."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(MarkdownFile)


@pytest.fixture(params=STUDIES)
def study(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def visits(once: Callable, report_of: Callable) -> Callable[[str, int], Visit]:
    """Return a function (study, width) -> what a browser of that width saw of the page, in one visit."""

    def make(folder: Path, study: str, width: int) -> None:
        if width not in (1300, 400):
            visit = browser.visit(report_of(study), {"sideways": SIDEWAYS, "cut": browser.CUT}, {}, width)
            (folder / "visit.json").write_text(json.dumps(asdict(visit)))
            return
        screen = {"sideways": SIDEWAYS, "names": NAMES, "crossed": CROSSED, "cut": browser.CUT}
        # Each link lays the page out anew, which takes a while.
        screen |= {"links": FOLLOW, "wider": WIDER} if width == 1300 else {}
        # Where there is little room, more has to scroll.
        accessible = {} if width == 1300 else {"axe": axe.script()}
        dark = {f"{name}, dark": ask for name, ask in accessible.items()}
        printed = {"pictures": PICTURES, "too wide": CUT, "broken": BROKEN}
        visit = browser.visit(report_of(study), screen | accessible, printed, width, hover=width == 1300, dark=dark)
        (folder / "visit.json").write_text(json.dumps(asdict(visit)))

    def visited(study: str, width: int = 1300) -> Visit:
        expect_browser()
        folder = once(f"visit-{study}-{width}", lambda folder: make(folder, study, width))
        return Visit(**json.loads((folder / "visit.json").read_text()))

    return visited


@pytest.fixture
def page(study: str, report_of: Callable[[str], Path]) -> Path:
    return report_of(study)


def test_markdown_is_as_it_was(study: str, page: Path, golden: SnapshotAssertion):
    assert page.with_suffix(".md").read_text(encoding="utf-8") == golden


def test_index_of_all_studies_is_as_it_was(report_of: Callable, tmp_path: Path, golden: SnapshotAssertion):
    for study in STUDIES:
        shutil.copytree(report_of(study).parent, tmp_path, dirs_exist_ok=True)
    index = write_index([tmp_path / f"{study}.html" for study in STUDIES])
    words = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", index.with_suffix(".md").read_text(encoding="utf-8")).split()
    assert len(words) <= 500 * len(STUDIES) / 3
    assert index.with_suffix(".md").read_text(encoding="utf-8") == golden


def test_no_element_of_the_page_names_another_place(page: Path):
    found = Links(page.read_text(encoding="utf-8"))
    assert found.elsewhere == []
    assert found.policy.startswith("default-src 'none'")
    for link in found.inside:
        assert not re.match(r"[a-z]+:", link), link
        assert link.startswith("#") or (page.parent / link).is_file(), link


@pytest.mark.late
@pytest.mark.rule(22)
def test_page_asks_for_nothing_in_a_browser_and_draws_all(study: str, page: Path, visits: Callable[..., Visit]):
    seen = visits(study)
    assert [url for url in seen.requests if not url.startswith("data:")] == [page.resolve().as_uri()]
    assert seen.errors == []
    assert seen.seen["drawn"] == seen.seen["panels"] == Links(page.read_text(encoding="utf-8")).panels > 10
    assert seen.seen["tall"]


@pytest.mark.rule(22)
def test_every_figure_has_its_picture_and_its_numbers(study: str, page: Path):
    links = Links(page.read_text(encoding="utf-8")).inside
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", page.with_suffix(".md").read_text(encoding="utf-8"))
    assert len(pictures) >= 6
    for picture in pictures:
        assert "<svg" in (page.parent / picture).read_text(encoding="utf-8")
        if picture.endswith("/patterns.svg"):  # a drawing, which shows no numbers
            continue
        numbers = picture.replace(".svg", ".csv")
        assert numbers in links
        assert list(csv.DictReader((page.parent / numbers).open(encoding="utf-8")))
    left = {f"{study}_files/{path.name}" for path in (page.parent / f"{study}_files").iterdir()}
    of_index = json.loads(page.with_name(f"{study}_answers.json").read_text(encoding="utf-8"))["picture"]
    assert left == {*pictures, *(link for link in links if link.endswith(".csv")), of_index}


@pytest.mark.rule(22)
def test_same_tables_give_the_same_bytes(report_of: Callable, synthetic: Callable, tmp_path: Path):
    again = write_afresh("shots", synthetic("shots"), tmp_path / "elsewhere" / "shots.html")
    first, second = (write_index([page]) for page in (report_of("shots"), again))
    assert first.read_bytes() == second.read_bytes()
    assert differing(report_of("shots"), again) == []


@pytest.mark.rule(22)
@pytest.mark.parametrize("name", ["volumes", "blobs"])
def test_same_tables_give_the_same_words_and_numbers(
    name: str, report_of: Callable, synthetic: Callable, tmp_path: Path
):
    """The figures of all studies are drawn by the same functions, and shots above has all kinds of them."""
    page = report_of(name)
    again = write_words(name, synthetic(name), tmp_path / "elsewhere" / f"{name}.html")
    assert differing(page, again, (".md", ".csv", ".json")) == []


def differing(page: Path, again: Path, suffixes: tuple[str, ...] = (".html", ".svg", ".md", ".csv", ".json")) -> list:
    """Return which files of two builds of a page differ, or are there once."""
    before, after = (
        {path.relative_to(one.parent): path.read_bytes() for path in one.parent.rglob("*") if path.suffix in suffixes}
        for one in (page, again)
    )
    names = [name for name in before.keys() | after.keys() if name.parts[0].startswith(page.stem)]
    assert len(names) > 10
    return sorted(name for name in names if before.get(name) != after.get(name))


def test_code_is_there_and_shown_by_one_switch(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text.count('<pre class="code">') > 10
    assert len(re.findall('<input[^>]* type="checkbox"', text)) == 1
    assert str(page.parent) not in text


def test_only_the_page_s_own_scripts_may_run(page: Path):
    policy = Links(page.read_text(encoding="utf-8")).policy
    [scripts] = re.findall(r"script-src ([^;]*);", policy)
    assert len(scripts.split()) >= 2
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", allowed) for allowed in scripts.split())


def test_every_link_of_the_contents_bar_opens_its_chapter(study: str, visits: Callable[..., Visit]):
    links = visits(study).answers["links"]
    assert len(links) > 5
    assert [link for link, shown in links.items() if not shown] == []


@pytest.mark.late
@pytest.mark.parametrize("width", [1300, 700, 500, 400])
def test_no_page_scrolls_sideways_and_every_figure_has_room(study: str, width: int, visits: Callable[..., Visit]):
    visit = visits(study, width)
    scrolled, inner = visit.answers["sideways"]
    assert scrolled <= inner == width
    assert visit.seen["wide"] > 0.6 * (width if width < 900 else width / 3)


def test_a_mark_under_the_mouse_is_named_with_its_value(study: str, visits: Callable[..., Visit]):
    hovered = visits(study).hovered
    assert any("n = " in line for mark in hovered for line in mark["lines"])
    for mark in hovered:
        assert f"{mark['label']}: {mark['tip']}" in mark["lines"]
        assert [line for line in mark["lines"] if not TIP.search(line)] == []


@pytest.mark.parametrize("name", ["shots", "blobs", "particles"])
def test_the_text_over_a_mark_has_the_numbers_of_its_table(
    name: str, report_of: Callable[[str], Path], visits: Callable[..., Visit]
):
    marks = [mark for mark in visits(name).hovered if mark["figure"] == "figure-deciding-0"]
    numbers = pd.read_csv(report_of(name).parent / f"{name}_files" / "deciding.csv")
    columns = [numbers[column] for column in ("verdict", "ratio", "ratio_low", "ratio_high", "blocks")]
    shown = {f"{verdict}: {format_multiple(*ratio)}, n = {n:.0f}" for verdict, *ratio, n in zip(*columns, strict=True)}
    assert {line for mark in marks for line in mark["lines"]} <= shown
    assert marks


@pytest.mark.parametrize("name", ["shots", "volumes"])
def test_no_table_is_wider_than_a_page_with_room(name: str, visits: Callable[..., Visit]):
    assert visits(name).answers["wider"] == []


# Whether the titles of figures stand in the colour of the page's text, unfiltered, and what is drawn is filtered.
TITLES = """(() => {
  const [title, drawn] = [document.querySelector(".panel-title"), document.querySelector(".panel > div")];
  const filters = [];
  for (let node = title; node; node = node.parentElement) filters.push(getComputedStyle(node).filter);
  const [ink, text] = [document.body, title].map((node) => getComputedStyle(node).color);
  return {filters, alike: ink === text, ink, drawn: getComputedStyle(drawn).filter};
})()"""
# Sorts a table by keys alone: what its heads say of the order, before and after.
SORT = """(() => {
  const head = document.querySelector("thead th"), order = () => head.getAttribute("aria-sort");
  const said = [order()];
  for (const key of ["Enter", " ", "x"]) {
    head.focus();
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    said.push(order());
  }
  return said;
})()"""


def test_dark_titles_are_light_tables_sort_by_keys_and_the_tab_has_the_page_s_title(report_of: Callable[[str], Path]):
    expect_browser()
    ask = {"sorted": SORT, "title": "document.title"}
    answers = browser.visit(report_of("shots"), ask, dark={"dark": TITLES}).answers
    assert answers["sorted"] == [None, "ascending", "descending", "descending"]
    assert answers["title"] == "Reading HDF5 files"
    dark = answers["dark"]
    assert set(dark["filters"]) == {"none"}
    assert dark["alike"]
    assert dark["ink"] == "rgb(228, 230, 234)"
    assert dark["drawn"].startswith("invert")


def test_contrast_and_keys_are_as_wcag_has_them_in_light_and_dark(study: str, visits: Callable[..., Visit]):
    answers = visits(study, 400).answers
    axe.expect_no_violation(answers["axe"], answers["axe, dark"])


# What axe-core is to find: letters as dark as their ground, a link without a name, and a part that keys cannot scroll.
PLANTED = """document.querySelector("main").insertAdjacentHTML("beforeend", `<a href="#"></a>
  <p style="color: #888; background: #777">letters</p>
  <pre style="width: 4rem; white-space: pre">longer than its room</pre>`);"""


def test_the_first_page_does_not_scroll_sideways_and_is_as_wcag_has_it(report_of: Callable[[str], Path]):
    expect_browser()
    check = axe.script()
    screen = {"sideways": SIDEWAYS, "axe": check}
    dark = {"axe, dark": check, "planted": f"{PLANTED} {check}"}
    answers = browser.visit(report_of("shots").with_name("index.html"), screen, {}, 400, dark=dark).answers
    scrolled, inner = answers["sideways"]
    assert scrolled <= inner == 400
    axe.expect_no_violation(answers["axe"], answers["axe, dark"])
    rules = {violation.split(":")[0] for violation in answers["planted"]}
    assert rules == {"color-contrast", "link-name", "scrollable-region-focusable"}


@pytest.mark.parametrize("width", [1300, 400])
def test_names_of_rows_are_whole_and_leave_room_for_their_marks(study: str, width: int, visits: Callable[..., Visit]):
    expect_whole(visits(study, width).answers["names"])


def test_names_of_rows_are_whole_in_a_window_that_was_made_narrower(report_of: Callable[[str], Path]):
    expect_browser()
    visit = browser.visit(report_of("volumes"), {"names": NAMES}, {}, 1300, 400)
    assert visit.errors == []
    assert visit.seen["drawn"] == visit.seen["panels"] > 5
    expect_whole(visit.answers["names"])


@pytest.mark.parametrize("width", [1300, 700, 500, 400])
def test_no_text_of_a_figure_is_cut(study: str, width: int, visits: Callable[..., Visit]):
    assert visits(study, width).answers["cut"] == []


@pytest.mark.parametrize("width", [1300, 400])
def test_no_text_of_a_picture_is_crossed(study: str, width: int, visits: Callable[..., Visit]):
    assert visits(study, width).answers["crossed"] == []


def expect_whole(names: list) -> None:
    assert len(names) > 5
    assert [name for wide, high, name in names if wide > 1 or high > 0.8] == []


@pytest.mark.parametrize("width", [1300, 400])
def test_paper_has_every_figure(study: str, width: int, visits: Callable[..., Visit]):
    pictures = visits(study, width).answers["pictures"]
    assert pictures["figures"] == pictures["shown"] > 5


def test_paper_cuts_nothing_and_no_column_is_a_few_letters_wide(study: str, visits: Callable[..., Visit]):
    answers = visits(study).answers
    assert answers["too wide"] == []
    assert answers["broken"] == []


@pytest.mark.late
def test_no_heading_on_paper_is_alone_at_the_foot_of_a_sheet(page: Path):
    expect_browser()
    visit = browser.visit(page, {}, {"heads": paper.HEADS}, sheets=(paper.A4, paper.LETTER, paper.SMALL))
    assert [paper.torn(printed, visit.answers["heads"]) for printed in visit.printed] == [[], [], []]


@pytest.mark.parametrize(
    "parts, torn",
    [
        ("<h2>A heading</h2><figure>{}</figure>", ["A heading"]),
        ("<details><summary>A fold</summary><p>{}</p></details>", ["A fold"]),
        ("<table><thead><tr><th>Head</th></tr></thead><tr><td>{}</td></tr></table>", ["Head"]),
        ("<figure>{}<figcaption>A caption</figcaption></figure>", ["A caption"]),
        ("<h2>A heading</h2><p>text</p>{}", []),
    ],
)
def test_a_heading_alone_at_the_foot_of_a_sheet_is_seen(parts: str, torn: list[str], tmp_path: Path):
    expect_browser()
    page = tmp_path / "page.html"
    high = 50 if torn == ["A caption"] else 850
    content = f"<div style='height: {high}px; break-inside: avoid'>what follows</div>"
    style = "* { margin: 0 } thead { display: table-row-group } body { font: 16px/20px sans-serif }"
    above = "<h1>Page</h1><div style='height: 900px'>before</div>"
    page.write_text(f"<!doctype html><style>{style}</style>{above}{parts.format(content)}", encoding="utf-8")
    visit = browser.visit(page, {}, {"heads": paper.HEADS}, sheets=[paper.LETTER])
    assert paper.torn(visit.printed[0], visit.answers["heads"]) == torn


def expect_browser() -> None:
    if not browser.browser():
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed: only the page's text was checked")


def test_index_opens_with_the_answers_and_leads_to_the_page(study: str, page: Path):
    index = page.with_name("index.html")
    text = index.with_suffix(".md").read_text(encoding="utf-8")
    left = json.loads(page.with_name(f"{study}_answers.json").read_text(encoding="utf-8"))
    assert text.startswith(f"# Results of laptop\n\n[{left['title']}]({study}.md)\n")
    assert render_markdown_line(left["headline"]) in text
    assert f"![{left['title']}]({left['picture']})" in text
    assert f"{study}.html" in Links(index.read_text(encoding="utf-8")).inside


@pytest.mark.parametrize("name", [*STUDIES, "index"])
def test_notebooks_have_short_cells_and_no_outputs(name: str):
    cells = json.loads(Path(f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(len(cell["source"]) <= 8 for cell in cells)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
