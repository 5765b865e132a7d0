"""Read files with `preadv` into the caller's buffer, optionally bypassing the page cache (O_DIRECT)."""

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from sbench.probe import host
from sbench.probe.program import Problem, describe_cause
from sbench.stores import reading
from sbench.stores.reading import Changed, Identity

# Alignment of offsets, lengths and addresses for O_DIRECT; no device has larger logical blocks.
_ALIGNED = 4096


class Reader(reading.Reader):
    """A reader of files in a folder; it never retries."""

    client = f"preadv of Linux {platform.release()}"

    def __init__(self, *arguments: object) -> None:
        """Initialise with the arguments of `reading.Reader`, without opening files."""
        super().__init__(*arguments)
        self._open: dict[str, int] = {}

    def fetch_identity(self, name: str) -> Identity:
        """Open the file, and return its size, inode and modification time."""
        self._open_file(name)
        return self._read_identity(name)

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Read byte ranges of a file; see `reading.Reader.read`.

        The file stays open, because reopening it for each operation would reset the kernel's readahead.
        `expect_unchanged` checks that the path still refers to the same file.
        """
        file, fill = self._open_file(name), _read_direct if self.access.direct else _read_fully

        def fetch_part(offset: int, part: memoryview) -> None:
            self.count_requests(1)
            if not fill(file, offset, part):
                raise Changed(f"{self.get_path(name)} ended before the end of the read")

        with self._convert_errors(name, "read"):
            self.fetch_pieces(self.split_extents(extents, view), fetch_part)

    def expect_unchanged(self, name: str, identity: Identity) -> None:
        """Raise Changed if the path no longer refers to the same file, or if the file was modified."""
        if self._read_identity(name) != identity:
            raise Changed(f"{self.get_path(name)} was replaced or changed during the measurement")

    def close(self) -> None:
        """Close the files and stop the threads."""
        super().close()
        while self._open:
            os.close(self._open.popitem()[1])

    def get_path(self, name: str) -> Path:
        """Return the path of a file by its name in the dataset."""
        return Path(self.location["folder"], name)

    def _open_file(self, name: str) -> int:
        if name not in self._open:
            path, direct = self.get_path(name), self.access.direct
            with self._convert_errors(name, "opened"):
                if direct and host.find_mount(path)["file_system"] in host.MEMORY_FILE_SYSTEMS:
                    # Newer kernels accept O_DIRECT for in-memory file systems, but ignore it.
                    raise OSError(errno.EINVAL, "no O_DIRECT")
                self._open[name] = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        return self._open[name]

    def _read_identity(self, name: str) -> Identity:
        try:
            status = os.stat(self.get_path(name))
        except FileNotFoundError as error:
            raise Changed(f"{self.get_path(name)} was removed during the measurement") from error
        return Identity(status.st_size, f"inode {status.st_ino}, modified {status.st_mtime_ns}")

    @contextlib.contextmanager
    def _convert_errors(self, name: str, done: str) -> Iterator[None]:
        path = self.get_path(name)
        try:
            yield
        except OSError as error:
            if error.errno != errno.EINVAL or not self.access.direct:
                raise Problem(f"{path} cannot be {done}: {describe_cause(error)}") from error
            kind = host.find_mount(path)["file_system"]
            raise Problem(
                f"{path}: {kind} does not support direct I/O (O_DIRECT); remove direct from cache for this store"
            ) from error


def _read_fully(file: int, offset: int, view: memoryview, needed: int = sys.maxsize, unit: int = 1) -> bool:
    """Read at least `needed` bytes (default: all) into `view`, and return whether this succeeded.

    A short read that is not a multiple of `unit` bytes counts as the end of the file.
    """
    done, needed = 0, min(needed, len(view))
    while done < needed:
        count = os.preadv(file, [view[done:]], offset + done)
        done += count
        if not count or (count % unit and done < needed):
            return False
    return True


def _read_direct(file: int, offset: int, part: memoryview) -> bool:
    """Read with O_DIRECT, and return whether `part` was filled before the end of the file.

    Aligned bytes are read directly into `part`, the rest via an aligned buffer.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(part))
    straight = len(part) - len(part) % _ALIGNED if (offset | address) % _ALIGNED == 0 else 0
    if not _read_fully(file, offset, part[:straight], straight, _ALIGNED):
        return False
    offset, rest = offset + straight, part[straight:]
    if not rest:
        return True
    before = offset % _ALIGNED
    end = before + len(rest)
    with mmap.mmap(-1, end + -end % _ALIGNED) as buffer, memoryview(buffer) as view:
        whole = _read_fully(file, offset - before, view, end, _ALIGNED)
        rest[:] = view[before:end]
    return whole
