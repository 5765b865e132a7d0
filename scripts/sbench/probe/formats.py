"""Recognise HDF5 files by their first bytes, and explain what other files are and how to convert or fix them."""

import codecs
import errno
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sbench.probe import netcdf3

# Extensions of HDF5 files, including netCDF-4. Files with .hdf, .mat or .nc may have older formats, which are reported.
_ENDINGS = (
    *(".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4", ".mat", ".nwb", ".h5ad", ".h5mu", ".loom", ".nxs", ".cxi", ".kea"),
    *(".h5p", ".h5part", ".bag", ".cgns", ".cool", ".mcool", ".fast5", ".hspy", ".jld2", ".snirf", ".uvh5"),
)
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LEAST_BYTES = 96
# Possible offsets of the signature. HDF5 allows far larger user blocks than the largest one here.
_BLOCKS = [0, *(512 * 2**power for power in range(24))]
_HEAD_BYTES = 2048
# Names of files that occur only in Zarr stores.
ZARR = frozenset((".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"))
_CONTROL = frozenset(map(chr, range(32))) - frozenset("\t\n\f\r")
_MARKUP = {"<": "XML", "{": "JSON", "[": "JSON"}
_SHOWN = 40
# Driver names in the first file written by HDF5's family and multi drivers, which write several files.
_FAMILY, _SPLIT = b"NCSAfami", b"NCSAmult"

_NETCDF3 = "convert it: nccopy -k nc4 in.nc out.nc, or index it with kerchunk (kerchunk.netCDF3.NetCDF3ToZarr)"
_GET_AGAIN = "copy or download it again"
_JOIN = "join them: h5repart -family_to_single 'name%d.h5' joined.h5, with the pattern of their names"
_UNITE = "copy it into a single file with the driver that wrote it (in h5py: driver='split')"
_NO_LOCKS = "if its file system does not support locks, set HDF5_USE_FILE_LOCKING=FALSE"
_MATLAB = "a MAT-file of a version before 7.3", "save it in MATLAB with -v7.3, or read it with SciPy"
# Type codes of level 4 MAT-files: the tens digit (P) is the data type, the ones digit (T) the matrix type.
_MATLAB4 = frozenset(10 * values + matrix for values in range(6) for matrix in range(3))
# In GRIB files, a header of the transmitting system may precede the signature.
_GRIB = re.compile(rb"GRIB...[\1\2]", re.DOTALL)
# (offset of the signature, signature, name of the format, remedy)
_KINDS = (
    (0, b"CDF\1", "netCDF-3 (classic)", _NETCDF3),
    (0, b"CDF\2", "netCDF-3 (64-bit offset)", _NETCDF3),
    (0, b"CDF\5", "netCDF-3 (CDF-5)", _NETCDF3),
    (0, b"MATLAB 5.0", *_MATLAB),
    (0, b"BUFR", "BUFR", "convert it with ecCodes"),
    (0, b"\x0e\x03\x13\x01", "HDF4", "convert it: h4toh5 in.hdf out.h5"),
    (0, b"\xcd\xf3\x00\x01", "NASA's CDF", "convert it with cdflib"),
    (0, b"\xcd\xf2\x60\x02", "NASA's CDF", "convert it with cdflib"),
    (0, b"SIMPLE  =", "FITS", "convert it with Astropy and h5py"),
    (0, b"II*\0", "TIFF", "convert it: gdal_translate -of netCDF -co FORMAT=NC4 in.tif out.nc"),
    (0, b"MM\0*", "TIFF", "convert it: gdal_translate -of netCDF -co FORMAT=NC4 in.tif out.nc"),
    (0, b"II+\0", "BigTIFF", "convert it: gdal_translate -of netCDF -co FORMAT=NC4 in.tif out.nc"),
    (0, b"PAR1", "Parquet", "convert it with pandas and h5py"),
    (0, b"ARROW1", "Arrow", "convert it with pandas and h5py"),
    (0, b"\x93NUMPY", "NumPy's format", "convert it with numpy.load and h5py"),
    (0, b"SQLite format 3", "an SQLite database", "export its tables"),
    (0, b"%PDF", "a PDF", "name the data instead"),
    (0, b"\x00\x05\x16\x07", "macOS's companion (._…) of another file", "leave it out"),
    (0, b"\x1f\x8b", "compressed (gzip)", "gunzip it first"),
    (0, b"\x1f\x9d", "compressed (compress)", "uncompress it first"),
    (0, b"BZh", "compressed (bzip2)", "bunzip2 it first"),
    (0, b"\xfd7zXZ\0", "compressed (xz)", "unxz it first"),
    (0, b"\x28\xb5\x2f\xfd", "compressed (Zstandard)", "unzstd it first"),
    (0, b"\x04\x22\x4d\x18", "compressed (LZ4)", "unlz4 it first"),
    (0, b"PK\3\4", "a zip archive", "unzip it, and name the files in it"),
    (0, b"PK\5\6", "an empty zip archive", _GET_AGAIN),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it (7z x), and name the files in it"),
    (0, b"Rar!", "a RAR archive", "unpack it, and name the files in it"),
    (257, b"ustar", "a tar archive", "unpack it (tar -xf), and name the files in it"),
    (0, b"version https://git-lfs", "a pointer of Git LFS", "fetch its content: git lfs pull"),
    (0, b"/annex/objects/", "a pointer of git-annex", "fetch its content: git annex get"),
)


