"""Settings of a cell of the arrays study, as its measuring program receives them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text."""

    library: str
    store: str
    backend: str
    operation: str
    shape: str
    chunks: str
    compression: str
    values: str
    access: str
    protocol: str
    nodes: str
    request_limit: str
    streaming: str
    clients: str
    concurrency: str
    cache: str
    control: str = ""


@dataclass(frozen=True)
class Data:
    """The generated array; `part_size` is passed on to the stores."""

    shape: str
    chunks: str
    compression: str
    values: str
    seed: int
    part_size: str | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a cell.

    Attributes:
        rdcc_nbytes: the library's chunk cache in bytes.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    rdcc_nbytes: int
