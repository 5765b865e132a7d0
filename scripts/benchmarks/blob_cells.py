"""Objects in their stores for the benchmarks of parallel input, and cells that are measured as the workflow does."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.benchmarks.common import Say, program, used
from scripts.frame import config as configuration
from scripts.frame import matrix
from scripts.lib.program import Problem, read_json, write_json
from scripts.plan import plan
from scripts.stores import store as stores
from scripts.stores.azure import CONNECTION, server
from scripts.stores.servers import Served

STORES = {
    "disk": {"kind": "posix"},
    "s3": {"kind": "s3", "bucket": "bench", "server": "embedded"},
    "azure": {"kind": "azure-blob", "container": "bench", "server": "embedded"},
}
_LEVELS = {
    "pattern": ["sections"],
    "size": ["64MiB"],
    "processes": [1],
    "objects": ["shared"],
    "operation_size": ["1GiB"],
    "chunk_size": ["4MiB"],
    "concurrency": [1],
    "cache": ["warm"],
}


@dataclass(frozen=True)
class Cell:
    """A cell whose objects are in its store.

    Attributes:
        store: the store's entry in the configuration.
        manifest: of its objects.
        provision: what says where they are.
    """

    name: str
    folder: Path
    levels: dict[str, str]
    store: dict
    manifest: dict
    provision: dict

    def measure(self) -> dict:
        """Measure the cell once; returns its record.

        Raises:
            Problem: it has failed.
        """
        out = self.folder / "repeat=1.json"
        out.unlink(missing_ok=True)
        step = ("--plan", self.folder / "plan.json", "--cell", self.name, "--repeat", 1, "--log", self.folder / "log")
        data = ("--provision", self.folder / "store.json", "--servers", self.folder / "servers.json")
        used(program("scripts.step", "measure", *step, *data, "--out", out))
        record = read_json(out)
        if record["status"] != "done":
            raise Problem("; ".join(record["reasons"]))
        return record

    @contextlib.contextmanager
    def served(self) -> Iterator[dict]:
        """Serve the store for readers of this process, in whose environment its address is; yields the location."""
        store = stores.of(self.store)
        if not store.embedded:
            yield self.provision["location"]
            return
        with (
            open(self.folder / "server.log", "w", encoding="utf-8") as log,
            store.serve(read_json(self.folder / "servers.json"), Path(self.provision["folder"]), None, log) as served,
            _environment(_variables(self.store, served)),
        ):
            prefix = self.store["prefix"]
            yield {"key": "/".join(filter(None, [prefix, self.provision["location"]["dataset"]]))}


def cells(folder: Path, say: Say, iterations: int = 1, **levels: list) -> list[Cell]:
    """Make the objects of a matrix of cells and put them into their stores; `levels` replace _LEVELS."""
    study = {"data": {"objects": 1}, "iterations": iterations, "ceiling_rounds": 1, "control_cells": 0}
    study |= {"time_limit_s": 3600, "matrix": {**_LEVELS, **levels}}
    config = configuration.resolve({"run": "bench", "stores": STORES, "studies": {"blobs": study}}, [])
    expanded, _ = matrix.expand(config, "blobs")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", plan(config, "blobs", expanded))
    used(program("scripts.build_servers", "--out", folder / "servers.json"))
    return [_provided(folder, one, say) for one in expanded]


def _provided(folder: Path, cell: matrix.Cell, say: Say) -> Cell:
    own = folder / cell.levels["store"] / cell.dataset
    manifest, store, out = own / "manifest.json", cell.settings["store"], own / "store.json"
    if not out.exists():
        say(f"making {cell.levels['size']} in {cell.levels['store']}")
        data = json.dumps(cell.settings["data"])
        used(program("scripts.studies.blobs.make", "--dataset", cell.dataset, "--settings", data, "--out", manifest))
        place = ("--servers", folder / "servers.json", "--folder", own / "files", "--out", out)
        used(program("scripts.provision", "--store", json.dumps(store), "--manifest", manifest, *place))
        for name in ("plan.json", "servers.json"):
            (own / name).symlink_to(folder / name)
    return Cell(cell.name, own, cell.levels, store, read_json(manifest), read_json(out))


def _variables(store: dict, served: Served) -> dict[str, str]:
    if store["kind"] == "azure-blob":
        return {CONNECTION: server.connection_string(served.endpoint, served.credentials)}
    return {
        "AWS_ENDPOINT_URL": served.endpoint,
        "AWS_ACCESS_KEY_ID": served.credentials["access_key"],
        "AWS_SECRET_ACCESS_KEY": served.credentials["secret_key"],
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
