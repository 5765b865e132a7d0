"""Convert text to HTML or Markdown and escape it; only this module does so.

Sentences on pages mark bold text, code, links and blocks with the functions below. The marks are control characters,
which `sbench.pages.run_files` escapes in all tables and facts. Callers therefore need not know whether a text comes
from elsewhere, and cannot forget to escape it.
"""

import re
from collections.abc import Iterable, Iterator
from html import escape
from urllib.parse import quote

_BOLD, _PLAIN, _CODE, _LINK, _AT, _END, _BLOCK = map(chr, range(1, 8))
# Characters that text from elsewhere must not contain: the marks, characters that are invalid in HTML and XML, Unicode
# controls of text direction, and unpaired surrogates.
FOREIGN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_MARKS = (
    f"(?P<bold>{_BOLD})|(?P<plain>{_PLAIN})|{_CODE}(?P<code>[^{_END}]*){_END}"
    f"|{_LINK}(?P<path>[^{_AT}]*){_AT}(?P<link>[^{_END}]*){_END}"
)
# Characters that Markdown (GitHub's and mistune's) interprets within a line. "snake_case", "[0.9, 1.1]" and "R&D" need
# no escape.
_SIGNS = (
    r"[`*~$]",
    r"(?<![^\W_])_|_(?![^\W_])",
    rf"!(?=[\[{_LINK}])",
    rf"\](?=[(\[:{_LINK}])",
)
# Characters with a meaning at the start of a block (heading, list, rule, quotation, task or definition), or at the end
# of a heading.
_OPENING = (r"\A#", r"\A[-+]+(?=\s|\Z)", r"\A[>\[]", r"(?<=\s)#+\Z")
_ENTITIES = {"<": "&lt;", "&": "&amp;", "\\": "&#92;"}


def _build_pattern(*signs: str) -> re.Pattern:
    entities = rf"<|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{{-~{_BOLD}-{_BLOCK}]|\Z)"
    number = r"\A\d{1,9}(?=[.)](?:\s|\Z))"
    return re.compile(f"{_MARKS}|(?P<entity>{entities})|(?P<number>{number})|(?P<sign>{'|'.join((*_SIGNS, *signs))})")


_HTML = re.compile(f"{_MARKS}|(?P<sign>[&<>])")
_LINE, _CELL, _LABEL = _build_pattern(*_OPENING), _build_pattern(r"\|"), _build_pattern(r"[\[\]]")

_QUOTATION, _VERBATIM, _ITEMS = "> ", "    ", ("- ", "    - ")  # the kind of a block is its prefix in Markdown
_HEADINGS = {level: f"{'#' * level} " for level in (1, 2, 3)}
_ELEMENTS = {
    "": ("<p>", "</p>"),
    _QUOTATION: ("<blockquote><p>", "</p></blockquote>"),
    _VERBATIM: ("<pre><code>", "</code></pre>"),
    **dict.fromkeys(_ITEMS, ("<li>", "")),
    **{kind: (f"<h{level}>", f"</h{level}>") for level, kind in _HEADINGS.items()},
}


def bold(text: str) -> str:
    """Mark text as bold."""
    return f"{_BOLD}{text}{_PLAIN}"


def code(text: str) -> str:
    """Mark text as inline code."""
    return f"{_CODE}{text}{_END}"


def link(text: str, path: str) -> str:
    """Mark text as a link to a file, with a path relative to the page, or to an https URL."""
    return f"{_LINK}{path}{_AT}{text}{_END}"


def paragraph(text: str) -> str:
    """Mark text as a paragraph, the default for the first block of a text."""
    return _build_block("", text)


def heading(level: int, text: str) -> str:
    """Mark text as a heading of level 1, 2 or 3."""
    return _build_block(_HEADINGS[level], text)


def quotation(text: str) -> str:
    """Mark text as a quotation."""
    return _build_block(_QUOTATION, text)


def verbatim(text: str) -> str:
    """Mark the lines of a text as a code block."""
    return _build_block(_VERBATIM, text)


def bullets(lines: Iterable[str], level: int = 1) -> str:
    """Mark sentences as list items; items of level 2 are nested in the preceding item of level 1."""
    return "".join(_build_block(_ITEMS[level - 1], line) for line in lines)


def render_html(*texts: str) -> str:
    """Render texts, each a paragraph or a series of blocks, as HTML."""
    parts, depth = [], 0
    for kind, text in _split_blocks(*texts):
        level = _ITEMS.index(kind) + 1 if kind in _ITEMS else 0
        parts.append("<ul>" * (level - depth) + "</ul>" * (depth - level))
        before, after = _ELEMENTS[kind]
        parts.append(f"{before}{escape(text, quote=False) if kind == _VERBATIM else render_html_line(text)}{after}")
        depth = level
    return "".join(parts) + "</ul>" * depth


def render_markdown(*texts: str) -> str:
    """Render texts, each a paragraph or a series of blocks, as Markdown."""
    parts, before = [], ""
    for kind, text in _split_blocks(*texts):
        parts.append("\n" if before in _ITEMS and kind in _ITEMS else "\n\n")
        lines = text.splitlines() if kind == _VERBATIM else [render_markdown_line(text)]
        parts.append("\n".join(f"{kind}{line}" for line in lines))
        before = kind
    return "".join(parts[1:])


def remove_marks(text: str) -> str:
    """Remove the marks from a text, and join its lines."""
    return re.sub(_MARKS, lambda token: token["code"] or token["link"] or "", _join_lines(text))


def render_html_line(text: str) -> str:
    """Render text as HTML without an enclosing element."""
    return _HTML.sub(_render_html_token, _join_lines(text))


def render_markdown_line(text: str) -> str:
    """Render text as a line of Markdown."""
    return _LINE.sub(_render_markdown_token, _join_lines(text))


def render_markdown_cell(text: str) -> str:
    """Render text for a cell of a Markdown table."""
    return _CELL.sub(_render_markdown_token, _join_lines(text))


def _build_block(kind: str, text: str) -> str:
    return f"{_BLOCK}{kind}{_AT}{text}" if text else ""


def _split_blocks(*texts: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        first, *others = text.split(_BLOCK)
        if first:
            yield "", first
        for other in others:
            kind, _, own = other.partition(_AT)
            yield kind, own


def _join_lines(text: str) -> str:
    return " ".join(str(text).split())


def _render_html_token(token: re.Match) -> str:
    match token.lastgroup, token[token.lastgroup]:
        case "bold", _:
            return "<strong>"
        case "plain", _:
            return "</strong>"
        case "code", text:
            return f"<code>{escape(text, quote=False)}</code>"
        case "link", text:
            return f'<a href="{_build_address(token["path"])}">{render_html_line(text)}</a>'
        case _, sign:
            return escape(sign)


def _build_address(path: str) -> str:
    file, mark, anchor = path.partition(".md#")
    return quote(file, safe="/:" if path.startswith("https://") else "/") + mark + anchor


def _render_markdown_token(token: re.Match) -> str:
    match token.lastgroup, token[token.lastgroup]:
        case "bold" | "plain", _:
            return "**"
        case "code", text:
            ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
            around = f"{ticks} " if "`" in text else ticks
            return f"{around}{text}{around[::-1]}"
        case "link", text:
            return f"[{_LABEL.sub(_render_markdown_token, text)}]({_build_address(token['path'])})"
        case "entity", sign:
            return _ENTITIES[sign]
        case "number", digits:
            return f"{digits}\\"
        case _, signs:
            return f"\\{signs}"
