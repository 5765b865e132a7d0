"""Display text, figures and tables from notebook cells, both in the HTML page and in Markdown.

All text is plain except for the marks of `sbench.pages.markup`, which escapes it.

Figures and tables write their numbers as CSV files to the report's directory, and the HTML page links to them. Figures
also write an SVG file for Markdown.
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
from sbench.pages.terms import explain_words
from sbench.probe.program import replace_file, write_text

# Text that spreadsheets interpret as a formula, except a signed number or a single sign.
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!([\d.,]+(e[+-]?\d+)?( ?%)?)?\Z)")
# A number with an optional unit, confidence interval and marker of an invalid cell.
_AMOUNT = re.compile(r"[\d.,]+( [nµm]?s)?( \[[\d., ]+\])?( \[INVALID\])?")
# A time in seconds with an optional confidence interval and suffix.
_SECONDS = re.compile(r"([\d.]+)(?: \[([\d.]+), ([\d.]+)\])?( \(.*\)| \[INVALID\])?")
# Markers with the same meaning as colours, for Markdown, for print and for readers who cannot see the colours.
MARKS = {"over": " ▲", "yellow": " △", "red": " ▲"}
ROWS_IN_MARKDOWN = 60
WIDE = 12  # number of columns from which values shared by all rows are moved to the caption
_aside: ProcessPoolExecutor | None = None
_recorded: list["Table"] | None = None


@dataclass(frozen=True)
class Table:
    """A table for readers.

    Attributes:
        name: name, also the stem of its files.
        caption: caption of the table.
        frame: the values.
        formats: formatting functions, by column.
        over: highlighting by column, with a bool or the name of a colour for each row.
        meaning: meaning of the highlighting.
        numbers: content of the CSV file; by default, `frame`. It is needed if `frame` contains formatted text.
        in_markdown: maximum number of rows in Markdown.
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
        """Return the caption, followed by the meaning of the markers if there are any."""
        colours = {colour for flags in self.over.values() for colour in _list_colours(flags)}
        sign = MARKS["over"] if "over" in colours else ""
        meaning = f" Marked{sign}: {self.meaning}." if self.meaning and colours & MARKS.keys() else ""
        return f"{self.caption}{meaning}"

    def format_value(self, column: str, value: object) -> str:
        """Format a value of a column for display."""
        return "" if pd.isna(value) else self.formats.get(column, str)(value)


