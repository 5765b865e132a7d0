"""The settings of a cell of the containers study, as passed to the program that measures it."""

from dataclasses import dataclass

# Levels that keep a property of the source, and that leave a setting to the library.
SAME, UNSET = "same", "unset"


@dataclass(frozen=True)
class Levels:
    """The levels of a cell's factors, as strings."""

    library: str
    store: str
    container: str
    access: str
    shape: str
    chunks: str
    compression: str
    files: str
    container_chunks: str
    shard_chunks: str
    codec: str
    client: str
    read_cache: str
    opening: str
    concurrency: str
    threads: str
    coalescing: str
    workers: str
    cache: str
    control: str = ""


@dataclass(frozen=True)
class Data:
    """The settings of the generated files, and `part_size`, the part size for multipart uploads to object stores."""

    shape: str
    chunks: str
    compression: str
    files: str
    seed: int
    part_size: str | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a cell.

    Attributes:
        rdcc_nbytes: size of HDF5's chunk cache per dataset, in bytes.
        page_size: page size of repacked files, such as "1MiB".
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    rdcc_nbytes: int
    page_size: str
