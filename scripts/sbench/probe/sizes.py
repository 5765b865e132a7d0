"""Convert sizes between words ("64MiB") and bytes; compute the size of an object's blocks."""

import re

from sbench.probe.program import Problem

_LEAST_BLOCK = 4096
_MOST_BLOCKS = 4096
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as "64MiB", or raise a Problem if it is not a size."""
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB|TiB|)", text)
    if not match:
        raise Problem(f"a size must be a number with a unit, such as 64MiB (got {text!r})")
    return int(match[1]) * _UNITS[match[2]]


def format_size(size: float) -> str:
    """Format bytes in the largest unit that makes them at least 1, such as "64 MiB" and "1.5 GiB"."""
    for unit in reversed(_UNITS):
        if size >= _UNITS[unit] and unit:
            return f"{size / _UNITS[unit]:.4g} {unit}"
    return f"{size:g} B"


def format_level(size: int) -> str:
    """Format bytes in the largest unit that gives a whole number, as `parse_size` takes it: "64MiB", "20000000"."""
    unit = next(unit for unit in reversed(_UNITS) if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}"


def compute_block_bytes(size: int) -> int:
    """Return the block size of an object of `size` bytes: a power of two, at least 4 KiB, for at most 4,096 blocks."""
    return max(_LEAST_BLOCK, 1 << (-(-size // _MOST_BLOCKS) - 1).bit_length())


def format_count(number: int, noun: str) -> str:
    """Format a count, as in "1 file", "2,000 files"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
