import csv
import gzip
import io
import json
import shutil
import tarfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from sbench.probe import packed
from sbench.probe.program import Problem
from sbench.probe.spool import Spool
from sbench.studies.volumes import fio, fio_options, import_fio
from tests.conftest import ROOT, program
from tests.helpers import fio_files, fio_results
from tests.helpers.fio_files import PUBLISHED, cut, imported, make_battery, make_json, ours, published_tarballs, tarball

pytestmark = pytest.mark.thorough

# The import.


def test_published_tarballs_give_the_published_table_value_by_value(tmp_path: Path, published: Path):
    table = published / "fio-ebs" / "all_metrics_long.csv"
    published_tarballs(table, tmp_path / "in")
    for folder in (tmp_path / "in").iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    names = [{"from": f"{tmp_path}/in/b2_{cluster}-*", "name": name} for cluster, (_, name) in PUBLISHED.items()]
    told = imported(tmp_path, names)
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = [row for record in told["records"] for row in record["samples"]]
    assert len(found) == len(rows) == 200
    for row, expected in zip(found, rows, strict=True):
        assert {key: row[key] for key in list(expected)[:4]} == {key: expected[key] for key in list(expected)[:4]}
        assert {key: row[key] for key in list(expected)[4:]} == {
            key: float(expected[key]) for key in list(expected)[4:]
        }
        assert list(row)[:9] == list(expected)
    assert [record["cell"]["job"] for record in told["records"]] == ["etcd-published"] * 4
    assert [record["cell"]["background"] for record in told["records"]] == ["unknown"] * 4
    assert all(record["valid"] for record in told["records"])
    assert found[49]["load1_before"] == 0.99
    assert told["left_out"] == []


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.xz"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_tarball_is_read_as_its_folder_is(tmp_path: Path, suffix: str, inside: bool):
    folder = make_battery(tmp_path / "in", host="ip-10-0-1-2.eu-west-1.compute-fio-x.internal")
    packed = tarball(folder, suffix, inside=inside)
    (unpacked,) = imported(tmp_path, [folder])["records"]
    (record,) = imported(tmp_path, [packed])["records"]
    assert record.pop("source") != unpacked.pop("source")
    assert record == unpacked
    assert record["cell"]["host"] == "ip-10-0-1-2.eu-west-1.compute-fio-x.internal"


def test_a_record_has_what_the_study_needs(tmp_path: Path):
    folder = ours(tmp_path / "in")
    volume = {"type": "gp3", "size_gib": 128, "iops": 3000}
    (record,) = imported(tmp_path, [{"from": str(folder), "name": "gp3x1", "volume": volume}])["records"]
    levels = {"store": "gp3x1", "job": "write-2300-sync-fdatasync", "background": "background", "host": "node.internal"}
    assert record["cell"] == levels | {"control": ""}
    assert record["name"].startswith("gp3x1_write-2300-sync-fdatasync_background_node.internal-")
    assert (record["status"], record["study"], record["run"], record["repeat"]) == ("done", "volumes", "elsewhere", 1)
    assert record["volume"] == volume | {"source": "the configuration"}
    assert record["work"] == {"jobs_asked": 2, "jobs_done": 2, "read_bytes": 0, "write_bytes": 4_600_000}
    assert (record["host"]["node"], record["host"]["kernel"], record["host"]["cores"]) == ("node.internal", "6.1", 2)
    assert record["battery"]["pause_s"] == 0.5
    assert record["seconds"]["total"] == pytest.approx(60 + record["samples"][1]["runtime_s"])
    assert {row["layout"] for row in record["samples"]} == {"gp3x1"}
    assert set(record["histograms"]) == {"a1", "a2"}
    assert all(sum(n for _, n in bins["sync"]) == 1000 for bins in record["histograms"].values())
    assert (record["valid"], record["reasons"]) == (True, [])


@pytest.mark.parametrize(
    "told, level",
    [
        ("background: none", "none"),
        ("background: logs\ndirectory: /mnt/a\nbackground_directory: /mnt/a", "same"),
        ("background: logs\ndirectory: /mnt/a\nbackground_directory: /mnt/b", "other"),
        ("background: logs", "logs"),
        ("jobs: 5", "unknown"),
    ],
)
def test_the_background_is_what_the_battery_says(tmp_path: Path, told: str, level: str):
    (make_battery(tmp_path / "in") / "battery.txt").write_text(told)
    (record,) = imported(tmp_path, [tmp_path / "in"])["records"]
    assert record["cell"]["background"] == level


def test_jobs_that_are_missing_make_a_record_invalid(tmp_path: Path):
    folder = ours(tmp_path / "in", status="interrupted")
    (folder / "fio_results_write_a2.json").unlink()
    (record,) = imported(tmp_path, [folder])["records"]
    assert record["reasons"] == ["the battery ended early: interrupted (rule 10)", "1 of 2 jobs done (rule 9)"]
    assert not record["valid"]


