"""Headers of netCDF-3 files: their variables and records."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import netcdf_file

from sbench.probe import netcdf3

# A CDF-5 header by the format's grammar: 2 records; dimensions t (record) and x (3); no attributes; variables a and b
# (t, x) of NC_UINT64 (11) and NC_BYTE (1).
_CDF5 = (
    *(b"CDF\5", 2),
    *(b"\0\0\0\n", 2, 1, b"t\0\0\0", 0, 1, b"x\0\0\0", 3),
    *(b"\0\0\0\0", 0),
    *(b"\0\0\0\x0b", 2),
    *(1, b"a\0\0\0", 2, 0, 1, b"\0\0\0\0", 0, b"\0\0\0\x0b", 24, 256),
    *(1, b"b\0\0\0", 2, 0, 1, b"\0\0\0\0", 0, b"\0\0\0\x01", 4, 280),
)


def write_netcdf3(path: Path, version: int, variables: tuple[str, ...] = ("t2m", "u")) -> bytes:
    """Write a file with 3 records, and return its content."""
    with netcdf_file(path, "w", version=version) as file:
        file.title = "odd"
        for name, length in (("time", None), ("lat", 5), ("lon", 7)):
            file.createDimension(name, length)
        file.createVariable("lat", "d", ("lat",))[:] = np.arange(5.0)
        for name in variables:
            variable = file.createVariable(name, "h" if name == "u" else "f", ("time", "lat", "lon"))
            variable.units = "K"
            variable[:] = np.ones((3, 5, 7))
    return path.read_bytes()


@pytest.mark.parametrize("version", [1, 2])
def test_variables_and_interleaved_records_are_described(tmp_path: Path, version: int):
    content = write_netcdf3(tmp_path / "a.nc", version)
    # A record has 140 B of t2m and 70 B of u, which are padded to 72 B.
    assert netcdf3.describe_header(io.BytesIO(content)) == (
        " without chunks, with 3 variables, the largest t2m (3, 5, 7) of 420 B; a record holds values of 2 variables"
        " (212 B), so that a series of one of them touches all 3 records"
    )


def test_a_single_record_variable_is_contiguous(tmp_path: Path):
    content = write_netcdf3(tmp_path / "a.nc", 1, ("t2m",))
    text = netcdf3.describe_header(io.BytesIO(content))
    assert text == " without chunks, with 2 variables, the largest t2m (3, 5, 7) of 420 B"


def test_counts_of_64_bits_are_read():
    content = b"".join(part if isinstance(part, bytes) else part.to_bytes(8, "big") for part in _CDF5)
    assert netcdf3.describe_header(io.BytesIO(content)) == (
        " without chunks, with 2 variables, the largest a (2, 3) of 48 B; a record holds values of 2 variables (28 B),"
        " so that a series of one of them touches all 2 records"
    )


def test_a_header_that_is_cut_anywhere_is_truncated(tmp_path: Path):
    content = write_netcdf3(tmp_path / "a.nc", 1)
    header = len(content) - 5 * 8 - 3 * 212
    for length in range(4, header):
        with pytest.raises(netcdf3.Truncated):
            netcdf3.describe_header(io.BytesIO(content[:length]))
    assert netcdf3.describe_header(io.BytesIO(content[:header]))


def test_a_damaged_header_raises_nothing_else(tmp_path: Path):
    content = write_netcdf3(tmp_path / "a.nc", 1)
    rng = np.random.default_rng(1)
    for _ in range(1000):
        damaged = bytearray(content)
        for place in rng.integers(4, 300, size=3):
            damaged[place] = rng.integers(256)
        with contextlib.suppress(netcdf3.Truncated):
            netcdf3.describe_header(io.BytesIO(bytes(damaged)))
    named = content.replace(b"t2m", b"t\nm")
    assert " the largest t?m (3, 5, 7) of 420 B" in netcdf3.describe_header(io.BytesIO(named))
