"""Archives of sessions from many hosts: checked, refused where something was changed, and compared over the hosts."""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, copy_project, sbench
from small_runs import TINY, launch, write

from sbench.design.matrix import build_permanent_name
from sbench.design.records import compute_digest
from sbench.files import buckets
from sbench.measure import gather
from sbench.probe.program import Problem, compute_file_digest, write_json
from sbench.runs import archive, compare_hosts, session_archives
from sbench.runs.rules import FAILED, parse_rules
from tests.helpers.records import COMPARE, FEW, newer_is, synthetic_cells, write_synthetic_run

CELLS = synthetic_cells(twins=1, **FEW)
SETTINGS = {"compare": COMPARE, "matrix": {}}
CONFIG = {"equivalence_percent": 5, "seed": 1, "stores": {}, "libraries": {}, "studies": {"shots": SETTINGS}}
HOSTS = "abcdef"
STUDY, FACTS = "shots", "shots/facts.json"
Contents = dict[str, bytes]


def pack_session(
    folder: Path, host: str, number: int, ratio: float = 1.1, scale: float = 1.0, **changes: object
) -> Path:
    """Write the archive of a session of six blocks on a host, where the newer library takes `ratio` times as long.

    `scale` multiplies all times of the host; `config` changes the configuration, and other names those of the record.
    """
    run = f"{host}{number}"
    config = CONFIG | {"run": run} | changes.pop("config", {})
    boot = changes.pop("boot_id", f"boot-{host}")
    facts = {"node": host, "cpu": "CPU", "cores": 2, "host_id": f"host-{host}", "boot_id": boot}

    def change(record: dict) -> dict:
        record["seconds"] = {name: value * scale for name, value in record["seconds"].items()}
        own = {"run": run, "session": f"2026-11-0{number}T0{HOSTS.find(host) + 1}:00:00Z", "host": facts, "read": ["a"]}
        return record | own | changes

    results = folder / "results" / run
    seed = 10 * ord(host) + number
    cells = [cell for cell in CELLS if cell["library"] in ("hdf5-1.14.6", "hdf5-2.0.0")]
    write_synthetic_run(results / STUDY, cells, 6, seed=seed, noise=0.01, ratio=newer_is(ratio), change=change)
    matrix, kept = gather.read_study(results / STUDY, run, STUDY)
    gather.write_tables(gather.build_tables(config, STUDY, matrix, kept, {}), results / STUDY)
    name = build_permanent_name(STUDY, config, sorted(compute_file_digest(one.path) for one in kept), {})
    about = {"run": run, "study": STUDY, "name": name, "sessions": [], "git": [], "config": config, "machine": facts}
    write_json(results / FACTS, about)
    packed = archive.write_archive(results)
    there = folder / "archives"
    there.mkdir(exist_ok=True)
    return Path(shutil.copy(packed, there / packed.name))


def pack_hosts(folder: Path) -> None:
    """Write two sessions on each of six hosts."""
    for host in HOSTS:
        for number in (1, 2):
            pack_session(folder, host, number)


