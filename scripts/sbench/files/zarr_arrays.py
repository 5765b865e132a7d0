"""Parse the metadata of Zarr arrays, without Zarr."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbench.files.chunking import Kind
from sbench.files.zarr_layouts import Layout, Position
from sbench.probe.program import MALFORMED, Problem, expect_file
from sbench.probe.zarr_shards import ShardIndex, build_index

_SHARDING = "sharding_indexed"
# Sizes in bytes of data types of Zarr 3 whose names numpy does not know.
_ITEMS = {"numpy.datetime64": 8, "numpy.timedelta64": 8}
# Only Zarr's metadata, and kerchunk's references, are read from JSON.
_LARGEST_JSON = 2**30
# Zarr has no limits; numpy, which counts elements with 63 bits, has.
_MOST_AXES, _MOST_ELEMENTS = 32, 2**63 - 1
_TYPES = {dict: "an object", list: "a list", str: "text"}


class Array(NamedTuple):
    """An array of a Zarr store.

    Attributes:
        name: path in the store, such as "/t2m".
        shape: its shape.
        dtype: name of its data type.
        item: bytes per element; 0 if unknown, as for strings of variable length.
        chunks: shape of its chunks.
        shards: shape of its shards; () if each chunk is an object.
        codecs: names of its codecs, or of filters and compressor.
        objects: number of chunks, or of shards, that exist.
        bytes: their total size; 0 if unknown.
        layout: where its chunks are, if that is known.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    item: int
    chunks: tuple[int, ...]
    shards: tuple[int, ...]
    codecs: tuple[str, ...]
    objects: int
    bytes: int
    layout: Layout | None = None

    @property
    def largest(self) -> int:
        """The number of objects if all are written."""
        return math.prod(self.grid)

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of objects along each axis."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.shards or self.chunks, strict=True))

    @property
    def kind(self) -> Kind:
        """The properties that determine the cost of an access."""
        memory = self.objects * math.prod(self.shards or self.chunks) * self.item
        is_measured = memory and self.bytes
        return Kind(self.shape, self.chunks, self.item, min(1.0, round(self.bytes / memory, 2)) if is_measured else 1.0)


def parse_array_3(
    name: str, data: Mapping, where: object, objects: int, size: int, folder: Path | None = None
) -> Array:
    """Build an array from its metadata of Zarr 3.

    Args:
        name: path in the store.
        data: content of zarr.json.
        where: the store, for messages.
        objects: number of chunks, or of shards, that exist.
        size: their total size in bytes.
        folder: folder of the array on this disk; None if it is elsewhere.

    Raises:
        Problem: a value is missing or invalid, or the grid of chunks is not regular.
    """
    layout = None
    try:
        grid, codecs, shape = (
            _get_part(data, "chunk_grid"),
            _get_part(data, "codecs", list),
            _read_lengths(data, "shape"),
        )
        if (kind := _get_name(grid)) != "regular":
            raise Problem(f"{where}: the grid of chunks {kind} is not supported, only regular")
        outer, shards = _read_lengths(_get_part(grid, "configuration"), "chunk_shape"), ()
        _check_grid(shape, outer)
        _read_encoding(data)
        if codecs and _get_name(codecs[0]) == _SHARDING:
            inner = _get_part(codecs[0], "configuration")
            outer, shards, codecs = _read_lengths(inner, "chunk_shape"), outer, _get_part(inner, "codecs", list)
            _check_grid(shape, outer, shards)
            if (index := build_index(inner, shards, outer)) and folder:
                layout = Layout(index=index, read_index=_build_index_reader(folder, data, index))
            elif index:
                layout = Layout(index=index)
        dtype, item = _read_type_3(data["data_type"])
        return Array(name, shape, dtype, item, outer, shards, tuple(map(_get_name, codecs)), objects, size, layout)
    except MALFORMED as error:
        raise _describe_fault(where, "Zarr 3", error) from error


def _get_part(data: object, key: str, kind: type = dict) -> Any:
    if not isinstance(data, dict) or not isinstance(data[key], kind):
        raise ValueError(f"{key} must be {_TYPES[kind]}")
    return data[key]


def _get_name(described: object, key: str = "name") -> str:
    """Return the name of a codec, data type or encoding, which is a text or an object with a name."""
    return described if isinstance(described, str) else _get_part(described, key, str)


def _read_lengths(data: Mapping, key: str) -> tuple[int, ...]:
    """Return the shape of an array or a chunk."""
    lengths = _get_part(data, key, list)
    is_sound = len(lengths) <= _MOST_AXES and all(type(one) is int and one >= 0 for one in lengths)
    if not is_sound or math.prod(max(1, one) for one in lengths) > _MOST_ELEMENTS:
        raise ValueError(f"{key} must be a list of at most {_MOST_AXES} lengths of axes (got {lengths!r:.60})")
    return tuple(lengths)


