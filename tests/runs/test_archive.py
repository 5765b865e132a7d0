"""A run in one file: packed, refused where it was tampered with, made into the same pages elsewhere, and cited."""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, artefact, copy_project, sbench
from small_runs import TINY, snakemake, write

from sbench.design.matrix import build_permanent_name
from sbench.design.records import compute_digest
from sbench.probe.program import Problem, replace_file, run_main
from sbench.runs import archive, cite, rebuild

# Nothing listens there: whoever asks for an address of the network is refused.
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
SAME = (".md", ".svg", ".csv")
COMMITTED = SAME[:2]
EXAMPLE_BYTES = 2 * 2**20


@pytest.fixture
def packed(tiny_run: Path) -> Path:
    """Return the archive of a run that was measured."""
    done = sbench("archive", cwd=tiny_run)
    assert done.returncode == 0, done.stderr
    (path,) = (tiny_run / "results/tiny").glob(f"*{archive.SUFFIX}")
    assert str(path.relative_to(tiny_run)) in done.stdout
    return path


def changed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write an archive anew with other contents."""
    with tarfile.open(path, "r:xz") as old:
        contents = {member.name: old.extractfile(member).read() for member in old}
    change(contents)
    out = path.with_name(f"changed{archive.SUFFIX}")
    with lzma.open(out, "wb") as file, tarfile.open(fileobj=file, mode="w") as new:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return out


def files(reports: Path, kinds: tuple[str, ...] = SAME) -> dict[str, bytes]:
    """Return what has to be alike of a run's pages, by path."""
    return {str(path.relative_to(reports)): path.read_bytes() for path in reports.rglob("*") if path.suffix in kinds}


def faster(contents: dict[str, bytes]) -> str:
    """Make the first record faster, sealed as if it had been measured so, and return its name."""
    name = next(name for name in contents if "repeat=" in name)
    record = json.loads(contents[name])
    record["seconds"]["total"] /= 2
    contents[name] = (
        json.dumps(record | {"digest": compute_digest(record)}, indent=1, ensure_ascii=False).encode() + b"\n"
    )
    return name


@pytest.mark.late
@pytest.mark.rule(22)
def test_an_archive_gives_the_same_pages_elsewhere_without_a_network(packed, tiny_run, tmp_path):
    elsewhere = copy_project(tmp_path / "elsewhere")
    shutil.copy(packed, elsewhere)
    done = sbench("report", packed.name, cwd=elsewhere, env=OFFLINE)
    assert done.returncode == 0, done.stderr
    assert "other tables" not in done.stderr
    before, after = (files(clone / "reports/tiny") for clone in (tiny_run, elsewhere))
    assert {"index.md", "shots.md"} < before.keys()
    assert any(name.endswith(".svg") for name in before)
    assert after == before
    assert not (elsewhere / "results").exists()
    # The same again replaces its own pages.
    assert sbench("report", packed.name, cwd=elsewhere).returncode == 0


@pytest.mark.late
@pytest.mark.rule(22)
def test_the_example_is_an_archive_of_a_full_run_and_its_pages_are_those_of_its_records(clone):
    (packed,) = (ROOT / "results/example").glob(f"*{archive.SUFFIX}")
    assert packed.stat().st_size <= EXAMPLE_BYTES
    done = sbench("report", packed, cwd=clone)
    assert done.returncode == 0, done.stderr
    with archive.open_archive(packed) as (_, manifest):
        default = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
        assert sorted(manifest["studies"]) == sorted(default["studies"])
    committed, made = (files(root / "reports/example", COMMITTED) for root in (ROOT, clone))
    assert committed.keys() == made.keys()
    assert [name for name, content in committed.items() if made[name] != content] == []


@pytest.mark.late
def test_an_archive_that_is_refused_at_its_last_study_leaves_no_page_of_its_first(tmp_path, clone):
    def tamper(contents: dict[str, bytes]) -> None:
        manifest, facts = json.loads(contents[archive.MANIFEST]), "volumes/facts.json"
        manifest["studies"]["volumes"] = "volumes-0123456789"
        manifest["name"] = build_permanent_name(manifest["run"], sorted(manifest["studies"].values()))
        contents[facts] = json.dumps(json.loads(contents[facts]) | {"name": "volumes-0123456789"}).encode()
        manifest["files"][facts] = hashlib.sha256(contents[facts]).hexdigest()
        contents[archive.MANIFEST] = json.dumps(manifest).encode()

    (packed,) = (ROOT / "results/example").glob(f"*{archive.SUFFIX}")
    done = sbench("report", changed(Path(shutil.copy(packed, tmp_path)), tamper), cwd=clone)
    assert done.returncode == 2
    assert "the hash of its records and configuration is volumes-" in done.stderr
    assert list((clone / "reports").glob("example/*.html")) == []


