"""What a study says in words, computed from the table that it is about: does it hold?

A claim is a row of results/published/<study>/audit/claims.csv: the sentence, its value, and how to compute that.
"""

import contextlib
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from sbench.court import derived
from sbench.design import csv_file
from sbench.pages import prose
from sbench.probe.program import Problem

HOLDS, PARTLY, NOT, UNKNOWN = "holds", "holds only if", "does not hold", "cannot be told"
COLUMNS = (
    *("id", "kind", "quote", "where", "printed", "unit"),
    *("table", "rows", "baseline", "by", "expression", "tested_by"),
)
KINDS = ("compares", "quantifies", "explains")
_NUMBER = r"-?\d+(?:\.\d+)?(?:e\d+)?"
_PRINTED = re.compile(rf"(?P<sign>[<>]=?|~?)(?P<low>{_NUMBER})(?:\.\.(?P<high>{_NUMBER}))?")
_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COLUMN = re.compile(r"`([^`]+)`|(\S+)")
BASE = "base_"
_FEW = 20


@dataclass(frozen=True)
class Printed:
    """A printed value: `sign` is <, <=, >, >=, ~ or "", `low` and `high` its ends, each with what it may be off by."""

    sign: str
    low: float
    high: float
    slack: tuple[float, float]

    def of(self, values: pd.Series) -> pd.Series:
        """Return which of some computed values it can stand for."""
        if compare := _COMPARED.get(self.sign):
            return compare(values, self.low)
        return values.between(self.low - self.slack[0], self.high + self.slack[1])

    def reached(self, values: pd.Series) -> bool:
        """Return whether both ends are there, of what is no range, or only about one, whatever it is."""
        ends = ((values.min(), self.low, self.slack[0]), (values.max(), self.high, self.slack[1]))
        return self.sign == "~" or self.low == self.high or all(abs(value - end) <= slack for value, end, slack in ends)


def read(path: Path) -> list[dict]:
    """Return the claims in a file, each with all `COLUMNS`.

    Raises:
        Problem: it cannot be read, or a claim has no such kind, no such value, or a value and nothing that computes it.
    """
    claims = csv_file.read(path, dict.fromkeys(("id", "kind", "quote"), csv_file.TEXT))
    claims = claims.reindex(columns=COLUMNS).fillna("")
    for number, claim in enumerate(claims.to_dict("records"), 2):
        if claim["kind"] not in KINDS:
            raise Problem(f"{path}: row {number}, column kind: {claim['kind']!r} is none of {', '.join(KINDS)}")
        if claim["expression"]:
            parsed(claim["printed"], f"{path}: row {number}")
    return claims.to_dict("records")


def parsed(text: str, where: str) -> Printed:
    """Return a printed value: 4.23..6.91, ~5..6 (anything between), >5, <=10, ~30 (approximately), or 386.

    Raises:
        Problem: it is none of these; the line begins with `where`.
    """
    if not (match := _PRINTED.fullmatch(text.strip())):
        raise Problem(f"{where}, column printed: {text!r} is no value such as 386, ~30, >5 or 4.23..6.91")
    ends = match["low"], match["high"] or match["low"]
    slack = tuple(_slack(end, bool(match["sign"] == "~")) for end in ends)
    return Printed(match["sign"], float(ends[0]), float(ends[1]), slack)


def _slack(text: str, about: bool) -> float:
    """Half of a number's last digit; of an approximate one, of the last that is not 0, and at least a tenth of it."""
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2])
    if about and not digits:
        digits = len(mantissa.rstrip("0")) - len(mantissa)
    half = 0.5 * 10.0 ** (int(exponent or 0) - digits)
    return max(half, abs(float(text)) / 10) if about else half


def computed(claim: Mapping[str, str], tables: Mapping[str, pd.DataFrame]) -> pd.Series:
    """Return the values of a claim's expression, named after what tells the rows apart that they are of.

    With a baseline there is one for each of its rows' and the baseline's combinations that agree in the columns `by`,
    rows that are the same in all that is asked for being one; the baseline's columns begin with `base_`. Without one
    and with `by`, there is one for each group. Without a table it is one, of the numbers in the expression.

    Raises:
        Problem: the table lacks a column, or the expression is none.
    """
    by = [quoted or plain for quoted, plain in _COLUMN.findall(claim["by"])]
    with computing(claim["id"]):
        if not claim["table"]:
            return pd.Series([float(pd.eval(claim["expression"], engine="python"))])
        table = typed(united(claim["table"], tables))
        rows = chosen(table, claim["rows"])
        if by and not claim["baseline"]:
            groups = {called(levels): _value(own, claim["expression"]) for levels, own in rows.groupby(by, sort=False)}
            return pd.Series(groups, dtype=float).rename_axis(", ".join(by))
        if claim["baseline"]:
            rows = _beside(rows, chosen(table, claim["baseline"]), by, claim["expression"])
        values = rows.eval(claim["expression"], engine="python")
    if not isinstance(values, pd.Series):
        return pd.Series([float(values)] if len(rows) else [], dtype=float)
    if len(values) != len(rows):
        raise Problem(f"{claim['id']} cannot be computed: {claim['expression']} is not one value of each row")
    names = [name for name in by if rows[name].nunique() > 1]
    if not names or rows[names].duplicated().any():
        names += [name for name in _telling(rows) if name not in by and rows[name].nunique() > 1]
    levels = [called(levels) for levels in rows[names].to_numpy()]
    return pd.to_numeric(values).astype(float).set_axis(levels).rename_axis(", ".join(names))


