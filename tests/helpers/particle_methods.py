"""Runs each method of `particles` in the interpreter that runs this; prints what came out, and what was read."""

import contextlib
import json
import sys
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from sbench import drivers
from sbench.studies.particles import methods, parquet_copy, snapshot_reading, snapshots, through_yt


def main() -> None:
    """Print a list of [[method, operation, selection, turns], {"result", "read"}], as JSON; "copy": that in Parquet."""
    manifest, folder, at_most = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2], int(sys.argv[3])
    outcomes, scratch = [], Path(sys.argv[4])
    through_yt.open_snapshot(str(Path(folder, manifest["files"][0]["name"])), scratch / "index", "")
    # The workers are threads of this process, whose account has all that was read.
    with Client(processes=False, dashboard_address=None, n_workers=1, threads_per_worker=2) as client:
        for name, method in methods.METHODS.items():
            for operation in methods.OPERATIONS:
                if not (method.loads if operation == "load" else method.reduces):
                    continue
                for selection, turns in (("all", 1), ("region", 1), ("all", 2)):
                    if method.yt and (selection, turns) != ("all", 1):
                        continue
                    task = task_of(manifest, folder, at_most, operation, selection, turns, method.pure, client)
                    outcomes.append([[name, operation, selection, turns], outcome(method.run(task), operation)])
        for name, method in methods.METHODS.items():
            for operation, line in (("load", method.load), ("sum", method.add)):
                if line:
                    outcomes.append(
                        [["code", operation, name, 1], {"result": by_hand(line, operation, folder, client)}]
                    )
        for operation in methods.OPERATIONS:
            task = copied(task_of(manifest, folder, at_most, operation, "all", 1, False, client), scratch)
            outcomes.append([["copy", operation, "all", 1], outcome(methods.METHODS["futures"].run(task), operation)])
    print(json.dumps(outcomes))


def by_hand(line: str, operation: str, folder: str, client: Client) -> Any:
    """Return the result of a line of code in the script that the page shows, run among the files."""
    field = {"group": snapshots.TYPE, "field": snapshots.FIELD, "chunk": snapshots.AT_MOST}
    script = methods.format_script([f"result = {line.format(**field)}"], workers=1, threads=1, **field)
    # A cluster is there, and its workers cannot import what is defined here.
    own = {"__name__": "__main__", "there": client}
    with contextlib.chdir(folder):
        exec(script.replace("dask.distributed.Client(n_workers=1, threads_per_worker=1)", "there"), own)
    result = plain(operation, own["result"])
    # What yt read is in the account, too.
    snapshot_reading.take_account()
    return result


def outcome(result: Any, operation: str) -> dict:
    """Return a result, and how often each chunk was read since this was last asked."""
    counted = Counter(snapshot_reading.take_account()["chunks"])
    return {"result": plain(operation, result), "read": [counted[number] for number in sorted(counted)]}


def copied(task: methods.Task, folder: Path) -> methods.Task:
    """Return a task that reads a copy of its files in Parquet."""
    source = task.source
    copies_of = parquet_copy.write_copies(task.chunks, f"{source.group}/{source.field}", source.access, folder)
    addresses = dict(zip(dict.fromkeys(chunk.address for chunk in task.chunks), map(str, copies_of), strict=True))
    chunks = [replace(chunk, address=addresses[chunk.address]) for chunk in task.chunks]
    access = replace(source.access, driver="parquet")
    return replace(task, source=replace(source, access=access), chunks=chunks)


def task_of(
    manifest: dict, folder: str, at_most: int, operation: str, selection: str, turns: int, pure: bool, client: Client
) -> methods.Task:
    """Return the task of reading a snapshot's chunks, so many times, in order."""
    expected, files = manifest["expected"][selection], manifest["files"]
    region = tuple(expected["region"]) if expected["region"] else None
    access = drivers.Access("sec2", drivers.UNSET, 2**20)
    source = snapshot_reading.Source(access, snapshots.TYPE, snapshots.FIELD, region)
    pieces = list(snapshots.list_chunks([file["particles"] for file in files], at_most))
    chunks = [
        snapshot_reading.Chunk(number, 0 if pure else turn, str(Path(folder, files[file]["name"])), *of)
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
