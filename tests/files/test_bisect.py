"""Which release changed a figure: the search, what decides, what is between two releases, and s3fs at a server."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from conftest import artefact, copy_project, sbench
from packaging.version import Version

from sbench.build import packages, release_range
from sbench.build.cache import Recipe, provide_piece, set_build_copy
from sbench.build.release_range import Unusable, list_releases
from sbench.build.shell import Workshop, make_environment
from sbench.cli.__main__ import main
from sbench.design.config import load_config
from sbench.files import bisection
from sbench.files.judged_releases import (
    FIRST,
    LAST,
    NEITHER,
    UNDECIDED,
    Change,
    Seen,
    confirm_change,
    find_change,
    find_doubt,
    format_ratio,
    judge_last,
    judge_libraries,
    judge_release,
)
from sbench.probe.program import Problem, compute_file_digest
from tests.helpers.records import FEW, failed, synthetic_cells, write_synthetic_run
from tests.helpers.rounds import Simulation

pytestmark = pytest.mark.late

WHEN = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2025-01-01T00:00:00Z")
S3FS = ("s3fs", "2024.9.0", "2024.12.0")


def searched(figures: dict[str, int | str | None]) -> tuple:
    """Return the change in a table of figures by release, what was said, and which were looked at.

    None: the release cannot be measured; a text: what it is like.
    """
    looked, said = [], []

    def look(first: str, name: str, last: str) -> Seen:
        looked.append(name)
        if (figure := figures[name]) is None:
            raise Unusable(f"{name} has no wheel")
        if isinstance(figure, str):
            return Seen(figure, "1 s")
        like = {figures[last]: LAST, figures[first]: FIRST}.get(figure, NEITHER)
        return Seen(like, f"{figure} requests")

    return find_change(list(figures), look, said.append), said, looked


@pytest.mark.parametrize("many, place", [(n, place) for n in range(2, 12) for place in range(1, n)])
def test_the_change_is_named_wherever_it_is_in_as_few_steps_as_it_takes(many: int, place: int):
    names = [f"1.{number}" for number in range(many)]
    change, said, looked = searched({name: 17 if number < place else 3 for number, name in enumerate(names)})
    assert (change.before, change.after) == (names[place - 1], names[place])
    assert (change.skipped, change.others, change.undecided) == ({}, [], "")
    assert len(said) == len(looked) == len(set(looked)) <= math.ceil(math.log2(many))
    for number, line in enumerate(said, 1):
        step, about = map(int, re.match(r"step (\d+) of about (\d+): 1\.\d+: (?:17|3) requests, like ", line).groups())
        assert step == number <= about <= math.ceil(math.log2(many))


@pytest.mark.parametrize("gone", [*itertools.combinations("bcdef", 2), *itertools.combinations("bcdef", 4), "bcdef"])
def test_what_cannot_be_measured_is_skipped_and_named_where_the_change_may_be_in_it(gone: tuple[str, ...]):
    figures = dict.fromkeys("abcd", 17) | dict.fromkeys("efg", 3) | dict.fromkeys(gone)
    change, said, _ = searched(figures)
    usable = [name for name in "abcdefg" if name not in gone]
    before, after = (max(name for name in usable if name < "e"), min(name for name in usable if name >= "e"))
    assert (change.before, change.after) == (before, after)
    assert change.skipped == {name: f"{name} has no wheel" for name in gone if before < name < after}
    named = [line for line in said if "skipped" in line]
    assert all(re.match(r"step \d of about \d: [b-f]: skipped: [b-f] has no wheel$", line) for line in named)


def test_of_several_changes_the_one_next_to_the_first_release_is_named_and_the_others_are_told():
    table = {"a": 17, "b": 17, "c": 9, "d": 9, "e": 9, "f": 3, "g": 3}
    change, said, _ = searched(table)
    assert (change.before, change.after, change.others) == ("b", "c", [("d", "g")])
    assert said[0] == "step 1 of about 3: d: 9 requests, like neither"
    assert said[1].endswith("like the first")
    change, _, _ = searched({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    assert (change.before, change.after, change.others) == ("a", "b", [("c", "e"), ("b", "c")])


def test_a_release_that_differs_from_neither_end_leaves_it_undecided():
    change, said, _ = searched({"a": 1, "b": FIRST, "c": UNDECIDED, "d": 2, "e": 2, "f": 2})
    assert (change.before, change.after, change.undecided) == ("a", "f", "c")
    assert len(said) == 1


VERDICTS = ("faster", "slower", "same", "no evidence", "not comparable", "too few repeats")


def test_seconds_are_decided_by_verdicts_and_by_nothing_else():
    ends = {word: judge_last({"verdict": word}) for word in VERDICTS}
    assert ends == dict.fromkeys(VERDICTS, UNDECIDED) | {"faster": LAST, "slower": LAST, "same": FIRST}
    for before, after in itertools.product(VERDICTS, repeat=2):
        changed = tuple(word in ("faster", "slower") for word in (before, after))
        like = {(False, True): FIRST, (True, False): LAST, (True, True): NEITHER, (False, False): UNDECIDED}[changed]
        assert judge_release({"verdict": before}, {"verdict": after}) == like


@pytest.mark.rule(17)
@pytest.mark.parametrize("middle, like", [(1.0, FIRST), (1.5, LAST), (1.22, NEITHER)])
def test_a_release_is_judged_from_the_blocks_that_both_ends_have_with_it(tmp_path: Path, middle: float, like: str):
    names = ["s3fs-1", "s3fs-2", "s3fs-3", "s3fs-of-an-earlier-step"]
    times = dict(zip(names, (1.0, middle, 1.5, 1.0), strict=True))
    cells = synthetic_cells(twins=0, **FEW | {"page_buffer": ("0",), "library": tuple(names)})

    def change(record: dict) -> dict:
        # What an earlier step had of blocks, and one of a release that failed.
        broken = record["repeat"] == 1 and record["cell"]["library"] == "s3fs-2"
        return failed(record, "it broke") if broken else record

    timing = {"noise": 0.004, "ratio": lambda cell: times[cell["library"]], "change": change}
    folder = write_synthetic_run(tmp_path / "shots", cells, 8, **timing)
    made = judge_libraries(folder, "synthetic", "shots", names[:3])
    before, after = made["s3fs-1", "s3fs-2"], made["s3fs-3", "s3fs-2"]
    assert judge_release(before, after) == like
    # Block 1 failed, and blocks 2 to 7 were enough.
    assert {verdict["used_blocks"] for verdict in (before, after) if verdict["decision"] == "decided"} == {
        "2 3 4 5 6 7"
    }
    assert judge_last(made["s3fs-1", "s3fs-3"]) == LAST
    assert names[3] not in str(made)
    assert re.fullmatch(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", format_ratio(before))
    few = judge_libraries(write_synthetic_run(tmp_path / "few", cells, 3, **timing), "synthetic", "shots", names[:3])
    assert judge_release(few["s3fs-1", "s3fs-2"], few["s3fs-3", "s3fs-2"]) == UNDECIDED
    assert format_ratio(few["s3fs-1", "s3fs-2"]).startswith("too few repeats (2 complete blocks, a verdict needs 6")


class Simulated(bisection.Bisection):
    """A bisection of HDF5 by seconds whose measurements are simulated."""

    def __init__(self, ratios: dict[str, float], noise: float, seed: int = 0) -> None:
        """Set up releases of these times, and the standard deviation of a record's ln(time)."""
        super().__init__(release_range.Releases(release_range.HDF5, list(ratios), {}), bisection.SECONDS, "found", [])
        self.ratios, self.noise, self.seed, self.calls = ratios, noise, seed, []

    def _run_workflow(self, names: list[str]) -> None:
        if not names:
            return
        libraries = {self.get_library_name(name): name for name in names}
        config = load_config(self.file) | {"only": {"library": list(libraries)}}
        self.calls.append(([*names], config["repeats"]))
        times = {library: self.ratios[name.removesuffix("-again")] for library, name in libraries.items()}
        Simulation(config, lambda levels: times[levels["library"]], self.noise, seed=self.seed + len(self.calls)).call()


