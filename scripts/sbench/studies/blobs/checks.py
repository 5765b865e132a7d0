"""Check records of parallel reads: object sizes, iterations and memory."""

from collections.abc import Iterator

from sbench.design.checks import rule
from sbench.probe import sizes

# Prefix of the lines of `probe.page_cache.describe_mismatch`.
_PAGE_CACHE = "the page cache"


@rule(3)
def check_size(manifest: dict, label: str) -> Iterator[str]:
    """Check that objects have the size of their label."""
    size = manifest["layout"]["size_bytes"]
    if size != sizes.parse_size(label):
        yield f"{manifest['dataset']}: objects must have {label} (got {size} bytes)"


@rule(8)
def check_page_caches(record: dict) -> Iterator[str]:
    """Check that the processes found the requested cache state before every iteration."""
    yield from (line for line in record["faults"] if line.startswith(_PAGE_CACHE))


@rule(9)
def check_iterations(record: dict) -> Iterator[str]:
    """Check that every iteration delivered the blocks of the manifest, and that no object changed."""
    yield from (line for line in record["faults"] if not line.startswith(_PAGE_CACHE))


@rule(9)
def check_memory(memory: dict) -> Iterator[str]:
    """Check that no process grew by more than the allowed bytes, an operation and a spare."""
    grown, allowed = memory["growth_bytes"], memory["allowed_bytes"]
    if grown > allowed:
        yield (
            f"the memory of a process must grow by at most {sizes.format_size(allowed)} (got"
            f" {sizes.format_size(grown)})"
        )
