"""Which releases changed the requests of a script: the search, and made-up packages of an index on this machine."""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import copy_project, sbench

from sbench.build import dated_packages, release_range
from sbench.build.release_range import Unusable
from sbench.cli.__main__ import main
from sbench.files.script_bisection import Change, build_query, find_changes, make_folder, measure_range
from sbench.files.script_runs import find_reason
from sbench.probe.program import Problem
from tests.helpers.toy_index import Release, serve_index

# A release with this figure cannot be measured.
BROKEN = -1


def search(sequence: list[int], most: int) -> tuple[list[str], dict[str, int | None]]:
    """Return the names of a sequence of figures, and the figures that a search measures."""
    names = [f"{place}" for place in range(len(sequence))]
    table = dict(zip(names, sequence, strict=True))

    def measure(name: str) -> int:
        assert name not in measured, f"{name} is measured twice"
        if table[name] == BROKEN:
            raise Unusable(name)
        return table[name]

    measured: dict[str, int | None] = {name: table[name] for name in (names[0], names[-1])}
    measure_range(names, measured, measure, most)
    return names, measured


def test_every_change_is_named_if_all_releases_may_be_measured():
    draw = random.Random(1)
    for _ in range(300):
        length = draw.randint(2, 14)
        sequence = [draw.choice([1, 1, 2, 3, BROKEN]) for _ in range(length)]
        sequence[0], sequence[-1] = draw.choice([1, 2]), draw.choice([1, 2])
        names, measured = search(sequence, length)
        usable = [place for place, figure in enumerate(sequence) if figure != BROKEN]
        pairs = [
            (names[low], names[high]) for low, high in itertools.pairwise(usable) if sequence[low] != sequence[high]
        ]
        assert [change[:2] for change in find_changes(names, measured)] == pairs


