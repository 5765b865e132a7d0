"""The workflow on clusters, through the profiles, with site settings alone changed: a Slurm of this machine's own."""

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from batteries import until
from conftest import ROOT, artefact, copy_project, make_ready, need_slurm, processes_of
from small_runs import SINGLE, TINY, launch, records, write

from sbench.design.config import load_config
from sbench.measure import gather
from sbench.probe import dask_workers, slurm
from sbench.probe.program import Problem
from tests.helpers.rounds import Simulation

pytestmark = pytest.mark.late

# What a site changes in the profile: cores of a node, nodes of the blocks, cells in the queue, when jobs are looked at.
PIN = "--exclusive --nodelist=' + ['node1', 'node2'][int(wildcards.repeat) % 2]"
GROUPED = """groups:
  measure: "{study}-block{repeat}"
group-components:
  "{study}-block{repeat}": 10000
"""
SITE = {
    "  measure: 64\n": "  measure: 2\n",
    "--exclusive'\"\n": f'{PIN}"\n',
    "resources:\n  store: 1\n": "resources:\n  store: 100\n",
    # Each cell is a job, but in profiles/blocks.
    GROUPED: "",
    "latency-wait: 60\n": "latency-wait: 60\nslurm-init-seconds-before-status-checks: 9\n",
}


