"""Read HDF5 with h5coro, a Python implementation of a subset of the format.

It reads S3 objects through boto3, and local files, and caches lines of 4 MiB.
"""

import functools
import logging
import os
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sbench.drivers import (
    HIDDEN,
    Access,
    Driver,
    Unable,
    Where,
    convert_failures,
    file_objects,
    format_read_cache,
    native,
)
from sbench.stores.s3 import ENDPOINT

if TYPE_CHECKING:
    import h5coro.h5metadata
    import numpy as np


# The exceptions that h5coro raises for features that it does not support.
_FAILURES = (RuntimeError, LookupError, ValueError, TypeError, AttributeError, struct.error)


class _H5Coro(Driver):
    """h5coro, which keeps every cache line that it has read from a file in memory.

    It starts a thread per requested dataset. This driver requests a single dataset per call.
    """

    files = s3 = True
    needs = ("h5coro",)
    libraries = ("h5coro", "boto3")

    def open(self, address: str, access: Access) -> "_File":
        from h5coro.filedriver import FileDriver

        if "://" in address:
            return _File(file_objects.parse_place(address, access), _build_s3_driver(access))
        return _File(address, FileDriver)


class _File:
    def __init__(self, resource: str, driver: type) -> None:
        from h5coro.h5coro import H5Coro

        _note_byte_orders()
        with convert_failures("h5coro", resource, RuntimeError):
            self._file = H5Coro(resource, driver)

    def read(self, path: str, where: Where = ()) -> "np.ndarray":
        from h5coro.h5dataset import H5Dataset

        name, meta = path.strip("/"), self._read_metadata(path)
        ranges, shape = _compute_ranges(path, where, meta.dimensions)
        if 0 in shape:
            raise Unable(f"h5coro cannot read {path}: it does not return an array for an empty selection")
        if meta.layout != H5Dataset.CHUNKED_LAYOUT and list(shape) != meta.dimensions:
            raise Unable(f"h5coro cannot read a part of {path}: it returns wrong values for datasets without chunks")
        with convert_failures("h5coro", path, *_FAILURES), _Words() as words:
            part = {"dataset": name, "hyperslice": ranges}
            values = self._file.readDatasets([part]).datasets[name].values
        if values is None:
            raise Unable(f"h5coro cannot read {path}: {words.last}")
        return values.reshape(shape)

    def walk(self) -> Iterator[tuple[str, tuple[int, ...] | None, Mapping[str, object]]]:
        paths = [""]
        with convert_failures("h5coro", "the tree", *_FAILURES):
            for path in paths:
                links, attributes, meta = self._file.inspectPath(path)
                for name, value in attributes.items():
                    self._expect_true(os.path.join(path, name), value)
                yield f"/{path}", tuple(meta.dimensions) if meta else None, attributes
                paths += sorted(os.path.join(path, link) for link in links)

    def read_settings(self) -> dict:
        library = type(self._file).__module__.partition(".")[0]
        return {"driver": library, "read_cache": format_read_cache("lines", self._file.cacheLineSize)}

    def close(self) -> None:
        self._file.close()

    def _read_metadata(self, path: str) -> "h5coro.h5metadata.H5Metadata":
        """Return h5coro's metadata for a dataset; raise Unable if h5coro would return wrong values for it."""
        from h5coro.h5metadata import H5Metadata

        name = path.strip("/")
        with convert_failures("h5coro", path, *_FAILURES), _Words() as words:
            meta = self._file.readDatasets([name], metaOnly=True).datasets[name].meta
        if meta.type not in (H5Metadata.FIXED_POINT_TYPE, H5Metadata.FLOATING_POINT_TYPE):
            raise Unable(f"h5coro cannot read {path}: {words.last or 'it supports only integers and floats'}")
        if meta.big_endian:
            raise Unable(f"h5coro cannot read {path}: it reads big-endian numbers as little-endian")
        if meta.filter[H5Metadata.SHUFFLE_FILTER] and not meta.filter[H5Metadata.DEFLATE_FILTER]:
            raise Unable(f"h5coro cannot read {path}: it does not unshuffle uncompressed values")
        return meta

    def _expect_true(self, path: str, value: object) -> None:
        """Raise Unable if h5coro misreads an attribute. Attributes for internal use are ignored."""
        from h5coro.h5metadata import H5Metadata

        if path.rpartition("/")[2].startswith(HIDDEN):
            return
        meta = self._file.metadataTable[path]
        if value is None or meta.big_endian or (meta.ndims and meta.type == H5Metadata.STRING_TYPE):
            raise Unable(f"h5coro cannot read the tree: it does not return the correct value of attribute {path}")


class _Words(logging.Handler):
    """A log handler that remembers h5coro's last message, because h5coro only logs unsupported features."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = " ".join(record.getMessage().rpartition(": ")[2].split())

    def __enter__(self) -> "_Words":
        from h5coro.logger import log

        log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        from h5coro.logger import log

        log.removeHandler(self)


def _compute_ranges(path: str, where: Where, dimensions: list[int]) -> tuple[list[list[int]], tuple[int, ...]]:
    parts = list(where) if isinstance(where, tuple) else [where]
    before = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    after = parts[before + 1 :]
    parts = parts[:before] + [slice(None)] * (len(dimensions) - before - len(after)) + after
    ranges, shape = [], []
    for part, length in zip(parts, dimensions, strict=True):
        start, stop, step = part.indices(length) if isinstance(part, slice) else (part % length, part % length + 1, 1)
        if step != 1:
            raise Unable(f"h5coro cannot read {path}: it does not support steps")
        ranges.append([start, max(start, stop)])
        shape += [max(0, stop - start)] * isinstance(part, slice)
    return ranges, tuple(shape)


def _build_s3_driver(access: Access) -> type:
    """Return an h5coro S3 driver that uses the store's credentials, region and endpoint, not AWS's default chain."""
    import boto3
    from botocore.config import Config
    from botocore.handlers import disable_signing
    from h5coro.s3driver import S3Driver

    key, secret, token = native.get_credentials(access.store)

    class OfStore(S3Driver):
        def create_session(self, credentials: dict) -> boto3.Session:
            keys = {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_session_token": token or None}
            session = boto3.Session(region_name=access.store["region"], **(keys if key else {}))
            if not key:
                session.events.register("choose-signer.s3.*", disable_signing)
            if ENDPOINT in os.environ:
                session._session.set_default_client_config(Config(s3={"addressing_style": "path"}))
            return session

    return OfStore


@functools.cache
def _note_byte_orders() -> None:
    """Patch h5coro to store the byte order of each datatype as `big_endian`; it assumes little-endian numbers."""
    from h5coro.h5dataset import H5Dataset
    from h5coro.h5metadata import H5Metadata

    handler, H5Metadata.big_endian = H5Dataset.datatypeMsgHandler, False

    def note_byte_order(self: H5Dataset, size: int, flags: int, level: int, meta: H5Metadata | None = None) -> int:
        begin, meta = self.pos, meta or self.meta
        # Bit 0 of the class bit field, which follows the version byte (HDF5 file format, datatype message).
        meta.big_endian = bool(self.readField(4) >> 8 & 1)
        self.pos = begin
        return handler(self, size, flags, level, meta)

    H5Dataset.datatypeMsgHandler = note_byte_order


DRIVERS = {"h5coro": _H5Coro()}
