"""Files of the user's own, of any tree: what is read of them, in place, and what is said before that."""

import os
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import sbench
from granules import described, granule, run_of
from small_runs import PAGE, records, snakemake, write

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.files import look
from sbench.probe.program import Problem
from sbench.studies.shots import inputs, manifest, selection
from sbench.studies.shots.addresses import get_bucket
from sbench.studies.shots.report import indexes

pytestmark = pytest.mark.late


@pytest.fixture
def sets(tmp_path: Path) -> dict[str, str]:
    """Return two sets of the same values, one paged, in folders of different names."""
    for number in (1, 2, 3):
        granule(tmp_path / "own" / f"g{number}.h5", number)
        granule(tmp_path / "own" / "paged" / f"{number % 2}" / f"h{number}.nc", number, paged=True)
    return {"original": str(tmp_path / "own" / "*.h5"), "repacked": str(tmp_path / "own" / "paged" / "**" / "*.nc")}


# What is read.


@pytest.mark.parametrize(
    "level, shape, chunks, places",
    [
        ("all", (5, 4), (2, 2), [()]),
        ("[0:3, ...]", (5, 4), (2, 2), [((0, 3, 1), (0, 4, 1))]),
        ("[..., 1]", (5, 4), None, [((0, 5, 1), (1, 2, 1))]),
        ("[-2:]", (5, 4), None, [((3, 5, 1), (0, 4, 1))]),
        ("[0:9:2, 0]", (5,), None, [((0, 5, 2),)]),
        ("[7:9]", (5, 4), None, []),
        ("[0:3]", (), None, [()]),
        ("1/2", (5, 4), (2, 2), [((0, 2, 1), (0, 2, 1)), ((2, 4, 1), (0, 2, 1)), ((4, 5, 1), (0, 2, 1))]),
        ("1/4", (5, 4), (2, 2), [((0, 2, 1), (0, 2, 1)), ((4, 5, 1), (0, 2, 1))]),
        ("1/10", (5, 4), None, [((0, 5, 1), (0, 4, 1))]),
    ],
)
def test_a_selection_means_the_places_that_numpy_would_read(level, shape, chunks, places):
    assert list(selection.iter_places(level, shape, chunks)) == places


def test_a_place_takes_the_chunks_that_it_touches_and_no_other():
    assert selection.is_chunk_touched(((0, 3, 1), (0, 4, 1)), (2, 2), (2, 2))
    assert not selection.is_chunk_touched(((0, 2, 1), (0, 4, 1)), (2, 2), (2, 2))
    # Every tenth row misses most chunks.
    assert not selection.is_chunk_touched(((0, 30, 10),), (5,), (5,))


@pytest.mark.parametrize("level", ["[0:3:-1]", "[1.5]", "[a:b]", "[..., ...]", "[1:2:3:4]"])
def test_a_part_that_numpy_would_refuse_is_a_mistake(level):
    assert level in selection.find_mistake(level)


# What is in a manifest.


def test_patterns_choose_datasets_and_references_are_left_out_and_counted(sets):
    made = described(sets["original"], "/gt*/land_ice_segments/**", "/*", "!/gt1r/**")
    assert made["datasets"] == {
        "/gt*/land_ice_segments/**": ["/gt1l/land_ice_segments/h_li", "/gt1l/land_ice_segments/latitude"],
        "/*": ["/name", "/nothing", "/texts"],
    }
    assert made["layout"]["datasets_left_out"] == 3
    assert [file["name"] for file in made["files"]] == ["g1.h5", "g2.h5", "g3.h5"]
    assert all(Path(file["path"]).stat().st_mtime_ns == file["mtime_ns"] for file in made["files"])


def test_a_pattern_that_means_nothing_anywhere_is_one_line(sets):
    with pytest.raises(Problem, match="no dataset in the files of mine matches /absent/\\*"):
        described(sets["original"], "/gt1l/**", "/absent/*")


def test_files_in_several_folders_have_names_within_what_they_share(sets):
    made = described(sets["repacked"])
    assert [file["name"] for file in made["files"]] == ["0/h2.nc", "1/h1.nc", "1/h3.nc"]
    assert (made["layout"]["paged"], made["layout"]["page_size"]) == (True, 65536)


