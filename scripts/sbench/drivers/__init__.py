"""Open HDF5 files: each module declares its drivers in `DRIVERS`, by level of the factor `driver`.

No module imports a reading library at its top, because plans load drivers, too.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from sbench.probe import sizes
from sbench.probe.program import Unable

if TYPE_CHECKING:
    import numpy as np

    from sbench.stores.store import Store


# As a page buffer: the library's default, which differs from 0.
UNSET = -1
# Bytes of a file that ROS3 fetches when it opens it, and keeps: HDF5 since 1.14.3 (H5FDros3.c).
ROS3_FIRST_BYTES = 16 * 2**20
# The default read cache of a driver, or the chunk cache of the study's setting `rdcc_nbytes`.
DEFAULT = "default"
# The part of a dataset to read, as numpy takes it; () is all of it.
Where = slice | tuple
# Features of a dataset or tree that need more of a driver than the bytes of one file.
WITHIN = "virtual datasets"
BESIDE = "virtual datasets of other files"
IN_PLACE = "values in other files that a copy beside them would not be read from"
LINKS = "trees with links, or with names that are not UTF-8"
# Attributes that HDF5's dimension scales and netCDF4 keep for themselves: not every library shows them.
HIDDEN = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_FillValue", "_NCProperties", "_nc3_strict", "_Netcdf4")


@dataclass(frozen=True)
class Access:
    """The settings with which a cell opens files.

    Attributes:
        driver: name of the driver.
        page_buffer: requested bytes, or UNSET.
        rdcc_nbytes: chunk cache of each dataset, bytes.
        store: the store's entry in the configuration; credentials are in the environment.
        read_cache: the driver's cache of a file's bytes and its readahead: DEFAULT, "none", or kind and block size,
            as in "blockcache-4MiB".
        index: folder with the index made by `Indexed.index`, "" without.
        rdcc_nslots: slots of each dataset's chunk cache, 0 for the library's default.
    """

    driver: str
    page_buffer: int
    rdcc_nbytes: int
    store: dict = field(default_factory=dict)
    read_cache: str = DEFAULT
    index: str = ""
    rdcc_nslots: int = 0

    @property
    def chunk_cache(self) -> dict[str, int]:
        """The chunk cache as arguments of `h5py.File`."""
        return {"rdcc_nbytes": self.rdcc_nbytes} | ({"rdcc_nslots": self.rdcc_nslots} if self.rdcc_nslots else {})


class File(Protocol):
    """An open file."""

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        """Return the values of the dataset at `path`, or its part `where`.

        Raises:
            Unable: the driver cannot read such a dataset.
        """

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        """Yield path, shape (None for a group) and attributes of each group and dataset, the root as "/", in any order.

        Links to the same object are followed once, links to other files are not.
        """

    def read_settings(self) -> dict:
        """Return the settings in force for the file, read back and not copied from the request (METHOD 10).

        `driver` is always present, `read_cache` unless it is the default, and `page_buffer_bytes`, `rdcc_nbytes`,
        `rdcc_nslots`, `paged` and `page_size` if known. Without `page_buffer_bytes` there is no page buffer.
        """

    def close(self) -> None:
        """Close the file."""


class Driver(ABC):
    """A way to open files.

    Attributes:
        files, s3: it reads files of this machine's file systems, and objects of S3.
        libraries: the modules that `open` needs in addition to h5py.
        optional: a build of HDF5 may lack it; `list_versions` reports its presence under the driver's name.
        needs: the distributions that a library's locks have to pin for it.
        page_buffers: it has HDF5's page buffer.
        chunk_caches: it has HDF5's chunk cache, and `File.read_settings` reads it back.
        read_caches: the kinds of read caches that it supports in addition to its default.
        reads_copy: it reads a copy of the data in another format, which the study makes.
    """

    files = False
    s3 = False
    libraries: tuple[str, ...] = ()
    optional = False
    needs: tuple[str, ...] = ()
    page_buffers = False
    chunk_caches = False
    read_caches: tuple[str, ...] = ()
    reads_copy = False

    def supports_store(self, store: "Store") -> bool:
        """Return whether the driver reads a store of this kind."""
        return (self.files and store.files) or (self.s3 and store.speaks_s3)

    def supports_need(self, need: str, address: str) -> bool:
        """Return whether the driver meets a need of a file at a path or URL, one of the constants of this module."""
        return False

    @abstractmethod
    def open(self, address: str, access: Access) -> File:
        """Open the file at a path or URL for reading; the time of this call is the time of an open.

        Raises:
            Problem: the library or the environment lacks a requirement.
        """

    def trusts_system(self, hdf5: str) -> bool:
        """Return whether with this HDF5 it trusts only authorities in the system's files, not in variables."""
        return False

    def list_versions(self) -> dict:
        """Return the versions of HDF5, h5py, numpy, Python and all `libraries`, and whether HDF5 has ROS3 ("ros3").

        Each process calls it before anything is timed; it imports the modules that `open` needs.
        """
        import h5py
        import numpy as np

        for name in self.libraries:
            importlib.import_module(name)
        distributions = dict.fromkeys(name.partition(".")[0] for name in self.libraries)
        return {
            "hdf5": h5py.version.hdf5_version,
            "h5py": h5py.version.version,
            "numpy": np.__version__,
            "python": sys.version.split()[0],
            "ros3": bool(h5py.get_config().ros3),
            **{name: _get_version(name) for name in distributions},
        }


