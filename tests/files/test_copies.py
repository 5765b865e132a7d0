"""Copies in other layouts: they hold the same values, commands work as typed, and failures carry HDF5's reason."""

import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sbench.files import advise, chunking, copies
from sbench.files.copies import Layout
from sbench.files.place import Place
from sbench.files.trial import Trial
from sbench.probe.program import Problem
from sbench.studies.shots import accesses, inputs, manifest

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("h5repack", "h5copy"))), reason="there is no h5repack: apt install hdf5-tools"
)
ALL = accesses.parse_accesses("all")
NETWORK = {"latency_ms": 20, "per_connection_mib_s": 50}


def write(path: Path, values: int = 20_000, block: int = 0) -> Path:
    """Write a file with two groups of datasets in small chunks, perhaps behind a user block."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w", userblock_size=block) as file:
        for number in range(6):
            data = random.integers(0, 2**31, values, dtype=np.int32)
            file.create_dataset(f"group-{number % 2}/v{number}", data=data, chunks=(2000,), compression="gzip")
    return path


def options_of(folder: Path, originals: list[Path]) -> Path:
    folder.mkdir()
    for path in originals:
        text = chunking.list_options(path, ["/**"], ALL, NETWORK)
        (folder / f"{path.name}.txt").write_text(text)
    return folder


def hash_of(files: list[Path], patterns: list[str]) -> str:
    held = manifest.describe_set({"files": list(map(str, files)), "datasets": patterns, "layout": "x"})
    return manifest.compute_data_sha256(held["objects"])


def test_copies_hold_the_same_and_are_what_their_command_makes(tmp_path):
    originals = [write(tmp_path / name) for name in ("a.h5", "b.h5")]
    options = options_of(tmp_path / "options", originals)
    layouts = [
        Layout("paged", 2**20),
        Layout("chunks-4MiB", 2**22, options),
        Layout("chunks", options=options / "a.h5.txt"),
        Layout("large", 2**20, merged=True),
    ]
    for layout in layouts:
        made = copies.make_copies(layout, originals, tmp_path / layout.name, ["/**"], ALL)
        assert len(made.files) == (1 if layout.merged else 2)
        assert made.copy_bytes == sum(path.stat().st_size for path in made.files)
        with h5py.File(made.files[0]) as file:
            created = file.id.get_create_plist()
            paged = created.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
            assert paged == bool(layout.page_size)
            if paged:
                assert created.get_file_space_page_size() == layout.page_size
            name = "/a" * layout.merged + "/group-1/v1"
            assert file[name].chunks == ((20_000,) if layout.options else (2000,))
        patterns = ["/**", "!/group-0/*"]
        assert hash_of(made.files, layout.convert_patterns(patterns)) == hash_of(originals, patterns)


@pytest.mark.parametrize("kind", ["paged", "chunks", "file of options", "merged"])
def test_what_is_typed_makes_the_same_copies(tmp_path, kind):
    folder = tmp_path / "own data"
    folder.mkdir()
    originals = [write(folder / name) for name in ("a.nc", "b.nc")]
    options = options_of(tmp_path / "options", originals)
    layout = {
        "paged": Layout("paged-1MiB", 2**20),
        "chunks": Layout("chunks-1MiB", 2**20, options),
        "file of options": Layout("chunks", options=options / "b.nc.txt"),
        "merged": Layout("large", 2**20, merged=True),
    }[kind]
    line = copies.format_copy_command(layout, ["own data/*.nc"])
    subprocess.run(["sh", "-ec", line], cwd=tmp_path, check=True)
    made = [tmp_path / copies.LARGE] if layout.merged else [tmp_path / layout.name / path.name for path in originals]
    expected = copies.make_copies(layout, originals, tmp_path / "expected", ["/**"], ALL)
    assert [path.stat().st_size for path in made] == [path.stat().st_size for path in expected.files]


def test_a_command_for_files_of_one_name_in_several_folders_keeps_the_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [Path("data/x.h5"), Path("data/sub/x.h5"), Path("data/sub/of it/x.h5")]
    for number, path in enumerate(files):
        path.parent.mkdir(exist_ok=True)
        # Datasets of other sizes need other options.
        write(path, 10_000 + 40_000 * number)
    trials = {}
    for pattern in ("data/**/*.h5", "data/**"):
        named = advise._list_shell_names([pattern], inputs.find_sources(pattern))
        assert named == ["data/*.h5", "data/sub/*.h5", "data/sub/of it/*.h5"]
        every = [Path(path) for one in named for path in advise._expand_pattern(one)]
        assert every == files
        trials[pattern] = Trial(every[:1], named, every, ALL, ["/**"], Place({}, NETWORK, ""), tmp_path, "")
    trial = trials["data/**"]
    layout = Layout("chunks-1MiB", 2**20, trial._write_options())
    done = subprocess.run(["sh", "-ec", copies.format_copy_command(layout, named, trial.is_mirrored)], check=False)
    assert done.returncode == 0
    for path in files:
        assert hash_of([Path("chunks-1MiB") / path], ["/**"]) == hash_of([path], ["/**"])
    large = Layout("large", 2**20, merged=True)
    subprocess.run(["sh", "-ec", copies.format_copy_command(large, named, trial.is_mirrored)], check=True)
    with h5py.File("large.h5") as file:
        assert all(str(path.with_suffix("")) in file for path in files)


def test_options_are_per_file_where_a_dataset_is_lacking(tmp_path):
    originals = [write(tmp_path / "a.h5"), write(tmp_path / "b.h5")]
    with h5py.File(originals[1], "a") as file:
        del file["group-1/v1"]
    options = options_of(tmp_path / "options", originals)
    made = copies.make_copies(Layout("chunks", options=options), originals, tmp_path / "copies", ["/**"], ALL)
    with h5py.File(made.files[1]) as file:
        assert file["group-1/v3"].chunks == (20_000,)
    alike = Layout("chunks", options=options / "a.h5.txt")
    with pytest.raises(Problem, match="h5repack failed: "):
        copies.make_copies(alike, originals, tmp_path / "alike", ["/**"], ALL)


def test_a_copy_that_cannot_be_made_has_hdf5s_reason(tmp_path):
    original = write(tmp_path / "own.mat", block=512)
    with pytest.raises(Problem, match="h5repack failed: userblock size must be > file object alignment"):
        copies.make_copies(Layout("paged", 2**20), [original], tmp_path / "paged", ["/**"], ALL)
    # Without pages it works.
    options = options_of(tmp_path / "options", [original])
    assert copies.make_copies(Layout("chunks", options=options), [original], tmp_path / "chunks", ["/**"], ALL).files


TOOLS = {
    "cut": ('head -c 3000 "$1" > "$2"', "truncated file"),
    "other values": ('cp "{other}" "$2"', "v0"),
    "killed": ("kill -KILL $$", "h5repack failed: killed by SIGKILL"),
    "silent": ("exit 3", "h5repack failed: exit status 3 without a reason"),
    "words": ("echo 'no room' >&2; exit 1", "h5repack failed: no room"),
}


@pytest.mark.parametrize("how", TOOLS)
def test_a_tool_that_fails_or_leaves_a_wrong_copy_is_one_line(tmp_path, monkeypatch, how):
    original, other = write(tmp_path / "a.h5"), tmp_path / "other.h5"
    shutil.copy(original, other)
    with h5py.File(other, "a") as file:
        file["group-0/v0"][17] = -1
    script, words = TOOLS[how]
    stand_in = tmp_path / "bin" / "h5repack"
    stand_in.parent.mkdir()
    # The last two arguments are the original and the copy.
    stand_in.write_text(
        f'#!/bin/sh\n[ "$1" != --version ] || exit 0\n'
        f"while [ $# -gt 2 ]; do shift; done\n{script.format(other=other)}\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=":")
    with pytest.raises(Problem) as problem:
        copies.make_copies(Layout("paged", 2**20), [original], tmp_path / "copies", ["/**"], ALL)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_without_h5repack_one_line_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(Problem, match="h5repack is missing: apt install hdf5-tools"):
        copies.make_copies(Layout("paged", 2**20), [write(tmp_path / "a.h5")], tmp_path / "copies", ["/**"], ALL)
