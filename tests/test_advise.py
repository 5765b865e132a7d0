"""Advice on files: forecasts are what is asked for, copies hold the same, and three lines say what is worth it."""

import csv
import math
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pytest
from conftest import artefact, program
from test_drivers import KEYS, boto3, made

from scripts.lib.program import Problem
from scripts.studies.shots import advise, arms, copies, inputs, manifest
from scripts.studies.shots.copies import Layout
from scripts.studies.shots.report import advised

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
def test_a_forecast_is_what_the_server_is_asked_for(tmp_path, scattered, with_readers):
    paged = copies.make(Layout("paged-1MiB", 2**20), [scattered], tmp_path / "paged").files[0]
    python = artefact(with_readers / "readers.json")["python"]
    with made(tmp_path, with_readers) as library:
        keys = {name.lower(): library._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=library.served.endpoint, region_name="us-east-1", **keys)
        for path, is_paged in ((scattered, False), (paged, True)):
            s3.upload_file(str(path), "drivers", path.name)
            ways = list(arms.sensible("original", True, is_paged))
            network = {"latency_ms": 20, "per_connection_mib_s": 50}
            for arm in arms.forecast(ways, python, [path], ["/**"], "[0:100, ...]", network):
                words = [f"{library._url}/{path.name}", arm.driver, arm.page_buffer, arm.read_cache]
                library.served.open_window()
                command = [python, "-sE", "-c", READ, *words, h5_names(path)]
                subprocess.run(command, env=library._env, check=True, capture_output=True, timeout=60)
                asked = library.served.close_window()[0].values()
                assert arm.requests == sum(method["count"] for method in asked), arm
                assert arm.bytes == sum(method["bytes_offered"] or 0 for method in asked), arm
                assert math.isclose(arm.seconds, arm.requests * 0.02 + arm.bytes / 2**20 / 50)


READ = """
import sys
sys.path.insert(0, ".")
from scripts import drivers
address, driver, buffer, cache, names = sys.argv[1:]
store = {"kind": "s3", "bucket": "drivers", "prefix": "", "region": "us-east-1", "anonymous": False}
file = drivers.of(driver).open(address, drivers.Access(driver, drivers.page_buffer_bytes(buffer), 2**23, store, cache))
for name in names.split():
    file.read(name, slice(0, 100))
file.close()
"""


def h5_names(path: Path) -> str:
    with h5py.File(path) as file:
        return " ".join(one.name for one in manifest.chosen(file, ["/**"], str(path))[0]["/**"])


def test_a_file_that_cannot_be_read_is_one_line_of_the_forecast(tmp_path, with_readers):
    (tmp_path / "no.h5").write_text("<html>")
    python = artefact(with_readers / "readers.json")["python"]
    with pytest.raises(Problem, match=r"what is read of .*no\.h5 cannot be forecast: "):
        arms.forecast([arms.Arm("original", "sec2")], python, [tmp_path / "no.h5"], ["/**"], "all", arms.DISK)


# Copies.


@needs_h5repack
def test_copies_hold_the_same_and_are_what_their_command_says(tmp_path, scattered):
    options = tmp_path / "chunks.txt"
    assert copies.larger_chunks(scattered, ["/**"], options)
    assert max(map(len, options.read_text().splitlines())) < 1024
    layouts = [Layout("paged", 2**20), Layout("chunks", 2**22, options), Layout("large", 2**20, merged=True)]
    second = shutil.copy(scattered, tmp_path / "other.h5")
    originals, hashes = [scattered, Path(second)], set()
    for layout in layouts:
        made_of = copies.make(layout, originals, tmp_path / layout.name)
        assert len(made_of.files) == (1 if layout.merged else 2)
        assert made_of.copy_bytes == sum(path.stat().st_size for path in made_of.files)
        with h5py.File(made_of.files[0]) as file:
            created = file.id.get_create_plist()
            assert created.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
            assert created.get_file_space_page_size() == layout.page_size
            named = ["/scattered" * layout.merged + "/group-1/v1"]
            assert file[named[0]].chunks == ((40_000,) if layout.chunks else (2000,))
        hashes.add(hash_of(made_of.files, layout.patterns(["/**", "!/group-2/*"])))
    assert hashes == {hash_of(originals, ["/**", "!/group-2/*"])}


