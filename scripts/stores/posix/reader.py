"""Reads files: unbuffered binary reads into the process's own buffer, past the page cache if asked (O_DIRECT)."""

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from scripts.lib import cache
from scripts.lib.program import Problem
from scripts.stores import reading
from scripts.stores.reading import Access, Changed, Identity

# What O_DIRECT wants of offsets, lengths and addresses: no device has larger logical blocks.
_ALIGNED = 4096


class Reader(reading.Reader):
    """Reads files of a folder; `retries` stays 0, since nothing tries again."""

    def __init__(self, location: dict, access: Access) -> None:
        """Take the folder of the dataset."""
        super().__init__(access)
        self._folder = Path(location["folder"])
        self.client = f"preadv of Linux {platform.release()}"
        self._open: dict[str, int] = {}

    def identify(self, name: str) -> Identity:
        """Return size, inode and time of modification; see that the file can be opened."""
        self._file(name)
        return self._identity(name)

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view`; the file stays open, but its path must lead to it before and after.

        Opened anew for each operation, the kernel would begin to read ahead anew each time.
        """
        file = self._file(name)
        self._confirm(name, identity)
        self.each(self.chunks(extents, view), lambda offset, part: self._fetch(file, name, offset, part))
        self._confirm(name, identity)

    def close(self) -> None:
        """Close files and threads."""
        super().close()
        while self._open:
            os.close(self._open.popitem()[1])

    def path(self, name: str) -> Path:
        """Return where an object is."""
        return self._folder / name

    def _file(self, name: str) -> int:
        if name in self._open:
            return self._open[name]
        path = self.path(name)
        if self.access.direct and cache.file_system_type(path):
            # Newer kernels open files in memory with O_DIRECT and read them as ever.
            raise _no_direct(path)
        try:
            self._open[name] = os.open(path, os.O_RDONLY | (os.O_DIRECT if self.access.direct else 0))
        except OSError as error:
            if error.errno == errno.EINVAL and self.access.direct:
                raise _no_direct(path) from error
            raise Problem(f"{path} cannot be opened: {error.strerror}") from error
        return self._open[name]

    def _identity(self, name: str) -> Identity:
        try:
            status = os.stat(self.path(name))
        except FileNotFoundError as error:
            raise Changed(f"{self.path(name)} was removed while it was measured") from error
        return Identity(status.st_size, f"inode {status.st_ino}, modified {status.st_mtime_ns}")

    def _confirm(self, name: str, identity: Identity) -> None:
        if self._identity(name) != identity:
            raise Changed(f"{self.path(name)} was replaced or changed while it was measured")

    def _fetch(self, file: int, name: str, offset: int, part: memoryview) -> None:
        with self._lock:
            self.attempts += 1
        try:
            whole = _direct(file, offset, part) if self.access.direct else _fill(file, offset, part, len(part))
        except OSError as error:
            if error.errno == errno.EINVAL and self.access.direct:
                raise _no_direct(self.path(name)) from error
            raise Problem(f"{self.path(name)} cannot be read: {error.strerror}") from error
        if not whole:
            raise Changed(f"{self.path(name)} ended before all of it was read")


def _fill(file: int, offset: int, view: memoryview, needed: int, unit: int = 1) -> bool:
    """Read until `needed` bytes of `view` are there, whole units but at the file's end; says whether they are."""
    done = 0
    while done < needed:
        count = os.preadv(file, [view[done:]], offset + done)
        done += count
        if not count or (count % unit and done < needed):
            return False
    return True


def _direct(file: int, offset: int, part: memoryview) -> bool:
    """Read past the page cache: what is aligned straight into `part`, the rest through an aligned buffer of its own."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(part))
    straight = len(part) - len(part) % _ALIGNED if (offset | address) % _ALIGNED == 0 else 0
    if not _fill(file, offset, part[:straight], straight, _ALIGNED):
        return False
    offset, rest = offset + straight, part[straight:]
    if not rest:
        return True
    # The aligned blocks around the rest.
    before = offset % _ALIGNED
    end = before + len(rest)
    with mmap.mmap(-1, end + -end % _ALIGNED) as buffer, memoryview(buffer) as view:
        whole = _fill(file, offset - before, view, end, _ALIGNED)
        rest[:] = view[before:end]
    return whole


def _no_direct(path: Path) -> Problem:
    kind = cache.file_system_type(path) or "its file system"
    return Problem(f"{path}: {kind} has no direct input (O_DIRECT); leave direct out of cache for this store")
