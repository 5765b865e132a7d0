"""The settings of a cell of the particles study, as its measuring program is given them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; cells of one node lack `nodes`, which was added."""

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
    """The snapshot: one that is made, of `particles`, or the user's own `files`, of which `group/field` is read.

    Attributes:
        particles: the level; None where files are the user's own.
        per_file: how many particles a file has on average, where the level is a number.
        part_size: passed on to the stores.
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
        iterations: how often a record loads or reduces.
        rdcc_nbytes: the chunk cache of each dataset in bytes.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    iterations: int
    rdcc_nbytes: int