@pytest.mark.late
def test_published_data_that_figures_have_beside_a_run_are_in_its_archive(tiny_run, tmp_path):
    shutil.copytree(ROOT / "results/published/shots", tiny_run / "results/published/shots")
    shutil.rmtree(tiny_run / "results/published/shots/tables", ignore_errors=True)
    config = {**TINY, "studies": {"shots": TINY["studies"]["shots"] | {"reference": "published/shots"}}}
    write(tiny_run, config)
    assert snakemake(tiny_run).returncode == 0
    assert sbench("archive", cwd=tiny_run).returncode == 0
    (path,) = (tiny_run / "results/tiny").glob(f"*{archive.SUFFIX}")
    elsewhere = copy_project(tmp_path / "elsewhere")
    done = sbench("report", path, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert files(elsewhere / "reports/tiny") == files(tiny_run / "reports/tiny")
    assert "ublished: " in (elsewhere / "reports/tiny/shots.md").read_text(encoding="utf-8")


@pytest.mark.late
def test_pages_of_other_records_are_not_overwritten(packed, tiny_run):
    page = tiny_run / "reports/tiny/shots_answers.json"
    page.write_text(json.dumps(artefact(page) | {"name": "shots-0123456789"}), encoding="utf-8")
    done = sbench("report", packed, cwd=tiny_run)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "reports/tiny shows shots-0123456789; choose another --name" in done.stderr
    assert sbench("report", packed, "--name", "other", cwd=tiny_run).returncode == 0
    assert (tiny_run / "reports/other/index.html").exists()


def test_the_name_of_an_archive_is_that_on_its_pages_and_follows_from_records_and_configuration(packed, tiny_run):
    page = (tiny_run / "reports/tiny/index.md").read_text(encoding="utf-8")
    assert f"`{packed.name.removesuffix(archive.SUFFIX)}`" in page
    with archive.open_archive(packed) as (results, manifest):
        (name,) = manifest["studies"].values()
        assert name in (tiny_run / "reports/tiny/shots.md").read_text(encoding="utf-8")
        assert archive.read_study_names(results) == manifest["studies"]
    again = sbench("archive", cwd=tiny_run)
    assert packed.name in again.stdout


@pytest.mark.parametrize("what", ["record", "table", "added", "removed", "manifest"])
def test_an_archive_that_was_tampered_with_is_refused_by_name(packed, what):
    def tamper(contents: dict[str, bytes]) -> None:
        names = {"record": faster, "table": lambda _: "shots/cells.csv", "removed": lambda _: "shots/cells.csv"}
        changes["name"] = names.get(what, lambda _: "shots/more.csv")(contents)
        if what == "table":
            contents["shots/cells.csv"] += b"\n"
        elif what == "added":
            contents["shots/more.csv"] = b"a"
        elif what == "removed":
            del contents["shots/cells.csv"]
        elif what == "manifest":
            contents[archive.MANIFEST] = b"{}"
            changes["name"] = archive.MANIFEST

    changes: dict[str, str] = {}
    with pytest.raises(Problem) as refused, archive.open_archive(changed(packed, tamper)):
        pass
    assert re.escape(changes["name"]) in re.escape(str(refused.value))


def test_an_archive_whose_manifest_was_made_to_fit_has_another_name(packed, tiny_run):
    def tamper(contents: dict[str, bytes]) -> None:
        name, manifest = faster(contents), json.loads(contents[archive.MANIFEST])
        manifest["files"][name] = hashlib.sha256(contents[name]).hexdigest()
        contents[archive.MANIFEST] = json.dumps(manifest).encode()

    done = sbench("report", changed(packed, tamper), "--name", "other", cwd=tiny_run)
    assert (done.returncode, done.stderr.splitlines()[-1].count("problem: ")) == (2, 1)
    assert "the hash of its records and configuration is shots-" in done.stderr


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("files", {"../outside": hashlib.sha256(b"a").hexdigest()}, "../outside would lie outside its folder"),
        (
            "run",
            "../tiny",
            "the name of a run must consist of letters, digits, dots, hyphens and underscores (got '../tiny')",
        ),
        ("studies", {"../shots": "shots-0123456789"}, "the study ../shots, which this version does not know"),
        ("files", ["shots/cells.csv"], "manifest.json lacks files"),
    ],
)
def test_what_would_leave_the_folder_is_refused(packed, key, value, words):
    def tamper(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents[archive.MANIFEST])
        if key == "files":
            contents.clear()
        contents[archive.MANIFEST] = json.dumps(manifest | {key: value}).encode()
        if key == "files":
            contents["../outside"] = b"a"

    with pytest.raises(Problem, match=re.escape(words)), archive.open_archive(changed(packed, tamper)):
        pass


