"""What goes wrong while a cell is measured: a failed record that says so in a line, and nothing left behind."""

import json
import os
import re
import subprocess

import pytest
from batteries import until
from cells import ROS3, Place
from conftest import artefact, processes_of


@pytest.mark.rule(10)
def test_a_library_that_failed_or_is_of_another_version_fails_the_cell(shots_cell, environments):
    here = shots_cell()
    here.environment = here.folder / "environment.json"
    label, other = (artefact(environments / f"hdf5-{version}.json") for version in ("2.0.0", "1.14.6"))
    for environment, reason in (
        ({"status": "failed", "reasons": ["no compiler"]}, "no compiler"),
        (label | {"python": other["python"]}, "the library under test is HDF5 1.14.6, not 2.0.0"),
    ):
        here.environment.write_text(json.dumps(environment), encoding="utf-8")
        record = here.measure()
        assert record["status"] == "failed"
        assert reason in record["reasons"][0]


@pytest.mark.rule(3)
def test_a_file_that_is_not_what_its_label_says_fails_the_cell(shots_cell):
    here = shots_cell(layout="shot-major", access="signals")
    other = shots_cell(within="other", data={"page_size": 4096}, layout="shot-major")
    (here.data / "shots.h5").write_bytes((other.data / "shots.h5").read_bytes())
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == [
        "page_size must be 16777216 as in the manifest (got 4096 in the files that were read) (rule 3)"
    ]


def test_a_truncated_file_fails_the_cell_in_one_line(shots_cell):
    here = shots_cell()
    for file in here.data.glob("*.h5"):
        os.truncate(file, 1000)
    record = here.measure()
    assert record["status"] == "failed"
    assert len(record["reasons"]) == 1
    assert "truncated" in record["reasons"][0] or "file signature" in record["reasons"][0]


