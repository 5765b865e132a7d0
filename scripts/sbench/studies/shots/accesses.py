"""Parse the option --access, which describes the reads of an application."""

import re
from dataclasses import dataclass

from sbench.probe.program import Problem
from sbench.studies.shots import selection

UNITS = ("files", "datasets")
_LEVEL = re.compile(r"all|metadata|1/[1-9][0-9]{0,8}|\[[-0-9:., ]+\]")
_SHARE = re.compile(r"(.*?)\s*\b(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True)
class Accesses:
    """The mix of reads of an application. Each kind of read selects a part of every dataset.

    Attributes:
        unit: whether an operation reads a file ("files") or a dataset ("datasets"), a level of the factor `access`.
        shares: share of all reads, keyed by level of the factor `selection`. The shares add up to 1.
    """

    unit: str
    shares: dict[str, float]


def parse_accesses(text: str) -> Accesses:
    """Parse a description such as "files [:, 0] 70 %; all 30 %". Without percentages, the shares are equal.

    Raises:
        Problem: the text is malformed, or its shares do not add up to 100 %.
    """
    unit, _, rest = text.strip().partition(" ")
    unit, rest = (unit, rest) if unit in UNITS else (UNITS[0], text)
    shares: dict[str, float | None] = {}
    for part in rest.split(";"):
        match = _SHARE.fullmatch(part.strip())
        level, share = (match[1], float(match[2])) if match else (part.strip(), None)
        level = level or selection.ALL
        if not _LEVEL.fullmatch(level) or selection.find_mistake(level):
            raise Problem(
                f"an access must be files or datasets, then all, metadata, [0:100, ...] or 1/10 (got {text!r});"
                " separate several"
                " by semicolons, with shares, as in --access 'files [0:100, ...] 70 %; all 30 %'"
            )
        if level in shares:
            raise Problem(f"{text!r} contains {level} twice; merge the two shares")
        shares[level] = share
    return Accesses(unit, _resolve_shares(text, shares))


def _resolve_shares(text: str, shares: dict[str, float | None]) -> dict[str, float]:
    given = [share for share in shares.values() if share is not None]
    if not given:
        return dict.fromkeys(shares, 1 / len(shares))
    if len(given) < len(shares) or not 99 <= sum(given) <= 101 or 0 in given:
        raise Problem(f"the shares in {text!r} must add up to 100 %; give each access a share, such as 70 %")
    return {level: share / sum(given) for level, share in shares.items()}
