"""Accesses and the chunk shapes that suit them."""

import math
from pathlib import Path

import h5py
import numpy as np
import pytest

from sbench.files import chunking
from sbench.files.chunking import Kind
from sbench.probe.program import Problem
from sbench.studies.shots import accesses

NETWORK = {"latency_ms": 20, "per_connection_mib_s": 50}
PRICE = chunking.compute_price(NETWORK)


@pytest.mark.parametrize(
    "text, unit, shares",
    [
        ("", "files", {"all": 1}),
        ("datasets", "datasets", {"all": 1}),
        ("[0:100, ...]", "files", {"[0:100, ...]": 1}),
        ("files [:, 0] 70 %; all 30%", "files", {"[:, 0]": 0.7, "all": 0.3}),
        ("datasets metadata; 1/10", "datasets", {"metadata": 0.5, "1/10": 0.5}),
    ],
)
def test_accesses_are_read_with_their_shares(text, unit, shares):
    parsed = accesses.parse_accesses(text)
    assert (parsed.unit, parsed.shares) == (unit, pytest.approx(shares))


@pytest.mark.parametrize(
    "text, words",
    [
        ("shots", "or 1/10 (got 'shots')"),
        ("files 1/0", "(got 'files 1/0')"),
        ("[0:1:]]", "an access must be"),
        ("all; all", "contains all twice"),
        ("[0] 70 %; all", "the shares in '[0] 70 %; all' must add up to 100 %"),
        ("[0] 70 %; all 20 %", "must add up to 100 %"),
        ("[0] 0 %; all 100 %", "must add up to 100 %"),
    ],
)
def test_a_malformed_access_is_one_line(text, words):
    with pytest.raises(Problem) as problem:
        accesses.parse_accesses(text)
    assert words in str(problem.value)


def fetched(kind: Kind, chunks: tuple[int, ...], level: str) -> float:
    """Return the share of fetched bytes that an access selects, with some chunks."""
    return (
        chunking.count_selected_bytes(kind, level)
        / chunking.compute_cost(kind._replace(chunks=chunks, stored=1.0), level).bytes
    )


COLUMNS = Kind((2_000_000, 6), (262_144, 6), 4, 0.9)
PIXELS = Kind((744, 10, 33, 41), (), 4, 1.0)
ROWS = Kind((50_000, 50), (1, 50), 4, 1.0)


@pytest.mark.parametrize(
    "kind, level, least",
    [(COLUMNS, "[:, 0]", 0.9), (ROWS, "[:, 0]", 0.9), (PIXELS, "[:, 3, 20, 30]", 0.01)],
)
def test_chunks_suit_the_access(kind, level, least):
    chunks = chunking.choose_chunks(kind, ((level, 1.0),), PRICE)
    assert math.prod(chunks) * kind.item <= chunking.LARGEST
    assert all(size <= length for size, length in zip(chunks, kind.shape, strict=True))
    assert fetched(kind, chunks, level) >= least
    today, then = (
        chunking.compute_cost(one, level).compute_seconds(*PRICE) for one in (kind, kind._replace(chunks=chunks))
    )
    assert then < 0.8 * today


def test_chunks_for_two_accesses_are_a_compromise():
    levels = ("[:, 3, 20, 30]", "[0, ...]")
    both = chunking.choose_chunks(PIXELS, tuple((level, 0.5) for level in levels), PRICE)

    def seconds(chunks: tuple[int, ...]) -> list[float]:
        kind = PIXELS._replace(chunks=chunks)
        return [chunking.compute_cost(kind, level).compute_seconds(*PRICE) for level in levels]

    alone = [chunking.choose_chunks(PIXELS, ((level, 1.0),), PRICE) for level in levels]
    assert sum(seconds(both)) < sum(seconds(alone[0]))
    # A map is read well from one piece already.
    assert alone[1] == ()


@pytest.mark.parametrize(
    "kind, level",
    [
        (PIXELS, "[0:10, ...]"),
        (Kind((5424, 5424), (226, 226), 2, 0.8), "[100, 100]"),
        (Kind((20_000,), (2_500,), 4, 0.6), "[0:100, ...]"),
        (Kind((), (), 4, 1.0), "all"),
        (Kind((0, 5), (1, 5), 4, 1.0), "all"),
        (Kind((20_000,), (100,), 4, 1.0), "metadata"),
        (Kind((20_000,), (100,), 4, 1.0), "1/10"),
    ],
)
def test_chunks_that_suit_are_kept(kind, level):
    assert chunking.choose_chunks(kind, ((level, 1.0),), PRICE) == ()


def test_large_chunks_become_smaller_and_small_ones_larger():
    large, small = Kind((4000, 4000), (4000, 4000), 8, 1.0), Kind((40_000,), (100,), 8, 1.0)
    assert math.prod(chunking.choose_chunks(large, (("[0:10, 0:10]", 1.0),), PRICE)) < 4000 * 4000 / 10
    assert chunking.choose_chunks(small, (("all", 1.0),), PRICE) == (40_000,)


@pytest.mark.parametrize("rank", [5, 9, 32])
def test_many_axes_take_no_time(rank):
    kind = Kind((8,) * rank, (), 1, 1.0)
    chunks = chunking.choose_chunks(kind, ((f"[{', '.join('0' * (rank - 1))}, :]", 1.0),), PRICE)
    assert len(chunks) in (0, rank)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a table in rows, of which columns are read, and a few others."""
    path = tmp_path_factory.mktemp("table") / "table.h5"
    with h5py.File(path, "w") as file:
        values = np.random.default_rng(1).random((500_000, 6), dtype="f4")
        file.create_dataset("table", data=values, chunks=(65_536, 6))
        file.create_dataset("with a blank", data=values, chunks=(65_536, 6))
        file.create_dataset("times", data=np.arange(10.0))
        for number in range(200):
            file.create_dataset(f"long/{'x' * 40}{number}", data=np.ones(4_000), chunks=(100,))
    return path


def test_options_name_datasets_and_their_chunks_in_lines_that_h5repack_reads(table):
    lines = chunking.list_options(table, ["/**"], accesses.parse_accesses("[:, 0]"), NETWORK).splitlines()
    assert max(map(len, lines)) < 1024
    assert "-l /table:CHUNK=262144x1" in lines
    assert not any("blank" in line or "times" in line for line in lines)
    assert sum(line.count("/long/") for line in lines if line.endswith(":CHUNK=4000")) == 200
    assert chunking.list_options(table, ["/times"], accesses.parse_accesses("all"), NETWORK) == ""


def test_an_access_that_fetches_much_more_than_it_selects_is_named(table):
    with h5py.File(table) as file:
        (text,) = chunking.find_unsuited(
            chunking.name_kinds([file["table"], file["times"]]), accesses.parse_accesses("[:, 0]"), PRICE
        )
        assert text == (
            "[:, 0] fetches 12 MiB for 1.907 MiB: the chunks (65536, 6) of /table do not suit it; with chunks"
            " (262144, 1) it would fetch 2 MiB"
        )
        both = [file["table"], file["with a blank"]]
        assert (
            "of 2 datasets such as /table do"
            in chunking.find_unsuited(chunking.name_kinds(both), accesses.parse_accesses("[:, 0]"), PRICE)[0]
        )
        assert chunking.find_unsuited(chunking.name_kinds(both), accesses.parse_accesses("all"), PRICE) == []
        assert chunking.find_unsuited(chunking.name_kinds([file["times"]]), accesses.parse_accesses("[0]"), PRICE) == []
