"""Settings of the blobs study: of a cell, as passed to the measuring program, and of a whole run."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell's factors, as strings."""

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
    """The settings of the generated objects of one size.

    Attributes:
        objects: number of objects.
        copy: level of the control that reads another copy of the objects; an empty string for all other cells.
    """

    size: str
    objects: int
    seed: int
    part_size: str | None = None
    copy: str = ""


@dataclass(frozen=True)
class Mpi:
    """The settings that determine how MPI processes are started. By default, they run on this machine.

    Attributes:
        launcher: command line of the launcher.
        hostfile: path of the hostfile.
        library: name or path of the MPI library, if it is not the bundled one.
    """

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
    launches: int = 1


@dataclass(frozen=True)
class Section:
    """The study's section of a configuration.

    `iterations` and `time_limit_s` are each a number for all object sizes, or a mapping from size to number. `data`
    contains the settings of the generated objects.
    """

    data: dict
    iterations: int | dict[str, int]
    time_limit_s: float | dict[str, float]
    compare: list[dict]
    mpi: Mpi
