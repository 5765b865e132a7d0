"""What a queue costs: cells as jobs of a Slurm that is started for it, beside the same cells without one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sbench.probe.program import Problem, read_json
from tests.bench.common import DISK, Row, Say, copy_tree, numbered, seconds_of, snakemake, used
from tests.bench.null_cells import null_run
from tests.bench.scale import many_cells

_SLURM = Path("tests/slurm.sh")
_NEEDED = ("munged", "slurmctld", "slurmd", "srun", "ip", "unshare")
# The profile as it is, but for the cores of this machine's only node and a wait that is meant for larger queues.
_PROFILE = ("--workflow-profile", "profiles/slurm", "--set-threads", f"measure={os.cpu_count()}")
_PROFILE += ("--slurm-init-seconds-before-status-checks", "5")
# Cancels the first cell that was begun, and leaves the time in a file.
_CANCEL = """
"$@" & call=$!
until ls results/bench/logs/shots/*/*.begun >/dev/null 2>&1 &&
    job=$(squeue -h -t running -o '%i %k' | awk '$2 ~ "measure" {print $1; exit}') && [ -n "$job" ]; do
    kill -0 $call || exit 98
    sleep 0.05
done
scancel "$job"
touch cancelled
wait $call || true
"""


def rows(folder: Path, say: Say, repeats: int = 6, cells: int = 1_000, rounds: int = 3) -> Iterator[Row]:
    """Run cells that read next to nothing as jobs of Slurm, in turn with the same cells without a queue."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if missing := [tool for tool in _NEEDED if not shutil.which(tool, path=path)]:
        raise Problem(f"no {', '.join(missing)}: apt install munge slurmctld slurmd slurm-client iproute2")
    if os.geteuid():
        raise Problem("only root may give a cluster a network of its own")
    tree = copy_tree(folder)
    config = null_run(folder, repeats, {"disk": DISK})
    say("making data")
    used(snakemake(config, "--until", "ready"), tree)
    taken: dict[str, list[float]] = {"alone": [], "jobs": []}
    for _ in numbered(rounds, say):
        for name in taken:
            _forget(tree)
            command = snakemake(config, "--until", "measure", *(_PROFILE if name == "jobs" else ()))
            inside = [str(_SLURM.resolve()), str(folder / f"slurm-{len(taken[name])}")] if name == "jobs" else []
            taken[name].append(used([*inside, *command], tree).seconds / repeats)
            _expect_done(tree, repeats)
    against = f"without a queue: {seconds_of(taken['alone'])}"
    yield Row("null cell as a job of Slurm, submission and polling included", seconds_of(taken["jobs"]), against)
    yield from _killed(folder, tree, config, say)
    yield from _planned(folder, tree, cells, rounds, say)


def _killed(folder: Path, tree: Path, config: Path, say: Say) -> Iterator[Row]:
    say("cancelling a job")
    _forget(tree)
    command = snakemake(config, "--until", "measure", *_PROFILE)
    used([str(_SLURM.resolve()), str(folder / "slurm-killed"), "sh", "-c", _CANCEL, "sh", *command], tree)
    (failed,) = (path for path in _records(tree) if read_json(path)["status"] == "failed")
    seconds = failed.stat().st_mtime - (tree / "cancelled").stat().st_mtime
    yield Row("cancelled job, until its second attempt has written that down", f"{seconds:.1f} s")


def _planned(folder: Path, tree: Path, cells: int, rounds: int, say: Say) -> Iterator[Row]:
    """Dry runs with the profile and without."""
    config = many_cells(folder, cells)
    ways = {"with the profile": _PROFILE[:2], "without": ()}
    usages = {
        name: [used(snakemake(config, "--dry-run", "--quiet", *more), tree) for _ in numbered(rounds, say)]
        for name, more in ways.items()
    }
    figures = [
        f"{seconds_of([one.cpu_seconds for one in of_way])}, {max(one.peak_bytes for one in of_way) / 1e6:.0f} MB"
        for of_way in usages.values()
    ]
    yield Row(
        f"plan of {cells:,} cells with the profile, processor time and memory", figures[0], f"without: {figures[1]}"
    )


def _records(tree: Path) -> list[Path]:
    return sorted((tree / "results/bench/shots/records").glob("*/repeat=*.json"))


def _forget(tree: Path) -> None:
    shutil.rmtree(tree / "results/bench/shots/records", ignore_errors=True)


def _expect_done(tree: Path, repeats: int) -> None:
    done = [path for path in _records(tree) if read_json(path)["status"] == "done"]
    if len(done) != repeats:
        raise Problem(f"{len(done)} of {repeats} null cells were measured")