def hash_of(files: list[Path], patterns: list[str]) -> str:
    held = manifest.of_set({"files": list(map(str, files)), "datasets": patterns, "layout": "x"})
    return manifest.data_sha256(held["objects"])


def test_chunks_that_are_large_or_few_are_left(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("few", (3000,), "i4", chunks=(1000,))
        file.create_dataset("large", (2**20,), "i4", chunks=(2**15,))
        file["contiguous"] = np.arange(5)
    assert not copies.larger_chunks(tmp_path / "a.h5", ["/**"], tmp_path / "options")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file.create_dataset("with a blank", data=np.zeros(100_000, "i4"), chunks=(1000,))
        file.create_dataset("maps", data=np.zeros((40, 300, 200), "i2"), chunks=(1, 300, 20))
    assert copies.larger_chunks(tmp_path / "a.h5", ["/**"], tmp_path / "options")
    (line,) = (tmp_path / "options").read_text().splitlines()
    assert re.fullmatch(r"-l /maps:CHUNK=(\d+)x300x(\d+)", line)


# What is said.


def arm(layout: str, driver: str, seconds: float, page_buffer: str = "unset", read_cache: str = "default") -> dict:
    asked = {"requests": 10, "bytes": 2**20, "seconds": seconds}
    return {"layout": layout, "driver": driver, "page_buffer": page_buffer, "read_cache": read_cache, **asked}


ARMS = [
    arm("original", "ros3", 2.0),
    arm("original", "s3fs", 0.45, read_cache="blockcache-4MiB"),
    arm("paged-4MiB", "ros3", 0.4, "64MiB"),
]


def run_of(seconds: list[float], verdicts: list[str], chosen: list[dict]) -> SimpleNamespace:
    """Return what is needed of a run in which the arms took so many seconds, with their verdicts against the first."""
    cells = [
        one | {"cell": str(number), "total_s": took, "requests": 100.0 / (number + 1)}
        for number, (one, took) in enumerate(zip(chosen, seconds, strict=True))
    ]
    # The last comparison is the other way round.
    rows = [
        {"baseline_cell": "0", "contender_cell": str(number + 1), **ratios(took / seconds[0]), "verdict": verdict}
        for number, (took, verdict) in enumerate(zip(seconds[1:], verdicts, strict=True))
    ]
    if rows:
        verdict = {"faster": "slower", "slower": "faster"}.get(verdicts[-1], verdicts[-1])
        sides = {"baseline_cell": str(len(rows)), "contender_cell": "0", "verdict": verdict}
        rows[-1] = {**sides, **ratios(seconds[0] / seconds[-1])}
    copy = {"typed": "h5repack -S PAGE", "original_bytes": 2**30, "copy_bytes": 1.1 * 2**30, "seconds": 3.0}
    advice = {"arms": chosen, "considered": chosen, "copies": {"paged-4MiB": copy}}
    facts = {"settings": {"advice": advice}}
    frame = pd.DataFrame(rows, columns=["baseline_cell", "contender_cell", *ratios(1), "verdict"])
    return SimpleNamespace(measured=pd.DataFrame(cells), contest=frame[:1], comparisons=lambda: frame[1:], facts=facts)


def ratios(ratio: float) -> dict:
    return {"ratio": ratio, "ratio_low": ratio / 1.1, "ratio_high": ratio * 1.1}


def test_a_copy_is_advised_where_it_is_shown_to_be_faster_by_enough():
    repack, opened, gain = advised.lines(run_of([2.0, 1.0, 0.5], ["faster", "faster"], ARMS))
    assert repack == "repack: h5repack -S PAGE"
    assert opened == (
        'open:   h5py.File("s3://bucket/file.h5", driver="ros3", aws_region=b"us-east-1", page_buf_size=67108864)'
    )
    assert gain.startswith(
        "gain:   4.0 [3.6, 4.4] times as fast as with the files as they are and ros3 (defaults): 0.500 s"
    )
    assert ": 0.500 s instead of 2.00 s per read, 33 requests instead of 100" in gain
    assert gain.endswith("for a copy of +10 % bytes that takes 3.00 s per GiB to make")


def test_of_two_that_are_about_as_fast_that_without_a_copy_is_advised():
    repack, opened, gain = advised.lines(run_of([2.0, 0.51, 0.5], ["faster", "faster"], ARMS))
    assert repack == "repack: no, leave the files as they are"
    assert 'cache_type="blockcache", block_size=4194304' in opened
    assert gain.endswith("without a copy")


@pytest.mark.parametrize("verdicts", [["no evidence", "slower"], ["same", "not comparable"]])
def test_where_nothing_helps_it_is_said(verdicts):
    repack, opened, gain = advised.lines(run_of([2.0, 1.9, 2.5], verdicts, ARMS))
    assert repack == "repack: no, leave the files as they are"
    assert opened == 'open:   h5py.File("s3://bucket/file.h5", driver="ros3", aws_region=b"us-east-1")'
    assert gain.startswith("gain:   nothing that was tried was shown to be faster than the files as they are, read")


def test_without_a_measurement_of_the_files_as_they_are_nothing_is_advised():
    run = run_of([2.0], [], ARMS[:1])
    run.measured = run.measured.assign(driver="sec2")
    assert advised.lines(run) == [
        "advice: none, as the files as they are could not be measured; the report has the reasons"
    ]
    run.facts = {}
    assert advised.answer(run) is None


SIGNED = {
    'b"us-east-1", b"", b""': 'b"us-east-1", {}, {}',
    '"aws_region": b"us-east-1"': '"aws_region": b"us-east-1", "secret_id": {}, "secret_key": {}',
    'aws_region=b"us-east-1"': 'aws_region=b"us-east-1", secret_id={}, secret_key={}',
}


def test_what_is_advised_opens_files(tmp_path, with_readers):
    python = artefact(with_readers / "readers.json")["python"]
    ways = [*ARMS, arm("original", "s3fs", 1.0), arm("paged-4MiB", "ros3", 1.0, "0")]
    forms = [advised.opening(one, form) for one in ways for form in (advised._H5PY, advised._XARRAY)]
    assert forms.pop() == ""
    local = [advised.opening(arm("x", "sec2", 1, "64MiB"), form) for form in (advised._H5PY, advised._XARRAY)]
    with made(tmp_path, with_readers) as library:
        with h5py.File(tmp_path / "file.h5", "w", fs_strategy="page") as file:
            file["values"] = np.arange(3)
        keys = {name.lower(): library._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=library.served.endpoint, region_name="us-east-1", **keys)
        s3.upload_file(str(tmp_path / "file.h5"), "drivers", "file.h5")
        for code in forms + local:
            text = code.replace("bucket/file.h5", "drivers/file.h5").replace(
                '"file.h5"', repr(str(tmp_path / "file.h5"))
            )
            # Elsewhere than at Amazon's, ROS3 needs an address and keys.
            text = text.replace("s3://drivers", library._url)
            key, secret = (library._env[name].encode() for name in KEYS)
            for own in ('b"us-east-1", b"", b""', '"aws_region": b"us-east-1"', 'aws_region=b"us-east-1"'):
                text = text.replace(own, SIGNED[own].format(key, secret))
            text = text if text.startswith("plist") else f"file = {text}"
            line = f"import h5py, s3fs, xarray\n{text}\nassert list(file['values'][:]) == [0, 1, 2]; file.close()"
            done = subprocess.run([python, "-c", line], env=library._env, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{code}\n{text}\n{done.stderr}"


# What is asked.


def test_files_of_one_name_in_several_folders_do_not_take_each_others_place(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.h5").write_text(folder)
    some = inputs.sources(f"{tmp_path}/*/same.h5")
    here = advise._here(some, tmp_path / "scratch")
    assert [path.name for path in here] == ["a_same.h5", "b_same.h5"]
    assert [path.read_text() for path in here] == ["a", "b"]
    assert advise._here(some[:1], tmp_path / "scratch") == [tmp_path / "a" / "same.h5"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"files": ""}, "say which: make advise FILES="),
        ({"access": "files 1/0"}, "'files 1/0' is no access: write files or datasets, then all"),
        ({"access": "shots"}, "'shots' is no access"),
        ({"store": "here/there"}, "here/there is no place in a bucket; write STORE=s3://bucket/prefix"),
        ({"latency": "0"}, "LATENCY (ms) and RATE (MiB/s) are whole numbers from 1"),
        ({"files": "nothing*.h5"}, "nothing*.h5: no file is there"),
    ],
)
def test_what_cannot_be_advised_on_is_one_line(change, words):
    options = {"files": "data/*.h5", "access": "all", **change}
    with pytest.raises(Problem) as problem:
        advise.main([f"--{name}={value}" for name, value in options.items()])
    assert words in str(problem.value)


