"""Settings of a cell of the shots study, as its measuring program receives them."""

from dataclasses import dataclass

from sbench import drivers
from sbench.stores import faults
from sbench.studies.shots import selection


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; older cells lack factors that were added later."""

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
    """The data to read: generated files with shots and signals in some layout, or user files.

    Attributes:
        files: user files, None if files are generated.
        datasets: patterns of datasets in a set of files of any tree, None for files with shots.
        at: the store's entry of the files' bucket.
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
    """The settings of a cell; `read_*` are numbers per record, 0 for all; `read_signals` may list names."""

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
        """Return the emulated network of the store, {} without emulation."""
        return self.store.get("network") or {}

    def count_signals(self) -> int:
        """Return the number of signals that a record reads."""
        named = self.read_signals
        return len(named) if isinstance(named, list) else named or self.data.signals