@pytest.mark.rule(15)
def test_a_worker_killed_in_mid_task_fails_the_cell(shots_cell):
    here = shots_cell(workers=2)
    here.pretend(
        "import os, signal\nfrom sbench.probe import dask_workers\nfrom sbench.studies.shots import tasks\n"
        "real = dask_workers.Workers.run_batches\n"
        "def kill(self, function, batches):\n"
        "    if function is tasks.read_batch:\n"
        "        os.kill(next(iter(self.pids.values())), signal.SIGKILL)\n"
        "    return real(self, function, batches)\n"
        "dask_workers.Workers.run_batches = kill"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert "worker" in record["reasons"][0]
    assert len(record["reasons"][0].splitlines()) == 1


@pytest.mark.rule(15)
def test_a_server_that_dies_in_mid_cell_fails_the_cell_and_leaves_nothing_behind(shots_cell):
    here = shots_cell(**ROS3, layout="shot-major", access="signals")
    here.pretend(
        "import os, signal\nfrom pathlib import Path\nfrom sbench.probe import conversation\n"
        "real = conversation.Step.open_window\n"
        "def kill(self, **how):\n"
        "    real(self, **how)\n"
        "    for child in Path(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read_text().split():\n"
        "        if 'versitygw' in Path(f'/proc/{child}/comm').read_text():\n"
        "            os.kill(int(child), signal.SIGKILL)\n"
        "conversation.Step.open_window = kill"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert record["reasons"] == ["versitygw ended during the measurement"]
    until(lambda: processes_of(str(here.folder)) == [])


def test_nothing_is_written_under_a_name_that_somebody_else_could_have_taken(shots_cell, tmp_path):
    shared, trap, victim, seen = (tmp_path / name for name in ("shared", "trap", "victim", "seen"))
    for folder in (shared, trap):
        folder.mkdir()
    victim.write_text("somebody's", encoding="utf-8")
    for name in ("global.lock", "purge.lock"):
        (trap / name).symlink_to(victim)
    (shared / "dask-scratch-space").symlink_to(trap)
    here = shots_cell(workers=2)
    here.pretend(
        "import os\nfrom pathlib import Path\nfrom sbench.probe import conversation\n"
        "real = conversation.Step.open_window\n"
        "def look(self, **how):\n"
        f"    Path({str(seen)!r}).write_text(' '.join(os.listdir({str(shared)!r})))\n"
        "    real(self, **how)\n"
        "conversation.Step.open_window = look"
    )
    record = here.measure(env=os.environ | {"TMPDIR": str(shared)})
    assert record["valid"], record["reasons"]
    assert victim.read_text(encoding="utf-8") == "somebody's"
    assert sorted(os.listdir(trap)) == ["global.lock", "purge.lock"]
    assert os.listdir(shared) == ["dask-scratch-space"]
    others = set(seen.read_text(encoding="utf-8").split()) - {"dask-scratch-space"}
    assert len(others) == 1
    assert re.fullmatch(r"step\.\w{8}", others.pop())


def pretended(here: Place, words: str) -> None:
    """Let the S3 server say `words`, as a shell does, before it begins."""
    found = artefact(here.environments / "servers.json")
    wrapper = here.folder / "versitygw"
    wrapper.write_text(f'#!/bin/sh\n{words}\nexec {found["versitygw"]} "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    here.environments = here.folder
    (here.folder / "servers.json").write_text(json.dumps(found | {"versitygw": str(wrapper)}), encoding="utf-8")


FROM_OUTSIDE = "was killed (SIGKILL) by a user or, for lack of memory, by the kernel"


@pytest.mark.parametrize(
    "fault, reason",
    [
        ("os.kill(os.getpid(), 9)", f"studies.shots.measure {FROM_OUTSIDE}"),
        ("sys.exit(3)", "studies.shots.measure ended with status 3: no output"),
        ("sys.exit('by itself')", "studies.shots.measure ended with status 1: by itself"),
    ],
    ids=["killed", "silent", "by itself"],
)
def test_a_program_that_ends_early_is_not_explained_by_the_words_of_its_server(shots_cell, fault, reason):
    here = shots_cell(**ROS3, layout="shot-major", access="signals")
    pretended(here, "echo words of the server >&2")
    here.pretend(f"import os, sys\n{fault}")
    assert here.measure()["reasons"] == [reason]
    own, _, servers = (here.folder / "step.log").read_text(encoding="utf-8").partition("## standard output")
    assert own.endswith(f"{reason}\n")
    assert "\nwords of the server\n" in servers


@pytest.mark.parametrize(
    "words, reason",
    [
        ("kill -9 $PPID", f"provision {FROM_OUTSIDE}"),
        ("exit 1", "versitygw ended with status 1 during its start; look at the end of the step's log"),
    ],
    ids=["killed", "no server"],
)
def test_a_provision_that_ends_early_is_not_explained_by_the_words_of_its_server(shots_cell, words, reason):
    here = shots_cell(**ROS3, layout="shot-major", access="signals", make=False)
    pretended(here, f"echo words of the server >&2; {words}")
    here.make(expect="failed")
    assert here.provided["reasons"][0].endswith(reason)
    own, _, servers = (here.folder / "provision.log").read_text(encoding="utf-8").partition("## standard output")
    assert "words of the server" not in own
    assert servers.endswith("words of the server\n")


@pytest.mark.rule(15)
def test_a_hanging_cell_is_ended_at_its_time_limit_and_leaves_nothing_behind(shots_cell):
    here = shots_cell(time_limit_s=3)
    here.pretend(
        "import time\nfrom sbench.probe import dask_workers\n"
        "dask_workers.Workers.list_replaced = lambda self: time.sleep(600)"
    )
    record = here.measure()
    assert record["status"] == "failed"
    assert "time limit of 3 s" in record["reasons"][0]
    assert record["timed_out_s"] == 3
    until(lambda: processes_of(str(here.folder)) == [])


def test_a_record_that_cannot_be_written_is_one_line_and_no_half_file(shots_cell, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(full)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a full file system needs the right to mount one")
    try:
        (full / "filler").write_bytes(b"x" * 8192)
        here = shots_cell()
        done = here.step(full / "repeat=1.json")
        assert done.returncode == 2
        assert "repeat=1.json cannot be written: No space left on device; free the disk" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in full.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", str(full)], check=True)
