"""A table from elsewhere as CSV: each value of its kind, or one line that names the file, the row and the column."""

import io
import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from scripts.lib.program import Problem

# The kinds of a column.
TEXT, COUNT, AMOUNT = "a text", "a whole number", "a number above 0"
# As tables print it: 2560 (~2.5 TiB) is a number with a note.
PRINTED = "a number above 0, N/A, or a number with a note in brackets"
_OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read(path: Path, kinds: Mapping[str, str], remedy: str = "") -> pd.DataFrame:
    """Return the rows of a CSV: the columns that `kinds` names, each of its kind, then all others as text.

    Raises:
        Problem: it cannot be read, has no rows, lacks a column, has a row twice, or a value that is not of its kind.
    """
    end = f"; {remedy}" if remedy else ""
    try:
        text = path.read_text(encoding="utf-8")
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, skipinitialspace=True)
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {str(error).strip()}{end}") from error
    _expect_columns(path, table, kinds, end)
    if (twice := table.duplicated()).any():
        raise Problem(f"{path}: row {_row(twice)} is there twice{end}")
    for column, kind in kinds.items():
        table[column] = _converted(path, table[column].str.strip(), kind, end)
    return table[[*kinds, *(column for column in table if column not in kinds)]]


def _expect_columns(path: Path, table: pd.DataFrame, kinds: Mapping[str, str], end: str) -> None:
    if missing := [column for column in kinds if column not in table]:
        parted = [words for mark, words in _OTHERS.items() if mark in str(table.columns[0])]
        why = f", and is parted by {parted[0]} and not by commas" if parted else f" among {', '.join(table.columns)}"
        raise Problem(f"{path} lacks the column {missing[0]}{why}{end}")
    if table.empty:
        raise Problem(f"{path} has no rows{end}")


def _converted(path: Path, values: pd.Series, kind: str, end: str) -> pd.Series:
    if kind == TEXT:
        wrong, converted = values == "", values
    else:
        bare = values.str.replace(r"\s*\(.*\)$", "", regex=True) if kind == PRINTED else values
        converted = pd.to_numeric(bare, errors="coerce").astype(float)
        whole = (converted >= 0) & (converted % 1 == 0)
        wrong = ~(whole if kind == COUNT else (converted > 0) & (converted < math.inf))
        wrong &= (values != "N/A") | (kind != PRINTED)
    if wrong.any():
        value = values[wrong].iloc[0]
        raise Problem(f"{path}: row {_row(wrong)}, column {values.name}: {value!r} is not {kind}{end}")
    return converted.astype("int64") if kind == COUNT else converted


def _row(flags: pd.Series) -> int:
    """The first row that is flagged, as an editor counts lines: the header is the first."""
    return int(flags.to_numpy().argmax()) + 2
