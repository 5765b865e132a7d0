"""The configuration, resolved, and the functions that the rules share; no rules.

Reads:  the configuration file, config/schema/
Writes: nothing
"""

import json
import logging
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

from scripts import check
from scripts.building.environments import lacking
from scripts.frame import config as configuration
from scripts.frame import matrix
from scripts.frame import study as studies
from scripts.lib.program import Problem, expect_folders, expect_room
from scripts.stores import store as stores

OF_VENV = ".venv/bin/python"


def stop(problem: Problem) -> NoReturn:
    """End Snakemake with the one line of a mistake, whichever logger it has."""
    raise SystemExit(f"problem: {problem}")


def resolved(values: dict) -> dict:
    """Return the configuration with its defaults; a mistake in it stops here in one line."""
    files = workflow.config_settings.configfiles or ["config/config.yaml"]
    try:
        complete = configuration.resolve(dict(values), files)
        matrix.check(complete, files)
        expect_folders(complete["run"])
        return complete
    except Problem as problem:
        stop(problem)


def sources_of(study: str) -> list[str]:
    """Return the files that a study imports; what is not there stops here in one line."""
    try:
        return list(map(str, studies.of(study).sources(CONFIG)))
    except Problem as problem:
        stop(problem)


def interpreter() -> str:
    """Return the interpreter of the programs, as a shell takes it.

    It is that of a rule's conda environment where Snakemake makes one, else the one that runs Snakemake if it has what
    the programs import, else that of .venv.
    """
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
        return '"$CONDA_PREFIX/bin/python"'
    return OF_VENV if lacking() else shlex.quote(sys.executable)


def begin(results: Path) -> None:
    """See that the programs can run and write, and move aside what failed in a call that was interrupted before its end.

    A job's own process parses these rules too, a dry run and --lint (which asks for no variables of the environment)
    change nothing, and a folder that is locked is another's.
    """
    looks = workflow.output_settings.dryrun or not workflow.check_envvars
    locked = any(Path(".snakemake/locks").glob("*"))
    if not workflow.is_main_process or looks or locked:
        return
    try:
        if PYTHON == OF_VENV and not Path(OF_VENV).exists():
            raise Problem(
                f"what the programs import is neither in {sys.prefix} (no {lacking()[0]}) nor is there a .venv:"
                " type `make setup` and the same again, or add `--sdm conda`"
            )
        expect_room(results / "checked.json")
        check.move_aside(results, check.left_behind(results))
    except Problem as problem:
        # Snakemake's own log may lie on the same full disk; what its handler says of that would hide the line.
        logging.raiseExceptions = False
        stop(problem)


CONFIG = resolved(config)
RUN = CONFIG["run"]
PYTHON = interpreter()
begin(Path("results", RUN))
STUDIES = CONFIG["only"].get("study", list(CONFIG["studies"]))
SOURCES = {study: sources_of(study) for study in STUDIES}


wildcard_constraints:
    run=RUN,
    study="|".join(STUDIES),
    library="|".join(map(re.escape, CONFIG["libraries"])) or "none",
    store="|".join(map(re.escape, CONFIG["stores"])),
    dataset="[a-z][A-Za-z0-9-]*",
    cell="[^/]+",
    repeat="[0-9]+",


@cache
def cells_of(study: str) -> dict:
    """Return the cells of a study by name."""
    return {cell.name: cell for cell in matrix.expand(CONFIG, study)[0]}


@cache
def positions_of(study: str) -> dict:
    """Return the position at which each (cell, repeat) of a study is measured."""
    return matrix.order(CONFIG, study, list(cells_of(study).values()))


def cell_priority(wildcards, attempt=None) -> int:
    """Later positions have lower priority, study after study; all are below that of provisioning, which is 0."""
    before = STUDIES[: STUDIES.index(wildcards.study)]
    first = sum(len(positions_of(study)) for study in before)
    return (
        -1
        - first
        - positions_of(wildcards.study)[wildcards.cell, int(wildcards.repeat)]
    )


def cells_concerned(wildcards) -> list:
    """Return the cell that a rule is about, or all cells of its study."""
    cells = cells_of(wildcards.study)
    return [cells[wildcards.cell]] if hasattr(wildcards, "cell") else cells.values()


