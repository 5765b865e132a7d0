"""The configuration, resolved, and what the rules share; no rules.

Reads:  the configuration file, config/schema/
Writes: nothing
"""

import json
import logging
import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

from scripts import check
from scripts.building.environments import lacking
from scripts.frame import config as configuration
from scripts.frame import matrix, measuring
from scripts.frame import study as studies
from scripts.lib.program import Problem, expect_folders, expect_room
from scripts.stores import store as stores

OF_VENV = ".venv/bin/python"


def interpreter() -> str:
    """Return the interpreter of the programs, as a shell takes it.

    It is that of a rule's conda environment where Snakemake makes one, else the one that runs Snakemake if it has what
    the programs import, else that of .venv.
    """
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
        return '"$CONDA_PREFIX/bin/python"'
    return OF_VENV if lacking() else shlex.quote(sys.executable)


def begin(results: Path) -> None:
    """Name the session, see that the programs can write, and move aside what failed in a call that was interrupted.

    A job's own process parses these rules too, a dry run and --lint (which asks for no variables of the environment)
    change nothing, and a folder that is locked is another's.
    """
    if workflow.is_main_process:
        os.environ[measuring.SESSION] = measuring.session_now()
    looks = workflow.output_settings.dryrun or not workflow.check_envvars
    locked = any(Path(".snakemake/locks").glob("*"))
    if not workflow.is_main_process or looks or locked:
        return
    if PYTHON == OF_VENV and not Path(OF_VENV).exists():
        raise Problem(
            f"what the programs import is neither in {sys.prefix} (no {lacking()[0]}) nor is there a .venv:"
            " type `make setup` and the same again, or add `--sdm conda`"
        )
    expect_room(results / "checked.json")
    check.move_aside(results, check.left_behind(results))


PYTHON = interpreter()
# No parameter of a rule, so that with another interpreter nothing that is done is done again.
shell.prefix('program() {{ exec {PYTHON} -sE -m scripts."$@"; }}; ')
FILES = workflow.config_settings.configfiles or ["config/config.yaml"]
try:
    CONFIG = configuration.resolve(dict(config), FILES)
    EXPANDED = matrix.expand_all(CONFIG, FILES)
    RUN = CONFIG["run"]
    expect_folders(RUN)
    begin(Path("results", RUN))
    STUDIES = CONFIG["only"].get("study", list(CONFIG["studies"]))
    SOURCES = {
        study: list(map(str, studies.of(study).sources(CONFIG))) for study in STUDIES
    }
except Problem as problem:
    # Snakemake's own log may lie on a disk that is full; what its handler says of that would hide the line.
    logging.raiseExceptions = False
    raise SystemExit(f"problem: {problem}")
CELLS = {study: {cell.name: cell for cell in EXPANDED[study][0]} for study in STUDIES}
DATA = matrix.datasets(cell for cells in CELLS.values() for cell in cells.values())
OF_CONDA = [
    name for name, spec in CONFIG["libraries"].items() if spec["kind"] == "conda"
]
PARTS = {"libraries": CONFIG["libraries"], "stores": CONFIG["stores"], "data": DATA}
# What programs are told of a library, a store or a dataset, as JSON.
SPECS = {
    part: {name: json.dumps(spec) for name, spec in specs.items()}
    for part, specs in PARTS.items()
}


wildcard_constraints:
    run=RUN,
    study="|".join(STUDIES),
    library="|".join(map(re.escape, CONFIG["libraries"])) or "none",
    store="|".join(map(re.escape, CONFIG["stores"])),
    dataset="|".join(map(re.escape, DATA)) or "none",
    cell="[^/]+",
    repeat="[0-9]+",


@cache
def positions() -> dict:
    """Return the position, from 1, at which each (study, cell, repeat) is measured, study after study."""
    orders = {
        study: matrix.order(CONFIG, study, list(CELLS[study].values()))
        for study in STUDIES
    }
    places = [(study, *place) for study, order in orders.items() for place in order]
    return {place: number for number, place in enumerate(places, 1)}


def cell_priority(wildcards, attempt=None) -> int:
    """Later positions have lower priority; all are below that of provisioning, which is 0."""
    return -positions()[wildcards.study, wildcards.cell, int(wildcards.repeat)]


def cells_concerned(wildcards) -> list:
    """Return the cell that a rule is about, or all cells of its study."""
    cells = CELLS[wildcards.study]
    return [cells[wildcards.cell]] if hasattr(wildcards, "cell") else cells.values()


def environments_of(wildcards) -> list[str]:
    """Return the artefacts of the libraries of a cell or a study; none where no library is under test."""
    levels = [cell.levels for cell in cells_concerned(wildcards)]
    names = {level["library"] for level in levels if "library" in level}
    return [f"results/{RUN}/environments/{name}.json" for name in sorted(names)]


def provisions_of(wildcards) -> list[str]:
    """Return the artefacts of the data of a cell or a study in their stores; none where a study has no data."""
    cells = cells_concerned(wildcards)
    places = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{RUN}/data/{data}/{store}.json" for data, store in sorted(places)]


def records_of(wildcards) -> list[str]:
    """Return the records that the configuration asks for, of all cells and repeats of a rule's study, or of all studies."""
    return [
        f"results/{RUN}/{study}/records/{cell.name}/repeat={repeat}.json"
        for study in ([wildcards.study] if hasattr(wildcards, "study") else STUDIES)
        for cell in matrix.selected(CELLS[study].values(), CONFIG["only"])
        for repeat in matrix.repeats(CONFIG, study)
    ]


def repeats_of(wildcards) -> int:
    """Return how often the cells of a study are measured."""
    return len(matrix.repeats(CONFIG, wildcards.study))


def servers_of(wildcards) -> list[str]:
    """Return the artefact of the embedded servers where a store needs one."""
    embedded = CONFIG["stores"][wildcards.store].get("server") == "embedded"
    return [f"results/{RUN}/environments/servers.json"] if embedded else []


def study_of_data(wildcards) -> str:
    """Return the study that makes a dataset, whose name begins with it."""
    return wildcards.dataset.partition("-")[0]


def lock_of(wildcards) -> str:
    """Return the file that says what a library under test has beside HDF5."""
    library = wildcards.library
    return f"envs/{library}.yaml" if library in OF_CONDA else "envs/measure.lock"


def conda_of_library(wildcards) -> str:
    """Return the conda environment in which a library is looked up: its own where it is of that kind."""
    library = wildcards.library
    return f"../envs/{library if library in OF_CONDA else 'workflow'}.yaml"


def conda_of_study(wildcards) -> str:
    """Return the conda environment in which the cells of a study are measured."""
    return f"../envs/{studies.of(wildcards.study).environment}.yaml"


def attempt_of(wildcards, attempt) -> int:
    """Return which attempt at a job this is: a step that was ended from outside has a second one, which only says so."""
    return attempt


def imported_of(wildcards) -> list[str]:
    """Return the artefact of imported results where the configuration names some."""
    imported = f"results/{RUN}/{wildcards.study}/imported.json"
    return [imported] if SOURCES[wildcards.study] else []


def study_config(wildcards) -> str:
    """Return what the plan, tables and facts of a study depend on, as JSON: not which part of it is asked for now."""
    apart = ("only", "ask_above", "studies")
    kept = {key: value for key, value in CONFIG.items() if key not in apart}
    study = {wildcards.study: CONFIG["studies"][wildcards.study]}
    return json.dumps({**kept, "only": {}, "studies": study})
