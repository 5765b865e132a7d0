"""Store arrays as Zarr (format version 3), with one file or object per chunk, accessed through obstore."""

import contextlib
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import GzipCodec
from zarr.storage import ObjectStore

from sbench.probe.program import sync_path
from sbench.stores import objects
from sbench.studies.arrays import backends
from sbench.studies.arrays.backends import LEVEL, Read, Target, Write
from sbench.studies.arrays.pieces import Piece


class Zarr(backends.Backend):
    """An array in Zarr format: one object or file per chunk, and a small one for the metadata."""

    @contextlib.contextmanager
    def open_for_writing(self, target: Target, new: bool) -> Iterator[Write]:
        """Create the array, or open it by reading its metadata. Chunks of a piece are written concurrently."""
        with _set_in_flight(target):
            array = _create_array(target) if new else zarr.open_array(_open_store(target), mode="r+")

            def write_piece(piece: Piece, values: np.ndarray) -> None:
                array[piece.slices] = values

            yield write_piece

    @contextlib.contextmanager
    def open_for_reading(self, target: Target) -> Iterator[Read]:
        """Open the array by reading its metadata. Chunks of a piece are read concurrently."""
        with _set_in_flight(target):
            array = zarr.open_array(_open_store(target), mode="r")
            yield lambda piece: (array[piece.slices], None)

    def wait_until_stored(self, target: Target) -> None:
        """Sync files to disk. In an object store, acknowledged values are already durable."""
        sync_files(target)

    def read_settings(self, target: Target) -> dict:
        """Return the array's chunk shape and compression, the versions, and the limit on requests in flight."""
        array = zarr.open_array(_open_store(target), mode="r")
        with _set_in_flight(target):
            in_flight = zarr.config.get("async.concurrency")
        return {
            "chunks": "x".join(map(str, array.chunks)),
            "compression": "gzip" if any(isinstance(one, GzipCodec) for one in array.compressors) else "none",
            **{"zarr": zarr.__version__, "obstore": version("obstore"), "concurrency": in_flight},
        }

    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return the number of objects, including the array's metadata, and their total size in bytes."""
        return objects.count_objects(objects.open_store(target.place, target.store))

    def remove_array(self, target: Target) -> None:
        """Remove all objects of the array."""
        objects.remove_objects(objects.open_store(target.place, target.store))


def sync_files(target: Target) -> None:
    """Sync all files and directories of an array to disk; do nothing if it is in an object store."""
    for folder, _, names in os.walk(target.place.get("folder", "")):
        for name in (*names, "."):
            sync_path(Path(folder, name))


def _create_array(target: Target) -> zarr.Array:
    shape, gzip = target.shape, target.compression == "gzip"
    return zarr.create_array(
        _open_store(target),
        shape=(shape.rows, shape.columns),
        chunks=(shape.chunk_rows, shape.chunk_columns),
        dtype=target.dtype,
        compressors=GzipCodec(level=LEVEL) if gzip else None,
        filters=None,
    )


def _open_store(target: Target) -> ObjectStore:
    return ObjectStore(objects.open_store(target.place, target.store))


def _set_in_flight(target: Target) -> contextlib.AbstractContextManager:
    return zarr.config.set({"async.concurrency": target.in_flight} if target.in_flight else {})


BACKEND = Zarr()
