"""Read a run's tables and facts, and escape characters that are not allowed in text from elsewhere."""

import itertools
import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from sbench.pages.declaration import Report
from sbench.pages.markup import FOREIGN
from sbench.probe.program import Problem, escape_text

TEXTS = (
    *("control", "cell", "factor", "baseline", "contender", "omitted", "twin_of", "reasons", "note", "verdict"),
    *("metric", "role", "status", "cache_state", "hdf5", "used_blocks"),
)
ABSENT = {
    "samples": "The table of samples is missing: parts of a repeat are not known.",
    "cells": "The table of cells is missing: failed and invalid cells are not known.",
    "verdicts": "These data lack repeated blocks: differences are shown without verdicts.",
    "matrix": "The table of the matrix is missing: omitted cells are not known.",
}


def read_table(path: Path, texts: Iterable[str]) -> pd.DataFrame:
    """Read a CSV table; a missing or empty file results in an empty DataFrame.

    Args:
        path: the file.
        texts: columns to read as strings; missing values become empty strings.

    Raises:
        Problem: the file is not a readable table.
    """
    try:
        table = pd.read_csv(open_cleaned(path), dtype=dict.fromkeys(texts, str), low_memory=False)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a table: {error}") from error
    return table.assign(**{column: table[column].fillna("") for column in texts if column in table})


def open_cleaned(path: Path) -> StringIO:
    """Return a file's text as a stream, with the characters of `markup.FOREIGN` escaped."""
    return StringIO(clean_value(path.read_text(encoding="utf-8")))


def read_facts(path: Path | str | None) -> dict:
    """Read the facts of a run, escaped as in `open_cleaned`, and omit null values. Without a path, return {}.

    Raises:
        Problem: the file is not readable JSON.
    """
    if not path:
        return {}
    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as JSON: {error}") from error
    facts = clean_value(facts) if isinstance(facts, dict) else {}
    return {key: value for key, value in facts.items() if value is not None}


def clean_value(value: Any) -> Any:
    """Return a JSON value with the characters of `markup.FOREIGN` escaped in all its strings."""
    match value:
        case str():
            return FOREIGN.sub(lambda sign: escape_text(sign[0]), value)
        case list():
            return [clean_value(one) for one in value]
        case dict():
            return {clean_value(key): clean_value(one) for key, one in value.items()}
        case _:
            return value


def read_tables(folder: Path, report: Report, texts: Iterable[str], needed: Iterable[str]) -> dict:
    """Read the tables of a run.

    Args:
        folder: directory of the tables.
        report: declaration of the study.
        texts: columns to read as strings, in addition to the factors and `TEXTS`.
        needed: columns that samples must contain.

    Returns:
        the tables by name, and sentences about missing tables (`absent`). A missing table is empty. Samples have a
            boolean column `valid`, which is true if unknown.

    Raises:
        Problem: the samples lack a needed column.
    """
    columns = (*report.names, *TEXTS, *texts)
    tables = {name: read_table(folder / f"{name}.csv", columns) for name in ABSENT}
    for table, (name, level) in itertools.product(tables.values(), report.added.items()):
        if name not in table and len(table):
            table[name] = level
    samples, verdicts = tables["samples"], tables["verdicts"]
    if len(samples):
        if missing := [column for column in needed if column not in samples]:
            raise Problem(f"{folder / 'samples.csv'} lacks the column {missing[0]}")
        samples["valid"] = is_true(samples["valid"]) if "valid" in samples else True
    for column in (*report.names, "note"):
        if len(verdicts) and column not in verdicts:
            verdicts[column] = ""
    tables["raw"] = read_table(folder / "records.csv", ("cell", "session"))
    tables["looks"] = read_table(folder / "looks.csv", columns)
    tables["requests"] = read_table(folder / "requests.csv", ("cell", "method", "object", "status"))
    return tables | {"absent": tuple(sentence for name, sentence in ABSENT.items() if tables[name].empty)}


def is_true(column: pd.Series) -> pd.Series:
    """Return a mask of the true values in a column of booleans, in any spelling used in CSV files."""
    return column.astype(str).str.lower().eq("true")


def build_absence_problem(folder: Path) -> Problem:
    """Build the exception to raise for a directory that contains neither samples nor cells."""
    return Problem(f"{folder} has neither samples.csv nor cells.csv with rows; measure first")
