"""What a notebook's cells call to show something, once for the HTML page and once for Markdown.

All text that it is given is plain but for the marks of `sbench.pages.markup`, which escapes it.

Figures and tables leave their numbers as CSV in the report's folder of files, which the HTML page links, and figures
an SVG for Markdown.
"""

import contextlib
import functools
import hashlib
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from html import escape
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from IPython.display import display

from sbench.pages import names
from sbench.pages.markup import (
    bold,
    bullets,
    heading,
    link,
    render_html,
    render_html_line,
    render_markdown,
    render_markdown_cell,
    render_markdown_line,
)
from sbench.pages.plot import Figure, compress_text, shorten_names
from sbench.probe.program import replace_file, write_text

# What spreadsheets take for a formula: not a number with a sign, nor a sign alone.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!([\d.,]+(e[+-]?\d+)?( ?%)?)?\Z)")
# Colours that say how high a number is have a mark too, for Markdown, for paper and for eyes that see no such colour.
_AMOUNT = re.compile(r"[\d.,]+( [nµm]?s)?( \[[\d., ]+\])?( \[INVALID\])?")
# A time in seconds, with its interval, and what else its cell has.
_SECONDS = re.compile(r"([\d.]+)(?: \[([\d.]+), ([\d.]+)\])?( \(.*\)| \[INVALID\])?")
MARKS = {"over": " ▲", "yellow": " △", "red": " ▲"}
ROWS_IN_MARKDOWN = 60
WIDE = 12  # columns from which on what all rows share is said below a table
_aside: ProcessPoolExecutor | None = None
_recorded: list["Table"] | None = None


