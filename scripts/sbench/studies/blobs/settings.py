"""Settings of a cell of the blobs study for its measuring program, and the study's section."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text."""

    store: str
    pattern: str
    size: str
    processes: str
    objects: str
    operation_size: str
    chunk_size: str
    concurrency: str
    cache: str
    nodes: str = "1"
    control: str = ""


@dataclass(frozen=True)
class Data:
    """The generated objects of a size.

    Attributes:
        objects: number of objects.
        copy: level of the control that reads another copy, "" for all others.
    """

    size: str
    objects: int
    seed: int
    part_size: str | None = None
    copy: str = ""


@dataclass(frozen=True)
class Mpi:
    """The start of MPI processes: with a launcher, or on the machines of a hostfile, else on this machine."""

    launcher: Sequence[str] | None = None
    hostfile: str | None = None
    library: str | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a cell."""

    cell: Levels
    data: Data
    store: dict
    seed: int
    iterations: int
    ceiling_rounds: int
    mpi: Mpi


@dataclass(frozen=True)
class Section:
    """The study's section of a configuration: a number for all sizes or a number by size; `data` of the objects."""

    data: dict
    iterations: int | dict[str, int]
    time_limit_s: float | dict[str, float]
    compare: list[dict]
    mpi: Mpi
