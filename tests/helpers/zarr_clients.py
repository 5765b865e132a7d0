"""Write Zarr stores, or read parts of them over S3, with a request for a marker before each part."""

import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import zarr
from obstore.store import S3Store
from zarr.storage import ObjectStore

# The shape is no multiple of any chunk, so that the last chunks are cut.
SHAPE = (50, 41, 30)
STORES = {
    "v3": {"zarr_format": 3, "chunks": (12, 10, 30)},
    "v2": {"zarr_format": 2, "chunks": (7, 41, 8)},
    "shards": {"zarr_format": 3, "chunks": (5, 10, 5), "shards": (20, 20, 15)},
}


def write_stores(folder: Path) -> None:
    """Write the stores of `STORES`, each with an array `x` in a group `g`."""
    values = np.random.default_rng(1).normal(size=SHAPE)
    for name, options in STORES.items():
        root = zarr.open_group(str(folder / name), mode="w", zarr_format=options["zarr_format"])
        chunks = {key: value for key, value in options.items() if key != "zarr_format"}
        root.create_group("g").create_array("x", shape=SHAPE, dtype="f8", **chunks)[:] = values


def read_parts(bucket: str, levels: list[str]) -> None:
    """Read the parts of each store through obstore."""
    for name in STORES:
        store = S3Store(bucket, prefix=name)
        array = zarr.open_array(ObjectStore(store, read_only=True), path="g/x", mode="r")
        for number, level in enumerate(levels):
            try:
                store.get(f"marker-{name}-{number}")
            except FileNotFoundError:
                array[eval(f"np.s_{level}")]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "write":
        write_stores(Path(sys.argv[2]))
    else:
        read_parts(os.environ["SBENCH_BUCKET"], json.loads(sys.argv[2]))