@pytest.mark.rule(17)
def test_sets_with_the_same_values_have_one_hash_and_other_values_another(tmp_path, sets):
    hashes = {
        name: manifest.compute_data_sha256(described(str(tmp_path / "own" / what))["objects"])
        for name, what in {"plain": "g1.h5", "paged": "paged/1/h1.nc", "other": "g2.h5"}.items()
    }
    assert hashes["plain"] == hashes["paged"] != hashes["other"]


@pytest.mark.rule(20)
def test_a_part_takes_the_bytes_of_its_chunks(tmp_path):
    path = granule(tmp_path / "g.h5", 1)
    read = {
        level: described(str(path), "/gt1l/land_ice_segments/h_li", level=level)["objects"]["g.h5"]
        for level in ("all", "[0:20, ...]", "[0:21, ...]", "1/2")
    }
    stored = {level: held["/gt1l/land_ice_segments/h_li"]["stored_bytes"] for level, held in read.items()}
    sizes: list[int] = []
    with h5py.File(path) as file:
        file["/gt1l/land_ice_segments/h_li"].id.chunk_iter(lambda chunk: sizes.append(chunk.size))
    assert stored == {
        "all": [sum(sizes)],
        "[0:20, ...]": [sizes[0]],
        "[0:21, ...]": [sizes[0] + sizes[1]],
        "1/2": [sizes[0], sizes[2]],
    }


# What is said before anything is measured.


def with_a_filter(path: Path) -> Path:
    """Write a dataset with Blosc, which HDF5 does not have, and which is optional when it is written."""
    with h5py.File(path, "w") as file:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((4,))
        created.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1, 2))
        dataset = h5py.h5d.create(file.id, b"packed", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((4,)), created)
        dataset.write_direct_chunk((0,), b"not four numbers", 0)
    return path


@pytest.mark.parametrize(
    "content, datasets, words",
    [
        (b"<!DOCTYPE html><title>no</title>", "/**", "is not an HDF5 file but a page of HTML"),
        (b"PK" + bytes(2000), "/**", "is not an HDF5 file"),
        (None, "/absent/*", "matches /absent/*; available: /gt1l/land_ice_segments/h_li, "),
        (
            "blosc",
            "/**",
            "contains nothing readable: /packed (a filter is missing; blosc, which is available only as a"
            " plugin of HDF5)",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, content, datasets, words):
    path = tmp_path / "some.h5"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        with_a_filter(path)
    else:
        granule(path, 1)
    with pytest.raises(Problem) as problem:
        described(str(path), datasets)
    assert str(path) in str(problem.value)
    assert words in str(problem.value)


def test_a_file_that_was_cut_and_one_that_nobody_may_read_are_named(tmp_path):
    path = granule(tmp_path / "some.h5", 1)
    os.truncate(path, 5000)
    with pytest.raises(Problem, match=r"some\.h5 cannot be read as HDF5: .*truncated"):
        described(str(path))
    with pytest.raises(Problem, match=r"no file matches .*nowhere"):
        described(str(tmp_path / "nowhere"))
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(Problem, match=r"pipe\.h5 cannot be read: it is a pipe"):
        described(str(tmp_path))


def test_a_file_that_is_damaged_further_in_is_one_line(tmp_path):
    path = granule(tmp_path / "some.h5", 1)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"SNOD", b"XXXX").replace(b"TREE", b"XXXX"))
    done = sbench("look", path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"problem: {path} cannot be read as HDF5: ")
    assert done.stderr.count("\n") == 1


def test_a_dataset_that_two_patterns_mean_is_one_line(sets):
    with pytest.raises(Problem, match=r"matches both /\*\* and /gt1l/\*\*; remove one of these patterns"):
        described(sets["original"], "/**", "/gt1l/**")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"layout": ["single-shot"]}, "matrix.layout: must be one of original, repacked (got single-shot)"),
        ({"selection": ["[0:3:-1]"]}, "a numpy index such as [0:100, ...] (got [0:3:-1])"),
        ({"selection": ["1/0"]}, "is not valid"),
        ({"access": ["shots"]}, "access shots is for files with shots"),
    ],
)
def test_a_matrix_that_does_not_suit_the_sets_is_one_line(tmp_path, sets, change, words):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run_of(sets, **change)))
    with pytest.raises(Problem) as problem:
        matrix.expand_matrix(configuration.load_config(tmp_path / "run.yaml"), "shots")
    assert words in str(problem.value)