def count_blocks(bisect: Simulated, names: list[str]) -> list[int]:
    """Return how many blocks a step asked for, call by call."""
    return [blocks for asked, blocks in bisect.calls if asked == names]


@pytest.mark.rule(5)
def test_a_step_by_seconds_measures_until_its_release_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(copy_project(tmp_path / "clone"))
    bisect = Simulated({"1.14.6": 1.0, "2.0.0": 1.0, "2.1.0": 1.5, "2.2.0": 1.5}, 0.01)
    assert bisect.measure_ends().like == LAST
    assert bisect.measure_release("1.14.6", "2.0.0", "2.2.0").like == FIRST
    assert bisect.measure_release("1.14.6", "2.1.0", "2.2.0").like == LAST
    ends, step = ["1.14.6", "2.2.0"], ["1.14.6", "2.0.0", "2.2.0"]
    assert (count_blocks(bisect, ends), count_blocks(bisect, step)) == ([6], [6])
    assert bisect.check_rebuilt("2.0.0", "2.1.0") == ""
    builds = ["2.0.0", "2.1.0", "2.1.0-again", "2.0.0-again"]
    assert [asked for asked, _ in bisect.calls] == [ends, step, ["1.14.6", "2.1.0", "2.2.0"], builds]
    calls = len(bisect.calls)
    assert bisect.measure_ends().like == LAST
    assert bisect.measure_release("1.14.6", "2.0.0", "2.2.0").like == FIRST
    assert len(bisect.calls) == calls, "a later call has nothing to measure"


