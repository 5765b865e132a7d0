"""A cell that reads next to nothing: what the workflow costs around what it measures, part by part."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import h5py
import yaml

from scripts.analysis import config as configuration
from scripts.benchmarks.common import (
    LIBRARIES,
    Row,
    Say,
    compared,
    copy_tree,
    environments,
    program,
    seconds_of,
    snakemake,
    timed,
    used,
)
from scripts.lib.program import Problem, read_json
from scripts.stores import servers

REPEATS = 6
STARTS = 7
_LIBRARY = "hdf5-2.0.0"
_STORES = {"disk": "on disk", "s3": "from S3", "proxied": "from S3 through the proxy"}


def rows(folder: Path, say: Say) -> Iterator[Row]:
    """Run null cells under Snakemake in three stores, block by block, and take apart what they cost."""
    artefacts = environments(folder, say)
    tree, config = copy_tree(folder), _config(folder)
    say("making data and putting them into their stores")
    used(snakemake(config, "results/bench/shots/ready.json"), tree)
    say(f"measuring {REPEATS * len(_STORES)} null cells")
    whole = used(snakemake(config, "--until", "measure"), tree).seconds
    say("starting Snakemake with nothing to do")
    idle = [used(snakemake(config, "--until", "measure"), tree).seconds for _ in range(STARTS)]
    records = _records(tree)
    steps = {store: [record["step_seconds"] for record in found] for store, found in records.items()}
    a_cell = (whole - statistics.median(idle)) / (REPEATS * len(_STORES))
    say("starting each part alone")
    imports = _starts(program("scripts.step", "measure", "--help"))
    reader = _starts([artefacts[_LIBRARY]["python"], "-sE", "-c", "import scripts.measure_shots, distributed"])
    own = a_cell - statistics.mean(sum(steps.values(), [])) - statistics.median(imports)
    yield Row("Snakemake: start, and a plan with nothing to do", seconds_of(idle))
    yield Row("null cell, mean of all: as Snakemake's clock sees it", seconds_of([a_cell]))
    yield Row("  of it: Snakemake and the shell", seconds_of([own]), "what the rows below leave over")
    yield Row("  of it: the step's interpreter and imports", seconds_of(imports))
    yield Row("  of it: the step", seconds_of(sum(steps.values(), [])))
    for store, name in _STORES.items():
        other = {"s3": "disk", "proxied": "s3"}.get(store)
        what = f"step of a null cell {name}"
        if other:
            yield compared(what, steps[store], _STORES[other], steps[other])
        else:
            yield Row(what, seconds_of(steps[store]))
    found = sum(records.values(), [])
    yield Row("  of it: S3 server, start and end", seconds_of(_served(folder, artefacts, None)))
    yield Row("  of it: S3 server and proxy, start and end", seconds_of(_served(folder, artefacts, {})))
    yield Row("  of it: the measuring program's interpreter and imports", seconds_of(reader))
    for key, what in (("cluster_start", "Dask cluster start"), ("null", "an empty task"), ("total", "timed window")):
        yield Row(f"  of it: {what}", seconds_of([record["seconds"][key] for record in found]))


def _config(folder: Path) -> Path:
    """Write a configuration of a null cell in each store, and the smallest shot for it to read."""
    data = folder / "null.h5"
    with h5py.File(data, "w") as file:
        file["shots/1/signals/null"] = 0.0
    common = {"library": [_LIBRARY], "layout": ["single-shot"], "access": ["shots"], "workers": [1]}
    s3 = {"kind": "s3", "bucket": "bench", "server": "embedded"}
    values = {
        "run": "bench",
        "repeats": REPEATS,
        "libraries": {_LIBRARY: LIBRARIES[_LIBRARY]},
        "stores": {"disk": {"kind": "posix"}, "s3": s3, "proxied": {**s3, "network": {}}},
        "studies": {
            "shots": {
                "data": {"files": str(data)},
                "control_cells": 0,
                "matrix": [
                    {**common, "store": ["disk"], "driver": ["sec2"], "page_buffer": ["unset"], "cache": ["cold"]},
                    {**common, "store": ["s3", "proxied"], "driver": ["ros3"], "page_buffer": ["0"], "cache": ["cold"]},
                ],
            }
        },
    }
    path = folder / "null.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    configuration.load(path)
    return path


def _records(tree: Path) -> dict[str, list[dict]]:
    """Return the records of each store in the order of their repeats."""
    found: dict[str, list[dict]] = {store: [] for store in _STORES}
    for path in sorted((tree / "results/bench/shots/records").glob("*/repeat=*.json")):
        record = read_json(path)
        if record["status"] != "done" or not record["valid"]:
            raise Problem(f"a null cell failed: {'; '.join(record['reasons'])}")
        found[record["cell"]["store"]].append(record)
    return {store: sorted(records, key=lambda record: record["repeat"]) for store, records in found.items()}


def _starts(command: list[str]) -> list[float]:
    return [used(command).seconds for _ in range(STARTS)]


def _served(folder: Path, artefacts: dict, network: dict | None) -> list[float]:
    """Return the seconds of starts and ends of an S3 server without or with a proxy before it."""
    with open(folder / "server.log", "w", encoding="utf-8") as log:

        def once() -> None:
            with servers.s3(artefacts["servers"], folder / "empty", network, log):
                pass

        return [timed(once)() for _ in range(STARTS)]
