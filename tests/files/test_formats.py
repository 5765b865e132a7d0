"""Files that are named by mistake in place of HDF5: what they are, by their first bytes, and what to do."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from conftest import sbench
from granules import granule, run_of

from sbench.files import bisect
from sbench.files.bisect import Query
from sbench.probe.program import Problem
from sbench.studies.particles import make as particles
from sbench.studies.shots.addresses import get_bucket
from sbench.studies.shots.inputs import find_sources
from sbench.studies.shots.make import describe_existing_files

TAR = b"a.h5".ljust(257, b"\0") + b"ustar\00000" + bytes(300)
ERROR = b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><Message>no</Message></Error>'


def refusal(path: Path | str) -> str:
    """Return the line that opening the only file of a path ends with."""
    (source,) = find_sources(str(path))
    with pytest.raises(Problem) as problem, source.open_hdf5():
        pass
    assert "\n" not in str(problem.value)
    return str(problem.value)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"CDF\1" + bytes(28), "but netCDF-3 (classic) without variables; convert it: nccopy -k nc4 in.nc out.nc"),
        (b"CDF\2" + bytes(28), "but netCDF-3 (64-bit offset) without variables; convert it: nccopy"),
        (b"CDF\5" + bytes(44), "but netCDF-3 (CDF-5) without variables; convert it: nccopy"),
        (b"CDF\1" + bytes(27), "but netCDF-3 (classic) with a truncated header; copy or download it again"),
        (b"CDF\1" + bytes(7) + b"?" + bytes(20), "but netCDF-3 (classic); convert it: nccopy"),
        (b"CDF\1\xff\xff\xff\xff" + bytes(24), "but netCDF-3 (classic); convert it: nccopy"),
        (b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(128), "of a version before 7.3; save it in MATLAB with -v7.3"),
        (struct.pack(">5i5s", 1000, 2, 3, 0, 5, b"test\0"), "but a MAT-file of a version before 7.3"),
        (struct.pack("<5i2s", 51, 1, 1, 0, 2, b"x\0") + bytes(30), "but a MAT-file of a version before 7.3"),
        (struct.pack("<5i2s", 52, 1, 1, 7, 2, b"x\0"), "not an HDF5 file; correct the name"),
        (b"GRIB\0\0\x54\x01", "but GRIB; convert it: cdo -f nc4 copy"),
        (b"TTXX01 KWBC 181200\r\r\n\xd3\xc6GRIB\0\0\x54\x02", "but GRIB; convert it: cdo -f nc4 copy"),
        (b"\x0e\x03\x13\x01rest", "but HDF4; convert it: h4toh5"),
        (b"SIMPLE  =                    T", "but FITS; convert it"),
        (b"II*\0\x08\0\0\0", "but TIFF; convert it: gdal_translate"),
        (b"PAR1\x15\x04", "but Parquet; convert it"),
        (b"\x93NUMPY\1\0", "but NumPy's format; convert it"),
        (b"\x1f\x8b\x08\x08", "but compressed (gzip); gunzip it first"),
        (b"BZh91AY&SY", "but compressed (bzip2); bunzip2 it first"),
        (b"\xfd7zXZ\0\0\4", "but compressed (xz); unxz it first"),
        (b"\x28\xb5\x2f\xfd\4", "but compressed (Zstandard); unzstd it first"),
        (b"PK\3\4\x14\0", "but a zip archive; unzip it"),
        (TAR, "but a tar archive; unpack it (tar -xf)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\n", "a pointer of Git LFS; fetch its content"),
        (b"\n<!DOCTYPE html><title>Log in</title>", "but a page of HTML: is it the address of a web page?"),
        (ERROR, "but a store's error message (AccessDenied); download it again, with credentials"),
        (b"<catalog/>", "but XML; name the data instead"),
        (b'{"version": 1, "refs": {}}', "but JSON; name the data instead"),
        (b"404: Not Found\n", "but text ('404: Not Found'); name the data instead"),
        (("ä" * 2000).encode(), "but text ('ä"),
        (b"\x1b[31mred", "; correct the name, or leave it out"),
        (b"\xff\xfe\x00\x01", "; correct the name, or leave it out"),
        (b"", "but empty; copy or download it again"),
        (bytes(5000), "and begins with zeros; copy or download it again"),
    ],
)  # fmt: skip
def test_a_file_of_another_format_is_named_by_its_first_bytes_with_a_remedy(tmp_path, content, words):
    path = tmp_path / "some.h5"
    path.write_bytes(content)
    line = refusal(path)
    assert line.startswith(f"{path} is not an HDF5 file")
    assert words in line


def test_other_bytes_before_the_signature_are_a_user_block(tmp_path):
    with h5py.File(tmp_path / "some.mat", "w", userblock_size=512) as file:
        file["x"] = 1
    with open(tmp_path / "some.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    (source,) = find_sources(str(tmp_path))
    with source.open_hdf5() as file:
        assert list(file) == ["x"]


@pytest.mark.parametrize("block", [0, 512])
@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_a_truncated_file_has_its_size_and_the_whole_size_in_the_line(tmp_path, block, version):
    path = tmp_path / "some.h5"
    with h5py.File(path, "w", libver=version, userblock_size=block) as file:
        file["x"] = np.arange(1000.0)
    whole = path.stat().st_size
    os.truncate(path, 3000)
    words = f"it is truncated to 3,000 of {whole:,} bytes; copy or download it again"
    assert refusal(path) == f"{path} cannot be read as HDF5: {words}"
    os.truncate(path, block + 20)
    assert "it is truncated to fewer than 96 bytes" in refusal(path)


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_members_of_a_family_and_parts_of_a_split_file_are_named(tmp_path, version):
    for name, options in {"f-%03d.h5": {"driver": "family", "memb_size": 4096}, "s": {"driver": "split"}}.items():
        with h5py.File(tmp_path / name, "w", libver=version, **options) as file:
            file["x"] = np.arange(2000.0)
    assert "it is the first of a family of files; join them: h5repart" in refusal(tmp_path / "f-000.h5")
    words = "is not an HDF5 file but a member of the family of files that begins with f-000.h5; join them"
    assert words in refusal(tmp_path / "f-002.h5")
    assert "cannot be read as HDF5: it is a part of a split file; copy it into a single file" in refusal(
        tmp_path / "s-m.h5"
    )
    assert "a part of a split file, whose metadata are in s-m.h5; copy it" in refusal(tmp_path / "s-r.h5")


def test_a_file_with_a_writer_is_named_and_one_whose_writer_was_killed_too(tmp_path):
    writer = (
        "import h5py, os, sys\n"
        "file = h5py.File(sys.argv[1], 'w', libver='latest')\n"
        "file['x'] = 1\n"
        "file.flush()\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(0)\n"
    )
    path = tmp_path / "some.h5"
    command = [sys.executable, "-c", writer, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert refusal(path) == (
            f"{path} cannot be read as HDF5: another program has locked it for writing; end that program"
        )
    assert (
        "its header marks it as open for writing; wait for the writer, or run h5clear -s if the writer was killed"
        in refusal(path)
    )


def test_what_is_no_file_is_named_and_the_others_are_read(tmp_path):
    granule(tmp_path / "good.h5", 1)
    (tmp_path / "annexed.h5").symlink_to(".git/annex/objects/Xx/key")
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "store.zarr").mkdir()
    (tmp_path / "store.zarr" / "zarr.json").write_text("{}", encoding="utf-8")
    done = sbench("look", f"{tmp_path}/*")
    assert done.returncode == 2
    assert done.stdout.startswith("1 file, ")
    line = done.stderr.splitlines()[-1]
    assert "annexed.h5 cannot be read: it is a link to .git/annex/objects/Xx/key, which does not exist; fetch" in line
    assert "pipe.h5 cannot be read: it is a pipe, a socket or a device; leave it out" in line
    assert "store.zarr is a Zarr store, not an HDF5 file; copy it with xarray" in line
    assert "store.zarr is a Zarr store, not an HDF5 file" in refusal(tmp_path / "store.zarr")


@pytest.mark.parametrize(
    "address, words",
    [
        ("https://b.s3.us-west-2.amazonaws.com/k/a%20b.h5?X-Amz-Signature=x", "s3://b/k/a b.h5 (region us-west-2)"),
        ("https://s3.amazonaws.com/b/k.h5", "/b/k.h5 is not supported; name its bucket: s3://b/k.h5"),
        ("https://b.c.s3-eu-west-1.amazonaws.com/k.h5", "s3://b.c/k.h5 (region eu-west-1)"),
        ("http://127.0.0.1/k.h5?token=secret", "/k.h5 is not supported; download it, or name its bucket"),
        ("gs://b/k.h5", "gs://b/k.h5 is not supported; download it, or name its bucket: s3://bucket/key"),
        ("s3a://b/k.h5", "write s3://b/k.h5"),
        ("file:///data/k.h5", "write its path, /data/k.h5"),
        ("s3://", "s3://: '' is not a valid bucket name; write s3://bucket/key"),
        ("s3://a b/k.h5", "'a b' is not a valid bucket name"),
    ],
)  # fmt: skip
def test_an_address_that_is_not_read_has_what_to_write_in_its_line(address, words):
    for read in (get_bucket, find_sources, describe_existing_files):
        with pytest.raises(Problem) as problem:
            read(address)
        assert words in str(problem.value)
        assert "secret" not in str(problem.value)
        assert "Signature" not in str(problem.value)


def test_files_of_a_folder_are_those_with_endings_of_hdf5_or_else_with_its_signature(tmp_path):
    granule(tmp_path / "some.h5", 1)
    for name in ("a.NC", "b.mat", "c.h5ad", "d.nxs", "e.kea", "f.he5", "g.hdf"):
        shutil.copy(tmp_path / "some.h5", tmp_path / name)
    for name in ("some.h5.bak", "wrfout_d01"):
        shutil.copy(tmp_path / "some.h5", tmp_path / name)
    (tmp_path / "._some.h5").write_bytes(b"\x00\x05\x16\x07")
    (tmp_path / "readme.txt").write_text("no data", encoding="utf-8")
    names = ["a.NC", "b.mat", "c.h5ad", "d.nxs", "e.kea", "f.he5", "g.hdf", "some.h5"]
    assert [source.name for source in find_sources(str(tmp_path))] == names
    for name in names:
        (tmp_path / name).unlink()
    assert [source.name for source in find_sources(str(tmp_path))] == ["some.h5.bak", "wrfout_d01"]
    (tmp_path / "below").mkdir()
    (tmp_path / "wrfout_d01").rename(tmp_path / "below" / "deep.h5")
    (tmp_path / "some.h5.bak").unlink()
    with pytest.raises(Problem, match=r"contains no HDF5 file directly; .*/\*\*/\*\.h5 includes files below it"):
        find_sources(str(tmp_path))
    assert [source.name for source in find_sources(f"{tmp_path}/**/*.h5")] == ["deep.h5"]
    with pytest.raises(Problem, match=r"b\* matches only folders; write .*b\*/\*\.h5 for their files"):
        find_sources(f"{tmp_path}/b*")


def check(path: Path, folder: Path) -> str:
    (folder / "run.yaml").write_text(yaml.safe_dump(run_of({"mine": str(path)})), encoding="utf-8")
    return sbench("check", folder / "run.yaml").stdout


def count(path: Path, _: Path) -> str:
    with pytest.raises(Problem) as problem:
        bisect.run_bisect(Query("s3fs", "2024.9.0", "2024.10.0", files=[str(path)]), is_sure=True)
    return str(problem.value)


def describe(path: Path, _: Path) -> str:
    with pytest.raises(Problem) as problem:
        describe_existing_files(str(path))
    return str(problem.value)


def describe_snapshot(path: Path, folder: Path) -> str:
    settings = {"files": str(path), "group": "PartType0", "field": "Density"}
    with pytest.raises(Problem) as problem:
        particles.main(["--dataset=own", f"--out={folder / 'manifest.json'}", f"--settings={json.dumps(settings)}"])
    return str(problem.value)


@pytest.mark.parametrize("read", [check, count, describe, describe_snapshot])
def test_each_program_that_takes_files_names_the_format(tmp_path, read: Callable[[Path, Path], str]):
    path = tmp_path / "some.nc"
    path.write_bytes(b"CDF\1" + bytes(28))
    assert f"{path} is not an HDF5 file but netCDF-3 (classic) without variables; convert it: nccopy" in read(
        path, tmp_path
    )