@pytest.mark.parametrize("length", [2, 3, 10, 100, 1000])
def test_a_single_change_takes_as_many_steps_as_a_binary_search(length: int):
    for place in {1, length // 2, length - 1}:
        sequence = [1] * place + [2] * (length - place)
        names, measured = search(sequence, 2)
        assert find_changes(names, measured) == [Change(names[place - 1], names[place], [], "")]
        assert len(measured) <= 2 + length.bit_length()


def test_between_equal_figures_no_more_than_the_given_number_is_measured():
    assert len(search([1] * 100, 24)[1]) == 24
    assert len(search([1] * 100, 2)[1]) == 2


def test_a_change_that_is_undone_names_the_release_that_undoes_it():
    names, measured = search([1, 1, 4, BROKEN, 4, 1, 2], 7)
    assert find_changes(names, measured) == [
        Change("1", "2", [], "5"),
        Change("4", "5", [], ""),
        Change("5", "6", [], ""),
    ]
    # The release that cannot be measured may contain the change.
    assert find_changes(["a", "b", "c"], {"a": 1, "b": None, "c": 2}) == [Change("a", "c", ["b"], "")]


READ = """
import os, urllib.request
{top}
def read():
    for _ in range({times} + {more}):
        urllib.request.urlopen(os.environ["SBENCH_URL"] + "/a.bin").read()
"""
# Figures of the releases 1.0 to 1.11 of a toy, without what its dependency adds.
TIMES = [2, 2, 3, 3, 7, 7, 3, BROKEN, 4, 5, 5, 5]


def list_toys() -> list[Release]:
    """Return twelve releases of a toy, and three of its dependency, which is published with 1.9 and before 1.10."""
    releases = []
    for number, times in enumerate(TIMES):
        top = "raise ImportError('this release is broken')" if times == BROKEN else "import toypart"
        code = READ.format(top=top, times=max(times, 0), more="toypart.MORE")
        releases.append(Release("toyreader", f"1.{number}", f"2025-01-{number + 1:02}T12:00:00Z", code, ("toypart",)))
    for version, day, more in (("0.1", "2024-12-01", 0), ("0.2", "2025-01-10", 10), ("0.3", "2025-01-11", 30)):
        releases.append(Release("toypart", version, f"{day}T11:00:00Z", f"MORE = {more}\n"))
    return releases


@pytest.mark.late
def test_six_changes_in_twelve_releases_are_named_with_their_causes(tmp_path: Path):
    clone = copy_project(tmp_path / "clone")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.bin").write_bytes(bytes(1000))
    (tmp_path / "wheels").mkdir()
    script = tmp_path / "mine.py"
    script.write_text("import toyreader\ntoyreader.read()\n", encoding="utf-8")
    words = ("bisect", "toyreader", "1.0", "1.11", "--script", script, "--folders", tmp_path / "data")
    with serve_index(list_toys(), tmp_path / "wheels") as variables:
        done = sbench(*words, cwd=clone, env=os.environ | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((clone / "results/bisect-toyreader-1.0-1.11-mine/bisect.json").read_text(encoding="utf-8"))
    named = {(change["before"], change["after"]): change for change in result["changes"]}
    assert list(named) == [
        ("1.1", "1.2"), ("1.3", "1.4"), ("1.5", "1.6"), ("1.6", "1.8"), ("1.8", "1.9"), ("1.9", "1.10"),
    ]  # fmt: skip
    assert named["1.3", "1.4"]["undone"] == "1.6"
    assert named["1.6", "1.8"]["skipped"] == ["1.7"]
    assert "ImportError: this release is broken" in result["skipped"]["1.7"]
    causes = {pair: [tuple(cause.values()) for cause in change["causes"]] for pair, change in named.items()}
    assert causes["1.1", "1.2"] == [("toyreader 1.2", 2, 3)]
    # Both packages changed at once; the next change is only one of the dependency.
    assert causes["1.8", "1.9"] == [("toyreader 1.9", 4, 5), ("toypart 0.2", 5, 15)]
    assert causes["1.9", "1.10"] == [("toypart 0.3", 15, 35)]
    assert "toyreader 1.3 → 1.4 changed requests from 3 to 7; 1.6 undoes it" in done.stdout
    assert "  GET /data/a.bin: 3 → 7\n" in done.stdout
    assert "  toypart 0.2: 5 → 15\n" in done.stdout
    assert str(tmp_path) not in json.dumps(result)
    assert {"1.1.html", "1.10.html"} <= {path.name for path in (clone / "results").glob("*/*.html")}


def test_a_package_that_follows_within_hours_belongs_to_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    releases = [
        Release("toyspec", "2", "2025-01-02T12:00:00Z", ""),
        *(Release("toys3", *of, "", (need,)) for of, need in [
            (("0.1", "2020-01-01T12:00:00Z"), "toyspec"), (("2", "2025-01-02T13:00:00Z"), "toyspec==2"),
        ]),
    ]  # fmt: skip
    with serve_index(releases, tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        packages = dated_packages.resolve_release("toyspec", "2", ["toys3"], sys.executable)
        assert packages == ({"toyspec": "toyspec==2", "toys3": "toys3==2"}, "2025-01-02T18:00:00+00:00")


def test_an_index_without_dates_gives_the_newest_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serve_index(list_toys(), tmp_path, dated=False) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        # The user's settings of uv do not choose other versions.
        monkeypatch.setenv("UV_RESOLUTION", "lowest")
        packages = dated_packages.resolve_release("toyreader", "1.0", [], sys.executable)
        assert packages == ({"toyreader": "toyreader==1.0", "toypart": "toypart==0.3"}, "")
        with pytest.raises(Unusable, match=r"^toyreader 9: "):
            dated_packages.resolve_release("toyreader", "9", [], sys.executable)


@pytest.mark.parametrize(
    "words, line",
    [
        (["zarr", "1", "2", "--script", "none.py"], r"--script must be a Python script \(got .*none.py\)"),
        (["zarr", "1", "2", "--script", "a.py", "--metric", "seconds"], "--metric must be one of get, head, "),
        (["zarr", "1", "2", "--script", "a.py", "--metric", "connections"], "--metric must be one of get, head, "),
        (["hdf5", "1", "2", "--script", "a.py"], "with --script, name a package and two of its releases"),
        (["zarr", "1", "2", "--script", "a.py", "--clone", "x"], "with --script, name a package and two of its"),
        (["zarr", "1", "2", "--script", "a.py", "--most", "1"], r"--most must be 2 or more \(got 1\)"),
        (["zarr", "1", "zarr-2-py3-none-any.whl", "--script", "a.py"], "with --script, name a package and two of its"),
        (["dask[array]", "1", "2", "--script", "a.py"], r"name extras with --with, such as --with 'dask\[array\]'"),
        (["zarr", "1", "2", "--script", "a.py", "--name", "../x"], r"--name must be the name of a folder in results"),
        (["zarr", "1", "2", "--with", "s3fs"], "--folders, --with, --python and --most need --script"),
    ],
)
def test_a_wrong_argument_is_one_line(words: list[str], line: str, tmp_path: Path):
    (tmp_path / "a.py").touch()
    with pytest.raises(Problem, match=line):
        main(["bisect", *(str(tmp_path / word) if word.endswith(".py") else word for word in words)])


def test_a_folder_of_the_name_of_the_package_does_not_hide_it(tmp_path: Path):
    (tmp_path / "a.py").touch()
    (tmp_path / "Zarr_Python").mkdir()
    given = argparse.Namespace(library=os.path.relpath(tmp_path / "Zarr_Python"), first="1", last="2", name="", most=0)
    vars(given).update(
        clone="", files=[], metric="get", python="", script="a.py", folders=[], called_from=str(tmp_path)
    )
    vars(given)["with"] = []
    # Lock files contain normalised names.
    assert build_query(given).package == "zarr-python"


def test_modules_beside_the_script_do_not_replace_installed_packages(tmp_path: Path):
    packages, script = tmp_path / "environment/lib/python3/site-packages", tmp_path / "mine/a.py"
    for module in ("yaml", "fsspec", "tests"):
        (packages / module).mkdir(parents=True)
        (script.parent / module).mkdir(parents=True)
    (script.parent / "tests/__init__.py").touch()
    # Without __init__.py, an installed package comes first.
    dated_packages.expect_no_shadows(script, tmp_path / "environment")
    (script.parent / "yaml.py").touch()
    with pytest.raises(Problem, match=r"would import .*/mine/yaml.py instead of the installed package"):
        dated_packages.expect_no_shadows(script, tmp_path / "environment")


def test_names_that_are_not_versions_and_unwanted_pre_releases_are_left_out(monkeypatch: pytest.MonkeyPatch):
    link = "Skipping link: yanked for reason: wrong: https://a.org/toy-{}.tar.gz (from https://a.org/toy/)\n"

    def list_all(command: list[str], **_: object) -> subprocess.CompletedProcess:
        names = "2.0, 2.0rc1, 1.0, 0.7.6.linux-x86_64" if "--pre" in command else "2.0, 1.0, 0.7.6.linux-x86_64"
        text = f"Available versions: {names}\n" + "".join(map(link.format, ("1.5rc1", "1.6", "0.7.linux")))
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(release_range.subprocess, "run", list_all)
    assert release_range.list_releases("toy", "1.0", "2.0", with_yanked=True).names == ["1.0", "1.6", "2.0"]
    early = release_range.list_releases("toy", "1.0", "2.0rc1", with_yanked=True)
    assert early.names == ["1.0", "1.5rc1", "1.6", "2.0rc1"]


def test_the_reason_of_a_failed_build_is_its_last_line():
    words = (
        "x Failed to build toy\n[stderr]\nTraceback\n  AttributeError: no sources\n\nhint: Build failures are usual\n"
    )
    code = f"import sys; sys.stderr.write({words!r}); sys.exit(1)"
    with pytest.raises(Unusable, match=r"^toy 1: AttributeError: no sources$"):
        release_range._run_command("toy 1", [sys.executable, "-c", code])


def test_the_reason_of_a_failed_script_is_the_last_exception():
    trace = [
        "Traceback (most recent call last):\n",
        '  File "a.py", line 1\n',
        "{}: Generic {{\n",
        "    status: 400,\n",
        "}}\n",
    ]
    first, second = ([line.format(name) for line in trace] for name in ("KeyError", "a.OwnError"))
    assert find_reason([*first, "\n", "During handling\n", "\n", *second]) == "a.OwnError: Generic { status: 400, }"
    assert find_reason(["one\n", "two\n", "\n"]) == "two"
    assert find_reason([]) == "it printed nothing"


def test_a_folder_of_another_run_is_kept_and_old_results_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("results/mine")
    folder.mkdir(parents=True)
    (folder / "bisect.json").touch()
    with pytest.raises(Problem, match="results/mine belongs to another run; choose another name with --name"):
        make_folder(folder)
    (folder / "script.log").touch()
    make_folder(folder)
    assert [path.name for path in folder.iterdir()] == ["script.log"]
