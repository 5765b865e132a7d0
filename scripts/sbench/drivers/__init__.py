"""Drivers, each of which opens and reads HDF5 files with a different library.

Each module of this package lists its drivers in `DRIVERS`, keyed by level of the factor `driver`. Reading libraries
are imported only inside functions, because planning a run also loads the drivers, without these libraries.
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


# Page buffer size that leaves the library's default in place; not the same as a size of 0.
UNSET = -1
# Bytes at the start of a file that ROS3 fetches and caches when it opens the file: HDF5 1.14.3 and later (H5FDros3.c).
ROS3_FIRST_BYTES = 16 * 2**20
# As a read cache: the driver's default. As a chunk cache: the size in the study's setting `rdcc_nbytes`.
DEFAULT = "default"
# The part of a dataset to read, as a numpy index; () selects the whole dataset.
Where = slice | tuple
# Features of a dataset or file that not every driver supports, because they need more than the bytes of one file.
WITHIN = "virtual datasets"
BESIDE = "virtual datasets of other files"
IN_PLACE = "values in other files that a copy in the same folder would not be read from"
LINKS = "trees with links, or with names that are not UTF-8"
# Prefixes of the attributes that HDF5's dimension scales and netCDF4 use internally: not every library lists them.
HIDDEN = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_FillValue", "_NCProperties", "_nc3_strict", "_Netcdf4")


@dataclass(frozen=True)
class Access:
    """The settings with which the configuration under test opens files.

    Attributes:
        driver: name of the driver.
        page_buffer: requested size of HDF5's page buffer in bytes, or UNSET.
        rdcc_nbytes: size of each dataset's chunk cache in bytes.
        store: the store's entry in the configuration; credentials come from environment variables.
        read_cache: how the driver caches or reads ahead bytes of a file: DEFAULT, "none", or a kind of cache and its
            block size, such as "blockcache-4MiB".
        index: directory with the index made by `Indexed.index`, an empty string for drivers without an index.
        rdcc_nslots: number of hash table slots of each dataset's chunk cache, 0 for the library's default.
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
        """The keyword arguments of `h5py.File` for this chunk cache."""
        return {"rdcc_nbytes": self.rdcc_nbytes} | ({"rdcc_nslots": self.rdcc_nslots} if self.rdcc_nslots else {})


class File(Protocol):
    """An open file."""

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        """Read the values of the dataset at `path`, or of its part `where`.

        Raises:
            Unable: the driver does not support this dataset.
        """

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        """Yield the path, shape and attributes of each group and dataset, in any order.

        The path of the root group is "/", and the shape of a group is None. An object with several links is yielded
        once. Links to other files are not followed.
        """

    def read_settings(self) -> dict:
        """Return the settings in force for the file, as read back from the library (METHOD 10).

        The requested settings are never copied. `driver` is always present, `read_cache` is present unless it is the
        default, and `page_buffer_bytes`, `rdcc_nbytes`, `rdcc_nslots`, `paged` and `page_size` are present if known.
        A result without `page_buffer_bytes` means that the driver has no page buffer.
        """

    def close(self) -> None:
        """Close the file."""


class Driver(ABC):
    """A library, or combination of libraries, that opens and reads files.

    Attributes:
        files: whether it reads files of mounted file systems.
        s3: whether it reads S3 objects.
        libraries: the modules that `open` needs in addition to h5py.
        optional: whether a build of HDF5 may lack it. `list_versions` then reports its presence under its name.
        needs: the distributions that a library's lock files must pin to use the driver.
        page_buffers: whether it uses HDF5's page buffer.
        chunk_caches: whether it uses HDF5's chunk cache, which `File.read_settings` then reads back.
        read_caches: the kinds of read caches that it supports in addition to its default.
        reads_copy: whether it reads a copy of the data in another format, which the study makes.
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
        """Return whether the driver can read from a store of this kind."""
        return (self.files and store.files) or (self.s3 and store.speaks_s3)

    def supports_need(self, need: str, address: str) -> bool:
        """Return whether the driver supports a feature of a file that some drivers do not support.

        Args:
            need: the feature: WITHIN, BESIDE, IN_PLACE or LINKS.
            address: path or URL of the file.
        """
        return False

    @abstractmethod
    def open(self, address: str, access: Access) -> File:
        """Open the file at a path or URL for reading. The benchmark reports the duration of this call.

        Raises:
            Problem: the library lacks a feature, or the environment lacks a setting, that the driver requires.
        """

    def trusts_system(self, hdf5: str) -> bool:
        """Return whether the driver ignores certificate authorities that are set in environment variables.

        Args:
            hdf5: version of the HDF5 library. Some versions trust only the authorities in the system's files.
        """
        return False

    def list_versions(self) -> dict:
        """Return the versions of HDF5, h5py, numpy, Python and all `libraries`, and whether HDF5 has ROS3 ("ros3").

        This imports the modules that `open` needs, so each process calls it before it times anything.
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
    """Return the version of the distribution that provides a module, even if their names differ, as in a fork."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(module)
    return importlib.metadata.version(importlib.metadata.packages_distributions()[module][0])


class Indexed(Driver):
    """A driver that requires an index of the files, which is created once before the first read.

    Attributes:
        inlines: whether an index may contain values of datasets, which are then not read from the store.
    """

    inlines = False

    @abstractmethod
    def index(self, addresses: Sequence[str], access: Access, folder: Path) -> None:
        """Index the files at `addresses`, and write the index to an existing directory.

        `open` then uses the directory as `Access.index`.

        Raises:
            Unable: the driver cannot index such files.
        """


@functools.cache
def load_drivers() -> dict[str, Driver]:
    """Return all drivers, keyed by level of the factor `driver`."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {name: driver for module in modules for name, driver in getattr(module, "DRIVERS", {}).items()}