@pytest.mark.rule(5)
def test_ends_that_noise_hides_are_measured_at_every_look_and_stay_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(copy_project(tmp_path / "clone"))
    noisy = Simulated({"1.14.6": 1.0, "2.0.0": 1.0}, 0.055, seed=300)
    assert noisy.measure_ends().like == UNDECIDED
    assert count_blocks(noisy, ["1.14.6", "2.0.0"]) == [6, 8, 10, 12, 16]


def rows_of(*ratios: float, verdict: str = "slower") -> list[dict]:
    return [{"verdict": verdict, "ratio": ratio} for ratio in ratios]


@pytest.mark.rule(17)
@pytest.mark.parametrize(
    "rows, whole, reason",
    [
        (rows_of(1.2, 1.2, 1.21, 1.19), 1.2, ""),
        (rows_of(0.8, 0.8, 0.81, 0.82, verdict="faster"), 0.8, ""),
        (rows_of(1.2, 1.2, 1.2, 1.2), 2.0, "less than half of the ratio last/first"),
        (rows_of(1.5, 1.5, 1.5, 1.5), 2.0, ""),
        (rows_of(1.2, 1.2, 0.8, 0.8), 1.2, "less than half"),
        (rows_of(1.2, 1.2, 1.2, 1.05), 1.2, "less than half"),
        (rows_of(1.2, 1.2, 1.2) + rows_of(1.1, verdict="no evidence"), 1.2, "not all pairs of their builds differ"),
        (
            rows_of(1.2, 1.2, 1.2) + rows_of(math.nan, verdict="not comparable"),
            1.2,
            "not all pairs of their builds differ",
        ),
        # Builds of one release differ as much as the releases.
        (
            rows_of(1.1, 1.23, 1.1, 1.23),
            1.2,
            "the difference is less than 1.5× that between two builds of the same release",
        ),
    ],
)
def test_two_releases_differ_if_two_builds_of_each_do(rows, whole, reason):
    doubt = find_doubt(rows, whole)
    assert doubt.startswith(reason)
    assert bool(doubt) == bool(reason)


