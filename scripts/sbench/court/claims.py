"""Recompute the values claimed by a study from its tables, and judge whether the claims hold."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pandas as pd

from sbench.court.timings import convert_numbers, format_levels, join_tables
from sbench.design.claim import Claim, Claims
from sbench.pages import prose
from sbench.probe.program import Problem

HOLDS, PARTLY, NOT, UNKNOWN = "holds", "holds in part", "does not hold", "not testable"
COLUMNS = ("id", "kind", "quote", "where", "printed", "unit", "table", "tested_by")
_NUMBER = r"-?\d+(?:\.\d+)?(?:e\d+)?"
_PRINTED = re.compile(rf"(?P<sign>[<>]=?|~?)(?P<low>{_NUMBER})(?:\.\.(?P<high>{_NUMBER}))?")
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Maximum number of rows to list in a judgement.
_MOST = 10


@dataclass(frozen=True)
class Printed:
    """A printed value, range or bound.

    Attributes:
        sign: <, <=, > or >= for a bound, ~ for an approximate value, or an empty string.
        low, high: ends of the range; equal for a single value.
        slack: tolerances of `low` and `high`.
    """

    sign: str
    low: float
    high: float
    slack: tuple[float, float]

    def match_values(self, values: pd.Series) -> pd.Series:
        """Return a boolean mask of the computed values that agree with the printed value."""
        if compare := _COMPARED.get(self.sign):
            return compare(values, self.low)
        return values.between(self.low - self.slack[0], self.high + self.slack[1])

    def has_both_ends(self, values: pd.Series) -> bool:
        """Return whether the computed values reach both ends of the printed range.

        The result is True if the printed value is approximate or not a range.
        """
        ends = ((values.min(), self.low, self.slack[0]), (values.max(), self.high, self.slack[1]))
        return self.sign == "~" or self.low == self.high or all(abs(value - end) <= slack for value, end, slack in ends)


def parse_printed(text: str, where: str) -> Printed:
    """Parse a printed number, range or bound.

    Examples are 386, ~30 (approximately), 4.23..6.91, ~5..6 (anything in between), >5 and <=10.

    Raises:
        Problem: the text is malformed; the message begins with `where`.
    """
    if not (match := _PRINTED.fullmatch(text.strip())):
        raise Problem(f"{where}: the printed value must be a number such as 386, ~30, >5 or 4.23..6.91 (got {text!r})")
    ends = match["low"], match["high"] or match["low"]
    slack = tuple(_compute_slack(end, bool(match["sign"] == "~")) for end in ends)
    return Printed(match["sign"], float(ends[0]), float(ends[1]), slack)


def _compute_slack(text: str, about: bool) -> float:
    """Return the tolerance of a printed number: half a unit of its last digit.

    If the number is approximate (`about`), the last nonzero digit of an integer counts, and the tolerance is at least
    10 %.
    """
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2])
    if about and not digits:
        digits = len(mantissa.rstrip("0")) - len(mantissa)
    half = 0.5 * 10.0 ** (int(exponent or 0) - digits)
    return max(half, abs(float(text)) / 10) if about else half


def judge_claims(claims: Claims, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Judge the claims of a study.

    Args:
        claims: the claims.
        tables: the study's tables by name; all values are strings.

    Returns:
        DataFrame with one row per claim and the columns `COLUMNS`, `outcome` (`HOLDS`, `PARTLY`, `NOT` or `UNKNOWN`),
        `computed` (the formatted values) and `why` (the rows that fulfil the claim, or why it is not testable).

    Raises:
        Problem: the value of a claim cannot be computed, for instance because a table lacks a column.
    """
    numbered = cache(lambda name: convert_numbers(join_tables(name, tables)))
    rows = []
    for claim in claims:
        absent = get_absent_table(claim.tables, tables)
        judgement = _build_unknown(f"{absent} is missing or incomplete") if absent else _judge_claim(claim, numbered)
        rows.append(vars(claim) | {"table": " + ".join(claim.tables.values())} | judgement)
    return pd.DataFrame(rows, columns=[*COLUMNS, "outcome", "computed", "why"])


def get_absent_table(names: Mapping[str, str], tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the name of the first required table that is missing, or an empty string if all are available.

    `names` maps parameters to table names; `tables` contains the available tables.
    """
    parts = (part for name in names.values() for part in name.split(" + "))
    return next((part for part in parts if part not in tables), "")


def compute_values(
    what: str, function: Callable, names: Mapping[str, str], numbered: Callable[[str], pd.DataFrame]
) -> pd.Series | None:
    """Call a function with the tables that its parameters name, and return its values.

    Args:
        what: beginning of error messages.
        function: function of DataFrames that returns a number, a Series or None.
        names: name of the table for each parameter.
        numbered: returns the table with a given name, with numeric columns converted to numbers.

    Returns:
        The values as a Series, or None if the function returns None.

    Raises:
        Problem: the function fails.
    """
    frames = {parameter: numbered(name) for parameter, name in names.items()}
    try:
        values = function(**frames)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise Problem(f"{what} cannot be computed from {' and '.join(names.values())}: {why}") from error
    return values if values is None or isinstance(values, pd.Series) else pd.Series([float(values)])


def _judge_claim(claim: Claim, numbered: Callable[[str], pd.DataFrame]) -> dict[str, str]:
    values = compute_values(claim.id, claim.compute, claim.tables, numbered)
    if values is None:
        cause = claim.kind == "explains"
        why = "an explanation; the published data cannot test it" if cause else "no published data"
        return _build_unknown(f"{why}; this project tests it in {claim.tested_by}" if claim.tested_by else why)
    printed, values = parse_printed(claim.printed, claim.id), values.dropna()
    if values.empty:
        return _build_unknown(f"{' + '.join(claim.tables.values())} lacks the rows of this claim")
    fits = printed.match_values(values)
    ends = [prose.format_number(value) for value in dict.fromkeys((values.min(), values.max()))]
    judgement = {"computed": " to ".join(dict.fromkeys(ends)), "why": ""}
    if printed.low != printed.high and printed.sign != "~":
        return judgement | {"outcome": HOLDS if fits.all() and printed.has_both_ends(values) else NOT}
    if fits.all() or not fits.any():
        return judgement | {"outcome": HOLDS if fits.all() else NOT}
    return judgement | {"outcome": PARTLY, "why": _name_rows(fits)}


def _name_rows(fits: pd.Series) -> str:
    """Describe for which rows a claim holds: "only for …", "except for …", or their number if the list is too long."""
    levels = fits.index.to_frame(index=False)
    levels = levels[[name for name in fits.index.names if name and levels[name].nunique() > 1]]
    for scope, rows in (("only for", fits), ("except for", ~fits)):
        named = dict.fromkeys(map(format_levels, levels[rows.to_numpy()].to_numpy()))
        if len(levels.columns) and len(named) <= _MOST:
            return f"{scope} {', '.join(levels)} = {'; '.join(named)}"
    return f"for {fits.sum()} of {len(fits)} values"


def _build_unknown(why: str) -> dict[str, str]:
    return {"outcome": UNKNOWN, "computed": "", "why": why}
