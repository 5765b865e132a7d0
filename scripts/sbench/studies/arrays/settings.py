"""The settings of a cell of the arrays study, as passed to the program that measures it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The levels of a cell's factors, as strings."""

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
    """The settings of the generated array, and `part_size`, the part size for multipart uploads to object stores."""

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
        rdcc_nbytes: size of HDF5's chunk cache per dataset, in bytes.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    rdcc_nbytes: int