@pytest.mark.rule(17)
def test_a_change_that_further_builds_do_not_confirm_is_between_the_ends():
    change, _, _ = searched({"a": 17, "b": 17, "c": 9, "d": 9, "e": 3})
    assert (change.before, change.after, change.others) == ("b", "c", [("c", "e")])
    kept = Change(**vars(change))
    confirm_change(kept, "abcde", lambda *_: "")
    assert kept == change
    confirm_change(kept, "abcde", lambda before, _: "" if before == "b" else "alike")
    assert (kept.before, kept.after, kept.others, kept.unconfirmed) == ("b", "c", [], "")
    confirm_change(kept, "abcde", lambda *_: "alike")
    assert (kept.before, kept.after, kept.unconfirmed) == ("a", "e", "b → c: alike")


def test_a_second_build_is_another_piece_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = Recipe("piece", {"of": 1}, lambda folder, workshop: {}, ())
    first = provide_piece(recipe)
    with set_build_copy(""):
        assert provide_piece(recipe).cached
    with set_build_copy("again"):
        second = provide_piece(recipe)
        assert provide_piece(recipe).folder == second.folder
    assert second.folder != first.folder
    assert provide_piece(recipe).folder == first.folder


def git(clone: Path, *words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    command = ["git", *who, "-C", clone, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | WHEN).stdout.strip()


@pytest.fixture
def clone_of_hdf5(tmp_path: Path) -> Path:
    """Return a clone with tags v1 … v4, the third of which is no source tree, and a branch beside them."""
    clone = tmp_path / "hdf5"
    (clone / "src").mkdir(parents=True)
    git(clone, "init", "--quiet", "--initial-branch=main")
    for number in range(1, 5):
        header = "".join(f"#define H5_VERS_{part} {number}\n" for part in ("MAJOR", "MINOR", "RELEASE"))
        (clone / "src/H5public.h").write_text(header, encoding="utf-8")
        if number == 3:
            (clone / "src/H5public.h").rename(clone / "src/other.h")
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", f"--message={number}")
        git(clone, "tag", f"v{number}")
    git(clone, "branch", "beside", "v1")
    git(clone, "checkout", "--quiet", "beside")
    git(clone, "commit", "--quiet", "--allow-empty", "--message=beside")
    return clone


def test_commits_of_a_clone_are_libraries_of_the_versions_that_they_have(clone_of_hdf5: Path, tmp_path: Path):
    of = list_releases(release_range.HDF5, "v1", "v4", str(clone_of_hdf5))
    ids = [git(clone_of_hdf5, "rev-parse", f"v{number}")[:10] for number in range(1, 5)]
    assert of.names == ids
    spec = of.build_library_entry(ids[1], tmp_path / "no.lock")
    assert spec == {"kind": "source", "hdf5": "2.2.2", "from": str(clone_of_hdf5), "ref": ids[1]}
    with pytest.raises(Unusable, match=rf" at {ids[2]} is not an HDF5 source tree"):
        of.build_library_entry(ids[2], tmp_path / "no.lock")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            "s3f 1 2",
            r"the library must be one of hdf5, h5py, aiobotocore, .*, zarr, or the folder of a clone \(got s3f\)",
        ),
        ("s3fs 1 ./none.whl", "/none.whl does not exist; correct the path"),
        ("fsspec 1 {s3fs}", r"\+mine-.*whl is a wheel without fsspec; name a wheel of"),
        ("s3fs {s3fs} {s3fs}", "name two releases, the older first"),
        ("hdf5 1.14.6 2.2.0 --metric request", "--metric must be one of requests, bytes, seconds"),
        ("hdf5 1.14.6 2.1.7", "2.1.7 is not a release of hdf5; name a release in envs/sources.yaml, such as"),
        ("hdf5 2.2.0 1.14.6", "1.14.6 is not a later release than 2.2.0; name two releases, the older first"),
        ("hdf5 2.0.0 2.0.0", "name two releases, the older first"),
        ("hdf5 v1 v2 --clone {clone}/no", "/hdf5/no does not exist; correct the path"),
        ("{clone}/.. v1 v2", r"is not a git clone \(fatal: "),
        ("{clone} v0 v2", "v0 is not a branch, tag or commit of "),
        ("{clone} v2 v1", "v2 is not an ancestor of v1 .*; name the older"),
        ("{clone} beside v2", "beside is not an ancestor of v2"),
        ("{clone} v1 main~3", "are the same commit; name two"),
        ("hdf5 1.14.6 2.2.0 --files s3://bucket/x.h5", "only the embedded server counts requests"),
        ("hdf5 1.14.6 2.2.0 --files {clone}/*.h5", "no file matches"),
        ("hdf5 1.14.6 2.2.0 --files {clone}/src/H5public.h", "H5public.h is not an HDF5 file"),
        ("hdf5 1.14.6", "sbench bisect: the following arguments are required: last"),
    ],
)
def test_what_cannot_be_bisected_is_one_line_before_anything_is_measured(
    clone_of_hdf5, my_s3fs, arguments, words, capsys
):
    with pytest.raises(Problem, match=words) as problem:
        main(["bisect", *(word.format(clone=clone_of_hdf5, s3fs=my_s3fs) for word in arguments.split())])
    assert "\n" not in str(problem.value)
    assert capsys.readouterr().out == ""