@dataclass(frozen=True)
class Table:
    """A table as people read it.

    `frame` holds the numbers as they are, `formats` what to make of a column, `over` (column -> a bool or the name of a
    colour a row) which cells are coloured, and `meaning` says why. `numbers` is what the CSV has where the frame holds
    texts. Markdown has the first `in_markdown` rows.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    formats: Mapping[str, Callable] = field(default_factory=dict)
    over: Mapping[str, Iterable] = field(default_factory=dict)
    meaning: str = ""
    numbers: pd.DataFrame | None = None
    in_markdown: int = ROWS_IN_MARKDOWN

    @property
    def full_caption(self) -> str:
        """The caption, with what a mark in a text says."""
        colours = {colour for flags in self.over.values() for colour in _list_colours(flags)}
        sign = MARKS["over"] if "over" in colours else ""
        meaning = f" Marked{sign}: {self.meaning}." if self.meaning and colours & MARKS.keys() else ""
        return f"{self.caption}{meaning}"

    def format_value(self, column: str, value: object) -> str:
        """Return a value of a column as people read it."""
        return "" if pd.isna(value) else self.formats.get(column, str)(value)


class Page:
    """The report that is being written; `files` is its folder of pictures and numbers."""

    def __init__(self, files: Path | str) -> None:
        """Show figures and tables with their files in `files`."""
        self.files = Path(files)
        self._loaded = False

    def show_text(self, *lines: str, in_markdown: bool = True) -> None:
        """Show paragraphs, and what else `sbench.pages.markup` makes of text."""
        if any(lines):
            _show_forms(html=render_html(*lines), markdown=render_markdown(*lines) if in_markdown else "")

    def show_section(self, title: str, text: str) -> None:
        """Show text under a heading of its own; without text there is no heading either."""
        if text:
            self.show_text(heading(3, title), text)

    @contextlib.contextmanager
    def fold(self, summary: str) -> Iterator[None]:
        """Hide what is shown within, under a line that opens it; Markdown has all of it."""
        _show_forms(
            html=f"<details><summary>{render_html_line(summary)}</summary>", markdown=render_markdown(bold(summary))
        )
        yield
        _show_forms(html="</details>", markdown="")

    def show_lead(self, figure: Figure, beside: Mapping[str, list[str]]) -> None:
        """Show the page's first figure, and lists under their headings beside it where there is room."""
        _show_forms(html='<div class="lead">', markdown="")
        self.show_figure(figure)
        _show_forms(html="<div>", markdown="")
        for title, lines in beside.items():
            self.show_section(title, bullets(lines))
        _show_forms(html="</div></div>", markdown="")

    def show_findings(self, findings: Iterable[tuple[str, str]], source: str) -> None:
        """Show sentences as a list, each with an anchor and a button that copies it as Markdown with its source.

        Args:
            findings: (anchor, sentence) pairs.
            source: what the sentences were made of: run, date, and a hash of the records.
        """
        items = [
            f'<li id="{escape(anchor)}">{render_html_line(text)} <button class="copy" data-copy="'
            f'{escape(f"{render_markdown_line(text)} ({source})")}" title="Copy as Markdown">copy</button></li>'
            for anchor, text in findings
        ]
        if items:
            texts = render_markdown(bullets(text for _, text in findings))
            _show_forms(html=f'<ul class="findings">{"".join(items)}</ul>', markdown=texts)

    def show_figure(self, figure: Figure) -> None:
        """Show a figure with its caption and a link to its numbers; one without panels leaves the caption, if any."""
        if not figure.panels:
            return self.show_text(figure.caption and f"{figure.title}: {figure.caption}")
        if _recorded is not None:
            return None
        figure = shorten_names(figure)
        svg = _start_drawing(figure)
        # HoloViews and Bokeh take seconds to import, and a page may be without figures.
        from sbench.pages import plot_html

        drawn = self.get_loader() + plot_html.draw_figure(figure)
        numbers = self._write_numbers(figure.name, figure.numbers)
        self.show_picture(figure.name, figure.title, svg(), figure.caption, drawn, numbers)

    def save_picture(self, figure: Figure) -> str:
        """Leave the picture of a figure to another page, and return its path; "" of a figure without panels."""
        if not figure.panels or _recorded is not None:
            return ""
        picture = self._build_path(figure.name, "svg")
        write_text(self.files / picture.name, _start_drawing(shorten_names(figure))())
        return str(picture)

    def get_loader(self) -> str:
        """Return BokehJS before the page's first figure, "" before the others."""
        from sbench.pages import plot_html

        loaded, self._loaded = self._loaded, True
        return "" if loaded else plot_html.render_loader()

    def show_image(self, file: Path, link_to: str, title: str, in_markdown: bool = True) -> None:
        """Show a picture that another page has left."""
        data = b64encode(file.read_bytes()).decode()
        _show_forms(
            html=f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}"></figure>',
            markdown=f"!{render_markdown_line(link(title, link_to))}" if in_markdown else "",
        )

    def show_picture(self, name: str, title: str, svg: str, caption: str, drawn: str = "", numbers: str = "") -> None:
        """Show a picture with its caption; in HTML what is `drawn` instead, if anything, and a link to `numbers`."""
        drawn = drawn or f'<div class="drawing" tabindex="0">{svg}</div>'
        picture = self._build_path(name, "svg")
        write_text(self.files / picture.name, svg)
        # On paper the picture stands in its place; inflated it would be the bulk of a long page.
        both = f'{drawn}<img class="paper" alt="" data-svg="{compress_text(svg)}">'
        text = render_html_line(f"{caption} {numbers}")
        _show_forms(
            html=f"<figure>{both}<figcaption><b>{render_html_line(title)}.</b> {text}</figcaption></figure>",
            markdown=f"!{render_markdown_line(link(title, str(picture)))}\n\n"
            f"*{render_markdown_line(f'{title}.')}* {render_markdown_line(caption)}",
        )

    def show_table(self, table: Table, otherwise: str = "Nothing to list.", linked: bool = True) -> None:
        """Show a table with its caption and a link to its numbers, if any; one without rows leaves a sentence."""
        if table.frame.empty:
            return self.show_text(otherwise)
        if _recorded is not None:
            return _recorded.append(table)
        shown = table.frame if table.numbers is None else table.numbers
        numbers = self._write_numbers(table.name, shown) if linked else ""
        table = remove_shared_columns(add_unit_prefixes(table))
        colours = {colour for flags in table.over.values() for colour in _list_colours(flags)} - {"", "unknown"}
        limit = f" Coloured: {table.meaning}." if colours and table.meaning else ""
        texts = format_table(table)
        caption = f"<figcaption>{render_html_line(f'{table.caption}{limit} {numbers}')}</figcaption>"
        _show_forms(
            html=f'<figure><div class="scroll">{_render_html_table(texts, table)}</div>{caption}</figure>',
            markdown=f"{_render_markdown_table(texts, table)}\n\n{render_markdown_line(table.full_caption)}",
        )

    def _write_numbers(self, name: str, numbers: pd.DataFrame) -> str:
        path = self._build_path(name, "csv")
        write_csv(self.files / path.name, numbers)
        return link("Numbers (CSV)", str(path))

    def _build_path(self, name: str, suffix: str) -> Path:
        """Where a file lies, seen from the page; names of jobs from elsewhere are parts of some names."""
        return Path(self.files.name, f"{build_file_stem(name)}.{suffix}")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV for people, whole or not at all; to a spreadsheet none of its texts is a formula."""
    with replace_file(path) as part:
        table.rename(columns=_escape_formula).apply(_escape_formulas).to_csv(part, index=False, lineterminator="\n")


def _escape_formulas(column: pd.Series) -> pd.Series:
    formulas = [value for value in column.unique() if _escape_formula(value) is not value]
    return column.astype(object).where(~column.isin(formulas), "'" + column.astype(str)) if formulas else column


def _escape_formula(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def build_file_stem(name: str) -> str:
    """Return a name so that a file can have it."""
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100]
    return clean if clean == name else f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def record_tables() -> Iterator[list[Table]]:
    """Give the tables that pages show within the block, which leave no figures and no numbers."""
    global _recorded
    _recorded = tables = []
    try:
        yield tables
    finally:
        _recorded = None


def draw_aside() -> None:
    """Let another process draw for Markdown and paper, while this one draws the same for the screen.

    It is to be called before this process has threads: a copy of one that has them may wait for a lock for ever. Where
    processes cannot share locks, as without /dev/shm, this one draws all.
    """
    global _aside
    with contextlib.suppress(OSError, ImportError):
        _aside = ProcessPoolExecutor(1, get_context("fork"))
        _aside.submit(str)


def _start_drawing(figure: Figure) -> Callable[[], str]:
    """Begin to draw an SVG, or put it off, and return what gives it."""
    return _aside.submit(_draw_svg, figure).result if _aside else functools.partial(_draw_svg, figure)


def _draw_svg(figure: Figure) -> str:
    # Not at the top, so that matplotlib is imported where it draws.
    from sbench.pages import plot_svg

    return plot_svg.draw_figure(figure)


def _show_forms(**forms: str) -> None:
    display({f"text/{form}": text for form, text in forms.items()}, raw=True)


def format_table(table: Table) -> pd.DataFrame:
    """Return a table's texts as people read them."""
    texts = {column: [table.format_value(column, value) for value in table.frame[column]] for column in table.frame}
    return pd.DataFrame(texts, dtype=str)


