"""Read properties of HDF5 files (creation properties, filters, byte ranges), and convert path patterns to regexes."""

import re

import h5py

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
# Filters that are registered with The HDF Group but that h5py can use only with a plugin.
_PLUGINS = {305: "lzo", 307: "bzip2", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd"}
_PLUGINS |= {32017: "sz", 32018: "fcidecomp", 32020: "vbz", 32022: "bitgroom", 32023: "granular bitround", 32024: "sz3"}
_PLUGINS |= {32026: "blosc2", 32028: "sperr"}


def get_creation_facts(file: h5py.File) -> dict:
    """Return creation properties of a file.

    Returns:
        {"paged", "page_size", "superblock"}: whether the file uses paged allocation, its page size in bytes (None if
        it is not paged), and the version of its superblock.
    """
    created = file.id.get_create_plist()
    paged = created.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return {
        "paged": paged,
        "page_size": created.get_file_space_page_size() if paged else None,
        "superblock": created.get_version()[0],
    }


def list_filters(created: h5py.h5p.PropDCID) -> list[tuple[int, str]]:
    """Return the identifier and name of each filter in a dataset's creation property list."""
    filters = [created.get_filter(index) for index in range(created.get_nfilters())]
    return [
        (number, _get_filter_name(number, name.decode(errors="backslashreplace"))) for number, _, _, name in filters
    ]


def list_lacking_filters(dataset: h5py.Dataset) -> list[str]:
    """Describe the filters that the loaded HDF5 library lacks and that at least one chunk of the dataset needs."""
    filters = list_filters(dataset.id.get_create_plist())
    lacking = [index for index, (number, _) in enumerate(filters) if not h5py.h5z.filter_avail(number)]
    if not lacking:
        return []
    masks: set[int] = set()
    # Bit i of a chunk's filter mask is set if the chunk was written without filter i.
    dataset.id.chunk_iter(lambda chunk: masks.add(chunk.filter_mask))
    needed = [index for index in lacking if any(not mask >> index & 1 for mask in masks)]
    return [describe_lacking(*filters[index]) for index in needed]


def describe_lacking(number: int, name: str) -> str:
    """Describe a missing filter: whether this build of HDF5 lacks it, or it requires a plugin."""
    return f"{name}, which {'this HDF5 lacks' if number in _FILTERS else 'is available only as a plugin of HDF5'}"


def _get_filter_name(number: int, name: str) -> str:
    return _FILTERS.get(number) or _PLUGINS.get(number) or f"filter {number}{name and f' ({name})'}"


def list_extents(dataset: h5py.Dataset) -> list[tuple[int, int]]:
    """Return the byte ranges of a dataset's raw data in the file, as sorted (start, exclusive end) pairs."""
    spans = []
    if dataset.chunks:
        dataset.id.chunk_iter(lambda chunk: spans.append((chunk.byte_offset, chunk.byte_offset + chunk.size)))
    elif (offset := dataset.id.get_offset()) is not None:
        spans.append((offset, offset + dataset.id.get_storage_size()))
    return sorted(spans)


def get_common_value(values: set) -> object:
    """Return the only element of a set, or None if the set is empty or has several elements."""
    return next(iter(values)) if len(values) == 1 else None


def build_regex(pattern: str) -> str:
    """Convert a path pattern to a regular expression: `*` and `?` do not match slashes, but `**` does."""
    kinds = {"**/": "(?:(?s:.*)/)?", "**": "(?s:.*)", "*": "[^/]*", "?": "[^/]"}
    return "".join(kinds.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern) if part)
