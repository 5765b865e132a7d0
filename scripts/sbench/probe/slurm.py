"""Query Slurm, if the workflow runs on a cluster that has it."""

import os
import shutil
import subprocess
from pathlib import Path

from sbench.probe.program import Problem

# Number, folder and comment of a job; the executor's comments begin with the rule's name.
_FORMAT, _OF_RULES = "%i|%Z|%k", "rule_"
_PATIENCE_S = 60


def get_node() -> str | None:
    """Return Slurm's name of this machine within a job; a machine may be several nodes."""
    return os.environ.get("SLURMD_NODENAME")


def has_nodes_elsewhere() -> bool:
    """Return whether this machine can submit jobs and this process is not in a job."""
    return shutil.which("sbatch") is not None and "SLURM_JOB_ID" not in os.environ


def build_srun_command(nodes: int, tasks: int) -> list[str]:
    """Return the command that starts `tasks` tasks, evenly divided among all nodes of this process's job.

    Raises:
        Problem: this is not a job, or srun is missing.
    """
    if "SLURM_JOB_ID" not in os.environ or not shutil.which("srun"):
        raise Problem(
            f"{nodes} nodes require a job of Slurm; start Snakemake with --workflow-profile"
            " profiles/slurm, or in a job (docs/hpc.md)"
        )
    # Tasks may use all cores of their node, like processes of a machine; tasks beyond the cores are flagged, not
    # refused.
    how = ("--cpu-bind=none", "--overcommit", "--kill-on-bad-exit=1")
    return ["srun", *how, f"--nodes={nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={-(-tasks // nodes)}"]


def list_queued_jobs(folder: Path) -> list[str]:
    """Return the numbers of this user's queued jobs from an earlier call of Snakemake in a folder.

    Return [] if squeue fails: a Slurm that cannot be asked cannot be given jobs either.

    Raises:
        Problem: squeue takes too long to answer.
    """
    if not shutil.which("squeue"):
        return []
    command = ["squeue", "--me", "--noheader", f"--format={_FORMAT}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
    except subprocess.CalledProcessError:
        return []
    except subprocess.TimeoutExpired as error:
        raise Problem(f"squeue does not answer within {_PATIENCE_S} s; try again when Slurm responds") from error
    jobs = (line.split("|", 2) for line in done.stdout.splitlines())
    return [number for number, where, what in jobs if where == str(folder) and what.startswith(_OF_RULES)]