def is_named_hdf5(name: str) -> bool:
    """Return whether a file name has an extension that HDF5 files use."""
    return os.path.splitext(name)[1].lower() in _ENDINGS


def is_hdf5(content: BinaryIO) -> bool:
    """Return whether a file has the HDF5 signature at its start or after a user block."""
    return _find_signature(content) is not None


def format_error(error: Exception) -> str:
    """Format an HDF5 error in one line.

    Return the message of the underlying system error if there is one, or else the text of the error, or else its type.
    """
    # str() of a KeyError would put its text in quotes.
    words = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    number = re.search(r"errno = (\d+)", words)
    return os.strerror(int(number[1])) if number else " ".join(words.split()) or type(error).__name__


def describe_open_error(where: str, content: BinaryIO, error: Exception) -> str:
    """Explain in one line why HDF5 cannot open a file, and how to fix that.

    Args:
        where: path or address of the file.
        content: the file, open for reading.
        error: the exception raised by HDF5.
    """
    if (offset := _find_signature(content)) is None:
        return f"{where} is not an HDF5 file{_name_kind(where, content)}"
    head, size = _read_head(content, offset)
    return f"{where} cannot be read as HDF5: {_name_fault(where, head, size - offset, error)}"


def describe_path_error(path: Path, error: Exception) -> str:
    """Explain in one line why HDF5 cannot open or read a local file, and how to fix that."""
    try:
        with open(path, "rb") as content:
            return describe_open_error(str(path), content, error)
    except OSError as of_system:
        return f"{path} cannot be read: {of_system.strerror}"


def _find_signature(content: BinaryIO) -> int | None:
    size = content.seek(0, os.SEEK_END)
    for offset in _BLOCKS:
        if offset >= size:
            break
        content.seek(offset)
        if content.read(len(_SIGNATURE)) == _SIGNATURE:
            return offset
    return None


def _read_head(content: BinaryIO, offset: int = 0) -> tuple[bytes, int]:
    size = content.seek(0, os.SEEK_END)
    content.seek(offset)
    return content.read(_HEAD_BYTES), size


def _name_fault(where: str, head: bytes, size: int, error: Exception) -> str:
    words = " ".join(str(error).split())
    if _FAMILY in head:
        return f"it is the first of a family of files; {_JOIN}"
    if _SPLIT in head:
        return f"it is a part of a split file; {_UNITE}"
    if cut := re.search(r"eof = (\d+), sblock->base_addr = (\d+), stored_eof = (\d+)", words):
        there, before, whole = map(int, cut.groups())
        return f"it is truncated to {there + before:,} of {whole:,} bytes; {_GET_AGAIN}"
    if size < _LEAST_BYTES:
        return f"it is truncated to fewer than {_LEAST_BYTES} bytes; {_GET_AGAIN}"
    if "already open for" in words:
        return (
            "its header marks it as open for writing; wait for the writer, or run h5clear -s if the writer was killed"
        )
    if isinstance(error, OSError) and "lock file" in words:
        busy = error.errno in (errno.EAGAIN, errno.EACCES)
        return (
            "another program has locked it for writing; end that program"
            if busy
            else f"{format_error(error)}; {_NO_LOCKS}"
        )
    return format_error(error)


