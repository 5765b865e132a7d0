"""A small place to measure single cells in: data, stores, plan and environments in a folder of their own."""

import copy
import json
import os
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

from conftest import artefact, program

from sbench.design.study import Cell

CONFIG = {
    "run": "test",
    "repeats": 2,
    "libraries": {
        "hdf5-1.14.6": {"kind": "source", "hdf5": "1.14.6"},
        "hdf5-2.0.0": {"kind": "source", "hdf5": "2.0.0"},
        "yt": {"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/yt.lock"},
        "arrays": {"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/arrays.lock"},
        "readers": {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"},
    },
    "stores": {
        "disk": {"kind": "posix"},
        "s3": {"kind": "s3", "bucket": "test", "server": "embedded"},
        "azure": {"kind": "azure-blob", "container": "test", "server": "embedded"},
    },
    "studies": {
        "shots": {
            "data": {"shots": 4, "signals": 8},
            "read_signals": 2,
            "control_cells": 0,
            # A test that hangs sets its own; what else takes long does so because the machine is busy.
            "time_limit_s": 600,
            "matrix": {
                "library": ["hdf5-2.0.0"],
                "store": ["disk"],
                "driver": ["sec2"],
                "layout": ["single-shot"],
                "access": ["shots"],
                "workers": [1],
                "page_buffer": ["unset"],
                # A machine short of memory takes pages away at any time; only tests of the cache ask for a state.
                "cache": ["any"],
            },
        },
        "particles": {
            "iterations": 2,
            "control_cells": 0,
            "time_limit_s": 600,
            "matrix": {
                "library": ["hdf5-2.0.0"],
                "store": ["disk"],
                "particles": [20000],
                "chunk": [3000],
                "operation": ["sum"],
                "method": ["futures"],
                "workers": [2],
                "threads": [1],
                "cache": ["any"],
            },
        },
        "arrays": {
            "control_cells": 0,
            "time_limit_s": 600,
            "matrix": {
                "library": ["arrays"],
                "store": ["disk"],
                "backend": ["hsds"],
                "operation": ["write"],
                "shape": ["50x40"],
                "chunks": ["20x15"],
                "cache": ["any"],
            },
        },
        "containers": {
            "control_cells": 0,
            "time_limit_s": 600,
            "matrix": {
                "library": ["readers"],
                "store": ["s3"],
                "container": ["zarr"],
                "access": ["map"],
                "shape": ["32x20x24"],
                "chunks": ["4x10x12"],
                "files": [2],
                "cache": ["any"],
            },
        },
    },
}
ROS3 = {"store": ["s3"], "driver": ["ros3"]}


class Place:
    """Where one cell is measured, step by step, so that a test can put a fault between the steps."""

    def __init__(
        self,
        folder: Path,
        environments: Path,
        once: Callable | None = None,
        data: dict | None = None,
        study: str = "shots",
        **levels: object,
    ) -> None:
        """Plan a study; `levels` replace the defaults above, lists of them make several cells of the same data.

        With `once` the data are copies.
        """
        from sbench.design import config as configuration
        from sbench.design import matrix
        from sbench.design.plan import build_plan

        values = copy.deepcopy(CONFIG)
        section = values["studies"][study]
        values["studies"] = {study: section}
        section["data"] = section.get("data", {}) | (data or {})
        section |= {
            key: levels.pop(key)
            for key in [*levels]
            if key in ("time_limit_s", "read_signals", "read_shots", "control_cells", "twins", "iterations")
        }
        values["stores"]["s3"] |= levels.pop("s3", {})
        values["libraries"] |= levels.pop("libraries", {})
        for key in levels.pop("without", ()):
            del values["stores"]["s3"][key]
        section["matrix"] |= {factor: level if isinstance(level, list) else [level] for factor, level in levels.items()}
        self.config = configuration.resolve_config(values, [])
        self.cells, _ = matrix.expand_matrix(self.config, study)
        self.folder, self.environments, self.once = folder, environments, once
        self.study, self.plan = study, folder / study / "plan.json"
        self.plan.parent.mkdir()
        self.plan.write_text(json.dumps(build_plan(self.config, study, self.cells)), encoding="utf-8")
        self.turn_to(self.cells[0])
        self.environment = environments / f"{self.cell.levels['library']}.json"

    def turn_to(self, cell: Cell) -> "Place":
        """Have the steps be those of another cell of the plan, which may have data of its own."""
        self.cell, self.data = cell, self.folder / "data" / cell.dataset
        self.manifest, self.provision = self.data / "manifest.json", self.data / "store.json"
        return self

    def make(self, expect: str = "done", **env: str) -> "Place":
        """Generate the data and put them into the store; `expect` is the status that the latter should have."""
        if self.once:
            shutil.copytree(self.once(self.cell.dataset, self._generate), self.data)
        else:
            self._generate(self.data)
        assert self.provide(**env).provided["status"] == expect, self.provided
        return self

    def provide(self, **env: str) -> "Place":
        """Put the data into the store; the artefact may say that this failed."""
        store = json.dumps(self.cell.settings["store"])
        self.provided = self._step(
            self.provision, "provision", "--store", store, "--manifest", self.manifest,
            "--servers", self.environments / "servers.json", "--folder", self.folder / "store", env=env,
        )  # fmt: skip
        return self

    def measure(self, repeat: int = 1, env: dict | None = None, cell: Cell | None = None) -> dict:
        """Measure the first or another cell once, whether or not it was measured before, and return its record."""
        out = self.folder / f"repeat={repeat}.json"
        out.unlink(missing_ok=True)
        done = self.step(out, repeat, env, cell)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return artefact(out)

    def step(
        self, out: Path, repeat: int = 1, env: dict | None = None, cell: Cell | None = None
    ) -> subprocess.CompletedProcess:
        """Run the step that measures, with its record at `out`."""
        return program(
            *("step", "measure", "--plan", self.plan, "--cell", (cell or self.cell).name, "--repeat", repeat),
            *("--environment", self.environment, "--provision", self.provision),
            *("--servers", self.environments / "servers.json", "--out", out, "--log", self.folder / "step.log"),
            env=env,
        )

    def pretend(self, prelude: str) -> None:
        """Let the library's interpreter run `prelude` before the measuring program: a fault planted where it counts."""
        found = artefact(self.environment)
        wrapper = self.folder / "python"
        code = (
            f"{prelude}\nsys.argv = ['measure_shots']\n"
            f"runpy.run_module('sbench.studies.{self.study}.measure', run_name='__main__')"
        )
        # Spawned workers import the main file again, under another name.
        guarded = "import runpy\nimport sys\nif __name__ == '__main__':\n" + textwrap.indent(code, "    ")
        (self.folder / "prelude.py").write_text(guarded, encoding="utf-8")
        command = f"exec {found['python']} -s {self.folder}/prelude.py"
        wrapper.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PWD/scripts"\n{command}\n', encoding="utf-8")
        wrapper.chmod(0o755)
        self.environment = self.folder / "environment.json"
        self.environment.write_text(json.dumps(found | {"python": str(wrapper)}), encoding="utf-8")

    def _generate(self, folder: Path) -> None:
        settings = ("--dataset", self.cell.dataset, "--settings", json.dumps(self.cell.settings["data"]))
        step = self._step(folder / "manifest.json", f"sbench.studies.{self.study}.make", *settings)
        assert step["status"] == "done", step

    def _step(self, out: Path, name: str, *arguments: object, env: dict | None = None) -> dict:
        done = program(
            "step",
            "run",
            "--out",
            out,
            "--log",
            self.folder / f"{name}.log",
            name,
            "--",
            *arguments,
            env={**os.environ, **(env or {})},
        )
        assert done.returncode == 0, done.stderr
        return artefact(out)
