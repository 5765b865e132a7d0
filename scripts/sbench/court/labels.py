"""Labels of a study that do not say what the data are: what the data say, where an expression computes it."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from sbench.court import claims
from sbench.design import csv_file
from sbench.pages import prose

_KINDS = dict.fromkeys(("label", "where", "correct", "why"), csv_file.TEXT)
COLUMNS = ("label", "where", "says", "computed", "outcome", "correct", "why", "data")
BY_READING = "by reading, not from the data"


def judged(path: Path, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the labels in a file with what is computed, as `COLUMNS`.

    `says` is the value of a label as a claim is printed, or a text; `expression` computes it from `rows` of the tables
    named by `data`, or from nothing but numbers.

    Raises:
        Problem: the file cannot be read, or an expression not be computed.
    """
    labels = csv_file.read(path, _KINDS).reindex(columns=[*COLUMNS, "rows", "expression"]).fillna("")
    for number, label in enumerate(labels.to_dict("records")):
        labels.loc[number, ["computed", "outcome"]] = _judged(label, tables)
    return labels[list(COLUMNS)]


def _judged(label: Mapping[str, str], tables: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
    if not label["expression"]:
        return "", BY_READING
    if absent := [name for name in label["data"].split(" + ") if name and name not in tables]:
        return "", f"{claims.UNKNOWN}: {absent[0]} is not there"
    values = _values(label, tables).dropna().drop_duplicates()
    if values.empty:
        return "", f"{claims.UNKNOWN}: the rows that it is about are not there"
    if not is_numeric_dtype(values):
        return prose.listing(map(str, values)), claims.HOLDS if label["says"] in set(values) else claims.NOT
    fits = claims.parsed(label["says"], label["label"]).of(values)
    return prose.span(values, "{:,.6g}".format), claims.HOLDS if fits.all() else claims.NOT


def _values(label: Mapping[str, str], tables: Mapping[str, pd.DataFrame]) -> pd.Series:
    with claims.computing(f"the label {label['label']!r}"):
        if not label["data"]:
            return pd.Series([float(pd.eval(label["expression"], engine="python"))])
        rows = claims.chosen(claims.typed(claims.united(label["data"], tables)), label["rows"])
        return pd.Series(rows.eval(label["expression"], engine="python") if len(rows) else [])
