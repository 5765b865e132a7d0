"""The settings of a cell of the shots study, as its measuring program is given them."""

from dataclasses import dataclass

from sbench import drivers
from sbench.stores import faults
from sbench.studies.shots import selection


@dataclass(frozen=True)
class Levels:
    """The levels of a cell, as text; cells of before a factor was added lack it."""

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
    """What is read: files of some layout with shots and signals that are generated, or the user's own files.

    Attributes:
        files: of the user's own, None where they are generated.
        datasets: patterns of those that are read of a set of files of any tree, None for files with shots.
        at: the store of a bucket that the files lie in.
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
    """The settings of a cell; `read_*` say how many of them a record reads, 0: all, and of signals perhaps which."""

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
        """The emulated network of the store; {} without emulation."""
        return self.store.get("network") or {}

    def count_signals(self) -> int:
        """Return how many signals a record reads."""
        named = self.read_signals
        return len(named) if isinstance(named, list) else named or self.data.signals
