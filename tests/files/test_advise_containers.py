"""Advice on containers for files that are read in several ways."""

import ast
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT, sbench

from sbench.build import interpreters
from sbench.files import advise_containers, container_advice, container_code, container_files, container_forms, patterns
from sbench.files.chunking import Kind
from sbench.files.container_advice import Measured
from sbench.files.container_code import CONTAINERS, ORIGINAL, REPACKED, Files, Form
from sbench.files.container_files import Array, Contents
from sbench.files.container_session import Read, start_session
from sbench.files.patterns import MAP, SERIES, Pattern
from sbench.probe.program import Problem
from sbench.studies.shots import accesses
from sbench.studies.shots.inputs import find_sources
from sbench.verdicts.outcomes import Outcome

BOTH = [Pattern(MAP, 0.5), Pattern(SERIES, 0.5)]
NETWORK = {"latency_ms": 20, "per_connection_mib_s": 50}


def write_files(folder: Path, number: int = 4, scales: bool = True, fill: bool = False) -> list[Path]:
    """Write files of 4 maps of 24 x 32 values; each has also strings, and a row of numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(1)
    for file_number in range(number):
        with h5py.File(folder / f"part-{file_number}.nc", "w") as file:
            data = values.integers(0, 50, (4, 24, 32)).astype("i2" if fill else "f4")
            dataset = file.create_dataset("t2m", data=data, chunks=(1, 24, 32), compression="gzip")
            if fill:
                dataset.attrs["_FillValue"] = np.int16(7)
                dataset.attrs["scale_factor"] = 0.5
            file["label"] = np.array(["a", "b"], dtype=object)
            file["row"] = np.arange(3)
            lengths = {"time": 4, "lat": 24, "lon": 32} if scales else {}
            for axis, (name, length) in enumerate(lengths.items()):
                file[name] = np.arange(length) + (length * file_number if name == "time" else 0)
                file[name].make_scale(name)
                dataset.dims[axis].attach_scale(file[name])
            if scales:
                file["time"].attrs["units"] = "hours since 2000-01-01"
    return sorted(folder.glob("*.nc"))


def read_contents(folder: Path, *names: str) -> Contents:
    return container_files.read_contents(find_sources(str(folder)), list(names) or ["/**"])


# Accesses.


@pytest.mark.parametrize(
    "texts, share, expected",
    [
        ([MAP, SERIES], "", {MAP: 0.5, SERIES: 0.5}),
        ([MAP, SERIES], "70,30", {MAP: 0.7, SERIES: 0.3}),
        ([f"{MAP}; {SERIES}"], "25,75", {MAP: 0.25, SERIES: 0.75}),
        (["map 70 %; series at point 30 %"], "", {MAP: 0.7, SERIES: 0.3}),
        ([MAP, "[0:100, ...]"], "", {MAP: 0.5, "[0:100, ...]": 0.5}),
        (["files all"], "", {"all": 1}),
    ],
)
def test_accesses_to_arrays_have_shares(texts, share, expected):
    assert {pattern.name: pattern.share for pattern in patterns.parse_patterns(texts, share)} == pytest.approx(expected)


@pytest.mark.parametrize(
    "texts, share, words",
    [
        ([MAP, SERIES], "70", "1 percentages for 2 accesses"),
        ([MAP, SERIES], "70,20", "add up to 100"),
        ([MAP, SERIES], "100,0", "add up to 100"),
        ([MAP, SERIES], "70;30", "percentages such as 70,30"),
        ([MAP, MAP], "", "map twice"),
        (["maps"], "", "must be files or datasets"),
        (["metadata"], "", "map, series at point, all or a part"),
        (["1/10"], "", "map, series at point, all or a part"),
    ],
)
def test_a_wrong_access_or_share_is_one_line(texts, share, words):
    with pytest.raises(Problem, match=re.escape(words)):
        patterns.parse_patterns(texts, share)


def test_accesses_without_containers_are_joined_and_keep_their_syntax():
    text = "files [:, 0] 70 %; all 30 %"
    assert patterns.join_accesses([text], "") == text
    assert patterns.join_accesses([], "") == ""
    assert accesses.parse_accesses(patterns.join_accesses(["datasets [0:1]", "all"], "60,40")) == accesses.Accesses(
        "datasets", {"[0:1]": 0.6, "all": 0.4}
    )
    with pytest.raises(Problem, match="needs --containers"):
        patterns.join_accesses([MAP], "")


@pytest.mark.parametrize("shape", [(8, 5), (8, 5, 6), (8, 5, 6, 7)])
def test_a_map_and_a_series_fix_the_other_axes(shape):
    position = [0.5] * 4
    spans = [pattern.build_spans(shape, position) for pattern in BOTH]
    lengths = [[len(range(*span)) for span in place] for place in spans]
    assert lengths == [[1, *shape[1:]], [shape[0], *[1] * (len(shape) - 1)]]
    assert spans[0][0] == (4, 5, 1)


def test_an_unknown_container_is_one_line():
    with pytest.raises(Problem, match="got parquet"):
        advise_containers.parse_containers("zarr,parquet")
    assert advise_containers.parse_containers("all") == list(CONTAINERS)


# Chunks.


@pytest.mark.parametrize("shares, ratio", [((0.5, 0.5), 1), ((0.8, 0.2), 4)])
def test_a_compromise_divides_chunks_by_the_shares(shares, ratio):
    kind = Kind((1024, 256, 256), (1, 256, 256), 4, 1.0)
    both = [Pattern(MAP, shares[0]), Pattern(SERIES, shares[1])]
    chunks = container_forms.choose_compromise(kind, both, 2**18)
    assert np.prod(chunks) * 4 == pytest.approx(2**18, rel=0.2)
    of_map, of_series = (
        container_forms.count_touched(
            Form("zarr", "x", {"v": chunks}), Array("v", kind, (1024,), ((1, 256, 256),)), pattern
        )[0]
        for pattern in both
    )
    # The access with the larger share touches fewer chunks.
    assert of_series / of_map == pytest.approx(ratio, rel=0.35)


def test_a_form_has_present_wanted_and_compromise_chunks(tmp_path):
    write_files(tmp_path)
    forms = container_forms.list_forms(read_contents(tmp_path), BOTH, ["zarr", REPACKED, "zarr-shards"], NETWORK)
    assert forms[0] == Form(ORIGINAL)
    assert {form.rule for form in forms if form.container == "zarr"} == {"same", "compromise-64KiB"}
    assert all(form.chunks["t2m"][0] <= 4 for form in forms if form.container == REPACKED)
    for form in forms:
        for name, shard in form.shards.items():
            assert all(shard_side % side == 0 for shard_side, side in zip(shard, form.chunks[name], strict=True))
    assert len({form.name for form in forms}) == len(forms)


# Files.


def test_what_cannot_be_converted_is_left_out_with_its_reason(tmp_path):
    for path in write_files(tmp_path, 2):
        with h5py.File(path, "a") as file:
            file["other/values"] = np.zeros((2, 2))
            file["fixed"] = np.zeros((4, 3))
    contents = read_contents(tmp_path)
    assert [array.name for array in contents.arrays] == ["t2m"]
    assert contents.largest.kind.shape == (8, 24, 32)
    assert set(contents.dropped) == {"label", "row", "fixed"}
    assert contents.is_named
    assert contents.times == 1
    text = "\n".join(contents.left_out)
    for words in (
        "/label: values of the type",
        "/row: 1-dimensional",
        "/other/values: in another group",
        "/fixed: its",
    ):
        assert words in text
    assert "/time:" not in text


def test_files_that_do_not_join_are_one_line(tmp_path):
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["v"] = np.zeros((4, 5 + number))
            file["w"] = np.zeros((4, 5))
    contents = read_contents(tmp_path)
    assert [array.name for array in contents.arrays] == ["w"]
    assert "does not join with (4, 5)" in contents.left_out[0]
    with pytest.raises(Problem, match="do not join along the first axis"):
        read_contents(tmp_path, "/v")


def test_files_without_arrays_are_one_line(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["label"] = np.array(["a"], dtype=object)
    with pytest.raises(Problem, match="no array of numbers"):
        read_contents(tmp_path)


@pytest.mark.parametrize(
    "rows, chunks, words",
    [((4, 4), (2, 1), "differ among the files"), ((3, 4), (2, 2), "not a multiple"), ((4, 3), (2, 2), "")],
)
def test_references_need_regular_chunks(tmp_path, rows, chunks, words):
    for number, (length, step) in enumerate(zip(rows, chunks, strict=True)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("v", data=np.zeros((length, 5)), chunks=(step, 5))
    misfit = read_contents(tmp_path).find_misfit()
    assert words in misfit
    assert bool(words) == bool(misfit)


def test_linked_files_keep_their_order(tmp_path):
    paths = []
    for name in ("b/x.h5", "a/x.h5"):
        (tmp_path / name).parent.mkdir()
        with h5py.File(tmp_path / name, "w") as file:
            file["v"] = np.zeros((2, 2))
        paths.append(find_sources(str(tmp_path / name))[0])
    linked = container_files.link_files(paths, tmp_path / "linked")
    assert linked == sorted(linked)
    assert [path.resolve().parent.name for path in linked] == ["b", "a"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python has the newest releases")
def test_without_a_newer_python_older_releases_are_used(tmp_path, monkeypatch):
    for name in ("PATH", "PYENV_ROOT", "CONDA_EXE"):
        monkeypatch.setenv(name, str(tmp_path))
    interpreters.find_python.cache_clear()
    assert advise_containers.choose_library()["lock"] == "envs/readers.lock"


# The judgement.


def make_measured(before: float, after: float, number: int = 6, chosen: str = "zarr", made: float = 8.0) -> Measured:
    """Return measurements of two accesses with some noise; those that choose have other times."""
    measured = Measured(BOTH, Form(ORIGINAL), "a store")
    measured.forms = {ORIGINAL: Form(ORIGINAL), "zarr": Form("zarr")}
    measured.conversions["zarr"] = made
    noise = random.Random(1)

    def make_reads(seconds: float, requests: int) -> list[Read]:
        return [Read(seconds * noise.uniform(0.99, 1.01), requests, 100, 1) for _ in BOTH]

    measured.choosing = [{ORIGINAL: make_reads(50, 1), "zarr": make_reads(1, 1)} for _ in range(3)]
    measured.blocks = [{ORIGINAL: make_reads(before, 40), "zarr": make_reads(after, 9)} for _ in range(number)]
    measured.chosen = chosen
    return measured


def test_a_gain_is_measured_on_blocks_that_did_not_choose():
    outcome, text = container_advice.judge_blocks(make_measured(4, 2))
    assert outcome == Outcome.FASTER
    assert text.startswith("2.0 [2.0, 2.0] times as fast")
    assert "9 requests instead of 40; in 6 blocks that did not select it" in text
    # A read saves 2 s.
    assert "pays off after 4 [4, 4] reads" in text


@pytest.mark.parametrize(
    "measured, outcome, words",
    [
        (make_measured(4, 4), Outcome.SAME, "not decided"),
        (make_measured(4, 2, 3), Outcome.TOO_FEW, "a verdict needs 6"),
        (make_measured(4, 2, chosen=ORIGINAL), Outcome.NOT_JUDGED, "no container was faster"),
    ],
)
def test_nothing_is_recommended_without_a_proof(measured, outcome, words):
    judged, text = container_advice.judge_blocks(measured)
    assert judged == outcome
    assert words in text
    convert = container_advice.format_advice(measured, Files("bucket", 1), Contents("/", [], [], True, [], 0, []))[0]
    assert "leave the files as they are" in convert


# The code, and a whole run.


def test_names_in_files_are_text_in_the_code():
    name = 'a"); print("b'
    files = Files("bucket", 2, f"/{name}", [name], name, name)
    for container in CONTAINERS:
        form = Form(container, "wanted", {name: (1, 2)} if container in container_code.WRITTEN else {})
        for code in (container_code.build_opening(form, files), container_code.build_conversion(form, files)):
            called = {
                node.func.id for node in ast.walk(ast.parse(code)) if isinstance(getattr(node, "func", 0), ast.Name)
            }
            assert "print" not in called


@pytest.mark.skipif(not shutil.which("h5repack"), reason="there is no h5repack: apt install hdf5-tools")
def test_the_command_that_repacks_sets_the_chunks(tmp_path):
    write_files(tmp_path / "original", 2)
    measured = make_measured(4, 2, chosen="repacked")
    measured.forms["repacked"] = form = Form(REPACKED, "wanted", {"t2m": (2, 12, 16)})
    measured.conversions["repacked"] = 1.0
    measured.blocks = [{ORIGINAL: block[ORIGINAL], "repacked": block["zarr"]} for block in measured.blocks]
    contents = read_contents(tmp_path / "original")
    lines = container_advice.format_advice(measured, Files("bucket", 2), contents)
    subprocess.run(lines[lines.index("code:") + 1], shell=True, cwd=tmp_path, check=True)
    for path in (tmp_path / form.key).iterdir():
        with h5py.File(path) as file:
            assert file["t2m"].chunks == (2, 12, 16)
    assert len(list((tmp_path / form.key).iterdir())) == 2


@pytest.mark.late
@pytest.mark.parametrize("scales, fill", [(True, False), (True, True), (False, False)])
def test_the_code_of_each_container_converts_and_opens_the_same_values(tmp_path, with_containers, scales, fill):
    write_files(tmp_path / "bucket/original", 4, scales, fill)
    contents = read_contents(tmp_path / "bucket/original")
    local_files = sorted((tmp_path / "bucket/original").glob("*"))
    python = json.loads((with_containers / "containers.json").read_text(encoding="utf-8"))["python"]
    chunks = {"t2m": (2, 12, 16)}
    with start_session(python, tmp_path / "bucket", {}) as session:
        files = advise_containers.describe_files(session, contents, local_files)
        original = container_code.build_joining("files", files)
        for container in CONTAINERS:
            form = Form(container, "wanted", chunks if container in container_code.WRITTEN else {})
            form = Form(container, "wanted", chunks, {"t2m": (8, 12, 32)}) if container == "zarr-shards" else form
            if container == REPACKED:
                continue
            if code := container_code.build_conversion(form, files):
                assert session.convert(code) > 0
            opening = container_code.build_opening(form, files)
            session.compare(opening, original, local_files, ["t2m"])
            session.read(opening, {})
            place = BOTH[0].build_spans((16, 24, 32), [0.5] * 4)
            read = session.read(opening, {"t2m": place})
            if container != ORIGINAL and scales:
                assert read.requests == container_forms.forecast_form(form, contents, BOTH[0], NETWORK).requests
        changed = container_code.build_opening(Form("zarr", "wanted", chunks), files) + "data = data + 1\n"
        with pytest.raises(Problem, match="other values"):
            session.compare(changed, original, local_files, ["t2m"])
        with pytest.raises(Problem, match="ZeroDivisionError"):
            session.convert("1 / 0")


@pytest.mark.late
def test_advice_on_containers_runs_and_its_code_works(tmp_path, with_containers):
    write_files(tmp_path / "data", 3)
    name = f"test-{uuid.uuid4().hex}"
    options = ["--access", MAP, "--access", SERIES, "--share", "70,30", "--containers", "zarr,kerchunk-json"]
    network = ["--latency", 5, "--rate", 500, "--scratch", tmp_path, "--name", name]
    try:
        done = sbench("advise", tmp_path / "data", *options, *network)
        assert done.returncode == 0, done.stderr
        measured = json.loads((ROOT / "results" / name / "containers.json").read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(ROOT / "results" / name, ignore_errors=True)
    assert len(measured["choosing"]) == 3
    assert len(measured["blocks"]) == (6 if measured["chosen"] != ORIGINAL else 0)
    assert set(measured["probes"]) >= {ORIGINAL, "kerchunk-json"}
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("left out: /label")]
    for beginning in ("convert: ", "open:", "gain:   ", "note:   hdf5: map"):
        assert [line for line in lines if line.startswith(beginning)], done.stdout
    program = tmp_path / "program.py"
    codes = [
        "\n".join(itertools.takewhile(lambda line: line.startswith("    "), lines[lines.index(title) + 1 :]))
        for title in ("code:", "open:")
        if title in lines
    ]
    check = "assert data.t2m.shape == (12, 24, 32), data\nassert float(data.t2m[5].sum()) > 0\n"
    program.write_text("\n".join([*map(textwrap.dedent, codes), check]), encoding="utf-8")
    (tmp_path / "served").mkdir()
    (tmp_path / "data").rename(tmp_path / "served/original")
    python = json.loads((with_containers / "containers.json").read_text(encoding="utf-8"))["python"]
    ran = sbench("count", "--bucket", f"bucket={tmp_path / 'served'}", "--", python, program)
    assert ran.returncode == 0, f"{program.read_text(encoding='utf-8')}\n{ran.stdout}{ran.stderr}"


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--containers", "zip"], "must be all, or some of hdf5"),
        (["--containers", "all", "--access", MAP, "--share", "30,70"], "2 percentages for 1 accesses"),
        (["--containers", "all", "--store", "s3://bucket/x"], "leave --store out"),
        (["--access", SERIES], "needs --containers"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, words, reason):
    write_files(tmp_path, 1)
    done = sbench("advise", tmp_path, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