def test_a_lock_of_ones_own_wins_over_the_one_that_all_libraries_have(tmp_path: Path):
    (tmp_path / "work").mkdir()
    locks = {
        "first": "six==1.17.0 \\\n    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"
        "toolz==1.0.0 \\\n    --hash=sha256:292c8f1c4e7516bf9086f8850935c799a874039c8bcf959d47b600e4c44a6236\n",
        "own": "six==1.16.0 \\\n    --hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254\n",
    }
    for name, text in locks.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with open(tmp_path / "lock", "w") as lock:
        workshop = Workshop("test", tmp_path / "work", tmp_path / "log", lock.fileno())
        python = make_environment(workshop, tmp_path / "venv", *(tmp_path / name for name in locks))
    code = "import six, toolz; print(six.__version__, toolz.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.16.0", "1.0.0"]


@pytest.fixture
def released(once: Callable) -> Path:
    """Return the wheel of s3fs 2024.12.0."""

    def download(folder: Path) -> None:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "s3fs==2024.12.0")
        subprocess.run(pip, check=True)

    return next(once("s3fs", download).glob("*.whl"))


@pytest.fixture
def my_s3fs(released: Path, tmp_path: Path) -> Path:
    """Return a wheel of s3fs that reads 1 MB ahead, 2024.12.0+mine."""
    mine = tmp_path / "s3fs-2024.12.0+mine-py3-none-any.whl"
    with zipfile.ZipFile(released) as old, zipfile.ZipFile(mine, "w") as new:
        for name in old.namelist():
            text = old.read(name).replace(b"\nVersion: 2024.12.0\n", b"\nVersion: 2024.12.0+mine\n")
            text = text.replace(b"default_block_size = 50 * 2**20", b"default_block_size = 2**20")
            new.writestr(name.replace("2024.12.0.dist", "2024.12.0+mine.dist"), b"" if "RECORD" in name else text)
    return mine


def test_a_wheel_is_an_end_with_the_releases_before_or_behind_its_version(my_s3fs: Path):
    name = f"2024.12.0-mine-local-{packages.read_package(str(my_s3fs)).key[:8]}"
    last = list_releases("s3fs", "2025.5.1", str(my_s3fs))
    assert (last.names[:2], last.names[-1]) == (["2025.5.1", "2025.7.0"], name)
    assert all(Version(release) > Version("2025.5.0") for release in last.names[:-1])
    first = list_releases("s3fs", str(my_s3fs), "2025.3.0")
    assert first.names == [name, "2025.2.0", "2025.3.0"]
    assert list(first.wheels) == [name]


