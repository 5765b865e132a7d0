"""Checks for the blobs study: object sizes, cache states, delivered bytes and memory."""

from collections.abc import Iterator

from sbench.design.checks import rule
from sbench.probe import sizes

# Prefix of the messages from `probe.page_cache.describe_mismatch`.
_PAGE_CACHE = "the page cache"


@rule(3)
def check_size(manifest: dict, label: str) -> Iterator[str]:
    """Check that the objects have the size given in the cell's label."""
    size = manifest["layout"]["size_bytes"]
    if size != sizes.parse_size(label):
        yield f"{manifest['dataset']}: objects must have {label} (got {size} bytes)"


@rule(8)
def check_page_caches(record: dict) -> Iterator[str]:
    """Check that the page cache was in the requested state before every iteration."""
    yield from (line for line in record["faults"] if line.startswith(_PAGE_CACHE))


@rule(9)
def check_iterations(record: dict) -> Iterator[str]:
    """Check that every iteration delivered the blocks listed in the manifest, and that no object changed."""
    yield from (line for line in record["faults"] if not line.startswith(_PAGE_CACHE))


@rule(9)
def check_memory(memory: dict) -> Iterator[str]:
    """Check that no process's memory grew by more than the size of an operation plus a margin."""
    grown, allowed = memory["growth_bytes"], memory["allowed_bytes"]
    if grown > allowed:
        yield (
            f"the memory of a process must grow by at most {sizes.format_size(allowed)} (got"
            f" {sizes.format_size(grown)})"
        )
