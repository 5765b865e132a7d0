"""What is read of files of any structure, under which paths, and what is left out with its reason."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import kinds
import numpy as np
import pytest
import yaml
from conftest import ROOT, artefact, program
from granules import granule, run_of
from small_runs import records, snakemake, write

from scripts import drivers
from scripts.lib import tree
from scripts.lib.program import Problem
from scripts.studies.shots import manifest
from scripts.studies.shots.checksums import fingerprint
from scripts.studies.shots.choice import choose
from scripts.studies.shots.datasets import entries_of
from scripts.studies.shots.patterns import Pattern

SPACE = h5py.h5s.create_simple((10,))


def described(files: object, *datasets: str, level: str = "all") -> dict:
    settings = {"files": files, "datasets": list(datasets or ("/**",)), "layout": "mine", "selection": level}
    return manifest.of_set(settings)


def paths(path: Path, *patterns: str) -> dict[str, list[str]]:
    with h5py.File(path) as file:
        meant = choose(file, patterns, str(path)).meant
        return {pattern: [dataset.name for dataset in of] for pattern, of in meant.items()}


def left_out(path: Path, *patterns: str) -> dict[str, str]:
    with h5py.File(path) as file:
        return {entry.path: str(entry) for entry in choose(file, patterns or ("/**",), str(path)).all_left_out()}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a file of which one dataset can be read, beside types and names that h5py lacks."""
    integer, structure = h5py.h5t.STD_I32LE.copy(), h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    integer.set_size(3)
    structure.insert(b"time", 0, h5py.h5t.UNIX_D32LE)
    opaque = h5py.h5t.create(h5py.h5t.OPAQUE, 7)
    opaque.set_tag(b"a tag that NumPy has no word for")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["fine"] = np.arange(10)
        for name, kind in {
            b"time": h5py.h5t.UNIX_D32LE,
            b"integer": integer,
            b"structure": structure,
            b"opaque": opaque,
        }.items():
            h5py.h5d.create(file.id, name, kind, SPACE)
        h5py.h5d.create(file.id, b"caf\xe9", h5py.h5t.NATIVE_INT32, SPACE)
        h5py.h5d.create(h5py.h5g.create(file.id, b"gr\xfcn"), b"below", h5py.h5t.NATIVE_INT32, SPACE)
        kind = np.dtype([("of", h5py.ref_dtype), ("n", "<i4")])
        file["reference_within"] = np.array([(file.ref, 1)], kind)
        file.create_dataset("references", (2,), h5py.vlen_dtype(h5py.ref_dtype))
        file["fine"].attrs["number"] = 1
        h5py.h5a.create(file["fine"].id, b"caf\xe9", h5py.h5t.UNIX_D32LE, SPACE)
    return tmp_path / "odd.h5"


# What h5py cannot read.


def test_types_and_names_that_h5py_lacks_are_left_out_by_reason(odd):
    made = described(str(odd))
    assert list(made["objects"]["odd.h5"]) == ["/fine"]
    assert {one["reason"]: one["count"] for one in made["left_out"]} == {
        "its name is not UTF-8": 2,
        "references": 2,
        "h5py has no such type": 4,
    }
    assert made["layout"]["datasets_left_out"] == 8
    words = left_out(odd)
    assert words["/caf\\xe9"] == "/caf\\xe9 (its name is not UTF-8)"
    assert words["/structure"].startswith("/structure (h5py has no such type; structure of 4 bytes: ")
    assert words["/opaque"] == "/opaque (h5py has no such type; opaque value of 7 bytes: HDF5 does not convert it)"
    assert words["/time"].startswith("/time (h5py has no such type; time of 4 bytes: ")


@pytest.mark.rule(9)
def test_the_tree_of_such_a_file_can_be_walked(odd):
    made = described(str(odd), level="metadata")
    assert made["objects"]["odd.h5"]["/"]["needs"].startswith("trees with links")
    assert made == described(str(odd), level="metadata")


