"""The workflow as a whole: shipped configurations plan, the smoke run measures, and bad luck loses nothing."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from batteries import until
from conftest import ROOT, artefact, processes_of, program

from scripts.benchmarks.fio_results import Battery, write_battery

SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))
CONFIGS = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if path.name != "schema.yaml")
# Small enough that one call takes seconds: a wheel, one file, the disk.
TINY = {
    "run": "tiny",
    "repeats": 2,
    "libraries": {"hdf5-2.0.0": {"kind": "wheel", "hdf5": "2.0.0"}},
    "stores": {"disk": {"kind": "posix"}},
    "studies": {
        "shots": {
            "data": {"shots": 2, "signals": 4},
            "control_cells": 0,
            "matrix": {
                "library": ["hdf5-2.0.0"],
                "store": ["disk"],
                "driver": ["sec2"],
                "layout": ["single-shot"],
                "access": ["shots", "signals"],
                "workers": [1],
                "page_buffer": ["unset"],
                "cache": ["any"],
            },
            "compare": [{"factor": "access", "baseline": "shots"}],
        }
    },
}
_SHOTS = TINY["studies"]["shots"]
SINGLE = TINY | {
    "repeats": 1,
    "studies": {"shots": _SHOTS | {"matrix": _SHOTS["matrix"] | {"access": ["shots"]}, "compare": []}},
}


def snakemake(clone: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess:
    command = [SNAKEMAKE, "--cores", "2", *arguments]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def tiny(clone: Path) -> Path:
    """Return a clone with a tiny configuration as its default one."""
    write(clone, TINY)
    return clone


def write(clone: Path, values: dict) -> None:
    (clone / "config/config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def records(clone: Path, run: str = "tiny", study: str = "shots") -> dict[str, dict]:
    folder = clone / "results" / run / study / "records"
    return {str(path.relative_to(folder)): artefact(path) for path in sorted(folder.glob("*/repeat=*.json"))}


def planned(clone: Path, *arguments: str) -> dict[str, int]:
    """Return how many jobs of each rule a dry run would start."""
    done = snakemake(clone, "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    words = (line.split() for line in (done.stdout + done.stderr).splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isdigit()}


def test_the_workflow_is_linted():
    done = subprocess.run([SNAKEMAKE, "--lint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_every_shipped_configuration_can_be_planned(clone, name):
    (clone / "imports").mkdir()
    (clone / "imports/results.json").touch()
    jobs = planned(clone, "--configfile", f"config/{name}")
    assert jobs["measure" if name != "import.yaml" else "import_fio"] > 0
    assert jobs["check"] == 1


@pytest.mark.parametrize("run", ["|\n  x\n", "..", "x" * 300])
def test_a_run_named_on_the_command_line_obeys_the_schema(tiny, run):
    done = snakemake(tiny, "--dry-run", "--config", f"run={run}")
    said = done.stdout + done.stderr
    (line,) = [line for line in said.splitlines() if "problem: " in line]
    assert "config/config.yaml: run: " in line
    assert "Traceback" not in said


def test_the_smoke_run_measures_judges_and_reports_on_real_servers(clone, environments):
    done = snakemake(clone, "--configfile", "config/smoke.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = records(clone, "smoke")
    assert len(measured) == 12
    assert [record["reasons"] for record in measured.values() if not record["valid"]] == []
    order = sorted(measured.values(), key=lambda record: record["position"])
    assert [record["started_utc"] for record in order] == sorted(record["started_utc"] for record in measured.values())
    batteries = records(clone, "smoke", "volumes")
    assert [record["reasons"] for record in batteries.values() if not record["valid"]] == []
    assert [len(record["samples"]) for record in batteries.values()] == [3, 3]
    # Cells of one study are not measured between those of another, and volumes in the order of the matrix.
    started = [record["started_utc"] for record in batteries.values()]
    assert [order[-1]["started_utc"], *started] == sorted([order[-1]["started_utc"], *started])
    assert not list((clone / "results/smoke").rglob("storage-benchmarks-fio"))
    index = (clone / "reports/smoke/index.html").read_text(encoding="utf-8")
    assert "HDF5" in index
    assert "fdatasync" in index
    for name in ("shots.html", "shots.md", "shots_files", "volumes.html", "volumes.md", "volumes_files"):
        assert (clone / "reports/smoke" / name).exists()
    verdicts = (clone / "results/smoke/shots/verdicts.csv").read_text(encoding="utf-8")
    assert "too few repeats" in verdicts
    again = snakemake(clone, "--configfile", "config/smoke.yaml")
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr
    until(lambda: processes_of(str(clone)) == [])


def test_results_of_fio_are_reported_without_measuring_anything(clone):
    battery = write_battery(clone / "imports", Battery(jobs=8))
    (battery / "strange.json").write_text("no JSON", encoding="utf-8")
    done = program("launch", "--configfile", "config/import.yaml", "--cores", 2, cwd=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (clone / "reports/imported/volumes.md").read_text(encoding="utf-8")
    assert "etcd's 10 ms" in page
    assert "strange.json" in page
    assert not (clone / "results/imported/volumes/records").exists()
    again = snakemake(clone, "--configfile", "config/import.yaml")
    assert "Nothing to be done" in again.stdout + again.stderr
    shutil.rmtree(clone / "imports")
    gone = program("launch", "--configfile", "config/import.yaml", "--cores", 2, cwd=clone)
    assert gone.returncode == 2
    assert gone.stderr.splitlines()[-1] == "problem: imports: there is no file or folder imports"


def test_no_secret_is_in_any_artefact_log_or_report(clone, environments):
    secret = "A-SECRET-OF-THE-TESTS"
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    values["repeats"] = 1
    values["stores"]["s3"] = {"kind": "s3", "bucket": "none", "endpoint": "http://127.0.0.1:9"}
    write(clone, values)
    env = {**os.environ, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": secret}
    snakemake(clone, env=env)
    written = [path for folder in ("results", "reports", ".snakemake") for path in (clone / folder).rglob("*")]
    texts = [path for path in written if path.is_file() and path.suffix in (".json", ".log", ".html", ".md", ".csv")]
    assert len(texts) > 10
    assert [str(path) for path in texts if secret in path.read_text(encoding="utf-8", errors="replace")] == []


def test_a_finished_cell_is_measured_again_for_no_edited_code_but_for_an_edited_setting(tiny):
    assert snakemake(tiny).returncode == 0
    before = records(tiny)
    for path in [*tiny.glob("scripts/**/*.py"), *tiny.glob("rules/*.smk"), *tiny.glob("envs/*"), tiny / "Snakefile"]:
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"\n")
    assert "measure" not in planned(tiny)
    changed = json.loads(json.dumps(TINY))
    changed["repeats"] = 3
    write(tiny, changed)
    assert planned(tiny)["measure"] == 2
    changed["studies"]["shots"]["rdcc_nbytes"] = 1
    write(tiny, changed)
    assert planned(tiny)["measure"] == 6
    write(tiny, TINY)
    assert records(tiny) == before


def test_records_unpacked_elsewhere_are_not_measured_again(tiny, tmp_path):
    assert snakemake(tiny).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tiny, elsewhere, ignore=shutil.ignore_patterns(".snakemake", "reports"))
    assert "measure" not in planned(elsewhere)
    done = snakemake(elsewhere)
    assert done.returncode == 0, done.stderr
    assert records(elsewhere) == records(tiny)


def test_records_alone_unpacked_elsewhere_stay_even_where_nothing_can_be_measured(tiny, tmp_path):
    assert snakemake(tiny).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tiny, elsewhere, ignore=shutil.ignore_patterns(".snakemake", "reports", "results"))
    shutil.copytree(tiny / "results/tiny/shots/records", elsewhere / "results/tiny/shots/records")
    (elsewhere / "scripts/build_library.py").write_text("raise SystemExit('no compiler')\n", encoding="utf-8")
    done = snakemake(elsewhere)
    assert done.returncode == 1, done.stderr
    assert records(elsewhere) == records(tiny)


def test_a_failed_provision_takes_no_record_along(tiny, tmp_path):
    write(tiny, SINGLE)
    assert launch(tiny).returncode == 0
    before = records(tiny)
    write(tiny, SINGLE | {"stores": {"disk": {"kind": "posix", "path": str(tmp_path / "typo/bench")}}})
    failed = launch(tiny)
    assert failed.returncode == 1
    assert f"there is no {tmp_path}/typo; mount the file system, or correct the store's path" in failed.stderr
    write(tiny, SINGLE)
    assert "0 records to measure" in launch(tiny, "--plan").stdout
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(tiny) == before


def test_where_a_provision_is_gone_only_what_is_missing_or_failed_is_measured(tiny):
    write(tiny, SINGLE | {"repeats": 2})
    assert launch(tiny).returncode == 0
    kept, failed = sorted((tiny / "results/tiny/shots/records").glob("*/repeat=*.json"))
    before = artefact(kept)
    failed.write_text('{"status": "failed", "reasons": ["the run was killed before it was moved"]}', encoding="utf-8")
    shutil.rmtree(tiny / "results/tiny/data")
    write(tiny, SINGLE | {"repeats": 3})
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["status"] for record in records(tiny).values()] == ["done"] * 3
    assert artefact(kept) == before


def test_a_report_is_made_of_records_whose_data_were_removed(tiny):
    write(tiny, SINGLE)
    assert launch(tiny).returncode == 0
    shutil.rmtree(tiny / "results/tiny/data")
    shutil.rmtree(tiny / "reports")
    (tiny / "results/tiny/shots/facts.json").unlink()
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tiny / "reports/tiny/shots.html").exists()


def test_what_fails_is_said_reported_and_done_again(tiny):
    values = json.loads(json.dumps(TINY))
    values["libraries"]["hdf5-9.9.9"] = {"kind": "wheel", "hdf5": "9.9.9"}
    values["studies"]["shots"]["matrix"]["library"] = ["hdf5-2.0.0", "hdf5-9.9.9"]
    write(tiny, values)
    first = snakemake(tiny)
    words = first.stdout + first.stderr
    assert first.returncode == 1
    assert "no h5py wheel with HDF5 9.9.9" in words
    assert "Traceback" not in words
    assert {record["status"] for record in records(tiny).values()} == {"done"}
    assert len(records(tiny)) == 4
    assert "9.9.9" in (tiny / "reports/tiny/shots.html").read_text(encoding="utf-8")
    assert planned(tiny)["measure"] == 4
    write(tiny, TINY)
    assert snakemake(tiny).returncode == 0


def test_a_mistake_in_the_configuration_stops_at_once_in_one_line(tiny):
    write(tiny, TINY | {"repeets": 3})
    done = snakemake(tiny)
    assert done.returncode != 0
    assert "repeets: unknown key; did you mean repeats?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tiny / "results").exists()


def test_results_that_cannot_be_written_are_one_line(tiny):
    (tiny / "results").write_text("in the way", encoding="utf-8")
    done = snakemake(tiny)
    words = done.stdout + done.stderr
    assert done.returncode != 0
    assert "results" in words
    assert "Traceback" not in words


def wait_for(condition, process: subprocess.Popen, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run did not get there"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_an_interrupted_run_leaves_nothing_behind_and_goes_on_where_it_was(tiny, number):
    values = json.loads(json.dumps(TINY)) | {"repeats": 4}
    write(tiny, values)
    process = subprocess.Popen(
        [SNAKEMAKE, "--cores", "2"], cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    wait_for(lambda: len(records(tiny)) >= 3, process)
    wait_for(lambda: any("multiprocessing" in line for line in processes_of(str(tiny))), process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    process.communicate()
    until(lambda: processes_of(str(tiny)) == [])
    assert 2 <= len(records(tiny)) < 8
    # Ctrl-C may meet the last one before its step has ended; Snakemake removes what an unfinished step wrote.
    before = dict(sorted(records(tiny).items(), key=lambda item: item[1]["position"])[:2])
    done = program("launch", "--cores", 2, cwd=tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    after = records(tiny)
    assert len(after) == 8
    assert {name: after[name] for name in before} == before


def test_a_step_that_is_killed_is_a_failed_cell_and_all_else_is_reported(tiny):
    process = subprocess.Popen(
        [SNAKEMAKE, "--cores", "2"], cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_for(lambda: len(records(tiny)) >= 1 and steps_of(tiny), process)
    os.kill(steps_of(tiny)[0], signal.SIGKILL)
    words, _ = process.communicate()
    assert process.returncode == 1, words
    found = records(tiny)
    assert len(found) == 3, words
    assert {record["status"] for record in found.values()} == {"done"}
    assert "ended from outside before it could write its artefact" in words
    assert "Traceback" not in words
    page = (tiny / "reports/tiny/shots.html").read_text(encoding="utf-8")
    assert "ended from outside before it could write its artefact" in page
    assert (tiny / "reports/tiny/index.html").exists()
    assert planned(tiny)["measure"] == 1
    done = snakemake(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records(tiny)) == 4
    assert {name: record for name, record in records(tiny).items() if name in found} == found


def steps_of(clone: Path) -> list[int]:
    """Return the process ids of the steps of a clone that are measuring."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"scripts.step" in words and b"measure" in words and (entry / "cwd").resolve() == clone:
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize("call", ["make run", "snakemake"])
def test_a_failed_record_that_an_interrupted_run_left_is_measured_by_the_next_call(tiny, call):
    write(tiny, SINGLE | {"repeats": 2})
    assert launch(tiny).returncode == 0
    kept, failed = sorted((tiny / "results/tiny/shots/records").glob("*/repeat=*.json"))
    before, base = artefact(kept), ("record", "run", "study", "name", "cell", "repeat")
    record = {key: artefact(failed)[key] for key in base}
    failed.write_text(json.dumps(record | {"status": "failed", "valid": False, "reasons": ["no server"]}))
    assert "1 records to measure" in launch(tiny, "--plan").stdout
    assert artefact(failed)["status"] == "failed"
    done = launch(tiny) if call == "make run" else snakemake(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["status"] for record in records(tiny).values()] == ["done", "done"]
    assert artefact(kept) == before
    [moved] = (tiny / "results/tiny/failed").rglob("repeat=*.json")
    assert artefact(moved)["reasons"] == ["no server"]


