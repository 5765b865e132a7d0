"""Advice on files: forecasts equal the server's counts, places are measured, and misses are replaced."""

import csv
import math
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import boto3
import h5py
import numpy as np
import pytest
from conftest import artefact, sbench
from driver_library import made

from sbench.files import advise, copies, forecast, place, probes
from sbench.files.advise import Query
from sbench.files.copies import Layout
from sbench.files.forecast import Question
from sbench.probe.program import Problem, write_json
from sbench.stores.s3 import KEYS
from sbench.studies.shots import accesses, arms, inputs, manifest

pytestmark = pytest.mark.late

needs_h5repack = pytest.mark.skipif(
    not all(map(shutil.which, ("h5repack", "h5copy"))), reason="there is no h5repack: apt install hdf5-tools"
)


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of 19 MB: many small chunks that hardly compress, with metadata among them."""
    path = tmp_path_factory.mktemp("scattered") / "scattered.h5"
    values = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for number in range(120):
            data = values.integers(0, 2**31, 40_000, dtype=np.int32)
            file.create_dataset(f"group-{number % 6}/v{number}", data=data, chunks=(2000,), compression="gzip")
    return path


# What is forecast.


@needs_h5repack
def test_a_forecast_equals_the_servers_counts(tmp_path, scattered, with_readers):
    paged = copies.make_copies(
        Layout("paged-1MiB", 2**20), [scattered], tmp_path / "paged", ["/**"], accesses.parse_accesses("all")
    ).files[0]
    large = tmp_path / "large.h5"
    with h5py.File(large, "w") as file:
        # Chunks of 16 MB: without a larger chunk cache, each row of a chunk is a read.
        file.create_dataset("x", data=np.arange(2 * 4000 * 1000.0).reshape(8000, 1000), chunks=(4000, 500))
    python = artefact(with_readers / "readers.json")["python"]
    with made(tmp_path, with_readers) as library:
        keys = {name.lower(): library._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=library.served.endpoint, region_name="us-east-1", **keys)
        plain = tmp_path / "plain.h5"
        with h5py.File(plain, "w") as file:
            # Parts of rows that do not follow each other, in more than ROS3 fetches at the open.
            file["x"] = np.arange(400 * 300 * 40.0).reshape(400, 300, 40)
        tried = ((scattered, False, ""), (paged, True, ""), (large, False, "32MiB"), (plain, False, ""))
        for path, is_paged, cache in tried:
            s3.upload_file(str(path), "drivers", path.name)
            ways = list(arms.list_arms("original", True, is_paged, cache))
            # Those that ask for each row by itself take long, and caches were tried on the others.
            ways = ways if not cache else [way for way in ways if way.chunk_cache == cache]
            ways = ways if path != plain else [way for way in ways if way.read_cache == "default"]
            network = {"latency_ms": 20, "per_connection_mib_s": 50}
            asked = Question(ways, [path], ["/**"])
            (forecasts,) = forecast.compute_forecasts([asked], python, accesses.parse_accesses(LEVEL), network)
            for arm in forecasts:
                words = [f"{library._url}/{path.name}", arm.driver, arm.page_buffer, arm.read_cache, arm.chunk_cache]
                library.served.open_window()
                command = [python, "-sE", "-c", READ, *words, h5_names(path)]
                subprocess.run(command, env=library._env, check=True, capture_output=True, timeout=120)
                counts = library.served.close_window()[0].values()
                assert arm.requests[LEVEL] == sum(method["count"] for method in counts), arm
                assert arm.bytes[LEVEL] == sum(method["bytes_offered"] or 0 for method in counts), arm
                assert math.isclose(arm.seconds[LEVEL], arm.requests[LEVEL] * 0.02 + arm.bytes[LEVEL] / 2**20 / 50)


LEVEL = "[0:100, 0:20, ...]"
READ = """
import sys
sys.path.insert(0, "scripts")
from sbench import drivers
address, driver, buffer, cache, chunk_cache, names = sys.argv[1:]
store = {"kind": "s3", "bucket": "drivers", "prefix": "", "region": "us-east-1", "anonymous": False}
size, slots = drivers.parse_chunk_cache(chunk_cache, 2**23)
access = drivers.Access(driver, drivers.parse_page_buffer(buffer), size, store, cache, rdcc_nslots=slots)
file = drivers.get_driver(driver).open(address, access)
for name in names.split():
    shape = file._file[name].shape
    file.read(name, (slice(0, 100), slice(0, 20))[: len(shape)])