@contextlib.contextmanager
def computing(what: str) -> Iterator[None]:
    """Name what an expression is of in a Problem where pandas cannot evaluate it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, NameError, SyntaxError, re.error) as error:
        raise Problem(f"{what} cannot be computed: {error}") from error


def judged(claim: Mapping[str, str], tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return `outcome`, one of four, `computed`, the values in words, and `why`: where it holds, why it is not told."""
    if not claim["expression"]:
        test = f"; tested here: {claim['tested_by']}" if claim["tested_by"] else ""
        cause = claim["kind"] == "explains"
        return _unknown(
            ("a cause, and nothing published tells causes apart" if cause else "no data are published") + test
        )
    if absent := [name for name in claim["table"].split(" + ") if name and name not in tables]:
        return _unknown(f"{absent[0]} is not there, or not all of it")
    values, printed = computed(claim, tables), parsed(claim["printed"], claim["id"])
    if values.isna().all():
        return _unknown(f"the rows of {claim['table']} that it is about are not there")
    fits = printed.of(values)
    ends = [prose.number(value) for value in dict.fromkeys((values.min(), values.max()))]
    judgement = {"computed": " to ".join(dict.fromkeys(ends)), "why": ""}
    if printed.low != printed.high and printed.sign != "~":
        return judgement | {"outcome": HOLDS if fits.all() and printed.reached(values) else NOT}
    if fits.all() or not fits.any():
        return judgement | {"outcome": HOLDS if fits.all() else NOT}
    for said, where in (("", fits), ("all but ", ~fits)):
        rows = list(dict.fromkeys(values.index[where]))
        if len(rows) <= _FEW / 2:
            return judgement | {"outcome": PARTLY, "why": f"{said}{values.index.name} {'; '.join(rows)}"}
    return judgement | {"outcome": PARTLY, "why": f"{fits.sum()} of {len(fits)}"}


def _unknown(why: str) -> dict[str, str]:
    return {"outcome": UNKNOWN, "computed": "", "why": why}


def united(names: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of a name, or those that a plus joins as one, with a column `source`."""
    parts = names.split(" + ")
    if len(parts) == 1:
        return tables[names]
    return pd.concat([tables[name].assign(source=Path(name).stem) for name in parts], ignore_index=True)


def chosen(table: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Return the rows of a table that are so; all of them without a condition."""
    return table.query(condition, engine="python") if condition else table


def _beside(rows: pd.DataFrame, base: pd.DataFrame, by: list[str], expression: str) -> pd.DataFrame:
    # What is asked for, and texts that call a row what it is.
    texts = [name for name in rows if not is_numeric_dtype(rows[name]) and rows[name].nunique() <= _FEW]
    used = [*texts, *(name for name in rows if name in expression)]
    rows, base = (part[list(dict.fromkeys([*by, *used]))].drop_duplicates() for part in (rows, base))
    keys = {"left_on": by, "right_on": [BASE + name for name in by]} if by else {"how": "cross"}
    return rows.merge(base.add_prefix(BASE), **keys)


def _value(rows: pd.DataFrame, expression: str) -> float:
    value = rows.eval(expression, engine="python")
    if isinstance(value, pd.Series):
        if value.nunique() > 1:
            raise ValueError(f"{expression} is several values of a group")
        value = value.iloc[0]
    return float(value)


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of text with numbers as numbers: in columns where most texts begin with one."""
    numbered = table.copy()
    for name in table:
        values, _ = derived.numbers(table[name])
        if values.notna().mean() > 0.5:
            numbered[name] = values
    return numbered


def _telling(rows: pd.DataFrame) -> list[str]:
    """The columns that call a row what it is: texts, else the first."""
    own = [name for name in rows if not name.startswith(BASE)]
    return [name for name in own if not is_numeric_dtype(rows[name])] or own[:1]


def called(levels: object) -> str:
    """Return what a level, or a combination of levels, is called."""
    parts = levels if isinstance(levels, tuple | np.ndarray) else (levels,)
    return ", ".join(f"{level:.10g}" if isinstance(level, float) else str(level) for level in parts)
