"""The configuration, resolved, and what the rules share; no rules.

Reads:  the configuration file
Writes: nothing
"""

import gc
import json
import logging
import math
import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path

from snakemake.settings.types import DeploymentMethod

# The package lies in the clone and need not be installed.
sys.path.insert(0, str(Path(workflow.basedir, "scripts")))

from sbench.build.environments import lacking
from sbench.design import config as configuration
from sbench.design import blocks, matrix, records, session
from sbench.design import study as studies
from sbench.measure import failures
from sbench.probe import slurm
from sbench.probe.program import Problem, expect_folders, expect_room, read_json
from sbench.stores import store as stores

# Jobs stay until the end: of 10,000 cells, Python would look for garbage among them for a sixth of the plan's time.
gc.set_threshold(100_000)
OF_VENV = ".venv/bin/python"


def interpreter() -> str:
    """Return the interpreter of the programs, as a shell takes it.

    It is that of a rule's conda environment where Snakemake makes one, else the one that runs Snakemake if it has what
    the programs import, else that of .venv.
    """
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
        return '"$CONDA_PREFIX/bin/python"'
    return OF_VENV if lacking() else shlex.quote(sys.executable)


def begin() -> dict[str, blocks.Open]:
    """Name the session, see that the programs can write, and return which blocks of each study this call measures.

    What failed in a call that was interrupted, and cells to be measured anew, are moved aside. A job's own process
    parses these rules too, a dry run and --lint (which asks for no variables of the environment) change nothing, and a
    folder that is locked is another's.
    """
    if not workflow.is_main_process:
        return {study: blocks.read(RESULTS / study / "blocks.json") for study in STUDIES}
    session.begin()
    looks = workflow.output_settings.dryrun or not workflow.check_envvars
    changes = not looks and not any(Path(".snakemake/locks").glob("*"))
    if changes:
        if PYTHON == OF_VENV and not Path(OF_VENV).exists():
            raise Problem(
                f"what the programs import is neither in {sys.prefix} (no {lacking()[0]}) nor is there a .venv:"
                " type `make setup` and the same again, or add `--sdm conda`"
            )
        if jobs := slurm.left_behind(Path.cwd()):
            raise Problem(
                f"jobs of an earlier call are in the queue ({' '.join(jobs)}): wait until they end, or scancel them,"
                " and type the same again"
            )
        expect_room(RESULTS / "checked.json")
        failures.move_aside(RESULTS, failures.left_behind(RESULTS))
    opened = {
        study: blocks.decide(CONFIG, SELECTED[study], blocks.measured(CONFIG, CELLS[study].values()))
        for study in STUDIES
    }
    if changes:
        due = [RESULTS / study / "appended.json" for study in STUDIES if blocks.last(opened[study])]
        for path in (*due, RESULTS / "provided"):
            # Snakemake would not make it again for a step before it that failed, and whose artefact was moved aside.
            path.unlink(missing_ok=True)
        anew = [RESULTS / study / "records" / cell for study in STUDIES for cell in opened[study].anew]
        failures.move_aside(RESULTS, anew, "again")
        for study in STUDIES:
            blocks.write(RESULTS / study / "blocks.json", opened[study])
    return opened


PYTHON = interpreter()
# No parameter of a rule, so that with another interpreter nothing that is done is done again.
shell.prefix('program() {{ exec {PYTHON} -sE scripts/"$1".py "${{@:2}}"; }}; ')
FILES = workflow.config_settings.configfiles or ["config/config.yaml"]
try:
    CONFIG = configuration.resolve(dict(config), FILES)
    EXPANDED = matrix.expand_all(CONFIG, FILES)
    RUN = CONFIG["run"]
    RESULTS = Path("results", RUN)
    expect_folders(RUN)
    STUDIES = CONFIG["only"].get("study", list(CONFIG["studies"]))
    SOURCES = {study: list(map(str, studies.of(study).sources(CONFIG))) for study in STUDIES}
    CELLS = {study: {cell.name: cell for cell in EXPANDED[study][0]} for study in STUDIES}
    SELECTED = {study: matrix.selected(CELLS[study].values(), CONFIG["only"]) for study in STUDIES}
    OPEN = begin()
except Problem as problem:
    # Snakemake's own log may lie on a disk that is full; what its handler says of that would hide the line.
    logging.raiseExceptions = False
    raise SystemExit(f"problem: {problem}")
