"""Convert the published tables of parallel reads, with a latency per store and size, to records of the blobs study."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from sbench.pages.run_files import open_cleaned
from sbench.probe import sizes
from sbench.probe.program import Problem

COLUMNS = ["pattern", "size", "store", "latency", "bandwidth"]
PROCESSES = 20  # in the published study: 5 nodes with 4 processes each
# Stores that have different names in the published tables and in the records.
STORES = {"File": "Azure Files"}
# Pattern by a word in the name of the table's file.
_PATTERNS = {"single": "single-file", "multiple": "multiple-files", "extended": "sections"}
_SIZE = re.compile(r"(?:File|Object) Size ?\((\w+)\)")
_COLUMN = re.compile(r"(.+) (?:Latency \(s\)|Bandwidth \(MiB/s\))")


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record for each latency. Its only known factors are store, pattern, size and number of processes."""
    for path in files.values():
        for row in read_table(path).to_dict("records"):
            own = {
                "store": STORES.get(row["store"], row["store"]),
                "pattern": row["pattern"],
                "size": row["size"],
                "processes": str(PROCESSES),
            }
            unknown = dict.fromkeys(("operation_size", "chunk_size", "concurrency"), "")
            # With sections, all processes together read a single object.
            objects = 1 if row["pattern"] == "sections" else PROCESSES
            size, latency = sizes.parse_size(row["size"]) * objects, float(row["latency"])
            sample = {"phase": "read", "iteration": 1, "latency_s": latency, "bytes": size, "rank_s": ""}
            work = {"logical_bytes": size, "timed_bytes": size}
            cell = own | unknown | {"objects": "shared", "cache": "any"}
            yield {"cell": cell, "repeat": 1, "seconds": {"total": latency}, "work": work, "samples": [sample]}


def read_table(path: Path) -> pd.DataFrame:
    """Read a published table.

    Args:
        path: CSV file, with "single", "multiple" or "extended" in its name for the pattern.

    Returns:
        The columns pattern, size, store, latency and bandwidth, all as strings, as printed. Rows that lack a latency or
        bandwidth are omitted.

    Raises:
        Problem: the file's name lacks a pattern, or a column is neither a latency nor a bandwidth.
    """
    table = pd.concat([pd.DataFrame(columns=COLUMNS, dtype=str), *_read_parts(path)])
    return table[table["latency"].str.fullmatch(r"[\d.]+") & table["bandwidth"].str.fullmatch(r"[\d.]+")]


def _read_parts(path: Path) -> list[pd.DataFrame]:
    """Parse a published table, and return a DataFrame with `COLUMNS` for each store.

    The list is empty if the file is not such a table because its first column is not a size.
    """
    lines = open_cleaned(path)
    if not (unit := _SIZE.match(lines.readline())):
        return []
    lines.seek(0)
    pattern = next((pattern for word, pattern in _PATTERNS.items() if word in path.name.lower()), "")
    if not pattern:
        raise Problem(f"{path}: the file must be named after its pattern: {', '.join(_PATTERNS)}")
    table = pd.read_csv(lines, dtype=str, keep_default_na=False, skipinitialspace=True)
    for column in table.columns[1:]:
        if not _COLUMN.fullmatch(column):
            raise Problem(f"{path}: a column must be a latency in s or a bandwidth in MiB/s (got {column!r})")
    printed = {"pattern": pattern, "size": table.iloc[:, 0].str.extract(r"^(\d+)", expand=False) + unit[1]}
    parts = []
    for store in dict.fromkeys(_COLUMN.fullmatch(column)[1] for column in table.columns[1:]):
        heads = {"latency": f"{store} Latency (s)", "bandwidth": f"{store} Bandwidth (MiB/s)"}
        numbers = {name: table.get(head, pd.Series("", table.index)).str.strip() for name, head in heads.items()}
        parts.append(pd.DataFrame(printed | {"store": store} | numbers).dropna())
    return parts
