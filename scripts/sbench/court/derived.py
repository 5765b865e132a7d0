"""Recompute derived numbers in a printed table, such as rates, from the columns that they were computed from.

A printed number represents all numbers that round to it, within half a unit of its last digit. Integers among the
inputs of an expression are exact, because they are sizes and counts.
"""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import csv_file
from sbench.probe.program import Problem

# Expressions can use columns only, because pandas cannot access local variables on Python 3.13.0.
COLUMNS_ALONE = {"engine": "python", "local_dict": {}, "global_dict": {}}
# Columns of derived.csv: a table, a column in it, and the expression from which the column follows.
RULE = ("table", "column", "expression")
# A number at the beginning of a string, such as 2560 in "2560(~2.5 TiB)".
_NUMBER = r"^\s*(-?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?)"
_NAME = re.compile(r"`([^`]+)`")
# Bound on the relative error of a few floating-point operations.
_PRECISION = 1e-9
# Number of strings to parse at a time.
_ROWS = 100_000


def parse_numbers(texts: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Parse the number at the beginning of each string.

    Returns:
        The numbers (NaN if there is none), and half a unit of the last digit of each.
    """
    pieces = [_parse_piece(texts.iloc[first : first + _ROWS]) for first in range(0, max(1, len(texts)), _ROWS)]
    return tuple(pd.concat(parts) for parts in zip(*pieces, strict=True))


def _parse_piece(texts: pd.Series) -> tuple[pd.Series, pd.Series]:
    # Parse each distinct string once, because most strings in a column are repeated.
    codes, unique = pd.factorize(texts.astype(str), use_na_sentinel=False)
    parts = pd.Series(unique).str.extract(_NUMBER)
    digits = parts[1].str.len().fillna(0) - parts[2].fillna("0").astype(int)
    values, halves = parts[0].astype(float), 0.5 * 10.0**-digits
    return tuple(pd.Series(one.to_numpy()[codes], texts.index, name=texts.name) for one in (values, halves))


def select_disagreeing(printed: pd.DataFrame, column: str, expression: str) -> pd.DataFrame:
    """Select the rows in which a printed number differs from the recomputed one by more than rounding can explain.

    Args:
        printed: printed table; all values are strings.
        column: column of the printed number.
        expression: pandas expression with `column names in backquotes`.

    Returns:
        The rows that disagree, with these additional columns: `printed`; `recomputed` from the inputs as printed;
        `least` and `most`, the range over all inputs that round to the printed inputs; `percent`, the deviation of
        `printed` from `recomputed`.

    Raises:
        Problem: the table lacks a column.
    """
    names = list(dict.fromkeys(_NAME.findall(expression)))
    if missing := [name for name in (column, *names) if name not in printed]:
        raise Problem(f"column {missing[0]} is missing; the table has {', '.join(printed)}")
    values, halves = zip(*(parse_numbers(printed[name]) for name in names), strict=True)
    halves = [half.where(half != 0.5, 0.0) for half in halves]
    corners = [
        _compute_expression(expression, names, map(_add_halves, values, halves, signs))
        for signs in itertools.product((-1, 1), repeat=len(names))
    ]
    recomputed = _compute_expression(expression, names, values)
    least, most = np.min(corners, axis=0), np.max(corners, axis=0)
    shown, half = parse_numbers(printed[column])
    slack = half + _PRECISION * recomputed.abs()
    table = printed.assign(printed=shown, recomputed=recomputed, least=least, most=most)
    table["percent"] = 100 * (shown / recomputed - 1)
    apart = (shown + slack < least) | (shown - slack > most)
    return table[apart & shown.notna() & recomputed.notna()].reset_index(drop=True)


def judge_derived(path: Path, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Recompute the derived columns that a file lists, and return the printed values that disagree.

    Args:
        path: derived.csv, with a table, a column and an expression per row. It may be missing, because not all studies
            print derived numbers.
        tables: printed tables by name; rows of `path` for other tables are ignored.

    Returns:
        One row per value that disagrees, or one row without `row` for a derived column without such values. Columns:
        table, column, expression, cells (number of values recomputed), row (name and value of the table's first
        column), and the columns of `select_disagreeing`.
    """
    parts = []
    rules = csv_file.read_table(path, dict.fromkeys(RULE, csv_file.TEXT)).to_dict("records") if path.exists() else []
    for rule in rules:
        if rule["table"] in tables:
            table = tables[rule["table"]]
            wrong = select_disagreeing(table, rule["column"], rule["expression"])
            wrong["row"] = table.columns[0] + " " + wrong[table.columns[0]]
            shown = wrong[["row", "printed", "recomputed", "least", "most", "percent"]]
            count = int(parse_numbers(table[rule["column"]])[0].notna().sum())
            parts.append((shown if len(shown) else shown.reindex([0])).assign(**rule, cells=count))
    columns = [*RULE, "cells", "row", "printed", "recomputed", "least", "most", "percent"]
    return pd.concat([pd.DataFrame(columns=columns), *parts])[columns] if parts else pd.DataFrame(columns=columns)


def _add_halves(values: pd.Series, halves: pd.Series, sign: int) -> pd.Series:
    return values + sign * halves


def _compute_expression(expression: str, names: list[str], values) -> pd.Series:
    return pd.DataFrame(dict(zip(names, values, strict=True))).eval(expression, **COLUMNS_ALONE)
