"""Query Slurm on clusters that use it."""

import os
import shutil
import subprocess
from pathlib import Path

from sbench.probe.program import Problem

# Format of squeue: a job's ID, working directory and comment. Comments of Snakemake's executor start with the rule.
_FORMAT, _OF_RULES = "%i|%Z|%k", "rule_"
_PATIENCE_S = 60


def get_node() -> str | None:
    """Return Slurm's name for this node, or None outside a job. A machine may run several nodes."""
    return os.environ.get("SLURMD_NODENAME")


def has_nodes_elsewhere() -> bool:
    """Return whether this machine can submit Slurm jobs and this process is not in one."""
    return shutil.which("sbatch") is not None and "SLURM_JOB_ID" not in os.environ


def build_srun_command(nodes: int, tasks: int) -> list[str]:
    """Return the `srun` command that starts `tasks` tasks, divided evenly among the nodes of the current Slurm job.

    Raises:
        Problem: this process is not in a Slurm job, or `srun` is missing.
    """
    if "SLURM_JOB_ID" not in os.environ or not shutil.which("srun"):
        raise Problem(
            f"{nodes} nodes require a job of Slurm; start Snakemake with --workflow-profile"
            " profiles/slurm, or in a job (docs/hpc.md)"
        )
    # Let tasks use all cores of their node, as processes on a single machine can. More tasks than cores are allowed,
    # but are flagged in the results.
    how = ("--cpu-bind=none", "--overcommit", "--kill-on-bad-exit=1")
    return ["srun", *how, f"--nodes={nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={-(-tasks // nodes)}"]


def list_queued_jobs(folder: Path) -> list[str]:
    """Return the IDs of this user's queued jobs that an earlier Snakemake process submitted from a directory.

    The list is empty if `squeue` is missing or fails, because then jobs cannot be submitted either.

    Raises:
        Problem: `squeue` does not respond in time.
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
