"""Read the arrays of Icechunk repositories, and where their chunks are, with the package icechunk."""

import asyncio
import importlib.util
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.files.zarr_arrays import Array, format_key, parse_array_3
from sbench.files.zarr_layouts import Layout, Position
from sbench.files.zarr_stores import ZarrStore, find_lost_files, get_prefix
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.probe.zarr_shards import ShardIndex
from sbench.studies.shots.inputs import find_object

if TYPE_CHECKING:
    import icechunk

_BRANCH = "main"
# First bytes of a file of Icechunk (its specification, "Binary files").
_MAGIC = "ICE🧊CHUNK".encode()
# Number of chunks that are looked up one by one, which takes about 0.15 ms each.
_MOST_CHUNKS = 20_000
_OUTDATED = "please upgrade the icechunk library"
_NOT_EXAMINED = "not examined"
# icechunk requests larger objects in parts of equal size, unless the repository's configuration has other limits
# (storage.concurrency): ideal_concurrent_request_size in bytes, and max_concurrent_requests_for_object.
_SPLIT = 12 * 2**20, 18


def is_repository(path: str | Path) -> bool:
    """Return whether a folder is an Icechunk repository."""
    has = {name for name in ("snapshots", "manifests", "refs", "repo") if os.path.exists(os.path.join(path, name))}
    return has >= {"snapshots", "manifests"} or ("snapshots" in has and not has.isdisjoint(("refs", "repo")))


def is_remote_repository(address: str, spec: dict) -> bool:
    """Return whether an Icechunk repository is at an address in the bucket `spec`."""
    if not (prefix := get_prefix(address)):
        return False
    if find_object(f"{prefix}/refs/branch.{_BRANCH}/ref.json", spec):
        return True
    if not (source := find_object(f"{prefix}/repo", spec)):
        return False
    with source.open_raw() as content:
        return content.read(len(_MAGIC)) == _MAGIC


def read_repository(where: str, spec: dict | None = None) -> ZarrStore:
    """Read the arrays of the branch main.

    Args:
        where: path of the folder, or s3://bucket/prefix.
        spec: the bucket's entry as a store of a configuration.

    Raises:
        Problem: the package icechunk is missing, or it cannot read the repository.
    """
    if not importlib.util.find_spec("icechunk"):
        raise Problem(
            f"{where} is an Icechunk repository, which only icechunk reads; install it: {sys.executable} -m pip install"
            " icechunk"
        )
    import icechunk

    icechunk.set_logs_filter("error")
    try:
        if not spec:
            return _read_store(where, icechunk.local_filesystem_storage(os.path.abspath(where)))
        return _read_store(where, _build_storage(where, spec))
    # Classes of errors differ between versions of icechunk. Those of missing arrays are of Zarr.
    except (icechunk.IcechunkError, ValueError, OSError, KeyError) as error:
        raise Problem(f"{where} cannot be read as an Icechunk repository: {_describe_error(error)}") from error


def _describe_error(error: Exception) -> str:
    """Return the first line of an error of icechunk, with the missing object if it has one, and a remedy."""
    lines = [line.strip(" |`->").removeprefix("x ") for line in str(error).splitlines()]
    if any(_OUTDATED in line for line in lines):
        return f"its format is of a later icechunk; upgrade it: {sys.executable} -m pip install --upgrade icechunk"
    text = next(filter(None, lines), type(error).__name__).partition(" (os error")[0]
    path = re.search(r'path="([^"]+)"', str(error))
    name = f" ({path[1]})" if path else ""
    return f"{text}{name}; restore what is missing, or copy the repository again"


def _build_storage(address: str, spec: dict) -> "icechunk.Storage":
    import icechunk

    # Imported here because boto3 is part of an extra, and most stores that are looked at are on a disk.
    from sbench.stores.s3 import client

    endpoint = spec.get("endpoint")
    variables = client.load_credential_variables(spec)
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    access = dict(zip(("access_key_id", "secret_access_key", "session_token"), map(variables.get, keys), strict=True))
    return icechunk.s3_storage(
        bucket=spec["bucket"],
        prefix=get_prefix(address),
        region=spec["region"],
        endpoint_url=endpoint,
        allow_http=bool(endpoint and endpoint.startswith("http://")),
        force_path_style=bool(endpoint),
        **(access if variables else {"anonymous": True}),
    )


