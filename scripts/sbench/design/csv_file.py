"""Read a CSV file and check the kind of each value. Error messages name the file, the row and the column."""

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from sbench.probe.program import Problem

TEXT, COUNT, AMOUNT = "a non-empty text", "a whole number", "a number above 0"
# Example of a number with a note: 2560 (~2.5 TiB).
PRINTED = "a number above 0, N/A, or a number with a note in brackets"
# Rows per chunk; only one chunk at a time is in memory both as read and as converted.
_ROWS = 20_000
_OTHERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_table(path: Path, kinds: Mapping[str, str], remedy: str = "", *, printed: bool = False) -> pd.DataFrame:
    """Read a CSV file and check the columns in `kinds` (column name -> `TEXT`, `COUNT`, `AMOUNT` or `PRINTED`).

    Args:
        path: the CSV file.
        kinds: the required columns and their kinds.
        remedy: advice that is appended to error messages.
        printed: return all values as strings, as they are in the file.

    Returns:
        The columns in `kinds`, converted to their kinds, followed by the other columns as strings.

    Raises:
        Problem: the file is unreadable, has no rows, lacks a column, repeats a row, or has a value of the wrong kind.
    """
    end = f"; {remedy}" if remedy else ""
    parts, hashes = [], []
    try:
        with pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, chunksize=_ROWS) as reader:
            for part in reader:
                _expect_columns(path, part, kinds, end)
                hashes.append(pd.util.hash_pandas_object(part, index=False))
                values = {
                    name: _convert_column(path, part[name].str.strip(), kind, end) for name, kind in kinds.items()
                }
                parts.append(part if printed else part.assign(**values))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {str(error).strip()}{end}") from error
    table = pd.concat(parts)
    alike = table[pd.concat(hashes).duplicated(keep=False)]
    if (twice := alike.duplicated()).any():
        raise Problem(f"{path}: row {_find_first_row(twice)} repeats another row{end}")
    return table if printed else table[[*kinds, *(column for column in table if column not in kinds)]]


def _expect_columns(path: Path, table: pd.DataFrame, kinds: Mapping[str, str], end: str) -> None:
    if missing := [column for column in kinds if column not in table]:
        parted = [words for mark, words in _OTHERS.items() if mark in str(table.columns[0])]
        why = f"; separate columns by commas, not {parted[0]}" if parted else f" (found: {', '.join(table.columns)})"
        raise Problem(f"{path} lacks the column {missing[0]}{why}{end}")
    if table.empty:
        raise Problem(f"{path} contains no rows{end}")


def _convert_column(path: Path, values: pd.Series, kind: str, end: str) -> pd.Series:
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
        raise Problem(
            f"{path}: row {_find_first_row(wrong)}, column {values.name}: must be {kind} (got {value!r}){end}"
        )
    return converted.astype("int64") if kind == COUNT else converted


def _find_first_row(flags: pd.Series) -> int:
    """Return the line number of the first flagged row, with the header as line 1."""
    return int(flags.index[flags].to_numpy()[0]) + 2