def _build_index_reader(
    folder: Path, data: Mapping, index: ShardIndex
) -> Callable[[Position], tuple[bytes | None, str]]:
    """Return a function that reads the index of a shard on this disk."""

    def read_index(position: Position) -> tuple[bytes | None, str]:
        path = folder / format_key(data, position)
        expect_file(path)
        try:
            with open(path, "rb") as content:
                size = content.seek(0, os.SEEK_END)
                content.seek(max(0, size - index.bytes) if index.is_last else 0)
                return content.read(min(size, index.bytes)), str(path)
        except (FileNotFoundError, NotADirectoryError):
            return None, str(path)
        except OSError as error:
            raise Problem(f"{path} cannot be read: {error.strerror}; make it readable") from error

    return read_index


def format_key(data: Mapping, position: Position) -> str:
    """Return the key of an object in the folder of its array, according to the array's metadata of Zarr 3."""
    name, separator = _read_encoding(data)
    return separator.join(map(str, position if name == "v2" else ("c", *position))) or "0"


def _read_encoding(data: Mapping) -> tuple[str, str]:
    """Return the name of the encoding of keys, and the separator; another than these would leave the store."""
    encoding = data.get("chunk_key_encoding") or "default"
    name, options = _get_name(encoding), encoding.get("configuration") if isinstance(encoding, dict) else None
    separator = (options or {}).get("separator", "." if name == "v2" else "/")
    if separator not in ("/", "."):
        raise ValueError(f"the separator of the keys of chunks must be / or . (got {separator!r:.60})")
    return name, separator


def _read_type_3(data_type: object) -> tuple[str, int]:
    """Return the name of a data type, and its size in bytes or 0."""
    name = _get_name(data_type)
    if isinstance(data_type, dict):
        item = (data_type.get("configuration") or {}).get("length_bytes") or _ITEMS.get(name, 0)
        if type(item) is not int or not 0 <= item < 2**31:
            raise ValueError(f"length_bytes must be a number of bytes (got {item!r:.60})")
        return name, item
    try:
        return name, int(name[1:]) // 8 if re.fullmatch(r"r\d{1,9}", name) else np.dtype(name).itemsize
    except MALFORMED:
        return name, 0


def parse_array_2(name: str, data: Mapping, where: object, objects: int, size: int) -> Array:
    """Build an array from its metadata of Zarr 2; see `parse_array_3`."""
    try:
        described, chunks, shape = data["dtype"], _read_lengths(data, "chunks"), _read_lengths(data, "shape")
        fields = [tuple(field) for field in described] if isinstance(described, list) else []
        dtype = np.dtype(fields or _get_part(data, "dtype", str))
        filters = _get_part(data, "filters", list) if data.get("filters") else []
        names = tuple(_get_name(one, "id") for one in (*filters, data["compressor"]) if one)
        _check_grid(shape, chunks)
        item = 0 if dtype.hasobject else dtype.itemsize
        return Array(name, shape, str(dtype), item, chunks, (), names, objects, size)
    except MALFORMED as error:
        raise _describe_fault(where, "Zarr 2", error) from error


def _check_grid(shape: Sequence[int], chunks: Sequence[int], shards: Sequence[int] = ()) -> None:
    """Raise ValueError if chunks do not divide their shards, or are of another rank than the array."""
    divides = all(shard % chunk == 0 for shard, chunk in zip(shards, chunks, strict=False) if chunk)
    if not divides or min(chunks, default=1) < 1 or not len(shape) == len(chunks) == len(shards or chunks):
        inside = f" in shards {tuple(shards)}" if shards else ""
        raise ValueError(f"chunks {tuple(chunks)}{inside} do not fit the shape {tuple(shape)}")


def _describe_fault(where: object, form: str, error: Exception) -> Problem:
    reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error!s:.200}"
    return Problem(f"{where} cannot be read as {form} metadata: {reason}; write the store again")


def read_json(path: Path) -> dict:
    """Read a JSON object from a file.

    Raises:
        Problem: it cannot be read, is too large, or is not a JSON object.
    """
    expect_file(path)
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise Problem(f"{path} is too large for JSON metadata; write the references as Parquet")
        return parse_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}; make it readable") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not text; copy or download it again") from error


def parse_json(text: str, where: str) -> dict:
    """Parse a JSON object.

    Raises:
        Problem: it is none.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not valid JSON ({error}); copy or download it again") from error
    if not isinstance(data, dict):
        raise Problem(f"{where} must be a JSON object; copy or download it again")
    return data
