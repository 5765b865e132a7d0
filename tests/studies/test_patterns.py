"""Which bytes each process gets: all of them once where they are shared out, in operations that fit."""

import zlib

import pytest

from sbench.design import schema
from sbench.probe import content, sizes
from sbench.studies.blobs import ceiling
from sbench.studies.blobs.patterns import PATTERNS, Operation, Plan
from sbench.studies.blobs.settings import Levels
from sbench.studies.blobs.verify import Verifier, compute_checksum, get_manifest_lines

MIB = 2**20
SHARED_OUT = ["sections", "sections-interleaved", "scatter", "mpi-io", "mpi-io-collective-interleaved"]


def plan(pattern: str, processes: int, size: int = MIB, own: bool = False, **asked: int) -> Plan:
    levels = {"operation_size": 2**30, "chunk_size": 4 * MIB, "concurrency": 1, "processes": processes} | asked
    factors = {factor: str(level) for factor, level in levels.items()}
    objects = "own" if own else "shared"
    cell = Levels(store="disk", pattern=pattern, size=str(size), objects=objects, cache="any", **factors)
    layout = {"size_bytes": size, "block_bytes": sizes.compute_block_bytes(size)}
    return Plan(cell, layout)


def extents(found: Plan) -> list[tuple[int, int]]:
    return sorted(
        extent for rank in range(found.processes) for one in found.list_operations(rank) for extent in one.extents
    )


def test_patterns_are_the_levels_of_the_schema():
    assert list(schema.get_factors("blobs")["pattern"]["items"]["enum"]) == list(PATTERNS)


@pytest.mark.parametrize("pattern", SHARED_OUT)
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [MIB, 5 * MIB + 12345])
def test_bytes_that_are_shared_out_are_each_read_by_one_process(pattern, processes, size):
    at = 0
    for offset, length in extents(plan(pattern, processes, size, operation_size=256 * 1024)):
        assert offset == at
        at += length
    assert at == size


@pytest.mark.parametrize("pattern", ["single-file", "multiple-files", "broadcast"])
def test_every_process_gets_whole_objects_in_operations_of_at_most_the_size_that_is_asked(pattern):
    found = plan(pattern, 3, 5 * MIB, operation_size=2 * MIB)
    for rank in range(3):
        operations = found.list_operations(rank)
        assert [one.extents for one in operations] == [
            ((0, 2 * MIB),),
            ((2 * MIB, 2 * MIB),),
            ((4 * MIB, MIB),),
        ]
        assert {one.object for one in operations} == {rank if pattern == "multiple-files" else 0}
        assert found.compute_buffer_bytes(rank) == 2 * MIB


