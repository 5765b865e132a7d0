"""MPI processes under the launchers of clusters: Slurm's srun, and MPICH's Hydra with a list of machines."""

from pathlib import Path

import pytest
from batteries import until
from blob_cells import Cell
from conftest import ROOT, need, need_slurm, processes_of


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell(tmp_path).fill()


def test_srun_starts_the_processes_and_they_find_one_another(cell: Cell, tmp_path: Path):
    need_slurm()
    cell.within = [str(ROOT / "tests/helpers/slurm.sh"), str(tmp_path / "slurm")]
    cell.settings["mpi"]["launcher"] = ["srun", "--mpi=pmi2"]
    record = cell.measure()
    assert record["reasons"] == []
    assert record["effective"]["launcher"] == "srun --mpi=pmi2"
    [host] = record["effective"]["hosts"]
    assert (host["name"], host["node"], host["processes"]) == ("node1", "node1", 2)
    until(lambda: not processes_of(str(tmp_path)))


def test_more_processes_than_slurm_has_room_for_are_one_line(cell: Cell, tmp_path: Path):
    need_slurm()
    cell.within = [str(ROOT / "tests/helpers/slurm.sh"), str(tmp_path / "slurm")]
    cell.settings["mpi"]["launcher"] = ["srun", "--mpi=pmi2", "--immediate=5", "--nodes=2"]
    assert "srun: error: " in cell.problem()
    until(lambda: not processes_of(str(tmp_path)))


def test_a_launcher_with_a_plugin_that_mpich_does_not_know_does_not_make_a_record(cell: Cell, tmp_path: Path):
    need_slurm()
    cell.within = [str(ROOT / "tests/helpers/slurm.sh"), str(tmp_path / "slurm")]
    cell.settings["mpi"]["launcher"] = ["srun", "--mpi=none"]
    assert cell.problem().startswith("MPI must start 2 processes (got 1)")


def test_hydra_starts_the_processes_on_the_machines_of_a_list(cell: Cell, tmp_path: Path):
    need()
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n", encoding="utf-8")
    cell.within = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    cell.settings["mpi"]["hostfile"] = str(hosts)
    record = cell.measure()
    assert record["reasons"] == []
    assert record["effective"]["launcher"] == f"mpiexec -f {hosts}"
    assert record["effective"]["processes"] == 2
    until(lambda: not processes_of(str(tmp_path)))
