"""Compare the labels in a study's tables and figures with values computed from its data."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pandas as pd
from pandas.api.types import is_numeric_dtype

from sbench.court import claims
from sbench.court.timings import convert_numbers, join_tables
from sbench.design import csv_file
from sbench.pages import prose
from sbench.probe.program import Problem

_KINDS = dict.fromkeys(("label", "where", "correct", "why"), csv_file.TEXT)
COLUMNS = ("label", "where", "says", "computed", "outcome", "correct", "why", "data")
BY_READING = "judged by reading"


def judge_labels(path: Path, module: ModuleType, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Check the labels that a CSV file lists against the data.

    Args:
        path: CSV file with one row per label. `says` is the value that the label states, in the format of a claim's
            printed value, or a text. `function` is the function in `module` that computes this value; if empty, the
            label is judged by reading only.
        module: the study's `published_claims` module.
        tables: the study's tables by name.

    Returns:
        DataFrame with the columns `COLUMNS`.

    Raises:
        Problem: the file cannot be read, or a value cannot be computed.
    """
    labels = csv_file.read_table(path, _KINDS).reindex(columns=[*COLUMNS, "function"]).fillna("")
    for number, label in enumerate(labels.to_dict("records")):
        labels.loc[number, ["computed", "outcome"]] = _judge_label(label, module, tables)
    return labels[list(COLUMNS)]


def _judge_label(label: Mapping[str, str], module: ModuleType, tables: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
    if not label["function"]:
        return "", BY_READING
    what = f"the label {label['label']!r}"
    if not (function := getattr(module, label["function"], None)):
        raise Problem(f"{what} cannot be computed: {module.__name__} lacks the function {label['function']}")
    names = module.claims.get_tables(function)
    if absent := claims.get_absent_table(names, tables):
        return "", f"{claims.UNKNOWN}: {absent} is missing"
    values = claims.compute_values(what, function, names, lambda name: convert_numbers(join_tables(name, tables)))
    values = values.dropna().drop_duplicates()
    if values.empty:
        return "", f"{claims.UNKNOWN}: the table lacks the rows of this label"
    if not is_numeric_dtype(values):
        return prose.format_list(map(str, values)), claims.HOLDS if label["says"] in set(values) else claims.NOT
    fits = claims.parse_printed(label["says"], what).match_values(values)
    return prose.format_span(values, "{:,.6g}".format), claims.HOLDS if fits.all() else claims.NOT
