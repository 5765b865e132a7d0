"""Reads tarballs that somebody else made: file after file, in memory, and never more than was agreed to.

One that tries to land outside, or holds anything but files and folders, is refused, although nothing is written. Limits
hold for what comes out of the stream, whatever headers say.
"""

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from scripts.lib import program
from scripts.lib.program import Problem

SUFFIXES = (".tar.gz", ".tar.xz", ".tgz", ".tar")
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}
_READ = 2**16
# Names and other particulars of one file, and what tarfile reads ahead; more than that is an attack on the reader.
_HEADER_BYTES = 2**20
# A file of results has 0.5 MB with all bins of json+, times the processes without group_reporting; no larger is read.
FILE_BYTES = 16 * 2**20
# What a tarball may hold: files and folders, and bytes in all when unpacked.
MEMBERS, TOTAL_BYTES = 20_000, 2 * 2**30


def is_tarball(name: str) -> bool:
    """Return whether a file is a tarball by its name."""
    return name.lower().endswith(SUFFIXES)


def stem(name: str) -> str:
    """Return a tarball's name without its suffix."""
    return name[: -len(next(suffix for suffix in SUFFIXES if name.lower().endswith(suffix)))]


def wanted(name: str) -> bool:
    """Return whether a file may have something to say: fio's output, or what was written beside it."""
    path = PurePosixPath(name)
    return path.suffix in (".json", ".log", ".txt") and not path.name.startswith(".")


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files in a tarball that are `wanted`; after a Problem what was yielded is void."""
    try:
        with open(path, "rb") as file:
            opener = _OPENERS.get(file.read(2), open)
        with opener(path, "rb") as stream:
            yield from _contents(_Metered(stream))
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise Problem(f"is no tarball, or damaged: {' '.join(str(error).split())}") from error
    except EOFError as error:
        raise Problem("is cut off: it was not copied whole") from error
    except OSError as error:
        raise Problem(f"cannot be read: {error.strerror or error}") from error


def shown(name: str) -> str:
    """Return a file's name in one printable line."""
    text = program.shown(name)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"


def _contents(stream: "_Metered") -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        for count, member in enumerate(archive):
            if count == MEMBERS:
                raise Problem(f"is not unpacked: it holds more than {MEMBERS:,} files and folders")
            _check(member)
            stream.until = member.offset_data + member.size + _HEADER_BYTES
            if member.isreg() and wanted(member.name):
                yield shown(PurePosixPath(member.name).as_posix()), archive.extractfile(member).read()
    # Only at the very end is it known whether the checksum is right.
    stream.until = TOTAL_BYTES
    while stream.read(_READ):
        pass


def _check(member: tarfile.TarInfo) -> None:
    """Refuse what is no plain file or folder below the tarball's own, and what is too large."""
    reasons = {
        f"is a link (to {shown(member.linkname)})": member.issym() or member.islnk(),
        "is neither a plain file nor a folder": not (member.isreg() or member.isdir()) or member.issparse(),
        "is an absolute path": member.name.startswith("/"),
        "would lie outside its folder": ".." in PurePosixPath(member.name).parts,
        f"has more than {FILE_BYTES // 2**20} MiB": member.size > FILE_BYTES,
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        raise Problem(f"is not unpacked: {shown(member.name)} {reason}")


class _Member(tarfile.TarInfo):
    """A header; a damaged one among others is an error, and not the end as tarfile would have it."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class _Metered:
    """A stream of no more than `TOTAL_BYTES`, and of no more than `until` for the time being."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._count, self.until = stream, 0, _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        if self._count > TOTAL_BYTES:
            raise Problem(f"is not unpacked: it is larger than {TOTAL_BYTES // 2**20:,} MiB")
        if self._count > self.until:
            raise Problem("is not unpacked: a name or a header is larger than it should be")
        return data
