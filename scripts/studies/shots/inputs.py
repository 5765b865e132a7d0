"""Input files: which HDF5 files paths, folders, patterns and addresses mean, on a disk or in a bucket."""

import contextlib
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import h5py

from scripts.lib.program import Problem
from scripts.stores import store as stores
from scripts.stores.as_file import AsFile
from scripts.stores.reading import Absent
from scripts.stores.transfer import ACCESS
from scripts.studies.shots.files import expression, reason
from scripts.studies.shots.sets import IN_BUCKET

# NetCDF-4 files are HDF5 files.
SUFFIXES = (".h5", ".hdf5", ".nc", ".nc4", ".he5", ".nwb")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Source:
    """One file: its name within what all have in common, its bytes, and what changes when it does."""

    name: str
    bytes: int
    version: dict
    where: str
    reader: object = None

    def raw(self) -> BinaryIO | AsFile:
        """Open its bytes for reading."""
        return AsFile(self.reader, self.name) if self.reader else open(self.where, "rb")

    @contextlib.contextmanager
    def opened(self) -> Iterator[h5py.File]:
        """Open it for the length of a `with` block, by h5py: from a bucket through requests of our own.

        Raises:
            Problem: it is not HDF5, or cannot be read.
        """
        with contextlib.ExitStack() as stack:
            try:
                raw: BinaryIO | str = AsFile(self.reader, self.name) if self.reader else self.where
                if isinstance(raw, AsFile):
                    self._expect_hdf5(raw)
                file = stack.enter_context(h5py.File(raw, "r"))
            except OSError as error:
                if not self.reader:
                    with contextlib.suppress(OSError), open(self.where, "rb") as content:
                        self._expect_hdf5(content)
                raise Problem(f"{self.where} cannot be read as HDF5: {reason(error)}") from error
            try:
                yield file
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                # Its beginning can be read, and something further in cannot.
                raise Problem(f"{self.where} cannot be read as HDF5: {reason(error)}") from error

    def _expect_hdf5(self, content: BinaryIO) -> None:
        """See that it begins as HDF5 does, if need be behind a block of the user's own."""
        size = content.seek(0, os.SEEK_END)
        for offset in (0, *(512 * 2**power for power in range(24))):
            if offset >= size:
                break
            content.seek(offset)
            if content.read(len(_SIGNATURE)) == _SIGNATURE:
                return
        content.seek(0)
        begin = content.read(512).lstrip().lower()
        kind = (
            "a page of HTML: is it the address of a web page?"
            if begin.startswith((b"<!doctype html", b"<html"))
            else ""
        )
        raise Problem(f"{self.where} is not an HDF5 file" + (f" but {kind}" if kind else ""))


def sources(what: str | Sequence[str], store: dict | None = None) -> list[Source]:
    """Return the files that paths, folders and patterns mean, in the order of their names.

    Args:
        what: files, folders, and globs of local files, `**` in them any folders; or addresses and patterns in a bucket.
        store: the store's entry in the configuration, for those.

    Raises:
        Problem: one means no file, or a bucket cannot be listed.
    """
    wanted = [what] if isinstance(what, str) else list(what)
    return _in_bucket(wanted, store) if store else _here(wanted)


def _here(wanted: Iterable[str]) -> list[Source]:
    paths: list[str] = []
    for one in map(os.path.expanduser, wanted):
        there = [one] if os.path.isfile(one) else []
        if os.path.isdir(one):
            there = sorted(str(path) for path in Path(one).glob("*") if path.suffix in SUFFIXES and not path.is_dir())
        there = there or sorted(path for path in glob.glob(one, recursive=True) if not os.path.isdir(path))
        if not there and os.path.isdir(one):
            kinds = ", ".join(SUFFIXES)
            raise Problem(f"{one} has no file of its own that ends in {kinds}; {one}/**/*.h5 means those below it, too")
        if not there:
            raise Problem(f"{one}: no file is there; correct the path or the pattern")
        paths += [os.path.abspath(path) for path in there]
    paths = sorted(set(paths))
    root = (
        os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath([os.path.dirname(path) for path in paths])
    )
    files = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError as error:
            raise Problem(f"{path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(state.st_mode):
            raise Problem(f"{path} cannot be read: it is no file but a pipe, a socket or a device; leave it out")
        files.append(Source(os.path.relpath(path, root), state.st_size, {"mtime_ns": state.st_mtime_ns}, path))
    return files


def _in_bucket(wanted: Iterable[str], spec: dict) -> list[Source]:
    store = stores.of(spec)
    keys: dict[str, tuple[int, str]] = {}
    for one in wanted:
        key = one.removeprefix(IN_BUCKET).partition("/")[2]
        literal = re.split(r"[*?\[]", key)[0]
        listed = {}
        with contextlib.suppress(Absent):
            listed = store.listed(literal, [key] if literal == key else [])
        matching = {
            name: entry for name, entry in listed.items() if literal == key or re.fullmatch(expression(key), name)
        }
        if not matching:
            raise Problem(f"{one}: no object is there; correct the address or the pattern")
        keys |= matching
    root = os.path.commonpath([os.path.dirname(key) for key in keys])
    reader = store.reader({"key": root}, ACCESS, store.locate({"location": {"key": root}}, None, dict(os.environ))[1])
    return [
        Source(
            os.path.relpath(key, root) if root else key,
            size,
            {"etag": etag},
            f"{IN_BUCKET}{spec['bucket']}/{key}",
            reader,
        )
        for key, (size, etag) in sorted(keys.items())
    ]


def store_of(bucket: str) -> dict:
    """Return the store's entry for a bucket that no configuration names."""
    from scripts.stores.s3 import client

    return client.store_from_environment(bucket)