def environments_of(wildcards) -> list[str]:
    """Return the artefacts of the libraries of a cell or a study; none where no library is under test."""
    cells = cells_concerned(wildcards)
    names = {cell.levels["library"] for cell in cells if "library" in cell.levels}
    return [f"results/{RUN}/environments/{name}.json" for name in sorted(names)]


def provisions_of(wildcards) -> list[str]:
    """Return the artefacts of the data of a cell or a study in their stores; none where a study has no data."""
    cells = cells_concerned(wildcards)
    places = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{RUN}/data/{data}/{store}.json" for data, store in sorted(places)]


def records_of_study(study: str) -> list[str]:
    """Return the records of all cells and repeats of a study that the configuration asks for."""
    return [
        f"results/{RUN}/{study}/records/{cell.name}/repeat={repeat}.json"
        for cell in matrix.selected(cells_of(study).values(), CONFIG["only"])
        for repeat in matrix.repeats(CONFIG, study)
    ]


def records_of(wildcards) -> list[str]:
    """Return the records of the study that a rule is about."""
    return records_of_study(wildcards.study)


def repeats_of(wildcards) -> int:
    """Return how often the cells of a study are measured."""
    return len(matrix.repeats(CONFIG, wildcards.study))


def all_records(wildcards) -> list[str]:
    """Return the records of all studies."""
    return [record for study in STUDIES for record in records_of_study(study)]


def servers_of(wildcards) -> list[str]:
    """Return the artefact of the embedded servers where a store needs one."""
    store = CONFIG["stores"][wildcards.store]
    return (
        [f"results/{RUN}/environments/servers.json"]
        if store.get("server") == "embedded"
        else []
    )


def study_of_data(wildcards) -> str:
    """Return the study that makes a dataset, whose name begins with it."""
    return wildcards.dataset.partition("-")[0]


def data_settings(wildcards) -> str:
    """Return the generator's settings of a dataset as JSON."""
    study = study_of_data(wildcards)
    known = matrix.datasets(cells_of(study).values()) if study in STUDIES else {}
    if wildcards.dataset not in known:
        raise WorkflowError(
            f"no study of this configuration has the dataset {wildcards.dataset}"
        )
    return json.dumps(known[wildcards.dataset])


def python_of(wildcards, resources) -> str:
    """Return the interpreter of a rule's program, as a shell takes it.

    What depends on `resources` is no parameter to Snakemake: with another interpreter nothing that is done is done again.
    """
    return PYTHON


def is_conda(library: str) -> bool:
    """Return whether a library under test comes from a conda environment of its own."""
    return CONFIG["libraries"][library]["kind"] == "conda"


def lock_of(wildcards) -> str:
    """Return the file that says what a library under test has beside HDF5."""
    library = wildcards.library
    return f"envs/{library}.yaml" if is_conda(library) else "envs/measure.lock"


def conda_of_library(wildcards) -> str:
    """Return the conda environment in which a library is looked up: its own where it is of that kind."""
    library = wildcards.library
    return f"../envs/{library if is_conda(library) else 'workflow'}.yaml"


def conda_of_study(wildcards) -> str:
    """Return the conda environment in which the cells of a study are measured."""
    return f"../envs/{studies.of(wildcards.study).environment}.yaml"


def library_spec(wildcards) -> str:
    """Return a library's entry in the configuration as JSON."""
    return json.dumps(CONFIG["libraries"][wildcards.library])


def store_spec(wildcards) -> str:
    """Return a store's entry in the configuration as JSON."""
    return json.dumps(CONFIG["stores"][wildcards.store])


def attempt_of(wildcards, attempt) -> int:
    """Return which attempt at a job this is: a step that was ended from outside has a second one, which only says so."""
    return attempt


def imports_of(study: str) -> str:
    """Return what a study imports, as JSON."""
    return json.dumps(CONFIG["studies"].get(study, {}).get("imports", []))


def imported_of(wildcards) -> list[str]:
    """Return the artefact of imported results where the configuration names some."""
    return (
        [f"results/{RUN}/{wildcards.study}/imported.json"]
        if SOURCES[wildcards.study]
        else []
    )


def study_config(wildcards) -> str:
    """Return what the plan, tables and facts of a study depend on, as JSON: not which part of it is asked for now."""
    kept = {
        key: value
        for key, value in CONFIG.items()
        if key not in ("only", "ask_above", "studies")
    }
    study = {wildcards.study: CONFIG["studies"][wildcards.study]}
    return json.dumps({**kept, "only": {}, "studies": study})