def list_readers() -> list[str]:
    """Return the sorted names of the drivers that read the original files rather than a converted copy."""
    return sorted(name for name, driver in load_drivers().items() if not driver.reads_copy)


def get_driver(name: str) -> Driver:
    """Return the driver with this name, a level of the factor `driver`."""
    return load_drivers()[name]


def check_levels(levels: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each requested cache (page buffer, read cache, chunk cache) that the driver lacks."""
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
    """Encode an item of `File.walk` (a group or dataset) as bytes that are the same for all drivers.

    Strings are encoded in UTF-8, and numbers in little-endian order with 8 bytes per real component. Widths are lost
    because a JSON index does not store them, and shapes are lost because some libraries read an array with a single
    element as a scalar. References, and attributes that HDF5 and netCDF4 use internally, are omitted.
    """
    lines = [f"{path}\t{'group' if shape is None else list(shape)}".encode()]
    for name in sorted(attributes):
        if not name.startswith(HIDDEN) and (value := _encode_value(attributes[name])) is not None:
            lines.append(f"{name}\t".encode() + value)
    return b"\n".join(lines)


def _encode_value(value: object) -> bytes | None:
    """Encode an attribute's value; return None for references, compound types and empty values."""
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
    """Convert the exceptions that a library raises for unsupported features to `Unable`.

    Args:
        driver: name of the driver, for the message.
        what: the dataset, file or tree that is read, for the message.
        failures: the exception types to convert.
    """
    try:
        yield
    except failures as error:
        # The message of a Rust library is followed by an empty line and many lines that repeat it.
        kind, words = type(error).__name__, " ".join(str(error).partition("\n\n")[0].split())
        if isinstance(error, (TypeError, AttributeError, AssertionError)) or " " not in words:
            # The library did not expect this error: its message is not meant for users, or is a mere name.
            words = f"unexpected {kind}" + (f" ({words})" if words else "")
        raise Unable(f"{driver} cannot read {what}: {words}") from error


def build_address(location: dict, name: str) -> str:
    """Join a location, which is {"folder": path} or {"url": URL}, and a file name to a path or URL.

    In a URL, the name is percent-encoded.
    """
    return f"{location['url']}/{quote(name)}" if "url" in location else str(Path(location["folder"]) / name)


def parse_page_buffer(level: str) -> int:
    """Convert a level of the factor `page_buffer` to bytes: "unset" (UNSET), "0", or a size such as "64MiB".

    Raises:
        Problem: the level is malformed.
    """
    return UNSET if level == "unset" else sizes.parse_size(level)


def parse_chunk_cache(level: str, default: int) -> tuple[int, int]:
    """Parse a level of the factor `chunk_cache`: "default", or a size and optional slots, such as "64MiB-10007".

    Returns:
        The size in bytes, which is `default` for "default", and the slots, 0 for the library's default.
    """
    if level == DEFAULT:
        return default, 0
    size, _, slots = level.partition("-")
    return sizes.parse_size(size), int(slots or 0)


def format_read_cache(kind: str, size: int) -> str:
    """Return the level of the factor `read_cache` for a kind of cache with blocks of `size` bytes."""
    return f"{kind}-{sizes.format_level(size)}"
