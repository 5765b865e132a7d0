"""Tables as studies print them: a row a size, latency and bandwidth of each store in columns; and their audit."""

import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from scripts.lib.program import Problem
from scripts.report.inputs import opened

PROCESSES = 20  # of the published study: 5 nodes with 4 processes each
_PATTERNS = {"single": "single-file", "multiple": "multiple-files", "extended": "sections"}
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(?:File|Object) Size ?\((\w+)\)")
_COLUMN = re.compile(r"(.+) (?:Latency \(s\)|Bandwidth \(MiB/s\))")


def files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold such a table."""
    return [path for path in sorted(folder.glob("*.csv")) if _SIZE.match(_first_line(path))]


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """Return printed tables as rows: pattern, size (text), store, latency, bandwidth (both text as printed).

    The pattern follows from the file's name: …Single…, …Multiple…, …Extended…. A number that is not there is left out.

    Raises:
        Problem: a file's name tells no pattern, or a column is no latency or bandwidth.
    """
    rows = []
    for path in paths:
        table = pd.read_csv(opened(path), dtype=str, keep_default_na=False, skipinitialspace=True)
        pattern = next((pattern for word, pattern in _PATTERNS.items() if word in path.name.lower()), "")
        if not pattern:
            raise Problem(f"{path}: name the file after its pattern: {', '.join(_PATTERNS)}")
        unit = _SIZE.match(table.columns[0])[1]
        stores = list(dict.fromkeys(_store(column, path) for column in table.columns[1:]))
        for row in table.to_dict("records"):
            digits = re.match(r"\d+", row[table.columns[0]])
            for store in stores:
                printed = {
                    "latency": row[f"{store} Latency (s)"].strip(),
                    "bandwidth": row[f"{store} Bandwidth (MiB/s)"].strip(),
                }
                if digits and all(re.fullmatch(r"[\d.]+", value) for value in printed.values()):
                    rows.append({"pattern": pattern, "size": f"{digits[0]}{unit}", "store": store, **printed})
    cells = pd.DataFrame(rows, columns=["pattern", "size", "store", "latency", "bandwidth"])
    order = cells["pattern"].map(list(_PATTERNS.values()).index)
    return cells.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def disagreeing(printed: pd.DataFrame, processes: int = PROCESSES) -> pd.DataFrame:
    """Return the printed cells whose bandwidth does not follow from size and latency, even if both were rounded.

    Bandwidth = bytes delivered / latency; each process is given a whole object, or in `sections` all together one. A
    printed number stands for all within half of its last digit.

    Args:
        printed: rows with pattern, size, store, latency and bandwidth as printed (`read`).
        processes: that took part.

    Returns:
        The cells that disagree, in order, with `recomputed` (MiB/s of the printed latency), `least` and `most` (of all
        latencies that the printed one stands for) and `percent`, printed against recomputed.
    """
    rows = []
    for row in printed.to_dict("records"):
        mib = size_in_bytes(row["size"]) / 2**20 * (1 if row["pattern"] == "sections" else processes)
        latency, half = float(row["latency"]), _half(row["latency"])
        least, most = mib / (latency + half), mib / (latency - half) if latency > half else float("inf")
        bandwidth, slack = float(row["bandwidth"]), _half(row["bandwidth"])
        if bandwidth + slack < least or bandwidth - slack > most:
            recomputed = mib / latency
            off = 100 * (bandwidth / recomputed - 1)
            rows.append(row | {"recomputed": recomputed, "least": least, "most": most, "percent": off})
    return pd.DataFrame(rows, columns=[*printed.columns, "recomputed", "least", "most", "percent"])


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size as `read` gives it."""
    digits = re.match(r"\d+", text)[0]
    return int(digits) * _UNITS[text[len(digits) :]]


def _half(text: str) -> float:
    """Half of the last digit of a printed number."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def _store(column: str, path: Path) -> str:
    match = _COLUMN.fullmatch(column)
    if not match:
        raise Problem(f"{path}: the column {column!r} is neither a latency in s nor a bandwidth in MiB/s")
    return match[1]


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline()