def test_programs_go_on_beside_such_files_and_name_what_is_left_out(tmp_path, odd):
    sets = {"odd": str(odd), "none": str(tmp_path / "time.h5"), "bad": str(tmp_path / "bad.h5")}
    with h5py.File(sets["none"], "w") as file:
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, SPACE)
    Path(sets["bad"]).write_bytes(b"no")
    sets["last"] = str(granule(tmp_path / "last.h5", 1))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run_of(sets)))
    done = program("preflight", "--configfile", tmp_path / "run.yaml")
    assert "Traceback" not in done.stderr
    lines = {line.split()[1]: " ".join(line.split()) for line in done.stdout.splitlines() if "data.files" in line}
    amiss = {name: line.split()[0] == "AMISS" for name, line in lines.items()}
    assert amiss == {f"data.files.{name}:": name in ("none", "bad") for name in sorted(sets)}
    words = "(/caf\\xe9 (its name is not UTF-8) and 1 more, /integer (h5py has no such type; integer of 3 bytes"
    assert words in lines["data.files.odd:"]
    assert "has nothing that can be read: /time (h5py has no such type" in lines["data.files.none:"]


def test_a_group_that_is_damaged_ends_no_walk(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("first", "second", "third"):
            file.create_group(name)["x"] = np.arange(3)
        where = h5py.h5g.get_objinfo(file["second"].id).objno[0]
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[where : where + 16] = b"\xff" * 16
    (tmp_path / "a.h5").write_bytes(content)
    assert paths(tmp_path / "a.h5", "/**") == {"/**": ["/first/x", "/third/x"]}
    assert list(left_out(tmp_path / "a.h5", "/second/*")) == ["/second"]


def test_a_filter_that_no_chunk_needs_does_no_harm(tmp_path):
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk((10,))
    created.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1, 2))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, mask in ((b"packed", 0), (b"plain", 1)):
            dataset = h5py.h5d.create(file.id, name, h5py.h5t.STD_I32LE, SPACE, created)
            dataset.write_direct_chunk((0,), np.arange(10, dtype="<i4").tobytes(), mask)
    assert paths(tmp_path / "a.h5", "/**") == {"/**": ["/plain"]}
    assert left_out(tmp_path / "a.h5") == {
        "/packed": "/packed (a filter is lacking; blosc, which HDF5 has only as a plugin)"
    }


# What is too large.


