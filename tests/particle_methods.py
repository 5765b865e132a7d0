"""Runs each method of `particles` in the interpreter that runs this; prints what came out, and what was read."""

import json
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from scripts import drivers
from scripts.studies.particles import methods, reading, snapshots


def main() -> None:
    """Print a list of [[method, operation, selection, turns], {"result", "read"}], as JSON."""
    manifest, folder, at_most = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2], int(sys.argv[3])
    outcomes = []
    # The workers are threads of this process, whose account has all that was read.
    with Client(processes=False, dashboard_address=None, n_workers=1, threads_per_worker=2) as client:
        for name, method in methods.METHODS.items():
            for operation in methods.OPERATIONS:
                if not (method.loads if operation == "load" else method.reduces):
                    continue
                for selection, turns in (("all", 1), ("region", 1), ("all", 2)):
                    task = task_of(manifest, folder, at_most, operation, selection, turns, method.pure, client)
                    result = plain(operation, method.run(task))
                    counted = Counter(reading.taken()["chunks"])
                    read = [counted[number] for number in sorted(counted)]
                    outcomes.append([[name, operation, selection, turns], {"result": result, "read": read}])
    print(json.dumps(outcomes))


def task_of(
    manifest: dict, folder: str, at_most: int, operation: str, selection: str, turns: int, pure: bool, client: Client
) -> methods.Task:
    """Return the task of reading a snapshot's chunks, so many times, in order."""
    expected, files = manifest["expected"][selection], manifest["files"]
    region = tuple(expected["region"]) if expected["region"] else None
    access = drivers.Access("sec2", drivers.UNSET, 2**20)
    source = reading.Source(access, snapshots.TYPE, snapshots.FIELD, region)
    pieces = list(snapshots.chunks([file["particles"] for file in files], at_most))
    chunks = [
        reading.Chunk(number, 0 if pure else turn, str(Path(folder, files[file]["name"])), *of)
        for turn in range(turns)
        for number, (file, *of) in enumerate(pieces)
    ]
    return methods.Task(source, chunks, operation, tuple(expected["edges"]), client)


def plain(operation: str, result: Any) -> Any:
    """Return a result as JSON has it; of an array its length and checksum."""
    if operation == "load":
        return [len(result), f"{zlib.crc32(np.ascontiguousarray(result)):08x}"]
    return float(result) if operation == "sum" else np.asarray(result).tolist()


if __name__ == "__main__":
    main()
