"""Read the header of a netCDF-3 file: its variables, and how its records are stored.

The format is described in NetCDF Users Guide, "NetCDF Classic Format Specification".
"""

import math
import os
from dataclasses import dataclass
from typing import BinaryIO

from sbench.probe import sizes

# Longer headers are not read. A header has the attributes of all variables.
_LONGEST = 2**20
# NC_MAX_NAME of the netCDF library.
_LONGEST_NAME = 256
# Sizes in bytes of the types NC_BYTE to NC_UINT64, and the widths of counts and offsets by the fourth byte of the file.
_TYPES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
_WIDTHS = {1: (4, 4), 2: (4, 8), 5: (8, 8)}
_DIMENSION, _VARIABLE, _ATTRIBUTE = 10, 11, 12


class Truncated(Exception):
    """The file ends within its header."""


class _Invalid(Exception):
    """The header does not conform to the format, is too long, or lacks the number of records."""


@dataclass(frozen=True)
class Variable:
    """A variable.

    Attributes:
        name: its name.
        shape: its shape, with the number of records first for a record variable.
        item: bytes per value.
        is_record: whether its first dimension is the record dimension.
    """

    name: str
    shape: tuple[int, ...]
    item: int
    is_record: bool

    @property
    def bytes(self) -> int:
        """Its size in bytes, without padding."""
        return math.prod(self.shape) * self.item


def describe_header(content: BinaryIO) -> str:
    """Describe the variables and records of a netCDF-3 file in a phrase such as " without chunks, with 3 variables, …".

    Returns:
        The phrase; an empty string if the header is invalid, longer than 1 MiB, or lacks the number of records.

    Raises:
        Truncated: the file ends within its header.
    """
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    try:
        records, variables = _Header(content.read(_LONGEST), size).read()
    except _Invalid:
        return ""
    if not variables:
        return " without variables"
    largest = max(variables, key=lambda variable: variable.bytes)
    text = (
        f" without chunks, with {sizes.format_count(len(variables), 'variable')}, the largest {largest.name}"
        f" {largest.shape} of {sizes.format_size(largest.bytes)}"
    )
    in_records = [variable for variable in variables if variable.is_record]
    if len(in_records) > 1 and records:
        each = sum(variable.bytes // records + 3 & ~3 for variable in in_records)
        text += (
            f"; a record holds values of {len(in_records)} variables ({sizes.format_size(each)}), so that a series of"
            f" one of them touches all {records:,} records"
        )
    return text


class _Header:
    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 4
        self._count, self._offset = _WIDTHS[data[3]]

    def read(self) -> tuple[int, list[Variable]]:
        """Return the number of records, and the variables."""
        if (records := self._read_number(self._count)) == 256**self._count - 1:
            # The number of records follows from the size of the file.
            raise _Invalid
        lengths = []
        for _ in range(self._read_list(_DIMENSION)):
            self._read_name()
            lengths.append(self._read_number(self._count))
        self._skip_attributes()
        variables = [self._read_variable(lengths, records) for _ in range(self._read_list(_VARIABLE))]
        return records, variables

    def _read_variable(self, lengths: list[int], records: int) -> Variable:
        name = self._read_name()
        places = [self._read_number(self._count) for _ in range(self._read_number(self._count))]
        self._skip_attributes()
        kind = self._read_number(4)
        # The size, which is limited to 32 bits in older formats, and the offset.
        self._take(self._count + self._offset)
        if kind not in _TYPES or any(place >= len(lengths) for place in places):
            raise _Invalid
        # The record dimension has length 0.
        is_record = bool(places) and not lengths[places[0]]
        shape = tuple(lengths[place] for place in places)
        return Variable(name, (records, *shape[1:]) if is_record else shape, _TYPES[kind], is_record)

    def _skip_attributes(self) -> None:
        for _ in range(self._read_list(_ATTRIBUTE)):
            self._read_name()
            kind = self._read_number(4)
            if kind not in _TYPES:
                raise _Invalid
            self._take(self._read_number(self._count) * _TYPES[kind] + 3 & ~3)

    def _read_list(self, tag: int) -> int:
        """Return the number of elements of a list with this tag; an absent list has the tag 0."""
        if self._read_number(4) not in (0, tag):
            raise _Invalid
        return self._read_number(self._count)

    def _read_name(self) -> str:
        length = self._read_number(self._count)
        name = self._take(length + 3 & ~3)[:length].decode(errors="replace")
        return "".join(letter if letter.isprintable() else "?" for letter in name[:_LONGEST_NAME])

    def _read_number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > self._size:
            raise Truncated
        if end > len(self._data):
            raise _Invalid
        taken, self._at = self._data[self._at : end], end
        return taken
