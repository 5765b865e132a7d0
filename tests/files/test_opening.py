"""Code that advice prints: it opens files in an environment with PyPI's packages alone."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import boto3
import h5py
import numpy as np
import pytest
from conftest import ROOT
from driver_library import made

from sbench.build.shell import find_uv
from sbench.files import opening_code
from sbench.files.opening_code import Target
from sbench.stores.s3 import KEYS

PACKAGES = ("h5py-s3", "s3fs", "xarray", "h5netcdf")


def arm(driver: str, page_buffer: str = "unset", read_cache: str = "default", chunk_cache: str = "default") -> dict:
    return {"driver": driver, "page_buffer": page_buffer, "read_cache": read_cache, "chunk_cache": chunk_cache}


FROM_S3 = [
    arm("ros3"),
    arm("ros3", "0", chunk_cache="16MiB"),
    arm("ros3", "64MiB", chunk_cache="16MiB"),
    arm("s3fs"),
    arm("s3fs", read_cache="blockcache-4MiB", chunk_cache="16MiB-10007"),
]
FROM_DISK = [arm("sec2"), arm("sec2", "64MiB"), arm("sec2", chunk_cache="16MiB")]
FORMS = (opening_code.build_h5py_code, opening_code.build_xarray_code)


@pytest.fixture(scope="module")
def python(once: Callable) -> Path:
    """Return the interpreter of a fresh environment with packages from the registry, in their locked versions."""

    def install(folder: Path) -> None:
        fresh, lock = folder / "fresh", ROOT / "envs/readers.lock"
        install = ("pip", "install", "--quiet", "--python", fresh / "bin/python", "--constraint", lock, *PACKAGES)
        for command in (("venv", "--quiet", fresh), install):
            subprocess.run([find_uv(), *command], check=True)

    return once("opening", install) / "fresh/bin/python"


def write(path: Path, groups: list[str]) -> Path:
    with h5py.File(path, "w", fs_strategy="page") as file:
        for group in groups:
            file[f"{group}/values"] = np.arange(3)
    return path


def run(python: Path, codes: list[tuple[str, str]], env: dict | None = None) -> None:
    """Run each line of code with what is to be true of it."""
    program = "\n".join(f"{code}\nassert {holds}, {code!r}" for code, holds in codes)
    done = subprocess.run([python, "-c", program], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{program}\n{done.stderr}"


def checks(arms: list[dict], target: Target) -> list[tuple[str, str]]:
    """Return the code for each arm, with an expression that holds after it."""
    within = target.groups[0]
    values = "data" if len(target.groups) == 1 else f"data[{within!r}]"
    holds = (f"list(file[{within!r}]['values']) == [0, 1, 2]", f"{values}['values'].values.tolist() == [0, 1, 2]")
    lines = [(form(one, target), true) for one, (form, true) in itertools.product(arms, zip(FORMS, holds, strict=True))]
    return [(line, true) for line, true in lines if line]


GROUPS = [["/"], ["/a/b"], ["/a/b", "/c"]]


@pytest.mark.parametrize("groups", GROUPS, ids=map(len, GROUPS))
def test_code_for_a_bucket_runs_as_it_is_printed(tmp_path, with_readers, python, groups):
    with made(tmp_path, with_readers) as library:
        keys = {name.lower(): library._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=library.served.endpoint, region_name="us-east-1", **keys)
        s3.upload_file(str(write(tmp_path / "file.h5", groups)), "drivers", "own/a file.h5")
        run(python, checks(FROM_S3, Target("drivers/own/a file.h5", groups=groups)), library._env)


@pytest.mark.parametrize("groups", GROUPS, ids=map(len, GROUPS))
def test_code_for_a_disk_runs_as_it_is_printed(tmp_path, python, groups):
    path = write(tmp_path / "it's a file.nc", groups)
    run(python, checks(FROM_DISK, Target(str(path), groups=groups)))


def test_several_groups_share_one_open_file():
    target = Target("bucket/file.h5", groups=["/a", "/b", "/c", "/d"])
    for driver, opened in (("s3fs", ".open("), ("ros3", "h5netcdf.File(")):
        line = opening_code.build_xarray_code(arm(driver), target)
        assert line.count(opened) == 1
        assert line.endswith('for group in ("/a", "/b", "/c")}')


def test_settings_are_in_the_code():
    target = Target("bucket/file.h5", "eu-west-1", ["/a"])
    assert opening_code.build_h5py_code(arm("ros3", "64MiB", chunk_cache="16MiB-7"), target) == (
        'import h5py; file = h5py.File("s3://bucket/file.h5", driver="ros3", aws_region=b"eu-west-1",'
        " page_buf_size=67108864, rdcc_nbytes=16777216, rdcc_nslots=7)"
    )
    assert opening_code.build_xarray_code(arm("s3fs", read_cache="blockcache-4MiB"), target) == (
        'import s3fs, xarray; data = xarray.open_dataset(s3fs.S3FileSystem().open("bucket/file.h5",'
        ' cache_type="blockcache", block_size=4194304), engine="h5netcdf", group="/a")'
    )
    assert opening_code.build_xarray_code(arm("ros3", "0"), target) == ""
