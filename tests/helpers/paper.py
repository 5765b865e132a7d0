"""What is torn apart on sheets of paper: headings alone at their foot, captions of pictures alone at their top.

Chromium breaks a table of several sheets wherever one ends, and may leave its caption to the next sheet.
"""

import io
import unicodedata
from base64 import b64decode

from pypdf import PageObject, PdfReader

A4, LETTER, SMALL = (8.27, 11.69), (8.5, 11), (8.27, 7)  # inches
# What stands above something, and below something, as far as paper has it.
HEADS = """(() => {
  const texts = (names) => [...document.querySelectorAll(names)].filter((one) => one.getClientRects().length)
    .map((one) => one.innerText.trim());
  return {above: texts("h1, h2, h3, summary, thead, p:has(+ ul), p:has(+ figure)"),
          below: texts("figure:not(:has(table)) > figcaption")};
})()"""


def torn(printed: str, heads: dict[str, list[str]]) -> list[str]:
    """Return which of `HEADS` are on another sheet of a PDF (base64) than what they belong to."""
    sheets = [_letters(sheet) for sheet in PdfReader(io.BytesIO(b64decode(printed))).pages]
    assert any(_plain(head) in sheet for head in heads["above"] for sheet in sheets), "no heading can be read"
    # The last sheet ends where the page ends, and the first begins where it begins.
    above = [head for head in heads["above"] for sheet in sheets if sheet.endswith(_plain(head))]
    below = [head for head in heads["below"] for sheet in sheets if sheet.startswith(_plain(head)[:50])]
    return above + below


def _letters(sheet: PageObject) -> str:
    """Return the letters of a sheet from its top to its foot."""
    lines: dict[int, list[str]] = {}

    def read(text: str, outer: list[float], inner: list[float], *_: object) -> None:
        height = inner[4] * outer[1] + inner[5] * outer[3] + outer[5]
        lines.setdefault(-round(height), []).append(text)

    sheet.extract_text(visitor_text=read)
    return _plain("".join("".join(lines[height]) for height in sorted(lines)))


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).split())
