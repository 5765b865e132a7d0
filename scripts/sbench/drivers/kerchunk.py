"""Read HDF5 files as Zarr, with an index of all chunk locations that is created in advance.

With the index, zarr does not read HDF5's metadata. Datasets whose type or filter has no counterpart in Zarr are not in
the index and cannot be read.
"""

import contextlib
import gc
import hashlib
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.drivers import LINKS, Access, Indexed, Unable, Where, convert_failures, file_objects, native
from sbench.stores.s3 import ENDPOINT

if TYPE_CHECKING:
    import icechunk
    import numpy as np
    import zarr
    from virtualizarr.manifests import ManifestGroup

_WORDS = (KeyError, NotImplementedError, TypeError, ValueError)


class _Zarr(Indexed):
    """Base class of the drivers that read with zarr and an index, with zarr's default number of concurrent requests."""

    files = s3 = True

    def index(self, addresses: Sequence[str], access: Access, folder: Path) -> None:
        # The index is named after the object's path, not its full URL: the server's port may differ at read time.
        for address in addresses:
            place = build_url(address, access)
            self._make_file_index(place, address, access, folder / _build_index_name(place))

    @abstractmethod
    def _make_file_index(self, place: str, address: str, access: Access, path: Path) -> None:
        """Index a single file, and write the index to `path`.

        Args:
            place: the file's URL in the index, from `build_url`.
            address: path or URL that reads the file.
            access: the settings to read with.
            path: the file or directory to create.
        """


class _Kerchunk(_Zarr):
    """zarr on top of fsspec's reference file system, with a JSON index created by kerchunk.

    The index contains the values of datasets smaller than 500 bytes.
    """

    inlines = True
    needs = ("kerchunk", "zarr", "s3fs")
    libraries = ("kerchunk", "zarr", "numcodecs", "s3fs", "fsspec")

    def supports_need(self, need: str, address: str) -> bool:
        # The index contains each object once, even if several links refer to it, because HDF5 visits it once.
        return need == LINKS

    def _make_file_index(self, place: str, address: str, access: Access, path: Path) -> None:
        import h5py
        from kerchunk.hdf import SingleHdf5ToZarr

        class Translator(SingleHdf5ToZarr):
            def _translator(self, name: str, item: object) -> None:
                if isinstance(item, h5py.Dataset) and item.id.get_type().get_class() == h5py.h5t.VLEN:
                    # kerchunk would convert each variable-length sequence to a string.
                    warnings.warn(f"{name} is left out", stacklevel=1)
                else:
                    super()._translator(name, item)

            def close(self) -> None:
                # Releases before 0.2.10 lack this method.
                if hasattr(super(), "close"):
                    super().close()

        with (
            file_objects.open_source(address, access) as source,
            _stop_garbage_collection(),
            warnings.catch_warnings(record=True) as left_out,
        ):
            warnings.simplefilter("always")
            with contextlib.closing(Translator(source, place)) as made:
                made_of = made.translate()
        # kerchunk warns about each object that it omits.
        path.write_text(json.dumps(made_of | {"left_out": len(left_out)}), encoding="utf-8")

    def open(self, address: str, access: Access) -> "_File":
        import fsspec
        from fsspec.implementations.reference import ReferenceFileSystem
        from zarr.storage import FsspecStore

        place = build_url(address, access)
        protocol, remote = place.partition("://")[0], {"asynchronous": True}
        if protocol == "s3":
            remote |= file_objects.build_s3fs_settings(access)
        references = json.loads((Path(access.index) / _build_index_name(place)).read_text(encoding="utf-8"))
        options = {"remote_protocol": protocol, "remote_options": remote, "asynchronous": True}
        files = fsspec.filesystem("reference", fo=references, skip_instance_cache=True, **options)
        library = "kerchunk" if isinstance(files, ReferenceFileSystem) else type(files).__name__
        # zarr cannot list the members of a store of references below its root.
        marks = (".zgroup", ".zarray")
        paths = sorted(key.rpartition("/")[0] for key in files.references if key.rpartition("/")[2] in marks)
        return _File(FsspecStore(files, read_only=True), library, [*filter(None, paths)], references["left_out"])


class _VirtualiZarr(_Zarr):
    """zarr on top of a local icechunk repository, whose virtual chunks virtualizarr locates in the HDF5 file."""

    needs = ("virtualizarr", "icechunk", "zarr", "obstore")
    libraries = ("virtualizarr", "icechunk", "zarr", "obstore", "obspec_utils")

    def _make_file_index(self, place: str, address: str, access: Access, path: Path) -> None:
        import icechunk
        import zarr
        from obspec_utils.registry import ObjectStoreRegistry
        from virtualizarr.parsers import HDFParser

        registry = ObjectStoreRegistry({get_prefix(place).rstrip("/"): build_object_store(place, access)})
        with (
            convert_failures("virtualizarr", place, *_WORDS, AttributeError, FileNotFoundError),
            warnings.catch_warnings(),
        ):
            # zarr warns about codecs that are not part of its specification, such as HDF5's.
            warnings.simplefilter("ignore")
            parsed = HDFParser()(url=place, registry=registry)._group
            config = build_repository_config(place, access)
            storage = icechunk.local_filesystem_storage(str(path))
            session = icechunk.Repository.create(storage, config).writable_session("main")
            with convert_failures("virtualizarr", place, icechunk.IcechunkError):
                _write_group(session.store, zarr.group(store=session.store, zarr_format=3), parsed)
        session.commit("index")

    def open(self, address: str, access: Access) -> "_File":
        import icechunk

        place = build_url(address, access)
        config = build_repository_config(place, access)
        storage = icechunk.local_filesystem_storage(str(Path(access.index) / _build_index_name(place)))
        repository = icechunk.Repository.open(storage, config, build_credentials(place, access))
        store = repository.readonly_session("main").store
        return _File(store, "virtualizarr" if isinstance(store, icechunk.IcechunkStore) else type(store).__name__)


