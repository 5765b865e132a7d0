"""Settings of a cell of the particles study, as passed to its measuring program."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Levels:
    """The factor levels of a cell. `nodes` was added later, so cells with a single node may lack it."""

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
    """The settings of a snapshot, which is either generated or consists of user-supplied files.

    Attributes:
        particles: name of a preset or number of particles to generate; None for user-supplied files.
        per_file: mean number of generated particles per file, if `particles` is a number.
        seed: seed for the generated values.
        files: path of a user-supplied file or directory.
        group: HDF5 group of the user-supplied particles.
        field: dataset in `group` to read.
        part_size: part size for multipart uploads to object stores.
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
        cell: factor levels of the cell.
        data: the snapshot.
        store: the store's entry in the configuration.
        library: the library's entry in the configuration.
        seed: seed of the run.
        iterations: number of loads or reductions per record.
        launches: number of starts of the program and its workers per record, each with all iterations.
        rdcc_nbytes: size of HDF5's chunk cache per dataset in bytes.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    iterations: int
    rdcc_nbytes: int
    launches: int = 1