@pytest.fixture(scope="module")
def ran(once: Callable, environments: Path) -> Path:
    """Return a clone in which jobs of a cluster of two nodes measured three studies, as slurm_calls.sh says."""
    need_slurm()

    def run(folder: Path) -> None:
        clone = make_ready(copy_project(folder / "clone"))
        of_pairs, of_wide = pairs(), wide()
        # The cluster has no network, so nothing can be built in it.
        single = SINGLE | {"libraries": of_pairs["libraries"]}
        of_blobs = of_pairs["studies"]["blobs"] | {"iterations": 2}
        blocks = of_pairs | {"run": "blocks", "studies": {"blobs": of_blobs}}
        configs = {"pairs": of_pairs, "wide": of_wide, "single": single, "blocks": blocks}
        for name, values in configs.items():
            (clone / f"config/{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        profile = clone / "profiles/slurm/config.yaml"
        text = profile.read_text(encoding="utf-8")
        for usual, own in SITE.items():
            assert usual in text
            text = text.replace(usual, own)
        profile.write_text(text, encoding="utf-8")
        (clone / "profiles/blocks").mkdir()
        (clone / "profiles/blocks/config.yaml").write_text(GROUPED + text, encoding="utf-8")
        helpers = ROOT / "tests/helpers"
        command = [helpers / "slurm.sh", folder / "slurm", helpers / "slurm_calls.sh"]
        options = {"capture_output": True, "text": True, "check": False, "timeout": 1500}
        done = subprocess.run(command, cwd=clone, env=os.environ | {"NODES": "2"}, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        (clone / "statuses").write_text(done.stdout, encoding="utf-8")

    return once("slurm", run) / "clone"


def pairs() -> dict:
    """Return the smoke configuration with a pair of cells of each of three studies, twice."""
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    studies = {name: values["studies"][name] for name in ("shots", "volumes", "blobs")}
    shots, _ = studies["shots"]["matrix"]
    studies["shots"] |= {"matrix": shots | {"library": ["hdf5-2.0.0"]}, "control_cells": 0}
    studies["shots"]["compare"] = [{"factor": "page_buffer", "baseline": "0"}]
    blobs = studies["blobs"]["matrix"][0] | {"store": ["disk"], "pattern": ["single-file", "broadcast"]}
    # Long enough to be held.
    studies["blobs"] |= {"iterations": 1000}
    studies["blobs"] |= {"matrix": blobs, "compare": [{"factor": "pattern", "baseline": "single-file"}]}
    libraries = {"hdf5-2.0.0": values["libraries"]["hdf5-2.0.0"]}
    return values | {"run": "hpc", "repeats": 2, "libraries": libraries, "studies": studies}


def wide() -> dict:
    """Return the smoke configuration with a cell of each of three studies on one node and on both, once."""
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    studies = {name: values["studies"][name] for name in ("shots", "blobs", "particles")}
    both = {"store": ["disk"], "nodes": [1, 2]}
    shots = {"library": ["hdf5-2.0.0"], "driver": ["sec2"], "layout": ["single-shot"], "access": ["signals"]}
    of_all = {
        "shots": shots | {"workers": [2], "page_buffer": ["unset"], "cache": ["cold"]},
        "blobs": studies["blobs"]["matrix"][0] | {"pattern": ["broadcast"], "processes": [2]},
        "particles": studies["particles"]["matrix"][0]
        | {"library": ["hdf5-2.0.0"], "method": ["futures"], "workers": [2], "pool": ["processes"], "memory": ["none"]},
    }
    for name, matrix in of_all.items():
        studies[name] |= {"matrix": matrix | both, "control_cells": 0}
        studies[name]["compare"] = [{"factor": "nodes", "baseline": 1}]
    libraries = {"hdf5-2.0.0": values["libraries"]["hdf5-2.0.0"]}
    stores = {"disk": values["stores"]["disk"]}
    return values | {"run": "wide", "repeats": 1, "libraries": libraries, "stores": stores, "studies": studies}


def said(clone: Path, call: str) -> str:
    return (clone / f"{call}.log").read_text(encoding="utf-8")


def test_the_smoke_run_is_measured_by_jobs_and_its_pages_are_made(ran):
    statuses = dict(line.split(": ") for line in (ran / "statuses").read_text(encoding="utf-8").splitlines())
    ended = {"first": "1", "second": "137", "third": "1", "fourth": "0", "wide": "0", "blocks": "0", "fifth": "0"}
    assert statuses == ended
    assert {path.name for path in (ran / "reports/hpc").glob("*.html")} == {
        *("index.html", "shots.html", "volumes.html", "blobs.html")
    }
    until(lambda: processes_of(str(ran)) == [])


@pytest.mark.rule(2, 14)
def test_all_arms_of_a_block_are_measured_on_the_node_of_the_block(ran):
    # Two batteries at a time on one volume would refuse each other: there is one.
    for study, blocks in (
        ("shots", {0: "node1", 1: "node2"}),
        ("blobs", {0: "node1", 1: "node2"}),
        ("volumes", {1: "node2"}),
    ):
        measured = [one for one in records(ran, "hpc", study).values() if "host" in one]
        assert {(one["repeat"] % 2, one["host"]["node"]) for one in measured} == set(blocks.items())
        notes = (ran / f"results/hpc/{study}/verdicts.csv").read_text(encoding="utf-8")
        assert "different nodes" not in notes


@pytest.mark.parametrize("study, how", [("shots", "CANCELLED"), ("blobs", "TIMEOUT")])
def test_a_job_that_was_ended_is_a_failed_cell_and_the_next_call_makes_it_good(ran, study, how):
    assert f"SLURM status is: '{how}'" in said(ran, "first")
    of_cells = defaultdict(dict)
    for one in records(ran, "hpc", study).values():
        of_cells[one["name"]][one["repeat"]] = one
    failed = [one for cell in of_cells.values() for one in cell.values() if one["status"] == "failed"]
    assert [one["repeat"] for one in failed] == [1]
    assert "ended before it wrote its artefact" in failed[0]["reasons"][0]
    # A whole block is appended, of the study that lacks one.
    assert {len([one for one in cell.values() if one["status"] == "done"]) for cell in of_cells.values()} == {2, 3}
    assert {max(cell) for cell in of_cells.values()} == {3}
    assert max(one["repeat"] for one in records(ran, "hpc", "volumes").values()) == 1


def test_while_jobs_of_a_call_that_was_killed_are_in_the_queue_nothing_is_submitted(ran):
    (line,) = [line for line in said(ran, "third").splitlines() if "problem: " in line]
    assert re.search(r"jobs of an earlier call are in the queue \(\d+( \d+)*\); wait until they end, or scancel", line)
    assert "has been submitted" not in said(ran, "third")


def test_what_jobs_of_a_call_that_was_killed_have_measured_counts(ran):
    # The study that was done before the call was killed may have its tables.
    assert re.findall(r"^(measure|gather) +[12]$", said(ran, "fourth"), re.MULTILINE) == ["gather"]


def test_a_page_says_how_the_nodes_differ(ran):
    page = (ran / "reports/hpc/shots.md").read_text(encoding="utf-8")
    assert "median time of its cell on all nodes" in page
    assert {"| node1", "| node2"} <= {line.partition(" | ")[0] for line in page.splitlines()}


@pytest.mark.parametrize("study", ["shots", "blobs", "particles"])
def test_the_workers_of_a_cell_are_on_the_nodes_that_were_asked_for(ran, study):
    for one in records(ran, "wide", study).values():
        assert (one["status"], one["reasons"]) == ("done", [])
        nodes = ["node1", "node2"] if one["cell"].get("nodes") == "2" else one["effective"]["ran_on"][:1]
        assert sorted(set(one["effective"]["ran_on"])) == nodes
        assert len(one["effective"]["ran_on"]) == 2
        assert one["host"]["node"] == ", ".join(nodes)
        assert (one["resources"]["reader"]["user_s"] is None) == (len(nodes) == 2)
    table = (ran / f"results/wide/{study}/verdicts.csv").read_text(encoding="utf-8")
    assert "different nodes" not in table
    assert "different machines" not in table


KILLED = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
from sbench.probe import dask_workers
if __name__ == "__main__":
    with dask_workers.start_cluster(2, nodes=2, folder=sys.argv[1]) as (workers, _):
        print(*sorted(workers.nodes), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""
# In a job that goes on.
IN_A_JOB = """
"$1" -sE "$2/killed.py" "$2" >"$2/said"
while grep --quiet --extended-regexp 'distributed[.]cli' /proc/[0-9]*/cmdline 2>/dev/null; do sleep 0.1; done
echo gone >>"$2/said"
"""


def test_workers_on_several_nodes_end_with_a_program_that_is_killed(environments: Path, tmp_path: Path):
    need_slurm()
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    python = artefact(environments / "hdf5-2.0.0.json")["python"]
    job = ["salloc", "--nodes=2", "--exclusive", "sh", "-c", IN_A_JOB, "sh", python, str(tmp_path)]
    subprocess.run(
        [str(ROOT / "tests/helpers/slurm.sh"), str(tmp_path / "slurm"), *job],
        env=os.environ | {"NODES": "2"},
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert (tmp_path / "said").read_text(encoding="utf-8").splitlines()[-2:] == ["node1 node2", "gone"]


@pytest.mark.rule(14)
def test_nodes_whose_libraries_differ_do_not_make_a_record(monkeypatch):
    workers = object.__new__(dask_workers.Workers)
    workers.nodes = ["node1", "node2", "node2"]
    hashes = [{"libhdf5": "a", "libcurl": "b"}, {"libhdf5": "a", "libcurl": "c"}]
    monkeypatch.setattr(workers, "run_on_nodes", lambda function: hashes, raising=False)
    with pytest.raises(Problem, match="nodes have different libcurl; install the same"):
        workers.list_loaded_libraries()


def test_nodes_are_compared_cell_by_cell():
    times = [("a", "x", 1.0), ("b", "x", 3.0), ("a", "y", 20.0), ("b", "y", 60.0)]
    measured = [{"host": {"node": node}, "name": cell, "seconds": {"total": time}} for node, cell, time in times]
    low, high = gather.compare_nodes(measured)
    assert (low["node"], low["records"], low["low"], low["middle"], low["high"]) == ("a", 2, 0.5, 0.5, 0.5)
    assert (high["node"], high["middle"]) == ("b", 1.5)


def test_a_block_can_be_one_job(ran):
    assert (ran / "blocks.log").read_text(encoding="utf-8").count("Group job blobs-block") == 2
    measured = records(ran, "blocks", "blobs")
    assert [one["valid"] for one in measured.values()] == [True] * 4
    for repeat in (1, 2):
        assert len({one["host"]["node"] for one in measured.values() if one["repeat"] == repeat}) == 1


def test_a_whole_run_can_be_one_job(ran):
    (record,) = records(ran).values()
    assert (record["status"], record["host"]["node"][:4]) == ("done", "node")
    assert "100%" in said(ran, "fifth")


QUEUE = {
    # Starts a job, as a queue would, apart from whoever submits it.
    "qsub": """for script in "$@"; do :; done
echo $$ >>jobs
setsid sh -c '"$0" >/dev/null 2>&1; echo $? >"status.$1"' "$script" $$ >/dev/null 2>&1 &
echo $$.queue""",
    "qstat": """for job in "$@"; do :; done
status=status.${job%.queue}
[ -e "$status" ] || exec echo '    job_state = R'
printf '    job_state = F\\n    Exit_status = %s\\n' "$(cat "$status")"
""",
}


# A site's own profile lies elsewhere, and what profiles/default has is the same in it.
@pytest.mark.parametrize("option, place", [("--workflow-profile", "profiles/generic"), ("--profile", "../site")])
def test_another_queue_gets_cells_through_three_commands(tiny_queue: Path, option, place):
    shutil.copytree(tiny_queue / "profiles/generic", tiny_queue / "../site")
    done = submitted(tiny_queue, option, place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["reasons"] for one in records(tiny_queue).values()] == [[]]
    # Data, their store, reading them once, and the cell.
    assert len((tiny_queue / "jobs").read_text(encoding="utf-8").splitlines()) == 4


def test_cells_of_a_library_that_could_not_be_built_are_not_submitted(tiny_queue: Path):
    values = json.loads(json.dumps(SINGLE))
    values["libraries"]["hdf5-9.9.9"] = {"kind": "wheel", "hdf5": "9.9.9"}
    values["studies"]["shots"]["matrix"]["library"] = ["hdf5-2.0.0", "hdf5-9.9.9"]
    write(tiny_queue, values)
    done = submitted(tiny_queue, "--workflow-profile", "profiles/generic")
    assert done.returncode == 1, done.stdout + done.stderr
    assert [one["cell"]["library"] for one in records(tiny_queue).values()] == ["hdf5-2.0.0"]
    assert len((tiny_queue / "jobs").read_text(encoding="utf-8").splitlines()) == 4
    assert "lacks an h5py wheel with HDF5 9.9.9" in done.stdout + done.stderr
    assert "9.9.9" in (tiny_queue / "reports/tiny/shots.md").read_text(encoding="utf-8")
    # What is there is reported, and what failed is tried again.
    again = submitted(tiny_queue, "--workflow-profile", "profiles/generic")
    assert again.returncode == 1, again.stdout + again.stderr
    assert "lacks an h5py wheel with HDF5 9.9.9" in again.stdout + again.stderr


@pytest.mark.rule(5)
def test_a_call_on_a_cluster_measures_a_round_and_says_how_to_go_on(tiny_queue: Path, monkeypatch: pytest.MonkeyPatch):
    """The first round is synthetic, with an undecided comparison."""
    monkeypatch.chdir(tiny_queue)
    write(tiny_queue, TINY | {"repeats": 6, "most_repeats": 8})
    config = load_config("config/config.yaml")
    Simulation(config, lambda levels: 1.0, noise=0.05, seed=3).call(most_looks=0)
    # Nothing is missing: the call looks at the results.
    first = submitted(tiny_queue, "--workflow-profile", "profiles/generic")
    assert first.returncode == 0, first.stdout + first.stderr
    line = "shots: comparisons are undecided; repeat the command, which measures 2 blocks of 2 cells"
    assert line in first.stdout + first.stderr
    assert max(one["repeat"] for one in records(tiny_queue).values()) == 6
    second = submitted(tiny_queue, "--workflow-profile", "profiles/generic")
    assert second.returncode == 0, second.stdout + second.stderr
    measured = [one for one in records(tiny_queue).values() if one["repeat"] > 6]
    assert sorted((one["repeat"], one["round"]) for one in measured) == [(7, 2), (7, 2), (8, 2), (8, 2)]
    # `sbench run` makes both calls.
    shutil.rmtree(tiny_queue / "results/tiny")
    Simulation(config, lambda levels: 1.0, noise=0.05, seed=3).call(most_looks=0)
    options = ("--", "--workflow-profile", "profiles/generic", "--seconds-between-status-checks", "1")
    path = os.environ | {"PATH": f"{tiny_queue / 'queue'}:{os.environ['PATH']}"}
    done = launch(tiny_queue, *options, env=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(one["repeat"] for one in records(tiny_queue).values()) == 8


def submitted(clone: Path, *options: str) -> subprocess.CompletedProcess:
    """Call Snakemake in a clone with a stand-in for a queue."""
    return subprocess.run(
        [".venv/bin/snakemake", *options, "--seconds-between-status-checks", "1"],
        cwd=clone,
        env=os.environ | {"PATH": f"{clone / 'queue'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tiny_queue(ready_clone: Path) -> Path:
    """Return a clone with a stand-in for PBS's commands, in which a run of one cell is configured."""
    write(ready_clone, SINGLE)
    (ready_clone / "queue").mkdir()
    for name, text in QUEUE.items():
        (ready_clone / "queue" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (ready_clone / "queue" / name).chmod(0o755)
    profile = ready_clone / "profiles/generic/config.yaml"
    text = profile.read_text(encoding="utf-8")
    assert "  measure: 64\n" in text
    profile.write_text(text.replace("  measure: 64\n", "  measure: 2\n"), encoding="utf-8")
    return ready_clone


@pytest.mark.parametrize(
    "answer, jobs", [("echo '7|{0}|rule_measure_x'; echo '8|/other|rule_x'", ["7"]), ("exit 1", [])]
)
def test_jobs_that_were_left_behind_are_those_of_this_folder(answer, jobs, tmp_path, monkeypatch):
    squeue(tmp_path, answer.format(tmp_path), monkeypatch)
    assert slurm.list_queued_jobs(tmp_path) == jobs


def test_a_queue_that_does_not_answer_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    squeue(tmp_path, "exec sleep 5", monkeypatch)
    monkeypatch.setattr(slurm, "_PATIENCE_S", 0.2)
    with pytest.raises(Problem, match=r"squeue does not answer within 0\.2 s"):
        slurm.list_queued_jobs(tmp_path)


def squeue(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stand-in answer in place of Slurm's squeue."""
    (folder / "squeue").write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
