"""Load the rates printed in the published study of HSDS, and compare them with the rates measured here."""

from pathlib import Path

import pandas as pd

from sbench.design import csv_file
from sbench.design.csv_file import AMOUNT, TEXT
from sbench.pages import names
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.probe.program import Problem
from sbench.studies.arrays.report import BACKENDS, OPERATIONS

# The rates printed as MB/s are MiB/s: they match 211,200,000 bytes divided by the printed seconds.
RATES = {"write": "write_MBps", "read": "read_MBps"}
_OF_RATE = ("test", "compression", "machine")
COLUMNS = dict.fromkeys((*_OF_RATE, "backend"), TEXT) | dict.fromkeys(RATES.values(), AMOUNT)
# Shape and protocol of each published test.
TESTS = {"stream_test": ("12000x2200", "binary"), "write_example": ("2200x12000", "client")}
# The article's name for the HDF5 library. Other backends are HSDS, whose name may include the number of nodes.
LIBRARY = "HDF5Lib"
MIB = 2**20
HERE = ("here, as published", "here, stored or cold")
# The published writes were timed until they were acknowledged, and the published reads came from the nodes' memory.
LIKE = {"write": ("acknowledged_rate", "any"), "read": ("rate", "warm")}


def read_printed(path: Path) -> list[dict]:
    """Read the printed rates from a CSV file.

    Returns:
        A dict per rate: "test", "compression", "machine", "backend" and "operation" (named as in this study), and
        "mib_s", the rate in MiB/s.

    Raises:
        Problem: the file cannot be read, lacks a column, or has a row for an unknown test.
    """
    remedy = "correct studies.arrays.published"
    table = csv_file.read_table(path, COLUMNS, remedy)
    if not table["test"].isin(TESTS).all():
        wrong = table.loc[~table["test"].isin(TESTS), "test"].iloc[0]
        raise Problem(f"{path}: column test: must be {' or '.join(TESTS)} (got {wrong!r}); {remedy}")
    return [
        {
            **{name: row[name] for name in _OF_RATE},
            **{"backend": "library" if row["backend"] == LIBRARY else "hsds", "operation": operation},
            "mib_s": row[column],
        }
        for row in table.to_dict("records")
        for operation, column in RATES.items()
    ]


def build_published_table(run: Results) -> Table:
    """Build a table that compares the printed rates with those measured here.

    Each machine of the article has a column. Two more contain the rates measured as the article did (writes until
    acknowledged, reads from memory), and with writes until stored and reads with a cold cache. The table is empty if
    the run has no printed rates.
    """
    printed = pd.DataFrame(run.facts.get("printed") or [])
    if printed.empty:
        return Table("published", "", pd.DataFrame())
    rows = []
    keys = ["test", "compression", "operation", "backend"]
    for (test, compression, operation, backend), some in printed.groupby(keys, sort=False):
        shape, protocol = TESTS[test]
        levels = {"shape": shape, "compression": compression, "operation": operation, "values": "formula"}
        levels |= {"access": "whole", "backend": backend, "protocol": protocol if backend == "hsds" else "client"}
        column, state = LIKE[operation]
        row = {"test": test, "compression": compression, "operation": OPERATIONS[operation]}
        row |= {"backend": BACKENDS[backend], **dict(zip(some["machine"], some["mib_s"], strict=True))}
        honest = levels | {"cache": "any" if operation == "write" else "cold"}
        own = _format_fastest_rate(run, levels | {"cache": state}, column), _format_fastest_rate(run, honest, "rate")
        rows.append(row | dict(zip(HERE, own, strict=True)))
    machines = list(dict.fromkeys(printed["machine"]))
    caption = (
        "Published rates in MiB/s (printed as MB/s) by machine, and rates measured here with the same array. As "
        "published: writes until acknowledged, reads from memory. Stored or cold: writes until stored, reads with a "
        "cold cache."
    )
    frame = pd.DataFrame(rows)[[*keys, *machines, *HERE]]
    return Table("published", caption, frame, dict.fromkeys(machines, names.format_rate))


def _format_fastest_rate(run: Results, levels: dict, column: str) -> str:
    """Format the rate, with its confidence interval, of the fastest cell with these factor levels.

    Returns:
        The formatted rate; an empty string if there is no such cell or it has no rate.
    """
    cells = run.measured
    cells = cells[(cells[list(levels)] == list(levels.values())).all(axis=1)]
    if cells.empty or cells[column].isna().all():
        return ""
    cell = cells.loc[cells[column].idxmax()]
    return names.format_with_interval(*cell[[column, f"{column}_low", f"{column}_high"]])