def add_unit_prefixes(table: Table) -> Table:
    """Return a table whose times have a unit with a prefix each, 45.1 µs, where its columns are in seconds."""
    texts = format_table(table)
    seconds = {
        column: [_SECONDS.fullmatch(text) for text in texts[column]]
        for column in texts
        if column.endswith(" / s") and all(_SECONDS.fullmatch(text) for text in texts[column] if text)
    }
    frame = table.frame.assign(**{column: list(map(_add_unit_prefix, times)) for column, times in seconds.items()})
    heads = {column: column.removesuffix(" / s") for column in seconds}
    return replace(
        table,
        frame=frame.rename(columns=heads),
        formats={column: text for column, text in table.formats.items() if column not in seconds},
        over={heads.get(column, column): flags for column, flags in table.over.items()},
    )


def _add_unit_prefix(time: re.Match | None) -> str:
    if not time:
        return ""
    value, low, high = (float(number or "nan") for number in time.groups()[:3])
    text = names.format_seconds(value) if math.isnan(low) else names.format_seconds_with_interval(value, low, high)
    return text + (time[4] or "")


def remove_shared_columns(table: Table) -> Table:
    """Return a wide table without the columns in which all rows have the same, which its caption says instead."""
    texts = format_table(table)
    if len(texts.columns) < WIDE or len(texts) < 2:
        return table
    coloured = {column for column, flags in table.over.items() if any(_list_colours(flags))}
    shared = [column for column in texts if column not in coloured and column and texts[column].nunique() == 1]
    said = ", ".join(f"{column} {texts[column].iloc[0]}".strip() for column in shared)
    caption = f"{table.caption} In all rows: {said}." if shared else table.caption
    over = {column: flags for column, flags in table.over.items() if column not in shared}
    return replace(table, caption=caption, frame=table.frame.drop(columns=shared), over=over)


