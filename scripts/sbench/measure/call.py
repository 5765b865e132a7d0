"""Plan a call of the workflow: the blocks and cells that it measures, and the inputs and resources of each job.

Methods with a parameter `wildcards` are input, parameter or resource functions of Snakemake rules.
"""

import itertools
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
from sbench.measure import failures, one_run
from sbench.probe import slurm
from sbench.probe.program import Problem, expect_folders, expect_room, read_json

# Minutes that a cell's job may take in addition to the cell's time limit, such as for starting servers.
_STEP_MINUTES = 10


class Wildcards(Protocol):
    """The wildcards of a Snakemake job. Only those that occur in its rule exist."""

    run: str
    study: str
    cell: str
    repeat: str
    number: str
    dataset: str
    library: str
    store: str
    published: str


class Call:
    """One call of the workflow with a configuration.

    Attributes:
        config: the resolved configuration.
        run: the name of the run.
        results: the folder with the run's results.
        studies: the names of the requested studies.
        sources: study -> the files with external results that it imports.
        cells: study -> name of the cell -> cell.
        selected: study -> the selected cells.
        opened: study -> the first blocks that this call measures.
        looked: study -> the blocks before its first look. They are the same as in `opened`, unless the study has ended;
            then they come from the last call that measured blocks.
        libraries: name -> specification of the library.
        data: id -> settings of the dataset.
        conda: the names of the libraries whose environments conda creates.
        specs: "libraries", "stores" or "data" -> name -> JSON specification, to pass to programs.
    """

    def __init__(self, config: dict, files: list, workflow: Any, checkpoints: Any, python: str) -> None:
        """Resolve the configuration, check that the folders for results and reports are writable, and choose blocks.

        Args:
            config: the configuration as Snakemake read and merged it.
            files: the configuration files.
            workflow: Snakemake's workflow.
            checkpoints: Snakemake's checkpoints, as attributes named after their rules.
            python: the shell command of the interpreter that runs the programs.

        Raises:
            Problem: the configuration is invalid, or a folder is not writable.
        """
        self._workflow, self._checkpoints, self._python = workflow, checkpoints, python
        one_run.end_at_sigterm()
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
        self.looked = {
            study: self._read_blocks()[study] if self._has_ended(study, opened) else opened
            for study, opened in self.opened.items()
        }
        # Cached because Snakemake calls them for each job. On a cluster, `is_done` is first called when all artefacts
        # exist (see `_wait_for_artefacts`).
        self._places_of, self._is_done = cache(self._get_places), cache(is_done)

    def _read_blocks(self) -> dict[str, blocks.Open]:
        """Read the blocks that the main process chose, for a job's process, which evaluates the rules again."""
        return {study: blocks.read_blocks(self.results / study / "blocks.json") for study in self.studies}

    def _open_blocks(self) -> dict[str, blocks.Open]:
        """Start a session, check that programs can run, and choose the first blocks of each study.

        Also move aside the failed artefacts of an interrupted call, and the records of cells to measure again. Nothing
        is checked or changed by a dry run, by --lint (which does not check environment variables), or if a killed call
        left its lock. A Problem is raised if another call has locked the folder.
        """
        session.start_session()
        looks = self._workflow.output_settings.dryrun or not self._workflow.check_envvars
        changes = not looks and not any(one_run.LOCKS.glob("*"))
        if not looks:
            one_run.hold_folder()
        if changes:
            self._expect_programs()
            expect_room(self.results / "checked.json")
            failures.move_aside(self.results, failures.find_failed_artefacts(self.results))
        opened = {
            study: blocks.open_blocks(self.config, self.selected[study], cells.values())
            for study, cells in self.cells.items()
        }
        if changes:
            # Otherwise, Snakemake would not make it again after the failed artefacts of its inputs were moved aside.
            (self.results / "provided").unlink(missing_ok=True)
            anew = [self.results / study / "records" / cell for study in self.studies for cell in opened[study].anew]
            failures.move_aside(self.results, anew, "again")
            for study in self.studies:
                if not self._has_ended(study, opened[study]):
                    for path in blocks.get_looks_folder(self.run, study).glob("*.json"):
                        path.unlink()
                    if self.selected[study]:
                        # While facts.json exists, Snakemake does not run the gather job once it waits for a second
                        # look, and ends without the blocks that the first look ordered.
                        (self.results / study / "facts.json").unlink(missing_ok=True)
                    blocks.write_blocks(self.results / study / "blocks.json", opened[study])
        return opened

    def _has_ended(self, study: str, opened: blocks.Open) -> bool:
        """Return whether all blocks of a study are measured, and its last look, at these settings, ordered no more."""
        folder = blocks.get_looks_folder(self.run, study)
        orders = blocks.read_orders(folder)
        if blocks.get_last_block(opened) or not orders or orders[-1].blocks:
            return False
        limits = read_json(folder / f"{len(orders)}.json").get("limits")
        return bool(limits == blocks.get_limits(self.config, study))

    def _expect_programs(self) -> None:
        """Check that an interpreter can run the programs, and that no jobs of an earlier call are in the Slurm queue.

        Raises:
            Problem: the interpreter does not exist, or such jobs are queued.
        """
        if self._python.startswith(".venv") and not Path(self._python).exists():
            raise Problem(
                f"{sys.prefix} lacks {list_missing_packages()[0]}, and .venv does not exist; run `make setup` and"
                " repeat the command, or add `--sdm conda`"
            )
        if jobs := slurm.list_queued_jobs(Path.cwd()):
            raise Problem(
                f"jobs of an earlier call are in the queue ({' '.join(jobs)}); wait until they end, or scancel them,"
                " and repeat the command"
            )

    def get_constraints(self) -> dict[str, str]:
        """Return regular expressions that constrain the wildcards of the rules."""
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
        """Return the paths of external results that a study imports, as JSON."""
        return json.dumps(self.config["studies"].get(study, {}).get("imports", []))

    def get_config(self, wildcards: Wildcards) -> str:
        """Return the parts of the configuration that affect a study's plan, tables and facts, as JSON."""
        return json.dumps(configuration.select_study_config(self.config, wildcards.study))

    def get_priority(self, wildcards: Wildcards) -> int:
        """Return a job priority so that Snakemake measures study after study, block after block, in block order.

        Priorities are negative and decrease with the position. Jobs that make libraries and data have priority 0.
        """
        study, block = wildcards.study, int(wildcards.repeat)
        before = sum(
            len(self.cells[earlier]) * self._get_last_block(earlier)
            for earlier in self.studies[: self.studies.index(study)]
        )
        position = (block - 1) * len(self.cells[study]) + self._places_of(study, block)[wildcards.cell]
        return -(before + position)

    def _get_last_block(self, study: str) -> int:
        """Return an upper limit on the block numbers of a study in this call."""
        most = studies.get_study(study).count_most_repeats(self.config)
        return max(blocks.get_last_block(self.opened[study]), most) + int(self.config["extra_blocks"])

    def _get_places(self, study: str, block: int) -> dict[str, int]:
        order = blocks.get_order(self.opened[study], blocks.get_looks_folder(self.run, study), block)
        names = order.select_cells(self.cells[study])
        in_turn = blocks.build_order(names, blocks.get_order_seed(self.config, study), block, order.draw)
        return {name: place for place, name in enumerate(in_turn, 1)}

    def list_environments(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of the libraries that a study tests."""
        return self._list_due(wildcards.study, blocks.list_library_artefacts)

    def list_provisions(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of a study's datasets in their stores."""
        return self._list_due(wildcards.study, blocks.list_data_artefacts)

    def _list_due(self, study: str, artefacts_of: Callable[[str, Iterable[Cell]], list[str]]) -> list[str]:
        """Return the artefacts that a study's selected cells need, and those of its other cells that already exist."""
        due = artefacts_of(self.run, self.selected[study])
        every = artefacts_of(self.run, self.cells[study].values())
        return [name for name in every if name in due or Path(name).exists()]

    def list_needs(self, wildcards: Wildcards) -> dict[str, list[str]]:
        """Return the artefacts of a cell's library and data. A single function is faster, since Snakemake calls it."""
        own = [self.cells[wildcards.study][wildcards.cell]]
        needs = {
            "environment": blocks.list_library_artefacts(self.run, own),
            "provision": blocks.list_data_artefacts(self.run, own),
        }
        # A string needs one kilobyte less in Snakemake than a list.
        return {name: ancient(paths[0] if len(paths) == 1 else paths) for name, paths in needs.items()}

    def list_artefacts(self, wildcards: Wildcards | None = None) -> list[str]:
        """Return the artefacts of all libraries and datasets that the selected cells use."""
        cells = [cell for study in self.studies for cell in self.selected[study]]
        return blocks.list_library_artefacts(self.run, cells) + blocks.list_data_artefacts(self.run, cells)

    def list_looked_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records that a look judges: those in the initial blocks and in the orders of earlier looks."""
        study, number = wildcards.study, int(wildcards.number)
        orders = [self.looked[study].order, *(self._get_look(study, before) for before in range(1, number))]
        return self._list_block_records(study, orders, self.looked[study].anew)

    def list_gathered_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of the studies whose facts.json exists.

        For other studies, the records are already inputs of facts.json. Listing them twice would cost Snakemake twice
        the time and memory.
        """
        gathered = [study for study in self.studies if (self.results / study / "facts.json").exists()]
        return [name for study in gathered for name in self._list_study_records(study, [self.opened[study].order])]

    def list_all_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of a study, including those in blocks that looks ordered; on a cluster, also its look."""
        study = wildcards.study
        if not self.selected[study]:
            return []
        first = f"{blocks.get_looks_folder(self.run, study)}/1.json"
        orders = [self.opened[study].order]
        # If a checkpoint changes the DAG while finished jobs are still queued, Snakemake 9 drops the jobs that depend
        # on them and ends early with status 0 (dag.py: as their output exists, they are counted as finished twice).
        # On a cluster, therefore, the next call measures the blocks that the look ordered.
        if self._workflow.non_local_exec:
            return [*self._list_study_records(study, orders), first]
        for number in itertools.count(1):
            order = self._get_look(study, number)
            if not order.blocks:
                return self._list_study_records(study, orders)
            orders.append(order)
        raise AssertionError("an endless loop has no end")

    def _get_look(self, study: str, number: int) -> blocks.Order:
        """Return the order of a look. If the look does not exist yet, make Snakemake run its checkpoint first."""
        look = self._checkpoints.look.get(run=self.run, study=study, number=number)
        return blocks.read_order(Path(look.output[0]))

    def _list_study_records(self, study: str, orders: list[blocks.Order]) -> list[str]:
        """Return the selected cells' records that exist, and their records in the blocks of `orders`."""
        there = [
            f"{folder}/repeat={number}.json"
            for cell in self.selected[study]
            for folder in [self.results / study / "records" / cell.name]
            for number, _ in records.list_repeats(folder)
        ]
        return list(dict.fromkeys([*there, *self._list_block_records(study, orders, self.opened[study].anew)]))

    def _list_block_records(self, study: str, orders: list[blocks.Order], anew: dict[str, list[int]]) -> list[str]:
        """Return the selected cells' records in the blocks of `orders`, and the records to measure again (`anew`).

        If the library or data of a cell failed, its job writes a record as skipped. On a cluster, such cells get no
        job, so only their existing records are returned.
        """
        self._wait_for_artefacts()
        names = []
        for cell in self.selected[study]:
            folder = self.results / study / "records" / cell.name
            due = {block for order in orders if order.select_cells([cell.name]) for block in order.blocks}
            due |= set(anew.get(cell.name, []))
            if due and self._workflow.non_local_exec:
                needs = blocks.list_library_artefacts(self.run, [cell]) + blocks.list_data_artefacts(self.run, [cell])
                there = {number for number, _ in records.list_repeats(folder)}
                due = due if all(map(self._is_done, needs)) else due & there
            names += [f"{folder}/repeat={number}.json" for number in sorted(due)]
        return names

    def _wait_for_artefacts(self) -> None:
        """On a cluster, make Snakemake wait until all libraries and data exist, if there are cells to measure.

        Only then is it known which cells can be measured. Waiting also ensures that the DAG does not change while jobs
        are queued.
        """
        if not self._workflow.non_local_exec or not any(map(blocks.get_last_block, self.opened.values())):
            return
        if not hasattr(self, "_was_provided"):
            self._was_provided = all(map(is_done, self.list_artefacts()))
        if not self._was_provided:
            self._checkpoints.provided.get(run=self.run)

    def list_ready(self, wildcards: Wildcards) -> list[str]:
        """Return the existing ready.json artefacts, which report the first read of each study's data.

        They work around a limitation of Snakemake 9. Measuring jobs have only `ancient` inputs. If such an input is
        made again (for example, a library with a new lock file), Snakemake overlooks other missing outputs, unless a
        job that the new input makes outdated requires them (dag.py: jobs that depend on a running job are not checked).
        """
        self._wait_for_artefacts()
        artefacts = [self.results / study / "ready.json" for study in self.studies]
        return [str(path) for path in artefacts if path.exists()]

    def list_servers(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of the embedded servers if the store uses them, otherwise an empty list."""
        embedded = self.config["stores"][wildcards.store].get("server") == "embedded"
        return [f"results/{self.run}/environments/servers.json"] if embedded else []

    def list_locks(self, wildcards: Wildcards) -> list[str]:
        """Return the lock files, or the conda environment file, with the Python packages of a library under test."""
        own = self.libraries[wildcards.library].get("lock")
        of_conda = wildcards.library in self.conda
        return [f"envs/{wildcards.library}.yaml"] if of_conda else ["envs/measure.lock", *([own] if own else [])]

    def list_imported(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of imported results if the study imports any, otherwise an empty list."""
        return [f"results/{self.run}/{wildcards.study}/imported.json"] if self.sources[wildcards.study] else []

    def list_references(self, wildcards: Wildcards) -> list[str]:
        """Return the facts.json of the published data that a study's figures also show."""
        named = self.config["studies"][wildcards.study].get("reference", [])
        return [f"results/{name}/tables/facts.json" for name in ([named] if isinstance(named, str) else named)]

    def get_conda_of_library(self, wildcards: Wildcards) -> str:
        """Return the conda environment of the job that looks up a library.

        It is the library's own environment if conda creates it, otherwise the workflow's environment.
        """
        return f"../envs/{wildcards.library if wildcards.library in self.conda else 'workflow'}.yaml"

    def get_runtime(self, wildcards: Wildcards) -> int:
        """Return the time in minutes to request for a cell's cluster job: its time limit plus `_STEP_MINUTES`."""
        cell = self.cells[wildcards.study][wildcards.cell]
        limit = studies.resolve_setting(self.config["studies"][wildcards.study]["time_limit_s"], cell.levels)
        return math.ceil(float(limit) / 60) + _STEP_MINUTES

    def get_nodes(self, wildcards: Wildcards) -> int:
        """Return the number of cluster nodes to request for a cell, with one task per node that gets all its cores."""
        levels = self.cells[wildcards.study][wildcards.cell].levels
        return int(levels["nodes"]) if studies.get_study(wildcards.study).spans_nodes else 1

    def get_mpi(self, wildcards: Wildcards) -> str | None:
        """Return "srun" for a multi-node cell, so that it starts the workers and not the executor; otherwise None."""
        return "srun" if self.get_nodes(wildcards) > 1 else None


def is_done(path: str) -> bool:
    """Return whether an artefact exists and has the status "done"."""
    return Path(path).exists() and read_json(Path(path)).get("status") == "done"


def get_conda_of_study(wildcards: Wildcards) -> str:
    """Return the conda environment that the cells of a study run in."""
    return f"../envs/{studies.get_study(wildcards.study).environment}.yaml"


def get_study(wildcards: Wildcards) -> str:
    """Return the study that a dataset belongs to, which is the first part of the dataset's name."""
    return wildcards.dataset.partition("-")[0]


def get_attempt(wildcards: Wildcards, attempt: int) -> int:
    """Return the number of the attempt. If the first attempt is killed, the second one only records the failure."""
    return attempt


def list_printed(wildcards: Wildcards) -> list[str]:
    """Return the CSV files of a published study and the files of its audit."""
    folder = Path("results/published", wildcards.published)
    return [str(path) for pattern in ("*.csv", "audit/*") for path in sorted(folder.glob(pattern))]
