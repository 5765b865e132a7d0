"""Virtual datasets and external storage: read where all files that hold their values are, by drivers that open them."""

from pathlib import Path

import h5py
import kinds
import numpy as np
import pytest
from granules import described, left_out, run_of
from small_runs import records, snakemake, write
from virtual_files import frames, nested, virtual

from sbench import drivers
from sbench.probe.program import Problem
from sbench.studies.shots import gathered
from sbench.studies.shots.checksums import compute_checksum
from sbench.studies.shots.choice import list_datasets_elsewhere
from sbench.studies.shots.inputs import Source
from sbench.studies.shots.manifest import select_datasets

pytestmark = pytest.mark.late

SPACE = h5py.h5s.create_simple((10,))


def test_a_virtual_dataset_is_read_where_all_of_its_sources_are(tmp_path):
    path = virtual(tmp_path / "a.h5", frames(tmp_path))
    made = described(str(path))
    whole = np.stack([np.arange(10.0), np.arange(10.0) + 1])
    assert made["objects"]["a.h5"]["/virtual"]["datasets"] == [["/virtual", *compute_checksum(whole)]]
    assert made["objects"]["a.h5"]["/virtual"]["needs"] == "virtual datasets of other files"
    assert [file["name"] for file in made["files"]] == ["frames0.h5", "frames1.h5", "a.h5"]
    assert made["layout"]["files"] == 1
    (tmp_path / "frames1.h5").unlink()
    assert left_out(path) == {"/virtual": "/virtual (virtual; its source frames1.h5 does not exist)"}
    with pytest.raises(Problem, match=r"a\.h5 contains nothing readable: /virtual \(virtual; its source frames1"):
        described(str(path))


def numbered(path: Path) -> None:
    """Write a virtual dataset with a row of each file frames0.h5, frames1.h5, ..."""
    created, unlimited = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple((2, 10), (unlimited, 10))
    space.select_hyperslab((0, 0), (unlimited, 1), block=(1, 10))
    created.set_virtual(space, b"frames%b.h5", b"x", SPACE)
    space = h5py.h5s.create_simple((2, 10), (unlimited, 10))
    with h5py.File(path, "a") as file:
        h5py.h5d.create(file.id, b"numbered", h5py.h5t.IEEE_F64LE, space, created)


def test_sources_are_looked_for_in_their_sources_by_number_and_in_the_file_itself(tmp_path):
    virtual(tmp_path / "middle.h5", frames(tmp_path))
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["own"] = np.arange(10.0)
    nested(path, "middle.h5")
    virtual(path, [(".", "own")], "within")
    numbered(path)
    made = described(str(path))["objects"]["a.h5"]
    assert {name: entry.get("needs") for name, entry in made.items()} == {
        "/nested": "virtual datasets of other files",
        "/numbered": "virtual datasets of other files",
        "/own": None,
        "/within": "virtual datasets",
    }
    assert made["/numbered"]["datasets"][0][1:] == made["/nested"]["datasets"][0][1:]
    (tmp_path / "frames0.h5").unlink()
    assert left_out(path) == {
        "/nested": "/nested (virtual; its source frames0.h5 does not exist in middle.h5)",
        "/numbered": "/numbered (virtual; its source frames0.h5 does not exist)",
    }


def test_a_source_behind_a_link_to_another_file_is_read_in_place(tmp_path):
    frames(tmp_path, 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["frames"] = h5py.ExternalLink("frames0.h5", "/x")
    path = virtual(tmp_path / "a.h5", [(".", "frames")])
    made = described(str(path))
    assert made["objects"]["a.h5"]["/virtual"]["needs"] == drivers.IN_PLACE
    assert [file["name"] for file in made["files"]] == ["frames0.h5", "a.h5"]
    (tmp_path / "frames0.h5").unlink()
    assert left_out(path)["/virtual"] == "/virtual (virtual; its source frames does not exist)"


def test_values_that_a_copy_would_not_find_are_read_in_place_or_left_out(tmp_path):
    (tmp_path / "sub").mkdir()
    (source,) = frames(tmp_path, 1)
    path = virtual(tmp_path / "sub/a.h5", [(str(tmp_path / source[0]), "x")])
    assert left_out(path) == {}
    outside = r"/virtual \(virtual; \.\./frames0\.h5 is outside the folder of the set; add it to the files\)"
    with pytest.raises(Problem, match=outside):
        described(str(path))
    made = described([str(path), str(tmp_path / source[0])])
    assert made["objects"]["sub/a.h5"]["/virtual"]["needs"].startswith("values in other files")
    np.arange(3.0).tofile(tmp_path / "sub/raw.bin")
    with h5py.File(path, "a") as file:
        del file["virtual"]
        for name in ("raw.bin", "absent.bin"):
            stored = [(str(tmp_path / "sub" / name), 0, 24)]
            file.create_dataset(name, (3,), "<f8", external=stored)
    assert list(described(str(path))["objects"]["a.h5"]) == ["/raw.bin"]
    assert left_out(path)["/absent.bin"].startswith("/absent.bin (external storage; its file ")


@pytest.mark.rule(9)
def test_records_of_values_of_all_kinds_and_in_other_files_are_valid_or_left_out(clone, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    kinds.write(own / "kinds.h5", gaps=0xAA)
    path = virtual(own / "a.h5", frames(own))
    config = run_of({"mine": str(own / "*.h5")}, store=["disk", "copied"], selection=["all", "metadata"])
    config["stores"]["copied"] = {"kind": "posix", "path": str(tmp_path / "copied")}
    config["studies"]["shots"]["read_files"] = 0
    write(clone, config)
    assert snakemake(clone, "--until", "measure").returncode == 0
    measured = records(clone).values()
    assert [(record["status"], record["reasons"]) for record in measured] == [("done", [])] * 4
    virtual(path, [(str(own / "frames0.h5"), "x")], "absolute")
    write(clone, config | {"run": "again"})
    assert snakemake(clone, "--until", "measure").returncode == 0
    again = [record for record in records(clone, "again").values() if "selection" not in record["cell"]]
    assert {record["cell"]["store"]: record["reasons"] for record in again} == {
        "disk": [],
        "copied": [f"driver sec2 does not read {drivers.IN_PLACE}: /absolute of a.h5"],
    }


def test_advice_is_on_values_within_a_file_and_names_the_others(tmp_path):
    path = virtual(tmp_path / "a.h5", frames(tmp_path))
    with h5py.File(path, "a") as file:
        file["plain"] = np.arange(3)
    with h5py.File(path) as file:
        assert [one.name for one in select_datasets(file, ["/**"], "a.h5")] == ["/plain"]
        words = ["/virtual (virtual; its values are in other files)"]
        assert list(map(str, list_datasets_elsewhere(file, ["/**"], "a.h5"))) == words
        with pytest.raises(Problem, match=r"a\.h5 contains nothing readable: /virtual \(virtual; its values are in"):
            select_datasets(file, ["/virtual"], "a.h5")


@pytest.mark.parametrize("key", ["/x.h5", "a/../../x.h5"])
def test_no_object_is_copied_out_of_its_folder(tmp_path, key):
    source = Source("x.h5", 1, {}, f"s3://bucket/{key}")
    assert gathered._copy_objects(source, {"bucket": "bucket"}, tmp_path) is None