def _get_version(module: str) -> str:
    """Return the version of the distribution with a module; in a fork it may have another name."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(module)
    return importlib.metadata.version(importlib.metadata.packages_distributions()[module][0])


class Indexed(Driver):
    """A driver that reads with an index, which a separate phase makes and any number of reads use.

    Attributes:
        inlines: an index may hold values of datasets, which are then not read from the store.
    """

    inlines = False

    @abstractmethod
    def index(self, addresses: Sequence[str], access: Access, folder: Path) -> None:
        """Make the index of the files at `addresses` in an existing folder, for `open` with `Access.index`.

        Raises:
            Unable: an index of such files is impossible.
        """


@functools.cache
def load_drivers() -> dict[str, Driver]:
    """Return all drivers by their level of the factor `driver`."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {name: driver for module in modules for name, driver in module.DRIVERS.items()}


def list_readers() -> list[str]:
    """List the levels of `driver` that read the files as they are."""
    return sorted(name for name, driver in load_drivers().items() if not driver.reads_copy)


def get_driver(name: str) -> Driver:
    """Return the driver of a level of the factor `driver`."""
    return load_drivers()[name]


def check_levels(levels: Mapping[str, str]) -> Iterator[str]:
    """Yield a reason for each page buffer, read cache or chunk cache that the driver lacks."""
    driver, name = get_driver(levels["driver"]), levels["driver"]
    if levels["page_buffer"] != "unset" and not driver.page_buffers:
        yield f"driver {name} lacks a page buffer; set page_buffer to unset"
    kind = levels.get("read_cache", DEFAULT).partition("-")[0]
    if kind not in (DEFAULT, *driver.read_caches):
        others = f" (supported: {', '.join(driver.read_caches)})" if driver.read_caches else ""
        yield f"driver {name} does not support read cache {kind}{others}; set read_cache to {DEFAULT}"
    if levels.get("chunk_cache", DEFAULT) != DEFAULT and not driver.chunk_caches:
        yield f"driver {name} does not use HDF5's chunk cache; set chunk_cache to {DEFAULT}"


def encode_object(path: str, shape: tuple[int, ...] | None, attributes: Mapping[str, object]) -> bytes:
    """Encode an object from `File.walk` in bytes that are the same for every driver.

    Texts are UTF-8, numbers little-endian and of 8 bytes, all without their shape: some libraries read an array of one
    element as a scalar, and an index in JSON lacks widths. References, and attributes that HDF5 and netCDF4 keep for
    themselves, are left out.
    """
    lines = [f"{path}\t{'group' if shape is None else list(shape)}".encode()]
    for name in sorted(attributes):
        if not name.startswith(HIDDEN) and (value := _encode_value(attributes[name])) is not None:
            lines.append(f"{name}\t".encode() + value)
    return b"\n".join(lines)


def _encode_value(value: object) -> bytes | None:
    """Return the bytes of an attribute's value; None for a reference, a structure or an empty value."""
    import numpy as np

    if isinstance(value, (str, bytes)):
        return value.encode(errors="surrogateescape") if isinstance(value, str) else value.rstrip(b"\0")
    array = np.asarray(value)
    if array.dtype.kind in "SUO":
        texts = array.ravel().tolist()
        return b"\0".join(map(_encode_value, texts)) if all(isinstance(text, (str, bytes)) for text in texts) else None
    wide = {"b": "<i8", "i": "<i8", "u": "<u8", "f": "<f8", "c": "<c16"}.get(array.dtype.kind)
    return array.astype(wide).tobytes() if wide else None


@contextlib.contextmanager
def convert_failures(driver: str, what: str, *failures: type[Exception]) -> Iterator[None]:
    """Convert exceptions of the types `failures`, which report features that a library lacks, into `Unable`."""
    try:
        yield
    except failures as error:
        # A Rust library repeats the message in many lines.
        kind, words = type(error).__name__, " ".join(str(error).partition("\n\n")[0].split())
        if isinstance(error, (TypeError, AttributeError, AssertionError)) or " " not in words:
            # The library has failed unexpectedly: its message is not meant for users, or is only a name.
            words = f"unexpected {kind}" + (f" ({words})" if words else "")
        raise Unable(f"{driver} cannot read {what}: {words}") from error


def build_address(location: dict, name: str) -> str:
    """Return the path of the file `name` at a location, {"folder"} or {"url"}, or its URL with `name` quoted."""
    return f"{location['url']}/{quote(name)}" if "url" in location else str(Path(location["folder"]) / name)


def parse_page_buffer(level: str) -> int:
    """Return the bytes of a page buffer's level: "unset" (UNSET), "0", or a size such as "64MiB".

    Raises:
        Problem: the level is malformed.
    """
    return UNSET if level == "unset" else sizes.parse_size(level)


def parse_chunk_cache(level: str, default: int) -> tuple[int, int]:
    """Return bytes (`default` for "default") and slots (0 for the library's default) of a chunk cache's level."""
    if level == DEFAULT:
        return default, 0
    size, _, slots = level.partition("-")
    return sizes.parse_size(size), int(slots or 0)


def format_read_cache(kind: str, size: int) -> str:
    """Return the level of a read cache with blocks of `size` bytes."""
    return f"{kind}-{sizes.format_level(size)}"
