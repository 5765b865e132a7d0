"""The requests of cells, one by one, and the fewest that would have brought the same bytes (METHOD 11)."""

import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from scripts.frame import records
from scripts.stores.servers import EXCHANGE

COLUMNS = (
    *("cell", "repeat", "connection", "method", "object", "offset_bytes", "length_bytes", "bytes", "status"),
    *("begin_s", "first_s", "end_s"),
)


def table(kept: Iterable[records.Kept]) -> pd.DataFrame:
    """Return the requests of each cell as one of its records has them; no rows where none were recorded.

    Returns:
        `COLUMNS`: offset and length as the range of the request asks for them, missing without a range; bytes of the
        answer; seconds since the window opened when the request began, and its first and its last byte came.
    """
    folders = {one.cell: one.path.parent for one in kept}
    frames = [frame for cell, folder in folders.items() for frame in _read(cell, folder / records.REQUESTS)]
    if not frames:
        return pd.DataFrame(columns=COLUMNS)
    rows = pd.concat(frames, ignore_index=True)
    ends = rows["range"].astype("string").str.extract(r"bytes=(\d+)-(\d+)").astype("Int64")
    rows = rows.assign(offset_bytes=ends[0], length_bytes=ends[1] - ends[0] + 1)
    return rows.rename(columns={"path": "object", **{name: f"{name}_s" for name in ("begin", "first", "end")}})[
        list(COLUMNS)
    ]


def _read(cell: str, path: Path) -> Iterator[pd.DataFrame]:
    """Yield the requests in a file, if there is one; of one that is damaged a line says that it is left out."""
    if path.is_file():
        try:
            yield pd.read_csv(path, dtype={"status": str})[["repeat", *EXCHANGE]].assign(cell=cell)
        except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
            print(f"left out: {path} holds no requests ({error})", file=sys.stderr)


def brought(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the answers with bytes of a range, in the order of objects and of their bytes."""
    return rows[(rows["bytes"] > 0) & rows["offset_bytes"].notna()].sort_values(["object", "offset_bytes"])


def least(rows: pd.DataFrame) -> tuple[int, int]:
    """Return the fewest requests that would have brought the bytes that came, each once, and how many bytes these are.

    One request brings one stretch of an object without a gap.
    """
    rows = brought(rows)
    stretches = total = 0
    for _, own in rows.groupby("object", sort=False):
        ends = (own["offset_bytes"] + own["bytes"]).cummax()
        before = ends.shift(fill_value=-1)
        stretches += int((own["offset_bytes"] > before).sum())
        total += int((ends - own["offset_bytes"].where(own["offset_bytes"] > before, before)).clip(lower=0).sum())
    return stretches, total
