"""HDF5 files as containers: the source files as they are, and repacked with pages, other chunks or another codec."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbench import drivers
from sbench.drivers import file_objects, native
from sbench.drivers.requests import Watched, compute_requests
from sbench.probe import sizes
from sbench.studies.containers.base import Container, Target, get_client
from sbench.studies.containers.netcdf import LEVEL, NAME, write_variables
from sbench.studies.containers.selections import Index, format_sides, split_rows
from sbench.studies.containers.settings import SAME

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

# Names of the codecs' filters in HDF5, by their registered numbers (HDF Group, Registered Filter Plugins).
_FILTERS = {"gzip": "deflate", "32001": "blosc", "32015": "zstd"}
# The default page buffer of ROS3 for files with pages since HDF5 2.0, in bytes.
_ROS3_PAGES = 64 * 2**20


class Files(Container):
    """The source files as they are."""

    needs_of_xarray = ("xarray", "h5netcdf")
    clients = ("s3fs", "ros3", "remfile", "h5coro")
    is_made = False
    openings = ("library", "xarray", "open_mfdataset")

    def list_addresses(self, target: Target) -> list[str]:
        """Return the path or URL of each file."""
        return target.list_sources()

    def list_local_files(self, target: Target) -> Sequence[Path]:
        """Return the files on this machine with the same content."""
        return target.local_files

    def convert(self, target: Target) -> None:
        """Do nothing."""

    def open(self, target: Target) -> "_Opened":
        """Open no file yet; a file is opened when it is first read."""
        return _Opened(target, self.list_addresses(target))

    def open_datasets(self, target: Target) -> list[object]:
        """Return the paths, or file objects of s3fs."""
        access = target.build_access("s3fs", target.cell.read_cache)
        addresses = self.list_addresses(target)
        return addresses if target.is_local else [file_objects.open_s3_file(one, access) for one in addresses]

    def open_dataset(self, opened: object, **options: object) -> "xr.Dataset":
        """Open a file with xarray's engine h5netcdf."""
        import xarray as xr

        return xr.open_dataset(opened, engine="h5netcdf", **options)

    def read_layout(self, target: Target) -> dict:
        """Read the layout of the first file and, with the driver of the cell, the settings in force."""
        access = build_reading_access(target)
        with contextlib.closing(drivers.get_driver(access.driver).open(self.list_addresses(target)[0], access)) as file:
            settings = file.read_settings()
        settings["client"] = settings["driver"]
        files = self.list_local_files(target)
        return settings | (_read_dataset_layout(files[0]) if files else {})

    def forecast_requests(self, target: Target, parts: Sequence[Index]) -> int | None:
        """Forecast the requests from the reads of HDF5 on a file of this machine, and a model of the driver's cache."""
        access, files = build_reading_access(target), self.list_local_files(target)
        if access.driver not in ("ros3", "s3fs") or not files:
            return None
        rows = target.grid.shape[0]
        spans: dict[int, list] = {} if parts else {number: [] for number in range(len(files))}
        for index in parts:
            for number, span in split_rows(index, rows, rows // len(files)):
                spans.setdefault(number, []).append((span, *index[1:]))
        return sum(_count_requests(files[number], of_file, access) for number, of_file in spans.items())


class Repacked(Files):
    """The files repacked: with pages, which keep all metadata together, and other chunks or another codec."""

    needs = ("obstore",)
    # Files with pages have a superblock of version 3, which h5coro does not read.
    clients = ("s3fs", "ros3", "remfile")
    is_made = converts = True

    def list_addresses(self, target: Target) -> list[str]:
        """Return the path or URL of each repacked file."""
        return target.list_converted()

    def list_local_files(self, target: Target) -> Sequence[Path]:
        """Return the repacked files as they were written, before they were put into the store."""
        return [target.scratch / name for name, _ in target.list_files()]

    def convert(self, target: Target) -> None:
        """Repack each file on this machine, and put it into the store."""
        import h5py

        from sbench.studies.containers import values

        coordinates, grid = values.make_coordinates(target.grid.shape), target.grid
        paged = {"fs_strategy": "page", "fs_page_size": sizes.parse_size(target.settings.page_size)}
        for number, (name, times) in enumerate(target.list_files()):
            shape = (times.stop - times.start, *grid.shape[1:])
            options = {"shape": shape, "dtype": "f4", "chunks": tuple(map(min, shape, grid.chunks))}
            with h5py.File(target.scratch / name, "w", libver="v110", **paged) as file:
                of_file = coordinates | {"time": coordinates["time"][times]}
                dataset = write_variables(file, of_file, options | _build_filter(target))
                for block, held in target.iter_file(number, options["chunks"][0]):
                    dataset[block] = held
            target.put_file(name, target.scratch / name)


class _Opened:
    def __init__(self, target: Target, addresses: Sequence[str]) -> None:
        self._addresses, self._rows = addresses, target.grid.shape[0]
        self._access, self._files = build_reading_access(target), {}
        self._driver = drivers.get_driver(self._access.driver)

    def read(self, index: Index) -> "np.ndarray":
        import numpy as np

        each = self._rows // len(self._addresses)
        blocks = [
            self._open_file(number).read(NAME, (rows, *index[1:]))
            for number, rows in split_rows(index, self._rows, each)
        ]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def walk(self) -> int:
        paths = {path for number in range(len(self._addresses)) for path, *_ in self._open_file(number).walk()}
        return len(paths - {"/"})

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _open_file(self, number: int) -> drivers.File:
        if number not in self._files:
            self._files[number] = self._driver.open(self._addresses[number], self._access)
        return self._files[number]


def build_reading_access(target: Target) -> drivers.Access:
    """Return the settings with which the cell's client opens HDF5 files; files of this machine with sec2."""
    driver = "sec2" if target.is_local else get_client(target.cell)
    return target.build_access(driver, target.cell.read_cache)


def _build_filter(target: Target) -> Mapping[str, object]:
    codec = target.cell.compression if target.cell.codec == SAME else target.cell.codec
    if codec in ("none", "deflate"):
        return {"compression": "gzip", "compression_opts": LEVEL} if codec == "deflate" else {}
    import hdf5plugin

    lz4 = hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)
    return dict(hdf5plugin.Zstd() if codec == "zstd" else lz4)


def _read_dataset_layout(path: Path) -> dict:
    import h5py

    with h5py.File(path) as file:
        dataset = file[NAME]
        codecs = [_FILTERS.get(name, name) for name in dataset._filters]
        return {"chunks": format_sides(dataset.chunks), "codec": ", ".join(codecs) or "none"}


def _count_requests(path: Path, spans: Sequence[tuple[slice, ...]], access: drivers.Access) -> int:
    """Count the requests to open a file and to read its spans; without spans, to walk its metadata."""
    import h5py

    with open(path, "rb") as raw:
        watched = Watched(raw)
        plist = native.build_access_list(access)
        plist.set_fileobj_driver(h5py.h5fd.fileobj_driver, watched)
        with h5py.File(path) as file:
            is_paged = file.id.get_create_plist().get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
        if is_paged and access.driver == "ros3":
            plist.set_page_buffer_size(_ROS3_PAGES)
        with h5py.File(h5py.h5f.open(repr(watched).encode(), h5py.h5f.ACC_RDONLY, plist)) as file:
            for span in spans:
                file[NAME][span]
            if not spans:
                list(native.walk_file(file))
        return compute_requests(access.driver, access.read_cache, watched.reads, path.stat().st_size)["requests"]


CONTAINERS = {"hdf5": Files(), "hdf5-repacked": Repacked()}