def test_odd_records_and_a_doubled_row_of_the_matrix_are_named_and_all_else_is_reported(tiny):
    write(tiny, TINY | {"repeats": 3})
    assert launch(tiny).returncode == 0
    paths = sorted((tiny / "results/tiny/shots/records").glob("*/repeat=*.json"))
    before = records(tiny)
    paths[0].write_text(json.dumps(artefact(paths[0]) | {"samples": "none"}))
    paths[1].write_text('{"record":' + "[" * 100_000 + "]" * 100_000 + "}")
    shutil.copy(paths[3], paths[4])
    matrix = tiny / "results/tiny/shots/matrix.csv"
    lines = matrix.read_text(encoding="utf-8").splitlines()
    matrix.write_text("\n".join([*lines, lines[1], ""]), encoding="utf-8")
    done = snakemake(tiny)
    words = done.stdout + done.stderr
    assert done.returncode == 1, words
    assert "Traceback" not in words
    page = (tiny / "reports/tiny/shots.md").read_text(encoding="utf-8").replace("\\", "")
    for path in (paths[0], paths[1], paths[4]):
        assert str(path.relative_to(tiny)) in words
        assert str(path.relative_to(tiny)) in page
    assert "another row of matrix.csv is of the same cell" in page
    assert snakemake(tiny).returncode == 0
    after = records(tiny)
    assert len(after) == 6
    assert sum(after[name] == before[name] for name in before) == 3


