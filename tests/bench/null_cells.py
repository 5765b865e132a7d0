"""A cell that reads next to nothing: what the workflow costs around what it measures, part by part."""

import statistics
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import h5py

from sbench.probe.program import Problem, read_json
from sbench.stores import store as kinds
from tests.bench.common import (
    DISK,
    LIBRARIES,
    S3,
    Row,
    Say,
    compared,
    configuration,
    copy_tree,
    program,
    seconds_of,
    snakemake,
    timed,
    used,
)
from tests.bench.prepared import interpreter, servers

_PATH = "import sys; sys.path[0] = 'scripts'"
_LIBRARY = "hdf5-2.0.0"
_STORES = {"disk": DISK, "s3": S3, "proxied": {**S3, "network": {}}}


def rows(folder: Path, say: Say, repeats: int = 6, starts: int = 7) -> Iterator[Row]:
    """Run cells that read next to nothing under Snakemake, from three stores, and take apart what they cost."""
    tree, config = copy_tree(folder), null_run(folder, repeats, _STORES)
    say("making data and putting them into their stores")
    used(snakemake(config, "--until", "ready"), tree)
    say(f"measuring {repeats * len(_STORES)} null cells")
    measuring = snakemake(config, "--until", "measure")
    whole = used(measuring, tree).seconds
    say("starting Snakemake with nothing to do")
    idle = [used(measuring, tree).seconds for _ in range(starts)]
    records = _records(tree)
    steps = {store: [record["step_seconds"] for record in of_store] for store, of_store in records.items()}
    all_steps = list(chain(*steps.values()))
    a_cell = (whole - statistics.median(idle)) / len(all_steps)
    say("starting each part alone")
    imports = _starts(program("step", "measure", "--help"), starts)
    own = a_cell - statistics.mean(all_steps) - statistics.median(imports)
    yield Row("Snakemake: start, and a plan with nothing to do", seconds_of(idle))
    yield Row("null cell under Snakemake, mean of all stores", seconds_of([a_cell]))
    yield Row("  Snakemake and the shell", seconds_of([own]), "what the other parts leave over")
    yield Row("  interpreter and imports of the step", seconds_of(imports))
    yield Row("  the step", seconds_of(all_steps))
    # What can be started alone, and what the records say.
    yield Row("    S3 server, start and end", seconds_of(_served(folder, None, starts)))
    yield Row("    S3 server and proxy, start and end", seconds_of(_served(folder, {}, starts)))
    reader = [
        interpreter(folder, _LIBRARY, say),
        "-sE",
        "-c",
        f"{_PATH}; import sbench.studies.shots.measure, distributed",
    ]
    yield Row("    interpreter and imports of the measuring program", seconds_of(_starts(reader, starts)))
    for key, what in (("cluster_start", "Dask cluster start"), ("null", "an empty task"), ("total", "timed window")):
        yield Row(f"    {what}", seconds_of([record["seconds"][key] for record in chain(*records.values())]))
    yield Row("step of a null cell on disk", seconds_of(steps["disk"]))
    yield compared("step of a null cell from S3", steps["s3"], "on disk", steps["disk"])
    yield compared("step of a null cell from S3 behind the proxy", steps["proxied"], "from S3", steps["s3"])


def null_run(folder: Path, repeats: int, stores: dict) -> Path:
    """Write a configuration of a null cell in each store, and the smallest shot for it to read; return its file."""
    data = folder / "null.h5"
    with h5py.File(data, "w") as file:
        file["shots/1/signals/null"] = 0.0
    common = {"library": [_LIBRARY], "layout": ["single-shot"], "access": ["shots"], "workers": [1], "cache": ["cold"]}
    drivers = {name: ("sec2", "unset") if spec["kind"] == "posix" else ("ros3", "0") for name, spec in stores.items()}
    matrix = [
        {**common, "store": [name], "driver": [driver], "page_buffer": [buffer]}
        for name, (driver, buffer) in drivers.items()
    ]
    libraries, section = {_LIBRARY: LIBRARIES[_LIBRARY]}, {"data": {"files": str(data)}, "matrix": matrix}
    return configuration(folder / "null.json", libraries, stores, repeats, **section)


def _records(tree: Path) -> dict[str, list[dict]]:
    by_store: dict[str, list[dict]] = {store: [] for store in _STORES}
    for path in (tree / "results/bench/shots/records").glob("*/repeat=*.json"):
        record = read_json(path)
        if record["status"] != "done" or not record["valid"]:
            raise Problem(f"a null cell failed: {'; '.join(record['reasons'])}")
        by_store[record["cell"]["store"]].append(record)
    return {store: sorted(records, key=lambda record: record["repeat"]) for store, records in by_store.items()}


def _starts(command: list[str], starts: int) -> list[float]:
    return [used(command).seconds for _ in range(starts)]


def _served(folder: Path, network: dict | None, starts: int) -> list[float]:
    """Return the seconds of starts and ends of an S3 server without or with a proxy before it."""
    binaries = read_json(servers(folder))
    with open(folder / "server.log", "w", encoding="utf-8") as log:

        def once() -> None:
            with kinds.of(S3).serve(binaries, folder / "empty", network, log):
                pass

        return [timed(once)() for _ in range(starts)]