LINK = "shots/link.csv"
FACTS = {"name": "shots-0123456789", "config": {}, "sessions": [], "git": []}


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    """Return what an archive says of a file, or of a link."""
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, "/etc/passwd" if kind == tarfile.SYMTYPE else "shots/facts.json"
    return made


def minimal(path: Path, facts: dict, *more: tarfile.TarInfo) -> Path:
    """Write an archive of facts alone and of more files of zeros, all of them in its manifest."""
    contents = {"shots/facts.json": json.dumps(facts).encode()}
    studies = {"shots": FACTS["name"]}
    manifest = {
        "run": "tiny",
        "name": build_permanent_name("tiny", [FACTS["name"]]),
        "version": "0.1.0",
        "studies": studies,
    }
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    manifest["files"] = hashes | {one.name: hashlib.sha256(b"").hexdigest() for one in more}
    contents = {archive.MANIFEST: json.dumps(manifest).encode()} | contents
    with lzma.open(path, "wb", preset=0) as file, tarfile.open(fileobj=file, mode="w") as new:
        for name, content in contents.items():
            new.addfile(entry(name, size=len(content)), io.BytesIO(content))
        with open("/dev/zero", "rb") as zeros:
            for one in more:
                new.addfile(one, zeros)
    return path


@pytest.mark.parametrize(
    "added, words",
    [
        (entry(LINK, tarfile.SYMTYPE), f"{LINK} is a link (to /etc/passwd)"),
        (entry(LINK, tarfile.LNKTYPE), f"{LINK} is a link (to shots/facts.json)"),
        (entry(LINK, tarfile.FIFOTYPE), f"{LINK} is neither a plain file nor a folder"),
        (entry(LINK, tarfile.DIRTYPE), f"{LINK!r} differs from the archived file"),
        (entry("."), "'.' differs from the archived file"),
        (entry("shots/" + 300 * "x"), "xxx' differs from the archived file"),
        (entry("shots/facts.json/more"), "'shots/facts.json/more' differs from the archived file"),
        (entry("shots/zeros.csv", size=2**27), "shots/zeros.csv has more than "),
        (entry("/etc/storage"), "/etc/storage is an absolute path"),
    ],
)
def test_what_is_no_file_of_a_run_is_refused_though_the_manifest_names_it(tmp_path, added, words):
    """Links, devices, names that cannot be written, and what is far larger than it was packed."""
    out = minimal(tmp_path / f"other{archive.SUFFIX}", FACTS, added)
    with pytest.raises(Problem) as refused, archive.open_archive(out):
        pass
    assert words in str(refused.value)
    assert str(refused.value).startswith(str(out))


def write_raw(path: Path, *blocks: bytes) -> Path:
    """Compress the headers and contents of a tarball that tarfile would not make."""
    with lzma.open(path, "wb", preset=0) as file:
        for block in blocks:
            file.write(block)
    return path


def header(kind: bytes, size: int = 0, name: str = "x") -> bytes:
    return entry(name, kind, size).tobuf()


ZEROS = 2**28
EMPTY = {f"shots/records/{number // 100}/{number}.json": hashlib.sha256(b"").hexdigest() for number in range(100_000)}
MANY = json.dumps({"run": "tiny", "name": "tiny", "version": "0.1.0", "studies": {}, "files": EMPTY}).encode()


@pytest.mark.parametrize(
    "blocks, words",
    [
        ([header(tarfile.GNUTYPE_LONGNAME, ZEROS), bytes(ZEROS)], "a name or a header is too large"),
        ([header(tarfile.XHDTYPE, ZEROS), bytes(ZEROS)], "a name or a header is too large"),
        ([header(tarfile.XGLTYPE, ZEROS), bytes(ZEROS)], "a name or a header is too large"),
        ([2_000 * header(tarfile.GNUTYPE_LONGNAME)], "is not an archive of a run"),
        ([header(tarfile.XHDTYPE, 27), b"27 GNU.sparse.map=1,x\n".ljust(512, b"\0")], "is not an archive of a run"),
        ([entry(archive.MANIFEST, size=len(MANY)).tobuf(), MANY], "names more than 20,000 files"),
    ],
    ids=["name", "header", "global-header", "names-of-names", "map", "empty-files"],
)
def test_a_header_that_claims_much_takes_little_memory(tmp_path, blocks, words):
    path = write_raw(tmp_path / f"other{archive.SUFFIX}", *blocks)
    tracemalloc.start()
    with pytest.raises(Problem, match=words), archive.open_archive(path):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < ZEROS / 4