def test_what_reads_with_a_package_follows_from_what_drivers_import():
    read_with = {name: bisection.choose_reader(name)[0]["driver"] for name in bisection.list_packages()}
    assert {name: read_with[name] for name in ("fsspec", "aiobotocore", "xarray", "zarr", "botocore", "boto3")} == {
        "fsspec": ["s3fs"],
        "aiobotocore": ["s3fs"],
        "xarray": ["xarray"],
        "zarr": ["kerchunk"],
        "botocore": ["remfile"],
        "boto3": ["h5coro"],
    }
    assert bisection.choose_reader("h5py")[0] == {"driver": ["s3fs"], "read_cache": ["none"]}


def test_a_commit_of_a_python_package_is_a_library_with_a_lock_of_what_it_needs(released: Path, tmp_path: Path):
    clone = tmp_path / "s3fs-clone"
    with zipfile.ZipFile(released) as wheel:
        wheel.extractall(clone)
    project = '[project]\nname = "s3fs"\nversion = "{}"\ndependencies = ["fsspec", "aiobotocore"]\n'
    (clone / "pyproject.toml").write_text(project.format("2024.12.1"), encoding="utf-8")
    git(clone, "init", "--quiet", "--initial-branch=main")
    for number in range(3):
        (clone / "note").write_text(f"{number}", encoding="utf-8")
        if number == 1:
            (clone / "pyproject.toml").write_text(project.format("no version"), encoding="utf-8")
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", f"--message={number}")
    of = list_releases("s3fs", "main~2", "main", str(clone), bisection.choose_reader("s3fs")[1])
    assert (of.package, len(of.names)) == ("s3fs", 3)
    assert release_range.read_package_name(str(clone), "main~2") == "s3fs"
    lock = tmp_path / "locks/s3fs.lock"
    spec = of.build_library_entry(of.names[0], lock)
    assert spec["with"] == [{"from": str(clone), "ref": of.names[0]}]
    text = lock.read_text(encoding="utf-8")
    assert "fsspec==" in text
    assert "s3fs" not in re.sub(r"h5py-s3|s3transfer", "", text)
    assert str(tmp_path) not in text
    with pytest.raises(Unusable, match=r"step .build the wheel.* failed; see its output in"):
        of.build_library_entry(of.names[1], tmp_path / "locks/other.lock")


@pytest.fixture
def measured(once, environments: Path, tmp_path: Path) -> Path:
    """Return a clone in which the bytes of s3fs 2024.9.0 to 2024.12.0 were bisected; `said` is what was printed."""

    def run(folder: Path) -> None:
        done = sbench("bisect", *S3FS, "--metric", "bytes", cwd=copy_project(folder / "clone"))
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "clone/said").write_text(done.stdout, encoding="utf-8")

    clone = once("bisected", run) / "clone"
    return Path(subprocess.run(["cp", "-a", clone, tmp_path / "clone"], check=True).args[-1])


@pytest.mark.rule(11)
def test_the_release_of_s3fs_that_reads_fifty_megabytes_ahead_is_named(measured: Path):
    run = "results/bisect-s3fs-2024.9.0-2024.12.0"
    head, ends, step, last, page = (measured / "said").read_text(encoding="utf-8").splitlines()
    assert head.startswith("s3fs: 3 releases from 2024.9.0 to 2024.12.0, both ends and about 1 step to measure; ")
    first, second = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+) bytes", ends))
    assert first > second > 0
    assert step == f"step 1 of about 1: 2024.10.0: {second:,} bytes, like the last"
    assert last.startswith(
        f"s3fs 2024.9.0 → 2024.10.0 changed bytes from {first:,} to {second:,} (records in {run}/shots/records);"
        f" other differences: fsspec 2024.9.0 → 2024.10.0; lock files: {run}/locks/s3fs-2024.9.0.lock,"
        f" {run}/locks/s3fs-2024.10.0.lock; measure both again with sbench run {run}/bisect.yaml "
    )
    seen = {
        path.parent.name.partition("_")[0]: artefact(path)["requests"]
        for path in measured.glob(f"{run}/shots/records/*/*.json")
    }
    assert {name: methods["GET"]["bytes_offered"] for name, methods in seen.items()} == {
        "s3fs-2024.9.0": first,
        "s3fs-2024.10.0": second,
        "s3fs-2024.12.0": second,
    }
    for name in seen:
        lock = (measured / run / "locks" / f"{name}.lock").read_text(encoding="utf-8")
        assert f"s3fs=={name.partition('-')[2]}" in lock
        assert "--hash=sha256:" in lock
    # What the last line says to type can be typed.
    typed = re.search(r"measure both again with sbench run (.*)$", last)[1]
    planned = sbench("plan", *typed.split(), cwd=measured)
    assert planned.returncode == 0, planned.stderr
    assert len(re.findall(r"1 to do", planned.stdout)) == 2
    assert page == f"page: reports/{run[8:]}/index.html; archive it with sbench archive {run[8:]}"


