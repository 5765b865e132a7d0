"""Define the interface of containers: formats that hold the same array, made from the same source files.

Each module in `MODULES` has a mapping `CONTAINERS` from levels of the factor `container` to instances. Libraries are
imported only inside functions, because planning a run also loads the containers, without these libraries.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sbench import drivers
from sbench.probe.program import sync_path
from sbench.studies.containers import netcdf
from sbench.studies.containers.selections import Grid, Index, parse_sides
from sbench.studies.containers.settings import SAME, Levels, Settings

if TYPE_CHECKING:
    import numpy as np
    import obstore.store
    import xarray as xr

MODULES = ("hdf5", "references", "icechunk", "zarr", "parquet")
# Levels of `client`: the usual client of each container, and others that some containers also support.
DEFAULT = "default"


class Opened(Protocol):
    """An open container."""

    def read(self, index: Index) -> "np.ndarray":
        """Return the values of a part of the array."""

    def walk(self) -> int:
        """Read the shape and the attributes of all variables, and return the number of variables."""

    def close(self) -> None:
        """Close the container."""


@dataclass(frozen=True)
class Target:
    """The array of a cell in its container.

    Attributes:
        settings: the settings of the cell.
        source: location of the source files, {"folder"} or {"url", "key"}.
        place: location of the converted container, {"folder": path} or {"url", "prefix": key prefix}.
        local_files: the source files on this machine; empty if they are in a remote store.
        scratch: a folder of this machine for temporary files.
        grid: shape of the array, its chunks and its shards in the container.
    """

    settings: Settings
    source: Mapping[str, str]
    place: Mapping[str, str]
    local_files: Sequence[Path]
    scratch: Path
    grid: Grid

    @property
    def cell(self) -> Levels:
        """The levels of the cell."""
        return self.settings.cell

    @property
    def is_local(self) -> bool:
        """Whether the store is a folder."""
        return "folder" in self.place

    def list_files(self) -> list[tuple[str, slice]]:
        """Return the name and the times of each source file."""
        return list(netcdf.list_files(self.grid.shape[0], int(self.cell.files)))

    def list_sources(self) -> list[str]:
        """Return the path or URL of each source file."""
        return [drivers.build_address(dict(self.source), name) for name, _ in self.list_files()]

    def build_access(self, driver: str, read_cache: str = drivers.DEFAULT) -> drivers.Access:
        """Return the settings with which a driver opens HDF5 files."""
        return drivers.Access(driver, drivers.UNSET, self.settings.rdcc_nbytes, self.settings.store, read_cache)

    def open_objects(self) -> "obstore.store.ObjectStore":
        """Open the place of the converted container with obstore."""
        from sbench.stores import objects

        return objects.open_store(self.place, self.settings.store)

    def list_converted(self) -> list[str]:
        """Return the path or URL of each file of a container that has as many files as the source."""
        return [drivers.build_address(dict(self.place), name) for name, _ in self.list_files()]

    def build_url(self, name: str = "") -> str:
        """Return the path of an object of the converted container, or its URL as s3://bucket/key."""
        if self.is_local:
            return str(Path(self.place["folder"], name))
        return f"s3://{self.settings.store['bucket']}/{self.place['prefix']}" + f"/{name}" * bool(name)

    def put_file(self, name: str, path: Path) -> None:
        """Upload a file of this machine to the place of the converted container."""
        import obstore

        obstore.put(self.open_objects(), name, path)

    def iter_file(self, number: int, step: int) -> Iterator[tuple[slice, "np.ndarray"]]:
        """Read a source file in blocks of `step` times. Yield the times in the file and the values of each block."""
        (_, times), address = self.list_files()[number], self.list_sources()[number]
        access = self.build_access("sec2" if self.is_local else "s3fs")
        with contextlib.closing(drivers.get_driver(access.driver).open(address, access)) as file:
            for begin in range(0, times.stop - times.start, step):
                block = slice(begin, min(begin + step, times.stop - times.start))
                yield block, file.read(netcdf.NAME, (block,))

    def iter_blocks(self, step: int) -> Iterator[tuple[slice, "np.ndarray"]]:
        """Read all source files, and yield the times and the values of blocks of `step` times; the last has fewer."""
        import numpy as np

        first, held = 0, []
        for number in range(int(self.cell.files)):
            for _, block in self.iter_file(number, step):
                held.append(block)
                if sum(map(len, held)) >= step:
                    rows = np.concatenate(held)
                    yield slice(first, first + step), rows[:step]
                    first, held = first + step, [rows[step:]]
        if len(rows := np.concatenate(held)):
            yield slice(first, first + len(rows)), rows

    def sync(self) -> None:
        """Sync a converted container to disk. In an object store, acknowledged objects are already durable."""
        for folder, _, names in os.walk(self.place.get("folder", "")):
            for name in (*names, "."):
                sync_path(Path(folder, name))