def _name_kind(where: str, content: BinaryIO) -> str:
    """Describe the format of a file that is not HDF5, and a remedy, in a phrase such as " but …; …"."""
    head, _ = _read_head(content)
    if part := _name_part(Path(where)):
        return f" but {part}"
    for offset, first, name, remedy in _KINDS:
        if head.startswith(first, offset):
            return f" but {name}{_describe_netcdf3(content)}" if remedy is _NETCDF3 else f" but {name}; {remedy}"
    if _GRIB.search(head):
        return " but GRIB; convert it: cdo -f nc4 copy in.grib out.nc"
    if _is_matlab4(head):
        return f" but {'; '.join(_MATLAB)}"
    if not head:
        return f" but empty; {_GET_AGAIN}"
    if not head.strip(b"\0"):
        return f" and begins with zeros; {_GET_AGAIN}"
    return _name_text(head) or "; correct the name, or leave it out"


def _describe_netcdf3(content: BinaryIO) -> str:
    """Describe the variables of a netCDF-3 file, and a remedy."""
    try:
        return f"{netcdf3.describe_header(content)}; {_NETCDF3}"
    except netcdf3.Truncated:
        return f" with a truncated header; {_GET_AGAIN}"


def _is_matlab4(head: bytes) -> bool:
    """Return whether a file starts with a level 4 header, see MathWorks, "MAT-File Format" (matfile_format.pdf)."""
    if len(head) < struct.calcsize("5i"):
        return False
    for order, machine in ("<", 0), (">", 1000):
        kind, rows, columns, imaginary, length = struct.unpack_from(f"{order}5i", head)
        name = head[20 : 20 + length]
        if kind - machine in _MATLAB4 and min(rows, columns) >= 0 and imaginary in (0, 1):
            return length > 1 and name.endswith(b"\0") and name[:-1].isalnum()
    return False


def _name_text(head: bytes) -> str:
    """Describe the kind of a text file in a phrase such as " but …; …"; return an empty string if it is not text."""
    try:
        # Unlike bytes.decode, an incremental decoder accepts an incomplete character at the end.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head).lstrip()
    except UnicodeDecodeError:
        return ""
    if not _CONTROL.isdisjoint(text):
        return ""
    if text.lower().startswith(("<!doctype html", "<html")):
        return " but a page of HTML: is it the address of a web page? download the file itself"
    if code := re.search(r"<Error>.*<Code>(\w+)</Code>", text, re.DOTALL):
        return (
            f" but a store's error message ({code[1]}); download it again, with credentials if the store requires them"
        )
    kind = _MARKUP.get(text[:1]) or f"text ({text.partition(chr(10))[0].rstrip()[:_SHOWN]!r})"
    return f" but {kind}; name the data instead"


def _name_part(path: Path) -> str:
    """If a file is part of a set written by HDF5's family or split driver, describe it.

    The first file of the set must be in the same directory.

    Returns:
        A description and a remedy; an empty string if the file is not part of a set.
    """
    for first in _list_siblings(path.name, r"\d+", lambda digits: ("0" * len(digits), "0")):
        if _has_mark(path.with_name(first), _FAMILY):
            return f"a member of the family of files that begins with {first}; {_JOIN}"
    for first in _list_siblings(path.name, r"(?<=-)[a-z](?=\.)", lambda _: ("m", "s")):
        if _has_mark(path.with_name(first), _SPLIT):
            return f"a part of a split file, whose metadata are in {first}; {_UNITE}"
    return ""


def _list_siblings(name: str, pattern: str, others: Callable[[str], Iterable[str]]) -> Iterator[str]:
    for part in re.finditer(pattern, name):
        yield from (f"{name[: part.start()]}{other}{name[part.end() :]}" for other in others(part[0]))


def _has_mark(path: Path, mark: bytes) -> bool:
    try:
        with open(path, "rb") as content:
            return mark in content.read(_HEAD_BYTES)
    except OSError:
        return False
