"""References of kerchunk as containers: an index in JSON or Parquet of the chunks in the source files.

VirtualiZarr makes the references. zarr reads through them with fsspec.
"""

import json
import shutil
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbench.drivers import file_objects
from sbench.drivers.kerchunk import build_object_store, build_url, get_prefix
from sbench.studies.containers.base import Target
from sbench.studies.containers.selections import Index
from sbench.studies.containers.zarr import ZarrContainer

if TYPE_CHECKING:
    import xarray as xr

_JSON, _PARQUET = "references.json", "references.parquet"


class References(ZarrContainer):
    """References in JSON, which a reader loads as a whole, or in Parquet, of which it loads parts."""

    zarr_format = 2

    def __init__(self, name: str) -> None:
        """Initialize for the file or folder `name`."""
        self._name = name
        also = ("fastparquet",) if name == _PARQUET else ()
        self.needs = ("virtualizarr", "zarr", "obstore", "fsspec", "s3fs", "kerchunk", *also)

    def convert(self, target: Target) -> None:
        """Scan the source files and write the references to the store."""
        path = target.scratch / self._name
        virtual = open_virtual(target)
        if self._name == _JSON:
            path.write_text(json.dumps(virtual.vz.to_kerchunk(format="dict")), encoding="utf-8")
            target.put_file(self._name, path)
            return
        shutil.rmtree(path, ignore_errors=True)
        virtual.vz.to_kerchunk(str(path), format="parquet")
        for file in path.rglob("*"):
            if file.is_file():
                target.put_file(f"{self._name}/{file.relative_to(path)}", file)

    def forecast_requests(self, target: Target, parts: Sequence[Index]) -> int | None:
        """Forecast the requests for the references, and one per chunk in the source files.

        fsspec sends two requests for each file of references: its size, and its content. Of references in Parquet, it
        loads the metadata, and the files with the references of the chunks that it reads.
        """
        if target.is_local:
            return None
        files, grid = 1, target.grid
        if self._name == _PARQUET:
            size = self._read_record_size(target)
            shape = [-(-side // step) for side, step in zip(grid.shape, grid.chunks, strict=True)]
            chunks = {chunk for index in parts for chunk in grid.list_touched(index)}
            files += len({((first * shape[1] + second) * shape[2] + third) // size for first, second, third in chunks})
        return 2 * files + sum(len(grid.list_touched(index)) for index in parts)

    def _read_record_size(self, target: Target) -> int:
        import obstore

        content = obstore.get(target.open_objects(), f"{self._name}/.zmetadata").bytes()
        return json.loads(bytes(content))["record_size"]

    def open_store(self, target: Target) -> object:
        """Open the references as a store of zarr."""
        import fsspec
        from zarr.storage import FsspecStore

        remote = {"asynchronous": True}
        options: dict = {"target_options": {}}
        if not target.is_local:
            settings = file_objects.build_s3fs_settings(target.build_access("s3fs"))
            remote, options = remote | settings, {"target_options": settings}
        files = fsspec.filesystem(
            "reference",
            fo=target.build_url(self._name),
            target_protocol="file" if target.is_local else "s3",
            remote_protocol="file" if target.is_local else "s3",
            remote_options=remote,
            asynchronous=True,
            skip_instance_cache=True,
            **options,
        )
        return FsspecStore(files, read_only=True)


def open_virtual(target: Target) -> "xr.Dataset":
    """Return the source files as one virtual dataset, with references to their chunks."""
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    access = target.build_access("s3fs")
    urls = [build_url(address, access) for address in target.list_sources()]
    registry = ObjectStoreRegistry({get_prefix(urls[0]).rstrip("/"): build_object_store(urls[0], access)})
    with warnings.catch_warnings():
        # zarr warns about codecs that are not part of its specification, such as HDF5's.
        warnings.simplefilter("ignore")
        opened = [
            open_virtual_dataset(url=url, registry=registry, parser=HDFParser(), loadable_variables=[]) for url in urls
        ]
        options = {"coords": "minimal", "compat": "override", "combine_attrs": "override", "join": "override"}
        return opened[0] if len(opened) == 1 else xr.concat(opened, dim="time", data_vars="minimal", **options)


CONTAINERS = {"kerchunk-json": References(_JSON), "kerchunk-parquet": References(_PARQUET)}
