"""Choose chunk shapes for given access patterns, based on the number and the size of the chunks to fetch."""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py

from sbench.drivers.requests import SIEVE
from sbench.probe import sizes
from sbench.stores import network as networks
from sbench.studies.shots import selection
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.manifest import list_datasets

# Minimum and maximum size of a chunk in memory, in bytes. Smaller chunks need a large index; the largest still fits in
# the chunk cache of HDF5 1.14.
SMALLEST, LARGEST = 2**16, 2**20
# A different shape must take at most this fraction of the time with the present shape. Of all shapes within this factor
# of the shortest time, the largest is chosen.
_WORTH, _ALIKE = 0.8, 1.1
_MOST_SHAPES = 20_000
# An access is reported if it fetches more than this multiple of the selected bytes, and more than LARGEST bytes too
# many; and maximum number of reports.
_AMPLIFIED, _NAMED = 2, 5
# h5repack limits lines in its options file to 1,024 characters; whitespace, commas and colons delimit names.
_LINE, _SEPARATORS = 900, frozenset(" \t\n,:")

# Begin, end and step per axis.
Spans = Sequence[selection.Span]


class Kind(NamedTuple):
    """The properties of a dataset that determine the cost of an access.

    Attributes:
        shape: shape of the dataset.
        chunks: chunk shape; () for a contiguous dataset.
        item: bytes per element.
        stored: size in the file divided by the size in memory, at most 1.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    item: int
    stored: float


class Cost(NamedTuple):
    """The cost of an access to a dataset.

    Attributes:
        pieces: number of byte ranges to fetch.
        bytes: their total size in the file.
    """

    pieces: int
    bytes: float

    def compute_seconds(self, latency_s: float, bytes_per_s: float) -> float:
        """Return the time of one request per piece, plus the time to transfer the bytes."""
        return self.pieces * latency_s + self.bytes / bytes_per_s


def list_options(original: Path, datasets: Sequence[str], accesses: Accesses, network: Mapping[str, float]) -> str:
    """Return h5repack options with better chunk shapes for the given accesses.

    Args:
        original: path of the file to repack.
        datasets: patterns of datasets, as in data.datasets.
        accesses: accesses to these datasets.
        network: network settings, as in a store's configuration entry.

    Returns:
        Content of an h5repack options file; an empty string if no other chunk shape is sufficiently better.
    """
    price, names = compute_price(network), {}
    with h5py.File(original) as file:
        for one in list_datasets(file, datasets, str(original), accesses):
            shape = choose_chunks(get_kind(one), tuple(accesses.shares.items()), price)
            if shape and _SEPARATORS.isdisjoint(one.name):
                names.setdefault(shape, []).append(one.name)
    return "".join(line for shape, of in names.items() for line in _format_options(shape, of))


def compute_price(network: Mapping[str, float]) -> tuple[float, float]:
    """Return the latency of a request in seconds, and the rate of a connection in bytes per second."""
    return network.get("latency_ms", 0) / 1000, networks.compute_rate_limit(network, 1) * 2**20


def name_kinds(datasets: Iterable[h5py.Dataset]) -> list[tuple[str, Kind]]:
    """Return the names of datasets with their properties."""
    return [(dataset.name, get_kind(dataset)) for dataset in datasets]


def get_kind(dataset: h5py.Dataset) -> Kind:
    """Return the properties of a dataset that determine the cost of an access."""
    shape, item = dataset.shape or (), dataset.id.get_type().get_size()
    memory = math.prod(shape) * item
    stored = min(1.0, dataset.id.get_storage_size() / memory) if memory else 1.0
    return Kind(shape, dataset.chunks or (), item, round(stored, 2))


def count_selected_bytes(kind: Kind, level: str) -> int:
    """Return the number of bytes in memory selected by a level of the factor `selection`."""
    return sum(math.prod(map(_count_indices, place)) for place in list_places(kind, level)) * kind.item


def compute_cost(kind: Kind, level: str) -> Cost:
    """Return the cost of reading what a level of the factor `selection` selects, with the dataset's present chunks."""
    costs = [_compute_place_cost(kind, place, kind.chunks) for place in list_places(kind, level)]
    return Cost(sum(cost.pieces for cost in costs), sum(cost.bytes for cost in costs))


@functools.cache
def choose_chunks(kind: Kind, shares: tuple[tuple[str, float], ...], price: tuple[float, float]) -> tuple[int, ...]:
    """Return the best chunk shape for the given accesses, or () if the present layout is about as good.

    Args:
        kind: properties of the dataset.
        shares: (level of `selection`, share of the accesses) pairs.
        price: latency of a request in seconds, and rate in bytes per second.
    """
    # For reads of metadata, or of a fraction of the chunks, the shape does not matter.
    wanted = [(share, place) for level, share in shares if level[0] in "a[" for place in list_places(kind, level)]
    if not wanted or not kind.item or not math.prod(kind.shape) or not kind.shape:
        return ()

    def estimate_seconds(chunks: tuple[int, ...]) -> float:
        return sum(share * _compute_place_cost(kind, place, chunks).compute_seconds(*price) for share, place in wanted)

    prices = {shape: estimate_seconds(shape) for shape in _list_shapes(kind, [place for _, place in wanted])}
    if not prices or min(prices.values()) > _WORTH * estimate_seconds(kind.chunks):
        return ()
    alike = [shape for shape, price_of in prices.items() if price_of <= _ALIKE * min(prices.values())]
    return max(alike, key=lambda shape: (math.prod(shape), -prices[shape]))


