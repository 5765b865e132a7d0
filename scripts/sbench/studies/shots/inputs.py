"""Find HDF5 input files on a local file system or in an S3 bucket, by path, directory, pattern or URL."""

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

import h5py

from sbench.probe import formats, globs
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.stores.as_file import AsFile
from sbench.stores.reading import Absent, Denied, Reader
from sbench.stores.store import Store
from sbench.stores.transfer import ACCESS
from sbench.studies.shots.addresses import IN_BUCKET, get_bucket
from sbench.studies.shots.files import build_regex

_WILD = re.compile(r"[*?\[]")
_BELOW = "includes files below it"
_IS_ZARR = "is a Zarr store, not an HDF5 file; copy it with xarray: open_zarr, then to_netcdf"


@dataclass(frozen=True)
class Source:
    """An input file.

    Attributes:
        name: path relative to the common directory of all files.
        bytes: size of the file in bytes.
        version: properties that change when the file changes, such as its modification time or an object's ETag.
        where: path or URL.
        reader: reads objects below the common prefix; None for a local file.
        copy: path of a local copy of an object, made together with copies of the objects that contain its values.
        gathered: bytes and version of all copied objects, keyed by path relative to the common directory.
    """

    name: str
    bytes: int
    version: dict
    where: str
    reader: Reader | None = None
    copy: str = ""
    gathered: Mapping[str, dict] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The common directory of all files, or an empty string for an object that was not copied."""
        return (self.copy or ("" if self.reader else self.where)).removesuffix(self.name).rstrip("/")

    def open_raw(self) -> BinaryIO | AsFile:
        """Open the file for reading in binary mode.

        Raises:
            Problem: it cannot be read, or is not a regular file.
        """
        if self.reader:
            # There is no byte range to request from an empty object.
            return AsFile(self.reader, self.name) if self.bytes else io.BytesIO()
        try:
            _expect_file(self.where)
            return open(self.where, "rb")
        except OSError as error:
            raise Problem(f"{self.where} cannot be read: {_describe_error(self.where, error)}") from error

    @contextlib.contextmanager
    def open_hdf5(self) -> Iterator[h5py.File]:
        """Open the file with h5py as a context manager. S3 objects are read through `AsFile`, unless there is a copy.

        Raises:
            Problem: the file is not HDF5, or it cannot be read.
        """
        with self.open_raw() as content:
            try:
                file = h5py.File(self.copy or (content if self.reader else self.where), "r")
            except (OSError, RuntimeError, ValueError) as error:
                raise Problem(formats.describe_open_error(self.where, content, error)) from error
            try:
                with file:
                    yield file
            except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
                # The file could be opened, but a later part of it cannot be read.
                raise Problem(f"{self.where} cannot be read as HDF5: {formats.format_error(error)}") from error


def _expect_file(path: str) -> None:
    """Raise Problem if a path is not a regular file. For example, opening a pipe would block."""
    if os.path.isdir(path):
        raise Problem(f"{path} {_IS_ZARR}")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Problem(f"{path} cannot be read: it is a pipe, a socket or a device; leave it out")


def _describe_error(path: str, error: OSError) -> str:
    if not os.path.islink(path) or os.path.exists(path):
        return error.strerror
    target = os.readlink(path)
    remedy = "fetch its content: git annex get" if "/annex/objects/" in target else "correct it"
    return f"it is a link to {target}, which does not exist; {remedy}"


def find_sources(what: str | Sequence[str], store: dict | None = None) -> list[Source]:
    """Return the files that match paths, directories or patterns, sorted by path.

    Args:
        what: files, directories or glob patterns, in which `**` matches any directories; either all local or all in
            the same bucket.
        store: the store's entry in the configuration, for files in a bucket.

    Raises:
        Problem: an item matches no file, or the bucket cannot be listed.
    """
    wanted = [what] if isinstance(what, str) else list(what)
    if store:
        return _list_bucket_sources(wanted, store)
    if get_bucket(wanted):
        raise Problem(
            f"{wanted[0]} is in a bucket, which only sets of files support; write files: {{mine: {wanted[0]}}}"
        )
    return _list_local_sources(wanted)


def _list_local_sources(wanted: Iterable[str]) -> list[Source]:
    paths = sorted(
        {os.path.abspath(path) for pattern in wanted for path in _expand_pattern(os.path.expanduser(pattern))}
    )
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [_build_local_source(path, os.path.relpath(path, root)) for path in paths]


def _build_local_source(path: str, name: str) -> Source:
    """Return the `Source` of a local file. The size of a broken link is 0; opening it raises an error later."""
    try:
        state = os.stat(path)
    except OSError:
        return Source(name, 0, {}, path)
    return Source(name, state.st_size, {"mtime_ns": state.st_mtime_ns}, path)


def _expand_pattern(pattern: str) -> list[str]:
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern) and not _is_zarr(pattern):
        return _list_folder(pattern)
    matches = globs.expand_pattern(pattern)
    if files := [path for path in matches if not os.path.isdir(path) or _is_zarr(path)]:
        return files
    if matches:
        raise Problem(f"{pattern} matches only folders; write {pattern.rstrip('/')}/*.h5 for their files")
    raise Problem(f"no file matches {pattern}; correct the path or the pattern")


def _list_folder(folder: str) -> list[str]:
    """Return the HDF5 files in a directory, recognised by suffix, or if no suffix is known, by content."""
    there = [path for path in Path(folder).iterdir() if not path.name.startswith(".") and not path.is_dir()]
    named = [path for path in there if formats.is_named_hdf5(path.name)]
    files = named or [path for path in there if _is_hdf5(path)]
    if not files:
        raise Problem(f"{folder} contains no HDF5 file directly; {folder.rstrip('/')}/**/*.h5 {_BELOW}")
    return list(map(str, files))


def _is_hdf5(path: Path) -> bool:
    try:
        with Source(path.name, 0, {}, str(path)).open_raw() as content:
            return formats.is_hdf5(content)
    except Problem:
        return False


def _is_zarr(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in formats.ZARR)


def _list_bucket_sources(wanted: Iterable[str], spec: dict) -> list[Source]:
    store, objects = stores.get_store(spec), {}
    for one in wanted:
        objects |= _find_objects(store, one)
    return _build_sources(objects, store, spec)


def find_object(key: str, spec: dict) -> Source | None:
    """Return the object with this key, or None if it does not exist or access is denied."""
    store = stores.get_store(spec)
    with contextlib.suppress(Absent, Denied):
        return _build_sources(store.list_objects("", [key]), store, spec)[0]
    return None


def _build_sources(objects: Mapping[str, tuple[int, dict]], store: Store, spec: dict) -> list[Source]:
    root = _find_shared_folder(objects)
    reader = store.build_reader(
        {"key": root}, ACCESS, store.resolve_location({"location": {"key": root}}, None, dict(os.environ))[1]
    )
    return [
        Source(key.removeprefix(f"{root}/"), size, version, f"{IN_BUCKET}{spec['bucket']}/{key}", reader)
        for key, (size, version) in sorted(objects.items())
    ]


def _find_shared_folder(keys: Iterable[str]) -> str:
    """Return the common directory of all keys; unlike os.path.commonpath, this preserves consecutive slashes."""
    folders = zip(*(key.split("/")[:-1] for key in keys), strict=False)
    return "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, folders))


def _find_objects(store: Store, address: str) -> dict[str, tuple[int, dict]]:
    """Return the objects in a bucket that match a URL, directory or pattern, as a dict {key: (bytes, version)}."""
    key = address.removeprefix(IN_BUCKET).partition("/")[2]
    literal = _WILD.split(key)[0]
    if literal != key:
        listed = store.list_objects(literal, below="/" in key[len(literal) :] or "**" in key)
        matches = {name: entry for name, entry in listed.items() if re.fullmatch(build_regex(key), name)}
    elif key and not key.endswith("/"):
        matches = _find_object_or_folder(store, address, key)
    else:
        matches = _choose_hdf5(address, store.list_objects(key, below=False))
    if objects := {name: entry for name, entry in matches.items() if not name.endswith("/")}:
        return objects
    raise Problem(f"no object matches {address}; correct the address or the pattern")


def _find_object_or_folder(store: Store, address: str, key: str) -> dict[str, tuple[int, dict]]:
    with contextlib.suppress(Absent):
        return store.list_objects("", [key])
    try:
        listed = store.list_objects(f"{key}/", below=False)
    except Problem:
        # The account may be permitted to read objects but not to list them.
        return {}
    return _choose_hdf5(address, listed)


def _choose_hdf5(folder: str, listed: dict[str, tuple[int, dict]]) -> dict[str, tuple[int, dict]]:
    if not formats.ZARR.isdisjoint(key.rpartition("/")[2] for key in listed):
        raise Problem(f"{folder} {_IS_ZARR}")
    files = {key: entry for key, entry in listed.items() if formats.is_named_hdf5(key)}
    if listed and not files:
        raise Problem(f"{folder} contains no HDF5 object directly; {folder.rstrip('/')}/**/*.h5 {_BELOW}")
    return files


def build_store_entry(bucket: str) -> dict:
    """Build a store's configuration entry for a bucket to which the configuration does not refer."""
    from sbench.stores.s3 import client

    return client.build_store_entry(bucket)