class Page:
    """The page being written. `files` is the directory for its figures and their numbers."""

    def __init__(self, files: Path | str) -> None:
        """Start a page whose figures and tables are saved in the directory `files`."""
        self.files = Path(files)
        self._loaded = False
        self._explained: set[str] = set()

    def show_text(self, *lines: str, in_markdown: bool = True) -> None:
        """Show paragraphs and other blocks of `sbench.pages.markup`."""
        if any(lines):
            html = explain_words(render_html(*lines), self._explained)
            _show_forms(html=html, markdown=render_markdown(*lines) if in_markdown else "")

    def show_section(self, title: str, text: str) -> None:
        """Show text under a heading; show nothing if the text is empty."""
        if text:
            self.show_text(heading(3, title), text)

    @contextlib.contextmanager
    def fold(self, summary: str) -> Iterator[None]:
        """Show the content of a `with` block in a collapsible section titled `summary`. Markdown shows it in full."""
        _show_forms(
            html=f"<details><summary>{render_html_line(summary)}</summary>", markdown=render_markdown(bold(summary))
        )
        yield
        _show_forms(html="</details>", markdown="")

    def show_lead(self, figure: Figure, beside: Mapping[str, list[str]]) -> None:
        """Show the page's main figure, with lists under headings beside it if there is enough space."""
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
            source: run, date and hash of the records on which the sentences are based.
        """
        items = [
            f'<li id="{escape(anchor)}">{self._render_line(text)} <button class="copy" data-copy="'
            f'{escape(f"{render_markdown_line(text)} ({source})")}" title="Copy as Markdown">copy</button></li>'
            for anchor, text in findings
        ]
        if items:
            texts = render_markdown(bullets(text for _, text in findings))
            _show_forms(html=f'<ul class="findings">{"".join(items)}</ul>', markdown=texts)

    def show_figure(self, figure: Figure) -> None:
        """Show a figure with its caption and a link to its numbers, or only the caption if the figure has no panels."""
        if not figure.panels:
            return self.show_text(figure.caption and f"{figure.title}: {figure.caption}")
        if _recorded is not None:
            return None
        figure = shorten_names(figure)
        svg = _start_drawing(figure)
        # Import here, because HoloViews and Bokeh take seconds to import, and a page may have no figures.
        from sbench.pages import plot_html

        drawn = self.get_loader() + plot_html.draw_figure(figure)
        numbers = self._write_numbers(figure.name, figure.numbers)
        self.show_picture(figure.name, figure.title, svg(), figure.caption, drawn, numbers)

    def save_picture(self, figure: Figure) -> str:
        """Write a figure's SVG file for use on another page, and return its path.

        Return an empty string if the figure has no panels.
        """
        if not figure.panels or _recorded is not None:
            return ""
        picture = self._build_path(figure.name, "svg")
        write_text(self.files / picture.name, _start_drawing(shorten_names(figure))())
        return str(picture)

    def get_loader(self) -> str:
        """Return the BokehJS script before the page's first figure, and an empty string for later figures."""
        from sbench.pages import plot_html

        loaded, self._loaded = self._loaded, True
        return "" if loaded else plot_html.render_loader()

    def show_image(self, file: Path, link_to: str, title: str, in_markdown: bool = True) -> None:
        """Embed an SVG file from another page."""
        data = b64encode(file.read_bytes()).decode()
        _show_forms(
            html=f'<figure><img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}"></figure>',
            markdown=f"!{render_markdown_line(link(title, link_to))}" if in_markdown else "",
        )

    def show_picture(self, name: str, title: str, svg: str, caption: str, drawn: str = "", numbers: str = "") -> None:
        """Show an SVG figure with its caption.

        Args:
            name: name of the figure, for its file.
            title: title of the figure.
            svg: SVG document.
            caption: caption of the figure.
            drawn: HTML to show on screen in place of the SVG; the SVG by default.
            numbers: link to the figure's numbers.
        """
        drawn = drawn or f'<div class="drawing" tabindex="0">{svg}</div>'
        picture = self._build_path(name, "svg")
        write_text(self.files / picture.name, svg)
        # The picture is for print. It is compressed, because it would otherwise take most of a long page.
        both = f'{drawn}<img class="paper" alt="" data-svg="{compress_text(svg)}">'
        text = self._render_line(f"{caption} {numbers}")
        _show_forms(
            html=f"<figure>{both}<figcaption><b>{render_html_line(title)}.</b> {text}</figcaption></figure>",
            markdown=f"!{render_markdown_line(link(title, str(picture)))}\n\n"
            f"*{render_markdown_line(f'{title}.')}* {render_markdown_line(caption)}",
        )

    def show_table(self, table: Table, otherwise: str = "Nothing to list.", linked: bool = True) -> None:
        """Show a table with its caption.

        Args:
            table: the table.
            otherwise: text to show if the table has no rows.
            linked: whether to write the table's numbers and link to them.
        """
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
        caption = f"<figcaption>{self._render_line(f'{table.caption}{limit} {numbers}')}</figcaption>"
        _show_forms(
            html=f'<figure><div class="scroll">{_render_html_table(texts, table)}</div>{caption}</figure>',
            markdown=f"{_render_markdown_table(texts, table)}\n\n{render_markdown_line(table.full_caption)}",
        )

    def _render_line(self, text: str) -> str:
        """Render a line of text as HTML, with tooltips for glossary terms."""
        return explain_words(render_html_line(text), self._explained)

    def _write_numbers(self, name: str, numbers: pd.DataFrame) -> str:
        path = self._build_path(name, "csv")
        write_csv(self.files / path.name, numbers)
        return link("Numbers (CSV)", str(path))

    def _build_path(self, name: str, suffix: str) -> Path:
        """Return a file's path relative to the page; unsafe characters in its name are replaced."""
        return Path(self.files.name, f"{build_file_stem(name)}.{suffix}")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV, atomically, escaping text that a spreadsheet would interpret as a formula."""
    with replace_file(path) as part:
        table.rename(columns=_escape_formula).apply(_escape_formulas).to_csv(part, index=False, lineterminator="\n")


def _escape_formulas(column: pd.Series) -> pd.Series:
    formulas = [value for value in column.unique() if _escape_formula(value) is not value]
    return column.astype(object).where(~column.isin(formulas), "'" + column.astype(str)) if formulas else column


def _escape_formula(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def build_file_stem(name: str) -> str:
    """Convert a name to a file stem, with a hash appended if characters had to be replaced."""
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100]
    return clean if clean == name else f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def record_tables() -> Iterator[list[Table]]:
    """Collect the tables shown during a `with` block in a list, without writing figures or numbers."""
    global _recorded
    _recorded = tables = []
    try:
        yield tables
    finally:
        _recorded = None


def draw_aside() -> None:
    """Start a second process that draws figures as SVG while this process draws them for HTML.

    Call this before the process has threads, because a forked copy of a process with threads may deadlock. If processes
    cannot share locks, as without /dev/shm, this process draws everything.
    """
    global _aside
    with contextlib.suppress(OSError, ImportError):
        _aside = ProcessPoolExecutor(1, get_context("fork"))
        _aside.submit(str)


def _start_drawing(figure: Figure) -> Callable[[], str]:
    """Return a function that returns a figure as SVG. After `draw_aside`, the other process starts drawing it now."""
    return _aside.submit(_draw_svg, figure).result if _aside else functools.partial(_draw_svg, figure)


def _draw_svg(figure: Figure) -> str:
    # Import matplotlib only in the process that draws.
    from sbench.pages import plot_svg

    return plot_svg.draw_figure(figure)


def _show_forms(**forms: str) -> None:
    display({f"text/{form}": text for form, text in forms.items()}, raw=True)


def format_table(table: Table) -> pd.DataFrame:
    """Format a table's values for display."""
    texts = {column: [table.format_value(column, value) for value in table.frame[column]] for column in table.frame}
    return pd.DataFrame(texts, dtype=str)


