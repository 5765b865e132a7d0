"""Read HDF5 files in pure Python with pyfive.

It reads local files, or S3 objects through s3fs with concurrent requests for byte ranges.
"""

from collections.abc import Iterator, Mapping
from io import UnsupportedOperation
from typing import TYPE_CHECKING

from sbench.drivers import Access, Driver, Where, convert_failures, file_objects

if TYPE_CHECKING:
    import io

    import numpy as np


class _PyFive(Driver):
    """pyfive, which does not use the HDF5 library.

    For S3 objects, its bulk requests bypass the read cache of s3fs; all other reads use it.
    """

    files = s3 = True
    needs = ("pyfive", "s3fs")
    libraries = ("pyfive", "s3fs", "fsspec")
    read_caches = file_objects.READ_CACHES

    def open(self, address: str, access: Access) -> "_File":
        return _File(file_objects.open_source(address, access), address)


class _File:
    def __init__(self, source: "io.IOBase", address: str) -> None:
        import pyfive

        # The exceptions that pyfive raises for features that it does not support.
        more = (AssertionError, AttributeError, RuntimeError, TypeError, UnsupportedOperation)
        self._failures = (NotImplementedError, pyfive.core.InvalidHDF5File, *more)
        self._source = source
        with convert_failures("pyfive", address, *self._failures):
            self._file = pyfive.File(source)

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        from pyfive.p5t import P5SequenceType

        with convert_failures("pyfive", path, *self._failures):
            dataset = self._file[path]
            if isinstance(dataset.id._ptype, P5SequenceType):
                # For some variable-length sequences, pyfive returns addresses in place of values.
                raise NotImplementedError("it does not support sequences")
            return dataset[where]

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        items = [self._file]
        with convert_failures("pyfive", "the tree", *self._failures):
            self._file.visititems(lambda _, item: items.append(item))
            for item in items:
                yield item.name, getattr(item, "shape", None), dict(item.attrs)

    def read_settings(self) -> dict:
        held = file_objects.get_source_settings(self._source)
        return held | {"driver": type(self._file).__module__.partition(".")[0]}

    def close(self) -> None:
        self._file.close()
        self._source.close()


DRIVERS = {"pyfive": _PyFive()}
