"""Compute checksums of values returned by drivers, independent of the memory layout."""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sbench import drivers
from sbench.drivers import Unable

if TYPE_CHECKING:
    import numpy as np

# Number of elements to convert at a time, which limits the memory for copies.
_PIECE = 2**20


def has_known_size(values: object) -> bool:
    """Return whether `values.nbytes` equals the size from `compute_checksum`, which need not be called then."""
    return hasattr(values, "nbytes") and not values.dtype.hasobject and values.dtype.names is None


def compute_checksum(values: object) -> tuple[int, int]:
    """Return (bytes, crc32) of values from a driver, in C order and native byte order.

    Members of compound types are packed without padding. Each variable-length string is followed by a NUL, and each
    variable-length sequence by its number of elements in 8 bytes, so that the checksum covers their ends. Compound
    types with such members are processed member by member. A dataset without values has 0 bytes. For the list of a
    `File.walk`, the checksum covers the sorted results of `drivers.encode_object`.

    Raises:
        Unable: an element is a reference, or another object that cannot be converted to bytes.
    """
    # Imported here because the process that starts the workers imports this module but reads no files.
    import h5py
    import numpy as np

    if isinstance(values, list):
        pieces = [b"\n".join(sorted(drivers.encode_object(*item) for item in values))]
    elif isinstance(values, h5py.Empty):
        pieces = []
    else:
        # Store a single string as an object: numpy would convert it to a padded dtype that loses trailing NULs.
        pieces = _iter_pieces(np.asarray(values, object if type(values) in (str, bytes) else None))
    size, crc = 0, 0
    for piece in pieces:
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _iter_pieces(values: "np.ndarray") -> "Iterator[np.ndarray | bytes]":
    """Yield the bytes of values. Plain numbers are not copied; values of other types are converted piece by piece."""
    import numpy as np

    kind = values.dtype
    if kind.hasobject and kind.names:
        for name in kind.names:
            yield from _iter_pieces(values[name])
        return
    if kind.hasobject:
        yield b"".join(_convert_to_bytes(value) for value in values.ravel())
        return
    packed, flat = _remove_gaps(kind), np.ascontiguousarray(values).reshape(-1)
    step = max(1, len(flat) if packed == kind and kind.char not in "gG" else _PIECE)
    for start in range(0, len(flat), step):
        piece = np.ascontiguousarray(flat[start : start + step], packed).view(np.uint8)
        yield _clear_padding(piece, kind) if kind.char in "gG" else piece


def _convert_to_bytes(value: object) -> bytes:
    import numpy as np

    if isinstance(value, str):
        return value.encode(errors="surrogateescape") + b"\0"
    if isinstance(value, bytes):
        return value + b"\0"
    array = np.asarray(value)
    if array.dtype == object and not array.ndim:
        raise Unable(f"an element of type {type(value).__name__} cannot be checksummed")
    # h5py returns a sequence of numbers in the byte order of the file, which its dtype does not always state.
    is_plain = not (array.dtype.hasobject or array.dtype.names)
    data = array.tobytes() if is_plain else b"".join(map(bytes, _iter_pieces(array)))
    return data + len(array).to_bytes(8, "little")


def _remove_gaps(kind: "np.dtype") -> "np.dtype":
    """Return the dtype in native byte order and without padding, including nested members."""
    import numpy as np

    if kind.subdtype:
        return np.dtype((_remove_gaps(kind.subdtype[0]), kind.subdtype[1]))
    if kind.names is None:
        return kind.newbyteorder("=")
    return np.dtype([(f"{number}", _remove_gaps(kind[name])) for number, name in enumerate(kind.names)])


def _clear_padding(data: "np.ndarray", kind: "np.dtype") -> "np.ndarray":
    """Return the bytes of long doubles with their padding set to zero."""
    import numpy as np

    info, data = np.finfo(kind), data.copy()
    part = kind.itemsize // (2 if kind.kind == "c" else 1)
    if info.nmant == 63:
        # x86 extended precision: 80 bits.
        data.reshape(-1, part)[:, 10:] = 0
    return data