class _File:
    def __init__(self, store: object, driver: str, paths: list[str] | None = None, left_out: int = 0) -> None:
        # `paths` lists the objects in the index if zarr cannot. `left_out` counts the objects missing from the index.
        import zarr

        self._driver, self._paths, self._left_out = driver, paths, left_out
        self._group = zarr.open_group(store, mode="r")

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        with convert_failures(self._driver, path, *_WORDS):
            if path.strip("/") not in self._group:
                raise Unable(f"{self._driver} cannot read {path}: it is not in the index")
            return self._group[path.strip("/")][where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        if self._left_out:
            raise Unable(f"{self._driver} cannot read the tree: {self._left_out} objects are not in the index")
        yield "/", None, dict(self._group.attrs)
        listed = self._group.members(max_depth=None) if self._paths is None else None
        for path, item in ((path, self._group[path]) for path in self._paths) if listed is None else listed:
            attributes = {name: value for name, value in item.attrs.items() if name != "_ARRAY_DIMENSIONS"}
            yield f"/{path}", getattr(item, "shape", None), attributes

    def read_settings(self) -> dict:
        return {"driver": self._driver}

    def close(self) -> None:
        self._group.store.close()


@contextlib.contextmanager
def _stop_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which could cause a deadlock.

    A collection in zarr's thread would wait for h5py's lock, while the thread with this lock waits for zarr.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def build_url(address: str, access: Access) -> str:
    """Build the URL under which an index refers to a file: s3://bucket/key, without the server, or file://path."""
    if "://" in address:
        return f"s3://{file_objects.parse_place(address, access)}"
    return f"file://{Path(address).resolve()}"


def _build_index_name(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def get_prefix(place: str) -> str:
    """Return the URL prefix shared by all objects in a bucket, or by all files in a directory."""
    return place[: place.index("/", len("s3://")) + 1] if place.startswith("s3://") else place.rpartition("/")[0] + "/"


def build_object_store(place: str, access: Access) -> object:
    """Open the bucket, or the directory, of a file with obstore; `place` is its URL from `build_url`."""
    from obstore.store import LocalStore, S3Store

    if place.startswith("file://"):
        return LocalStore(prefix=get_prefix(place).removeprefix("file://"))
    key, secret, token = native.get_credentials(access.store)
    settings: dict = {"region": access.store["region"], "skip_signature": not key}
    if key:
        settings |= {"access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}
    if endpoint := os.environ.get(ENDPOINT):
        settings |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        settings["client_options"] = {"allow_http": True}
    return S3Store(get_prefix(place).removeprefix("s3://").rstrip("/"), **settings)


def build_repository_config(place: str, access: Access) -> "icechunk.RepositoryConfig":
    """Configure a repository of icechunk with virtual chunks in the bucket or directory of a file (`build_url`)."""
    import icechunk

    # By default, icechunk prints warnings about concurrent writers to standard output.
    icechunk.set_logs_filter("error")
    prefix, config = get_prefix(place), icechunk.RepositoryConfig.default()
    if prefix.startswith("file://"):
        holder = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
    else:
        settings = {"region": access.store["region"], "anonymous": access.store["anonymous"]}
        if endpoint := os.environ.get(ENDPOINT):
            more = {"allow_http": True, "s3_compatible": True, "force_path_style": True}
            settings |= {"endpoint_url": endpoint, **more}
        holder = icechunk.s3_store(**settings)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, holder))
    return config


def build_credentials(place: str, access: Access) -> dict:
    """Return the credentials with which icechunk reads virtual chunks in the bucket or directory of a file."""
    import icechunk

    if place.startswith("file://"):
        return icechunk.containers_credentials({get_prefix(place): None})
    key, secret, token = native.get_credentials(access.store)
    owner = (
        icechunk.s3_credentials(access_key_id=key, secret_access_key=secret, session_token=token or None)
        if key
        else icechunk.s3_credentials(anonymous=True)
    )
    return icechunk.containers_credentials({get_prefix(place): owner})


def _write_group(store: "icechunk.IcechunkStore", group: "zarr.Group", parsed: "ManifestGroup") -> None:
    # Bypass xarray's datasets, which reject a group with arrays of different lengths and no dimension scales.
    from virtualizarr.writers.icechunk import update_attributes, write_virtual_variable_to_icechunk

    for name, array in parsed.arrays.items():
        write_virtual_variable_to_icechunk(store, group, name, array.to_virtual_variable())
    for name, below in parsed.groups.items():
        _write_group(store, group.create_group(name), below)
    update_attributes(group, parsed.metadata.attributes)


DRIVERS = {"kerchunk": _Kerchunk(), "virtualizarr": _VirtualiZarr()}
