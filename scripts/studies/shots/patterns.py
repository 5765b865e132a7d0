"""Patterns of paths in a file, and which groups have paths below them that match."""

import re
from functools import cached_property

from scripts.studies.shots.files import expression

# Any part of a path; a part that ends before a name, entered or not; a part of a name; one character of it.
_ANY, _FOLDERS, _ENTER, _NAME, _ONE = "**", "**/", "", "*", "?"


class Pattern:
    """A pattern that paths match; a `!` before it is no part of it."""

    def __init__(self, text: str) -> None:
        """Take a pattern as users write it."""
        self.text = text.removeprefix("!")
        self._compiled = re.compile(expression(self.text))

    def matches(self, path: str) -> bool:
        """Return whether a path matches."""
        return bool(self._compiled.fullmatch(path))

    def positions_below(self, group: str) -> frozenset[int]:
        """Return the positions in the pattern that the path of a group leads to; none if no path below it matches."""
        positions = self._skip({0})
        for char in f"{group.rstrip('/')}/":
            positions = self._skip({after for position in positions for after in self._after(position, char)})
        # At the end there is no name left to match.
        return frozenset(positions - {len(self._tokens)})

    @cached_property
    def _tokens(self) -> list[str]:
        tokens: list[str] = []
        for part in filter(None, re.split(r"(\*\*/|\*\*|\*|\?)", self.text)):
            tokens += [_ENTER, part] if part == _FOLDERS else [part] if part[0] in "*?" else part
        return tokens

    def _after(self, position: int, char: str) -> list[int]:
        """Return the positions after a character that a position takes."""
        token = self._tokens[position] if position < len(self._tokens) else None
        if token == _ANY or (token == _NAME and char != "/"):
            return [position]
        if token == _FOLDERS:
            return [position, position + 1] if char == "/" else [position]
        return [position + 1] if token == char or (token == _ONE and char != "/") else []

    def _skip(self, positions: set[int]) -> set[int]:
        """Add the positions behind tokens that may match nothing."""
        behind = {_ANY: (1,), _NAME: (1,), _ENTER: (1, 2)}
        rest = list(positions)
        while rest:
            position = rest.pop()
            token = self._tokens[position] if position < len(self._tokens) else None
            more = {position + step for step in behind.get(token, ())} - positions
            positions |= more
            rest += more
        return positions
