"""Checksums of values that drivers read: the same for the same values, however memory is laid out."""

import zlib
from typing import TYPE_CHECKING

from scripts import drivers
from scripts.drivers import Unable

if TYPE_CHECKING:
    import numpy as np


def has_known_size(values: object) -> bool:
    """Return whether `values.nbytes` is the size that `fingerprint` gives, so that the elements need no visit."""
    return hasattr(values, "nbytes") and not values.dtype.hasobject and values.dtype.names is None


def fingerprint(values: object) -> tuple[int, int]:
    """Return (bytes, crc32) of values that a driver read, in C order and native byte order.

    Members of structures follow each other without gaps. Each element of variable length, a text or a sequence, is
    followed by a NUL. A structure with such members is taken member by member. A dataset without values has no bytes.
    The list that `File.walk` gives has the bytes of its sorted descriptions.

    Raises:
        Unable: an element is a reference, or another object that has no bytes.
    """
    # Here, as the process that starts the workers imports this module, too, and reads nothing.
    import h5py
    import numpy as np

    if isinstance(values, list):
        data = b"\n".join(sorted(drivers.described(*item) for item in values))
    elif isinstance(values, h5py.Empty):
        data = b""
    else:
        # A single text is a str or bytes; numpy would pad it, and cut NULs at its end.
        data = _bytes_of(np.asarray(values, object if type(values) in (str, bytes) else None))
    return len(data), zlib.crc32(data)


def _bytes_of(values: "np.ndarray") -> "np.ndarray | bytes":
    import numpy as np

    kind = values.dtype
    if kind.hasobject:
        if kind.names:
            return b"".join(bytes(_bytes_of(values[name])) for name in kind.names)
        return b"".join(_bytes_of_element(value) + b"\0" for value in values.ravel())
    data = np.ascontiguousarray(values, _without_gaps(kind)).reshape(-1).view(np.uint8)
    return _without_padding(data, kind) if kind.char in "gG" else data


def _bytes_of_element(value: object) -> bytes:
    import numpy as np

    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    if array.dtype == object and not array.ndim:
        raise Unable(f"an element is of type {type(value).__name__}, of which there is no checksum")
    # A sequence of numbers is in the file's byte order, which h5py does not always name.
    return bytes(_bytes_of(array)) if array.dtype.hasobject or array.dtype.names else array.tobytes()


def _without_gaps(kind: "np.dtype") -> "np.dtype":
    """Return a type in native byte order; the members of a structure, however nested, follow each other."""
    import numpy as np

    if kind.subdtype:
        return np.dtype((_without_gaps(kind.subdtype[0]), kind.subdtype[1]))
    if kind.names is None:
        return kind.newbyteorder("=")
    return np.dtype([(f"{number}", _without_gaps(kind[name])) for number, name in enumerate(kind.names)])


def _without_padding(data: "np.ndarray", kind: "np.dtype") -> "np.ndarray":
    """Return bytes of long doubles with zeros in place of the bytes that hold no value."""
    import numpy as np

    info, data = np.finfo(kind), data.copy()
    part = kind.itemsize // (2 if kind.kind == "c" else 1)
    if info.nmant == 63:
        # 80 bits on x86.
        data.reshape(-1, part)[:, 10:] = 0
    return data
