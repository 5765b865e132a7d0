"""Sizes in words: "64MiB" and its bytes."""

import re

from scripts.lib.program import Problem

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def in_bytes(text: str) -> int:
    """Return the bytes of a size such as "64MiB".

    Raises:
        Problem: it is none.
    """
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB|TiB|)", text)
    if not match:
        raise Problem(f"{text!r} is no size; write a number and its unit, such as 64MiB")
    return int(match[1]) * _UNITS[match[2]]


def text(size: float) -> str:
    """Return bytes in the largest unit in which they are at least 1, such as "64 MiB" and "1.5 GiB"."""
    for unit in reversed(_UNITS):
        if size >= _UNITS[unit] and unit:
            return f"{size / _UNITS[unit]:.4g} {unit}"
    return f"{size:g} B"