@pytest.fixture
def small_disk(tiny: Path) -> Iterator[Path]:
    """Mount a file system of a few MiB as the folder of the results."""
    folder = tiny / "results"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted without root: results on a full one are not tested")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_results_on_a_full_file_system_are_one_line_and_the_next_call_builds_them(tiny, small_disk):
    write(tiny, TINY | {"repeats": 3})
    assert launch(tiny, "--only", "access=shots").returncode == 0
    before = records(tiny)
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    done = launch(tiny)
    words = done.stdout + done.stderr
    assert done.returncode == 1, words
    assert "Traceback" not in words
    assert "free the disk" in words
    assert records(tiny) == before
    filler.unlink()
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records(tiny)) == 6
    assert {name: records(tiny)[name] for name in before} == before


def test_a_second_run_in_one_clone_stops_and_the_first_goes_on(tiny):
    first = subprocess.Popen([SNAKEMAKE, "--cores", "2"], cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: (tiny / "results/tiny/shots/ready.json").exists(), first)
    for second in (snakemake(tiny), program("launch", "--cores", 2, cwd=tiny)):
        assert second.returncode != 0
        assert "Traceback" not in second.stdout + second.stderr
    assert "another run is going on in this folder" in second.stderr
    words, _ = first.communicate()
    assert first.returncode == 0, words
    assert len(records(tiny)) == 4


