"""How HDF5 files are opened: each module here declares drivers in `DRIVERS`, by their level of the factor `driver`.

No module imports at its top what reads files: plans ask drivers, too.
"""

import functools
import importlib
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from scripts.lib import sizes

if TYPE_CHECKING:
    import numpy as np

    from scripts.stores.store import Store


# As a page buffer: the library's default, which is not the same as 0.
UNSET = -1


@dataclass(frozen=True)
class Access:
    """How a cell asks for files to be opened.

    Attributes:
        driver: name of the driver.
        page_buffer: bytes asked for, or UNSET.
        rdcc_nbytes: chunk cache of each dataset, bytes.
        store: the store's entry in the configuration; credentials are in the environment.
    """

    driver: str
    page_buffer: int
    rdcc_nbytes: int
    store: dict = field(default_factory=dict)


class File(Protocol):
    """An open file."""

    def read(self, path: str, rows: slice = slice(None)) -> "np.ndarray":
        """Return the values of the dataset at `path`, all or those of some rows."""

    def effective(self) -> dict:
        """Return what holds for the file, read back and not copied from the request (METHOD 10).

        `driver` is always there; `page_buffer_bytes`, `rdcc_nbytes`, `paged` and `page_size` are where they are known.
        A driver that does not tell of a page buffer has none.
        """

    def close(self) -> None:
        """Let go of it."""


class Driver(ABC):
    """A way to open files.

    Attributes:
        optional: a build of HDF5 may lack it; `versions` tells under the driver's name whether it has it.
        needs: the distributions that a library's locks have to pin for it.
    """

    optional = False
    needs: tuple[str, ...] = ()

    @abstractmethod
    def reads(self, store: "Store") -> bool:
        """Return whether it reads a store of this kind."""

    @abstractmethod
    def open(self, address: str, access: Access) -> File:
        """Open the file at a path or URL for reading; the time that this takes is that of an open.

        Raises:
            Problem: the library or the environment lacks what it needs.
        """

    def versions(self) -> dict:
        """Return what this process reads with: {"hdf5", "h5py", "numpy", "python"}, and whether it has the driver.

        It is called in each process before anything is timed and imports what `open` needs.
        """
        import h5py
        import numpy as np

        return {
            "hdf5": h5py.version.hdf5_version,
            "h5py": h5py.version.version,
            "numpy": np.__version__,
            "python": sys.version.split()[0],
            "ros3": bool(h5py.get_config().ros3),
        }


@functools.cache
def of(name: str) -> Driver:
    """Return the driver of a level of the factor `driver`."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return next(module.DRIVERS[name] for module in modules if name in module.DRIVERS)


def address_of(location: dict, name: str) -> str:
    """Return the path or URL of the file `name` at a location: {"folder"} or {"url"}."""
    return f"{location['url']}/{name}" if "url" in location else str(Path(location["folder"]) / name)


def page_buffer_bytes(level: str) -> int:
    """Return the bytes of a page buffer's level: "unset" (UNSET), "0", or a size such as "64MiB".

    Raises:
        Problem: it is none of these.
    """
    return UNSET if level == "unset" else sizes.in_bytes(level)


def faults(effective: dict, level: str) -> Iterator[str]:
    """Yield where what was in force, as `File.effective` read it back, is not the page buffer that was asked for."""
    requested, held = page_buffer_bytes(level), effective.get("page_buffer_bytes", 0)
    if requested not in (UNSET, held):
        # Rounded down to whole pages, the label is still true; all this the library does silently.
        if held == 0:
            yield f"the library ignored the page buffer of {requested} bytes (is the file paged?)"
        elif held > requested:
            yield f"the library raised the page buffer of {requested} bytes to {held} (one page)"
        elif held != requested - requested % effective["page_size"]:
            yield f"the library made a page buffer of {held} bytes out of {requested}"
    chunk_cache = effective.get("rdcc_nbytes")
    if chunk_cache not in (None, effective["rdcc_nbytes_asked"]):
        yield f"the library made a chunk cache of {chunk_cache} bytes out of {effective['rdcc_nbytes_asked']}"


def failures(effective: dict, library: str, driver: str) -> Iterator[str]:
    """Yield where files were not opened as a label says (METHOD 3): with HDF5 `library` and `driver`."""
    if effective.get("hdf5") != library:
        yield f"the library under test is HDF5 {effective.get('hdf5')}, not {library}"
    if effective["driver"] != driver:
        yield f"files were opened with driver {effective['driver']}, not {driver}"
    if of(driver).optional and not effective.get(driver):
        yield f"the library has no {driver.upper()}"