ALL_CELLS = [cell for cells in CELLS.values() for cell in cells.values()]
DATA = matrix.datasets(ALL_CELLS)
LIBRARIES = CONFIG["libraries"] | matrix.libraries(ALL_CELLS)
OF_CONDA = [name for name, spec in CONFIG["libraries"].items() if spec["kind"] == "conda"]
PARTS = {"libraries": LIBRARIES, "stores": CONFIG["stores"], "data": DATA}
# What programs are told of a library, a store or a dataset, as JSON.
SPECS = {part: {name: json.dumps(spec) for name, spec in specs.items()} for part, specs in PARTS.items()}
# Which runs are compared; the program says what is lacking.
COMPARISON = CONFIG.get("comparison", {"a": [], "b": [], "paired": False, "fail_on": []})
# What a cell may take beside its time limit: servers that start, files that are looked at, what waits for a disk.
STEP_MINUTES = 10
# Notebooks of the user's own, executed on each run.
EXTRA = sorted(path.stem for path in Path("notebooks/extra").glob("[!.]*.ipynb"))
# What is known of the published studies, whichever this run measures.
PUBLISHED = sorted(path.parent.name for path in Path("results/published").glob("*/audit/"))
# Pages of a part of the published data never take the place of those of all.
PAGES = "reports/published-partial" if CONFIG.get("published_partial") else "reports/published"


wildcard_constraints:
    run=RUN,
    study="|".join(STUDIES),
    library="|".join(map(re.escape, LIBRARIES)) or "none",
    store="|".join(map(re.escape, CONFIG["stores"])),
    dataset="|".join(map(re.escape, DATA)) or "none",
    cell="[^/]+",
    repeat="[0-9]+",
    published="|".join(PUBLISHED) or "none",
    extra="|".join(map(re.escape, EXTRA)) or "none",


@cache
def places(study: str, block: int) -> dict[str, int]:
    """Return the place of each cell of a study in the order of a block, from 1."""
    draw = blocks.draw_of(OPEN[study], RESULTS / study / "appended.json", block)
    order = blocks.order(list(CELLS[study]), blocks.order_seed(CONFIG, study), block, draw)
    return {name: place for place, name in enumerate(order, 1)}


@cache
def before(study: str) -> int:
    """Return a number that no position in the studies before this one exceeds."""
    earlier = STUDIES[: STUDIES.index(study)]
    return sum(len(CELLS[one]) * (blocks.last(OPEN[one]) + CONFIG["extra_blocks"]) for one in earlier)


def cell_priority(wildcards, attempt=None) -> int:
    """Later positions, study after study and block after block, have lower priority; that of provisioning is 0."""
    study, block = wildcards.study, int(wildcards.repeat)
    position = (block - 1) * len(CELLS[study]) + places(study, block)[wildcards.cell]
    return -(before(study) + position)


def environments_of(wildcards) -> list[str]:
    """Return the artefacts of the libraries of a study; none where no library is under test."""
    return due_or_there(wildcards.study, blocks.libraries_of)


def provisions_of(wildcards) -> list[str]:
    """Return the artefacts of the data of a study in their stores; none where it has no data."""
    return due_or_there(wildcards.study, blocks.data_of)


def due_or_there(study: str, artefacts_of) -> list[str]:
    """Return the artefacts that cells of a study need: those of the cells that are selected, and others that are there."""
    due = artefacts_of(RUN, SELECTED[study])
    return [name for name in artefacts_of(RUN, CELLS[study].values()) if name in due or Path(name).exists()]


def needs_of(wildcards) -> dict[str, list[str]]:
    """Return the artefacts of a cell's library and data.

    In one function, as Snakemake takes longer to call one than it takes to run.
    """
    own = [CELLS[wildcards.study][wildcards.cell]]
    needs = {"environment": blocks.libraries_of(RUN, own), "provision": blocks.data_of(RUN, own)}
    # Snakemake keeps a kilobyte more of each that is a list.
    return {name: ancient(paths[0] if len(paths) == 1 else paths) for name, paths in needs.items()}


def records_of(wildcards) -> list[str]:
    """Return the records of a study: those of closed blocks and those of the open ones."""
    return in_blocks(wildcards.study, OPEN[wildcards.study].blocks)


def gathered_records(wildcards) -> list[str]:
    """Return the records of the studies whose facts are there; those of others are made for their facts.

    Naming each once more takes as much of Snakemake's time and memory as another of its inputs.
    """
    gathered = [study for study in STUDIES if (RESULTS / study / "facts.json").exists()]
    return [name for study in gathered for name in in_blocks(study, OPEN[study].blocks)]


def expect_provided():
    """Have the plan of a cluster wait until all that cells need is there, if any is to be measured.

    Only then is it known which cells can be measured, and nothing is in the queue when the plan changes (below).
    """
    if workflow.non_local_exec and any(blocks.last(opened) for opened in OPEN.values()) and not was_provided():
        checkpoints.provided.get(run=RUN)


@cache
def was_provided() -> bool:
    """Return whether all that cells need was there when the plan began."""
    # What is there later is another question, so it is not remembered.
    return all(map(is_done.__wrapped__, needed(None)))


def needed(wildcards) -> list[str]:
    """Return the artefacts of the libraries and data of the cells that are selected."""
    cells = [cell for study in STUDIES for cell in SELECTED[study]]
    return blocks.libraries_of(RUN, cells) + blocks.data_of(RUN, cells)


