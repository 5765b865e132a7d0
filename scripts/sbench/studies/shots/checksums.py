"""Compute checksums of values that drivers read, independent of the layout in memory."""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sbench import drivers
from sbench.drivers import Unable

if TYPE_CHECKING:
    import numpy as np

# Elements per copy.
_PIECE = 2**20


def has_known_size(values: object) -> bool:
    """Return whether `values.nbytes` is the size from `compute_checksum`, so that the elements need no visit."""
    return hasattr(values, "nbytes") and not values.dtype.hasobject and values.dtype.names is None


def compute_checksum(values: object) -> tuple[int, int]:
    """Return (bytes, crc32) of values from a driver, in C order and native byte order.

    Members of structures follow each other without gaps. A NUL follows each text of variable length, and the number of
    elements in 8 bytes each sequence, so that the checksum covers their ends. A structure with such members is taken
    member by member. A dataset without values has 0 bytes. The list from `File.walk` has the bytes of its sorted
    descriptions.

    Raises:
        Unable: an element is a reference, or another object without bytes.
    """
    # Imported here: the process that starts the workers imports this module and reads nothing.
    import h5py
    import numpy as np

    if isinstance(values, list):
        pieces = [b"\n".join(sorted(drivers.encode_object(*item) for item in values))]
    elif isinstance(values, h5py.Empty):
        pieces = []
    else:
        # A single text is a str or bytes; numpy would pad it, and cut NULs at its end.
        pieces = _iter_pieces(np.asarray(values, object if type(values) in (str, bytes) else None))
    size, crc = 0, 0
    for piece in pieces:
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _iter_pieces(values: "np.ndarray") -> "Iterator[np.ndarray | bytes]":
    """Yield the bytes of values: plain numbers without a copy, others piece by piece."""
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
    # A sequence of numbers is in the file's byte order, which h5py does not always name.
    is_plain = not (array.dtype.hasobject or array.dtype.names)
    data = array.tobytes() if is_plain else b"".join(map(bytes, _iter_pieces(array)))
    return data + len(array).to_bytes(8, "little")


def _remove_gaps(kind: "np.dtype") -> "np.dtype":
    """Return a type in native byte order without gaps between members, at any depth."""
    import numpy as np

    if kind.subdtype:
        return np.dtype((_remove_gaps(kind.subdtype[0]), kind.subdtype[1]))
    if kind.names is None:
        return kind.newbyteorder("=")
    return np.dtype([(f"{number}", _remove_gaps(kind[name])) for number, name in enumerate(kind.names)])


def _clear_padding(data: "np.ndarray", kind: "np.dtype") -> "np.ndarray":
    """Return the bytes of long doubles with zeros as padding."""
    import numpy as np

    info, data = np.finfo(kind), data.copy()
    part = kind.itemsize // (2 if kind.kind == "c" else 1)
    if info.nmant == 63:
        # 80 bits on x86.
        data.reshape(-1, part)[:, 10:] = 0
    return data
