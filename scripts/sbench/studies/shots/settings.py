"""The settings of a cell (a configuration) of the shots study that its measuring program receives."""

from dataclasses import dataclass

from sbench import drivers
from sbench.stores import faults
from sbench.studies.shots import selection


@dataclass(frozen=True)
class Levels:
    """The level of each factor as a string. Factors that were added later have defaults for older cells."""

    library: str
    store: str
    driver: str
    layout: str
    access: str
    workers: str
    page_buffer: str
    cache: str
    selection: str = selection.ALL
    nodes: str = "1"
    read_cache: str = drivers.DEFAULT
    chunk_cache: str = drivers.DEFAULT
    fault: str = faults.NONE
    control: str = ""


@dataclass(frozen=True)
class Data:
    """The data to read: generated files with shots and signals, or user files.

    Attributes:
        layout: arrangement of shots in generated files, or the name of a set of user files.
        shots: number of generated shots.
        signals: number of generated signals per shot.
        files: paths, directories, patterns or URLs of user files; None if files are generated.
        datasets: path patterns of the datasets to read from user files of any structure; None for files with shots.
        selection: the part of each dataset to read.
        at: configuration entry of the store with the files' bucket; None for other files.
    """

    layout: str
    shots: int = 0
    signals: int = 0
    files: str | list[str] | None = None
    datasets: list[str] | None = None
    selection: str = selection.ALL
    at: dict | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a cell.

    `read_shots` to `read_datasets` are the numbers of objects that a record reads, where 0 means all. `read_signals`
    may also be a list of names.
    """

    cell: Levels
    data: Data
    store: dict
    library: dict
    seed: int
    rdcc_nbytes: int
    read_shots: int = 1
    read_signals: int | list[str] = 0
    read_files: int = 1
    read_datasets: int = 0

    @property
    def network(self) -> dict:
        """The settings of the store's emulated network, or an empty dict if there is none."""
        return self.store.get("network") or {}

    def count_signals(self) -> int:
        """Return the number of signals that a record reads if the level of `access` is "signals"."""
        named = self.read_signals
        return len(named) if isinstance(named, list) else named or self.data.signals
