"""Cells as the workflow prepares them: planned, their data in their stores, servers and libraries built."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.design.plan import plan
from sbench.measure.cell import inherited
from sbench.probe.program import Problem, read_json, write_json
from sbench.stores import store as kinds
from tests.bench.common import LIBRARIES, Say, program, used


@dataclass(frozen=True)
class Cell:
    """A planned cell whose data are in its store; plan, log and record are in `folder`.

    Attributes:
        data: artefact of the data in the store, which `provision` is read from; None where the study has none.
    """

    name: str
    folder: Path
    levels: dict[str, str]
    store: dict
    data: Path | None
    provision: dict
    manifest: dict

    def measure(self) -> dict:
        """Measure the cell once, with its library if it has one; returns its record.

        Raises:
            Problem: it has failed.
        """
        out = self.folder / "repeat=1.json"
        out.unlink(missing_ok=True)
        step = ["--plan", self.folder / "plan.json", "--cell", self.name, "--repeat", 1, "--log", self.folder / "log"]
        if self.data:
            step += ["--provision", self.data]
        if "library" in self.levels:
            step += ["--environment", self.folder / f"{self.levels['library']}.json"]
        used(program("step", "measure", *step, "--servers", servers(self.folder), "--out", out))
        record = read_json(out)
        if record["status"] != "done":
            raise Problem("; ".join(record["reasons"]))
        return record

    @contextlib.contextmanager
    def served(self) -> Iterator[dict]:
        """Serve the store, with its credentials in this process's environment; yields the location of the data."""
        before = dict(os.environ)
        with open(self.folder / "server.log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
            stack.callback(os.environ.update, before)
            stack.callback(os.environ.clear)
            binaries = servers(self.folder)
            _, location, env = kinds.serve(stack, self.store, self.provision, inherited(), binaries, log)
            os.environ.update(env)
            yield location


def cells(folder: Path, say: Say, study: str, stores: dict[str, dict], **section: object) -> list[Cell]:
    """Plan a study of this section of a configuration, without controls, and put its data into their stores."""
    studies = {study: {"control_cells": 0, "time_limit_s": 3600, **section}}
    config = configuration.resolve({"run": "bench", "libraries": LIBRARIES, "stores": stores, "studies": studies}, [])
    expanded, _ = matrix.expand(config, study)
    write_json(folder / "plan.json", plan(config, study, expanded))
    return [_prepared(folder, study, cell, say) for cell in expanded]


def _prepared(folder: Path, study: str, cell: matrix.Cell, say: Say) -> Cell:
    store, name = cell.settings["store"], cell.levels["store"]
    if not cell.dataset:
        return Cell(cell.name, folder, cell.levels, store, None, {}, {})
    manifest, out = (folder / "data" / cell.dataset / f"{file}.json" for file in ("manifest", name))
    if not out.exists():
        say(f"putting {cell.dataset} into {name}")
        data = json.dumps(cell.settings["data"])
        used(program(f"sbench.studies.{study}.make", "--dataset", cell.dataset, "--settings", data, "--out", manifest))
        place = ("--manifest", manifest, "--servers", servers(folder), "--folder", folder / "stores" / name)
        used(program("provision", "--store", json.dumps(store), *place, "--out", out))
    return Cell(cell.name, folder, cell.levels, store, out, read_json(out), read_json(manifest))


def servers(folder: Path) -> Path:
    """Return the artefact of the servers, from the cache or built now."""
    return _built(folder / "servers.json", "build_servers")


def interpreter(folder: Path, library: str, say: Say) -> str:
    """Return the interpreter that has one of `LIBRARIES`, from the cache or built now."""
    say(f"{library}, from the cache or built now")
    spec = ("--library", library, "--spec", json.dumps(LIBRARIES[library]))
    return read_json(_built(folder / f"{library}.json", "build_library", *spec))["python"]


def _built(out: Path, name: str, *arguments: str) -> Path:
    if not out.exists():
        used(program(name, *arguments, "--out", out))
    return out
