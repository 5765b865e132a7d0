"""What is read of files of any structure, under which paths, and what is left out with its reason."""

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from conftest import ROOT, artefact, sbench
from granules import described, granule, left_out, paths, run_of

from sbench.probe import hdf5_tree
from sbench.probe.program import Problem, build_command
from sbench.studies.shots.choice import Pattern

pytestmark = pytest.mark.late

SPACE = h5py.h5s.create_simple((10,))


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
        "h5py does not support the type": 4,
    }
    assert made["layout"]["datasets_left_out"] == 8
    words = left_out(odd)
    assert words["/caf\\xe9"] == "/caf\\xe9 (its name is not UTF-8)"
    assert words["/structure"].startswith("/structure (h5py does not support the type; structure of 4 bytes: ")
    assert (
        words["/opaque"]
        == "/opaque (h5py does not support the type; opaque value of 7 bytes: HDF5 does not convert the type)"
    )
    assert words["/time"].startswith("/time (h5py does not support the type; time of 4 bytes: ")


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
    done = sbench("check", tmp_path / "run.yaml")
    assert "Traceback" not in done.stderr
    lines = {line.split()[1]: " ".join(line.split()) for line in done.stdout.splitlines() if "data.files" in line}
    amiss = {name: line.split()[0] == "FAILED" for name, line in lines.items()}
    assert amiss == {f"data.files.{name}:": name in ("none", "bad") for name in sorted(sets)}
    words = (
        "(/caf\\xe9 (its name is not UTF-8) and 1 more, /integer (h5py does not support the type; integer of 3 bytes"
    )
    assert words in lines["data.files.odd:"]
    assert "contains nothing readable: /time (h5py does not support the type" in lines["data.files.none:"]


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
        "/packed": "/packed (a filter is missing; blosc, which is available only as a plugin of HDF5)"
    }


# What is too large.


def limited(limit_kib: int, *command: object) -> subprocess.CompletedProcess:
    shell = ["sh", "-c", f'ulimit -v {limit_kib}; exec "$0" "$@"', *build_command(*command)]
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
    done = limited(2 * 2**20, "sbench.cli", "check", tmp_path / "run.yaml")
    (line,) = [line for line in done.stdout.splitlines() if "data.files" in line]
    assert line.startswith("ok")
    assert "/chunks (too large for selection all; it needs 74.51 GiB of memory" in line
    settings = f'{{"files": "{path}", "datasets": ["/**"], "layout": "mine"}}'
    options = ("--dataset", "d", "--out", tmp_path / "manifest.json", "--settings", settings)
    done = limited(2 * 2**20, "sbench.studies.shots.make", *options)
    assert done.returncode == 0, done.stderr
    made = artefact(tmp_path / "manifest.json")
    assert (list(made["objects"]["sparse.h5"]), made["left_out"][0]["count"]) == (["/small"], 2)
    assert "left out: /chunks (too large; it needs 74.51 GiB of memory (free: " in done.stdout


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
    with pytest.raises(
        Problem, match=r"/entry/soft matches both /entry/soft and /\*/soft; remove one of these patterns"
    ):
        paths(linked, "/entry/soft", "/*/soft")
    assert paths(linked, "/**", "!/entry/hard") == {"/**": ["/entry/instrument/detector/mask"]}


def test_links_that_lead_nowhere_or_elsewhere_are_named(linked):
    words = left_out(linked)
    assert words["/out"] == "/out (external link; to other.h5, /x)"
    assert words["/gone"] == "/gone (soft link; /nothing does not exist)"
    assert {"/one", "/two", "/through"} <= words.keys()
    assert list(left_out(linked, "/out/x")) == ["/out"]
    with pytest.raises(Problem, match=r"linked\.h5 contains nothing readable: /out \(external link; to other\.h5"):
        described(str(linked), "/out/*")


def test_groups_within_each_other_and_names_with_line_ends_are_walked(tmp_path):
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
        group["line\nend"] = np.arange(3)
        file["group/*x"] = np.arange(3)
    with h5py.File(tmp_path / "deep.h5") as file:
        assert sum(1 for _ in hdf5_tree.walk_links(file)) == 1500 + 4
    found = paths(tmp_path / "deep.h5", "/**")["/**"]
    assert [len(name) for name in found] == [2 * 1500 + len("/line\nend"), len("/group/*x")]


def test_of_groups_that_are_nested_without_end_the_first_2_000_are_walked_and_a_short_line_says_so(tmp_path):
    with h5py.File(tmp_path / "deeper.h5", "w") as file:
        group = file.id
        for _ in range(2100):
            group = h5py.h5g.create(group, b"g")
        file["x"] = np.arange(3)
    with h5py.File(tmp_path / "deeper.h5") as file:
        assert sum(1 for _ in hdf5_tree.walk_links(file)) == 2000 + 3
    assert paths(tmp_path / "deeper.h5", "/**") == {"/**": ["/x"]}
    (words,) = left_out(tmp_path / "deeper.h5", "/**").values()
    assert words.endswith("/g (cannot be opened; it is nested in 2,000 groups; its members are left out)")
    assert len(words) < 300


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
    assert bool(Pattern(pattern).find_positions_below(group)) == leads


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
    done = sbench("check", tmp_path / "run.yaml")
    (line,) = [line for line in done.stdout.splitlines() if "data.files" in line]
    assert line.startswith("ok")
    assert line.endswith("2 datasets to read, 3 files; nothing to read in 1 file before it")
    with pytest.raises(Problem, match=r"g1\.h5 matches /gt9/\*; available: /gt1l/land_ice_segments/h_li,"):
        described(str(tmp_path), "/gt9/*")


def test_a_message_names_no_key_that_was_not_typed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("empty")
    with pytest.raises(Problem, match=r"a\.h5 contains no datasets$"):
        described(str(tmp_path / "a.h5"))
