"""Settings of a cell of the particles study for its measuring program."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; cells of a single node lack `nodes`, a factor that was added later."""

    library: str
    store: str
    driver: str
    page_buffer: str
    particles: str
    chunk: str
    rereads: str
    operation: str
    selection: str
    method: str
    workers: str
    threads: str
    pool: str
    memory: str
    cache: str
    nodes: str = "1"
    control: str = ""


@dataclass(frozen=True)
class Data:
    """A generated snapshot of `particles`, or user-supplied `files` with the field `group/field`.

    Attributes:
        particles: level of the factor; None for user-supplied files.
        per_file: mean number of particles per file if the level is a number.
        part_size: setting for the stores.
    """

    particles: str | None = None
    per_file: int = 0
    seed: int = 0
    files: str | None = None
    group: str | None = None
    field: str | None = None
    part_size: str | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a cell.

    Attributes:
        iterations: loads or reductions per record.
        rdcc_nbytes: chunk cache of each dataset in bytes.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    iterations: int
    rdcc_nbytes: int