file.close()
"""


def h5_names(path: Path) -> str:
    with h5py.File(path) as file:
        return " ".join(one.name for one in manifest.select_datasets(file, ["/**"], str(path)))


def test_a_file_that_cannot_be_read_is_the_reason_of_its_layout_alone(scattered, tmp_path, with_readers):
    (tmp_path / "no.h5").write_text("<html>")
    python = artefact(with_readers / "readers.json")["python"]
    asked = [Question([arms.Arm("x", "sec2")], [path], ["/**"]) for path in (tmp_path / "no.h5", scattered)]
    reason, forecasts = forecast.compute_forecasts(
        asked, python, accesses.parse_accesses("all; [0:1]"), {"latency_ms": 1}
    )
    assert "file signature not found" in reason
    (arm,) = forecasts
    assert arm.bytes["all"] > arm.bytes["[0:1]"] > 0


# Places.


@pytest.mark.parametrize(
    "given, network, words",
    [
        ({}, {"latency_ms": 0.1, "per_connection_mib_s": 500}, "a round trip of 0.1 ms (assumed), 500 MiB/s"),
        (
            {"latency_ms": 7},
            {"latency_ms": 7, "per_connection_mib_s": 50},
            "7 ms (as given), 50 MiB/s per connection (assumed)",
        ),
        (
            {"per_connection_mib_s": 9},
            {"latency_ms": 20, "per_connection_mib_s": 9},
            "20 ms (assumed), 9 MiB/s per connection (as given)",
        ),
    ],
)
def test_a_place_always_has_a_round_trip_and_a_rate(given, network, words):
    found = place.find_place(None, given, None, [])
    assert found.network == network
    assert words in found.words
    assert found.store == (
        {"kind": "posix"} if not given else {"kind": "s3", "bucket": "advise", "server": "embedded", "network": network}
    )


def test_a_bucket_is_measured_unless_its_network_is_given(tmp_path, scattered, with_readers, monkeypatch):
    with made(tmp_path, with_readers) as library:
        for name, value in library._env.items():
            monkeypatch.setenv(name, value)
        # boto3 keeps the credentials of whoever used its default session first.
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        keys = {name.lower(): library._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=library.served.endpoint, region_name="us-east-1", **keys)
        s3.upload_file(str(scattered), "drivers", "some/file.h5")
        at = inputs.build_store_entry("drivers")
        of_set = inputs.find_sources("s3://drivers/some/file.h5", at)
        library.served.open_window()
        found = place.find_place(None, {}, at, of_set)
        counts = library.served.close_window()[0]
        # One more before, whose time is the server's own, and one for a new connection.
        assert (counts["HEAD"]["count"], counts["GET"]["count"]) == (12, 1)
        assert found.words.count("measured") == 2
        assert 0 < found.network["latency_ms"] < 1000
        # What is emulated is whole numbers.
        assert all(isinstance(value, int) and value >= 1 for value in found.store["network"].values())
        given = place.find_place(None, {"latency_ms": 33}, at, of_set)
        assert given.network["latency_ms"] == 33
        own = place.find_place(place.parse_store("s3://drivers/up/load"), {"per_connection_mib_s": 5}, None, [])
        assert (own.store["prefix"], own.store["upload"]) == ("up/load", True)
        assert own.network["per_connection_mib_s"] == 5
        assert "ms (measured), 5 MiB/s per connection (as given)" in own.words


# Misses.


def probed(folder: Path, way: dict, total: float, cpu: float, objects: int = 1) -> None:
    """Write a record of a way."""
    cell = {key: way[key] for key in ("layout", "driver", "page_buffer", "read_cache", "chunk_cache")}
    record = {"status": "done", "valid": True, "reasons": [], "read": ["a"] * objects, "seconds": {"total": total}}
    record |= {"settings": {"cell": cell, "data": {}}, "samples": [{"cpu-time": cpu / objects}] * objects}
    write_json(folder / f"{way['driver']}-{way['read_cache']}/repeat=1.json", record)


def way_of(driver: str, seconds: float, read_cache: str = "default") -> dict:
    arm = arms.Arm("original", driver, read_cache=read_cache, requests={}, bytes={}, seconds={"all": seconds})
    return asdict(arm)


def test_the_next_best_of_a_driver_joins_one_that_misses_its_forecast(tmp_path):
    ros3, s3fs = way_of("ros3", 1.0), way_of("s3fs", 0.05)
    others = [
        way_of("s3fs", 2.0, "blockcache-1MiB"),
        way_of("s3fs", 0.5, "blockcache-4MiB"),
        way_of("ros3", 0.1, "none"),
    ]
    advice = {"accesses": {"all": 1.0}, "arms": [ros3, s3fs], "considered": [ros3, s3fs, *others]}
    probed(tmp_path, ros3, 4.5, 1.0, objects=2)
    assert probes.find_misses(advice, tmp_path) == {}
    probed(tmp_path, s3fs, 3.45, 0.2)
    misses = probes.find_misses(advice, tmp_path)
    assert misses == {arms.get_arm_key(s3fs): 3.45}
    assert probes.find_next_best(advice, misses) == [others[1]]
    advice["arms"].append(others[1])
    assert probes.find_next_best(advice, misses) == [others[0]]
    # No other is forecast to be faster than the one that missed.
    assert probes.find_next_best(advice, {arms.get_arm_key(s3fs): 1.0}) == []


# What is asked.


def test_files_of_one_name_in_several_folders_do_not_take_each_others_place(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.h5").write_text(folder)
    some = inputs.find_sources(f"{tmp_path}/*/same.h5")
    here = advise._fetch_files(some, tmp_path / "scratch")
    assert [path.name for path in here] == ["0-same.h5", "1-same.h5"]
    assert [path.read_text() for path in here] == ["a", "b"]
    assert advise._fetch_files(some[:1], tmp_path / "scratch") == [tmp_path / "a" / "same.h5"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"access": "files 1/0"}, "or 1/10 (got 'files 1/0')"),
        ({"store": "here/there"}, "--store must be s3://bucket/prefix (got here/there)"),
        ({"latency": 0}, "--latency (ms) and --rate (MiB/s) must be at least 1"),
        ({"files": ["nothing*.h5"]}, "no file matches nothing*.h5"),
    ],
)
def test_what_cannot_be_advised_on_is_one_line(change, words):
    query = Query(**{"files": ["data/*.h5"], "access": "all", **change})
    with pytest.raises(Problem) as problem:
        advise.print_advice(query, 6)
    assert words in str(problem.value)


def test_a_disk_without_room_for_copies_is_said_before_anything_is_made(tmp_path, scattered, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * 2**20))
    with pytest.raises(Problem, match=r"has 10 MiB free, but copies take up to 1\d\d\.?\d* MiB; free space"):
        advise.print_advice(Query([str(scattered)], scratch=str(tmp_path / "scratch")), 6)
    assert list((tmp_path / "scratch").rglob("*.h5")) == []


@needs_h5repack
def test_a_file_that_changes_while_it_is_copied_is_one_line(tmp_path, clone, with_readers, monkeypatch):
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        file["values"] = np.arange(5)

    def copied(*arguments: object) -> copies.Made:
        with h5py.File(path, "a") as file:
            file.attrs["changed"] = True
        return make(*arguments)

    make = copies.make_copies
    monkeypatch.setattr(copies, "make_copies", copied)
    monkeypatch.chdir(clone)
    with pytest.raises(Problem, match=r"own\.h5 changed during the copy; try again when no process writes to it"):
        advise.print_advice(Query([str(path)]), 6)


@needs_h5repack
def test_advice_ends_with_three_lines_and_a_page(clone, scattered):
    words = {"access": "files [0:100, ...]", "latency": 10, "rate": 100, "name": "asked"}

    def ask() -> subprocess.CompletedProcess:
        return sbench("advise", scattered, *(f"--{name}={value}" for name, value in words.items()), cwd=clone)

    done = ask()
    assert done.returncode == 0, done.stderr
    ending = done.stdout[done.stdout.index("repack: ") :].splitlines()
    repack, opened, *_ = ending
    announced = re.search(
        r"(\d+) ways to read: a probe of each, then 6 repeats with 3 controls, (?:at least|about) ", done.stdout
    )
    assert int(announced[1]) >= 2
    gain = next(line for line in ending if line.startswith("gain: "))
    assert re.match(r"repack: (no, leave|mkdir -p |undecided, leave)", repack)
    assert opened.startswith("open:   import h5py")
    # A file of 19 MB over round trips of 10 ms: by ROS3 it takes dozens of requests, and few by others.
    assert float(re.match(r"gain:   ([\d.]+) \[", gain)[1]) > 1
    after, before = map(int, re.search(r"(\d+) requests instead of (\d+)", gain).groups())
    assert after < before / 5
    page = (clone / "reports/asked/shots.md").read_text()
    assert re.search(r"\*\*(Leave the files|Repack the files).*\*\*: [\d.]+ \[[\d., ]+\] times as fast", page)
    with open(clone / "reports/asked/shots_files/considered.csv", encoding="utf-8") as file:
        measured = [row for row in csv.DictReader(file) if row["requests, measured"]]
    assert {row["driver and setting"].partition(" ")[0] for row in measured} == {"ros3", "s3fs"}
    assert [float(row["requests, measured"]) for row in measured] == [float(row["requests"]) for row in measured]
    # The same again measures nothing, and another question is not mixed with it.
    again = ask()
    assert again.stdout.splitlines()[-len(ending) :] == ending
    assert " cells, 0 left out, 0 records to measure" in again.stdout + again.stderr
    words["access"] = "files all"
    assert ask().stderr.endswith(
        "results/asked answers another question, or its files have changed since; choose another --name\n"
    )


@needs_h5repack
def test_small_files_are_advised_on_without_a_measurement(clone, tmp_path):
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            file.create_dataset("a/x", data=np.arange(20_000.0), chunks=(100,))
    (tmp_path / "2.nc").write_text("<html>")
    done = sbench("advise", tmp_path, "--latency=20", "--name=small", cwd=clone)
    assert done.returncode == 0, done.stderr
    left_out, *_, gain = done.stdout.splitlines()
    assert re.match(r"left out: .*2\.nc is not an HDF5 file", left_out)
    assert gain.startswith("gain:   by forecast, not measured: ")
    assert not (clone / "reports/small").exists()