def test_folders_and_files_of_any_name_are_batteries(tmp_path: Path):
    tree = tmp_path / "results"
    for name in ("gp2/run_1", "gp3/run_1", "b1_t1-fio-h.internal", "."):
        for number in (1, 2):
            make_json(
                tree / name / f"{number}.json", f"a{number}", seed=hash(name) % 1000 + number, began_s=1.6e9 + number
            )
    told = imported(tmp_path, [tree])
    assert sorted((record["cell"]["store"], record["cell"]["host"]) for record in told["records"]) == [
        ("b1_t1", "h.internal"),
        ("gp2-run_1", "unknown"),
        ("gp3-run_1", "unknown"),
        ("results", "unknown"),
    ]
    (alone,) = imported(tmp_path, [tree / "gp2" / "run_1" / "2.json"])["records"]
    assert (alone["cell"]["store"], len(alone["samples"])) == ("run_1", 1)
    (pattern,) = imported(tmp_path, [f"{tree}/gp2/run_1/*.json"])["records"]
    assert [row["job_Id"] for row in pattern["samples"]] == ["a1", "a2"]


def test_a_battery_of_several_jobs_is_several_series(tmp_path: Path):
    folder = make_battery(tmp_path / "in", jobs=2)
    for number in (1, 2):
        options = {**fio_results.OPTIONS, "size": "2300000", "ioengine": "psync"}
        make_json(folder / f"other{number}.json", f"a{number}", number, options=options)
    records = imported(tmp_path, [folder])["records"]
    assert [record["cell"]["job"] for record in records] == ["write-2300-sync-fdatasync", "write-2300-psync-fdatasync"]
    assert [len(record["samples"]) for record in records] == [2, 2]
    assert all(record["valid"] for record in records)


def test_batteries_of_one_host_and_volume_are_repeats_in_time_order(tmp_path: Path):
    for number, began_s in ((1, 1.7e9), (2, 1.6e9)):
        make_battery(tmp_path / "in", fio_files.job(began_s=began_s), battery=f"b{number}", seed=number)
    records = imported(tmp_path, [{"from": str(tmp_path / "in"), "name": "gp2x1"}])["records"]
    assert [(record["battery"]["battery"], record["repeat"]) for record in records] == [("b1", 2), ("b2", 1)]
    assert len({record["name"] for record in records}) == 1


def test_a_battery_that_is_given_twice_is_taken_once(tmp_path: Path):
    folder = make_battery(tmp_path / "in", jobs=4)
    packed = tarball(folder)
    (folder / "fio_results_write_a3.json").unlink()
    told = imported(tmp_path, [tmp_path / "in", {"from": str(packed), "name": "gp2x1"}])
    (record,) = told["records"]
    assert (record["cell"]["store"], len(record["samples"])) == ("gp2x1", 4)
    reason = f"repeats 3 jobs of {packed}, which count once"
    assert told["left_out"] == [{"file": str(folder), "reason": reason}]


def test_a_mixture_is_read_and_what_is_not_fio_is_named_once(tmp_path: Path):
    tree = tmp_path / "in"
    tarball(make_battery(tree, cluster="t1"))
    shutil.rmtree(tree / fio_results.Battery(cluster="t1").folder)
    make_battery(tree, cluster="t2", seed=2)
    cut(make_json(tree / "b3_t3-fio-h" / "a1.json"))
    make_json(tree / "b3_t3-fio-h" / "a2.json", "a2")
    (tree / "package.json").write_text('{"name": "x"}')
    (tree / "notes.txt").write_text("nothing of use\n")
    (tree / ".hidden.json").write_text("{}")
    (tree / "broken.tar.gz").write_bytes(b"\x1f\x8bnot really")
    (tree / "empty").mkdir()
    told = imported(tmp_path, [tree])
    assert sorted(record["cell"]["store"] for record in told["records"]) == ["b2_t1", "b2_t2", "b3_t3"]
    assert {one["file"].removeprefix(f"{tree}/"): one["reason"].split(":")[0] for one in told["left_out"]} == {
        "package.json": "contains no fio results",
        "notes.txt": "contains no fio results",
        "broken.tar.gz": "is not a tarball or zip, or is damaged",
        "b3_t3-fio-h/a1.json": "is cut off",
    }
    assert len(told["left_out"]) == 4
    files = import_fio.list_sources([{"from": str(tree)}])
    assert files == sorted(files)
    assert {file.suffix for file in files} == {".gz", ".json", ".txt", ".log"}


