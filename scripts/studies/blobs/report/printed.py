"""Tables as studies print them, sizes in rows, latency and bandwidth of each store in columns; and their audit."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from scripts.lib import sizes
from scripts.lib.program import Problem
from scripts.report.inputs import opened

COLUMNS = ["pattern", "size", "store", "latency", "bandwidth"]
PROCESSES = 20  # of the published study: 5 nodes with 4 processes each
_PATTERNS = {"single": "single-file", "multiple": "multiple-files", "extended": "sections"}
_SIZE = re.compile(r"(?:File|Object) Size ?\((\w+)\)")
_COLUMN = re.compile(r"(?P<store>.+) (?P<value>Latency|Bandwidth) \((?:s|MiB/s)\)")


def cells(folder: Path, processes: int = PROCESSES) -> pd.DataFrame:
    """Return the cells of a folder's printed tables: one number each, without interval; see `read`."""
    rows = read(folder)
    return rows.assign(
        cell=rows[["store", "pattern", "size"]].agg("_".join, axis=1) if len(rows) else "",
        processes=str(processes),
        n=1,
        latency_s=rows["latency"].astype(float),
        mib_s=rows["bandwidth"].astype(float),
    ).reset_index(drop=True)


def read(folder: Path) -> pd.DataFrame:
    """Return a folder's printed tables as rows: pattern, size (text), store, latency, bandwidth (both as printed).

    The pattern follows from the file's name: …Single…, …Multiple…, …Extended…. A number that is not there is left out.

    Raises:
        Problem: a file's name tells no pattern, or a column is no latency or bandwidth.
    """
    rows = [row for path in sorted(folder.glob("*.csv")) for row in _rows(path)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.sort_values("pattern", key=lambda names: names.map([*_PATTERNS.values()].index), kind="stable")


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
    objects = printed["pattern"].eq("sections").map({True: 1, False: processes})
    mib = printed["size"].map(sizes.in_bytes) / 2**20 * objects
    recomputed, least = mib / latency, mib / (latency + half)
    most = (mib / (latency - half)).where(latency > half, float("inf"))
    table = printed.assign(recomputed=recomputed, least=least, most=most, percent=100 * (bandwidth / recomputed - 1))
    return table[(bandwidth + slack < least) | (bandwidth - slack > most)].reset_index(drop=True)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the cells of one table; of a file that is none, nothing."""
    lines = opened(path)
    if not (unit := _SIZE.match(lines.readline())):
        return
    lines.seek(0)
    pattern = next((pattern for word, pattern in _PATTERNS.items() if word in path.name.lower()), "")
    if not pattern:
        raise Problem(f"{path}: name the file after its pattern: {', '.join(_PATTERNS)}")
    table = pd.read_csv(lines, dtype=str, keep_default_na=False, skipinitialspace=True)
    for column in table.columns[1:]:
        if not _COLUMN.fullmatch(column):
            raise Problem(f"{path}: the column {column!r} is neither a latency in s nor a bandwidth in MiB/s")
    for row in table.to_dict("records"):
        digits = re.match(r"\d+", row[table.columns[0]])
        stores: dict[str, dict[str, str]] = {}
        for column in table.columns[1:]:
            name = _COLUMN.fullmatch(column)
            stores.setdefault(name["store"], {})[name["value"].lower()] = row[column].strip()
        for store, numbers in stores.items():
            if digits and all(re.fullmatch(r"[\d.]+", number) for number in numbers.values()):
                yield {"pattern": pattern, "size": digits[0] + unit[1], "store": store, **numbers}
