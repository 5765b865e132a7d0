"""Describe Zarr stores, kerchunk references and Icechunk repositories, and the requests that read them over S3."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sbench.files.chunking import compute_cost, compute_price, count_selected_bytes, find_unsuited, list_places
from sbench.files.looked import SMALL
from sbench.files.place import ELSEWHERE
from sbench.files.zarr_arrays import Array
from sbench.files.zarr_requests import Requests, forecast_requests
from sbench.files.zarr_stores import ZarrStore
from sbench.probe import sizes
from sbench.probe.program import Problem
from sbench.studies.shots.accesses import Accesses

# As for HDF5 files: 1,000 sequential requests take 20 s at 20 ms, and 50 take a second.
_MANY_CHUNKS, _MANY_ARRAYS = 1_000, 50
# Maximum number of chunks along an axis, or of single chunks, that an access lists.
_LISTED, _MOST_CHUNKS = 20, 1_000_000


@dataclass
class LookedStore:
    """A store, and how it will be read.

    Attributes:
        store: the store.
        accesses: the reads; None for whole arrays.
        patterns: patterns of the names of the arrays to read; empty for all.
    """

    store: ZarrStore
    accesses: Accesses | None
    patterns: Sequence[str] = ()

    def format_lines(self) -> Iterator[str]:
        """Yield the contents of the store as lines of text."""
        store = self.store
        objects, total = sum(array.objects for array in store.arrays), sum(array.bytes for array in store.arrays)
        parts = [sizes.format_count(len(store.arrays), "array")]
        if objects:
            amount = f"{sizes.format_size(total)} in " if total else ""
            parts.append(f"{amount}{sizes.format_count(objects, 'object')}")
        if store.files:
            parts.append(f"references to {sizes.format_count(store.files, 'file')}")
        apart = "" if store.is_consolidated else "; metadata not consolidated"
        origin = f", {store.origin}" if store.origin else ""
        yield f"{store.where}: {store.format}, {', '.join(parts)}{apart}{origin}"
        largest = sorted(store.arrays, key=lambda array: -array.bytes)
        yield from (f"  {_describe_array(array)}" for array in largest[:_LISTED])
        if len(largest) > _LISTED:
            yield f"  … and {sizes.format_count(len(largest) - _LISTED, 'smaller array')}"

    def list_conclusions(self) -> Iterator[str]:
        """Yield sentences on reading the store over S3.

        Raises:
            Problem: no array matches the patterns.
        """
        arrays = self._select_arrays()
        yield from _describe_chunks(arrays)
        if self.accesses:
            for level in self.accesses.shares:
                yield from _describe_requests(level, arrays, self.store.has_heads)
            kinds = [(array.name, array.kind) for array in arrays if array.item]
            yield from find_unsuited(kinds, self.accesses, compute_price(ELSEWHERE))
        if len(self.store.arrays) >= _MANY_ARRAYS and not self.store.is_consolidated:
            yield (
                f"The metadata of {len(self.store.arrays):,} arrays are as many objects: consolidate them"
                " (zarr.consolidate_metadata), and opening takes a few requests."
            )
        if any(array.shards for array in arrays):
            yield (
                "To read a part of a shard, zarr requests the shard's index and each chunk; zarr 3.3 and later merge"
                " requests for chunks at most 1 MiB apart, up to 16 MiB."
            )
        yield from self.store.advice
        yield "Run sbench count with your program to count its requests (docs/count.md)."

    def to_json(self) -> dict:
        """Convert the contents to a JSON-serialisable dict, with sizes in bytes."""
        store = self.store
        levels = list(self.accesses.shares) if self.accesses else []
        arrays = [
            {name: value for name, value in array._asdict().items() if name != "layout"}
            | {"requests": {level: _forecast(level, array)._asdict() for level in levels}}
            for array in store.arrays
        ]
        return {
            **{"store": store.where, "format": store.format, "is_consolidated": store.is_consolidated},
            **{"files": store.files, "arrays": arrays, "unreadable": list(store.faults), "origin": store.origin},
        }

    def _select_arrays(self) -> list[Array]:
        arrays = [
            array
            for array in self.store.arrays
            if not self.patterns or any(fnmatchcase(array.name, pattern) for pattern in self.patterns)
        ]
        if not arrays and self.patterns:
            raise Problem(
                f"no array of {self.store.where} matches {', '.join(self.patterns)}; the first arrays are"
                f" {', '.join(array.name for array in self.store.arrays[:_LISTED]) or 'none'}"
            )
        return arrays


def _describe_array(array: Array) -> str:
    each = f" of {sizes.format_size(array.bytes / array.objects)}" if array.bytes else ""
    noun = "shard" if array.shards else "chunk"
    written = f", {array.objects:,} of {array.largest:,} written" if 0 < array.objects < array.largest else ""
    inner = f", with chunks {array.chunks}" if array.shards else ""
    codecs = f"; {', '.join(array.codecs)}" if array.codecs else ""
    number = sizes.format_count(array.largest, noun)
    return (
        f"{array.name} {array.shape} {array.dtype}: {number} {array.shards or array.chunks}{each}{inner}{written}"
        f"{codecs}"
    )


def _describe_chunks(arrays: Sequence[Array]) -> Iterator[str]:
    numbers = {array.name: _count_requested(array) for array in arrays if not array.shards}
    small = [
        array
        for array in arrays
        if numbers.get(array.name, 0) >= _MANY_CHUNKS and 0 < array.bytes < SMALL * array.objects
    ]
    if small:
        worst = max(small, key=lambda array: numbers[array.name])
        each = sizes.format_size(worst.bytes / worst.objects)
        yield (
            f"The chunks of {worst.name} are small and many: {numbers[worst.name]:,} of {each}, which take as many"
            " requests. Use larger chunks, or shards."
        )


def _count_requested(array: Array) -> int:
    """Return the number of chunks that take requests."""
    return array.objects if array.layout is None or array.layout.sizes is None else len(array.layout.sizes)


def _describe_requests(level: str, arrays: Sequence[Array], has_heads: bool) -> Iterator[str]:
    shaped = [array for array in arrays if array.shape]
    if not shaped:
        return
    total = functools.reduce(Requests.add, (_forecast(level, array) for array in shaped))
    sized = [array for array in shaped if array.item]
    fetched = sum(compute_cost(array.kind, level).bytes for array in sized)
    selected = sum(count_selected_bytes(array.kind, level) for array in sized)
    name = shaped[0].name if len(shaped) == 1 else f"{len(shaped)} arrays"
    yield (
        f"{level} of {name}: {sizes.format_count(total.gets, 'GET')} of chunks{_describe_clients(total, has_heads)},"
        f" about {sizes.format_size(round(fetched))} for {sizes.format_size(selected)} in memory."
    )


def _describe_clients(requests: Requests, has_heads: bool) -> str:
    """Describe in parentheses how the requests of other clients differ."""
    parts = []
    if requests.merged != requests.gets:
        least = "" if requests.is_exact else "at least "
        gaps = f", which fetch {sizes.format_size(requests.gaps)} between chunks" if requests.gaps else ""
        parts.append(f"{least}{requests.merged:,} with zarr 3.3 and later{gaps}")
    if has_heads and requests.heads:
        parts.append(f"and {sizes.format_count(requests.heads, 'HEAD')} with s3fs")
    return f" ({', '.join(parts)})" if parts else ""


def _forecast(level: str, array: Array) -> Requests:
    along = [-(-size // step) for size, step in zip(array.shape, array.chunks, strict=True)]
    if (math.prod(along) // int(level[2:]) if level.startswith("1/") else max(along, default=0)) > _MOST_CHUNKS:
        raise Problem(f"{array.name} has too many chunks to forecast {level}; name other arrays")
    places = (forecast_requests(array, spans) for spans in list_places(array.kind, level))
    return functools.reduce(Requests.add, places, Requests())
