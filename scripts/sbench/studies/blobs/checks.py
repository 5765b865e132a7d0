"""Checks of objects that processes read together: sizes, iterations and memory."""

from collections.abc import Iterator

from sbench.design.checks import rule
from sbench.probe import sizes

# What a line on a state of the page cache begins with (`probe.page_cache.describe_mismatch`).
_PAGE_CACHE = "the page cache"


@rule(3)
def check_size(manifest: dict, label: str) -> Iterator[str]:
    """Check that objects have the size of their label."""
    size = manifest["layout"]["size_bytes"]
    if size != sizes.parse_size(label):
        yield f"{manifest['dataset']}: objects have {size} bytes, {label} was asked"


@rule(8)
def check_page_caches(record: dict) -> Iterator[str]:
    """Check that the page cache was as asked before every iteration, as the processes found it."""
    yield from (line for line in record["faults"] if line.startswith(_PAGE_CACHE))


@rule(9)
def check_iterations(record: dict) -> Iterator[str]:
    """Check that every iteration brought the blocks of the manifest, and that no object was replaced."""
    yield from (line for line in record["faults"] if not line.startswith(_PAGE_CACHE))


@rule(9)
def check_memory(memory: dict) -> Iterator[str]:
    """Check that no process held more of an object than it was to hold at once."""
    grown, allowed = memory["growth_bytes"], memory["allowed_bytes"]
    if grown > allowed:
        yield f"a process grew by {sizes.format_size(grown)}, {sizes.format_size(allowed)} are allowed"
