"""Explain terms on pages in tooltips, with the definitions in docs/glossary.md."""

import re
from functools import cache
from html import escape
from pathlib import Path

# Glossary terms that pages explain at their first use.
NOUNS = (
    *("A/A pair", "amplification", "battery", "block", "burst credits", "cache state", "ceiling", "edited record"),
    *("emulated network", "family", "harness", "invalid record", "page buffer", "planted slowdown", "segment"),
    *("window",),
)
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| [^|]* \| ([^|]*)\|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
# HTML elements whose content does not get tooltips, or a single tag.
_PARTS = re.compile(r"<(code|a|abbr|button|h[1-3]|pre)\b.*?</\1>|<[^>]*>", re.DOTALL)


@cache
def read_definitions() -> dict[str, str]:
    """Map each term of the glossary, in lower case, to its definition.

    The glossary has the columns "Noun", "Meaning" and "On pages". The last lists a noun's terms; if it is empty, the
    noun itself is the term. Without the file, as in a partial clone, the result is empty and pages have no tooltips.
    """
    definitions, glossary = {}, Path("docs/glossary.md")
    for noun, meaning, words in _ROW.findall(glossary.read_text(encoding="utf-8")) if glossary.exists() else ():
        if noun in NOUNS:
            text = _LINK.sub(r"\1", meaning.replace("`", ""))
            for word in words.replace("`", "").strip().split(", ") if words.strip() else [noun]:
                definitions[word.lower()] = text
    return definitions


def explain_words(html: str, explained: set[str]) -> str:
    """Add a tooltip to each glossary term at its first use. `explained` accumulates the definitions already shown."""
    definitions = read_definitions()
    if not definitions:
        return html
    pattern = "|".join(sorted(map(re.escape, definitions), key=len, reverse=True))

    def add_tooltip(word: re.Match) -> str:
        text = definitions[word[1].lower()]
        if text in explained:
            return word[0]
        explained.add(text)
        return f'<abbr tabindex="0" title="{escape(text)}">{word[0]}</abbr>'

    words = re.compile(rf"(?<!\w)({pattern})(?:s)?(?!\w)", re.IGNORECASE)
    parts, end = [], 0
    for part in _PARTS.finditer(html):
        parts += [words.sub(add_tooltip, html[end : part.start()]), part[0]]
        end = part.end()
    return "".join([*parts, words.sub(add_tooltip, html[end:])])
