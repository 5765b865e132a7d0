"""How a dataset reaches an object store: in parts made as they are sent, and read back."""

import contextlib
import hashlib
import threading

import pytest

from scripts.lib import objects, sizes
from scripts.lib.program import Problem
from scripts.stores import transfer

MIB = 2**20


def test_parts_are_as_large_as_the_largest_objects_need():
    for size in (1, 20 * MIB, 5 * 2**40, 190 * 2**40):
        for most in (10_000, 50_000):
            part = transfer.part_bytes(size, most)
            assert -(-size // part) <= most
            assert part % MIB == 0
    assert transfer.part_bytes(5 * 2**40, 10_000) == 525 * MIB


def test_parts_are_as_large_as_asked_or_too_many():
    assert transfer.part_bytes(5 * 2**40, 10_000, 600 * MIB) == 600 * MIB
    with pytest.raises(Problem, match="parts of 5242880 are more than 10000 parts; choose a larger part_size"):
        transfer.part_bytes(5 * 2**40, 10_000, 5 * MIB)


def test_any_part_of_a_large_object_is_made_without_the_rest():
    entry = {"bytes": 500 * 2**30, "content": {"seed": 1, "object": 0, "block_bytes": sizes.block_bytes(500 * 2**30)}}
    with objects.stream(entry) as source:
        source.seek(499 * 2**30 + 12_345)
        part = source.read(6 * MIB)
        source.seek(499 * 2**30 + 12_345 + 2 * MIB + 1)
        assert source.read(1000) == part[2 * MIB + 1 : 2 * MIB + 1001]
        assert source.seek(0, 2) == 500 * 2**30
        assert source.read(10) == b""


class Held:
    """An object in memory, as a place that counts how many are reading it."""

    where, retries, writable = "memory", 0, True

    def __init__(self, content: bytes) -> None:
        """Hold `content`."""
        self.content, self.reading, self.most = content, 0, 0
        self.full = threading.Barrier(4)
        self.lock = threading.Lock()

    def explained(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def key(self, name: str) -> str:
        return name

    def size(self, name: str) -> int:
        return len(self.content)

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self.lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        # Nobody goes on before four are here.
        self.full.wait(60)
        with self.lock:
            self.reading -= 1
        return self.content[offset : offset + length]


def test_an_object_is_read_back_by_four_requests_at_once_and_no_more_and_one_wrong_byte_is_found():
    content = bytearray(b"x") * (8 * transfer.READ_BYTES)
    entry = {"name": "object", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    held = Held(bytes(content))
    assert transfer.lacking(held, [(entry, None)], print) == []
    assert held.most == 4
    content[5 * transfer.READ_BYTES + 7] ^= 1
    assert transfer.lacking(Held(bytes(content)), [(entry, None)], print) == [(entry, None)]
