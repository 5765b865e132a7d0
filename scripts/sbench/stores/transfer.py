"""Upload a dataset to an object store: upload missing objects with the SDK, and read them back to verify them.

Objects are read from files, or generated while they are uploaded (`sbench.probe.content`). At most one part per request
in flight is in memory.
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
        where: description of the bucket, container or share, for messages.
        writable: whether uploads are allowed.
        most_parts: maximum number of parts of an object.
    """

    writable = True
    most_parts = sys.maxsize

    def __init__(self, where: str, key: str) -> None:
        """Initialise with a description for messages, and the common key prefix of the dataset's objects."""
        self.where, self._key = where, key

    def build_object_key(self, name: str) -> str:
        """Return the key of an object in the store."""
        return f"{self._key}/{name}".lstrip("/")

    @abstractmethod
    def convert_errors(self) -> contextlib.AbstractContextManager:
        """Convert the SDK's exceptions to `Problem` during a `with` block."""

    def make_holder(self) -> None:
        """Create the bucket or container if it is missing. Only called for embedded servers."""
        return

    def fetch_part_bytes(self, name: str) -> int | None:
        """Return the size in bytes of an object's first or only part, or None if the store does not report it."""
        return None

    @abstractmethod
    def upload_object(self, name: str, source: BinaryIO, size: int, part: int, progress: "Progress") -> None:
        """Upload `size` bytes with the SDK, in parts of `part` bytes, and report progress."""


class Progress:
    """Reports the progress of the transfer of a large object, at most once per 10 s."""

    def __init__(self, what: str, size: int, say: Say) -> None:
        """Start with 0 of `size` bytes transferred; `what` is the beginning of each reported line."""
        self._what, self._size, self._say = what, size, say
        self._done, self._said = 0, time.monotonic()

    def add_bytes(self, count: int) -> None:
        """Add to the number of transferred bytes."""
        self.set_bytes(self._done + count)

    def set_bytes(self, done: int, _size: int | None = None) -> None:
        """Set the number of transferred bytes, and report it if the last report was more than 10 s ago."""
        self._done = done
        if time.monotonic() - self._said > _SAY_EVERY_S:
            self._said = time.monotonic()
            self._say(f"{self._what}: {done / 2**30:.1f} of {self._size / 2**30:.1f} GiB")


def provide_files(target: Target, reader: Reader, files: list[File], say: Say) -> dict:
    """Upload the files of a dataset, except those that the store already contains with the correct content.

    Args:
        target: destination.
        reader: reader of existing objects.
        files: (manifest entry, local path) per file; the path is None if the entry describes how to generate the
            content. An entry may request a part size (`part_bytes`).
        say: function that reports a line of progress.

    Returns:
        {"upload": {"uploaded", "found"}, "part_bytes"}: the numbers of uploaded and of already existing objects, and
        the part size of the largest object in bytes as reported by the store (METHOD 10), or None.

    Raises:
        Problem: a one-line message with the store or the object, and the remedy.
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
    """Open a binary stream with the content of a manifest entry.

    The stream is the local file, or generates the content as it is read if `path` is None.
    """
    return content.open_stream(entry) if path is None else open(path, "rb")


def choose_part_bytes(size: int, most_parts: int, requested: int = 0) -> int:
    """Return an object's part size in bytes.

    Args:
        size: size of the object in bytes.
        most_parts: maximum number of parts.
        requested: requested part size in bytes; 0 for the smallest multiple of 1 MiB, at least 16 MiB, that needs no
            more than `most_parts` parts.

    Raises:
        Problem: the requested part size needs too many parts.
    """
    if requested and requested * most_parts < size:
        raise Problem(f"{size} bytes need more than {most_parts} parts of {requested} bytes; choose a larger part_size")
    return requested or max(_LEAST_PART, -(-size // (most_parts * MIB)) * MIB)


def _has_parts(target: Target, entry: dict) -> bool:
    """Return whether an object has the part size requested by its manifest entry; True if the store reports none."""
    requested = entry.get("part_bytes")
    return not requested or target.fetch_part_bytes(entry["name"]) in (None, min(requested, entry["bytes"]))


def _has_object(target: Target, reader: Reader, entry: dict, say: Say) -> bool:
    """Return whether the object exists and matches its manifest entry in size, part size and SHA-256."""
    name, size = entry["name"], entry["bytes"]
    try:
        identity = reader.fetch_identity(name)
    except (Absent, Changed):
        return False
    if identity.size != size or not _has_parts(target, entry):
        return False
    hashed, progress = hashlib.sha256(), Progress(f"reading {target.build_object_key(name)}", size, say)
    # Reading in pieces bounds the memory for large objects.
    buffer = memoryview(bytearray(min(size, ACCESS.chunk_bytes * ACCESS.concurrency)))
    for offset in range(0, size, len(buffer)):
        view = buffer[: size - offset]
        try:
            reader.read(name, [(offset, len(view))], view, identity)
        except Problem:
            # Not every SDK retries after a truncated response.
            reader.read(name, [(offset, len(view))], view, identity)
        hashed.update(view)
        progress.add_bytes(len(view))
    return hashed.hexdigest() == entry["sha256"]
