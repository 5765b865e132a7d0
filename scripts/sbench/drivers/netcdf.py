"""Read files of netCDF4 and similar files with h5netcdf, alone and beneath xarray; both over h5py, in S3 over s3fs."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.drivers import DEFAULT, LINKS, WITHIN, Access, Driver, Unable, Where, convert_failures, file_objects, native

if TYPE_CHECKING:
    import numpy as np
    import xarray


class _H5NetCDF(Driver):
    """h5netcdf over a path, or a file of s3fs with its read caches; names dimensions without a scale when needed."""

    files = s3 = True
    needs = ("h5netcdf", "s3fs")
    libraries = ("h5netcdf", "s3fs", "fsspec")
    chunk_caches = True
    read_caches = file_objects.READ_CACHES

    def supports_need(self, need: str, address: str) -> bool:
        # h5py takes a file object for any other file, too.
        return need == WITHIN or (need != LINKS and "://" not in address)

    def open(self, address: str, access: Access) -> "_File":
        return _File(file_objects.open_s3_file(address, access) if "://" in address else address, access)


class _XArray(_H5NetCDF):
    """xarray's engine h5netcdf: it gets an address by default, which it opens over s3fs by itself.

    With a read cache it gets a file of s3fs, as from users who open it themselves; readahead-50MiB is the default of
    s3fs. The first read from a group opens it with all its variables. Nothing is decoded (no fill values, scales,
    times), so that values are the values in the file.
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
        # Strings of variable length, the only type that HDF5 has for them.
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
        # xarray has no public way from a dataset to its file.
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
