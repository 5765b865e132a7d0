"""fio started by the workflow against fio by hand: the same job, in turn, on the same volume."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.benchmarks.common import Row, Say, compared, in_turn, program, used
from scripts.frame import config as configuration
from scripts.frame import matrix
from scripts.lib.program import read_json, write_json
from scripts.plan import plan

ROUNDS = 16
JOB = "etcd"


def rows(folder: Path, say: Say, job: str = JOB, rounds: int = ROUNDS) -> Iterator[Row]:
    """Run a job both ways and compare fdatasync's mean latency and its p99 as fio gives them."""
    workflow, hand = _workflow(folder, job), _hand(folder, job)
    taken: dict[str, list[dict]] = {"workflow": [], "hand": []}

    def way(name: str, run: Callable[[], dict]) -> Callable[[], float]:
        def seconds() -> float:
            taken[name].append(run())
            return taken[name][-1]["mean"]

        return seconds

    in_turn(rounds, way("workflow", workflow), way("hand", hand), say)
    for metric, title in (("mean", "mean"), ("p99", "p99")):
        ours, others = ([one[metric] for one in taken[name][1:]] for name in ("workflow", "hand"))
        yield compared(f"fdatasync's {title}, fio by the workflow", ours, "fio by hand", others)


def _workflow(folder: Path, job: str) -> Callable[[], dict]:
    """Return a function that measures one battery of one job as the rule does; latencies in seconds."""
    matrix_of_one = {"store": ["disk"], "job": [job], "background": ["none"]}
    volumes = {"jobs": 1, "at_least_s": 0, "pause_s": 0, "matrix": matrix_of_one}
    stores = {"disk": {"kind": "posix", "path": str(folder)}}
    config = configuration.resolve({"run": "bench", "stores": stores, "studies": {"volumes": volumes}}, [])
    cells, _ = matrix.expand(config, "volumes")
    write_json(folder / "plan.json", plan(config, "volumes", cells))
    step = ("--plan", folder / "plan.json", "--cell", cells[0].name, "--repeat", 1, "--log", folder / "log")

    def run() -> dict:
        used(program("scripts.step", "measure", *step, "--out", folder / "repeat=1.json"))
        row = read_json(folder / "repeat=1.json")["samples"][0]
        return {"mean": row["sync_lat_mean_ms"] / 1e3, "p99": row["sync_lat_p99_ms"] / 1e3}

    return run


def _hand(folder: Path, job: str) -> Callable[[], dict]:
    """Return a function that calls fio as one would in a shell; latencies in seconds."""
    command = ["fio", f"--directory={folder}", "--output-format=json", f"--output={folder / 'hand.json'}"]

    def run() -> dict:
        used([*command, f"config/fio/{job}.fio"])
        for path in folder.glob("fio_io*"):
            path.unlink()
        latency = json.loads((folder / "hand.json").read_text(encoding="utf-8"))["jobs"][0]["sync"]["lat_ns"]
        return {"mean": latency["mean"] / 1e9, "p99": latency["percentile"]["99.000000"] / 1e9}

    return run
