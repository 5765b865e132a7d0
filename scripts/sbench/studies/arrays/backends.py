"""Storage backends for arrays: an HDF5 file, a service (HSDS) or chunks in a store (Zarr).

Each backend is a module of this package with a `BACKEND` object.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from sbench.studies.arrays.pieces import Piece, Shape

# The gzip compression level in all backends.
LEVEL = 4


@dataclass(frozen=True)
class Target:
    """The properties and location of an array.

    Attributes:
        backend: name of the backend.
        shape: shape of the array and its chunks.
        dtype: numpy dtype of the array, such as "float32".
        compression: "none" or "gzip".
        place: location of the array, with keys that depend on the backend. Credentials are in environment variables
            or in `secrets`.
        protocol: protocol for access to a service: "client" (its client library), "binary" or "json".
        in_flight: maximum number of concurrent requests for one piece; None for the backend's default.
        store: the store's entry in the configuration.
        secrets: user name and password for a service that is started for a single cell.
    """

    backend: str
    shape: Shape
    dtype: str
    compression: str
    place: Mapping[str, str]
    protocol: str = "client"
    in_flight: int | None = None
    store: Mapping = field(default_factory=dict)
    secrets: tuple[str, str] = ("", "")


# Writes the values of a piece and returns once the write is acknowledged.
Write = Callable[[Piece, np.ndarray], None]
# Returns the values of a piece and the time to first byte in seconds, or None if unknown.
Read = Callable[[Piece], tuple[np.ndarray, float | None]]


class Backend(ABC):
    """Base class of the array backends.

    Attributes:
        shared: whether all clients write to the same array; if False, each client writes to a separate array.
    """

    shared = True

    @abstractmethod
    def open_for_writing(self, target: Target, new: bool) -> AbstractContextManager[Write]:
        """Open an array for writing, or create it if `new` is true."""

    @abstractmethod
    def open_for_reading(self, target: Target) -> AbstractContextManager[Read]:
        """Open an existing array for reading."""

    @abstractmethod
    def wait_until_stored(self, target: Target) -> None:
        """Wait until all acknowledged values are durable, on disk or in the object store (METHOD 7)."""

    @abstractmethod
    def read_settings(self, target: Target) -> dict:
        """Read back and return the settings in force (METHOD 10).

        "chunks" and "compression" are written as in the study's configuration; other keys depend on the backend.
        """

    @abstractmethod
    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return how many objects or files store the array, and their total size in bytes."""

    @abstractmethod
    def remove_array(self, target: Target) -> None:
        """Remove the array's objects, and no others, from its store."""


def get_backend(name: str) -> Backend:
    """Import and return the backend with this name."""
    return importlib.import_module(f"sbench.studies.arrays.{name}").BACKEND
