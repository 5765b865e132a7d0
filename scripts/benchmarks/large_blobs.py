"""An object of 4 GiB read in sections through real servers by processes that hold little of it."""

from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.blob_cells import cells
from scripts.benchmarks.blobs import grown
from scripts.benchmarks.common import Row, Say

_LEVELS = {"size": ["4GiB"], "operation_size": ["32MiB"], "processes": [2], "concurrency": [2]}


def rows(folder: Path, say: Say, size: str = "4GiB") -> Iterator[Row]:
    """Read the object once by two processes, and once more to verify it; say how fast, and what they held."""
    for cell in cells(folder, say, store=["s3", "azure"], **_LEVELS | {"size": [size]}):
        what = f"{size} in sections from {cell.store['kind']}, two processes"
        say(what)
        record = cell.measure()
        seconds, work = record["seconds"]["total"], record["work"]
        ceiling = next(row for row in record["samples"] if row["phase"] == "ceiling")
        bare = f"bare requests: {ceiling['bytes'] / 2**20 / ceiling['latency_s']:,.0f} MiB/s"
        rate = f"{work['logical_bytes'] / 2**20 / seconds:,.0f} MiB/s"
        yield Row(what, rate, bare, "", "valid", record["valid"])
        yield grown(f"{what}: memory of a process", record)