def test_sources_names_each_file_once_or_says_what_is_missing(tmp_path: Path):
    first, second = (tarball(make_battery(tmp_path / "in", cluster=f"t{n}")) for n in (1, 2))
    named = [{"from": str(first)}, {"from": f"{tmp_path}/in/*.tar.gz"}]
    assert import_fio.list_sources(named) == [first, second]
    with pytest.raises(Problem, match="matches no file or folder; correct the path"):
        import_fio.list_sources([{"from": f"{tmp_path}/in/*.zip"}])
    with pytest.raises(Problem, match="does not exist; correct the path"):
        import_fio.list_sources([{"from": f"{tmp_path}/out"}])
    (tmp_path / "none").mkdir()
    with pytest.raises(Problem, match="contains no files"):
        import_fio.list_sources([{"from": f"{tmp_path}/none"}])


def test_the_program_ends_in_one_line_where_nothing_is_left(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.json").write_text("{}")
    out = tmp_path / "imported.json"
    for imports, words in (
        (
            [str(tmp_path / "in")],
            f"found no fio results: {tmp_path}/in/1.json contains no fio results (and 1 more)",
        ),
        ([str(tmp_path / "no")], f"imports: {tmp_path}/no does not exist; correct the path"),
        ([], "imports must name at least 1 tarball, folder or file, as a path or as from: path"),
    ):
        done = program(
            "sbench.studies.volumes.import_fio", "--imports", json.dumps(imports), "--run", "r", "--out", out
        )
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"problem: {words}")
        assert not out.exists()


# Tarballs of others.

JOB_FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "config" / "fio").glob("*.fio"))}
DATA = fio_results.text(fio_results.output(fio_files.job())).encode()


def pack_members(path: Path, *members: tuple[dict, bytes]) -> Path:
    """Write a tarball of members that tarfile itself would not make."""
    with tarfile.open(path, "w:gz") as archive:
        for facts, data in members:
            member = tarfile.TarInfo(facts.pop("name"))
            member.size = len(data)
            for key, value in facts.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return path


def lying(path: Path, size: int) -> Path:
    """Write a tarball whose first header gives another size than its content has."""
    first, second = (tarfile.TarInfo(f"b1_t1-fio-h/{name}.json") for name in ("a1", "a2"))
    first.size, second.size = size, len(DATA)
    padded = DATA + bytes(-len(DATA) % tarfile.BLOCKSIZE)
    path.write_bytes(gzip.compress(first.tobuf() + padded + second.tobuf() + padded + bytes(2 * tarfile.BLOCKSIZE)))
    return path


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({"name": "/etc/a1.json"}, "/etc/a1.json is an absolute path"),
        ({"name": "b1/../../a1.json"}, "b1/../../a1.json would lie outside its folder"),
        ({"name": "b1/link.json", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link (to /etc/passwd)"),
        ({"name": "b1/hard.json", "type": tarfile.LNKTYPE, "linkname": "b1/a1.json"}, "is a link (to b1/a1.json)"),
        ({"name": "b1/sda", "type": tarfile.BLKTYPE}, "b1/sda is neither a plain file nor a folder"),
        ({"name": "b1/tty", "type": tarfile.CHRTYPE}, "b1/tty is neither a plain file nor a folder"),
        ({"name": "b1/pipe.json", "type": tarfile.FIFOTYPE}, "b1/pipe.json is neither a plain file nor a folder"),
        ({"name": "b1/sparse.json", "type": tarfile.GNUTYPE_SPARSE}, "is neither a plain file nor a folder"),
        ({"name": "b1/two\nlines\x1b[0m", "type": tarfile.FIFOTYPE}, r"b1/two\nlines\x1b[0m is neither"),
    ],
)
def test_a_tarball_that_would_do_harm_is_refused_and_the_rest_is_read(tmp_path: Path, facts: dict, reason: str):
    good = tarball(make_battery(tmp_path / "in", cluster="t2"))
    bad = pack_members(tmp_path / "in" / "b1_t1-fio-h.tar.gz", ({"name": "b1/a1.json"}, DATA), (facts, b""))
    told = imported(tmp_path, [good, bad])
    (left,) = told["left_out"]
    assert left["file"] == str(bad)
    assert left["reason"].startswith("is not unpacked: ")
    assert reason in left["reason"]
    assert left["reason"].isprintable()
    assert [record["cell"]["store"] for record in told["records"]] == ["b2_t2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imported.json", "in"]


