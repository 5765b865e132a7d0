"""Recomputes what a table prints from the parts that it follows from.

A printed number stands for all numbers that it could have been rounded from: within half of its last digit. Of
the parts that a number is computed from, whole ones are what they are: sizes and counts.
"""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import csv_file
from sbench.probe.program import Problem

# The columns of derived.csv: which column of which table follows from which expression.
# Expressions know columns and nothing of this program, whose local variables pandas cannot read on Python 3.13.0.
COLUMNS_ALONE = {"engine": "python", "local_dict": {}, "global_dict": {}}
RULE = ("table", "column", "expression")
# A number at the beginning of a text, such as 2560 of "2560(~2.5 TiB)".
_NUMBER = r"^\s*(-?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?)"
_NAME = re.compile(r"`([^`]+)`")
# What double precision loses over a few operations.
_PRECISION = 1e-9
# So many texts are taken apart at a time.
_ROWS = 100_000


def parse_numbers(texts: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the numbers that texts begin with, NaN where there is none, and half of the last digit of each."""
    pieces = [_parse_piece(texts.iloc[first : first + _ROWS]) for first in range(0, max(1, len(texts)), _ROWS)]
    return tuple(pd.concat(parts) for parts in zip(*pieces, strict=True))


def _parse_piece(texts: pd.Series) -> tuple[pd.Series, pd.Series]:
    # Most texts of a column are there many times.
    codes, unique = pd.factorize(texts.astype(str), use_na_sentinel=False)
    parts = pd.Series(unique).str.extract(_NUMBER)
    digits = parts[1].str.len().fillna(0) - parts[2].fillna("0").astype(int)
    values, halves = parts[0].astype(float), 0.5 * 10.0**-digits
    return tuple(pd.Series(one.to_numpy()[codes], texts.index, name=texts.name) for one in (values, halves))


def select_disagreeing(printed: pd.DataFrame, column: str, expression: str) -> pd.DataFrame:
    """Return the rows whose number in `column` does not follow from an expression of others, even if all were rounded.

    Args:
        printed: a table as it is printed, all of it text.
        column: what is printed.
        expression: of `columns in backquotes`, as pandas evaluates it.

    Returns:
        The rows that disagree, with `printed`, `recomputed` (of the numbers as printed), `least` and `most` (of all
        that they could have been) and `percent`, printed against recomputed.

    Raises:
        Problem: the table lacks a column.
    """
    names = list(dict.fromkeys(_NAME.findall(expression)))
    if missing := [name for name in (column, *names) if name not in printed]:
        raise Problem(f"there is no column {missing[0]} among {', '.join(printed)}")
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
    """Return for each rule in a file whose table is there how many cells were recomputed, and those that disagree.

    A study none of whose figures follow from others has no such file.

    Returns:
        One row per cell that disagrees, and one without a `row` per rule with none: table, column, expression, cells,
        row (what the table's first column has), and as `select_disagreeing`.
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
