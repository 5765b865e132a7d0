"""Printed tables of parallel input: one number per store and size, read as they are printed, and audited."""

import re
from pathlib import Path

import pandas as pd

from scripts.lib import sizes
from scripts.lib.program import Problem
from scripts.report import names
from scripts.report.page import Table
from scripts.report.results import Results, opened
from scripts.studies.blobs.report import MIB

COLUMNS = ["pattern", "size", "store", "latency", "bandwidth"]
PROCESSES = 20  # of the published study: 5 nodes with 4 processes each
# What the name of a printed table's file has of its pattern.
_PATTERNS = {"single": "single-file", "multiple": "multiple-files", "extended": "sections"}
_SIZE = re.compile(r"(?:File|Object) Size ?\((\w+)\)")
_COLUMN = re.compile(r"(.+) (?:Latency \(s\)|Bandwidth \(MiB/s\))")


def cells(folder: Path, processes: object = None) -> pd.DataFrame:
    """Return a folder's printed tables as the rows of cells.csv; `processes` took part, by default as published."""
    rows = read(folder)
    values = {"latency_s": rows["latency"].astype(float), "mib_s": rows["bandwidth"].astype(float)}
    cell = rows["store"] + "_" + rows["pattern"] + "_" + rows["size"]
    return rows.assign(cell=cell, processes=str(processes or PROCESSES), n=1, **values)


def alone(run: Results) -> bool:
    """Return whether a run is printed tables alone: one number per cell, as text in `latency` and `bandwidth`."""
    return "bandwidth" in run.cells


def read(folder: Path) -> pd.DataFrame:
    """Return a folder's printed tables as rows: pattern, size (text), store, latency, bandwidth (both as printed).

    The pattern follows from the file's name: …Single…, …Multiple…, …Extended…. A number that is not there is left out.

    Raises:
        Problem: a file's name tells no pattern, or a column is no latency or bandwidth.
    """
    parts = [part for path in sorted(folder.glob("*.csv")) for part in _parts(path)]
    table = pd.concat([pd.DataFrame(columns=COLUMNS, dtype=str), *parts])
    table = table[table["latency"].str.fullmatch(r"[\d.]+") & table["bandwidth"].str.fullmatch(r"[\d.]+")]
    order = [*_PATTERNS.values()]
    return table.sort_values("pattern", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)


def _parts(path: Path) -> list[pd.DataFrame]:
    """One table as `COLUMNS` for each of its stores; of another file none."""
    lines = opened(path)
    if not (unit := _SIZE.match(lines.readline())):
        return []
    lines.seek(0)
    pattern = next((pattern for word, pattern in _PATTERNS.items() if word in path.name.lower()), "")
    if not pattern:
        raise Problem(f"{path}: name the file after its pattern: {', '.join(_PATTERNS)}")
    table = pd.read_csv(lines, dtype=str, keep_default_na=False, skipinitialspace=True)
    for column in table.columns[1:]:
        if not _COLUMN.fullmatch(column):
            raise Problem(f"{path}: the column {column!r} is neither a latency in s nor a bandwidth in MiB/s")
    printed = {"pattern": pattern, "size": table.iloc[:, 0].str.extract(r"^(\d+)", expand=False) + unit[1]}
    parts = []
    for store in dict.fromkeys(_COLUMN.fullmatch(column)[1] for column in table.columns[1:]):
        heads = {"latency": f"{store} Latency (s)", "bandwidth": f"{store} Bandwidth (MiB/s)"}
        numbers = {name: table.get(head, pd.Series("", table.index)).str.strip() for name, head in heads.items()}
        parts.append(pd.DataFrame(printed | {"store": store} | numbers).dropna())
    return parts


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
    mib = printed["size"].map(sizes.in_bytes) / MIB * objects
    recomputed, least = mib / latency, mib / (latency + half)
    most = (mib / (latency - half)).where(latency > half, float("inf"))
    table = printed.assign(recomputed=recomputed, least=least, most=most, percent=100 * (bandwidth / recomputed - 1))
    return table[(bandwidth + slack < least) | (bandwidth - slack > most)].reset_index(drop=True)


def audit(run: Results) -> Table:
    """Return the printed cells whose bandwidth does not follow from size and latency."""
    if not alone(run) or (wrong := disagreeing(run.cells, int(run.cells["processes"].iloc[0]))).empty:
        return Table("audit", "", pd.DataFrame())
    recomputed, percent = "recomputed / MiB/s", "printed against it / %"
    heads = {"latency": "latency / s", "bandwidth": "bandwidth / MiB/s", "recomputed": recomputed, "percent": percent}
    caption = (
        f"{len(wrong)} of {len(run.cells)} printed bandwidths that do not follow from the size and the latency printed "
        f"beside them ({run.cells['processes'].iloc[0]} processes), even if both were rounded."
    )
    formats = {"size": names.size, recomputed: "{:.3f}".format, percent: "{:+.2f}".format}
    numbers = wrong[[*COLUMNS, "recomputed", "least", "most", "percent"]]
    frame = wrong[["pattern", "size", "store", *heads]].rename(columns=heads)
    return Table("audit", caption, frame, formats, numbers=numbers)
