"""Parse and format sizes such as "64MiB", and compute the size of an object's blocks."""

import re

from sbench.probe.program import Problem

_LEAST_BLOCK = 4096
_MOST_BLOCKS = 4096
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_size(text: str) -> int:
    """Return the number of bytes of a size such as "64MiB".

    Raises:
        Problem: the text is not a size.
    """
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB|TiB|)", text)
    if not match:
        raise Problem(f"a size must be a number with a unit, such as 64MiB (got {text!r})")
    return int(match[1]) * _UNITS[match[2]]


def format_size(size: float) -> str:
    """Format a number of bytes in the largest unit in which it is at least 1, such as "64 MiB" or "1.5 GiB"."""
    for unit in reversed(_UNITS):
        if size >= _UNITS[unit] and unit:
            return f"{size / _UNITS[unit]:.4g} {unit}"
    return f"{size:g} B"


def format_level(size: int) -> str:
    """Format a number of bytes exactly, for `parse_size`, in the largest possible unit: "64MiB" or "20000000"."""
    unit = next(unit for unit in reversed(_UNITS) if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}"


def compute_block_bytes(size: int) -> int:
    """Return the block size of an object: the smallest power of two from 4 KiB that gives at most 4,096 blocks."""
    return max(_LEAST_BLOCK, 1 << (-(-size // _MOST_BLOCKS) - 1).bit_length())


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun, such as "1 file" or "2,000 files"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
