"""Find properties of HDF5 files that make reading over a network slow, and report those above a threshold."""

import math
from collections.abc import Callable, Iterable, Iterator

import h5py

from sbench.drivers import ROS3_FIRST_BYTES
from sbench.files.contents import Contents, Stored, is_of_note
from sbench.files.looked import SMALL, Looked, count_bytes, format_share
from sbench.probe import sizes
from sbench.studies.shots.datasets import LACKS_FILTER

# Thresholds in addition to ROS3_FIRST_BYTES and SMALL, with their sources.
#
# Time of each sequential request, as the study assumes for a remote service. Amazon reports 100 to 200 ms to the first
# byte ("Best practices design patterns: optimizing Amazon S3 performance").
_ROUND_TRIP_S = 0.02
# Number of requests to open a file and find its objects. 50 take a second, in which a connection can transfer 85 MB.
_MANY_REQUESTS = 50
# Number of requests to read all chunks. 1,000 take 20 seconds.
_MANY_READS = 1_000
# Number of members in a group. According to the HDF Group, the two kinds of index differ most for "tens of thousands of
# members" ("Group implementations in HDF5", reference manual).
_MANY_MEMBERS = 10_000
# Page sizes to suggest for a copy whose metadata fit in one page: from what a connection transfers in a round trip, to
# what ROS3 caches.
_PAGES = tuple(2**power for power in range(20, 25))
# Size of a chunk that takes longer than a round trip to fetch again: 1.7 MB take 20 ms at 85 MB/s (the same source).
_MUCH = 2 * 2**20
# Default size of the chunk cache of a dataset: in the HDF5 of this process, and before HDF5 2.0 (H5Pset_cache).
_CACHE = h5py.h5p.create(h5py.h5p.FILE_ACCESS).get_cache()[2]
_CACHE_BEFORE_2 = 2**20


def list_conclusions(looked: Looked) -> Iterator[str]:
    """Yield sentences on the properties of the files that affect reading over a network, each with its remedy."""
    parts = (
        _describe_prefetch,
        _describe_pages,
        _describe_metadata,
        _describe_small_pages,
        _describe_old_index,
        _describe_unused,
        _describe_small_datasets,
        _describe_small_chunks,
        _describe_large_chunks,
    )
    for part in (*parts, _describe_lacking_filters):
        yield from part(looked)
    yield "Run sbench advise to measure which changes pay off for your reads."


def _describe_prefetch(looked: Looked) -> Iterator[str]:
    if not 0 < (largest := max(looked.bytes)) <= ROS3_FIRST_BYTES:
        return
    elsewhere = sizes.format_count(looked.elsewhere, "dataset")
    but = f", except the values of {elsewhere} in other files" if looked.elsewhere else ""
    several = "The file has" if len(looked.bytes) == 1 else "The largest file has"
    yield (
        f"{several} {sizes.format_size(largest)}, and ROS3 fetches the first {sizes.format_size(ROS3_FIRST_BYTES)} when"
        f" it opens a file: the open fetches the whole file, whatever its layout and the datasets to read{but}."
    )


def _describe_pages(looked: Looked) -> Iterator[str]:
    if without := looked.pages[None]:
        of = f" on {without:,} of {len(looked.bytes):,} files" if len(looked.pages) > 1 else ""
        yield f'Without pages HDF5\'s page buffer has no effect{of}: leave page_buffer at unset or "0".'
    else:
        buffer = max(64 * 2**20, 4 * max(looked.pages))
        yield f'With pages a page buffer works: measure "0" and {sizes.format_level(buffer)}.'


def _describe_metadata(looked: Looked) -> Iterator[str]:
    """Yield a conclusion if metadata are scattered among the values in a file without pages."""
    worst = _find_worst(looked, lambda held: 0 if held.page_size else held.requests)
    if worst and not worst.page_size and worst.requests >= _MANY_REQUESTS:
        yield (
            f"Metadata are scattered among the values{_format_file(worst, looked)}: opening the file and finding its"
            f" {sizes.format_count(worst.objects, 'object')} takes {worst.requests:,} requests of ROS3 beyond the first"
            f" {sizes.format_size(ROS3_FIRST_BYTES)} ({_format_seconds(worst.requests)}); HDF5 2.2 fetches blocks of"
            f" 16 MiB there. {_describe_metadata_remedy(worst)}"
        )


