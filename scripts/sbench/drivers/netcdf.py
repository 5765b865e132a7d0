"""Read netCDF4 and similar HDF5 files with h5netcdf, directly or through xarray.

Both use h5py, and read S3 objects through s3fs.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.drivers import DEFAULT, LINKS, WITHIN, Access, Driver, Unable, Where, convert_failures, file_objects, native

if TYPE_CHECKING:
    import numpy as np
    import xarray


class _H5NetCDF(Driver):
    """h5netcdf, given a path or an s3fs file with its read cache.

    Dimensions without a dimension scale are named when they are accessed (`phony_dims="access"`).
    """

    files = s3 = True
    needs = ("h5netcdf", "s3fs")
    libraries = ("h5netcdf", "s3fs", "fsspec")
    chunk_caches = True
    read_caches = file_objects.READ_CACHES

    def supports_need(self, need: str, address: str) -> bool:
        # If h5py reads from a file object, it also reads this object in place of any other file.
        return need == WITHIN or (need != LINKS and "://" not in address)

    def open(self, address: str, access: Access) -> "_File":
        return _File(file_objects.open_s3_file(address, access) if "://" in address else address, access)


class _XArray(_H5NetCDF):
    """xarray with its engine h5netcdf.

    By default, xarray is given a path or URL; it opens URLs with s3fs. With a read cache, it is given an s3fs file with
    this cache, as if users had opened the file themselves; s3fs's default is readahead-50MiB. The first read from a
    group opens it with all its variables. Fill values, scale factors and times are not decoded, so that the values are
    the values in the file.
    """

    needs = ("xarray", "h5netcdf", "s3fs")
    libraries = (*_H5NetCDF.libraries, "xarray")

    def open(self, address: str, access: Access) -> "_Tree":
        return _Tree(address, access)


class _File:
    def __init__(self, source: object, access: Access) -> None:
        import h5netcdf

        self._source = source
        with convert_failures("h5netcdf", "the file", TypeError, ValueError):
            self._file = h5netcdf.File(source, "r", phony_dims="access", **access.chunk_cache)

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        with convert_failures("h5netcdf", path, TypeError, ValueError):
            return self._file[path][where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        groups = [self._file]
        with convert_failures("h5netcdf", "the tree", TypeError, ValueError):
            for group in groups:
                yield group.name, None, dict(group.attrs)
                groups += group.groups.values()
                for variable in group.variables.values():
                    yield variable.name, variable.shape, dict(variable.attrs)

    def read_settings(self) -> dict:
        held = {} if isinstance(self._source, str) else file_objects.get_source_settings(self._source)
        library = type(self._file).__module__.partition(".")[0]
        return held | {"driver": library, **native.read_chunk_cache(self._file._h5file)}

    def close(self) -> None:
        self._file.close()
        if not isinstance(self._source, str):
            self._source.close()


class _Tree:
    def __init__(self, address: str, access: Access) -> None:
        remote = "://" in address
        self._options: dict = {"engine": "h5netcdf", "decode_cf": False, "phony_dims": "access"}
        self._options["driver_kwds"] = access.chunk_cache
        self._source: object = address
        if remote and access.read_cache == DEFAULT:
            self._source = f"s3://{file_objects.parse_place(address, access)}"
            self._options["storage_options"] = file_objects.build_s3fs_settings(access)
        elif remote:
            self._source = file_objects.open_s3_file(address, access)
        self._groups: dict[str, xarray.Dataset] = {}
        self._open_group("/")

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        group, _, name = path.rpartition("/")
        variables = self._open_group(group or "/").variables
        if name not in variables:
            raise Unable(f"xarray cannot read {path}: its engine h5netcdf omits it")
        with convert_failures("xarray", path, TypeError, ValueError):
            values = variables[name][where].values
        # Variable-length strings, which other drivers return as arrays of objects.
        return values.astype(object) if values.dtype.kind == "U" else values

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        import xarray

        with (
            convert_failures("xarray", "the tree", TypeError, ValueError),
            xarray.open_datatree(self._source, **self._options) as tree,
        ):
            for node in tree.subtree:
                yield node.path, None, node.attrs
                for name, variable in node.to_dataset(inherit=False).variables.items():
                    yield f"{node.path.rstrip('/')}/{name}", variable.shape, variable.attrs

    def read_settings(self) -> dict:
        root = self._groups["/"]
        # xarray has no public API to get the file of a dataset.
        manager = root._close.__self__._manager
        source, library = manager._args[0], type(root).__module__.partition(".")[0]
        held = {} if isinstance(source, str) else file_objects.get_source_settings(source)
        return held | {"driver": library, **native.read_chunk_cache(manager.acquire()._h5file)}

    def close(self) -> None:
        for group in self._groups.values():
            group.close()
        if hasattr(self._source, "close"):
            self._source.close()

    def _open_group(self, path: str) -> "xarray.Dataset":
        import xarray

        if path not in self._groups:
            with convert_failures("xarray", f"group {path}", TypeError, ValueError):
                self._groups[path] = xarray.open_dataset(self._source, group=path, **self._options)
        return self._groups[path]


DRIVERS = {"h5netcdf": _H5NetCDF(), "xarray": _XArray()}
