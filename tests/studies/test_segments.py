"""Shared memory of MPI processes that were killed does not make later ones fail."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batteries import until
from blob_cells import Cell

from sbench.studies.blobs import mpi

# Processes have the same numbers each time, as they have in containers: so have the segments of MPICH, in /dev/shm.
NUMBERED_ALIKE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("only root may number processes anew")
    cell = Cell(tmp_path).fill()
    cell.within = NUMBERED_ALIKE
    return cell


def left_behind(cell: Cell) -> set[str]:
    """Kill a cell's processes while they read; returns the segments that they leave behind."""
    before = set(os.listdir(mpi.SEGMENTS))
    with cell.started(cell.folder / "killed.log") as process:
        process.stdout.readline()
        process.kill()
    return {name for name in set(os.listdir(mpi.SEGMENTS)) - before if name.startswith("mpich_shm_")}


def aged(names: set[str]) -> None:
    for name in names:
        os.utime(mpi.SEGMENTS / name, (time.time() - 60,) * 2)


def test_what_killed_processes_left_behind_is_removed_before_others_start(cell: Cell):
    names = left_behind(cell)
    assert names
    aged(names)
    assert cell.measure()["reasons"] == []
    assert not names & set(os.listdir(mpi.SEGMENTS))


def test_a_finished_cell_leaves_nothing_behind(cell: Cell):
    before = set(os.listdir(mpi.SEGMENTS))
    for _ in range(5):
        assert cell.measure()["reasons"] == []
    # Another run on this machine may have some too, for as long as it lasts.
    there = {name for name in set(os.listdir(mpi.SEGMENTS)) - before if name.startswith("mpich_shm_")}
    until(lambda: not there & set(os.listdir(mpi.SEGMENTS)))


def test_memory_that_a_process_has_mapped_or_made_just_now_is_left_alone(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(mpi, "SEGMENTS", tmp_path)
    used, new, old, others = (tmp_path / name for name in ("mpich_shm_1a_0", "mpich_shm_2b_0", "mpich_shm_3c_0", "x"))
    for path in (used, new, old, others):
        path.write_bytes(bytes(4096))
    aged({used.name, old.name, others.name})
    program = f"import mmap; f = open({str(used)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        process.stdout.readline()
        assert mpi.sweep_segments() == [old.name]
        process.communicate("\n")
    assert mpi.sweep_segments() == [used.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, others.name]