def limited(limit_kib: int, *command: object) -> subprocess.CompletedProcess:
    shell = ["sh", "-c", f'ulimit -v {limit_kib}; exec "$0" "$@"', sys.executable, "-sE", "-m", *map(str, command)]
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(shell, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_what_memory_has_no_room_for_is_left_out_before_it_is_read(tmp_path):
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("fill", (10**10,), "f8")
        file.create_dataset("chunks", (10**6, 10**4), "f8", chunks=(1000, 1000), fillvalue=1)
        file["small"] = np.arange(5)
    config = run_of({"mine": str(path)}, selection=["all", "[0:10, ...]", "1/1000000"])
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    done = limited(2 * 2**20, "scripts.preflight", "--configfile", tmp_path / "run.yaml")
    (line,) = [line for line in done.stdout.splitlines() if "data.files" in line]
    assert line.startswith("ok")
    assert "/chunks (too large to be read by all; 74.51 GiB are needed" in line
    settings = f'{{"files": "{path}", "datasets": ["/**"], "layout": "mine"}}'
    options = ("--dataset", "d", "--out", tmp_path / "manifest.json", "--settings", settings)
    done = limited(2 * 2**20, "scripts.studies.shots.make", *options)
    assert done.returncode == 0, done.stderr
    made = artefact(tmp_path / "manifest.json")
    assert (list(made["objects"]["sparse.h5"]), made["left_out"][0]["count"]) == (["/small"], 2)
    assert "left out: /chunks (too large; 74.51 GiB are needed, and " in done.stdout


# Links.


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Return a file as NeXus has them: hard and soft links to datasets and groups, loops, and links to other files."""
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        detector = file.create_group("entry/instrument/detector")
        detector["data"], detector["mask"] = np.arange(20.0), np.arange(3)
        file["entry/hard"] = detector["data"]
        file["entry/soft"] = h5py.SoftLink("/entry/instrument/detector/data")
        file["entry/all"] = h5py.SoftLink("/entry/instrument")
        file["entry/again"] = file["entry"]
        detector["back"] = h5py.SoftLink("/entry")
        file["one"], file["two"] = h5py.SoftLink("/two"), h5py.SoftLink("/one")
        file["gone"], file["out"] = h5py.SoftLink("/nothing"), h5py.ExternalLink("other.h5", "/x")
        file["through"] = h5py.SoftLink("/out/x")
    return tmp_path / "linked.h5"


def test_a_dataset_is_read_once_whatever_leads_to_it(linked):
    assert paths(linked, "/**") == {"/**": ["/entry/hard", "/entry/instrument/detector/mask"]}
    with h5py.File(linked) as file:
        assert [entry.path for entry in entries_of(file) if not entry.reason] == [
            "/entry/hard",
            "/entry/instrument/detector/mask",
        ]


@pytest.mark.parametrize(
    "pattern, names",
    [
        ("/entry/soft", ["/entry/soft"]),
        ("/entry/instrument/detector/data", ["/entry/instrument/detector/data"]),
        ("/entry/all/detector/*", ["/entry/all/detector/mask", "/entry/all/detector/data"]),
        ("/**/detector/back/s*", ["/entry/all/detector/back/soft"]),
        ("/entry/again/**/mask", ["/entry/again/all/detector/mask"]),
        ("/entry/all/detector/back/all/detector/back/hard", ["/entry/all/detector/back/all/detector/back/hard"]),
        ("/entry/*", ["/entry/hard"]),
    ],
)
def test_a_path_through_links_means_what_it_leads_to(linked, pattern, names):
    found = paths(linked, pattern)[pattern]
    assert sorted(found) == sorted(names)
    with h5py.File(linked) as file:
        assert all(isinstance(file[name], h5py.Dataset) for name in found)
    assert list(described(str(linked), pattern)["objects"]["linked.h5"]) == found


def test_two_patterns_may_mean_a_dataset_by_two_of_its_paths_but_not_by_one(linked):
    both = paths(linked, "/entry/soft", "/entry/hard")
    assert both == {"/entry/soft": ["/entry/soft"], "/entry/hard": ["/entry/hard"]}
    with pytest.raises(Problem, match=r"/entry/soft is meant by /entry/soft and by /\*/soft; leave one of them out"):
        paths(linked, "/entry/soft", "/*/soft")
    assert paths(linked, "/**", "!/entry/hard") == {"/**": ["/entry/instrument/detector/mask"]}


def test_links_that_lead_nowhere_or_elsewhere_are_named(linked):
    words = left_out(linked)
    assert words["/out"] == "/out (external link; to other.h5, /x)"
    assert words["/gone"] == "/gone (soft link; /nothing is not there)"
    assert {"/one", "/two", "/through"} <= words.keys()
    assert list(left_out(linked, "/out/x")) == ["/out"]
    with pytest.raises(Problem, match=r"linked\.h5 has nothing that can be read: /out \(external link; to other\.h5"):
        described(str(linked), "/out/*")


def test_groups_within_each_other_and_names_with_line_ends_are_walked(tmp_path):
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
        group["line\nend"] = np.arange(3)
        file["group/*x"] = np.arange(3)
    with h5py.File(tmp_path / "deep.h5") as file:
        assert sum(1 for _ in tree.walk(file)) == 1500 + 4
    found = paths(tmp_path / "deep.h5", "/**")["/**"]
    assert [len(name) for name in found] == [2 * 1500 + len("/line\nend"), len("/group/*x")]


@pytest.mark.parametrize(
    "pattern, group, leads",
    [
        ("/a/*/c", "/a", True),
        ("/a/*/c", "/a/b", True),
        ("/a/*/c", "/a/b/d", False),
        ("/a**x", "/a", True),
        ("/**", "/", True),
        ("/?/x", "/ab", False),
        ("/a", "/a", False),
    ],
)
def test_a_pattern_leads_below_a_group_or_not(pattern, group, leads):
    assert bool(Pattern(pattern).positions_below(group)) == leads


# Values in other files.


def virtual(path: Path, sources: list[tuple[str, str]], name: str = "virtual") -> Path:
    """Write a virtual dataset of sources of 10 numbers, one below the other."""
    layout = h5py.VirtualLayout((len(sources), 10), "<f8")
    for row, source in enumerate(sources):
        layout[row] = h5py.VirtualSource(*source, (10,))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout, fillvalue=-1)
    return path


def frames(folder: Path, count: int = 2) -> list[tuple[str, str]]:
    for number in range(count):
        with h5py.File(folder / f"frames{number}.h5", "w") as file:
            file["x"] = np.arange(10.0) + number
    return [(f"frames{number}.h5", "x") for number in range(count)]


def test_a_virtual_dataset_is_read_where_all_of_its_sources_are(tmp_path):
    path = virtual(tmp_path / "a.h5", frames(tmp_path))
    made = described(str(path))
    whole = np.stack([np.arange(10.0), np.arange(10.0) + 1])
    assert made["objects"]["a.h5"]["/virtual"]["datasets"] == [["/virtual", *fingerprint(whole)]]
    assert made["objects"]["a.h5"]["/virtual"]["needs"] == "virtual datasets of other files"
    assert [file["name"] for file in made["files"]] == ["frames0.h5", "frames1.h5", "a.h5"]
    assert made["layout"]["files"] == 1
    (tmp_path / "frames1.h5").unlink()
    assert left_out(path) == {"/virtual": "/virtual (virtual; its source frames1.h5 is not there)"}
    with pytest.raises(Problem, match=r"a\.h5 has nothing that can be read: /virtual \(virtual; its source frames1"):
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
        layout = h5py.VirtualLayout((2, 10), "<f8")
        layout[:] = h5py.VirtualSource("middle.h5", "virtual", (2, 10))
        file.create_virtual_dataset("nested", layout)
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
        "/nested": "/nested (virtual; its source frames0.h5 is not there in middle.h5)",
        "/numbered": "/numbered (virtual; its source frames0.h5 is not there)",
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
    assert left_out(path)["/virtual"] == "/virtual (virtual; its source frames is not there)"


def test_values_that_a_copy_would_not_find_are_read_in_place_or_left_out(tmp_path):
    (tmp_path / "sub").mkdir()
    (source,) = frames(tmp_path, 1)
    path = virtual(tmp_path / "sub/a.h5", [(str(tmp_path / source[0]), "x")])
    assert left_out(path) == {}
    outside = rf"/virtual \(virtual; {tmp_path}/frames0\.h5 is outside {tmp_path}/sub; name it among the files, too\)"
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


# Sets of which some files lack something.


def test_a_file_that_lacks_what_is_named_is_left_out_and_counted(tmp_path):
    for number in (1, 2, 3):
        granule(tmp_path / f"g{number}.h5", number)
    with h5py.File(tmp_path / "g1.h5", "a") as file:
        del file["gt1r"]
    made = described(str(tmp_path), "/gt1r/**")
    assert (list(made["objects"]), made["layout"]["files_left_out"]) == (["g2.h5", "g3.h5"], 1)
    config = run_of({"mine": str(tmp_path / "*.h5")})
    config["studies"]["shots"]["data"]["datasets"] = ["/gt1r/**"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    done = program("preflight", "--configfile", tmp_path / "run.yaml")
    (line,) = [line for line in done.stdout.splitlines() if "data.files" in line]
    assert line.startswith("ok")
    assert line.endswith("2 datasets of it read, 3 files; 1 before it with nothing to read")
    with pytest.raises(
        Problem, match=r"g1\.h5 has no dataset that /gt9/\* means; it has /gt1l/land_ice_segments/h_li,"
    ):
        described(str(tmp_path), "/gt9/*")


def test_a_message_names_no_key_that_was_not_typed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("empty")
    with pytest.raises(Problem, match=r"a\.h5 has no datasets$"):
        described(str(tmp_path / "a.h5"))