def test_a_bisect_has_a_page_that_is_archived_and_cited(measured: Path):
    run = "bisect-s3fs-2024.9.0-2024.12.0"
    page = (measured / "reports" / run / "shots.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"\n\n\*\*(.*)\*\*\n\n", page)[:1]
    assert re.fullmatch(
        r"s3fs 2024\.9\.0 → 2024\.10\.0 changed bytes: \d+ → \d+ requests and \d+ → [\d.]+ MiB\.", sentence
    )
    assert "![Timeline of requests](shots_files/requests-in-time.svg)" in page
    assert "also differ in: fsspec 2024.9.0 → 2024.10.0." in page
    assert "`sbench bisect s3fs 2024.9.0 2024.12.0 --metric bytes`" in page
    assert page.index("| 2024.9.0 |") < page.index("| 2024.10.0 |") < page.index("| 2024.12.0 |")
    assert "## Order of the reads" in page
    assert "/shots/1160825001/signals/" in page
    assert str(measured) not in page
    done = sbench("archive", run, cwd=measured)
    assert done.returncode == 0, done.stderr
    (packed,) = (measured / "results" / run).glob("*.tar.xz")
    with tarfile.open(packed) as archive:
        assert sum(name.startswith("locks/") for name in archive.getnames()) == 3
    assert sbench("archive", "--cite", packed, cwd=measured).stdout.count(packed.name[:-7]) == 3
    made = sbench("report", packed, "--name", "again", cwd=measured)
    assert made.returncode == 0, made.stderr
    assert (measured / "reports/again/shots.md").read_text(encoding="utf-8") == page


def test_two_wheels_are_measured_and_their_records_and_page_name_them(measured: Path, released: Path, my_s3fs: Path):
    ends = ("s3fs", released, my_s3fs, "--name", "wheels")
    done = sbench("bisect", *ends, cwd=measured)
    assert done.returncode == 0, done.stdout + done.stderr
    first, last = list_releases("s3fs", str(released), str(my_s3fs)).names
    assert re.search(rf"s3fs {first} → {last} changed requests from \d+ to \d+ .* differences: none;", done.stdout)
    records = {
        path.parent.name.partition("_")[0]: artefact(path) for path in measured.glob("results/wheels/*/*/*/*.json")
    }
    record = records[f"s3fs-{last}"]
    (added,) = record["provenance"]["build"]["added"]
    assert (added["name"], added["version"], added["sha256"]) == (
        "s3fs",
        "2024.12.0+mine",
        compute_file_digest(my_s3fs),
    )
    assert record["effective"]["s3fs"] == "2024.12.0+mine"
    page = (measured / "reports/wheels/shots.md").read_text(encoding="utf-8")
    assert f"s3fs 2024.12.0+mine (s3fs-{last}, {added['origin']}) on HDF5 2.1.1" in page
    assert f"sbench bisect s3fs ./{released.name} ./{my_s3fs.name}" in page
    assert str(my_s3fs.parent) not in page


def test_what_is_measured_is_not_measured_again_and_says_requests_too(measured: Path):
    records = {path: path.stat().st_mtime_ns for path in measured.glob("results/*/shots/records/*/*.json")}
    log = (measured / "results/bisect-s3fs-2024.9.0-2024.12.0/bisect.log").read_bytes()
    done = sbench("bisect", *S3FS, cwd=measured)
    assert done.returncode == 0, done.stderr
    assert "s3fs 2024.9.0 → 2024.10.0 changed requests from " in done.stdout
    assert {path: path.stat().st_mtime_ns for path in measured.glob("results/*/shots/records/*/*.json")} == records
    assert (measured / "results/bisect-s3fs-2024.9.0-2024.12.0/bisect.log").read_bytes() == log


def test_a_build_that_failed_is_tried_again_by_the_next_call(measured: Path):
    run = measured / "results/bisect-s3fs-2024.9.0-2024.12.0"
    # Such artefacts are left where a library cannot be built: its own, and that of each cell, which is skipped.
    environment, why = run / "environments/s3fs-2024.10.0.json", {"status": "failed", "reasons": ["an older failure"]}
    environment.write_text(json.dumps(why | {"step": "build_library"}), encoding="utf-8")
    (path,) = run.glob("shots/records/s3fs-2024.10.0_*/repeat=*.json")
    kept = {key: artefact(path)[key] for key in ("record", "run", "study", "name", "cell", "repeat", "session")}
    path.write_text(json.dumps(kept | why | {"valid": False, "cause": str(environment)}), encoding="utf-8")
    done = sbench("bisect", *S3FS, "--metric", "bytes", cwd=measured)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s3fs 2024.9.0 → 2024.10.0 changed bytes from " in done.stdout
    assert "an older failure" not in done.stdout


def test_of_files_that_both_ends_read_alike_one_line_says_so(measured: Path):
    with h5py.File(measured / "small.h5", "w") as file:
        file["values"] = np.arange(1000)
    done = sbench("bisect", *S3FS, "--files", "small.h5", "--name", "small", cwd=measured)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-2]
    assert last == "s3fs 2024.9.0 and 2024.12.0 agree in requests; no release between them was measured"
    page = (measured / "reports/small/shots.md").read_text(encoding="utf-8")
    assert re.search(
        r"\*\*s3fs 2024\.9\.0 and 2024\.12\.0 agree in requests: \d+ requests and [\d.]+ MiB; no release", page
    )
    config = yaml.safe_load((measured / "results/small/bisect.yaml").read_text(encoding="utf-8"))
    assert [*config["libraries"]] == ["s3fs-2024.9.0", "s3fs-2024.12.0"]


def test_a_release_that_was_yanked_or_does_not_exist_is_one_line(capsys):
    for first, words in (
        ("2023.12.0", r"s3fs 2023\.12\.0 was yanked \("),
        ("2024.4.0", "is not a release of s3fs"),
    ):
        with pytest.raises(Problem, match=words):
            main(["bisect", "s3fs", first, "2024.5.0"])
    of = list_releases("s3fs", "2023.10.0", "2023.12.1")
    assert of.names == ["2023.10.0", "2023.12.0", "2023.12.1"]
    with pytest.raises(Unusable, match=r"s3fs 2023\.12\.0 was yanked: "):
        of.build_library_entry("2023.12.0", Path("no.lock"))


def test_a_release_that_does_not_import_beside_what_is_kept_is_unusable(tmp_path: Path):
    # Its wheels are of numpy 1.
    of = list_releases("h5py", "3.10.0", "3.12.1")
    with pytest.raises(Unusable, match=r"^h5py-3\.10\.0 cannot be imported with .*: ValueError: numpy"):
        of.build_library_entry("3.10.0", tmp_path / "h5py-3.10.0.lock")
    assert of.build_library_entry("3.12.1", tmp_path / "h5py-3.12.1.lock")["hdf5"] == "1.14.4"
