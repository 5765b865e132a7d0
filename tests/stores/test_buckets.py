"""Files of the user's own in a bucket: folders of keys, objects without an ETag, and what is wrong, in one line."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_store import in_front_of
from conftest import sbench
from granules import granule
from outside import KEYS, client, serving

from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.stores.s3.client import build_store_entry
from sbench.studies.shots import manifest
from sbench.studies.shots.inputs import find_sources

HERE = "s3://elsewhere"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> Iterator[tuple[str, Path]]:
    """Start a server with files that were put into its folder by hand; yield its URL and that folder."""
    place = tmp_path_factory.mktemp("service")
    with serving(place, environments) as url:
        folder = place / "outside" / "elsewhere"
        for name in ("a.h5", "bad/good.h5", "year/b.h5", "year/c.nc", "year/month/d.h5"):
            granule(folder / name, 1)
        (folder / "year/readme.txt").write_text("no data", encoding="utf-8")
        (folder / "notes").mkdir()
        (folder / "notes" / "readme.txt").write_text("no data", encoding="utf-8")
        (folder / "store.zarr").mkdir()
        (folder / "store.zarr" / ".zgroup").write_text("{}", encoding="utf-8")
        (folder / "bad" / "empty.h5").touch()
        # A header without dimensions, attributes and variables.
        (folder / "bad" / "old.nc").write_bytes(b"CDF\1" + bytes(28))
        yield url, folder


@pytest.fixture(autouse=True)
def owner(service: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the variables of AWS's tools."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": service[0]}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_with_a_password_in_it_is_refused_and_not_printed(name, monkeypatch):
    monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")
    with pytest.raises(Problem, match=r"^AWS_ENDPOINT_URL must not contain credentials; move them to AWS_") as error:
        build_store_entry("elsewhere")
    assert "secret" not in str(error.value)


def named(address: str) -> list[str]:
    return [source.where.removeprefix(f"{HERE}/") for source in find_sources(address, build_store_entry("elsewhere"))]


@pytest.mark.parametrize(
    "address, keys",
    [
        (HERE, ["a.h5"]),
        (f"{HERE}/", ["a.h5"]),
        (f"{HERE}/year", ["year/b.h5", "year/c.nc"]),
        (f"{HERE}/year/", ["year/b.h5", "year/c.nc"]),
        (f"{HERE}/year/b.h5", ["year/b.h5"]),
        (f"{HERE}/year/*.h5", ["year/b.h5"]),
        (f"{HERE}/y*/*.h5", ["year/b.h5"]),
        (f"{HERE}/year/**/*.h5", ["year/b.h5", "year/month/d.h5"]),
        (f"{HERE}/**/*.h5", ["a.h5", "bad/empty.h5", "bad/good.h5", "year/b.h5", "year/month/d.h5"]),
    ],
)
def test_a_bucket_and_a_prefix_are_folders_like_those_of_a_disk(address, keys):
    assert named(address) == keys


@pytest.mark.parametrize(
    "address, words",
    [
        (f"{HERE}/nothing", f"no object matches {HERE}/nothing; correct the address or the pattern"),
        (f"{HERE}/nothing/", f"no object matches {HERE}/nothing/; correct"),
        (f"{HERE}/notes", f"{HERE}/notes contains no HDF5 object directly; {HERE}/notes/**/*.h5 includes files below"),
        (f"{HERE}/store.zarr", f"{HERE}/store.zarr is a Zarr store, not an HDF5 file; copy it with xarray"),
    ],
)  # fmt: skip
def test_a_folder_without_hdf5_is_one_line(address, words):
    with pytest.raises(Problem) as problem:
        named(address)
    assert str(problem.value).startswith(words)


def test_bad_objects_are_named_and_the_others_looked_at():
    done = sbench("look", f"{HERE}/bad")
    assert (done.returncode, done.stdout.split(",")[0]) == (2, "1 file")
    assert "bad/empty.h5 is not an HDF5 file but empty; copy or download it again" in done.stderr
    assert "bad/old.nc is not an HDF5 file but netCDF-3 (classic) without variables; convert it: nccopy" in done.stderr


def test_more_keys_than_a_page_of_a_listing_holds_are_all_there(service):
    many = service[1] / "many"
    many.mkdir()
    for number in range(1100):
        (many / f"{number:04}.h5").touch()
    assert len(named(f"{HERE}/many")) == len(named(f"{HERE}/many/*.h5")) == 1100
    shutil.rmtree(many)


@pytest.mark.rule(17)
@pytest.mark.parametrize(
    "by_hand, dropped", [(True, set()), (False, {"etag"}), (True, {"last-modified"})], ids=["hand", "etag", "neither"]
)
def test_an_object_without_an_etag_is_read_and_noticed_when_it_changes(service, tmp_path, dropped, by_hand):
    url, folder = service

    path = granule(tmp_path / "x.h5", 1)
    if by_hand:
        shutil.copy(path, folder / "x.h5")
    else:
        client(url).upload_file(str(path), "elsewhere", "x.h5")
    os.utime(folder / "x.h5", (1_600_000_000, 1_600_000_000))
    with in_front_of(url) as front:
        front.dropped = dropped
        spec = build_store_entry("elsewhere") | {"endpoint": front.endpoint}
        store, location = stores.get_store(spec), {"key": ""}
        for address in (f"{HERE}/x.h5", f"{HERE}/x*.h5"):
            made = manifest.describe_set({"files": address, "datasets": ["/name"], "layout": "mine", "at": spec})
            (entry,) = made["files"]
            assert store.list_replaced_files([entry], location, {}) == []
            os.utime(folder / "x.h5", (1_600_000_100, 1_600_000_100))
            seen = entry.get("modified") and "last-modified" not in dropped
            assert store.list_replaced_files([entry], location, {}) == (["x.h5"] if seen else [])
            os.utime(folder / "x.h5", (1_600_000_000, 1_600_000_000))
        with open(folder / "x.h5", "ab") as file:
            file.write(b"more")
        assert store.list_replaced_files([entry], location, {}) == ["x.h5"]
    (folder / "x.h5").unlink()


NOBODY = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.mark.parametrize(
    "address, variables, words",
    [
        ("s3://nowhere/a.h5", {}, "GetObject failed with NoSuchBucket; create the bucket, or correct its name"),
        ("s3://nowhere", {}, "ListObjectsV2 failed with NoSuchBucket; create the bucket, or correct its name"),
        ("s3://No_Bucket", {}, "ListObjectsV2 failed with InvalidBucketName; correct the bucket's name"),
        (HERE, NOBODY, "name each object instead of a folder or pattern, or set credentials"),
        (f"{HERE}/a.h5", NOBODY, "GetObject failed with AccessDenied; check the bucket's policy and the credentials"),
        (HERE, {"AWS_REGION": "eu-west-1"}, "is in region us-east-1, not in eu-west-1; correct region in the config"),
        (HERE, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "at http://127.0.0.1:9 cannot be reached (EndpointConn"),
        (HERE, {"AWS_ENDPOINT_URL": "127.0.0.1:9"}, "Invalid endpoint: 127.0.0.1:9; write the endpoint as http://"),
        (f"{HERE}/a.h5", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "DoesNotMatch; check AWS_ACCESS_KEY_ID and AWS_SECRET_"),
    ],
    ids=["bucket", "bucket listed", "name", "unlisted", "not public", "region", "unreachable", "no URL", "secret"],
)  # fmt: skip
def test_a_bucket_that_cannot_be_read_is_one_line_about_that(monkeypatch, address, variables, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    done = sbench("look", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
