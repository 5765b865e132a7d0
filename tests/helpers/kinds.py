"""A file with values of all kinds of types: structures with gaps, sequences, texts, and what lies within them."""

from pathlib import Path

import h5py
import numpy as np

# Members that are aligned as in C: memory between them belongs to none.
GAPS = np.dtype([("a", "<i2"), ("b", "<f8"), ("c", "u1")], align=True)
GAPS_BIG = np.dtype({"names": ["a", "b"], "formats": [">i2", ">f8"], "offsets": [0, 8], "itemsize": 16})
NESTED = np.dtype([("x", "u1"), ("inner", GAPS), ("list", GAPS_BIG, (2, 3)), ("text", "S5")], align=True)
TEXTS = np.dtype([("n", "u1"), ("text", h5py.string_dtype()), ("list", h5py.vlen_dtype("<f4")), ("fixed", "S5")])


def filled(kind: np.dtype, shape: tuple[int, ...], gaps: int) -> np.ndarray:
    """Return structures with the same values whatever the bytes in their gaps."""
    values = np.full((*shape, kind.itemsize), gaps, np.uint8).view(kind).reshape(shape)
    for number, name in enumerate(kind.names):
        member = values[name]
        if member.dtype.names:
            member[...] = filled(member.dtype, member.shape, gaps)
        else:
            member[...] = (np.arange(member.size).reshape(member.shape) + number).astype(member.dtype)
    return values


def texts(count: int) -> np.ndarray:
    """Return structures with a text and a sequence in each."""
    values = np.empty(count, TEXTS)
    for number in range(count):
        values[number] = (number, "zwölf" * number, np.arange(number, dtype="f4"), b"ab")
    return values


def write(path: Path, gaps: int = 0) -> Path:
    """Write a file with a dataset of each kind; the bytes in gaps are no values."""
    with h5py.File(path, "w") as file:
        fill(file, gaps)
    return path


def fill(file: h5py.File, gaps: int = 0) -> None:
    """Write the datasets."""
    file["gaps"], file["gaps_big"] = filled(GAPS, (5,), gaps), filled(GAPS_BIG, (2, 2), gaps)
    file["nested"], file["scalar_gaps"] = filled(NESTED, (2, 3), gaps), filled(GAPS, (1,), gaps)[0]
    packed = {"chunks": (30,), "compression": "gzip", "shuffle": True}
    file.create_dataset("packed_gaps", data=filled(GAPS, (100,), gaps), **packed)
    file.create_dataset("packed_texts", data=texts(60), dtype=TEXTS, **packed)
    file.create_dataset("texts", data=texts(3), dtype=TEXTS)
    file.create_dataset("texts_unwritten", (2,), TEXTS)
    file.create_dataset("array", (2,), np.dtype(("<i4", (3, 4))))[...] = np.arange(24).reshape(2, 3, 4)
    file["enum"] = np.array([0, 1, 2], h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, basetype="<i2"))
    file["opaque"] = np.array([b"abcdefg", b"hi"], "V7")
    file["complex"], file["complex_big"] = np.array([1 + 2j, 3 - 4j]), np.array([1 + 2j, 3 - 4j], ">c8")
    file["half"] = np.arange(4, dtype="<f2")
    h5py.h5d.create(file.id, b"bits", h5py.h5t.STD_B16LE, h5py.h5s.create_simple((3,)))
    _write_sequences(file, gaps)


def _write_sequences(file: h5py.File, gaps: int) -> None:
    for name, kind in {"lists": "<i4", "lists_big": ">i4", "lists_unwritten": "<i4", "packed_lists": "<i4"}.items():
        packed = {"chunks": (2,), "compression": "gzip"} if name == "packed_lists" else {}
        dataset = file.create_dataset(name, (3,), h5py.vlen_dtype(kind), **packed)
        if name != "lists_unwritten":
            dataset[0], dataset[2] = [1, 2], [5]
    file.create_dataset("scalar_list", (), h5py.vlen_dtype("<i4"))[()] = np.array([1, 2, 3], "<i4")
    file.create_dataset("lists_gaps", (3,), h5py.vlen_dtype(GAPS))[0] = filled(GAPS, (5,), gaps)
    texts_of = file.create_dataset("lists_texts", (2,), h5py.vlen_dtype(h5py.string_dtype()))
    texts_of[0] = np.array(["a", "bc"], object)
    # Sequences of sequences, which h5py has no other call for.
    kind = h5py.h5t.vlen_create(h5py.h5t.vlen_create(h5py.h5t.STD_I32LE))
    h5py.h5d.create(file.id, b"lists_lists", kind, h5py.h5s.create_simple((3,)))
    file["lists_lists"][0] = np.array([np.array([1, 2], "<i4"), np.array([3], "<i4")], object)
