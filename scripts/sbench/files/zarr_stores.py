"""Read the metadata of Zarr stores and of kerchunk references on a disk, and count their objects, without Zarr."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbench.files.chunking import Kind
from sbench.probe.formats import ZARR
from sbench.probe.program import Problem
from sbench.studies.shots.addresses import IN_BUCKET
from sbench.studies.shots.inputs import find_object

_GROUP, _ARRAY, _ATTRIBUTES, _CONSOLIDATED, _NODE = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_SHARDING = "sharding_indexed"
_FORMATS = {_NODE: "Zarr 3", _CONSOLIDATED: "Zarr 2", _ARRAY: "Zarr 2"}
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
        bytes: their total size.
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

    @property
    def largest(self) -> int:
        """The number of objects if all are written."""
        return math.prod(-(-size // step) for size, step in zip(self.shape, self.shards or self.chunks, strict=True))

    @property
    def kind(self) -> Kind:
        """The properties that determine the cost of an access."""
        memory = self.objects * math.prod(self.shards or self.chunks) * self.item
        return Kind(self.shape, self.chunks, self.item, min(1.0, round(self.bytes / memory, 2)) if memory else 1.0)


class ZarrStore(NamedTuple):
    """The contents of a Zarr store.

    Attributes:
        where: path of the store.
        format: "Zarr 2", "Zarr 3" or "kerchunk references".
        arrays: its arrays, by name.
        is_consolidated: whether a single object has the metadata of all arrays.
        files: number of files that references point to; 0 for a store with chunks of its own.
    """

    where: str
    format: str
    arrays: list[Array]
    is_consolidated: bool
    files: int = 0


def is_store(path: str | Path) -> bool:
    """Return whether a path is a Zarr store, kerchunk references or an Icechunk repository."""
    if os.path.isdir(path):
        return _is_icechunk(path) or any(os.path.exists(os.path.join(path, name)) for name in ZARR)
    return os.path.isfile(path) and os.path.splitext(path)[1] == ".json" and _is_references(path)


def read_store(path: Path) -> ZarrStore:
    """Read the metadata of all arrays.

    Raises:
        Problem: metadata cannot be read, or describe a grid of chunks that is not regular.
    """
    if path.is_file():
        return _read_references(path)
    if _is_icechunk(path):
        raise Problem(f"{path} is an Icechunk repository, whose metadata only icechunk reads; open it with xarray")
    if (path / _CONSOLIDATED).exists() and "record_size" in (data := _read_json(path / _CONSOLIDATED)):
        arrays = list(_build_arrays(path / _CONSOLIDATED, data.get("metadata") or {}, {}))
        return ZarrStore(str(path), "kerchunk references (Parquet)", arrays, True)
    arrays, formats, is_consolidated = [], set(), (path / _CONSOLIDATED).exists()
    for folder, names, files in os.walk(path):
        names.sort()
        node = Path(folder)
        name = "/" if node == path else f"/{node.relative_to(path)}"
        if _NODE in files:
            formats.add("Zarr 3")
            data = _read_json(node / _NODE)
            is_consolidated |= bool(node == path and data.get("consolidated_metadata"))
            if data.get("node_type") == "array":
                arrays.append(_build_array_3(name, data, node / _NODE, *_count_objects(node)))
                names.clear()
        elif _ARRAY in files:
            formats.add("Zarr 2")
            arrays.append(_build_array_2(name, _read_json(node / _ARRAY), node / _ARRAY, *_count_objects(node)))
            names.clear()
        elif _GROUP in files:
            formats.add("Zarr 2")
    if not formats:
        raise Problem(f"{path} has metadata of Zarr, but no array; name the store, not a part of it")
    return ZarrStore(str(path), " and ".join(sorted(formats)), arrays, is_consolidated)


def find_remote_store(address: str, spec: dict) -> ZarrStore | None:
    """Read the store at an address in a bucket from its consolidated metadata; an array alone needs none.

    Its chunks are not counted.

    Args:
        address: s3://bucket/prefix.
        spec: the bucket's entry as a store of a configuration.

    Returns:
        The store; None if no metadata are there.

    Raises:
        Problem: the metadata cannot be read, or are not consolidated.
    """
    prefix = address.removeprefix(IN_BUCKET).partition("/")[2].rstrip("/")
    # A whole bucket is listed for HDF5 files.
    for name in (_NODE, _CONSOLIDATED, _ARRAY) if prefix else ():
        if not (source := find_object(f"{prefix}/{name}", spec)):
            continue
        with source.open_raw() as content:
            data = _parse_json(content.read().decode(errors="replace"), source.where)
        if name == _ARRAY or data.get("node_type") == "array":
            return ZarrStore(address, _FORMATS[name], list(_build_arrays(source.where, {name: data}, {})), True)
        if name == _CONSOLIDATED:
            form = "kerchunk references (Parquet)" if "record_size" in data else _FORMATS[name]
            return ZarrStore(address, form, list(_build_arrays(source.where, data.get("metadata") or {}, {})), True)
        if not (consolidated := data.get("consolidated_metadata")):
            raise Problem(
                f"{address}: the metadata of its arrays are not consolidated; name an array, or consolidate them"
                " (zarr.consolidate_metadata)"
            )
        nodes = {f"{key}/{_NODE}": node for key, node in (consolidated.get("metadata") or {}).items()}
        return ZarrStore(address, _FORMATS[name], list(_build_arrays(source.where, nodes, {})), True)
    return None


def count_requests(array: Array, spans: Sequence[tuple[int, int, int]]) -> int:
    """Return the number of GETs of chunks with which Zarr reads a part, one (begin, end, step) per axis.

    A chunk is an object, which takes a GET. Of a shard, a GET fetches the index and another one each chunk; if all
    chunks of a shard are read, a single GET fetches them.
    """
    if not array.shards:
        return math.prod(len(_list_touched(*axis)) for axis in zip(spans, array.chunks, strict=True))
    touched = whole = shards = whole_shards = 1
    for span, chunk, shard in zip(spans, array.chunks, array.shards, strict=True):
        in_shard = shard // chunk
        of_shards: dict[int, int] = {}
        for number in _list_touched(span, chunk):
            of_shards[number // in_shard] = of_shards.get(number // in_shard, 0) + 1
        complete = sum(count == in_shard for count in of_shards.values())
        shards, touched = shards * len(of_shards), touched * sum(of_shards.values())
        whole_shards, whole = whole_shards * complete, whole * complete * in_shard
    return shards - whole_shards + touched - whole + whole_shards


def _list_touched(span: tuple[int, int, int], size: int) -> Sequence[int]:
    """Return the numbers of the chunks of an axis that contain indices of a span."""
    begin, end, step = span
    if step <= size:
        last = range(begin, end, step)[-1] if begin < end else begin - 1
        return range(begin // size, last // size + 1) if begin < end else ()
    return [index // size for index in range(begin, end, step)]


def _build_array_3(name: str, data: Mapping, where: object, objects: int, size: int) -> Array:
    try:
        grid, codecs = data["chunk_grid"], data["codecs"]
        if grid["name"] != "regular":
            raise Problem(f"{where}: the grid of chunks {grid['name']} is not supported, only regular")
        outer, shards = tuple(grid["configuration"]["chunk_shape"]), ()
        if codecs and codecs[0]["name"] == _SHARDING:
            inner = codecs[0]["configuration"]
            outer, shards, codecs = tuple(inner["chunk_shape"]), outer, inner["codecs"]
        dtype, item = _read_type_3(data["data_type"])
        names = tuple(codec["name"] if isinstance(codec, dict) else codec for codec in codecs)
        return Array(name, tuple(data["shape"]), dtype, item, outer, shards, names, objects, size)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise _describe_fault(where, "Zarr 3", error) from error


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


def _build_array_2(name: str, data: Mapping, where: object, objects: int, size: int) -> Array:
    try:
        described = data["dtype"]
        dtype = np.dtype([tuple(field) for field in described] if isinstance(described, list) else described)
        filters = [*(data.get("filters") or []), *([data["compressor"]] if data["compressor"] else [])]
        names = tuple(one["id"] for one in filters)
        item = 0 if dtype.hasobject else dtype.itemsize
        return Array(name, tuple(data["shape"]), str(dtype), item, tuple(data["chunks"]), (), names, objects, size)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _describe_fault(where, "Zarr 2", error) from error


def _describe_fault(where: object, form: str, error: Exception) -> Problem:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return Problem(f"{where} cannot be read as {form} metadata: {reason}; write the store again")


def _count_objects(folder: Path) -> tuple[int, int]:
    """Return the number of chunks or shards below the folder of an array, and their total size."""
    sizes = [
        os.path.getsize(os.path.join(place, file))
        for place, _, files in os.walk(folder)
        for file in files
        if file not in ZARR
    ]
    return len(sizes), sum(sizes)


def _is_icechunk(path: str | Path) -> bool:
    return all(os.path.isdir(os.path.join(path, name)) for name in ("snapshots", "manifests"))


def _is_references(path: str | Path) -> bool:
    with open(path, "rb") as content:
        head = content.read(2**16)
    return b'"refs"' in head or b"/.zarray" in head or b".zgroup" in head


def _read_references(path: Path) -> ZarrStore:
    data = _read_json(path)
    references = data.get("refs", data)
    if not isinstance(references, dict):
        raise Problem(f"{path}: refs must be a mapping of keys to references; write the references again")
    chunks: dict[str, list] = {}
    files = set()
    for key, value in references.items():
        folder, _, name = key.rpartition("/")
        if name not in ZARR:
            chunks.setdefault(folder, []).append(value)
            if isinstance(value, list) and value:
                files.add(value[0])
    arrays = list(_build_arrays(path, references, chunks))
    return ZarrStore(str(path), "kerchunk references", arrays, True, len(files))


def _build_arrays(path: Path | str, nodes: Mapping, chunks: Mapping[str, list]) -> Iterator[Array]:
    """Yield the arrays among keys such as "t2m/.zarray", with the references of their chunks by folder."""
    for key in sorted(nodes):
        folder, _, name = key.rpartition("/")
        if name in (_ARRAY, _NODE):
            where = f"{path}: {key}"
            node = nodes[key] if isinstance(nodes[key], dict) else _parse_json(str(nodes[key]), where)
            counts = len(chunks.get(folder, ())), sum(map(_measure_reference, chunks.get(folder, ())))
            if name == _ARRAY:
                yield _build_array_2(f"/{folder}", node, where, *counts)
            elif node.get("node_type") == "array":
                yield _build_array_3(f"/{folder}", node, where, *counts)


def _measure_reference(value: object) -> int:
    """Return the size of the bytes that a reference points to; 0 for a whole file, whose size it does not state."""
    return value[2] if isinstance(value, list) and len(value) > 2 else len(value) if isinstance(value, str) else 0


def _read_json(path: Path) -> dict:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise Problem(f"{path} is too large for JSON metadata; write the references as Parquet")
        return _parse_json(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}; make it readable") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not text; copy or download it again") from error


def _parse_json(text: str, where: str) -> dict:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise Problem(f"{where} is not valid JSON ({error}); copy or download it again") from error
    if not isinstance(data, dict):
        raise Problem(f"{where} must be a JSON object; copy or download it again")
    return data
