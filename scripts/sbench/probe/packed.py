"""Safely read untrusted compressed files and archives: file by file, in memory, and within size limits.

The compression is detected from the first bytes of a file, not from its name. A tarball or zip file is rejected if it
would extract files outside its directory, or contains anything but regular files and directories, even though nothing
is written to disk. The limits apply to the bytes actually read, not to the sizes in headers.
"""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from sbench.probe.program import Problem, shorten_name
from sbench.probe.sizes import format_size

# Suffixes of archives; and of archives and single compressed files.
_SEVERAL = (".tar.gz", ".tar.xz", ".tar.bz2", ".tgz", ".tar", ".zip")
SUFFIXES = (*_SEVERAL, ".gz", ".xz", ".bz2")
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open, b"BZ": bz2.open}
_ZIP, _TAR, _TAR_AT = b"PK\x03\x04", b"ustar", 257
_CUT_OFF = "is cut off: the copy is incomplete"
_READ = 2**16
# Maximum size of a member's headers plus the bytes that tarfile reads ahead. Larger headers suggest an attack.
_HEADER_BYTES = 2**20
# Maximum size of a file. Results with all bins of json+ take 0.5 MB, per process without group_reporting.
FILE_BYTES = 16 * 2**20
# Limits of an archive: number of files and directories, and total uncompressed bytes.
MEMBERS, TOTAL_BYTES = 20_000, 2 * 2**30


def remove_suffix(name: str) -> str:
    """Remove the suffix of an archive or compressed file from a name; return any other name unchanged."""
    return name[: -len(next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")) or None]


def has_files(path: Path) -> bool:
    """Return whether a file is a tarball (compressed or not) or a zip file, by its name or its content."""
    if path.name.lower().endswith(_SEVERAL):
        return True
    with _convert_errors(), _choose_opener(path)(path, "rb") as stream:
        head = stream.read(_TAR_AT + len(_TAR))
        return head.startswith(_ZIP) or head[_TAR_AT:] == _TAR


def read_file(path: Path) -> bytes:
    """Return the content of a file, uncompressed if necessary.

    Raises:
        Problem: the file is too large or damaged. The message begins with a verb, so that callers can prefix the name.
    """
    with _convert_errors(), _choose_opener(path)(path, "rb") as stream:
        data = stream.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise Problem(f"has more than {format_size(FILE_BYTES)}")
    return data


def read_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file in a tarball or zip file.

    Raises:
        Problem: the archive is damaged or violates a limit. Discard the files yielded before. The message begins with a
            verb, so that callers can prefix the name.
    """
    with _convert_errors():
        with _choose_opener(path)(path, "rb") as stream:
            is_zip = stream.read(len(_ZIP)) == _ZIP
        if is_zip:
            yield from _read_zip(path)
            return
        with _choose_opener(path)(path, "rb") as stream:
            yield from _read_tar(stream)


def _choose_opener(path: Path):
    with open(path, "rb") as file:
        return _OPENERS.get(file.read(2), open)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors from reading archives and compressed files to a Problem whose message begins with a verb."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        if "unexpected end" in str(error):
            raise Problem(_CUT_OFF) from error
        raise Problem(f"is not a tarball or zip, or is damaged: {' '.join(str(error).split())}") from error
    except (NotImplementedError, RuntimeError) as error:
        raise Problem(f"is not unpacked: {' '.join(str(error).split())}") from error
    except EOFError as error:
        raise Problem(_CUT_OFF) from error
    except OSError as error:
        raise Problem(f"cannot be read: {error.strerror or error}") from error


def _read_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    total = 0
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MEMBERS:
            raise Problem(f"is not unpacked: it holds more than {MEMBERS:,} files and folders")
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _validate_member(
                member.filename,
                member.file_size,
                "" if kind in (0, stat.S_IFREG, stat.S_IFDIR) else "is a link or a special file",
                FILE_BYTES,
            )
            if member.is_dir() or not is_wanted(member.filename):
                continue
            with archive.open(member) as file:
                data = file.read(FILE_BYTES + 1)
            total += len(data)
            if len(data) > FILE_BYTES or total > TOTAL_BYTES:
                raise Problem("is not unpacked: it is larger than its directory of files states")
            yield shorten_name(PurePosixPath(member.filename).as_posix()), data


def is_wanted(name: str) -> bool:
    """Return whether a file may contain results. Hidden files never do."""
    return not PurePosixPath(name).name.startswith(".")


def _read_tar(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    for member, content in read_tar(stream, TOTAL_BYTES, FILE_BYTES, MEMBERS):
        if content and is_wanted(member.name):
            yield shorten_name(PurePosixPath(member.name).as_posix()), content.read()


def read_tar(
    stream: IO[bytes], most: int, file_bytes: int, members: int
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield (header, content) of each member of a tarball of at most `most` bytes; the content of a directory is None.

    Raises:
        Problem: the tarball violates a limit. The message begins with a verb, so that callers can prefix the name.
        TarError: it is damaged.
    """
    metered = _Metered(stream, most)
    with tarfile.open(fileobj=metered, mode="r|", tarinfo=_Member) as archive:
        for count, member in enumerate(archive):
            if count == members:
                raise Problem(f"is not unpacked: it holds more than {members:,} files and folders")
            _validate_tar_member(member, file_bytes)
            metered.until = member.offset_data + member.size + _HEADER_BYTES
            yield member, archive.extractfile(member)
    # The checksum is verified only at the end of the stream, so read to the end.
    metered.until = most
    while metered.read(_READ):
        pass


def _validate_tar_member(member: tarfile.TarInfo, most: int) -> None:
    """Reject oversized members, and members other than regular files and directories inside the tarball's directory."""
    reason = f"is a link (to {shorten_name(member.linkname)})" if member.issym() or member.islnk() else ""
    if not (reason or member.isreg() or member.isdir()) or member.issparse():
        reason = "is neither a plain file nor a folder"
    _validate_member(member.name, member.size, reason, most)


def _validate_member(name: str, size: int, reason: str, most: int) -> None:
    reasons = {
        reason: bool(reason),
        "is an absolute path": name.startswith("/"),
        "would lie outside its folder": ".." in PurePosixPath(name.replace("\\", "/")).parts,
        "has a negative size": size < 0,
        f"has more than {format_size(most)}": size > most,
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), ""):
        raise Problem(f"is not unpacked: {shorten_name(name)} {reason}")


class _Member(tarfile.TarInfo):
    """A tar header that always raises an error if damaged. After the first member, tarfile would end silently."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        # Numbers that are none, and more headers of headers than Python can follow.
        except (tarfile.HeaderError, ValueError, ArithmeticError, RecursionError) as error:
            raise tarfile.ReadError(str(error)) from error


class _Metered:
    """A stream that raises a Problem if more than `most`, or the current limit `until`, are read from it."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most, self._count, self.until = stream, most, 0, _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        if self._count > self._most:
            raise Problem(f"is not unpacked: it is larger than {format_size(self._most)}")
        if self._count > self.until:
            raise Problem("is not unpacked: a name or a header is too large")
        return data