def add_marks(texts: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Return a table's texts with the marks that say what a colour does."""
    texts = texts.copy()
    for column in table.over.keys() & set(texts):
        signs = [MARKS.get(name, "") for name in _list_colours(table.over[column])]
        texts[column] = [text + sign for text, sign in zip(texts[column], signs, strict=True)]
    return texts


def _list_colours(flags: Iterable) -> list[str]:
    return [flag if isinstance(flag, str) else "over" if flag else "" for flag in flags]


def find_numeric_columns(texts: pd.DataFrame, table: Table) -> set[str]:
    """Return the columns of numbers, and those whose texts are a number with its unit or its interval."""

    def is_number(column: str) -> bool:
        matches = [_AMOUNT.fullmatch(text) for text in texts[column] if text]
        with_units = all(matches) and any(match[1] or match[2] for match in matches)
        return pd.api.types.is_numeric_dtype(table.frame[column]) or with_units

    return {column for column in texts if is_number(column)}


def _render_html_table(texts: pd.DataFrame, table: Table) -> str:
    of_numbers = find_numeric_columns(texts, table)
    over = {column: _list_colours(flags) for column, flags in table.over.items()}
    # The rarer kind of column is named in its cells, which saves a part of a long table's bytes.
    mostly = len(of_numbers) > len(texts.columns) / 2
    kinds = {column: ([] if mostly else ["n"]) if column in of_numbers else ["t"] if mostly else [] for column in texts}
    head = "".join(f"<th{_render_classes(kinds[column])}>{render_html_line(column)}</th>" for column in texts)
    rows = []
    for row, values in enumerate(texts.itertuples(index=False, name=None)):
        cells = []
        for column, value in zip(texts, values, strict=True):
            colour = [over[column][row]] if column in over and over[column][row] else []
            cells.append(f"<td{_render_classes(kinds[column] + colour)}>{render_html_line(value)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<table{_render_classes(['numbers'] * mostly)}>{body}</table>"


def _render_classes(names: list[str]) -> str:
    return f' class="{" ".join(names)}"' if len(names) > 1 else f" class={names[0]}" if names else ""


def _render_markdown_table(texts: pd.DataFrame, table: Table) -> str:
    of_numbers = find_numeric_columns(texts, table)
    lines = [
        "| " + " | ".join(map(render_markdown_cell, texts.columns)) + " |",
        "|" + "|".join("---:" if column in of_numbers else "---" for column in texts) + "|",
    ]
    for values in add_marks(texts, table).head(table.in_markdown).itertuples(index=False, name=None):
        lines.append("| " + " | ".join(map(render_markdown_cell, values)) + " |")
    left = len(texts) - table.in_markdown
    return "\n".join(lines) + (f"\n\n{left} more rows are in the numbers." if left > 0 else "")
