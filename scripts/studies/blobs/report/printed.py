"""Tables as studies print them, sizes in rows, latency and bandwidth of each store in columns; and their audit."""

import re
from pathlib import Path

import pandas as pd

from scripts.lib import sizes
from scripts.lib.program import Problem
from scripts.report.inputs import opened

COLUMNS = ["pattern", "size", "store", "latency", "bandwidth"]
PROCESSES = 20  # of the published study: 5 nodes with 4 processes each
_PATTERNS = {"single": "single-file", "multiple": "multiple-files", "extended": "sections"}
_SIZE = re.compile(r"(?:File|Object) Size ?\((\w+)\)")
_COLUMN = re.compile(r"(?P<store>.+) (?P<value>Latency \(s\)|Bandwidth \(MiB/s\))")


def read(folder: Path) -> pd.DataFrame:
    """Return a folder's printed tables as rows: pattern, size (text), store, latency, bandwidth (both as printed).

    The pattern follows from the file's name: …Single…, …Multiple…, …Extended…. A number that is not there is left out.

    Raises:
        Problem: a file's name tells no pattern, or a column is no latency or bandwidth.
    """
    tables = [
        _table(path, size[1]) for path in sorted(folder.glob("*.csv")) if (size := _SIZE.match(_first_line(path)))
    ]
    cells = pd.concat(tables) if tables else pd.DataFrame(columns=COLUMNS)
    return cells.sort_values("pattern", key=lambda names: names.map([*_PATTERNS.values()].index), kind="stable")


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
    latency, bandwidth = printed["latency"].astype(float), printed["bandwidth"].astype(float)
    half, slack = (
        0.5 * 10.0 ** -printed[name].str.extract(r"\.(\d*)")[0].str.len().fillna(0) for name in ("latency", "bandwidth")
    )
    mib = (
        printed["size"].map(sizes.in_bytes)
        / 2**20
        * (printed["pattern"] == "sections").map({True: 1, False: processes})
    )
    recomputed, least = mib / latency, mib / (latency + half)
    most = (mib / (latency - half)).where(latency > half, float("inf"))
    table = printed.assign(recomputed=recomputed, least=least, most=most, percent=100 * (bandwidth / recomputed - 1))
    return table[(bandwidth + slack < least) | (bandwidth - slack > most)].reset_index(drop=True)


def _table(path: Path, unit: str) -> pd.DataFrame:
    pattern = next((pattern for word, pattern in _PATTERNS.items() if word in path.name.lower()), "")
    if not pattern:
        raise Problem(f"{path}: name the file after its pattern: {', '.join(_PATTERNS)}")
    table = pd.read_csv(opened(path), dtype=str, keep_default_na=False, skipinitialspace=True)
    for column in table.columns[1:]:
        if not _COLUMN.fullmatch(column):
            raise Problem(f"{path}: the column {column!r} is neither a latency in s nor a bandwidth in MiB/s")
    digits = table[table.columns[0]].str.extract(r"^(\d+)")[0]
    stores = dict.fromkeys(_COLUMN.fullmatch(column)["store"] for column in table.columns[1:])
    cells = [
        pd.DataFrame(
            {
                "pattern": pattern,
                "size": digits + unit,
                "store": store,
                "latency": table[f"{store} Latency (s)"].str.strip(),
                "bandwidth": table[f"{store} Bandwidth (MiB/s)"].str.strip(),
            }
        )
        for store in stores
    ]
    rows = pd.concat(cells).sort_index(kind="stable")
    complete = rows[["latency", "bandwidth"]].apply(lambda texts: texts.str.fullmatch(r"[\d.]+")).all(axis=1)
    return rows[complete & rows["size"].notna()]


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline()
