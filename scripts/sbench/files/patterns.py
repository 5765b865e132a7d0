"""Parse access patterns of arrays, such as a map or a series at a point, and draw the places that they read."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from sbench.probe.program import Problem
from sbench.studies.shots import accesses as access
from sbench.studies.shots import selection

MAP, SERIES = "map", "series at point"
NAMED = (MAP, SERIES)
# Maximum number of axes of an array.
MOST_AXES = 4


class Pattern(NamedTuple):
    """An access pattern.

    Attributes:
        name: `map` (one index of the first axis), `series at point` (one index of all other axes), or a level of the
            factor `selection`.
        share: share of all reads; the shares of all patterns add up to 1.
    """

    name: str
    share: float

    def build_spans(self, shape: Sequence[int], position: Sequence[float]) -> selection.Place:
        """Return the part of an array to read, as (begin, end, step) per axis.

        Args:
            shape: shape of the array.
            position: for each axis, where the index of a map or of a point is, as a fraction of the axis.
        """
        chosen = [int(fraction * size) for fraction, size in zip(position, shape, strict=False)]
        if self.name in NAMED:
            is_map = self.name == MAP
            return tuple(
                (index, index + 1, 1) if (axis == 0) == is_map else (0, size, 1)
                for axis, (index, size) in enumerate(zip(chosen, shape, strict=True))
            )
        place = next(selection.iter_places(self.name, shape, None), None)
        if place is None:
            raise Problem(f"{self.name} is empty for an array of the shape {tuple(shape)}; choose a larger part")
        return place or tuple((0, size, 1) for size in shape)

    def build_level(self, shape: Sequence[int]) -> str:
        """Return the level of the factor `selection` that reads such a part in the middle of an array."""
        spans = self.build_spans(shape, [0.5] * len(shape))
        return f"[{', '.join(f'{begin}:{end}:{step}' for begin, end, step in spans)}]"


def parse_patterns(texts: Sequence[str], share: str) -> list[Pattern]:
    """Parse the arguments of --access and --share for arrays.

    Args:
        texts: an access pattern, or several separated by semicolons, with or without shares.
        share: percentages such as "70,30"; an empty string for equal shares, or the shares in `texts`.

    Raises:
        Problem: a pattern is unknown or repeated, or the shares do not match the patterns or do not add up to 100.
    """
    names = [part.strip() for text in texts for part in text.split(";") if part.strip()]
    shares = _parse_shares(share, len(names)) if share else None
    if not shares and all(name in NAMED for name in names):
        shares = [1 / len(names)] * len(names) if names else None
    if not shares:
        return _parse_levels(texts)
    patterns = [
        Pattern(name if name in NAMED else _parse_level(name), part) for name, part in zip(names, shares, strict=True)
    ]
    if repeated := [pattern.name for pattern in patterns if names.count(pattern.name) > 1]:
        raise Problem(f"--access names {repeated[0]} twice; merge the two shares")
    return patterns


def _parse_levels(texts: Sequence[str]) -> list[Pattern]:
    """Parse patterns without --share; some of them may be named, and shares may be percentages in the text."""
    standing = {MAP: "[0, ...]", SERIES: "[..., 0]"}
    text = "; ".join(texts)
    for name, level in standing.items():
        text = text.replace(name, level)
    back = {level: name for name, level in standing.items()}
    parsed = access.parse_accesses(text)
    return [Pattern(back.get(level) or _parse_level(level), share) for level, share in parsed.shares.items()]


def _parse_level(text: str) -> str:
    level, *others = access.parse_accesses(text).shares
    if others or level == selection.METADATA or level.startswith("1/"):
        raise Problem(f"with --containers, an access is map, series at point, all or a part [0:100, ...] (got {text})")
    return level


def join_accesses(texts: Sequence[str], share: str) -> str:
    """Join several arguments of --access to a description for `accesses.parse_accesses`.

    Raises:
        Problem: the shares do not match the accesses or do not add up to 100, or an access is for arrays alone.
    """
    parts = [part.strip() for text in texts for part in text.split(";")]
    if named := [part for part in parts if part.split(" ")[0] in ("map", "series")]:
        raise Problem(f"--access {named[0]!r} reads arrays and needs --containers, such as --containers all")
    if not share:
        return "; ".join(texts)
    shares = _parse_shares(share, len(parts))
    return "; ".join(f"{part} {100 * of:g} %".strip() for part, of in zip(parts, shares, strict=True))


def _parse_shares(text: str, number: int) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise Problem(f"--share must be percentages such as 70,30 (got {text})") from None
    if len(shares) != number:
        raise Problem(f"--share has {len(shares)} percentages for {number} accesses; give each --access a percentage")
    if not all(0 < share <= 100 for share in shares) or not math.isclose(sum(shares), 100, abs_tol=0.5):
        raise Problem(f"--share must be positive percentages that add up to 100 (got {text})")
    return [share / sum(shares) for share in shares]