def test_only_the_first_process_asks_the_store_in_a_broadcast_and_a_scatter():
    for pattern in ("broadcast", "scatter"):
        found = plan(pattern, 4, 3 * MIB, operation_size=MIB)
        assert sum(one.bytes for one in found.list_fetches(0)) == 3 * MIB
        assert found.list_fetches(1) == found.list_fetches(3) == []
    assert [found.compute_buffer_bytes(rank) for rank in range(4)] == [MIB, MIB // 4, MIB // 4, MIB // 4]


def test_an_interleaved_process_has_every_nth_piece_and_eight_of_them_or_more():
    found = plan("sections-interleaved", 2, MIB)
    pieces = found.list_operations(1)[0].extents
    assert len(pieces) == 8
    assert {length for _, length in pieces} == {MIB // 16}
    assert [offset for offset, _ in pieces] == list(range(MIB // 16, MIB, MIB // 8))
    assert {length for _, length in plan("sections-interleaved", 2, 64 * MIB).list_operations(0)[0].extents} == {
        4 * MIB
    }


def test_sections_are_whole_blocks_and_a_process_may_have_none():
    found = plan("sections", 4, 2 * 4096)
    assert [found.count_delivered_bytes(rank) for rank in range(4)] == [4096, 4096, 0, 0]
    assert found.compute_buffer_bytes(3) == 0
    assert found.list_operations(3) == []


def test_sections_of_objects_of_ones_own():
    found = plan("sections", 4, MIB, own=True)
    assert [found.list_operations(rank)[0].object for rank in range(4)] == [0, 1, 2, 3]
    assert found.objects == 4
    assert plan("sections", 4).objects == 1


def test_objects_of_terabytes_are_cut_at_once_and_into_few_pieces():
    found = plan("sections-interleaved", 20, 4860 * 2**30)
    assert sum(found.count_delivered_bytes(rank) for rank in range(20)) == 4860 * 2**30
    assert found.compute_buffer_bytes(0) == 2**30
    assert len(extents(found)) <= 3 * 4096


def test_operations_are_whole_blocks_where_a_block_fits():
    found = plan("single-file", 1, 64 * MIB, operation_size=3 * 16384 + 5)
    assert found.operation_bytes == 3 * 16384


def test_blocks_that_come_in_several_operations_are_verified_and_a_wrong_byte_is_found():
    size = 64 * MIB
    entry = content.build_entry("a", size, 1, 0)
    data = content.open_stream(entry).read()
    found = plan("sections", 3, size, operation_size=4096)
    right, wrong = Verifier([entry], found.block), Verifier([entry], found.block)
    spoilt = bytearray(data)
    spoilt[size // 2] ^= 1
    for rank in range(3):
        for one in found.list_operations(rank):
            (offset, length), *_ = one.extents
            right.check_blocks(one, memoryview(data)[offset : offset + length])
            wrong.check_blocks(one, memoryview(spoilt)[offset : offset + length])
    assert (right.right, right.wrong) == (4096, 0)
    assert (wrong.right, wrong.wrong) == (4095, 1)
    asked = compute_checksum(get_manifest_lines([entry], found.block, [(0, block) for block in range(4096)]))
    assert compute_checksum(right.lines) == asked
    assert compute_checksum(wrong.lines) != asked


def test_the_end_of_a_block_alone_is_not_verified():
    entry = content.build_entry("a", 64 * MIB, 1, 0)
    last = plan("single-file", 1, 64 * MIB, operation_size=4096).list_operations(0)[-1]
    verifier = Verifier([entry], 16384)
    verifier.check_blocks(last, memoryview(bytes(4096)))
    assert (verifier.right, verifier.wrong) == (0, 0)


@pytest.mark.rule(20)
def test_a_bare_client_asks_for_the_first_operation_of_its_process_with_all_threads():
    whole = plan("sections", 2, 8 * MIB, operation_size=2 * MIB, chunk_size=MIB // 2, concurrency=4)
    first, second = (ceiling.list_shares(whole, rank) for rank in range(2))
    assert len(first) == len(second) == 4
    assert first[:2] == [Operation(0, ((0, MIB // 2),)), Operation(0, ((MIB // 2, MIB // 2),))]
    assert second[0] == Operation(0, ((4 * MIB, MIB // 2),))
    assert sum(share.bytes for share in second) == 2 * MIB
    broadcast = plan("broadcast", 4, chunk_size=MIB // 2, concurrency=2)
    assert [len(ceiling.list_shares(broadcast, rank)) for rank in range(4)] == [2, 0, 0, 0]
    assert len(ceiling.list_shares(plan("broadcast", 4, concurrency=2), 0)) == 1, "one chunk is one request"
    interleaved = plan("sections-interleaved", 2, concurrency=3)
    assert sum(share.bytes for rank in range(2) for share in ceiling.list_shares(interleaved, rank)) == MIB


def test_checksums_of_objects_are_those_of_their_blocks():
    entry = content.build_entry("a", 3 * 4096 + 1, 7, 2)
    data = content.open_stream(entry).read()
    assert entry["crc32"] == [zlib.crc32(data[start : start + 4096]) for start in range(0, len(data), 4096)]
    assert len(entry["crc32"]) == 4