def test_bombs_are_refused_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = pack_members(tmp_path / "size.tar.gz", ({"name": "a.json"}, bytes(17 * 2**20)))
    with pytest.raises(Problem, match=r"a\.json has more than 16 MiB"):
        list(packed.read_members(path))
    path = pack_members(tmp_path / "name.tar.gz", ({"name": "a.json", "pax_headers": {"comment": "x" * 2**22}}, b""))
    with pytest.raises(Problem, match="a name or a header is too large"):
        list(packed.read_members(path))
    monkeypatch.setattr(packed, "TOTAL_BYTES", 2**23)
    monkeypatch.setattr(packed, "MEMBERS", 10)
    for kind in (".json", ""):
        path = pack_members(tmp_path / "total.tar.gz", *(({"name": f"{n}{kind}"}, bytes(2**20)) for n in range(9)))
        with pytest.raises(Problem, match="larger than 8 MiB"):
            list(packed.read_members(path))
    path = pack_members(tmp_path / "count.tar.gz", *(({"name": f"{n}"}, b"") for n in range(12)))
    with pytest.raises(Problem, match="more than 10 files and folders"):
        list(packed.read_members(path))
    # What comes after the end of the archive is unpacked as well when its checksum is looked at.
    whole = pack_members(tmp_path / "tail.tar.gz", ({"name": "a.json"}, DATA))
    whole.write_bytes(gzip.compress(gzip.decompress(whole.read_bytes()) + bytes(2**24)))
    with pytest.raises(Problem, match="larger than 8 MiB"):
        list(packed.read_members(whole))


@pytest.mark.parametrize("size", [10, len(DATA) - 600, len(DATA) + 5000, 2**40])
def test_a_header_that_lies_about_its_size_is_found_out(tmp_path: Path, size: int):
    path = lying(tmp_path / "b1_t1-fio-h.tar.gz", size)
    try:
        told = imported(tmp_path, [path, tarball(make_battery(tmp_path / "in"))])
    finally:
        assert sorted(one.name for one in tmp_path.iterdir()) == ["b1_t1-fio-h.tar.gz", "imported.json", "in"]
    assert [record["cell"]["store"] for record in told["records"]] == ["b2_t1"]
    assert [left["file"] for left in told["left_out"]][:1] == [str(path)]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_tarball_that_is_cut_off_is_named(tmp_path: Path, suffix: str, share: float):
    path = tarball(make_battery(tmp_path / "in"), suffix)
    shutil.rmtree(tmp_path / "in" / fio_results.Battery().folder)
    whole = path.read_bytes()
    # The end of a plain one is empty blocks, of which the last may be missing.
    path.write_bytes(whole[: int(min(share * len(whole), len(whole) - 20_000 if suffix == ".tar" else len(whole)))])
    make_json(tmp_path / "good" / "a1.json")
    told = imported(tmp_path, [path, tmp_path / "good"])
    (left,) = told["left_out"]
    assert left["file"] == str(path)
    assert left["reason"].startswith(("is cut off", "is not a tarball or zip, or is damaged"))
    assert len(told["records"]) == 1


def test_a_flipped_bit_is_found_out(tmp_path: Path):
    path = tarball(make_battery(tmp_path / "in"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Problem, match="is not a tarball or zip, or is damaged"):
        list(packed.read_members(path))


# Synthetic results, for the benchmarks.


def test_synthetic_batteries_are_as_drawn_and_collapse_where_they_should(tmp_path: Path):
    first = replace(fio_results.Job(), mean_ms=1.0, p99_ms=2.5)
    folder = make_battery(tmp_path, first, jobs=12, collapse_after=8, collapse=5.5, noise=0.0)
    battery = fio.read_battery(folder)
    rows = battery["samples"]
    assert battery["faults"] == []
    assert fio_options.choose_job_names([battery["job_options"]], JOB_FILES) == ["etcd-published"]
    for row, times in zip(rows, [1.0] * 8 + [5.5] * 4, strict=True):
        assert row["sync_lat_mean_ms"] == pytest.approx(1.0 * times, rel=0.02)
        assert row["sync_lat_p99_ms"] == pytest.approx(2.5 * times, rel=0.03)
        assert row["sync_N"] == row["write_ios"] == 91_180
    assert rows[8]["write_iops"] < rows[7]["write_iops"] / 5


def test_many_synthetic_files_are_batteries_of_fifty(tmp_path: Path):
    folders = fio_results.write_many(tmp_path / "in", 120)
    told = imported(tmp_path, [tmp_path / "in"])
    assert [len(list(folder.glob("*.json"))) for folder in folders] == [50, 50, 20]
    assert [len(record["samples"]) for record in told["records"]] == [50, 50, 20]
    assert all(record["valid"] for record in told["records"])


def test_what_jobs_hold_waits_on_the_disk(tmp_path: Path):
    def kept(jobs: int) -> int:
        for number in range(jobs):
            make_json(tmp_path / f"{jobs}/a{number}.json", f"a{number}", began_s=1_750_000_000 + 600 * number)
        tracemalloc.start()
        batteries, _ = import_fio.read_batteries([{"from": str(tmp_path / str(jobs))}], Spool())
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [battery["jobs"] for battery in batteries] == [jobs]
        return size

    few, many = kept(10), kept(110)
    # Samples and histograms of one have 10 kB.
    assert (many - few) / 100 < 1000
