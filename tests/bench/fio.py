"""fio started by the workflow against fio by hand: the same job, in turn, on the same volume."""

from collections.abc import Iterator
from pathlib import Path

from sbench.probe.program import read_json
from tests.bench.common import Row, Say, compared, in_turn, used
from tests.bench.prepared import cells


def rows(folder: Path, say: Say, job: str = "etcd", rounds: int = 16) -> Iterator[Row]:
    """Start fio by the workflow and by hand, and compare fdatasync's mean latency and its p99 as fio gives them."""
    matrix = {"store": ["disk"], "job": [job], "background": ["none"]}
    store = {"disk": {"kind": "posix", "path": str(folder)}}
    (cell,) = cells(folder, say, "volumes", store, jobs=1, at_least_s=0, pause_s=0, matrix=matrix)

    def by_workflow() -> tuple[float, float]:
        row = cell.measure()["samples"][0]
        return row["sync_lat_mean_ms"] / 1e3, row["sync_lat_p99_ms"] / 1e3

    def by_hand() -> tuple[float, float]:
        out = folder / "hand.json"
        used(["fio", f"--directory={folder}", "--output-format=json", f"--output={out}", f"config/fio/{job}.fio"])
        for path in folder.glob("fio_io*"):
            path.unlink()
        latency = read_json(out)["jobs"][0]["sync"]["lat_ns"]
        return latency["mean"] / 1e9, latency["percentile"]["99.000000"] / 1e9

    ours, others = in_turn(rounds, by_workflow, by_hand, say)
    for title, own, other in zip(("mean", "p99"), zip(*ours, strict=True), zip(*others, strict=True), strict=True):
        yield compared(f"fdatasync's {title}, fio by the workflow", own, "fio by hand", other)
