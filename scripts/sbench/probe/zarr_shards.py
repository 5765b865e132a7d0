"""Parse the index of a shard of a Zarr array (zarr-specs, codec sharding_indexed)."""

import math
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sbench.probe.program import Problem

# Offset and size of a chunk that is not in its shard ("Binary shard format").
_EMPTY = 2**64 - 1
# Castagnoli's polynomial with reversed bits (RFC 3720, section 12.1), and the size of its checksum in bytes.
_POLYNOMIAL, _CHECKSUM = 0x82F63B78, 4


class ShardIndex(NamedTuple):
    """The index of a shard.

    Attributes:
        grid: number of chunks of a shard along each axis.
        is_last: whether it is at the end of the shard, not at the beginning.
        has_checksum: whether a CRC-32C follows.
        order: byte order of its numbers, as in numpy.
    """

    grid: tuple[int, ...]
    is_last: bool
    has_checksum: bool
    order: str

    @property
    def bytes(self) -> int:
        """The size of the index in bytes, including its checksum."""
        return 16 * math.prod(self.grid) + _CHECKSUM * self.has_checksum

    def parse(self, data: bytes, where: str) -> np.ndarray:
        """Return the offset and size of each chunk in bytes, with shape `grid` + (2,).

        Raises:
            Problem: the index is cut, or its checksum is wrong.
        """
        if len(data) < self.bytes:
            raise Problem(
                f"{where}: the index of the shard is cut to {len(data):,} of {self.bytes:,} bytes; copy or download it"
                " again"
            )
        content = data[: 16 * math.prod(self.grid)]
        if self.has_checksum and struct.unpack("<I", data[len(content) :])[0] != compute_crc32c(content):
            raise Problem(f"{where}: the index of the shard has a wrong checksum; copy or download it again")
        return np.frombuffer(content, f"{self.order}u8").reshape(*self.grid, 2)


def list_present(ranges: np.ndarray) -> list[tuple[int, int]]:
    """Return the (begin, end) of each chunk that is in its shard."""
    return [(int(begin), int(begin) + int(size)) for begin, size in ranges.reshape(-1, 2) if int(begin) != _EMPTY]


def build_index(configuration: Mapping, shard: tuple[int, ...], chunk: tuple[int, ...]) -> ShardIndex | None:
    """Return the index that the configuration of the codec `sharding_indexed` describes; None if it is compressed."""
    codecs = configuration.get("index_codecs") or [{"name": "bytes"}, {"name": "crc32c"}]
    if [codec["name"] for codec in codecs] not in (["bytes"], ["bytes", "crc32c"]):
        return None
    endian = (codecs[0].get("configuration") or {}).get("endian", "little")
    grid = tuple(whole // size for whole, size in zip(shard, chunk, strict=True))
    return ShardIndex(
        grid, configuration.get("index_location", "end") == "end", len(codecs) > 1, "<" if endian == "little" else ">"
    )


def _build_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _build_table()


def compute_crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes (RFC 3720, section 12.1)."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
