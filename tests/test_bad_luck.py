"""What fails, is killed, is odd or has no room: nothing measured is lost, and all else is reported."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from batteries import until
from conftest import artefact, processes_of, program
from small_runs import SINGLE, SNAKEMAKE, TINY, launch, planned, records, snakemake, wait_for, write

from scripts.frame import facts


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


def test_data_that_cannot_be_made_are_told_once_skip_their_cells_and_open_the_report(tiny):
    values = json.loads(json.dumps(TINY))
    values["studies"]["shots"]["data"] = {"files": "nowhere"}
    write(tiny, values)
    done = snakemake(tiny)
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 1
    [line] = [line for line in said if "FAILED   make data" in line]
    assert "nowhere cannot be read" in line
    [line] = [line for line in said if "skipped  " in line]
    assert re.search(
        r"skipped  all that needs results/tiny/data/shots-single-shot-\w+/manifest.json, which failed", line
    )
    assert [line for line in said if " measure shots " in line or " put shots-" in line] == []
    assert any(line.startswith("1 step failed, 5 skipped; ") for line in said)
    page = (tiny / "reports/tiny/shots.md").read_text(encoding="utf-8")
    title, first = page.split("\n\n")[:2]
    assert title == "# Reading shot files"
    assert re.match(r"\*\*Not measured\*\*: shots-single-shot-\w+ could not be made: .*nowhere", first)
    assert {path.name for path in (tiny / "results/tiny/failed").rglob("*.json")} > {"manifest.json", "repeat=1.json"}
    # The next report lists the attempt once.
    attempts = facts.failed_attempts(tiny / "results/tiny")
    assert [Path(attempt["what"]).name for attempt in attempts] == ["manifest.json"]


def test_data_that_can_be_made_are_measured_beside_those_that_cannot(tiny, tmp_path):
    values = json.loads(json.dumps(SINGLE))
    values["stores"]["gone"] = {"kind": "posix", "path": str(tmp_path / "typo/bench")}
    values["studies"]["shots"]["matrix"]["store"] = ["disk", "gone"]
    write(tiny, values)
    done = snakemake(tiny, "results/tiny/shots/facts.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 failed, 1 skipped" in (done.stdout + done.stderr).splitlines()[-1]
    status = {record["cell"]["store"]: record["status"] for record in records(tiny).values()}
    assert status == {"disk": "done", "gone": "failed"}
    [line] = artefact(tiny / "results/tiny/shots/facts.json")["not_provided"]
    assert re.match(r"shots-single-shot-\w+ could not be put into gone: .*typo", line)


def test_results_that_cannot_be_written_are_one_line(tiny):
    (tiny / "results").write_text("in the way", encoding="utf-8")
    done = snakemake(tiny)
    words = done.stdout + done.stderr
    assert done.returncode != 0
    assert "results" in words
    assert "Traceback" not in words


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