def find_unsuited(datasets: Iterable[tuple[str, Kind]], accesses: Accesses, price: tuple[float, float]) -> list[str]:
    """Describe the accesses that fetch many more bytes than they select, starting with the worst.

    Datasets, given as (name, properties), with equal properties share a sentence.
    """
    names: dict[Kind, list[str]] = {}
    for name, kind in datasets:
        names.setdefault(kind, []).append(name)
    mismatches: list[tuple[float, str]] = []
    for kind, of_kind in names.items():
        for level in accesses.shares:
            cost, selected = compute_cost(kind, level), count_selected_bytes(kind, level) * kind.stored
            if cost.bytes > _AMPLIFIED * selected and (vain := (cost.bytes - selected) * len(of_kind)) > LARGEST:
                better = choose_chunks(kind, ((level, 1.0),), price)
                mismatches.append((vain, _describe_mismatch(level, kind, of_kind, better)))
    return [text for _, text in sorted(mismatches, reverse=True)[:_NAMED]]


def _describe_mismatch(level: str, kind: Kind, names: Sequence[str], better: tuple[int, ...]) -> str:
    def format_size(nbytes: float) -> str:
        return sizes.format_size(round(nbytes * len(names)))

    of = names[0] if len(names) == 1 else f"{len(names)} datasets such as {names[0]}"
    fault = f"the chunks {kind.chunks} of {of} do not suit it" if kind.chunks else f"{of} is contiguous"
    selected = count_selected_bytes(kind, level) * kind.stored
    fetched = compute_cost(kind._replace(chunks=better), level).bytes
    text = f"{level} fetches {format_size(compute_cost(kind, level).bytes)} for {format_size(selected)}: {fault}"
    return text + (f"; with chunks {better} it would fetch {format_size(fetched)}" if better else "")


def list_places(kind: Kind, level: str) -> Iterator[Spans]:
    """Yield the hyperslabs that an access reads, each as one (begin, end, step) per axis."""
    if level != selection.METADATA:
        for place in selection.iter_places(level, kind.shape, kind.chunks or None):
            yield place or tuple((0, length, 1) for length in kind.shape)


def _compute_place_cost(kind: Kind, spans: Spans, chunks: tuple[int, ...]) -> Cost:
    if chunks:
        pieces = math.prod(_count_touched(span, size) for span, size in zip(spans, chunks, strict=True))
        return Cost(pieces, pieces * math.prod(chunks) * kind.item * kind.stored)
    return _compute_contiguous_cost(kind, spans)


def _compute_contiguous_cost(kind: Kind, spans: Spans) -> Cost:
    """Return the cost of reading a hyperslab of a contiguous dataset.

    HDF5 reads each contiguous run of elements separately, through the sieve buffer.
    """
    run, rest = kind.item, list(zip(spans, kind.shape, strict=True))
    while rest:
        span, length = rest.pop()
        if span[2] > 1:
            rest.append((span, length))
            break
        run *= _count_indices(span)
        if _count_indices(span) < length:
            break
    runs = math.prod(_count_indices(span) for span, _ in rest)
    selected, whole = runs * run, math.prod(kind.shape) * kind.item
    return Cost(min(runs, -(-whole // SIEVE)), max(selected, min(runs * SIEVE, whole)))


def _count_indices(span: selection.Span) -> int:
    return len(range(*span))


def _count_touched(span: selection.Span, size: int) -> int:
    begin, _, step = span
    last = begin + (_count_indices(span) - 1) * step
    return last // size - begin // size + 1 if step <= size else _count_indices(span)


def _list_shapes(kind: Kind, places: Sequence[Spans]) -> Iterator[tuple[int, ...]]:
    whole = math.prod(kind.shape) * kind.item
    smallest, largest = min(SMALLEST, whole), max(LARGEST, kind.item)
    axes = [
        sorted(
            {*(_count_indices(place[axis]) for place in places), length, *(2**n for n in range(length.bit_length()))}
        )
        for axis, length in enumerate(kind.shape)
    ]
    if math.prod(map(len, axes)) > _MOST_SHAPES:
        axes = [
            sorted({1, *(_count_indices(place[axis]) for place in places), kind.shape[axis]})
            for axis in range(len(axes))
        ]
    for shape in itertools.islice(itertools.product(*axes), _MOST_SHAPES):
        if smallest <= math.prod(shape) * kind.item <= largest:
            yield shape


def _format_options(shape: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    text = ""
    for name in names:
        if text and len(text) + len(name) > _LINE:
            yield f"-l {text}:CHUNK={'x'.join(map(str, shape))}\n"
            text = ""
        text += f"{',' if text else ''}{name}"
    yield f"-l {text}:CHUNK={'x'.join(map(str, shape))}\n"