def _describe_small_pages(looked: Looked) -> Iterator[str]:
    worst = _find_worst(looked, lambda held: held.page_requests)
    if worst and worst.page_requests >= _MANY_REQUESTS:
        yield (
            f"Pages of {sizes.format_size(worst.page_size)} are small{_format_file(worst, looked)}: even with a page"
            f" buffer, opening the file and finding its {sizes.format_count(worst.objects, 'object')} takes"
            f" {worst.page_requests:,} requests of ROS3 beyond the first {sizes.format_size(ROS3_FIRST_BYTES)}"
            f" ({_format_seconds(worst.page_requests)}). {_describe_metadata_remedy(worst)}"
        )


def _describe_metadata_remedy(contents: Contents) -> str:
    """Describe how to reduce the number of requests for metadata."""
    page = next((page for page in _PAGES if page >= contents.metadata), None)
    if not page or page == contents.page_size:
        return (
            f"The metadata take {sizes.format_size(contents.metadata)}; fewer and larger datasets need fewer requests."
        )
    command = _build_repack_command("-S PAGE -G", page)
    return f"A copy with pages of {sizes.format_size(page)} holds all metadata in its first page: {command}"


def _describe_old_index(looked: Looked) -> Iterator[str]:
    """Yield a conclusion if a large group has an old-format index, which HDF5 must read completely."""
    worst = _find_worst(looked, lambda held: held.largest.members if held.largest and held.largest.is_old else 0)
    if not worst or not (group := worst.largest) or not group.is_old or group.members < _MANY_MEMBERS:
        return
    size = sizes.format_size(sum(length for _, length in group.reads))
    yield (
        f"Group {group.path}{_format_file(worst, looked)} has {group.members:,} members in an index of the format"
        f" before HDF5 1.8: finding a member by name takes {sizes.format_count(len(group.reads), 'read')} and {size}. A"
        ' copy in the latest format (libver="latest"), which old releases cannot read, has an index that HDF5 reads in'
        f" parts: {_build_repack_command('-L')}; a few large datasets need neither."
    )


def _describe_unused(looked: Looked) -> Iterator[str]:
    """Yield a conclusion if a copy would be considerably smaller than the file."""
    files = [held for held in looked.contents if is_of_note(_estimate_saved(held), held.bytes)]
    if not files:
        return
    worst = max(files, key=_estimate_saved)
    page = _choose_copy_page(worst)
    command = _build_repack_command("-S PAGE -G", page) if page != worst.page_size else _build_repack_command()
    unsure = " or holds values of variable length" if worst.heap is None else ""
    size = sizes.format_size(estimate_copy_bytes(worst, page))
    yield (
        f"{sizes.format_size(worst.unused)} of {sizes.format_size(worst.bytes)}{_format_file(worst, looked)} is free or"
        f" unaccounted for{unsure} (h5stat -S): a copy takes about {size}: {command}"
    )


def _estimate_saved(contents: Contents) -> int:
    return contents.bytes - estimate_copy_bytes(contents, _choose_copy_page(contents))


def _choose_copy_page(contents: Contents) -> int | None:
    """Return the page size for a copy: the file's own, or a smaller one if that saves considerable space."""
    if not contents.page_size or contents.page_size <= _PAGES[0]:
        return contents.page_size
    more = estimate_copy_bytes(contents, contents.page_size) - estimate_copy_bytes(contents, _PAGES[0])
    return _PAGES[0] if is_of_note(more, contents.bytes) else contents.page_size


