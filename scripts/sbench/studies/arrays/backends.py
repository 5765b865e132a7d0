"""Backends of arrays: an HDF5 file, a service, or chunks in a store; each backend has a module here."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from sbench.studies.arrays.pieces import Piece, Shape

# Level of gzip in all backends.
LEVEL = 4


@dataclass(frozen=True)
class Target:
    """The properties and the place of an array.

    Attributes:
        backend: name of the backend.
        shape: shape of the array and of its chunks.
        dtype: type of its values, as numpy writes it.
        compression: none or gzip.
        place: place as the backend names it; credentials are in the environment or in `secrets`.
        protocol: protocol of a service: client, binary or json.
        in_flight: most requests in flight for one piece; None for the backend's default.
        store: the store's entry in the configuration.
        secrets: name and password of a service that runs for one cell.
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


# Writes the values of a piece and returns after their acknowledgement.
Write = Callable[[Piece, np.ndarray], None]
# Returns the values of a piece, and the seconds from the request to its first byte if known.
Read = Callable[[Piece], tuple[np.ndarray, float | None]]


class Backend(ABC):
    """A kind of storage for arrays.

    Attributes:
        shared: whether clients write to one array; else each client writes to a separate array.
    """

    shared = True

    @abstractmethod
    def open_for_writing(self, target: Target, new: bool) -> AbstractContextManager[Write]:
        """Open an array for writing; create it if `new`."""

    @abstractmethod
    def open_for_reading(self, target: Target) -> AbstractContextManager[Read]:
        """Open an existing array for reading."""

    @abstractmethod
    def wait_until_stored(self, target: Target) -> None:
        """Wait until all acknowledged values are stored: on the disk, or in the object store (METHOD 7)."""

    @abstractmethod
    def read_settings(self, target: Target) -> dict:
        """Return "chunks" and "compression" as levels, read back, and other settings in force (METHOD 10)."""

    @abstractmethod
    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return the number and the bytes of the objects or files that hold the array."""

    @abstractmethod
    def remove_array(self, target: Target) -> None:
        """Remove the array from a store with other objects."""


def get_backend(name: str) -> Backend:
    """Return a backend by its level."""
    return importlib.import_module(f"sbench.studies.arrays.{name}").BACKEND
