"""What fails, is killed, is odd or has no room: nothing measured is lost, and all else is reported."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from batteries import hear_interrupts, until
from conftest import ROOT, artefact, processes_of, sbench
from small_runs import (
    MEASURE,
    PAGE,
    SINGLE,
    SNAKEMAKE,
    TINY,
    both,
    check,
    drop,
    launch,
    planned,
    records,
    snakemake,
    wait_for,
    write,
)

from sbench.measure import gather

pytestmark = pytest.mark.late


@pytest.mark.rule(22)
def test_records_alone_unpacked_elsewhere_stay_and_are_reported_even_where_nothing_can_be_measured(tiny_run):
    before, kept = records(tiny_run), tiny_run / "results/tiny/shots/records"
    kept.rename(tiny_run / "kept")
    for folder in (".snakemake", "reports", "results"):
        shutil.rmtree(tiny_run / folder)
    shutil.copytree(tiny_run / "kept", kept)
    (tiny_run / "scripts/build_library.py").write_text("raise SystemExit('no compiler')\n", encoding="utf-8")
    done = snakemake(tiny_run, PAGE)
    assert done.returncode == 0, done.stderr
    assert "no compiler" in done.stdout + done.stderr
    assert records(tiny_run) == before
    assert (tiny_run / PAGE).exists()


def test_a_failed_provision_takes_no_record_along(tiny_run, tmp_path):
    before = records(tiny_run)
    write(tiny_run, TINY | {"stores": {"disk": {"kind": "posix", "path": str(tmp_path / "typo/bench")}}})
    failed = launch(tiny_run, "--", *MEASURE)
    assert f"{tmp_path}/typo does not exist; mount the file system, or correct the store's path" in failed.stderr
    assert not (tmp_path / "typo").exists(), "what is not mounted is not replaced by the disk beneath"
    write(tiny_run, TINY)
    assert "0 records to measure" in sbench("plan", cwd=tiny_run).stdout
    done = launch(tiny_run, "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(tiny_run) == before


@pytest.mark.rule(2, 5)
def test_what_is_missing_or_failed_stays_so_and_whole_blocks_are_appended_though_the_data_are_gone(tiny_run):
    before = records(tiny_run)
    gone, _, _, failed = before
    drop(tiny_run, gone)
    path = tiny_run / "results/tiny/shots/records" / failed
    record = {key: before[failed][key] for key in ("record", "run", "study", "name", "cell", "repeat", "session")}
    path.write_text(json.dumps(record | {"status": "failed", "valid": False, "reasons": ["no server"]}))
    shutil.rmtree(tiny_run / "results/tiny/data")
    told = sbench("plan", cwd=tiny_run).stdout
    assert "4 records to measure" in told
    assert "\n  blocks 3 to 4, of 2 cells, appended: incomplete blocks stay incomplete" in told
    done = launch(tiny_run, "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    after = records(tiny_run)
    assert both(tiny_run) == [3, 4]
    assert gone not in after
    assert after[failed]["reasons"] == ["no server"]
    assert {name: after[name] for name in before if name not in (gone, failed)}.items() <= before.items()
    assert "0 records to measure" in sbench("plan", cwd=tiny_run).stdout


@pytest.mark.rule(17)
def test_measured_cells_that_the_configuration_no_longer_has_are_named_on_the_page(tiny_run):
    """Who takes comparisons out after a run chooses among its results."""
    (name,) = {path.parent.name for path in tiny_run.glob("results/tiny/shots/records/*_signals_*/repeat=1.json")}
    values = json.loads(json.dumps(TINY))
    values["studies"]["shots"]["matrix"]["access"] = ["shots"]
    write(tiny_run, values)
    done = snakemake(tiny_run, PAGE)
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tiny_run.glob("reports/tiny/shots.md")
    assert f"1 measured cell that the configuration no longer has, left out of all tables and verdicts: {name}" in (
        page.read_text(encoding="utf-8").replace("\\", "")
    )


@pytest.mark.rule(15)
def test_what_fails_or_is_killed_is_said_reported_and_done_again(tiny_run):
    drop(tiny_run, "*/repeat=2.json")
    values = json.loads(json.dumps(TINY))
    values["libraries"]["hdf5-9.9.9"] = {"kind": "wheel", "hdf5": "9.9.9"}
    values["studies"]["shots"]["matrix"]["library"] = ["hdf5-2.0.0", "hdf5-9.9.9"]
    write(tiny_run, values)
    process = subprocess.Popen(SNAKEMAKE, cwd=tiny_run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: list(tiny_run.glob("results/tiny/logs/shots/*/*.begun")), process)
    wait_for(lambda: steps_of(tiny_run), process)
    os.kill(steps_of(tiny_run)[0], signal.SIGKILL)
    words, _ = process.communicate()
    assert process.returncode == 1, words
    assert "lacks an h5py wheel with HDF5 9.9.9" in words
    assert "the step ended before it wrote its artefact" in words
    assert "Traceback" not in words
    found = records(tiny_run)
    assert sorted(record["status"] for record in found.values()) == ["done"] * 5 + ["failed"], words
    # What was killed is made good within the call by a block of all; the blocks for the sake of the library are not.
    assert both(tiny_run) == [1, 4]
    page = (tiny_run / "reports/tiny/shots.html").read_text(encoding="utf-8")
    assert "9.9.9" in page
    assert "the step ended before it wrote its artefact" in page
    assert (tiny_run / "reports/tiny/index.html").exists()
    assert planned(tiny_run)["measure"] == 8
    write(tiny_run, TINY)
    done = snakemake(tiny_run, *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(tiny_run) == found


def test_data_that_cannot_be_made_are_told_once_skip_their_cells_and_open_the_report(tiny):
    values = json.loads(json.dumps(TINY))
    values["studies"]["shots"]["data"] = {"files": "nowhere"}
    write(tiny, values)
    done, checked = snakemake(tiny, PAGE), check(tiny)
    said = (done.stdout + done.stderr + checked.stderr).splitlines()
    assert (done.returncode, checked.returncode) == (0, 1)
    [line] = [line for line in said if "FAILED   make data" in line]
    assert "no file matches nowhere" in line
    [line] = [line for line in said if "skipped  " in line]
    assert re.search(
        r"skipped  all jobs that need results/tiny/data/shots-single-shot-\w+/manifest.json, which failed", line
    )
    assert [line for line in said if " measure shots " in line or " put shots-" in line] == []
    assert any(line.startswith("1 step failed, 5 skipped; ") for line in said)
    page = (tiny / "reports/tiny/shots.md").read_text(encoding="utf-8")
    title, first = page.split("\n\n")[:2]
    assert title == "# Reading HDF5 files"
    assert re.match(r"\*\*Not measured\*\*: shots-single-shot-\w+ could not be made: .*nowhere", first)
    assert {path.name for path in (tiny / "results/tiny/failed").rglob("*.json")} > {"manifest.json", "repeat=1.json"}
    # The next report lists the attempt once.
    attempts = gather.list_failed_attempts(tiny / "results/tiny")
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
def test_an_interrupted_run_leaves_nothing_behind_and_goes_on_where_it_was(tiny_run, number):
    write(tiny_run, TINY | {"repeats": 4})
    process = subprocess.Popen(
        SNAKEMAKE,
        cwd=tiny_run,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )
    wait_for(lambda: len(records(tiny_run)) >= 6, process)
    wait_for(lambda: any("multiprocessing" in line for line in processes_of(str(tiny_run))), process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    process.communicate()
    until(lambda: processes_of(str(tiny_run)) == [])
    assert 5 <= len(records(tiny_run)) < 8
    # Ctrl-C may meet the last one before its step has ended; Snakemake removes what an unfinished step wrote.
    before = dict(sorted(records(tiny_run).items(), key=lambda item: item[1]["started_utc"])[:5])
    done = launch(tiny_run, "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(both(tiny_run)) == 4
    assert {name: records(tiny_run)[name] for name in before} == before


def steps_of(clone: Path) -> list[int]:
    """Return the process ids of the steps of a clone that have begun to measure in a library that is there.

    A child that a step has forked has its command line until it executes its own; it is left out.
    """
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                measuring = b"scripts/step.py" in words and any(word.startswith(b"hdf5-2.0.0_") for word in words)
                if measuring and (entry / "cwd").resolve() == clone:
                    cell, repeat = (words[words.index(option) + 1].decode() for option in (b"--cell", b"--repeat"))
                    if list(clone.glob(f"results/*/logs/*/{cell}/repeat={repeat}.begun")):
                        found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return [process for process, parent in found.items() if parent not in found]


def test_odd_records_and_a_doubled_row_of_the_matrix_are_named_and_all_else_is_reported(tiny_run):
    folder = tiny_run / "results/tiny/shots/records"
    paths = sorted(folder.glob("*/repeat=*.json"))
    before = records(tiny_run)
    paths[0].write_text(json.dumps(artefact(paths[0]) | {"samples": "none"}))
    paths[1].write_text('{"record":' + "[" * 100_000 + "]" * 100_000 + "}")
    shutil.copy(paths[2], paths[3])
    matrix = tiny_run / "results/tiny/shots/matrix.csv"
    lines = matrix.read_text(encoding="utf-8").splitlines()
    matrix.write_text("\n".join([*lines, lines[1], ""]), encoding="utf-8")
    done, checked = snakemake(tiny_run, PAGE), check(tiny_run)
    words = done.stdout + done.stderr + checked.stderr
    assert (done.returncode, checked.returncode) == (0, 1), words
    assert "Traceback" not in words
    page = (tiny_run / "reports/tiny/shots.md").read_text(encoding="utf-8").replace("\\", "")
    for path in (paths[0], paths[1], paths[3]):
        assert str(path.relative_to(tiny_run)) in words
        assert str(path.relative_to(tiny_run)) in page
    assert "another row of matrix.csv has the same cell" in page
    assert snakemake(tiny_run, *MEASURE).returncode == 0
    after = records(tiny_run)
    assert both(tiny_run) == [3, 4]
    assert [name for name in before if after.get(name) == before[name]] == [str(paths[2].relative_to(folder))]


@pytest.fixture
def small_disk(tiny_run: Path) -> Iterator[Path]:
    """Mount a file system of a few MiB as the folder of the results of a finished run."""
    folder = tiny_run / "results"
    folder.rename(tiny_run / "kept")
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted without root: results on a full one are not tested")
    shutil.copytree(tiny_run / "kept", folder, dirs_exist_ok=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_results_on_a_full_file_system_are_one_line_and_the_next_call_builds_them(tiny_run, small_disk):
    drop(tiny_run, "*_signals_*/repeat=2.json")
    before = records(tiny_run)
    assert len(before) == 3
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    done = launch(tiny_run)
    words = done.stdout + done.stderr
    assert done.returncode == 1, words
    assert "Traceback" not in words
    assert "free the disk" in words
    assert records(tiny_run) == before
    filler.unlink()
    done = launch(tiny_run, "--", *MEASURE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert both(tiny_run) == [1, 3]
    assert {name: records(tiny_run)[name] for name in before} == before


def test_a_second_run_in_one_clone_stops_and_the_first_goes_on(tiny_run):
    drop(tiny_run, "*_signals_*/repeat=2.json")
    first = subprocess.Popen([*SNAKEMAKE, *MEASURE], cwd=tiny_run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: steps_of(tiny_run), first)
    (step,) = steps_of(tiny_run)
    # It waits for the others, so that it cannot have ended before them.
    os.kill(step, signal.SIGSTOP)
    # In a container, or on another node, no process of the first is seen.
    apart = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", tiny_run / "sbench", "run", "--cores=2"]
    calls = [snakemake(tiny_run), launch(tiny_run)]
    if not subprocess.run([*apart[:5], "true"], check=False).returncode:
        calls.append(subprocess.run(apart, cwd=tiny_run, capture_output=True, text=True, check=False))
    for second in calls:
        assert second.returncode != 0
        assert "Traceback" not in second.stdout + second.stderr
        assert "unlock" not in second.stdout + second.stderr
        assert f"another run is in progress in this folder (process {first.pid} of " in second.stderr
    os.kill(step, signal.SIGCONT)
    words, _ = first.communicate()
    assert first.returncode == 0, words
    assert both(tiny_run) == [1, 3]


_TERMINATED = """
import os, signal, sys
sys.path.insert(0, {scripts!r})
from sbench.measure import one_run
one_run.end_at_sigterm()

checkpoint first:
    output: "first"
    shell: "touch first"

def end_while_the_scheduler_holds_its_lock(wildcards):
    if os.path.exists(checkpoints.first.get().output[0]):
        os.kill(os.getpid(), signal.SIGTERM)
    return []

rule last:
    default_target: True
    input: end_while_the_scheduler_holds_its_lock
    output: "last"
    shell: "touch last"
"""


def test_a_run_ends_when_it_is_terminated_at_its_worst_moment(tmp_path):
    snakefile = _TERMINATED.format(scripts=str(ROOT / "scripts"))
    (tmp_path / "Snakefile").write_text(snakefile, encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "--cores=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "Will exit after finishing currently running jobs" in done.stderr