@cache
def is_done(path: str) -> bool:
    """Return whether an artefact is there that says so."""
    return Path(path).exists() and read_json(Path(path)).get("status") == "done"


def ready_studies(wildcards) -> list[str]:
    """Return what says that the data of a study were read once, where it is there.

    What measures has only ancient inputs, and where one of those is made again, a library whose lock changed, Snakemake 9
    overlooks what else is lacking unless something asks for it that is outdated with them (dag.py: a job that depends on
    one that runs is not looked at by itself).
    """
    expect_provided()
    artefacts = [RESULTS / study / "ready.json" for study in STUDIES]
    return [str(path) for path in artefacts if path.exists()]


def all_records_of(wildcards) -> list[str]:
    """Return the records of a study, with those of the blocks that were appended for what failed in them."""
    if not SELECTED[wildcards.study]:
        return []
    # Where a checkpoint changes the plan while jobs that have ended are still in a queue, Snakemake 9 forgets what depends
    # on them and ends early, with status 0 (dag.py: their output is there, so they are counted off twice). So on a
    # cluster the next call appends.
    if workflow.non_local_exec:
        return records_of(wildcards)
    appended = read_json(Path(checkpoints.append.get(run=RUN, study=wildcards.study).output[0]))
    return in_blocks(wildcards.study, OPEN[wildcards.study].blocks + appended["blocks"])


def in_blocks(study: str, opened: list[int]) -> list[str]:
    """Return the records of the cells of a study that are asked for: all that are there, and those of some blocks.

    A cell whose library or data could not be made is skipped by its step, and on a cluster without a job.
    """
    expect_provided()
    names = []
    for cell in SELECTED[study]:
        folder = RESULTS / study / "records" / cell.name
        there = {number for number, _ in records.repeats(folder)}
        due = {*opened, *OPEN[study].anew.get(cell.name, [])} - there
        if due and workflow.non_local_exec:
            needs = blocks.libraries_of(RUN, [cell]) + blocks.data_of(RUN, [cell])
            due = due if all(map(is_done, needs)) else set()
        names += [f"{folder}/repeat={number}.json" for number in sorted(there | due)]
    return names


def servers_of(wildcards) -> list[str]:
    """Return the artefact of the embedded servers where a store needs one."""
    embedded = CONFIG["stores"][wildcards.store].get("server") == "embedded"
    return [f"results/{RUN}/environments/servers.json"] if embedded else []


def study_of_data(wildcards) -> str:
    """Return the study that makes a dataset, whose name begins with it."""
    return wildcards.dataset.partition("-")[0]


def lock_of(wildcards) -> list[str]:
    """Return the files that say what a library under test has beside HDF5."""
    library = wildcards.library
    own = LIBRARIES[library].get("lock")
    return [f"envs/{library}.yaml"] if library in OF_CONDA else ["envs/measure.lock", *([own] if own else [])]


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


def runtime_of(wildcards) -> int:
    """Return the minutes after which a cluster may end a cell: its time limit, and what the step does around it."""
    cell = CELLS[wildcards.study][wildcards.cell]
    limit = studies.for_level(CONFIG["studies"][wildcards.study]["time_limit_s"], cell.levels)
    return math.ceil(limit / 60) + STEP_MINUTES


def nodes_of(wildcards) -> int:
    """Return on how many nodes of a cluster a cell runs; it asks for one task on each, which has all cores."""
    levels = CELLS[wildcards.study][wildcards.cell].levels
    return int(levels["nodes"]) if studies.of(wildcards.study).spans_nodes else 1


def mpi_of(wildcards) -> str | None:
    """Return what starts the workers of a cell on several nodes, so that the executor leaves that to the cell."""
    return "srun" if nodes_of(wildcards) > 1 else None


def imported_of(wildcards) -> list[str]:
    """Return the artefact of imported results where the configuration names some."""
    imported = f"results/{RUN}/{wildcards.study}/imported.json"
    return [imported] if SOURCES[wildcards.study] else []


def references_of(wildcards) -> list[str]:
    """Return the facts of the published data that a study's figures draw beside its own."""
    named = CONFIG["studies"][wildcards.study].get("reference", [])
    return [f"results/{name}/tables/facts.json" for name in ([named] if isinstance(named, str) else named)]


def study_config(wildcards) -> str:
    """Return what the plan, tables and facts of a study depend on, as JSON: not which part of it is asked for now."""
    return json.dumps(configuration.of_study(CONFIG, wildcards.study))


def printed_of(wildcards) -> list[str]:
    """Return the tables that a study prints, and those of its audit."""
    folder = Path("results/published", wildcards.published)
    return [str(path) for pattern in ("*.csv", "audit/*") for path in sorted(folder.glob(pattern))]
