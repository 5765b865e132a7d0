"""The settings of a cell of the blobs study, as its measuring program is given them, and the study's section."""

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
    """The objects of one size, which are generated.

    Attributes:
        objects: how many there are.
        copy: the level of the control that reads another copy of them, "" for all others.
    """

    size: str
    objects: int
    seed: int
    part_size: str | None = None
    copy: str = ""


@dataclass(frozen=True)
class Mpi:
    """How MPI processes are started: by words of a launcher, or on the machines of a hostfile, else on this machine."""

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
    """What a configuration says of the study: one number for all sizes, or one for each; `data` of their objects."""

    data: dict
    iterations: int | dict[str, int]
    time_limit_s: float | dict[str, float]
    compare: list[dict]
    mpi: Mpi