@pytest.mark.parametrize("change", [{"config": 3}, {"sessions": None}, {"git": None}, {"name": 4}])
def test_facts_of_an_archive_that_lack_something_are_one_line_with_its_name(tmp_path, change):
    path = minimal(tmp_path / f"other{archive.SUFFIX}", FACTS | change)
    with pytest.raises(Problem, match="must name the studies of the archive") as refused, archive.open_archive(path):
        pass
    assert str(refused.value).startswith(str(path))
    with archive.open_archive(minimal(path, FACTS)) as (results, _):
        assert archive.read_study_names(results) == {"shots": FACTS["name"]}


def test_a_pipe_is_no_archive_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.tar.xz")
    with pytest.raises(Problem, match="must be a file"), archive.open_archive(tmp_path / "pipe.tar.xz"):
        pass


def test_what_a_program_that_fails_says_last_is_named_with_the_program(monkeypatch):
    monkeypatch.setattr(rebuild.sys, "executable", "/bin/false")
    with pytest.raises(Problem, match=r"scripts/gather\.py failed: 1"):
        rebuild.run_program("gather")


def test_a_run_without_sessions_or_commits_is_cited_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "my_run/volumes"
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text(json.dumps(FACTS), encoding="utf-8")
    text = cite.format_citation(tmp_path / "my_run", "Ada Lovelace")
    assert "(volumes), unknown date, with storage-benchmarks" in text
    assert "year = {n.d.}" in text
    assert "commit unknown;" in text
    assert r"Measurements my\_run-" in text


def test_the_pages_of_an_archive_lie_in_a_folder_of_reports(packed, tiny_run):
    done = sbench("report", packed, "--name", "../other", cwd=tiny_run)
    assert (done.returncode, done.stderr) == (
        2,
        "problem: --name: the name of a run must consist of letters, digits, dots, hyphens and underscores (got"
        " '../other')\n",
    )


def test_the_pages_of_an_archive_do_not_replace_those_of_a_comparison(packed, tiny_run):
    done = sbench("report", packed, "--name", "compare", cwd=tiny_run)
    words = "--name: compare already contains other pages; choose another --name"
    assert (done.returncode, done.stderr) == (2, f"problem: {words}\n")


def test_an_interrupt_is_one_line_and_leaves_nothing_half_written(tmp_path, capsys):
    def interrupted() -> None:
        with replace_file(tmp_path / "whole") as part:
            part.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run_main(interrupted)
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"a,b\n1,2\n", lambda data: b""])
def test_what_is_no_whole_archive_is_one_line(packed, damage, tiny_run):
    path = packed.with_name(f"damaged{archive.SUFFIX}")
    path.write_bytes(damage(packed.read_bytes()))
    done = sbench("report", path, cwd=tiny_run)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "is not an archive of a run, or is incomplete" in done.stderr


def test_a_run_without_tables_and_one_of_an_earlier_version_are_one_line(tiny_run):
    done = sbench("archive", "nothing", cwd=tiny_run)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "results/nothing lacks tables; measure first (sbench run)" in done.stderr
    facts = tiny_run / "results/tiny/shots/facts.json"
    older = {key: value for key, value in artefact(facts).items() if key != "name"}
    facts.write_text(json.dumps(older), encoding="utf-8")
    done = sbench("archive", cwd=tiny_run)
    assert "facts.json is from an earlier version; write it again with sbench run" in done.stderr


def test_a_run_is_cited_as_a_sentence_and_for_bibtex_the_same_from_its_archive(packed, tiny_run):
    name = packed.name.removesuffix(archive.SUFFIX)
    done = sbench("archive", "--cite", cwd=tiny_run)
    assert done.returncode == 0, done.stderr
    sentence, entry = done.stdout.split("\n\n")
    (session,) = artefact(tiny_run / "results/tiny/shots/facts.json")["sessions"]
    assert f"measurements {name} (shots), {session[:10]}, with storage-benchmarks" in sentence
    assert entry.startswith(f"@misc{{{name},\n")
    assert f"year = {{{session[:4]}}}" in entry
    assert entry.count("{") == entry.count("}")
    assert sbench("archive", "--cite", packed, cwd=tiny_run).stdout == done.stdout
