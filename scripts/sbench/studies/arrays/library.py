"""Store arrays in HDF5 files, written and read by the HDF5 library itself."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import h5py

from sbench import drivers
from sbench.probe.program import sync_path
from sbench.studies.arrays import backends
from sbench.studies.arrays.backends import LEVEL, Read, Target, Write
from sbench.studies.arrays.pieces import Piece, Shape

if TYPE_CHECKING:
    import numpy as np

DATASET = "array"


def create_dataset(file: h5py.File, shape: Shape, dtype: "np.dtype | str", compression: str) -> h5py.Dataset:
    """Create an empty chunked dataset in an HDF5 file that is open for writing."""
    chunks = (min(shape.chunk_rows, shape.rows), min(shape.chunk_columns, shape.columns))
    options = {"compression": "gzip", "compression_opts": LEVEL} if compression == "gzip" else {}
    return file.create_dataset(DATASET, (shape.rows, shape.columns), dtype, chunks=chunks, track_times=False, **options)


def read_layout(path: Path) -> dict:
    """Read back the shape, chunk shape, compression and stored bytes of the array in an HDF5 file."""
    with h5py.File(path, "r") as file:
        dataset = file[DATASET]
        shape, chunks = ("x".join(map(str, sides)) for sides in (dataset.shape, dataset.chunks))
        stored = {"stored_bytes": dataset.id.get_storage_size()}
        return {"shape": shape, "chunks": chunks, "compression": dataset.compression or "none", **stored}


class Library(backends.Backend):
    """An array in an HDF5 file.

    Each writing client has a separate file, because HDF5 without MPI allows a single writing process per file.
    """

    shared = False

    @contextlib.contextmanager
    def open_for_writing(self, target: Target, new: bool) -> Iterator[Write]:
        """Open the file for writing.

        Written values may remain in the library's and the kernel's caches until the file is closed and synced.
        """
        with h5py.File(target.place["address"], "w" if new else "r+") as file:
            dataset = create_dataset(file, target.shape, target.dtype, target.compression) if new else file[DATASET]

            def write_piece(piece: Piece, values: "np.ndarray") -> None:
                dataset[piece.slices] = values

            yield write_piece

    @contextlib.contextmanager
    def open_for_reading(self, target: Target) -> Iterator[Read]:
        """Open the file with the HDF5 file driver for its store."""
        with contextlib.closing(_open_file(target)) as file:
            yield lambda piece: (file.read(DATASET, piece.slices), None)

    def wait_until_stored(self, target: Target) -> None:
        """Sync the file to disk."""
        sync_path(target.place["address"])

    def read_settings(self, target: Target) -> dict:
        """Return library versions, the file driver's settings in force and, for a local file, the array's layout."""
        with contextlib.closing(_open_file(target)) as file:
            in_force = file.read_settings()
        of_file = read_layout(Path(target.place["address"])) if target.place["driver"] == "sec2" else {}
        return drivers.get_driver(target.place["driver"]).list_versions() | in_force | of_file

    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return 1 and the size of the file in bytes."""
        return 1, Path(target.place["address"]).stat().st_size

    def remove_array(self, target: Target) -> None:
        """Do nothing, because the directory that contains the file is removed later."""


def _open_file(target: Target) -> drivers.File:
    buffer = drivers.parse_page_buffer("unset")
    access = drivers.Access(target.place["driver"], buffer, target.place["rdcc_nbytes"], target.store)
    return drivers.get_driver(target.place["driver"]).open(target.place["address"], access)


BACKEND = Library()
