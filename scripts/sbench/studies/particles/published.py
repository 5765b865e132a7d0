"""Convert the published timings, each the mean of seven runs, to records of the study with a single repeat."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from sbench.studies.particles import printed
from sbench.studies.particles.methods import METHODS
from sbench.studies.particles.snapshots import PRESETS

FILE = "timings_from_notebook.csv"
BYTES = 4  # per particle: the density is stored as float32


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record per published timing."""
    for row in printed.read_printed(files[FILE]):
        particles, rereads = printed.LISTS[row["chunks"]]
        listed = int(particles) * int(rereads)
        # Dask runs equal pure tasks only once. Without repeated chunks, all tasks differ.
        pure = METHODS[row["method"]].pure
        distinct = next(chunks for amount, _, chunks in PRESETS.values() if str(amount) == particles)
        cell = printed.AS_PUBLISHED | {
            **{"library": "published", "store": "disk", "particles": particles, "rereads": rereads},
            **{"operation": row["operation"], "method": "futures" if pure and rereads == "1" else row["method"]},
            **{"workers": printed.WORKERS, "threads": printed.THREADS, "cache": "any"},
        }
        sample = {
            **{"iteration": 1, "iteration_s": row["mean_s"], "chunks": distinct if pure else row["chunks"]},
            **{"listed": row["chunks"], "particles_listed": listed, "empty_s": math.nan, "read_s": math.nan},
        }
        work = {"logical_bytes": BYTES * int(particles) * (1 if pure else int(rereads))}
        yield {"cell": cell, "repeat": 1, "seconds": {"total": row["mean_s"]}, "work": work, "samples": [sample]}
