"""Parse the metadata of Zarr arrays, without Zarr."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbench.files.chunking import Kind
from sbench.files.zarr_layouts import Layout, Position
from sbench.probe.program import Problem
from sbench.probe.zarr_shards import ShardIndex, build_index

_SHARDING = "sharding_indexed"
# Sizes in bytes of data types of Zarr 3 whose names numpy does not know.
_ITEMS = {"numpy.datetime64": 8, "numpy.timedelta64": 8}
# Only Zarr's metadata, and kerchunk's references, are read from JSON.
_LARGEST_JSON = 2**30


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
        grid, codecs = data["chunk_grid"], data["codecs"]
        if grid["name"] != "regular":
            raise Problem(f"{where}: the grid of chunks {grid['name']} is not supported, only regular")
        outer, shards = tuple(grid["configuration"]["chunk_shape"]), ()
        _check_grid(data["shape"], outer)
        if codecs and codecs[0]["name"] == _SHARDING:
            inner = codecs[0]["configuration"]
            outer, shards, codecs = tuple(inner["chunk_shape"]), outer, inner["codecs"]
            _check_grid(data["shape"], outer, shards)
            if (index := build_index(inner, shards, outer)) and folder:
                layout = Layout(index=index, read_index=_build_index_reader(folder, data, index))
            elif index:
                layout = Layout(index=index)
        dtype, item = _read_type_3(data["data_type"])
        names = tuple(codec["name"] if isinstance(codec, dict) else codec for codec in codecs)
        return Array(name, tuple(data["shape"]), dtype, item, outer, shards, names, objects, size, layout)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise _describe_fault(where, "Zarr 3", error) from error


def _build_index_reader(
    folder: Path, data: Mapping, index: ShardIndex
) -> Callable[[Position], tuple[bytes | None, str]]:
    """Return a function that reads the index of a shard on this disk."""

    def read_index(position: Position) -> tuple[bytes | None, str]:
        path = folder / format_key(data, position)
        try:
            with open(path, "rb") as content:
                if index.is_last:
                    content.seek(max(0, content.seek(0, os.SEEK_END) - index.bytes))
                return content.read(index.bytes), str(path)
        except (FileNotFoundError, NotADirectoryError):
            return None, str(path)
        except OSError as error:
            raise Problem(f"{path} cannot be read: {error.strerror}; make it readable") from error

    return read_index


def format_key(data: Mapping, position: Position) -> str:
    """Return the key of an object in the folder of its array, according to the array's metadata of Zarr 3."""
    encoding = data.get("chunk_key_encoding") or {"name": "default"}
    configuration = encoding.get("configuration") or {}
    if encoding["name"] == "v2":
        return configuration.get("separator", ".").join(map(str, position)) or "0"
    return configuration.get("separator", "/").join(("c", *map(str, position)))


def _read_type_3(data_type: object) -> tuple[str, int]:
    """Return the name of a data type, and its size in bytes or 0."""
    if isinstance(data_type, dict):
        options = data_type.get("configuration") or {}
        return data_type["name"], options.get("length_bytes") or _ITEMS.get(data_type["name"], 0)
    name = str(data_type)
    try:
        return name, int(name[1:]) // 8 if name[:1] == "r" else np.dtype(name).itemsize
    except (TypeError, ValueError):
        return name, 0


def parse_array_2(name: str, data: Mapping, where: object, objects: int, size: int) -> Array:
    """Build an array from its metadata of Zarr 2; see `parse_array_3`."""
    try:
        described = data["dtype"]
        dtype = np.dtype([tuple(field) for field in described] if isinstance(described, list) else described)
        filters = [*(data.get("filters") or []), *([data["compressor"]] if data["compressor"] else [])]
        names = tuple(one["id"] for one in filters)
        _check_grid(data["shape"], data["chunks"])
        item = 0 if dtype.hasobject else dtype.itemsize
        return Array(name, tuple(data["shape"]), str(dtype), item, tuple(data["chunks"]), (), names, objects, size)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _describe_fault(where, "Zarr 2", error) from error


def _check_grid(shape: Sequence[int], chunks: Sequence[int], shards: Sequence[int] = ()) -> None:
    """Raise ValueError if chunks do not divide their shards, or are of another rank than the array."""
    divides = all(shard % chunk == 0 for shard, chunk in zip(shards, chunks, strict=False) if chunk)
    if not divides or min(chunks, default=1) < 1 or not len(shape) == len(chunks) == len(shards or chunks):
        inside = f" in shards {tuple(shards)}" if shards else ""
        raise ValueError(f"chunks {tuple(chunks)}{inside} do not fit the shape {tuple(shape)}")


def _describe_fault(where: object, form: str, error: Exception) -> Problem:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return Problem(f"{where} cannot be read as {form} metadata: {reason}; write the store again")


def read_json(path: Path) -> dict:
    """Read a JSON object from a file.

    Raises:
        Problem: it cannot be read, is too large, or is not a JSON object.
    """
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
    except ValueError as error:
        raise Problem(f"{where} is not valid JSON ({error}); copy or download it again") from error
    if not isinstance(data, dict):
        raise Problem(f"{where} must be a JSON object; copy or download it again")
    return data
