"""Put a dataset into an object store: upload missing objects with the SDK and read them back.

Objects come from files or are generated while they are sent (`sbench.probe.content`); memory holds at most as many
parts as there are requests in flight.
"""

import contextlib
import hashlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from sbench.probe import content
from sbench.probe.program import Problem
from sbench.stores.reading import Absent, Access, Changed, Reader

MIB = 2**20
_LEAST_PART = 16 * MIB
THREADS = 4
ACCESS = Access(16 * MIB, THREADS)
_SAY_EVERY_S = 10

File = tuple[dict, Path | None]
Say = Callable[[str], None]


class Target(ABC):
    """The destination of a dataset in an object store.

    Attributes:
        where: name of the place in messages.
        writable: whether uploads are allowed.
        most_parts: maximum number of parts of an object.
    """

    writable = True
    most_parts = sys.maxsize

    def __init__(self, where: str, key: str) -> None:
        """Keep the place, and `key`, the common beginning of the keys of the dataset's objects."""
        self.where, self._key = where, key

    def build_object_key(self, name: str) -> str:
        """Return the object's full name in the store."""
        return f"{self._key}/{name}"

    @abstractmethod
    def convert_errors(self) -> contextlib.AbstractContextManager:
        """Turn the SDK's errors into `Problem`."""

    def make_holder(self) -> None:
        """Create the bucket or container of an embedded server if it is missing; remote services have theirs."""
        return

    def fetch_part_bytes(self, name: str) -> int | None:
        """Return the bytes of an object's first or only part, or None if the store does not report it."""
        return None

    @abstractmethod
    def upload_object(self, name: str, source: BinaryIO, size: int, part: int, progress: "Progress") -> None:
        """Upload `size` bytes with the SDK's transfer in parts of `part` bytes, and report the progress."""


class Progress:
    """A report from time to time on the progress of a large object."""

    def __init__(self, what: str, size: int, say: Say) -> None:
        """Start at 0 of `size` bytes."""
        self._what, self._size, self._say = what, size, say
        self._done, self._said = 0, time.monotonic()

    def add_bytes(self, count: int) -> None:
        """Add to the bytes done."""
        self.set_bytes(self._done + count)

    def set_bytes(self, done: int, _size: int | None = None) -> None:
        """Set the bytes done, and report them from time to time."""
        self._done = done
        if time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            self._say(f"{self._what}: {done / 2**30:.1f} of {self._size / 2**30:.1f} GiB")


def provide_files(target: Target, reader: Reader, files: list[File], say: Say) -> dict:
    """Put files into the store, except files that are there with the right bytes.

    Args:
        target: destination.
        reader: reader of existing objects.
        files: (manifest entry, local path or None if the entry describes how to generate the content); an entry may
            request `part_bytes`.
        say: function that reports a line per uploaded object.

    Returns:
        {"upload": {"uploaded", "found"}, "part_bytes"}: numbers of objects; the bytes of a part of the largest object
        as the store reports them (METHOD 10), or None.

    Raises:
        Problem: one line that names the place or the object, and the remedy.
    """
    with target.convert_errors():
        absent = [(entry, path) for entry, path in files if not _has_object(target, reader, entry, say)]
        for entry, path in absent:
            _upload_file(target, reader, entry, path, say)
        largest = max((entry for entry, _ in files), key=lambda entry: entry["bytes"])
        part = target.fetch_part_bytes(largest["name"])
    return {"upload": {"uploaded": len(absent), "found": len(files) - len(absent)}, "part_bytes": part}


def _upload_file(target: Target, reader: Reader, entry: dict, path: Path | None, say: Say) -> None:
    name, size = entry["name"], entry["bytes"]
    key, part = target.build_object_key(name), choose_part_bytes(size, target.most_parts, entry.get("part_bytes", 0))
    if not target.writable:
        raise Problem(
            f"{key} in {target.where} is missing or differs from the manifest; upload it, or set credentials and"
            " remove anonymous:"
        )
    say(f"uploading {key} ({size} bytes)")
    with open_entry(entry, path) as source:
        target.upload_object(name, source, size, part, Progress(f"uploading {key}", size, say))
    if not _has_parts(target, entry):
        raise Problem(
            f"{key} in {target.where} must have parts of {part} bytes (got {target.fetch_part_bytes(name)});"
            " choose another part_size"
        )
    if not _has_object(target, reader, entry, say):
        raise Problem(f"{key} in {target.where}: the data read back differ from the data uploaded")


def open_entry(entry: dict, path: Path | None) -> BinaryIO:
    """Open the bytes of a manifest entry: its local copy, or content generated while it is read."""
    return content.open_stream(entry) if path is None else open(path, "rb")


def choose_part_bytes(size: int, most_parts: int, requested: int = 0) -> int:
    """Return the part size of an object: `requested`, or if 0 the smallest in whole MiB, at least 16, that fits.

    Raise Problem if the requested size needs too many parts.
    """
    if requested and requested * most_parts < size:
        raise Problem(f"{size} bytes need more than {most_parts} parts of {requested} bytes; choose a larger part_size")
    return requested or max(_LEAST_PART, -(-size // (most_parts * MIB)) * MIB)


def _has_parts(target: Target, entry: dict) -> bool:
    """Return whether an object has the parts that its manifest requests, as far as its store reports."""
    requested = entry.get("part_bytes")
    return not requested or target.fetch_part_bytes(entry["name"]) in (None, min(requested, entry["bytes"]))


def _has_object(target: Target, reader: Reader, entry: dict, say: Say) -> bool:
    """Return whether the object exists with the size, the parts and the sha256 of the manifest."""
    name, size = entry["name"], entry["bytes"]
    try:
        identity = reader.fetch_identity(name)
    except (Absent, Changed):
        return False
    if identity.size != size or not _has_parts(target, entry):
        return False
    hashed, progress = hashlib.sha256(), Progress(f"reading {target.build_object_key(name)}", size, say)
    # Bounds the memory for objects of any size.
    buffer = memoryview(bytearray(min(size, ACCESS.chunk_bytes * ACCESS.concurrency)))
    for offset in range(0, size, len(buffer)):
        view = buffer[: size - offset]
        try:
            reader.read(name, [(offset, len(view))], view, identity)
        except Problem:
            # Not every SDK retries an answer that was cut.
            reader.read(name, [(offset, len(view))], view, identity)
        hashed.update(view)
        progress.add_bytes(len(view))
    return hashed.hexdigest() == entry["sha256"]