def add_unit_prefixes(table: Table) -> Table:
    """Format the times in columns of seconds with an SI prefix, such as 45.1 µs."""
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
    """Move the columns of a wide table that have the same value in all rows to its caption."""
    texts = format_table(table)
    if len(texts.columns) < WIDE or len(texts) < 2:
        return table
    coloured = {column for column, flags in table.over.items() if any(_list_colours(flags))}
    shared = [column for column in texts if column not in coloured and column and texts[column].nunique() == 1]
    constants = ", ".join(f"{column} {texts[column].iloc[0]}".strip() for column in shared)
    caption = f"{table.caption} In all rows: {constants}." if shared else table.caption
    over = {column: flags for column, flags in table.over.items() if column not in shared}
    return replace(table, caption=caption, frame=table.frame.drop(columns=shared), over=over)


def add_marks(texts: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Append a marker to each highlighted cell of a table, for readers who do not see the colours."""
    texts = texts.copy()
    for column in table.over.keys() & set(texts):
        signs = [MARKS.get(name, "") for name in _list_colours(table.over[column])]
        texts[column] = [text + sign for text, sign in zip(texts[column], signs, strict=True)]
    return texts


def _list_colours(flags: Iterable) -> list[str]:
    return [flag if isinstance(flag, str) else "over" if flag else "" for flag in flags]


def find_numeric_columns(texts: pd.DataFrame, table: Table) -> set[str]:
    """Return the columns that contain numbers, or text that is a number with a unit or confidence interval."""

    def is_number(column: str) -> bool:
        matches = [_AMOUNT.fullmatch(text) for text in texts[column] if text]
        with_units = all(matches) and any(match[1] or match[2] for match in matches)
        return pd.api.types.is_numeric_dtype(table.frame[column]) or with_units

    return {column for column in texts if is_number(column)}


def _render_html_table(texts: pd.DataFrame, table: Table) -> str:
    of_numbers = find_numeric_columns(texts, table)
    over = {column: _list_colours(flags) for column, flags in table.over.items()}
    # Only cells of the less frequent kind of column (number or text) have its class, which makes long tables shorter.
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