def estimate_copy_bytes(contents: Contents, page: int | None) -> int:
    """Estimate the size in bytes of a copy made by h5repack.

    Pieces of data smaller than a page share pages; each larger piece begins a new page.

    Args:
        contents: contents of the file.
        page: page size of the copy in bytes; None for a copy without pages.
    """
    metadata = contents.metadata + (contents.heap or 0)
    if not page:
        return contents.raw + metadata
    whole, shared = 0, 0.0
    for dataset in contents.datasets:
        pieces = dataset.chunks or 1
        size = dataset.bytes / pieces
        if size >= page:
            whole += pieces * math.ceil(size / page)
        elif size:
            shared += pieces / (page // max(1, math.ceil(size)))
    return page * (whole + math.ceil(shared) + math.ceil(metadata / page))


def _describe_small_datasets(looked: Looked) -> Iterator[str]:
    """Yield a conclusion if many datasets are so small that latency dominates.

    Files that ROS3 fetches completely on opening are ignored.
    """
    worst = _find_worst(looked, lambda held: len(_select_small(held.datasets)) if held.bytes > ROS3_FIRST_BYTES else 0)
    if not worst or worst.bytes <= ROS3_FIRST_BYTES or len(small := _select_small(worst.datasets)) < _MANY_REQUESTS:
        return
    if count_bytes(small) > count_bytes(worst.datasets) / 2:
        share = format_share(count_bytes(small), count_bytes(worst.datasets))
        yield (
            f"{sizes.format_count(len(small), 'dataset')} of less than {sizes.format_size(SMALL)}"
            f"{_format_file(worst, looked)} hold {share}: each takes a request, whose round trip is longer than the"
            " transfer of its bytes; read-ahead or a block cache helps."
        )


def _select_small(datasets: Iterable[Stored]) -> list[Stored]:
    return [dataset for dataset in datasets if 0 < dataset.bytes < SMALL and dataset.chunks < 2]


def _describe_small_chunks(looked: Looked) -> Iterator[str]:
    worst = _find_worst(looked, lambda held: _count_chunks(_select_small_chunked(held)))
    if not worst or (number := _count_chunks(small := _select_small_chunked(worst))) < _MANY_READS:
        return
    most = max(small, key=lambda dataset: dataset.chunks)
    yield (
        f"{number:,} chunks{_format_file(worst, looked)} take less than {sizes.format_size(SMALL)} each and hold"
        f" {format_share(count_bytes(small), count_bytes(worst.datasets))}, {most.chunks:,} of them in {most.path}:"
        f" without a cache each takes a request ({_format_seconds(number)} for all); larger chunks need fewer requests."
    )


def _select_small_chunked(contents: Contents) -> list[Stored]:
    return [dataset for dataset in contents.datasets if dataset.bytes < SMALL * dataset.chunks]


def _count_chunks(datasets: Iterable[Stored]) -> int:
    return sum(dataset.chunks for dataset in datasets)


def _describe_large_chunks(looked: Looked) -> Iterator[str]:
    """Yield conclusions about chunks that do not fit in the default chunk cache, with the cost of reading them."""
    version = ".".join(h5py.version.hdf5_version.split(".")[:2])
    for is_costly in (_is_in_pieces, _is_fetched_again):
        costly = [dataset for dataset in looked.datasets if dataset.chunk > _CACHE_BEFORE_2 and is_costly(dataset)]
        if uncached := [dataset for dataset in costly if dataset.chunk > _CACHE]:
            yield _describe_uncached(
                uncached, f"the {sizes.format_size(_CACHE)} of HDF5 {version}'s chunk cache by default"
            )
        if fitting := [dataset for dataset in costly if dataset.chunk <= _CACHE]:
            yield _describe_uncached(
                fitting, f"the {sizes.format_size(_CACHE_BEFORE_2)} of the chunk cache before HDF5 2.0"
            )


def _is_in_pieces(dataset: Stored) -> bool:
    return not dataset.filters and dataset.pieces >= _MANY_READS


def _is_fetched_again(dataset: Stored) -> bool:
    return bool(dataset.filters) and dataset.bytes >= _MUCH * dataset.chunks


def _describe_uncached(datasets: list[Stored], cache: str) -> str:
    most = max(datasets, key=lambda dataset: (dataset.pieces, dataset.bytes))
    others = f" and {len(datasets) - 1:,} more" * (len(datasets) > 1)
    words = f"Chunks of {sizes.format_size(most.chunk)} ({most.path}{others}) are larger than {cache}"
    cost = f"reading {most.path} takes {most.pieces:,} reads instead of {most.chunks:,}"
    if most.filters:
        cost = (
            f"each access to a chunk fetches {sizes.format_size(most.bytes // most.chunks)} and decompresses them again"
        )
    return f"{words}: {cost}. Open the file with rdcc_nbytes={1 << (most.chunk - 1).bit_length()} (chunk_cache)."


def _describe_lacking_filters(looked: Looked) -> Iterator[str]:
    lacking: dict[str, list[str]] = {}
    for entry in (entry for held in looked.contents for entry in held.left_out if entry.reason == LACKS_FILTER):
        lacking.setdefault(entry.detail, []).append(entry.path)
    for detail, paths in lacking.items():
        more = f" and {len(paths) - 1:,} more" * (len(paths) > 1)
        yield f"{paths[0]}{more} cannot be read without {detail}. Runs omit them."


def _find_worst(looked: Looked, amount: Callable[[Contents], int]) -> Contents | None:
    return max(looked.contents, key=amount, default=None)


def _format_file(contents: Contents, looked: Looked) -> str:
    return f" of {contents.where}" if len(looked.bytes) > 1 else ""


def _format_seconds(requests: int) -> str:
    seconds = requests * _ROUND_TRIP_S
    return f"{seconds:,.{0 if seconds >= 10 else 1}f} s at {_ROUND_TRIP_S * 1000:.0f} ms each"


def _build_repack_command(options: str = "", page: int | None = None) -> str:
    return " ".join(filter(None, ["h5repack", options, str(page or ""), "original.h5 copy.h5"]))
