"""Read the metadata of Zarr stores and of kerchunk references on a disk, and count their objects, without Zarr."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbench.files.zarr_arrays import Array, parse_array_2, parse_array_3, parse_json, read_json
from sbench.files.zarr_layouts import Layout
from sbench.probe.formats import ZARR
from sbench.probe.program import Problem
from sbench.studies.shots.addresses import IN_BUCKET
from sbench.studies.shots.inputs import find_object

_GROUP, _ARRAY, _ATTRIBUTES, _CONSOLIDATED, _NODE = ".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"
_NUMBER = re.compile(r"\d{1,18}")
_FORMATS = {_NODE: "Zarr 3", _CONSOLIDATED: "Zarr 2", _ARRAY: "Zarr 2"}
# Maximum number of shards of an array whose index is checked, and size of these indexes in bytes.
_CHECKED_SHARDS, _CHECKED_BYTES = 100, 4 * 2**20


class ZarrStore(NamedTuple):
    """The contents of a Zarr store.

    Attributes:
        where: path of the store.
        format: "Zarr 2", "Zarr 3", "kerchunk references" or "Icechunk".
        arrays: its arrays, by name.
        is_consolidated: whether a single object has the metadata of all arrays.
        files: number of files that references point to; 0 for a store with chunks of its own.
        faults: sentences on parts that cannot be read.
        origin: further properties, such as the snapshot of an Icechunk repository; "" if there are none.
        advice: sentences on reading it.
    """

    where: str
    format: str
    arrays: list[Array]
    is_consolidated: bool
    files: int = 0
    faults: tuple[str, ...] = ()
    origin: str = ""
    advice: tuple[str, ...] = ()

    @property
    def has_heads(self) -> bool:
        """Whether zarr's FsspecStore reads it, and looks up the size of each object before it fetches the object."""
        return self.format.startswith("Zarr")


def is_store(path: str | Path) -> bool:
    """Return whether a path is a Zarr store or kerchunk references."""
    if os.path.isdir(path):
        return any(os.path.exists(os.path.join(path, name)) for name in ZARR)
    return os.path.isfile(path) and os.path.splitext(path)[1] == ".json" and _is_references(path)


def read_store(path: Path) -> ZarrStore:
    """Read the metadata of all arrays.

    Raises:
        Problem: metadata cannot be read, or describe a grid of chunks that is not regular.
    """
    if path.is_file():
        return _read_references(path)
    if (path / _CONSOLIDATED).exists() and "record_size" in (data := read_json(path / _CONSOLIDATED)):
        arrays = list(_build_arrays(path / _CONSOLIDATED, _get_nodes(data, path / _CONSOLIDATED)))
        return ZarrStore(str(path), "kerchunk references (Parquet)", arrays, True)
    arrays, formats, is_consolidated = [], set(), (path / _CONSOLIDATED).exists()
    for folder, names, files in os.walk(path):
        names.sort()
        node = Path(folder)
        name = "/" if node == path else f"/{node.relative_to(path)}"
        if _NODE in files:
            formats.add("Zarr 3")
            data = read_json(node / _NODE)
            is_consolidated |= bool(node == path and data.get("consolidated_metadata"))
            if data.get("node_type") == "array":
                arrays.append(parse_array_3(name, data, node / _NODE, *_count_objects(node), node))
                names.clear()
        elif _ARRAY in files:
            formats.add("Zarr 2")
            arrays.append(parse_array_2(name, read_json(node / _ARRAY), node / _ARRAY, *_count_objects(node)))
            names.clear()
        elif _GROUP in files:
            formats.add("Zarr 2")
    if not formats:
        raise Problem(f"{path} has metadata of Zarr, but no array; name the store, not a part of it")
    faults = tuple(_find_bad_shards(arrays))
    return ZarrStore(str(path), " and ".join(sorted(formats)), arrays, is_consolidated, faults=faults)