def test_a_bucket_needs_a_store_and_is_read_by_no_other(tmp_path, sets):
    sets = sets | {"far": "s3://granules/new/*.h5"}
    config = run_of(sets)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(Problem, match=r"data\.files\.far: no store has the bucket granules; add a store"):
        configuration.load_config(tmp_path / "run.yaml")
    config["stores"]["aws"] = {"kind": "s3", "bucket": "granules", "anonymous": True}
    config["libraries"]["ours"] = {"kind": "source", "hdf5": "2.0.0"}
    config["studies"]["shots"]["matrix"][0] |= {
        "library": ["ours"],
        "store": ["disk", "aws"],
        "driver": ["sec2", "ros3"],
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    cells, omitted = matrix.expand_matrix(configuration.load_config(tmp_path / "run.yaml"), "shots")
    read = {(cell.levels["layout"], cell.levels["store"], cell.levels["driver"]) for cell in cells}
    assert read == {("original", "disk", "sec2"), ("repacked", "disk", "sec2"), ("far", "aws", "ros3")}
    assert any("are on this machine; user files are uploaded" in one.reason for one in omitted)
    with pytest.raises(Problem, match="split the set"):
        get_bucket(["s3://granules/a.h5", "/data/a.h5"])


def test_a_page_buffer_for_files_without_pages_is_said_before_anything_is_measured(tmp_path, sets):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run_of(sets, page_buffer=["64KiB"])))
    done = sbench("check", tmp_path / "run.yaml")
    assert done.returncode == 1
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if "data.files" in line}
    assert "is not paged" in (amiss := lines["data.files.original:"])
    assert amiss.startswith("FAILED")
    assert "a page buffer of 64KiB requires pages" in amiss
    assert lines["data.files.repacked:"].startswith("ok")


def test_what_a_selection_leaves_and_a_filter_that_is_lacking_are_said_before_anything_is_measured(tmp_path, sets):
    def said(**change: object) -> str:
        config = run_of({"original": sets["original"]}, selection=["[5:9, ...]"])
        section = config["studies"]["shots"]
        section["read_files"] = change.pop("read_files", 3)
        section["data"] |= change
        if "level" in change:
            config["studies"]["shots"]["matrix"][0]["selection"] = [config["studies"]["shots"]["data"].pop("level")]
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
        done = sbench("check", tmp_path / "run.yaml")
        (line,) = [line for line in done.stdout.splitlines() if "data.files" in line]
        return line

    assert "7 datasets to read, " in said()
    assert said().endswith(" 6 with selection [5:9, ...] (/references (references) left out), 3 files")
    assert said(read_files=4).endswith("3 files; read_files is 4, so each record reads all of them")
    assert said(level="[99999]", datasets=["/gt*/**"]).startswith("FAILED")
    packed = with_a_filter(tmp_path / "packed.h5")
    assert "contains nothing readable: /packed (a filter is missing; blosc" in said(files={"original": str(packed)})


def test_bad_files_are_named_and_the_others_looked_at(tmp_path, sets):
    (Path(sets["original"]).parent / "bad.h5").write_bytes(b"no")
    done = sbench("look", sets["original"])
    assert done.returncode == 2
    assert done.stdout.startswith("3 files, ")
    assert done.stderr.splitlines()[-1].endswith("bad.h5 is not an HDF5 file but text ('no'); name the data instead")


