"""What writing and reading arrays costs beside bare scripts, in the interpreter that has the service and Zarr."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sbench.probe.processes import owned
from sbench.probe.program import Problem, make_command
from tests.bench.common import S3, Row, Say, at_most, compared
from tests.bench.prepared import cells, interpreter

_USUAL = {
    **{"library": ["arrays"], "store": ["s3"], "backend": ["zarr"], "operation": ["read"], "chunks": ["1500x275"]},
    **{"cache": ["warm"]},
}
_READY_S = 3
# Name of a pair, what is measured, what it is compared with, the limit, whether it is one of rates, and why it differs.
_PAIRS = (
    ("library", "HDF5 library, read, warm", "bare h5py", 1.03, False, ""),
    ("h5pyd", "h5pyd, read, warm", "bare GET from the same service", None, False, "both fill one array"),
    (
        "zarr",
        "Zarr, read from S3, warm",
        "bare GETs of its chunks, as many in flight",
        0.95,
        True,
        "which drop the bytes",
    ),
)


def rows(folder: Path, say: Say, shape: str = "12000x2200", rounds: int = 10) -> Iterator[Row]:
    """Read an array through each backend, and bare, in turn; start the service."""
    (cell,) = cells(folder, say, "arrays", {"s3": S3}, matrix=_USUAL | {"shape": [shape]})
    python = interpreter(cell.folder, "arrays", say)
    with cell.served() as location:
        job = {"shape": shape, "rounds": rounds, "folder": str(folder), "key": location["key"], "store": cell.store}
        command = make_command("tests.bench.arrays_inside", json.dumps(job), python=[python])
        taken = _taken(command, folder / "inside.log", say)
    for name, what, other, limit, is_rate, note in _PAIRS:
        ours, others = taken[name]
        yield compared(what, ours, other, others, limit, note, taken["bytes"] if is_rate else None)
    longest = max(taken["ready_s"])
    yield at_most("service of 1 data node, ready after", longest, _READY_S, "s", "the longest of all starts")


def _taken(command: list[str], log: Path, say: Say) -> dict:
    """Run the part inside the library, say which round begins, and return what it hands over; a Problem if it fails."""
    pipes = {"stdout": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL}
    taken: dict = {}
    with open(log, "w", encoding="utf-8") as words, owned(command, words, dict(os.environ), **pipes) as process:
        for line in process.stdout:
            if line.startswith("{"):
                taken = json.loads(line)
            else:
                say(line.strip())
        status = process.wait()
    if status:
        said = log.read_text(encoding="utf-8").strip().splitlines()
        raise Problem(said[-1] if said else f"{command[3]} ended with status {status} and said nothing")
    return taken
