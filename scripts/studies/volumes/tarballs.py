"""Reads tarballs that somebody else made: file after file, in memory, and never more than was agreed to.

Nothing is written, so nothing can land outside; a tarball that tries to, or holds anything but files and folders, is
refused all the same, since it is not what it should be. Limits hold for what comes out of the stream, whatever headers
say.
"""

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from scripts.lib.program import Problem

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz")
_READ = 2**16
# Names and other particulars of one file; more than that is an attack on the reader.
_HEADER_BYTES = 2**20
_XZ_MEMORY = 256 * 2**20


@dataclass(frozen=True)
class Limits:
    """What a tarball may hold: files and folders, bytes of a file, bytes in all when unpacked."""

    members: int = 20_000
    file_bytes: int = 16 * 2**20
    total_bytes: int = 2 * 2**30


def is_tarball(name: str) -> bool:
    """Return whether a file is a tarball by its name."""
    return name.lower().endswith(SUFFIXES)


def stem(name: str) -> str:
    """Return a tarball's name without its suffixes."""
    suffix = max((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def contents(path: Path, wanted: Callable[[str], bool], limits: Limits = Limits()) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files in a tarball whose name is wanted, in its order.

    Raises:
        Problem: it is refused, cannot be read, or is damaged; whatever was yielded before does not count.
    """
    try:
        with open(path, "rb") as file:
            yield from _contents(_Metered(_unpacked(file), limits.total_bytes), wanted, limits)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise Problem(f"is no tarball, or damaged: {' '.join(str(error).split())}") from error
    except EOFError as error:
        raise Problem("is cut off: it was not copied whole") from error
    except OSError as error:
        raise Problem(f"cannot be read: {error.strerror or error}") from error


def shown(name: str) -> str:
    """Return a file's name in one printable line."""
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"


def _contents(stream: "_Metered", wanted: Callable[[str], bool], limits: Limits) -> Iterator[tuple[str, bytes]]:
    header, count = "a name or a header", 0
    stream.allow(_HEADER_BYTES, header)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        while (member := archive.next()) is not None:
            count += 1
            if count > limits.members:
                raise Problem(f"is not unpacked: it holds more than {limits.members:,} files and folders")
            _check(member, limits)
            if member.isreg() and wanted(member.name):
                stream.allow(member.size, shown(member.name))
                yield shown(PurePosixPath(member.name).as_posix()), archive.extractfile(member).read()
            stream.allow(member.size + _HEADER_BYTES, header)
    stream.allow(limits.total_bytes, "the end")
    while stream.read(_READ):
        pass


def _check(member: tarfile.TarInfo, limits: Limits) -> None:
    """Refuse what is no plain file or folder below the tarball's own, and what is too large."""
    name = shown(member.name)
    if member.issym() or member.islnk():
        raise Problem(f"is not unpacked: {name} is a link (to {shown(member.linkname)})")
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise Problem(f"is not unpacked: {name} is neither a plain file nor a folder")
    if member.name.startswith("/"):
        raise Problem(f"is not unpacked: {name} is an absolute path")
    if ".." in PurePosixPath(member.name).parts:
        raise Problem(f"is not unpacked: {name} would lie outside its folder")
    if member.size > limits.file_bytes:
        raise Problem(f"is not unpacked: {name} has more than {limits.file_bytes // 2**20} MiB")


class _Member(tarfile.TarInfo):
    """A header; a damaged one among others is an error, and not the end as tarfile would have it."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError) as error:
            raise EOFError from error
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class _Metered:
    """A stream that gives no more than in all and at a time is allowed."""

    def __init__(self, stream: "IO[bytes] | _Xz", total: int) -> None:
        self._stream, self._total, self._left = stream, total, total
        self._allowed, self._what = 0, ""

    def allow(self, nbytes: int, what: str) -> None:
        """Allow so many bytes from now on, and what is read ahead; `what` they are for."""
        self._allowed, self._what = nbytes + 2 * tarfile.RECORDSIZE, what

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        self._allowed -= len(data)
        if self._left < 0:
            raise Problem(f"is not unpacked: it is larger than {self._total // 2**20:,} MiB")
        if self._allowed < 0:
            raise Problem(f"is not unpacked: {self._what} is larger than it should be")
        return data


class _Xz:
    """What is in an xz stream, unpacked with bounded memory, which lzma.LZMAFile does not offer."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._decompressor = file, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        data = b""
        while not data and not self._decompressor.eof:
            packed = self._file.read(_READ) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not packed:
                raise EOFError
            data = self._decompressor.decompress(packed, size)
        return data


def _unpacked(file: IO[bytes]) -> "IO[bytes] | _Xz":
    """Return the stream of a tarball, by what it begins with."""
    begins = file.read(6)
    file.seek(0)
    if begins[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)
    return _Xz(file) if begins == b"\xfd7zXZ\0" else file
