"""What the workflow asks Slurm, where it runs on a cluster that has it."""

import os
import shutil
import subprocess
from pathlib import Path

from sbench.probe.program import Problem

# Number, folder and comment of a job; the executor's comments begin with the rule's name.
_FORMAT, _OF_RULES = "%i|%Z|%k", "rule_"
_PATIENCE_S = 60


def get_node() -> str | None:
    """Return the name that Slurm has for this machine, where a job runs; a machine may be several nodes."""
    return os.environ.get("SLURMD_NODENAME")


def has_nodes_elsewhere() -> bool:
    """Return whether jobs can be submitted from this machine, and this process is in none."""
    return shutil.which("sbatch") is not None and "SLURM_JOB_ID" not in os.environ


def build_srun_command(nodes: int, tasks: int) -> list[str]:
    """Return the command that starts so many tasks on all nodes of the job in which this process is, evenly divided.

    Raises:
        Problem: this is no job, or there is no srun.
    """
    if "SLURM_JOB_ID" not in os.environ or not shutil.which("srun"):
        raise Problem(
            f"{nodes} nodes are asked for outside a job of Slurm; start Snakemake with --workflow-profile"
            " profiles/slurm, or in a job (docs/hpc.md)"
        )
    # Tasks may use all cores of their node, as processes of a machine do; more than cores are flagged, not refused.
    how = ("--cpu-bind=none", "--overcommit", "--kill-on-bad-exit=1")
    return ["srun", *how, f"--nodes={nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={-(-tasks // nodes)}"]


def list_queued_jobs(folder: Path) -> list[str]:
    """Return the numbers of this user's jobs that an earlier call of Snakemake in a folder has left in the queue.

    There are none where squeue fails: what cannot be asked cannot be given jobs either.

    Raises:
        Problem: it takes too long to answer.
    """
    if not shutil.which("squeue"):
        return []
    command = ["squeue", "--me", "--noheader", f"--format={_FORMAT}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
    except subprocess.CalledProcessError:
        return []
    except subprocess.TimeoutExpired as error:
        raise Problem(f"squeue does not answer within {_PATIENCE_S} s; try again when Slurm does") from error
    jobs = (line.split("|", 2) for line in done.stdout.splitlines())
    return [number for number, where, what in jobs if where == str(folder) and what.startswith(_OF_RULES)]
