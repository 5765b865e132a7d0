"""What holds an array: a file of the library's, a service, or chunks in a store; each module here is one backend."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from sbench.studies.arrays.pieces import Piece, Shape

# Of gzip, in all backends.
LEVEL = 4


@dataclass(frozen=True)
class Target:
    """An array: how it is to be, and where.

    Attributes:
        backend: name of the backend.
        shape: of the array and of its chunks.
        dtype: of its values, as numpy writes it.
        compression: none or gzip.
        place: where it is, as the backend names it; credentials are in the environment or in `secrets`.
        protocol: how a service is asked: client, binary or json.
        in_flight: how many requests may be under way for one piece; None is the backend's own default.
        store: the store's entry in the configuration.
        secrets: the name and password of a service that was started for one cell.
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


# Writes the values of a piece, which are acknowledged when it returns.
Write = Callable[[Piece, np.ndarray], None]
# Returns the values of a piece, and the seconds from the request to its first byte where they are known.
Read = Callable[[Piece], tuple[np.ndarray, float | None]]


class Backend(ABC):
    """What holds arrays.

    Attributes:
        shared: clients write to one array; else each to one of its own.
    """

    shared = True

    @abstractmethod
    def open_for_writing(self, target: Target, new: bool) -> AbstractContextManager[Write]:
        """Make a new array and open it for writing, or open one that is there."""

    @abstractmethod
    def open_for_reading(self, target: Target) -> AbstractContextManager[Read]:
        """Open an array that is there for reading."""

    @abstractmethod
    def wait_until_stored(self, target: Target) -> None:
        """Return when all that was acknowledged is stored: on the disk, or in the object store (METHOD 7)."""

    @abstractmethod
    def read_settings(self, target: Target) -> dict:
        """Return "chunks" and "compression" as levels, read back, and what else is in force (METHOD 10)."""

    @abstractmethod
    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return how many objects or files hold the array, and their bytes."""

    @abstractmethod
    def remove_array(self, target: Target) -> None:
        """Remove an array from where objects of others are."""


def get_backend(name: str) -> Backend:
    """Return a backend by its level."""
    return importlib.import_module(f"sbench.studies.arrays.{name}").BACKEND
