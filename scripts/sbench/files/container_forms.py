"""List the containers to consider with the shapes of their chunks, and forecast the requests to read them.

Requests are counted from chunks and shards that an access touches (`sbench.files.zarr_requests`), and those to open a
container.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sbench.files import chunking, zarr_arrays
from sbench.files.chunking import LARGEST, SMALLEST, Kind
from sbench.files.container_code import ORIGINAL, REFERENCES, REPACKED, Form
from sbench.files.container_files import Array, Contents
from sbench.files.patterns import Pattern
from sbench.files.zarr_requests import forecast_requests
from sbench.probe import sizes

SAME, COMPROMISE = "same", "compromise"
# Sizes of the chunks of a compromise to consider, in bytes in memory.
_CHUNKS = (SMALLEST, 4 * SMALLEST, LARGEST)
# Size in memory of the shards to write, at least; and chunks of a shard along each axis at most.
_SHARD = 2**24
_BLOCKCACHE = 'cache_type="blockcache", block_size=1048576'
# Requests in flight with which zarr reads by default (async.concurrency); HDF5 sends requests one after the other.
_IN_FLIGHT = 10
# Requests of icechunk to open a repository, and the largest chunk in bytes that it stores in a manifest.
_REPOSITORY, _INLINE = 5, 512
# Requests of xarray's engine kerchunk for references in JSON, which it loads three times, and of fsspec for a file of
# references in Parquet.
_JSON, _PARQUET = 6, 2
# Requests of xarray for a coordinate of times in addition to its values: for the first and the last value.
_TIMES = 2


class Forecast(NamedTuple):
    """The cost of an access to a container.

    Attributes:
        requests: number of requests, those to open the container included.
        bytes: bytes of the chunks.
        seconds: time of the requests.
    """

    requests: float
    bytes: float
    seconds: float


def list_forms(
    contents: Contents, patterns: Sequence[Pattern], containers: Sequence[str], network: Mapping
) -> list[Form]:
    """List the containers to consider, with the chunks that each access wants, compromises, and the present chunks.

    Args:
        contents: the arrays.
        patterns: the accesses to them.
        containers: kinds of containers.
        network: network settings, as in a store's configuration entry.
    """
    forms = [Form(ORIGINAL)]
    rules = dict(_list_rules(contents, patterns, network))
    for container in containers:
        if container == ORIGINAL:
            forms.append(Form(ORIGINAL, cache=_BLOCKCACHE))
        elif container in REFERENCES:
            forms.append(Form(container))
        elif container == "zarr-shards":
            forms += [
                Form(container, rule, chunks, {name: _choose_shard(contents, name, of) for name, of in chunks.items()})
                for rule, chunks in rules.items()
            ]
        elif container == REPACKED:
            clipped = {rule: _clip_to_files(contents, chunks) for rule, chunks in rules.items() if rule != SAME}
            forms += [Form(container, rule, chunks) for rule, chunks in clipped.items()]
        else:
            forms += [Form(container, rule, chunks) for rule, chunks in rules.items()]
    return forms


def _list_rules(
    contents: Contents, patterns: Sequence[Pattern], network: Mapping
) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Yield the name of a rule, and the chunk shape of each array by this rule; rules with equal shapes only once."""
    present = {array.name: array.kind.chunks for array in contents.arrays}
    seen = []
    if all(present.values()):
        seen.append(present)
        yield SAME, present
    price = chunking.compute_price(network)
    choices = [
        (
            pattern.name,
            {array.name: choose_for_pattern(array.kind, pattern, price) for array in contents.arrays},
        )
        for pattern in patterns
    ]
    choices += [
        (
            f"{COMPROMISE}-{sizes.format_level(size)}",
            {array.name: choose_compromise(array.kind, patterns, size) for array in contents.arrays},
        )
        for size in _CHUNKS
    ]
    for number, (rule, chunks) in enumerate(choices):
        if chunks not in seen:
            seen.append(chunks)
            # The name of a part, such as [0:100, ...], cannot be part of a file name.
            yield (rule if rule.replace(" ", "").replace("-", "").isalnum() else f"access-{number + 1}"), chunks


def choose_for_pattern(kind: Kind, pattern: Pattern, price: tuple[float, float]) -> tuple[int, ...]:
    """Return the chunk shape that suits a single access."""
    contiguous = kind._replace(chunks=())
    level = pattern.build_level(kind.shape)
    return chunking.choose_chunks(contiguous, ((level, 1.0),), price) or kind.chunks or kind.shape


