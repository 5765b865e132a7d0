"""One call of the workflow: which cells of which blocks it measures, and what each job of it needs and may take.

Rules ask it with their wildcards, as Snakemake calls functions of inputs, parameters and resources.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from snakemake.io import ancient

from sbench.build.environments import list_missing_packages
from sbench.design import blocks, matrix, records, session
from sbench.design import config as configuration
from sbench.design import study as studies
from sbench.design.study import Cell
from sbench.measure import failures
from sbench.probe import slurm
from sbench.probe.program import Problem, expect_folders, expect_room, read_json

# What a cell may take beside its time limit: servers that start, files that are looked at, what waits for a disk.
_STEP_MINUTES = 10


class Wildcards(Protocol):
    """What a job of Snakemake's is of: those that its rule has."""

    run: str
    study: str
    cell: str
    repeat: str
    dataset: str
    library: str
    store: str
    published: str


class Call:
    """A call of the workflow with one configuration.

    Attributes:
        config, run, results: the resolved configuration, the run's name, and the folder of its results.
        studies: names of the studies that are asked for.
        sources: by study, files of results from elsewhere that it imports.
        cells, selected: by study, its cells by name, and those that are asked for.
        opened: by study, the blocks that this call measures.
        libraries, data, conda: specs of what is built and made, and the names of libraries that conda makes.
        specs: by part of the configuration and name, what programs get of a library, a store or a dataset, as JSON.
    """

    def __init__(self, config: dict, files: list, workflow: Any, checkpoints: Any, python: str) -> None:
        """Resolve the configuration, and see that results and reports can be written.

        Args:
            config: as Snakemake has read and merged it.
            files: where it came from.
            workflow: Snakemake's.
            checkpoints: Snakemake's, by the names of rules.
            python: the interpreter of the programs, as a shell takes it.

        Raises:
            Problem: the configuration is wrong, or a folder cannot be written.
        """
        self._workflow, self._checkpoints, self._python = workflow, checkpoints, python
        self.config = configuration.resolve_config(config, files)
        expanded = matrix.expand_all(self.config, files)
        self.run = self.config["run"]
        self.results = Path("results", self.run)
        expect_folders(self.run)
        self.studies = self.config["only"].get("study", list(self.config["studies"]))
        self.sources = {
            study: list(map(str, studies.get_study(study).list_sources(self.config))) for study in self.studies
        }
        self.cells = {study: {cell.name: cell for cell in expanded[study][0]} for study in self.studies}
        only = self.config["only"]
        self.selected = {study: matrix.select_cells(self.cells[study].values(), only) for study in self.studies}
        cells = [cell for of_study in self.cells.values() for cell in of_study.values()]
        self.data = matrix.list_datasets(cells)
        self.libraries = self.config["libraries"] | matrix.list_libraries(cells)
        self.conda = [name for name, spec in self.config["libraries"].items() if spec["kind"] == "conda"]
        parts = {"libraries": self.libraries, "stores": self.config["stores"], "data": self.data}
        self.specs = {part: {name: json.dumps(spec) for name, spec in specs.items()} for part, specs in parts.items()}
        self.opened = self._open_blocks() if workflow.is_main_process else self._read_blocks()
        # A function that Snakemake calls for each job; of what is there later it asks anew.
        self._places_of, self._is_done = cache(self._get_places), cache(is_done)

    def _read_blocks(self) -> dict[str, blocks.Open]:
        """Return the blocks that the main process has opened: a job's own process parses the rules, too."""
        return {study: blocks.read_blocks(self.results / study / "blocks.json") for study in self.studies}

    def _open_blocks(self) -> dict[str, blocks.Open]:
        """Name the session, see that programs can run, and return the blocks of each study that this call measures.

        What failed in a call that was interrupted, and cells to be measured anew, are moved aside. A dry run and --lint
        (which asks for no variables of the environment) change nothing, and a folder that is locked is another's.
        """
        session.start_session()
        looks = self._workflow.output_settings.dryrun or not self._workflow.check_envvars
        changes = not looks and not any(Path(".snakemake/locks").glob("*"))
        if changes:
            self._expect_programs()
            expect_room(self.results / "checked.json")
            failures.move_aside(self.results, failures.find_failed_artefacts(self.results))
        opened = {
            study: blocks.choose_blocks(
                self.config, self.selected[study], blocks.read_measured_blocks(self.config, cells.values())
            )
            for study, cells in self.cells.items()
        }
        if changes:
            due = [
                self.results / study / "appended.json" for study in self.studies if blocks.get_last_block(opened[study])
            ]
            for path in (*due, self.results / "provided"):
                # Snakemake would not make it again for a step before it that failed and was moved aside.
                path.unlink(missing_ok=True)
            anew = [self.results / study / "records" / cell for study in self.studies for cell in opened[study].anew]
            failures.move_aside(self.results, anew, "again")
            for study in self.studies:
                blocks.write_blocks(self.results / study / "blocks.json", opened[study])
        return opened

    def _expect_programs(self) -> None:
        """Raise a Problem if nothing can run the programs, or jobs of an earlier call are in a queue."""
        if self._python.startswith(".venv") and not Path(self._python).exists():
            raise Problem(
                f"what the programs import is neither in {sys.prefix} (no {list_missing_packages()[0]}) nor is there a"
                " .venv: type `make setup` and the same again, or add `--sdm conda`"
            )
        if jobs := slurm.list_queued_jobs(Path.cwd()):
            raise Problem(
                f"jobs of an earlier call are in the queue ({' '.join(jobs)}): wait until they end, or scancel them,"
                " and type the same again"
            )

    def get_constraints(self) -> dict[str, str]:
        """Return what the wildcards of rules can be, as regular expressions."""
        return {
            "run": self.run,
            "study": "|".join(self.studies),
            "library": "|".join(map(re.escape, self.libraries)) or "none",
            "store": "|".join(map(re.escape, self.config["stores"])),
            "dataset": "|".join(map(re.escape, self.data)) or "none",
        }

    def dump_config(self) -> str:
        """Return the resolved configuration as JSON."""
        return json.dumps(self.config)

    def dump_imports(self, study: str) -> str:
        """Return the results from elsewhere that a study imports, as JSON."""
        return json.dumps(self.config["studies"].get(study, {}).get("imports", []))

    def get_config(self, wildcards: Wildcards) -> str:
        """Return what plan, tables and facts of a study depend on, as JSON: not which part of it is asked for now."""
        return json.dumps(configuration.select_study_config(self.config, wildcards.study))

    def get_priority(self, wildcards: Wildcards) -> int:
        """Return a lower number for a later position, study after study, block after block; 0 is provisioning's."""
        study, block, extra = wildcards.study, int(wildcards.repeat), int(self.config["extra_blocks"])
        before = (
            len(self.cells[earlier]) * (blocks.get_last_block(self.opened[earlier]) + extra)
            for earlier in self.studies[: self.studies.index(study)]
        )
        position = (block - 1) * len(self.cells[study]) + self._places_of(study, block)[wildcards.cell]
        return -(sum(before) + position)

    def _get_places(self, study: str, block: int) -> dict[str, int]:
        """Return the place of each cell of a study in the order of a block, from 1."""
        draw = blocks.get_draw(self.opened[study], self.results / study / "appended.json", block)
        order = blocks.build_order(list(self.cells[study]), blocks.get_order_seed(self.config, study), block, draw)
        return {name: place for place, name in enumerate(order, 1)}

    def list_environments(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of the libraries of a study; none where no library is under test."""
        return self._list_due(wildcards.study, blocks.list_library_artefacts)

    def list_provisions(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of the data of a study in their stores; none where it has no data."""
        return self._list_due(wildcards.study, blocks.list_data_artefacts)

    def _list_due(self, study: str, artefacts_of: Callable[[str, Iterable[Cell]], list[str]]) -> list[str]:
        """Return the artefacts that cells of a study need: those of selected cells, and others that are there."""
        due = artefacts_of(self.run, self.selected[study])
        every = artefacts_of(self.run, self.cells[study].values())
        return [name for name in every if name in due or Path(name).exists()]

    def list_needs(self, wildcards: Wildcards) -> dict[str, list[str]]:
        """Return the artefacts of a cell's library and data.

        In one function, as Snakemake takes longer to call one than it takes to run.
        """
        own = [self.cells[wildcards.study][wildcards.cell]]
        needs = {
            "environment": blocks.list_library_artefacts(self.run, own),
            "provision": blocks.list_data_artefacts(self.run, own),
        }
        # Snakemake keeps a kilobyte more of each that is a list.
        return {name: ancient(paths[0] if len(paths) == 1 else paths) for name, paths in needs.items()}

    def list_artefacts(self, wildcards: Wildcards | None = None) -> list[str]:
        """Return the artefacts of the libraries and data of the cells that are selected."""
        cells = [cell for study in self.studies for cell in self.selected[study]]
        return blocks.list_library_artefacts(self.run, cells) + blocks.list_data_artefacts(self.run, cells)

    def list_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of a study: those of closed blocks and those of the open ones."""
        return self._list_block_records(wildcards.study, self.opened[wildcards.study].blocks)

    def list_gathered_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of the studies whose facts are there; those of others are made for their facts.

        Naming each once more takes as much of Snakemake's time and memory as another of its inputs.
        """
        gathered = [study for study in self.studies if (self.results / study / "facts.json").exists()]
        return [name for study in gathered for name in self._list_block_records(study, self.opened[study].blocks)]

    def list_all_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of a study, with those of the blocks that were appended for what failed in them."""
        study = wildcards.study
        if not self.selected[study]:
            return []
        # Where a checkpoint changes the plan while jobs that have ended are still in a queue, Snakemake 9 forgets what
        # depends on them and ends early, with status 0 (dag.py: their output is there, so they are counted off twice).
        # So on a cluster the next call appends.
        if self._workflow.non_local_exec:
            return self.list_records(wildcards)
        appended = read_json(Path(self._checkpoints.append.get(run=self.run, study=study).output[0]))
        return self._list_block_records(study, self.opened[study].blocks + appended["blocks"])

    def _list_block_records(self, study: str, opened: list[int]) -> list[str]:
        """Return the records of selected cells of a study: all that are there, and those of some blocks.

        A cell whose library or data could not be made is skipped by its step, and on a cluster without a job.
        """
        self._wait_for_artefacts()
        names = []
        for cell in self.selected[study]:
            folder = self.results / study / "records" / cell.name
            there = {number for number, _ in records.list_repeats(folder)}
            due = {*opened, *self.opened[study].anew.get(cell.name, [])} - there
            if due and self._workflow.non_local_exec:
                needs = blocks.list_library_artefacts(self.run, [cell]) + blocks.list_data_artefacts(self.run, [cell])
                due = due if all(map(self._is_done, needs)) else set()
            names += [f"{folder}/repeat={number}.json" for number in sorted(there | due)]
        return names

    def _wait_for_artefacts(self) -> None:
        """Have the plan of a cluster wait until all that cells need is there, if any is to be measured.

        Only then is it known which cells can be measured, and nothing is in the queue when the plan changes.
        """
        if not self._workflow.non_local_exec or not any(map(blocks.get_last_block, self.opened.values())):
            return
        if not hasattr(self, "_was_provided"):
            self._was_provided = all(map(is_done, self.list_artefacts()))
        if not self._was_provided:
            self._checkpoints.provided.get(run=self.run)

    def list_ready(self, wildcards: Wildcards) -> list[str]:
        """Return what says that the data of a study were read once, where it is there.

        What measures has only ancient inputs, and where one of those is made again, a library whose lock changed,
        Snakemake 9 overlooks what else is lacking unless something asks for it that is outdated with them (dag.py: a
        job that depends on one that runs is not looked at by itself).
        """
        self._wait_for_artefacts()
        artefacts = [self.results / study / "ready.json" for study in self.studies]
        return [str(path) for path in artefacts if path.exists()]

    def list_servers(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of the embedded servers where a store needs one."""
        embedded = self.config["stores"][wildcards.store].get("server") == "embedded"
        return [f"results/{self.run}/environments/servers.json"] if embedded else []

    def list_locks(self, wildcards: Wildcards) -> list[str]:
        """Return the files that say what a library under test has beside HDF5."""
        own = self.libraries[wildcards.library].get("lock")
        of_conda = wildcards.library in self.conda
        return [f"envs/{wildcards.library}.yaml"] if of_conda else ["envs/measure.lock", *([own] if own else [])]

    def list_imported(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of imported results where the configuration names some."""
        return [f"results/{self.run}/{wildcards.study}/imported.json"] if self.sources[wildcards.study] else []

    def list_references(self, wildcards: Wildcards) -> list[str]:
        """Return the facts of the published data that a study's figures draw beside its own."""
        named = self.config["studies"][wildcards.study].get("reference", [])
        return [f"results/{name}/tables/facts.json" for name in ([named] if isinstance(named, str) else named)]

    def get_conda_of_library(self, wildcards: Wildcards) -> str:
        """Return the conda environment in which a library is looked up: its own where it is of that kind."""
        return f"../envs/{wildcards.library if wildcards.library in self.conda else 'workflow'}.yaml"

    def get_runtime(self, wildcards: Wildcards) -> int:
        """Return the minutes after which a cluster may end a cell: its time limit, and what the step does around it."""
        cell = self.cells[wildcards.study][wildcards.cell]
        limit = studies.resolve_setting(self.config["studies"][wildcards.study]["time_limit_s"], cell.levels)
        return math.ceil(float(limit) / 60) + _STEP_MINUTES

    def get_nodes(self, wildcards: Wildcards) -> int:
        """Return on how many nodes of a cluster a cell runs; it asks for one task on each, which has all cores."""
        levels = self.cells[wildcards.study][wildcards.cell].levels
        return int(levels["nodes"]) if studies.get_study(wildcards.study).spans_nodes else 1

    def get_mpi(self, wildcards: Wildcards) -> str | None:
        """Return what starts the workers of a cell on several nodes, so that the executor leaves that to the cell."""
        return "srun" if self.get_nodes(wildcards) > 1 else None


def is_done(path: str) -> bool:
    """Return whether an artefact is there that says so."""
    return Path(path).exists() and read_json(Path(path)).get("status") == "done"


def get_conda_of_study(wildcards: Wildcards) -> str:
    """Return the conda environment in which the cells of a study are measured."""
    return f"../envs/{studies.get_study(wildcards.study).environment}.yaml"


def get_study(wildcards: Wildcards) -> str:
    """Return the study that makes a dataset, whose name begins with it."""
    return wildcards.dataset.partition("-")[0]


def get_attempt(wildcards: Wildcards, attempt: int) -> int:
    """Return which attempt at a job this is; the second one, of a step that was ended from outside, only says so."""
    return attempt


def list_printed(wildcards: Wildcards) -> list[str]:
    """Return the tables that a study prints, and those of its audit."""
    folder = Path("results/published", wildcards.published)
    return [str(path) for pattern in ("*.csv", "audit/*") for path in sorted(folder.glob(pattern))]
