"""Runs that measure until they can decide, with synthetic records in the place of measurements."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from sbench.design import blocks, matrix, plan
from sbench.design.config import load_config
from sbench.design.study import Cell
from sbench.measure import rounds
from sbench.probe.program import write_json
from tests.helpers import records
from tests.helpers.small_runs import TINY

STUDY = "shots"
_SHOTS = TINY["studies"][STUDY]


def configure(folder: Path, repeats: int = 6, controls: int = 0, **settings: object) -> dict:
    """Write and load a configuration with four cells: two sides of an access, each with two page buffers."""
    shots = copy.deepcopy(_SHOTS) | {"control_cells": controls}
    shots["matrix"] |= {"page_buffer": ["0", "64MiB"], "layout": ["shot-major"]}
    shots["data"] = {"shots": 2, "signals": 4, "page_size": 4194304}
    path = folder / "config.yaml"
    values = TINY | {"run": "synthetic", "repeats": repeats, "studies": {STUDY: shots}} | settings
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return load_config(path)


def list_cells(config: dict) -> list[Cell]:
    """Return the cells of the study."""
    return matrix.expand_matrix(config, STUDY)[0]


class Simulation:
    """A study that is measured in the working directory without Snakemake.

    Attributes:
        looks: artefacts of the looks of the last call.
        measured: names of the cells by block.
    """

    def __init__(
        self,
        config: dict,
        ratio: Callable[[dict[str, str]], float] = lambda levels: 1.0,
        noise: float = 0.02,
        change: Callable[[dict], dict | None] = lambda record: record,
        seed: int = 1,
        step_s: float = 2.0,
    ) -> None:
        """Set up a study whose cells take `ratio` times as long as each other, with a noise of ln(time)."""
        self.config, self._ratio, self._noise, self._change, self._step_s = config, ratio, noise, change, step_s
        self._random = np.random.default_rng(seed)
        self.cells, self.looks, self.measured = list_cells(config), [], {}
        self.folder = Path("results", config["run"], STUDY)
        self._calls = 0

    def call(self, most_looks: int = 99) -> list[dict]:
        """Measure until no look orders further blocks, as a call of the workflow does; return the looks."""
        self._calls += 1
        selected = matrix.select_cells(self.cells, self.config["only"])
        self.folder.mkdir(parents=True, exist_ok=True)
        table = plan.format_matrix_csv(STUDY, *matrix.expand_matrix(self.config, STUDY))
        (self.folder / "matrix.csv").write_text(table, encoding="utf-8")
        opened = blocks.open_blocks(self.config, selected, self.cells)
        for path in blocks.get_looks_folder(self.config["run"], STUDY).glob("*.json"):
            path.unlink()
        blocks.write_blocks(self.folder / "blocks.json", opened)
        self._measure(opened.order)
        self.looks = []
        for number in range(1, most_looks + 1):
            look = rounds.take_look(self.config, STUDY, self.folder, number)
            write_json(self.folder / "looks" / f"{number}.json", look)
            self.looks.append(look)
            if not look["blocks"]:
                break
            self._measure(blocks.read_order(self.folder / "looks" / f"{number}.json"))
        return self.looks

    def _measure(self, order: blocks.Order) -> None:
        names = order.select_cells([cell.name for cell in matrix.select_cells(self.cells, self.config["only"])])
        most = self.config.get("most_repeats", self.config["repeats"])
        rounds_of = {"round": order.round, "most_repeats": most} if most > self.config["repeats"] else {}
        for block in order.blocks:
            self.measured[block] = names
            drift = self._random.normal(0, 0.1)
            for cell in (cell for cell in self.cells if cell.name in names):
                row = {"cell": cell.name, **{key: str(value) for key, value in cell.levels.items()}}
                scale = self._ratio(row) * np.exp(drift + self._random.normal(0, self._noise))
                record = records.build_record(row, block, 4, float(scale), self._random) | {
                    "run": self.config["run"],
                    "session": f"call-{self._calls}",
                    "step_seconds": self._step_s,
                    "block_cells": len(names),
                    **rounds_of,
                }
                if (changed := self._change(record)) is not None:
                    path = self.folder / "records" / cell.name / f"repeat={block}.json"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(records.sealed(changed), encoding="utf-8")