@pytest.fixture
def archives(once: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the archives of twelve sessions, below the working directory."""
    for name in ("config", "notebooks", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(archive, "CITATION", ROOT / "CITATION.cff")
    shutil.copytree(once("gathered", pack_hosts), tmp_path, dirs_exist_ok=True)
    return Path("archives")


def compare_sessions(place: Path, fail_on: str = "") -> tuple[dict, dict]:
    sessions, refused = session_archives.load_sessions(str(place))
    names = session_archives.name_hosts(sessions)
    return compare_hosts.compare_study(STUDY, sessions, names, parse_rules(fail_on), refused)


def of_library(made: dict) -> dict:
    verdicts = made["verdicts"]
    return verdicts[verdicts["factor"] == "library"].iloc[0].to_dict()


def test_the_arms_are_compared_over_hosts(archives):
    facts, made = compare_sessions(archives, "slower > 5 %, more requests")
    row = of_library(made)
    assert (row["verdict"], row["blocks"], row["sessions_used"]) == ("slower", 6, 12)
    assert row["ratio"] == pytest.approx(1.1, rel=0.02)
    assert (row["slower_on"], row["faster_on"], row["same_on"], row["undecided_on"]) == (6, 0, 0, 0)
    assert 0 <= row["between_share_low"] <= row["between_share"] <= row["between_share_high"] <= 1
    assert 1.05 <= row["detectable_ratio"] < 1.1
    buffers = made["verdicts"][made["verdicts"]["factor"] == "page_buffer"]
    assert set(buffers["verdict"]) == {"same"}
    assert "control" not in set(made["verdicts"]["factor"])
    assert facts["outcome"]["broken"] == ["slower > 5 % in 2 of 4 comparisons"]
    assert facts["outcome"]["passed"] == ["more requests"]
    assert (len(made["hosts"]), len(made["sessions"])) == (4 * 6, 4 * 12)
    assert any("slower on 6 of 6 hosts" in line for line in facts["lines"])


def test_a_host_without_the_difference_is_counted(archives):
    for path in archives.glob("f*"):
        path.unlink()
    for number in (1, 2):
        pack_session(Path(), "f", number, ratio=1.0)
    facts, made = compare_sessions(archives)
    row = of_library(made)
    assert (row["slower_on"], row["same_on"]) == (5, 1)
    assert any("slower on 5 of 6 hosts, the same on 1" in line for line in facts["lines"])
    assert row["between_share"] > 0.8


def test_a_host_that_is_slower_in_both_arms_changes_no_verdict(archives):
    for path in archives.glob("f*"):
        path.unlink()
    for number in (1, 2):
        pack_session(Path(), "f", number, scale=1.3)
    _, made = compare_sessions(archives)
    assert set(made["verdicts"]["verdict"]) == {"slower", "same"}
    of_hosts = made["hosts"].groupby("host")["baseline_s"].median()
    assert of_hosts["host-f"] / of_hosts["host-a"] == pytest.approx(1.3, rel=0.05)


def test_containers_of_a_boot_and_boots_of_a_machine_are_one_host(archives):
    pack_session(Path(), "g", 1, boot_id="boot-f")
    pack_session(Path(), "f", 3, boot_id="another")
    sessions, _ = session_archives.load_sessions(str(archives))
    assert len(sessions) == 14
    assert len(set(session_archives.name_hosts(sessions))) == 6


def test_two_hosts_that_a_later_session_connects_are_one(archives):
    pack_session(Path(), "g", 1)
    pack_session(Path(), "g", 3, boot_id="boot-a")
    sessions, _ = session_archives.load_sessions(str(archives))
    assert len(set(session_archives.name_hosts(sessions))) == 6


def test_fewer_than_six_hosts_have_no_verdict(archives):
    for path in archives.glob("[ef]*"):
        path.unlink()
    facts, made = compare_sessions(archives, "slower")
    assert set(made["verdicts"]["verdict"]) == {"too few repeats"}
    assert facts["outcome"]["open"] == ["slower"]
    assert "a verdict needs 6 hosts" in facts["lines"][0]


# Changes to an archive. Each gets the contents of an archive, and those of another session.


def seal(contents: Contents) -> None:
    """Make the digests of all files in the manifest anew, but not the names."""
    manifest = json.loads(contents[archive.MANIFEST])
    manifest["files"] = {
        name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if name != archive.MANIFEST
    }
    contents[archive.MANIFEST] = json.dumps(manifest).encode()


def choose_record(contents: Contents) -> str:
    return next(name for name in sorted(contents) if "repeat=1" in name)


def edit_json(contents: Contents, name: str, change: Callable[[dict], None]) -> None:
    content = json.loads(contents[name])
    change(content)
    contents[name] = json.dumps(content, indent=1).encode()


def halve_time(contents: Contents, other: Contents) -> None:
    edit_json(contents, choose_record(contents), lambda record: record["seconds"].update(total=0.1))


def halve_time_with_digest(contents: Contents, other: Contents) -> None:
    def change(record: dict) -> None:
        record["seconds"]["total"] /= 2
        record["digest"] = compute_digest(record)

    edit_json(contents, choose_record(contents), change)


def halve_time_and_seal(contents: Contents, other: Contents) -> None:
    halve_time(contents, other)
    seal(contents)


def halve_time_with_digest_and_seal(contents: Contents, other: Contents) -> None:
    halve_time_with_digest(contents, other)
    seal(contents)


def remove_digest_of_record(contents: Contents, other: Contents) -> None:
    edit_json(contents, choose_record(contents), lambda record: record.pop("digest"))
    rename_consistently(contents)


def edit_record_and_rename_consistently(contents: Contents, other: Contents) -> None:
    halve_time(contents, other)
    rename_consistently(contents)


def remove_record(contents: Contents, other: Contents) -> None:
    del contents[choose_record(contents)]


def remove_record_and_seal(contents: Contents, other: Contents) -> None:
    remove_record(contents, other)
    seal(contents)


def add_record(contents: Contents, other: Contents) -> None:
    contents[choose_record(contents).replace("repeat=1", "repeat=7")] = contents[choose_record(contents)]


def take_record_of_another(contents: Contents, other: Contents) -> None:
    contents[choose_record(contents)] = other[choose_record(other)]


def take_record_of_another_consistently(contents: Contents, other: Contents) -> None:
    take_record_of_another(contents, other)
    rename_consistently(contents)


def edit_table(contents: Contents, other: Contents) -> None:
    contents["shots/verdicts.csv"] = contents["shots/verdicts.csv"].replace(b"slower", b"faster")


def swap_configuration(contents: Contents, other: Contents) -> None:
    contents[FACTS] = other[FACTS]


def swap_configuration_and_seal(contents: Contents, other: Contents) -> None:
    swap_configuration(contents, other)
    seal(contents)


def edit_configuration_and_seal(contents: Contents, other: Contents) -> None:
    edit_json(contents, FACTS, lambda facts: facts["config"].update(equivalence_percent=50))
    seal(contents)


def edit_configuration_consistently(contents: Contents, other: Contents) -> None:
    edit_json(contents, FACTS, lambda facts: facts["config"].update(equivalence_percent=50))
    rename_consistently(contents)


def edit_name_in_manifest(contents: Contents, other: Contents) -> None:
    edit_json(contents, archive.MANIFEST, lambda manifest: manifest.update(name="a1-0123456789"))


def rename_run_in_manifest(contents: Contents, other: Contents) -> None:
    def change(manifest: dict) -> None:
        manifest["run"] = "mine"
        manifest["name"] = build_permanent_name("mine", sorted(manifest["studies"].values()))

    edit_json(contents, archive.MANIFEST, change)


def take_all_of_another(contents: Contents, other: Contents) -> None:
    contents.clear()
    contents.update(other)


def mix_hosts_consistently(contents: Contents, other: Contents) -> None:
    def change(record: dict) -> None:
        record["host"]["host_id"] = "elsewhere"
        record["digest"] = compute_digest(record)

    edit_json(contents, choose_record(contents), change)
    rename_consistently(contents)


def edit_type_in_configuration(contents: Contents, other: Contents) -> None:
    edit_json(contents, FACTS, lambda facts: facts["config"].update(seed=["1"]))
    rename_consistently(contents)


def leave_studies_out_of_configuration(contents: Contents, other: Contents) -> None:
    edit_json(contents, FACTS, lambda facts: facts["config"].update(studies={}))
    rename_consistently(contents)


def edit_type_of_host(contents: Contents, other: Contents) -> None:
    def change(record: dict) -> None:
        record["host"]["host_id"] = ["host-a"]
        record["digest"] = compute_digest(record)

    edit_json(contents, choose_record(contents), change)
    rename_consistently(contents)


def edit_type_of_fact(contents: Contents, other: Contents) -> None:
    edit_json(contents, FACTS, lambda facts: facts.update(machine="CPU"))
    rename_consistently(contents)


def edit_type_of_hosts(contents: Contents, other: Contents) -> None:
    def change(record: dict) -> None:
        record["effective"] = {"hosts": [{"cpu": "CPU", "node": "b", "name": ["b"], "host_id": {}, "boot_id": 1}]}
        record["digest"] = compute_digest(record)

    edit_json(contents, choose_record(contents), change)
    rename_consistently(contents)


def rename_consistently(contents: Contents) -> None:
    """Make the names of the study and the archive those of the contents, and then all digests of files."""
    facts, manifest = json.loads(contents[FACTS]), json.loads(contents[archive.MANIFEST])
    digests = sorted(hashlib.sha256(content).hexdigest() for name, content in contents.items() if "/repeat=" in name)
    facts["name"] = build_permanent_name(STUDY, facts["config"], digests, {})
    contents[FACTS] = json.dumps(facts).encode()
    manifest["studies"] = {STUDY: facts["name"]}
    manifest["name"] = build_permanent_name(manifest["run"], [facts["name"]])
    contents[archive.MANIFEST] = json.dumps(manifest).encode()
    seal(contents)


def read_contents(path: Path) -> Contents:
    with tarfile.open(path, "r:xz") as packed:
        return {member.name: packed.extractfile(member).read() for member in packed}


def write_contents(path: Path, contents: Contents) -> Path:
    """Replace an archive by one with other contents, under the name that its manifest has."""
    path.unlink()
    name = json.loads(contents[archive.MANIFEST])["name"]
    with lzma.open(path.with_name(name + archive.SUFFIX), "wb") as file, tarfile.open(fileobj=file, mode="w") as packed:
        for member, content in contents.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path.with_name(name + archive.SUFFIX)


CHANGES = {
    halve_time: "differs from the archived file",
    halve_time_with_digest: "differs from the archived file",
    halve_time_and_seal: "the hash of the records and configuration of shots is",
    halve_time_with_digest_and_seal: "the hash of the records and configuration of shots is",
    edit_record_and_rename_consistently: "was edited, as its digest does not match",
    remove_digest_of_record: "was edited, as its digest does not match",
    remove_record: "is missing",
    remove_record_and_seal: "the hash of the records and configuration of shots is",
    add_record: "differs from the archived file",
    take_record_of_another: "differs from the archived file",
    take_record_of_another_consistently: "is a record of another run",
    edit_table: "differs from the archived file",
    swap_configuration: "differs from the archived file",
    swap_configuration_and_seal: "must name the studies of the archive",
    edit_configuration_and_seal: "the hash of the records and configuration of shots is",
    edit_configuration_consistently: "its configuration (equivalence_percent) differs from most of the others",
    edit_type_in_configuration: "seed: ['1'] is not of type integer",
    leave_studies_out_of_configuration: "studies: {} should be non-empty",
    edit_type_of_host: "does not identify its host",
    edit_type_of_hosts: "does not identify its host",
    edit_type_of_fact: "shots/facts.json: machine must be an object",
    edit_name_in_manifest: "must name the studies of the archive",
    rename_run_in_manifest: "is a record of another run (a1)",
    mix_hosts_consistently: "was measured on 2 hosts",
}


def expect_refused(place: Path, words: str, at: Path) -> None:
    sessions, refused = session_archives.load_sessions(str(place))
    assert len(refused) == 1, refused
    assert words in refused[0]
    assert str(at) in refused[0]
    assert "\n" not in refused[0]
    assert len(sessions) == 11


@pytest.mark.rule(23)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_archive_is_refused_and_the_others_are_compared(archives, change):
    (path,), (other,) = archives.glob("a1-*"), archives.glob("b1-*")
    contents = read_contents(path)
    change(contents, read_contents(other))
    expect_refused(archives, CHANGES[change], write_contents(path, contents))


@pytest.mark.rule(23)
def test_a_renamed_a_truncated_and_a_copied_archive_are_refused(archives):
    (path,), (other,) = archives.glob("a1-*"), archives.glob("b1-*")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    expect_refused(archives, "is not an archive of a run, or is incomplete", path)
    path.write_bytes(b"")
    expect_refused(archives, "is not an archive of a run", path)
    shutil.copy(other, path)
    expect_refused(archives, "contains b1-", path)
    path.unlink()
    shutil.copy(other, archives / "elsewhere.tar.xz")
    expect_refused(archives, "so it was renamed", archives / "elsewhere.tar.xz")
    (archives / "elsewhere.tar.xz").unlink()
    (archives / "copies").mkdir()
    copy = Path(shutil.copy(other, archives / "copies"))
    expect_refused(archives, "is a copy of", other if copy < other else copy)


@pytest.mark.rule(23)
def test_records_of_another_under_my_name_are_refused_with_the_original_even_if_all_digests_match(archives):
    (path,), (other,) = archives.glob("a1-*"), archives.glob("b1-*")
    contents = read_contents(other)
    for name in [name for name in contents if "/repeat=" in name]:
        record = json.loads(contents[name]) | {"run": "a1"}
        record["host"]["host_id"], record["host"]["boot_id"] = "host-a", "boot-a"
        contents[name] = json.dumps(record | {"digest": compute_digest(record)}, indent=1).encode()
    edit_json(contents, FACTS, lambda facts: facts["config"].update(run="a1"))
    edit_json(contents, archive.MANIFEST, lambda manifest: manifest.update(run="a1"))
    rename_consistently(contents)
    forged = write_contents(path, contents)
    _, refused = session_archives.load_sessions(str(archives))
    assert refused == [
        f"{forged} and {other} contain the same measurements under different names; remove the one that is not genuine"
    ]


def forge_counts(contents: Contents, library: str = "hdf5-2.0.0") -> None:
    for name in [name for name in contents if "/repeat=" in name]:
        record = json.loads(contents[name])
        if record["cell"]["library"] == library:
            record["requests"]["GET"]["count"] //= 2
        contents[name] = json.dumps(record | {"digest": compute_digest(record)}, indent=1).encode()
    rename_consistently(contents)


@pytest.mark.rule(11)
def test_forged_counts_contradict_those_of_other_sessions(archives):
    (path,) = archives.glob("a1-*")
    contents = read_contents(path)
    forge_counts(contents)
    forged = write_contents(path, contents).name.removesuffix(archive.SUFFIX)
    facts, _ = compare_sessions(archives)
    assert len(facts["contradictions"]) == 2
    assert all(line.startswith(f"{forged}: 10 requests in ") for line in facts["contradictions"])
    assert all(line.endswith("but 20 in 11 others") for line in facts["contradictions"])


def test_other_code_and_another_configuration_are_refused(archives):
    pack_session(Path(), "g", 1, config={"seed": 2})
    pack_session(Path(), "h", 1, provenance={"code_sha256": "0ther", "data_sha256": "da7a"})
    sessions, refused = session_archives.load_sessions(str(archives))
    assert len(sessions) == 12
    assert [re.sub(r".*: its", "its", line) for line in refused] == [
        "its configuration (seed) differs from most of the others; gather it separately",
        "its measuring code (0ther) differs from that (c0de) of most of the others; gather it separately",
    ]


def test_as_many_archives_of_one_configuration_as_of_another_are_a_mistake(archives):
    for path in archives.glob("[b-f]*"):
        path.unlink()
    for number in (1, 2):
        pack_session(Path(), "g", number, config={"seed": 2})
    with pytest.raises(Problem, match=r"its configuration \(seed\) differs from archives/.*, and as often"):
        session_archives.load_sessions(str(archives))


def test_an_archive_that_does_not_identify_its_host_is_refused(archives):
    pack_session(Path(), "g", 1, boot_id=None)
    _, refused = session_archives.load_sessions(str(archives))
    assert ["does not identify its host" in line for line in refused] == [True]


def test_a_place_without_archives_is_a_mistake(archives):
    with pytest.raises(Problem, match="nowhere contains no archives"):
        session_archives.load_sessions("nowhere")
    for path in archives.glob("*"):
        path.write_bytes(b"no archive")
    with pytest.raises(Problem, match="no archive of archives can be used: all 12 were refused"):
        session_archives.load_sessions(str(archives))


def test_too_few_remaining_hosts_are_a_mistake(archives, capsys):
    for path in archives.glob("f*"):
        path.write_bytes(b"")
    with pytest.raises(Problem, match="5 hosts remain after 2 archives of archives were refused"):
        compare_hosts.compare_hosts(str(archives))
    assert capsys.readouterr().err.count("refused: ") == 2


@pytest.mark.late
def test_the_command_gathers_a_folder_and_a_bucket_alike(archives, tmp_path):
    clone = copy_project(tmp_path / "clone")
    done = sbench("compare", "--gather", archives.resolve(), "--json", cwd=clone)
    assert (done.returncode, done.stderr.count("refused")) == (0, 0), done.stderr
    printed = json.loads(done.stdout)
    assert (printed["hosts"], len(printed["sessions"]), printed["refused"]) == (6, 12, [])
    page = (clone / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert "hdf5-2.0.0 took 10–11 % longer than hdf5-1.14.6" in page
    assert "slower on 6 of 6 hosts" in page
    assert "headline could not be confirmed" not in page
    (tmp_path / "bucket/deep").mkdir(parents=True)
    shutil.copytree(archives, tmp_path / "bucket/deep/sessions")
    (tmp_path / "bucket/deep/sessions.tar.xz").write_bytes(b"not below the prefix")
    with buckets.serve_buckets({"data": tmp_path / "bucket"}, {}) as served:
        env = buckets.build_environment(os.environ, served.variables)
        from_bucket = sbench("compare", "--gather", "s3://data/deep/sessions", "--json", cwd=clone, env=env)
        assert from_bucket.returncode == 0, from_bucket.stderr
        missing = sbench("compare", "--gather", "s3://data/other", cwd=clone, env=env)
    assert json.loads(from_bucket.stdout)["studies"] == printed["studies"]
    assert json.loads(from_bucket.stdout)["sessions"][0]["archive"].startswith("s3://data/deep/sessions/a1-")
    assert (missing.returncode, missing.stderr) == (
        2,
        "problem: s3://data/other contains no archives (*.tar.xz); write them with sbench archive\n",
    )


@pytest.mark.late
def test_the_exit_status_shows_refused_archives_contradictions_and_broken_rules(archives, tmp_path):
    clone = copy_project(tmp_path / "clone")
    (path,) = archives.glob("a1-*")
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    place = ("compare", "--gather", archives.resolve())
    done = sbench(*place, cwd=clone)
    assert done.returncode == compare_hosts.DOUBTFUL
    assert re.findall(r"^refused: .*a1-.*incomplete", done.stderr, re.MULTILINE)
    assert "Refused archives" in (clone / "reports/compare/shots.md").read_text(encoding="utf-8")
    assert sbench(*place, "--fail-on", "slower > 5 %", cwd=clone).returncode == FAILED
    path.write_bytes(whole)
    contents = read_contents(path)
    forge_counts(contents)
    write_contents(path, contents)
    done = sbench(*place, cwd=clone)
    assert done.returncode == compare_hosts.DOUBTFUL
    assert done.stderr.count("contradiction: ") == 2
    refused = sbench(*place, "a", "b", cwd=clone)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--gather compares the arms within archives" in refused.stderr


@pytest.mark.late
@pytest.mark.rule(11)
def test_forged_counts_are_detected_by_measuring_the_configuration_of_the_archive(clone: Path):
    shots = TINY["studies"]["shots"]
    matrix = shots["matrix"] | {"library": ["wheel"], "store": ["s3"], "driver": ["ros3"]}
    values = TINY | {
        "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.1.1"}},
        "stores": {"s3": {"kind": "s3", "bucket": "shots", "server": "embedded"}},
        "studies": {"shots": shots | {"matrix": matrix}},
    }
    write(clone, values)
    done = launch(clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sbench("archive", cwd=clone).returncode == 0
    (genuine,) = (clone / "results/tiny").glob(f"*{archive.SUFFIX}")
    contents = read_contents(genuine)
    forge_counts(contents, "wheel")
    forged = write_contents(Path(shutil.copy(genuine, clone)), contents)
    done = sbench("archive", forged, "--config", "mine.yaml", cwd=clone)
    assert (done.returncode, done.stdout) == (0, "mine.yaml: sbench run mine.yaml --name NAME measures it\n")
    done = sbench("run", "mine.yaml", "--name", "mine", "--yes", "--cores=2", cwd=clone)
    assert done.returncode == 0, done.stderr
    rules = ("--fail-on", "more requests, fewer requests")
    assert sbench("compare", genuine, "mine", *rules, cwd=clone).returncode == 0
    done = sbench("compare", forged, "mine", *rules, cwd=clone)
    assert done.returncode == FAILED
    assert "Fails: more requests in 2 of 2 cells" in done.stdout