def _read_store(where: str, storage: "icechunk.Storage") -> ZarrStore:
    import icechunk

    repository = icechunk.Repository.open(storage)
    session = repository.readonly_session(_BRANCH)
    snapshot = repository.inspect_snapshot(session.snapshot_id)
    snapshot = snapshot if isinstance(snapshot, dict) else json.loads(snapshot)
    split = _read_split(icechunk.Repository.fetch_config(storage))
    files = sorted(set(session.all_virtual_chunk_locations()))
    arrays, kinds = asyncio.run(_read_arrays(where, session, snapshot["nodes"], split))
    origin = [f"branch {_BRANCH}, snapshot {session.snapshot_id}", *_describe_kinds(kinds)]
    manifests = snapshot["manifests"]
    total = sum(manifest["size_bytes"] for manifest in manifests)
    origin.append(f"{sizes.format_count(len(manifests), 'manifest')} of {sizes.format_size(total)}")
    faults = tuple(find_lost_files(where, files))
    advice = tuple(_list_advice(kinds, split))
    return ZarrStore(where, "Icechunk", arrays, True, len(files), faults, "; ".join(origin), advice)


def _list_advice(kinds: Counter, split: tuple[int, int]) -> Iterator[str]:
    if kinds[_NOT_EXAMINED]:
        yield (
            f"Of arrays with many chunks ({kinds[_NOT_EXAMINED]:,}), no sizes were read: their GETs include those of"
            " chunks that are inlined or not written, and count large chunks once."
        )
    if split[0] < _SPLIT[0]:
        yield (
            f"The repository's configuration requests objects in parts of {sizes.format_size(split[0])}, up to"
            f" {split[1]} for each. icechunk saves this for repositories that are created on a disk. Open it with"
            " storage.concurrency.ideal_concurrent_request_size of"
            f" {_SPLIT[0]:,} and max_concurrent_requests_for_object of {_SPLIT[1]}."
        )
    yield "The first read of an array also fetches its manifests."


def _describe_kinds(kinds: Counter) -> Iterator[str]:
    if kinds.total():
        yield "chunks: " + ", ".join(f"{number:,} {name}" for name, number in sorted(kinds.items()) if number)


def _read_split(config: "icechunk.RepositoryConfig | None") -> tuple[int, int]:
    """Return above which size in bytes, and in how many parts at most, icechunk requests an object."""
    limits = config and config.storage and config.storage.concurrency
    ideal = limits and limits.ideal_concurrent_request_size
    return ideal or _SPLIT[0], (limits and limits.max_concurrent_requests_for_object) or _SPLIT[1]


async def _read_arrays(
    where: str, session: "icechunk.Session", nodes: Sequence[Mapping], split: tuple[int, int]
) -> tuple[list[Array], Counter]:
    """Return the arrays, and the number of their chunks by kind."""
    arrays, kinds = [], Counter()
    for node in sorted(nodes, key=lambda node: node["path"]):
        if node["node_type"] != "array":
            continue
        path = node["path"]
        data = json.loads(await _get(session, f"{path}/zarr.json"))
        positions = [tuple(position) async for position in session.chunk_coordinates(path)]
        stored: dict[Position, int] | None = None
        total = 0
        if kinds.total() - kinds[_NOT_EXAMINED] + len(positions) <= _MOST_CHUNKS:
            stored = {}
            for position in positions:
                kind = str(await session.chunk_type_async(path, position)).rpartition(".")[2].lower()
                size = await session.store.getsize(f"{path}/{format_key(data, position)}".lstrip("/"))
                kinds[kind] += 1
                total += size
                if kind != "inline":
                    stored[position] = size
        else:
            kinds[_NOT_EXAMINED] += len(positions)
        array = parse_array_3(path, data, f"{where}: {path}", len(positions), total)
        index = array.layout.index if array.layout else None
        reader = _build_index_reader(session, path, data, index) if index else None
        arrays.append(array._replace(layout=Layout(stored, index, reader, split)))
    return arrays, kinds


def _build_index_reader(
    session: "icechunk.Session", path: str, data: Mapping, index: ShardIndex
) -> Callable[[Position], tuple[bytes | None, str]]:
    """Return a function that reads the index of a shard."""
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest

    part = SuffixByteRequest(index.bytes) if index.is_last else RangeByteRequest(0, index.bytes)

    def read_index(position: Position) -> tuple[bytes | None, str]:
        key = f"{path}/{format_key(data, position)}"
        return asyncio.run(_get(session, key, part)), key

    return read_index


async def _get(session: "icechunk.Session", key: str, part: object = None) -> bytes | None:
    from zarr.core.buffer import default_buffer_prototype

    content = await session.store.get(key.lstrip("/"), default_buffer_prototype(), part)
    return None if content is None else content.to_bytes()