def test_a_name_that_is_none_of_the_sets_and_the_home_folder(tmp_path, sets, monkeypatch):
    config = run_of(sets)
    config["studies"]["shots"]["data"]["datasets"] = {"original": ["/**"], "repacked": ["/**"], "orignal": ["/**"]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(Problem, match=r"datasets: orignal is not a set \(sets: original, repacked"):
        configuration.load_config(tmp_path / "run.yaml")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(inputs.find_sources("~/own/*.h5")) == 3


# What is measured.


@pytest.mark.rule(9)
def test_each_selection_reads_what_the_manifest_says_in_place(clone, sets):
    write(clone, run_of(sets, access=["files", "datasets"], selection=["all", "metadata", "[0:30, ...]", "1/2"]))
    done = snakemake(clone, "--until", "measure")
    assert done.returncode == 0, done.stderr
    measured = records(clone)
    assert len(measured) == 16
    assert {path for path, record in measured.items() if not record["valid"]} == set()
    whole = next(
        record
        for record in measured.values()
        if record["cell"]["access"] == "datasets" and "selection" not in record["cell"]
    )
    assert (whole["work"]["datasets"], whole["work"]["tasks_done"]) == (21, 1)
    # Files are neither copied nor uploaded.
    assert not list((clone / "results").rglob("*.h5"))


@pytest.mark.rule(10)
def test_chunk_caches_of_chunks_larger_than_the_default_are_compared(clone, tmp_path):
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file.create_dataset("values", data=np.zeros((4, 2**18)), chunks=(2, 2**18), compression="gzip")
    own = run_of({"original": str(tmp_path / "large.h5")}, chunk_cache=["default", "4MiB", "64MiB-10007"])
    own["studies"]["shots"] |= {"rdcc_nbytes": 2**20, "compare": [{"factor": "chunk_cache", "baseline": "default"}]}
    write(clone, own)
    done = snakemake(clone, PAGE)
    assert done.returncode == 0, done.stderr
    measured = {record["cell"].get("chunk_cache", "default"): record for record in records(clone).values()}
    assert {level: record["reasons"] for level, record in measured.items()} == {level: [] for level in measured}
    in_force = {level: record["effective"] for level, record in measured.items()}
    assert {level: one["rdcc_nbytes"] // 2**20 for level, one in in_force.items()} == {
        **{"default": 1, "4MiB": 4, "64MiB-10007": 64}
    }
    assert in_force["64MiB-10007"]["rdcc_nslots"] == 10007 != in_force["4MiB"]["rdcc_nslots"]
    page = (clone / PAGE).with_suffix(".md").read_text(encoding="utf-8")
    assert all(words in page for words in ("chunk cache of 4 MiB", "of 64 MiB and 10,007 slots", "of 1 MiB (default)"))


@pytest.mark.rule(17)
def test_a_file_that_changes_while_it_is_used_fails_its_cell(clone, sets):
    write(clone, run_of({"original": sets["original"]}))
    assert snakemake(clone, "--until", "ready").returncode == 0
    for path in Path(sets["original"]).parent.glob("*.h5"):
        with h5py.File(path, "a") as file:
            file["texts"].attrs["new"] = 1
    assert snakemake(clone, "--until", "measure").returncode == 0
    (record,) = records(clone).values()
    assert record["status"] == "failed"
    assert "was replaced or changed after its examination; stop the program that writes to it" in record["reasons"][0]


def test_what_files_are_is_said_in_a_few_lines(tmp_path, sets, capsys):
    assert look.print_contents([sets["original"]], "", []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 files, ")
    assert "3 files not paged" in lines
    assert any(line.startswith("8 datasets per file; 24 of 24 take less than 64 KiB") for line in lines)
    assert "filters: shuffle (12), deflate (12)" in lines
    assert any("page buffer has no effect" in line for line in lines)
    done = sbench("look", str(tmp_path / "nothing*"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("problem: ")


# The index that some drivers need.


def test_from_how_many_reads_on_an_index_pays():
    cells = pd.DataFrame(
        [
            {"cell": "a", "driver": "kerchunk", "store": "s3", "total_s": 1.0, "index_s": 6.0},
            {"cell": "b", "driver": "ros3", "store": "s3", "total_s": 3.5, "index_s": float("nan")},
            {"cell": "c", "driver": "s3fs", "store": "s3", "total_s": 3.0, "index_s": float("nan")},
            {"cell": "d", "driver": "s3fs", "store": "disk", "total_s": 0.5, "index_s": float("nan")},
        ]
    )
    names = SimpleNamespace(
        format_row=lambda cell, names: " ".join(cell[name] for name in names), format_level=lambda _, level: level
    )
    report = SimpleNamespace(names=("driver", "store"))
    counts = [{"cell": "a", "index": {"bytes": 10, "requests": {"GET": {"count": 7}}}}]
    run = SimpleNamespace(measured=cells, report=report, names=names, facts={"indexes": counts})
    run.select_telling_factors = lambda cells, names: ["driver"]
    assert indexes.describe_costs(run) == [
        "kerchunk: making the index takes 6.00 s and 7 requests; by the medians it pays off from 3 reads on, "
        "compared with s3fs, the fastest driver without an index (2.00 s saved per read)."
    ]
    run.measured = cells.assign(total_s=[4.0, 3.5, 3.0, 0.5])
    assert "its reads were not faster" in indexes.describe_costs(run)[0]
    run.measured = cells.drop(columns="index_s")
    assert indexes.describe_costs(run) == []
