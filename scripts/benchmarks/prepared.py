"""Cells as the workflow prepares them: planned, their data in their stores, servers and libraries built."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.benchmarks.common import LIBRARIES, Say, program, used
from scripts.frame import config as configuration
from scripts.frame import matrix
from scripts.frame.measuring import inherited
from scripts.lib.program import Problem, read_json, write_json
from scripts.plan import plan
from scripts.stores import store as kinds
from scripts.stores.servers import Served


@dataclass(frozen=True)
class Cell:
    """A cell whose data are in its store.

    Attributes:
        name: its own.
        folder: where the plan, the servers' artefact and the cell's log and record are.
        levels: factor -> level.
        store: the store's entry in the configuration.
        data: artefact of the data in the store; None where the study has none.
    """

    name: str
    folder: Path
    levels: dict[str, str]
    store: dict
    data: Path | None

    @property
    def provision(self) -> dict:
        """What says where the data are."""
        return read_json(self.data)

    @property
    def manifest(self) -> dict:
        """The manifest of the data."""
        return read_json(self.provision["manifest"])

    def measure(self) -> dict:
        """Measure the cell once; returns its record.

        Raises:
            Problem: it has failed.
        """
        out = self.folder / "repeat=1.json"
        out.unlink(missing_ok=True)
        step = ("--plan", self.folder / "plan.json", "--cell", self.name, "--repeat", 1, "--log", self.folder / "log")
        data = ("--provision", self.data) if self.data else ()
        used(program("scripts.step", "measure", *step, *data, "--servers", servers(self.folder), "--out", out))
        record = read_json(out)
        if record["status"] != "done":
            raise Problem("; ".join(record["reasons"]))
        return record

    @contextlib.contextmanager
    def served(self) -> Iterator[tuple[Served | None, dict, dict[str, str], IO[str]]]:
        """Serve the store; yields server, location of the data, environment of a reader, and the server's log."""
        with open(self.folder / "server.log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
            yield *kinds.serve(stack, self.store, self.provision, inherited(), servers(self.folder), log), log


def cells(folder: Path, say: Say, study: str, stores: dict[str, dict], **section: object) -> list[Cell]:
    """Plan a study of this section of a configuration and put its data into their stores."""
    config = {"run": "bench", "libraries": LIBRARIES, "stores": stores, "studies": {study: section}}
    config = configuration.resolve(config, [])
    expanded, _ = matrix.expand(config, study)
    write_json(folder / "plan.json", plan(config, study, expanded))
    return [
        Cell(cell.name, folder, cell.levels, cell.settings["store"], _provided(folder, study, cell, say))
        for cell in expanded
    ]


def _provided(folder: Path, study: str, cell: matrix.Cell, say: Say) -> Path | None:
    """Return the artefact of a cell's data in its store, once they are there."""
    if not cell.dataset:
        return None
    store = cell.levels["store"]
    manifest, out = (folder / "data" / cell.dataset / f"{name}.json" for name in ("manifest", store))
    if not out.exists():
        say(f"putting {cell.dataset} into {store}")
        data = json.dumps(cell.settings["data"])
        used(program(f"scripts.studies.{study}.make", "--dataset", cell.dataset, "--settings", data, "--out", manifest))
        place = ("--servers", servers(folder), "--folder", folder / "stores" / store, "--out", out)
        used(
            program("scripts.provision", "--store", json.dumps(cell.settings["store"]), "--manifest", manifest, *place)
        )
    return out


def servers(folder: Path) -> Path:
    """Return the artefact of the servers, from the cache or built now."""
    out = folder / "servers.json"
    if not out.exists():
        used(program("scripts.build_servers", "--out", out))
    return out


def interpreter(folder: Path, library: str, say: Say) -> str:
    """Return the interpreter that has one of `LIBRARIES`, from the cache or built now."""
    out = folder / f"{library}.json"
    if not out.exists():
        say(f"{library}, from the cache or built now")
        spec = json.dumps(LIBRARIES[library])
        used(program("scripts.build_library", "--library", library, "--spec", spec, "--out", out))
    return read_json(out)["python"]