def launch(clone: Path, *arguments: object, **options: object) -> subprocess.CompletedProcess:
    return program("launch", "--cores", 2, *arguments, cwd=clone, **options)


def test_a_subset_by_levels_and_one_cell_again_on_purpose(tiny):
    done = launch(tiny, "--only", "access=shots")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {record["cell"]["access"] for record in records(tiny).values()} == {"shots"}
    assert launch(tiny).returncode == 0
    before = records(tiny)
    assert len(before) == 4
    name = next(record["name"] for record in before.values() if record["cell"]["access"] == "signals")
    assert launch(tiny, "--again", name[:-3], "--plan").returncode == 0
    assert records(tiny) == before
    done = launch(tiny, "--again", name[:-3])
    assert done.returncode == 0, done.stdout + done.stderr
    after = records(tiny)
    assert {key for key in after if after[key] != before[key]} == {f"{name}/repeat={n}.json" for n in (1, 2)}
    assert len(list((tiny / "results/tiny/again").rglob("repeat=*.json"))) == 2
    wrong = launch(tiny, "--again", "no-such-cell")
    assert wrong.returncode == 2
    assert "no measured cell of results/tiny begins with 'no-such-cell'" in wrong.stderr


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--only", "acces=shots"], "only.acces: no study of this run has this factor"),
        (["--only", "access=shot"], "only.access: 'shot' is no level of it"),
        (["--only", "access"], "'access' is not FACTOR=LEVEL"),
        (["--study", "shot"], "only.study: 'shot' is no level of it; known: shots"),
    ],
)
def test_a_subset_that_does_not_exist_is_one_line(tiny, arguments, line):
    done = launch(tiny, *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tiny / "results").exists()


def test_a_dear_run_is_asked_about_before_it_starts(tiny):
    write(tiny, TINY | {"ask_above": {"hours": 0.0001}})
    refused = launch(tiny, stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "above the limits of ask_above: hours" in refused.stderr
    assert "say YES=1 (--yes)" in refused.stderr
    assert records(tiny) == {}
    assert launch(tiny, "--plan").returncode == 0
    assert launch(tiny, "--yes", stdin=subprocess.DEVNULL).returncode == 0
    assert len(records(tiny)) == 4
