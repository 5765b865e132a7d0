"""What is said and asked before a run starts: its cost, what is measured again, and whether this machine can do it."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
import yaml
from conftest import ROOT, artefact, make_ready, sbench
from small_runs import TWO_CELLS as CONFIG
from small_runs import snakemake

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.design.records import write_record as write_record
from sbench.measure import preflight, run_plan
from sbench.probe import memory
from sbench.probe.program import Problem

OBJECTS = {
    **{"store": ["disk"], "pattern": ["single-file"], "size": ["4GiB"], "processes": [1], "objects": ["shared"]},
    **{"operation_size": ["1GiB"], "chunk_size": ["4MiB"], "concurrency": [1], "cache": ["any"]},
}

FIGURES = {
    "step_seconds": 5.0,
    "seconds": {"total": 1.0},
    "work": {},
    "samples": [],
    "host": {"node": platform.node()},
    "provenance": {"code_sha256": "c0de"},
}


def written(path: Path, **changes: object) -> Path:
    path.write_text(yaml.safe_dump(CONFIG | changes), encoding="utf-8")
    return path


@pytest.fixture
def measured(clone: Path) -> Path:
    """Return a clone in which all cells of the configuration are measured."""
    written(clone / "config/config.yaml")
    planned = sbench("plan", cwd=clone).stdout
    for name in [line.split()[0] for line in planned.splitlines() if line.startswith("wheel_")]:
        for number in (1, 2):
            path = clone / f"results/small/shots/records/{name}/repeat={number}.json"
            place = {"run": "small", "study": "shots", "name": name, "cell": {}, "repeat": number}
            write_record(path, {"record": 1, "status": "done", "valid": True, **place, **FIGURES})
    assert len(records(clone)) == 4
    return clone


def records(clone: Path) -> list[str]:
    return sorted(path.parent.name for path in (clone / "results/small/shots/records").glob("*/repeat=*.json"))


def again(clone: Path, word: str, *arguments: str) -> subprocess.CompletedProcess:
    command = ["--cores", "1", "--again", word, *arguments]
    return sbench("run", *command, cwd=clone, stdin=subprocess.DEVNULL)


def test_what_is_measured_again_is_counted_and_asked_about_before_a_record_is_moved(measured):
    before = records(measured)
    told = sbench("plan", "--again", "wheel", cwd=measured)
    assert "4 records to measure" in told.stdout, told.stderr
    written(measured / "config/config.yaml", ask_above={"hours": 0.0001})
    refused = again(measured, "wheel")
    assert refused.returncode == 2
    assert "exceeds the limits of ask_above: hours 0.00556 > 0.0001" in refused.stderr
    assert "moved" not in refused.stderr
    assert records(measured) == before


def test_data_that_the_disk_has_no_room_for_is_told_before_anything_is_written(clone):
    matrix = {"library": ["wheel"], "store": ["disk"], "particles": [10**11], "operation": ["sum"]}
    matrix |= {"method": ["chunkwise"], "workers": [1], "threads": [1], "cache": ["any"]}
    written(clone / "config/config.yaml", studies={"particles": {"matrix": matrix}})
    done = sbench("run", "--cores", "1", "--yes", cwd=clone, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "GiB free, but the run generates 4097.8 GiB of data; free disk space or make the data smaller" in done.stderr
    assert list((clone / "results").glob("*")) == []


def test_objects_that_are_made_on_their_way_into_a_store_elsewhere_need_no_room_here(clone):
    stores = {"cloud": {"kind": "s3", "bucket": "bucket", "endpoint": "http://127.0.0.1:9", "anonymous": False}}
    levels = OBJECTS | {"store": ["cloud"]}
    section = {"data": {"objects": 10_000}, "matrix": levels | {"pattern": ["multiple-files"]}}
    written(clone / "config/config.yaml", stores=stores, studies={"blobs": section})
    done = sbench("run", "--cores", "1", cwd=clone, stdin=subprocess.DEVNULL)
    assert "exceeds the limits of ask_above" in done.stderr
    assert "disk_gib" in done.stderr
    assert "GiB free" not in done.stderr


def test_what_a_call_does_to_the_blocks_of_comparisons_is_said_before(measured):
    def notes(*arguments: str, **changes: object) -> list[str]:
        section = CONFIG["studies"]["shots"] | {"compare": [{"factor": "cache", "baseline": "cold"}]} | changes
        written(measured / "config/config.yaml", studies={"shots": section}, repeats=changes.pop("repeats", 2))
        done = sbench("plan", *arguments, cwd=measured)
        assert done.returncode == 0, done.stderr
        return [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]

    assert notes() == []
    assert notes("--only", "cache=cold") == []
    cold, warm = sorted(path for path in (measured / "results/small/shots/records").iterdir())
    told = notes("--again", cold.name)
    assert told == ["1 cell measured again without the other arm of 1 comparison; sbench run measures both"]
    (warm / "repeat=2.json").unlink()
    [told] = notes()
    assert told.startswith("block 3, of 2 cells, appended: incomplete blocks stay incomplete")
    (cold / "repeat=2.json").unlink()
    assert notes() == ["block 2, of 2 cells, appended: the configuration sets 2 repeats"]
    assert notes("--only", "cache=cold") == [
        "block 2, of 1 cell, appended: the configuration sets 2 repeats",
        "1 comparison not in these blocks: they need cells that are not selected",
    ]
    shutil.rmtree(warm)
    [told] = notes()
    assert told == "blocks 2 to 3, of 2 cells, appended: 1 cell without a record must share blocks with the others"


@pytest.mark.rule(2)
def test_a_plan_says_that_volumes_with_burst_credits_are_measured_in_one_order(clone):
    volumes = {"gp2": {"type": "gp2", "size_gib": 128}, "gp3": {"type": "gp3", "size_gib": 128}}
    stores = {name: {"kind": "posix", "path": "/mnt", "volume": volume} for name, volume in volumes.items()}
    compare, each = [{"factor": "store", "baseline": "gp2"}], {"job": ["etcd"], "background": ["none"]}

    def note(**of_gp2: list[str]) -> str:
        matrix = [{"store": ["gp2"], **each, **of_gp2}, {"store": ["gp3"], **each}]
        section = {"batteries": 6, "matrix": matrix, "compare": compare}
        written(clone / "config/config.yaml", stores=stores, studies={"volumes": section})
        done = sbench("plan", cwd=clone)
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = "cells run in the order of the matrix, as each affects the next: they are not comparable"
    assert words in note()
    assert words not in note(start_credits=["full"])


def rewritten(clone: Path, run: str, pattern: str, **changes: object) -> None:
    for path in (clone / "results" / run / "shots/records").glob(f"{pattern}/*.json"):
        path.write_text(json.dumps(artefact(path) | changes), encoding="utf-8")


def test_a_plan_ends_with_its_total_and_says_what_each_estimate_comes_from(measured, tmp_path):
    def plan(**options: object) -> list[str]:
        return sbench("plan", "--name", "second", cwd=measured, **options).stdout.splitlines()

    rewritten(measured, "small", "*", host={"node": "elsewhere"})
    *told, total = plan()
    assert total.startswith("in all: 2 cells, 4 records: about ")
    assert total.endswith("report: reports/second/index.html")
    published = [line for line in told if line.endswith("s each (as published, page buffer 0)")]
    assert len(published) == 2, "another machine tells nothing"
    cells = matrix.expand_matrix(configuration.resolve_config(CONFIG, []), "shots")[0]
    [settings] = [cell.settings for cell in cells if "_cold" in cell.name]
    # The shots of the other cell are the same: what is estimated for it is, too.
    here = {"host": {"node": platform.node()}, "settings": settings}
    rewritten(measured, "small", "*_cold*", **here, step_seconds=7.0, session="2026-11-20T08:00:00Z")
    cold, warm, *_, total = plan(env=os.environ | {"XDG_CACHE_HOME": tmp_path})
    assert "_cold" in cold
    assert cold.endswith("  2 to do    7.0 s each (as before)")
    assert warm.endswith("  2 to do    7.0 s each (estimated by cells on disk before)")
    assert "about 81 s, including 20 s to build wheel-2.0.0 and 33 s for data and pages; " in total
    shutil.copytree(measured / "results/small", measured / "results/later")
    rewritten(measured, "later", "*_cold*", step_seconds=9.0, session="2026-11-21T08:00:00Z")
    cold, warm = plan()[:2]
    assert cold.endswith("  9.0 s each (as before)"), "the last run tells"
    assert warm.endswith("  9.0 s each (estimated by cells on disk before)")
    rewritten(measured, "later", "*_cold*", settings=settings | {"read_shots": 400})
    cold, warm = plan()[:2]
    assert cold.endswith("  9.0 s each (as before)")
    assert 0 < float(re.search(r"([\d.]+) s each", warm)[1]) < 9, "a record that read more takes longer"


@pytest.mark.late
def test_own_files_and_sources_are_looked_at_before_a_run(tmp_path):
    def looked(**changes: object) -> str:
        shots = CONFIG["studies"]["shots"]
        matrix = shots["matrix"] | changes
        section = shots | {"matrix": matrix, "data": {"files": str(tmp_path / "own")}}
        sources = {
            "wheel": CONFIG["libraries"]["wheel"],
            "built": {"kind": "source", "hdf5": "2.0.0", "from": "/no.tgz"},
        }
        file = written(tmp_path / "mine.yaml", studies={"shots": section}, libraries=sources)
        asked = sbench("check", file)
        plan = sbench("plan", file)
        assert (asked.returncode, plan.returncode) == (1, 0), asked.stderr + plan.stderr
        assert "FAILED library built: /no.tgz does not exist; correct the path" in asked.stdout
        (line,) = [line for line in asked.stdout.splitlines() if "data.files" in line]
        assert line.removeprefix("ok     ") in plan.stdout
        return line

    (tmp_path / "own").mkdir()
    assert "contains no HDF5 file directly" in looked()
    with h5py.File(tmp_path / "own/one.nc", "w") as file:
        file["shots/1/signals/ip"] = [1.0, 2.0]
    name = tmp_path / "own/one.nc"
    assert looked().endswith(f"data.files: {name} is not paged, single-shot, 1 shots of 1 signals")
    assert "1 signals; a page buffer of 1MiB requires pages; repack the file" in looked(page_buffer=["0", "1MiB"])
    assert "; set layout in the matrix to single-shot (got shot-major)" in looked(layout=["shot-major"])


def test_a_run_of_another_name_measures_the_same_beside_the_first(measured):
    done = sbench("run", "--name", "tuesday", "--cores", "1", "--", "--dry-run", cwd=measured)
    assert done.returncode == 0, done.stderr
    assert "tuesday/shots: 2 cells, 0 left out, 4 records to measure" in done.stderr
    assert "results/tuesday/shots/records/" in done.stdout + done.stderr
    for name, words in (("../x", "config/config.yaml: run: '../x' is not valid"), ("2026", "such as --name day-2026")):
        refused = sbench("plan", "--name", name, cwd=measured)
        assert refused.returncode == 2
        assert words in refused.stderr


def test_what_is_measured_again_is_of_the_levels_that_are_asked_for(measured):
    done = again(measured, "wheel", "--only", "cache=cold", "--", "--until", "plan")
    assert done.returncode == 0, done.stderr
    assert "2 records to measure" in done.stderr
    assert len(records(measured)) == 2
    assert all("_warm" in name for name in records(measured))
    moved = list((measured / "results/small/again").rglob("repeat=*.json"))
    assert len(moved) == 2
    assert all("_cold" in str(path) for path in moved)


def test_a_dry_run_moves_nothing(measured):
    before = records(measured)
    for option in ("-n", "-pn", "--dry-run", "--dryrun"):
        done = again(measured, "wheel", "--", option, "--version")
        assert done.returncode == 0, done.stderr
        assert records(measured) == before, option


def test_a_word_that_no_measured_cell_begins_with_is_one_line(measured):
    for word in ("/tmp", "../small", "nothing"):
        done = again(measured, word)
        assert done.returncode == 2
        assert f"no measured cell of results/small begins with '{word}'; sbench plan lists the names" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("top", ["results", "reports"])
def test_a_file_in_the_way_of_a_run_is_one_line(clone, top):
    written(clone / "config/config.yaml")
    (clone / top).mkdir()
    (clone / top / "small").write_text("", encoding="utf-8")
    done = sbench("run", "--cores", "1", cwd=clone)
    assert done.returncode == 2
    assert f"problem: {top}/small is not a writable folder; move the file that blocks it" in done.stderr
    assert "Traceback" not in done.stderr
    planned = sbench("plan", cwd=clone)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("name", ["plan", "check"])
def test_a_matrix_of_which_nothing_is_left_names_the_file(tmp_path, name):
    study = {"shots": {"matrix": CONFIG["studies"]["shots"]["matrix"] | {"driver": ["ros3"]}}}
    file = written(tmp_path / "mine.yaml", studies=study)
    done = sbench(name, file)
    assert done.returncode == 2
    assert f"problem: {file}: studies.shots.matrix: all combinations are impossible (" in done.stderr


ODD = "-x;touch touched;$(touch touched)`touch touched`$(shell touch touched)\ntouch touched"


@pytest.mark.parametrize(
    "words",
    [
        *(("plan", ODD), ("check", ODD), ("plan", "--study", ODD), ("run", "--cores", ODD), ("run", "--again", ODD)),
        *(("plan", "--only", value) for value in (ODD, "it's", "--")),
        *(("plan", "config/import.yaml", "--imports", value) for value in (ODD, "it's")),
    ],
)
def test_no_shell_reads_an_argument_and_a_mistake_is_one_line(ready_clone, words):
    done = subprocess.run(["./sbench", *words], cwd=ready_clone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("problem: ")
    assert not (ready_clone / "touched").exists()
    assert not (ready_clone / ".snakemake").exists()


def test_a_configuration_with_blanks_and_quotes_is_taken_from_any_folder(ready_clone, tmp_path):
    folder = tmp_path / "it's my $folder;"
    folder.mkdir()
    written(folder / "it's my $config;.yaml")
    words = ["plan", "it's my $config;.yaml", "--only", "cache=cold", "library=wheel"]
    done = subprocess.run([ready_clone / "sbench", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "small/shots: 1 cells" in done.stdout


def test_results_from_elsewhere_need_a_study_that_imports_some(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(
        Problem, match=r"quick\.yaml contains no study that imports results; name another configuration"
    ):
        run_plan.make_plan("config/quick.yaml", imports=[str(tmp_path)])


def test_an_import_says_what_it_imports_and_counts_no_cells(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text("{}", encoding="utf-8")
    done = sbench("plan", "config/import.yaml", "--imports", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *_, study, total = done.stdout.splitlines()
    assert study == "imported/volumes: 2 files of results from elsewhere to import"
    assert total.startswith("in all: about 20 s, including 20 s for data and pages, nothing to build; report: ")


@pytest.mark.parametrize("name", ["a{b}.json", "a\nb.json"])
def test_a_name_that_snakemake_cannot_watch_is_one_line(ready_clone, name):
    (ready_clone / "imports").mkdir()
    (ready_clone / "imports" / name).touch()
    done = sbench("import", cwd=ready_clone)
    assert done.returncode == 2
    assert "has a brace or a control character in its name; rename it" in done.stderr
    assert "Snakemake" not in done.stderr


def test_a_folder_for_temporary_files_that_this_machine_lacks_is_one_line(clone):
    """A job on a node gets the one of the login node; Python takes another folder without a word."""
    env = os.environ | {"TMPDIR": "/nowhere/tmp"}
    told = f"TMPDIR is /nowhere/tmp, which is not a writable folder on {os.uname().nodename}; unset it, or name"
    written(clone / "config/mine.yaml")
    done = sbench("check", "config/mine.yaml", cwd=clone, env=env)
    assert (done.returncode, f"FAILED temporary files: {told}" in done.stdout) == (1, True)
    done = sbench("run", "config/mine.yaml", "--yes", cwd=clone, env=env)
    assert (done.returncode, done.stderr.splitlines()[-1].startswith(f"problem: {told}")) == (2, True), done.stderr
    done = snakemake(clone, "--configfile", "config/mine.yaml", env=env)
    assert (done.returncode, f"problem: {told}" in done.stderr) == (1, True), done.stderr
    assert not (clone / "results/small").exists()


def test_the_script_of_slurm_has_the_lines_that_sites_ask_for():
    lines = (ROOT / "profiles/slurm/run.sbatch").read_text(encoding="utf-8").splitlines()
    asked = {line.split("=")[0] for line in lines if line.startswith("##SBATCH --")}
    assert asked == {f"##SBATCH --{name}" for name in ("account", "partition", "qos", "constraint", "gres", "mem")}


def test_a_store_that_is_a_file_is_called_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    file = written(tmp_path / "mine.yaml", stores={"disk": {"kind": "posix", "path": "README.md"}})
    assert preflight.run_checks(str(file)) == 1
    assert "FAILED folder README.md: is a file, not a folder; move it, or correct the store's path" in (
        capsys.readouterr().out
    )


@pytest.mark.late
@pytest.mark.parametrize("path", ["/nowhere/[/]/x", "/nowhere/[red]/x", "/nowhere/:x:/[::1]"])
def test_brackets_and_colons_in_a_path_are_printed_as_they_are(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    file = written(tmp_path / "mine.yaml", stores={"disk": {"kind": "posix", "path": path}})
    assert preflight.run_checks(str(file)) == 1
    assert f"FAILED folder {path}: " in capsys.readouterr().out


@pytest.mark.late
def test_processes_that_do_not_fit_into_memory_are_found_before_anything_is_uploaded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(memory, "compute_available_bytes", lambda: 2**30)
    for processes, pattern, told in (
        (1, "single-file", "FAILED memory: 1 process needs 1.062 GiB, 1 GiB free; choose a smaller operation_size"),
        (8, "sections", "FAILED memory: 8 processes need 4.5 GiB, 1 GiB free; choose a smaller operation_size"),
    ):
        matrix = OBJECTS | {"processes": [processes], "pattern": [pattern]}
        file = written(tmp_path / "mine.yaml", studies={"blobs": {"matrix": matrix}})
        assert preflight.run_checks(str(file)) == 1
        assert told in capsys.readouterr().out
    study = {"matrix": OBJECTS, "mpi": {"launcher": ["env"]}}
    written(file, studies={"blobs": study})
    preflight.run_checks(str(file))
    assert "  memory: " not in capsys.readouterr().out


def test_tools_of_the_set_up_write_temporary_files_to_a_folder_of_their_own(clone, tmp_path, monkeypatch):
    """A real set-up takes a minute and the network; here its tools say where they would write."""
    shared, said, bin_, tools = tmp_path / "shared", tmp_path / "said", clone / ".venv/bin", tmp_path / "tools"
    for folder in (shared, bin_, tools):
        folder.mkdir(parents=True)
    for tool in (bin_ / "python", bin_ / "uv", tools / "cargo"):
        # Cargo is only asked whether it works.
        says = f'test -d "$TMPDIR" && echo "$TMPDIR" >>{said}' if tool.parent == bin_ else "exit 0"
        tool.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
        tool.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    done = subprocess.run(["scripts/setup.sh"], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = set(said.read_text(encoding="utf-8").split())
    assert len(told) == 1
    assert Path(told.pop()).parent == shared
    assert list(shared.iterdir()) == []


def test_a_set_up_in_a_clone_of_a_test_leaves_the_environment_of_this_one_alone(clone):
    """Also where the lock or the set-up was changed since this one's `.venv` was made."""
    with open(clone / "scripts/setup.sh", "a", encoding="utf-8") as script:
        script.write("# changed\n")
    (named,) = Path(sys.prefix).glob("lib/python3*/site-packages/storage-benchmarks.pth")
    before = named.read_bytes()
    done = subprocess.run(["scripts/setup.sh"], cwd=make_ready(clone), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert named.read_bytes() == before


def test_a_python_home_of_the_user_is_in_nobodys_way(clone, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    done = subprocess.run(["scripts/setup.sh"], cwd=make_ready(clone), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = sbench("run", "--yes", "--", "--version", cwd=clone)
    assert re.fullmatch(r"\d+\.[\d.]+\n", done.stdout), done.stderr
