"""How a dataset reaches an object store: in parts made as they are sent, and read back."""

import contextlib
import hashlib
import threading
from types import SimpleNamespace

import pytest

from sbench.probe import content, sizes
from sbench.probe.program import Problem
from sbench.stores import transfer
from sbench.stores.reading import Identity, Reader

MIB = 2**20


def test_parts_are_as_large_as_the_largest_objects_need():
    for size in (1, 20 * MIB, 5 * 2**40, 190 * 2**40):
        for most in (10_000, 50_000):
            part = transfer.choose_part_bytes(size, most)
            assert -(-size // part) <= most
            assert part % MIB == 0
    assert transfer.choose_part_bytes(5 * 2**40, 10_000) == 525 * MIB


def test_parts_are_as_large_as_asked_or_too_many():
    assert transfer.choose_part_bytes(5 * 2**40, 10_000, 600 * MIB) == 600 * MIB
    with pytest.raises(Problem, match="bytes need more than 10000 parts of 5242880 bytes; choose a larger part_size"):
        transfer.choose_part_bytes(5 * 2**40, 10_000, 5 * MIB)


def test_any_part_of_a_large_object_is_made_without_the_rest():
    entry = {
        "bytes": 500 * 2**30,
        "content": {"seed": 1, "object": 0, "block_bytes": sizes.compute_block_bytes(500 * 2**30)},
    }
    with content.open_stream(entry) as source:
        source.seek(499 * 2**30 + 12_345)
        part = source.read(6 * MIB)
        source.seek(499 * 2**30 + 12_345 + 2 * MIB + 1)
        assert source.read(1000) == part[2 * MIB + 1 : 2 * MIB + 1001]
        assert source.seek(0, 2) == 500 * 2**30
        assert source.read(10) == b""


class Held(Reader):
    """Reads an object that is held in memory, and counts how many of its requests are in flight."""

    def __init__(self, content: bytes) -> None:
        """Hold `content`."""
        super().__init__({}, {}, transfer.ACCESS)
        self.content, self.reading, self.most = content, 0, 0
        self.full = threading.Barrier(4)

    def fetch_identity(self, name: str) -> Identity:
        return Identity(len(self.content), "as it is")

    def read(self, name: str, extents: list[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        self.fetch_pieces(self.split_extents(extents, view), self._get)

    def _get(self, offset: int, part: memoryview) -> None:
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        # Nobody goes on before four are here.
        self.full.wait(60)
        with self._lock:
            self.reading -= 1
        part[:] = self.content[offset : offset + len(part)]


class Memory(transfer.Target):
    """A place that has no parts and takes nothing."""

    writable = False

    def convert_errors(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def upload_object(self, name: str, source: object, size: int, part: int, progress: transfer.Progress) -> None:
        raise NotImplementedError


def test_an_object_is_read_back_by_four_requests_at_once_and_no_more_and_one_wrong_byte_is_found():
    content = bytearray(b"x") * (8 * transfer.ACCESS.chunk_bytes)
    entry = {"name": "object", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    held, target = Held(bytes(content)), Memory("memory", "")
    assert transfer.provide_files(target, held, [(entry, None)], print)["upload"]["found"] == 1
    assert held.most == 4
    content[5 * transfer.ACCESS.chunk_bytes + 7] ^= 1
    with pytest.raises(Problem, match="object in memory is missing or differs"):
        transfer.provide_files(target, Held(bytes(content)), [(entry, None)], print)


def test_a_long_transfer_says_how_far_it_is(monkeypatch):
    lines, clock = [], iter((0.0, 9.0, 11.0, 11.0, 12.0, 25.0, 25.0))
    monkeypatch.setattr(transfer, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    progress = transfer.Progress("uploading bench/large.bin", 4 * 2**30, lines.append)
    for _ in range(4):
        progress.add_bytes(2**29)
    assert [line.rpartition(": ")[2] for line in lines] == ["1.0 of 4.0 GiB", "2.0 of 4.0 GiB"]