class Container(ABC):
    """A format that holds the array.

    Attributes:
        needs: the distributions that a library's lock file must pin.
        needs_of_xarray: further distributions, to open it with xarray.
        clients: the clients that read it from an object store. The first is the default.
        converts: whether values are written again, possibly with other chunks or another codec than in the source.
        is_made: whether it is made from the source files, so that it has a conversion.
        is_zarr: whether zarr reads it, so that concurrency and threads apply.
        openings: the kinds of `opening` that it supports.
    """

    needs: tuple[str, ...] = ()
    needs_of_xarray: tuple[str, ...] = ("xarray",)
    clients: tuple[str, ...] = ("s3fs",)
    converts = False
    is_made = True
    is_zarr = False
    openings: tuple[str, ...] = ("library", "xarray")

    @abstractmethod
    def convert(self, target: Target) -> None:
        """Make the container from the source files, unless they are the container."""

    @abstractmethod
    def open(self, target: Target) -> Opened:
        """Open the container with the library that reads its format."""

    def open_datasets(self, target: Target) -> list[object]:
        """Return what xarray opens: a file, file object or store for each dataset; empty if it reads no such format."""
        return []

    def open_dataset(self, opened: object, **options: object) -> "xr.Dataset":
        """Open one of these datasets with xarray."""
        import xarray as xr

        return xr.open_dataset(opened, engine="zarr", consolidated=None, **options)

    @abstractmethod
    def read_layout(self, target: Target) -> dict:
        """Read back the chunk shape and other properties of the container: {"chunks", "codec", …} as levels."""

    def forecast_requests(self, target: Target, parts: Sequence[Index]) -> int | None:
        """Forecast the requests to open the container with its library and to read parts of the array.

        The result is None if the layout does not determine them.
        """
        return None


def list_needs(cell: Levels, is_local: bool) -> list[str]:
    """Return the distributions that a cell needs for its container, its opening, its client and its codec."""
    container, client = get_container(cell.container), get_client(cell)
    needs = [*container.needs]
    needs += [] if cell.opening == "library" else container.needs_of_xarray
    needs += [client] if not is_local and client in ("s3fs", "obstore", "h5coro", "remfile") else []
    needs += ["hdf5plugin"] if cell.container == "hdf5-repacked" and cell.codec in ("zstd", "blosc") else []
    return list(dict.fromkeys(needs))


def load_libraries(cell: Levels, is_local: bool) -> dict:
    """Import all libraries that a cell needs, before anything is timed, and return their versions."""
    import h5py

    for name in list_needs(cell, is_local):
        importlib.import_module(name)
    versions = {name: importlib.metadata.version(name) for name in list_needs(cell, is_local)}
    return {"hdf5": h5py.version.hdf5_version, "python": sys.version.split()[0], **versions}


def get_client(cell: Levels) -> str:
    """Return the client of a cell, where `default` is the usual client of its container."""
    return get_container(cell.container).clients[0] if cell.client == DEFAULT else cell.client


def plan_grid(cell: Levels) -> Grid:
    """Return the shape, chunks and shards that a cell's container will have."""
    shape, is_same = parse_sides(cell.shape), cell.container_chunks == SAME
    # A chunk of a file has at most the times of the file.
    in_files = is_same or cell.container == "hdf5-repacked"
    largest = (shape[0] // int(cell.files), *shape[1:]) if in_files else shape
    chunks = tuple(map(min, largest, parse_sides(cell.chunks if is_same else cell.container_chunks)))
    shards = (
        tuple(number * side for number, side in zip(parse_sides(cell.shard_chunks), chunks, strict=True))
        if cell.container == "zarr-shards"
        else ()
    )
    return Grid(shape, chunks, shards)


@functools.cache
def load_containers() -> dict[str, Container]:
    """Return all containers, keyed by level of the factor `container`."""
    modules = (importlib.import_module(f"sbench.studies.containers.{name}") for name in MODULES)
    return {name: container for module in modules for name, container in module.CONTAINERS.items()}


def get_container(name: str) -> Container:
    """Return the container with this name."""
    return load_containers()[name]
