"""Files that drivers read in tests/drivers/test_drivers.py."""

import h5py
import kinds
import numpy as np


def plain(file: h5py.File) -> None:
    """Write what all drivers read."""
    random = np.random.default_rng(1)
    file.attrs.update({"title": "a title", "count": 7, "half": np.float32(0.3), "list": np.arange(4, dtype="i4")})
    file["contiguous"] = random.integers(0, 1000, (20, 30), dtype=np.int32)
    chunked = {"chunks": (16, 7), "compression": "gzip", "shuffle": True}
    file.create_dataset("chunked", data=random.random((100, 30), dtype=np.float32), **chunked)
    file["scalar"] = 2.5
    for axis, length in enumerate((20, 30)):
        file[f"scale{axis}"] = np.arange(length, dtype=np.float32)
        file[f"scale{axis}"].make_scale("time")
        file["contiguous"].dims[axis].attach_scale(file[f"scale{axis}"])
    group = file.create_group("a/b/c")
    group.attrs["unit"] = "m"
    file["a"].attrs["shot"] = 12
    group["deep"] = np.arange(24, dtype=np.uint16)
    # What netCDF's conventions have libraries decode.
    group["deep"].attrs.update({"add_offset": 1.25, "scale_factor": 2.0, "_FillValue": np.uint16(3)})


def odd(file: h5py.File) -> None:
    """Write what some drivers do not read."""
    plain(file)
    random = np.random.default_rng(2)
    chunked = {"chunks": (10, 20), "compression": "gzip", "shuffle": True}
    file.create_dataset("big", data=random.random((40, 20)).astype(">f8"), **chunked)
    file["big_contiguous"] = np.arange(50, dtype=">i2")
    file["fixed"] = np.array([b"abc", b"de"], "S12")
    file.create_dataset("vlen", data=["one", "zwölf", ""], dtype=h5py.string_dtype())
    file["compound"] = np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])
    file["bools"] = np.array([True, False, True])
    file["empty"] = h5py.Empty("f4")
    file["zero"] = np.zeros((0, 5), np.int16)
    file.create_dataset("unwritten", (30, 30), "f4", chunks=(10, 10), fillvalue=3.5)


def large(file: h5py.File) -> None:
    """Write 6 MB, in the order of which nobody reads."""
    values = np.random.default_rng(3).integers(0, 255, (6, 1_000_000), dtype=np.uint8)
    for number in (3, 0, 5, 1, 4, 2):
        file[f"part{number}"] = values[number]


def linked(file: h5py.File) -> None:
    """Write links, and virtual datasets of this file and of `frames` beside it."""
    file["own"] = np.arange(30.0)
    file["hard"], file["soft"] = file["own"], h5py.SoftLink("/own")
    file.create_group("group")["below"] = np.arange(3)
    file["also"] = h5py.SoftLink("/group")
    # Another file that is taken for `frames` has other values of this name.
    file["x"] = np.full(30, 7.0)
    for name, source in {"within": ".", "beside": "frames"}.items():
        layout = h5py.VirtualLayout((30,), "<f8")
        layout[:] = h5py.VirtualSource(source, "own" if source == "." else "x", (30,))
        file.create_virtual_dataset(name, layout, fillvalue=-1)


def frames(file: h5py.File) -> None:
    """Write what a virtual dataset of `linked` holds."""
    file["x"] = np.arange(30.0) + 1


SMALL = ("plain", "odd", "kinds", "linked")
# A key of which a URL quotes nearly all.
ODD_KEY = "a b/c#d%20e$ü'.h5"
FILES = {"plain": plain, "odd": odd, "large": large, "linked": linked, "frames": frames, "kinds": kinds.fill}