def test_a_disk_without_room_for_copies_is_said_before_anything_is_made(tmp_path, scattered, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * 2**20))
    with pytest.raises(Problem, match=r"has 10 MiB free, and copies take up to 1\d\d\.?\d* MiB; free some"):
        advise.main([f"--files={scattered}", f"--scratch={tmp_path / 'scratch'}"])
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

    make = copies.make
    monkeypatch.setattr(copies, "make", copied)
    monkeypatch.chdir(clone)
    with pytest.raises(Problem, match=r"own\.h5 changed while it was copied; try again when nobody writes to it"):
        advise.main([f"--files={path}"])


def test_without_h5repack_one_line_says_where_it_is(tmp_path, scattered, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Problem, match="h5repack is not here; apt install hdf5-tools"):
        copies.make(Layout("paged", 2**20), [scattered], tmp_path / "copies")


@needs_h5repack
def test_advice_ends_with_three_lines_and_a_page(clone, scattered):
    words = {"files": scattered, "access": "files [0:100, ...]", "latency": 10, "rate": 100, "run": "asked"}

    def ask() -> subprocess.CompletedProcess:
        return program("studies.shots.advise", *(f"--{name}={value}" for name, value in words.items()), cwd=clone)

    done = ask()
    assert done.returncode == 0, done.stderr
    *_, repack, opened, gain = done.stdout.splitlines()
    assert re.match(r"repack: (no, leave|h5repack )", repack)
    assert opened.startswith("open:   h5py.File(")
    # A file of 19 MB over round trips of 10 ms: by ROS3 it takes hundreds of requests, and few by others.
    assert float(re.match(r"gain:   ([\d.]+) \[", gain)[1]) > 1.5
    page = (clone / "reports/asked/shots.md").read_text()
    assert re.search(
        r"\*\*(Leave the files|Repack the files|Put all files).*\*\*: [\d.]+ \[[\d., ]+\] times as fast", page
    )
    with open(clone / "reports/asked/shots_files/considered.csv", encoding="utf-8") as file:
        measured = [row for row in csv.DictReader(file) if row["requests, measured"]]
    assert len(measured) == 4
    assert [float(row["requests, measured"]) for row in measured] == [float(row["requests"]) for row in measured]
    # The same again measures nothing, and another question is not mixed with it.
    again = ask()
    assert again.stdout.splitlines()[-3:] == [repack, opened, gain]
    assert "7 cells, 0 left out, 0 records to measure" in again.stdout + again.stderr
    words["access"] = "files all"
    assert ask().stderr.endswith(
        "results/asked is advice on another question, or on files that changed since; name another RUN\n"
    )