def _find_bad_shards(arrays: Iterable[Array]) -> Iterator[str]:
    """Yield the faults of shards whose index cannot be read, among shards that are evenly spaced in each array."""
    for array in arrays:
        if array.layout and array.layout.read_index:
            most = min(_CHECKED_SHARDS, _CHECKED_BYTES // array.layout.index.bytes)
            for number in range(0, array.largest, max(1, -(-array.largest // most))) if most else ():
                try:
                    array.layout.read_ranges(tuple(map(int, np.unravel_index(number, array.grid))))
                except Problem as problem:
                    yield str(problem)


def _get_nodes(data: object, where: object) -> dict:
    """Return the metadata of arrays and groups by key in consolidated metadata."""
    nodes = data.get("metadata") or {} if isinstance(data, dict) else None
    if not isinstance(nodes, dict):
        raise Problem(f"{where}: consolidated metadata must be a JSON object; consolidate them again")
    return nodes


def get_prefix(address: str) -> str:
    """Return the prefix of an address in a bucket, without a slash at its end."""
    return address.removeprefix(IN_BUCKET).partition("/")[2].rstrip("/")


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
    prefix = get_prefix(address)
    # A whole bucket is listed for HDF5 files.
    for name in (_NODE, _CONSOLIDATED, _ARRAY, _GROUP) if prefix else ():
        if not (source := find_object(f"{prefix}/{name}", spec)):
            continue
        with source.open_raw() as content:
            data = parse_json(content.read().decode(errors="replace"), source.where)
        if name == _ARRAY or data.get("node_type") == "array":
            return ZarrStore(address, _FORMATS[name], list(_build_arrays(source.where, {name: data})), True)
        if name == _CONSOLIDATED:
            form = "kerchunk references (Parquet)" if "record_size" in data else _FORMATS[name]
            return ZarrStore(address, form, list(_build_arrays(source.where, _get_nodes(data, source.where))), True)
        # The group of a store of Zarr 2 never contains its arrays.
        if not (consolidated := data.get("consolidated_metadata")):
            raise Problem(
                f"{address}: the metadata of its arrays are not consolidated; name an array, or consolidate them"
                " (zarr.consolidate_metadata)"
            )
        nodes = {f"{key}/{_NODE}": node for key, node in _get_nodes(consolidated, source.where).items()}
        return ZarrStore(address, _FORMATS[name], list(_build_arrays(source.where, nodes)), True)
    return None


def _count_objects(folder: Path) -> tuple[int, int]:
    """Return the number of chunks or shards below the folder of an array, and their total size."""
    sizes = [
        os.path.getsize(os.path.join(place, file))
        for place, _, files in os.walk(folder)
        for file in files
        if file not in ZARR
    ]
    return len(sizes), sum(sizes)


def _is_references(path: str | Path) -> bool:
    with open(path, "rb") as content:
        head = content.read(2**16)
    return b'"refs"' in head or b"/.zarray" in head or b".zgroup" in head


def _read_references(path: Path) -> ZarrStore:
    data = read_json(path)
    references = data.get("refs", data)
    if not isinstance(references, dict):
        raise Problem(f"{path}: refs must be a mapping of keys to references; write the references again")
    folders = {key.rpartition("/")[0] for key in references if key.rpartition("/")[2] in (_ARRAY, _NODE)}
    chunks: dict[str, dict[str, object]] = {}
    for key, value in references.items():
        folder, _, name = key.rpartition("/")
        if name not in ZARR:
            _check_reference(value, f"{path}: {key}")
            while folder and folder not in folders:
                folder = folder.rpartition("/")[0]
            chunks.setdefault(folder, {})[key[len(folder) :].lstrip("/")] = value
    files = {value[0] for of_array in chunks.values() for value in of_array.values() if _is_range(value)}
    arrays = list(_build_arrays(path, references, chunks))
    return ZarrStore(str(path), "kerchunk references", arrays, True, len(files), tuple(find_lost_files(path, files)))


def _is_range(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _check_reference(value: object, where: str) -> None:
    is_range = isinstance(value, list) and len(value) in (1, 3) and isinstance(value[0], str)
    if not (
        (is_range and all(type(one) is int and 0 <= one < 2**63 for one in value[1:])) or isinstance(value, str | dict)
    ):
        raise Problem(f"{where} must be a text or [file, offset, size]; write the references again")


def find_lost_files(path: object, files: Iterable[str]) -> Iterator[str]:
    """Yield a fault if files on this disk that references point to do not exist."""
    local = [file.removeprefix("file://") for file in files if "{{" not in file]
    lost = sorted(file for file in local if "://" not in file and not os.path.exists(file))
    if lost:
        more, they, them = (f" and {len(lost) - 1:,} more", "do", "them") if len(lost) > 1 else ("", "does", "it")
        yield f"{path} refers to {lost[0]}{more}, which {they} not exist; restore {them}, or write the references again"


def _build_arrays(
    path: Path | str, nodes: Mapping, chunks: Mapping[str, Mapping[str, object]] | None = None
) -> Iterator[Array]:
    """Yield the arrays among keys such as "t2m/.zarray".

    Args:
        path: the store, for messages.
        nodes: metadata by key.
        chunks: references by folder and key in it, of references; None for a store with chunks of its own.
    """
    for key in sorted(nodes):
        folder, _, name = key.rpartition("/")
        if name in (_ARRAY, _NODE):
            where = f"{path}: {key}"
            node = nodes[key] if isinstance(nodes[key], dict) else parse_json(str(nodes[key]), where)
            held = (chunks or {}).get(folder, {})
            counts = len(held), sum(map(_measure_reference, held.values()))
            if name == _NODE and node.get("node_type") != "array":
                continue
            build = parse_array_2 if name == _ARRAY else parse_array_3
            array = build(f"/{folder}", node, where, *counts)
            yield array if chunks is None else array._replace(layout=_build_reference_layout(array, held))


def _build_reference_layout(array: Array, references: Mapping[str, object]) -> Layout:
    """Return the sizes of the chunks that take requests: values in the references themselves take none."""
    ranges = {key: value for key, value in references.items() if _is_range(value)}
    sizes = {
        tuple(map(int, _NUMBER.findall(key))) if array.shape else (): _measure_reference(value)
        for key, value in ranges.items()
    }
    return Layout(sizes, array.layout.index if array.layout else None)


def _measure_reference(value: object) -> int:
    """Return the size of the bytes that a reference points to; 0 for a whole file, whose size it does not state."""
    return value[2] if isinstance(value, list) and len(value) > 2 else len(value) if isinstance(value, str) else 0