def choose_compromise(kind: Kind, patterns: Sequence[Pattern], size: int) -> tuple[int, ...]:
    """Return a chunk shape that is a compromise between accesses, by the geometric rule.

    An access touches the number of chunks along each axis that it reads. If the axes of two accesses do not overlap,
    the product of the numbers of chunks that they touch, k1 and k2, is the number M of all chunks. With shares s1 and
    s2, s1 k1 + s2 k2 is smallest at k1 = sqrt(M s2 / s1); for equal shares, both touch sqrt(M) chunks (Rew, Chunking
    data: choosing shapes, Unidata, 2013). The chunks of an access are divided evenly among its axes. For other
    accesses, every axis is divided equally.

    Args:
        kind: the array.
        patterns: accesses to it.
        size: size of a chunk in memory, in bytes.
    """
    number = max(1.0, math.prod(kind.shape) * kind.item / size)
    spans = [pattern.build_spans(kind.shape, [0.5] * len(kind.shape)) for pattern in patterns]
    axes = [[axis for axis, span in enumerate(place) if len(range(*span)) > 1] for place in spans]
    divided = [number ** (1 / len(kind.shape))] * len(kind.shape)
    if len(patterns) == 2 and all(axes) and not set(axes[0]) & set(axes[1]):
        first = min(number, max(1.0, math.sqrt(number * patterns[1].share / patterns[0].share)))
        for touched, along in ((first, axes[0]), (number / first, axes[1])):
            for axis in along:
                divided[axis] = touched ** (1 / len(along))
    return tuple(
        max(1, math.ceil(length / max(1, round(parts)))) for length, parts in zip(kind.shape, divided, strict=True)
    )


def _clip_to_files(contents: Contents, chunks: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Limit chunks to the rows of the shortest file."""
    rows = {array.name: min(array.rows) for array in contents.arrays}
    return {name: (min(rows[name], shape[0]), *shape[1:]) for name, shape in chunks.items()}


def _choose_shard(contents: Contents, name: str, chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shard shape: chunks are added along each axis in turn, until a shard has `_SHARD` bytes or the array."""
    kind = next(array.kind for array in contents.arrays if array.name == name)
    shard = list(chunks)
    for axis in itertools.cycle(range(len(shard))):
        if math.prod(shard) * kind.item >= _SHARD or all(map(int.__ge__, shard, kind.shape)):
            return tuple(shard)
        if shard[axis] < kind.shape[axis]:
            shard[axis] *= 2
    raise AssertionError("the cycle does not end")


def forecast_form(
    form: Form, contents: Contents, pattern: Pattern, network: Mapping, opening: int = 0, merges: bool = True
) -> Forecast:
    """Forecast what it takes to open a container and to read a part of all its arrays.

    Args:
        form: the container.
        contents: the arrays.
        pattern: the access.
        network: network settings, as in a store's configuration entry.
        opening: for HDF5 files, the requests to open them.
        merges: whether zarr merges requests for the chunks of a shard (3.3 and later).
    """
    opened = opening if form.container in (ORIGINAL, REPACKED) else count_opening(form, contents)
    touched, size = 0, 0.0
    for array in contents.arrays:
        pieces, fetched = count_touched(form, array, pattern, merges)
        # Icechunk reads small chunks together with a manifest.
        pieces = 0 if form.container == "icechunk" and fetched <= pieces * _INLINE else pieces
        touched, size = touched + pieces, size + fetched
    in_flight = 1 if form.container in (ORIGINAL, REPACKED) else min(_IN_FLIGHT, max(1, touched))
    latency, rate = chunking.compute_price(network)
    seconds = (opened + math.ceil(touched / in_flight)) * latency + size / (rate * in_flight)
    return Forecast(opened + touched, size, seconds)


def count_opening(form: Form, contents: Contents) -> int:
    """Return the number of requests with which xarray opens references, a repository or a store.

    xarray reads all coordinates when it opens a container. References of all arrays, or the manifests of a repository,
    are read with the first chunk of an array.
    """
    arrays, coordinates = len(contents.arrays), len(contents.coordinates)
    match form.container:
        case "kerchunk-json":
            return _JSON
        case "kerchunk-parquet":
            return _PARQUET * (1 + coordinates + arrays)
        case "icechunk" | "icechunk-virtual":
            return _REPOSITORY + coordinates + sum(size > _INLINE for size in contents.coordinates) + arrays
    return 1 + coordinates + _TIMES * contents.times


def count_touched(form: Form, array: Array, pattern: Pattern, merges: bool = True) -> tuple[int, float]:
    """Return the number of requests for the chunks that an access touches, and the size of these chunks in bytes."""
    chunks = tuple(form.chunks.get(array.name) or array.kind.chunks or (min(array.rows), *array.kind.shape[1:]))
    spans = pattern.build_spans(array.kind.shape, [0.5] * len(array.kind.shape))
    whole = zarr_arrays.Array(array.name, array.kind.shape, "", array.kind.item, chunks, (), (), 0, 0)
    pieces = forecast_requests(whole, spans).gets
    size = pieces * math.prod(chunks) * array.kind.item * array.kind.stored
    if form.shards:
        requests = forecast_requests(whole._replace(shards=tuple(form.shards[array.name])), spans)
        pieces = min(requests.gets, requests.merged) if merges else requests.gets
    return pieces, size
