"""HDF5 files of any tree: how they are made, and which datasets they have."""

import re
from collections.abc import Iterator

import h5py

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
# Those that each HDF5 and each h5py has.
BUILT_IN = set(_FILTERS.values()) - {"szip"}
# Registered with The HDF Group; h5py has them with a plugin only.
_PLUGINS = {
    305: "lzo",
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32020: "vbz",
    32022: "bitgroom",
    32023: "granular bitround",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
}


def creation(file: h5py.File) -> dict:
    """Return what a file's creation fixed: {"paged", "page_size" (bytes; None without pages), "superblock"}."""
    created = file.id.get_create_plist()
    paged = created.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return {
        "paged": paged,
        "page_size": created.get_file_space_page_size() if paged else None,
        "superblock": created.get_version()[0],
    }


def datasets_of(file: h5py.File) -> Iterator[h5py.Dataset]:
    """Yield each dataset of a file once; links to other files are not followed."""
    items: list[h5py.Dataset] = []
    file.visititems(lambda _, item: items.append(item) if isinstance(item, h5py.Dataset) else None)
    yield from items


def is_elsewhere(dataset: h5py.Dataset) -> bool:
    """Return whether the values of a dataset lie in other files: it is virtual, or has external storage."""
    return dataset.is_virtual or bool(dataset.external)


def filters_of(dataset: h5py.Dataset) -> list[str]:
    """Return the names of a dataset's filters in their order."""
    created = dataset.id.get_create_plist()
    numbers = [created.get_filter(index)[0] for index in range(created.get_nfilters())]
    return [_FILTERS.get(number) or _PLUGINS.get(number) or f"filter {number}" for number in numbers]


def lacking_filters(dataset: h5py.Dataset) -> list[str]:
    """Return the names of filters that some chunk of a dataset needs and the HDF5 of this process lacks."""
    created = dataset.id.get_create_plist()
    numbers = [created.get_filter(index)[0] for index in range(created.get_nfilters())]
    lacking = [index for index, number in enumerate(numbers) if not h5py.h5z.filter_avail(number)]
    if not lacking:
        return []
    masks: set[int] = set()
    # A bit of the mask is set where a chunk was written without the filter.
    dataset.id.chunk_iter(lambda chunk: masks.add(chunk.filter_mask))
    names = filters_of(dataset)
    return [names[index] for index in lacking if any(not mask >> index & 1 for mask in masks)]


def extents(dataset: h5py.Dataset) -> list[tuple[int, int]]:
    """Return the (first, behind last) byte in the file of each piece of a dataset's raw data, ascending."""
    spans = []
    if dataset.chunks:
        dataset.id.chunk_iter(lambda chunk: spans.append((chunk.byte_offset, chunk.byte_offset + chunk.size)))
    elif (offset := dataset.id.get_offset()) is not None:
        spans.append((offset, offset + dataset.id.get_storage_size()))
    return sorted(spans)


def common(values: set) -> object:
    """Return the one value that all have, None where they differ."""
    return next(iter(values)) if len(values) == 1 else None


def expression(pattern: str) -> str:
    """Return a pattern of paths as a regular expression: `*` and `?` within a name, `**` across several."""
    kinds = {"**/": "(?:(?s:.*)/)?", "**": "(?s:.*)", "*": "[^/]*", "?": "[^/]"}
    return "".join(kinds.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern) if part)
