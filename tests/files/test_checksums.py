"""Checksums of values, and whether a copy holds the same: gaps between members and addresses take no part."""

from pathlib import Path

import h5py
import kinds
import numpy as np
import pytest

from sbench.files import equality
from sbench.files.equality import find_difference
from sbench.probe.program import Unable
from sbench.studies.shots.checksums import compute_checksum


def checksums(path: Path) -> dict[str, tuple[int, int]]:
    with h5py.File(path) as file:
        return {name: compute_checksum(file[name][()]) for name in file}


@pytest.mark.rule(9)
def test_values_of_each_kind_have_one_checksum_whatever_lies_in_gaps(tmp_path):
    first = checksums(kinds.write(tmp_path / "a.h5", gaps=0))
    assert first == checksums(kinds.write(tmp_path / "b.h5", gaps=0xAA)) == checksums(tmp_path / "a.h5")
    assert first["gaps"][0] == 5 * (2 + 8 + 1)
    assert first["nested"][0] == 6 * (1 + 11 + 6 * 10 + 5)
    assert len({crc for _, crc in first.values()}) > len(first) - 4


@pytest.mark.rule(9)
@pytest.mark.parametrize("kind", [kinds.GAPS, kinds.NESTED], ids=["flat", "nested"])
def test_memory_layout_and_byte_order_take_no_part(kind):
    values = kinds.filled(kind, (4, 3), 0)
    packed = values.astype(np.dtype([(name, kind[name]) for name in kind.names]))
    assert (
        compute_checksum(values) == compute_checksum(packed) == compute_checksum(values.astype(kind.newbyteorder(">")))
    )
    assert compute_checksum(values) == compute_checksum(np.asfortranarray(values))
    assert compute_checksum(values) != compute_checksum(values[::-1])


@pytest.mark.parametrize(
    "values, expected",
    [
        (np.arange(6, dtype=">f4").reshape(2, 3), (24, 2447872023)),
        (np.array([b"abc", b"de"], "S12"), (24, 1630084288)),
        (np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")]), (24, 4285747716)),
        ("text", (5, 3610850105)),
        (np.array([b"a", "zwölf"], object), (9, 401100413)),
        (h5py.Empty("f4"), (0, 0)),
    ],
)
def test_checksums_of_records_of_before_stay(values, expected):
    assert compute_checksum(values) == expected


def test_padding_of_long_doubles_is_no_value():
    values = np.arange(4, dtype=np.longdouble) / 3
    other = values.copy()
    if np.finfo(np.longdouble).nmant == 63:
        other.view(np.uint8).reshape(-1, values.itemsize)[:, 10:] = 0xAA
    assert compute_checksum(values) == compute_checksum(other) != compute_checksum(values[::-1])


def test_references_have_no_checksum(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = np.dtype([("of", h5py.ref_dtype), ("n", "<i4")])
        file["values"] = np.array([(file.ref, 1)], kind)
        with pytest.raises(Unable, match="an element of type Reference cannot be checksummed"):
            compute_checksum(file["values"][()])


def copied(path: Path, copy: Path, change=lambda file: None) -> str:
    with h5py.File(path) as file:
        names = [f"/{name}" for name in file]
    with h5py.File(copy, "a") as file:
        change(file)
    return find_difference(path, copy, names)


def test_a_copy_with_other_gaps_and_chunks_holds_the_same_values(tmp_path, monkeypatch):
    # Blocks of a few elements: each dataset takes several.
    monkeypatch.setattr(equality, "_BLOCK", 100)
    monkeypatch.setattr(equality, "_ELEMENTS", 2)
    path, copy = kinds.write(tmp_path / "a.h5", gaps=0), kinds.write(tmp_path / "b.h5", gaps=0xAA)
    with h5py.File(path, "a") as file:
        file["chunked"] = np.arange(600.0).reshape(20, 30)
    with h5py.File(copy, "a") as file:
        file.create_dataset("chunked", data=np.arange(600.0).reshape(20, 30), chunks=(7, 3))
    assert copied(path, copy) == ""


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda file: file["packed_texts"].__setitem__(59, kinds.texts(1)[0]), "/packed_texts has different values in"),
        (lambda file: file["array"].__setitem__(1, np.zeros((3, 4))), "/array has different values in the copy"),
        (lambda file: file.__delitem__("half"), "/half cannot be read in the copy: "),
    ],
)
def test_the_first_dataset_that_differs_is_named(tmp_path, change, words):
    path, copy = kinds.write(tmp_path / "a.h5"), kinds.write(tmp_path / "b.h5")
    assert copied(path, copy, change).startswith(words)


def test_a_copy_of_another_shape_or_of_no_file_is_no_copy(tmp_path):
    path = kinds.write(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["half"] = np.arange(5)
    assert find_difference(path, tmp_path / "b.h5", ["/half"]) == (
        "/half has the shape (4,) in the original and (5,) in the copy"
    )
    (tmp_path / "c.h5").write_bytes(b"no")
    assert find_difference(path, tmp_path / "c.h5", ["/half"]).startswith(f"{tmp_path}/c.h5 cannot be compared with")


def test_a_copy_within_a_group_is_compared_there(tmp_path):
    path = kinds.write(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as copy, h5py.File(path) as file:
        file.copy("/", copy, "a")
    assert find_difference(path, tmp_path / "b.h5", ["/gaps", "/texts"], "/a") == ""


@pytest.mark.parametrize("first, second", [([[1, 0], [2]], [[1], [0, 2]]), ([[], [0] * 8], [[0] * 8, []])])
def test_where_a_sequence_ends_is_part_of_its_value(first, second):
    def sequences(lists: list[list[int]]) -> np.ndarray:
        values = np.empty(len(lists), object)
        values[:] = [np.array(numbers, np.uint8) for numbers in lists]
        return values

    assert compute_checksum(sequences(first)) != compute_checksum(sequences(second))
