"""Plan a call of the workflow: the blocks and cells that it measures, and the inputs and resources of each job.

Rules pass their wildcards, as Snakemake does to functions of inputs, parameters and resources.
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
from sbench.measure import failures
from sbench.probe import slurm
from sbench.probe.program import Problem, expect_folders, expect_room, read_json

# Minutes of a cell in addition to its time limit: servers start, files are examined, disks are slow.
_STEP_MINUTES = 10


class Wildcards(Protocol):
    """The wildcards of a job of Snakemake: it has only those of its rule."""

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
    """A call of the workflow with a configuration.

    Attributes:
        config, run, results: the resolved configuration, the run's name, and the folder of its results.
        studies: names of the requested studies.
        sources: by study, files of results from elsewhere that it imports.
        cells, selected: by study, its cells by name, and the selected cells.
        opened: by study, the blocks that this call begins with.
        looked: by study, the blocks that precede its first look: those of `opened`, or of the call that measured last.
        libraries, data, conda: specs of libraries and datasets, and the names of libraries that conda makes.
        specs: by part of the configuration and name, the JSON of a library, a store or a dataset for programs.
    """

    def __init__(self, config: dict, files: list, workflow: Any, checkpoints: Any, python: str) -> None:
        """Resolve the configuration, and check that folders of results and reports are writable.

        Args:
            config: the configuration as Snakemake read and merged it.
            files: the files of the configuration.
            workflow: Snakemake's workflow.
            checkpoints: Snakemake's checkpoints, by the names of rules.
            python: the interpreter of the programs, as a shell takes it.

        Raises:
            Problem: the configuration is wrong, or a folder is not writable.
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
        self.looked = {
            study: self._read_blocks()[study] if self._has_ended(study, opened) else opened
            for study, opened in self.opened.items()
        }
        # Snakemake calls these for each job; it asks again about artefacts that appear later.
        self._places_of, self._is_done = cache(self._get_places), cache(is_done)

    def _read_blocks(self) -> dict[str, blocks.Open]:
        """Return the blocks that the main process chose: a job's process parses the rules, too."""
        return {study: blocks.read_blocks(self.results / study / "blocks.json") for study in self.studies}

    def _open_blocks(self) -> dict[str, blocks.Open]:
        """Name the session, check that programs can run, and choose the blocks of each study for this call.

        Move aside failed artefacts of an interrupted call, and cells to measure again. A dry run and --lint (which asks
        for no environment variables) change nothing; a locked folder belongs to another call.
        """
        session.start_session()
        looks = self._workflow.output_settings.dryrun or not self._workflow.check_envvars
        changes = not looks and not any(Path(".snakemake/locks").glob("*"))
        if changes:
            self._expect_programs()
            expect_room(self.results / "checked.json")
            failures.move_aside(self.results, failures.find_failed_artefacts(self.results))
        opened = {
            study: blocks.open_blocks(self.config, self.selected[study], cells.values())
            for study, cells in self.cells.items()
        }
        if changes:
            # Snakemake would not make it again for an earlier step that failed and was moved aside.
            (self.results / "provided").unlink(missing_ok=True)
            anew = [self.results / study / "records" / cell for study in self.studies for cell in opened[study].anew]
            failures.move_aside(self.results, anew, "again")
            for study in self.studies:
                if not self._has_ended(study, opened[study]):
                    for path in blocks.get_looks_folder(self.run, study).glob("*.json"):
                        path.unlink()
                    blocks.write_blocks(self.results / study / "blocks.json", opened[study])
        return opened

    def _has_ended(self, study: str, opened: blocks.Open) -> bool:
        """Return whether a study has no blocks to measure, and its last look ordered none."""
        orders = blocks.read_orders(blocks.get_looks_folder(self.run, study))
        return not blocks.get_last_block(opened) and bool(orders) and not orders[-1].blocks

    def _expect_programs(self) -> None:
        """Raise a Problem if no interpreter can run the programs, or if jobs of an earlier call are in a queue."""
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
        """Return the possible values of the rules' wildcards, as regular expressions."""
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
        """Return the part of the configuration that a study's plan, tables and facts depend on, as JSON."""
        return json.dumps(configuration.select_study_config(self.config, wildcards.study))

    def get_priority(self, wildcards: Wildcards) -> int:
        """Return a lower number for a later position, study after study, block after block; provisioning has 0."""
        study, block = wildcards.study, int(wildcards.repeat)
        before = sum(
            len(self.cells[earlier]) * self._get_last_block(earlier)
            for earlier in self.studies[: self.studies.index(study)]
        )
        position = (block - 1) * len(self.cells[study]) + self._places_of(study, block)[wildcards.cell]
        return -(before + position)

    def _get_last_block(self, study: str) -> int:
        """Return the largest number that a block of a study may have at the end of this call."""
        most = studies.get_study(study).count_most_repeats(self.config)
        return max(blocks.get_last_block(self.opened[study]), most) + int(self.config["extra_blocks"])

    def _get_places(self, study: str, block: int) -> dict[str, int]:
        order = blocks.get_order(self.opened[study], blocks.get_looks_folder(self.run, study), block)
        names = order.select_cells(self.cells[study])
        in_turn = blocks.build_order(names, blocks.get_order_seed(self.config, study), block, order.draw)
        return {name: place for place, name in enumerate(in_turn, 1)}

    def list_environments(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of a study's libraries, if any library is under test."""
        return self._list_due(wildcards.study, blocks.list_library_artefacts)

    def list_provisions(self, wildcards: Wildcards) -> list[str]:
        """Return the artefacts of a study's data in their stores, if any."""
        return self._list_due(wildcards.study, blocks.list_data_artefacts)

    def _list_due(self, study: str, artefacts_of: Callable[[str, Iterable[Cell]], list[str]]) -> list[str]:
        """Return the artefacts that selected cells of a study need, and existing artefacts of its other cells."""
        due = artefacts_of(self.run, self.selected[study])
        every = artefacts_of(self.run, self.cells[study].values())
        return [name for name in every if name in due or Path(name).exists()]

    def list_needs(self, wildcards: Wildcards) -> dict[str, list[str]]:
        """Return the artefacts of a cell's library and data together: Snakemake's calls take longer than the work."""
        own = [self.cells[wildcards.study][wildcards.cell]]
        needs = {
            "environment": blocks.list_library_artefacts(self.run, own),
            "provision": blocks.list_data_artefacts(self.run, own),
        }
        # A list costs Snakemake another kilobyte.
        return {name: ancient(paths[0] if len(paths) == 1 else paths) for name, paths in needs.items()}

    def list_artefacts(self, wildcards: Wildcards | None = None) -> list[str]:
        """Return the artefacts of the libraries and data of the selected cells."""
        cells = [cell for study in self.studies for cell in self.selected[study]]
        return blocks.list_library_artefacts(self.run, cells) + blocks.list_data_artefacts(self.run, cells)

    def list_looked_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records that a look needs: those of the blocks that the call and its earlier looks ordered."""
        study, number = wildcards.study, int(wildcards.number)
        orders = [self.looked[study].order, *(self._get_look(study, before) for before in range(1, number))]
        return self._list_block_records(study, orders, self.looked[study].anew)

    def list_gathered_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of the studies whose facts exist; the facts of other studies have theirs as inputs.

        Listing a record again costs Snakemake as much time and memory as another input.
        """
        gathered = [study for study in self.studies if (self.results / study / "facts.json").exists()]
        return [name for study in gathered for name in self._list_study_records(study, [self.opened[study].order])]

    def list_all_records(self, wildcards: Wildcards) -> list[str]:
        """Return the records of a study, including the blocks that looks ordered, and the last look."""
        study = wildcards.study
        if not self.selected[study]:
            return []
        first = f"{blocks.get_looks_folder(self.run, study)}/1.json"
        orders = [self.opened[study].order]
        # If a checkpoint changes the plan while finished jobs are still in a queue, Snakemake 9 forgets the jobs that
        # depend on them and ends early, with status 0 (dag.py: their output exists, so it counts them off twice). So on
        # a cluster the next call measures what the look ordered.
        if self._workflow.non_local_exec:
            return [*self._list_study_records(study, orders), first]
        for number in itertools.count(1):
            order = self._get_look(study, number)
            if not order.blocks:
                return self._list_study_records(study, orders)
            orders.append(order)
        raise AssertionError("an endless loop has no end")

    def _get_look(self, study: str, number: int) -> blocks.Order:
        """Return the order of a look, or tell Snakemake to take the look first."""
        look = self._checkpoints.look.get(run=self.run, study=study, number=number)
        return blocks.read_order(Path(look.output[0]))

    def _list_study_records(self, study: str, orders: list[blocks.Order]) -> list[str]:
        """Return the existing records of selected cells of a study, and their records in the given blocks."""
        there = [
            f"{folder}/repeat={number}.json"
            for cell in self.selected[study]
            for folder in [self.results / study / "records" / cell.name]
            for number, _ in records.list_repeats(folder)
        ]
        return list(dict.fromkeys([*there, *self._list_block_records(study, orders, self.opened[study].anew)]))

    def _list_block_records(self, study: str, orders: list[blocks.Order], anew: dict[str, list[int]]) -> list[str]:
        """Return the records of selected cells of a study in the blocks of orders, and of cells to measure again.

        The step of a cell without its library or data skips it; on a cluster, it gets no job.
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
        """Delay the plan of a cluster until all artefacts that cells need exist, if there is a cell to measure.

        Only then is it known which cells can be measured, and no job is queued when the plan changes.
        """
        if not self._workflow.non_local_exec or not any(map(blocks.get_last_block, self.opened.values())):
            return
        if not hasattr(self, "_was_provided"):
            self._was_provided = all(map(is_done, self.list_artefacts()))
        if not self._was_provided:
            self._checkpoints.provided.get(run=self.run)

    def list_ready(self, wildcards: Wildcards) -> list[str]:
        """Return the existing artefacts of the first read of each study's data.

        Measuring steps have only ancient inputs. If such an input is made again, as for a library with a new lock,
        Snakemake 9 overlooks other missing outputs unless a job outdated by that input asks for them (dag.py: it does
        not examine a job that depends on a running job).
        """
        self._wait_for_artefacts()
        artefacts = [self.results / study / "ready.json" for study in self.studies]
        return [str(path) for path in artefacts if path.exists()]

    def list_servers(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of the embedded servers if a store needs them."""
        embedded = self.config["stores"][wildcards.store].get("server") == "embedded"
        return [f"results/{self.run}/environments/servers.json"] if embedded else []

    def list_locks(self, wildcards: Wildcards) -> list[str]:
        """Return the files that list the packages of a library under test other than HDF5."""
        own = self.libraries[wildcards.library].get("lock")
        of_conda = wildcards.library in self.conda
        return [f"envs/{wildcards.library}.yaml"] if of_conda else ["envs/measure.lock", *([own] if own else [])]

    def list_imported(self, wildcards: Wildcards) -> list[str]:
        """Return the artefact of imported results if the configuration names any."""
        return [f"results/{self.run}/{wildcards.study}/imported.json"] if self.sources[wildcards.study] else []

    def list_references(self, wildcards: Wildcards) -> list[str]:
        """Return the facts of the published data that a study's figures also draw."""
        named = self.config["studies"][wildcards.study].get("reference", [])
        return [f"results/{name}/tables/facts.json" for name in ([named] if isinstance(named, str) else named)]

    def get_conda_of_library(self, wildcards: Wildcards) -> str:
        """Return the conda environment that looks up a library: the library's environment if conda makes it."""
        return f"../envs/{wildcards.library if wildcards.library in self.conda else 'workflow'}.yaml"

    def get_runtime(self, wildcards: Wildcards) -> int:
        """Return the minutes after which a cluster may end a cell: its time limit and the rest of its step."""
        cell = self.cells[wildcards.study][wildcards.cell]
        limit = studies.resolve_setting(self.config["studies"][wildcards.study]["time_limit_s"], cell.levels)
        return math.ceil(float(limit) / 60) + _STEP_MINUTES

    def get_nodes(self, wildcards: Wildcards) -> int:
        """Return the number of cluster nodes of a cell; it asks for a task on each node, with all its cores."""
        levels = self.cells[wildcards.study][wildcards.cell].levels
        return int(levels["nodes"]) if studies.get_study(wildcards.study).spans_nodes else 1

    def get_mpi(self, wildcards: Wildcards) -> str | None:
        """Return "srun" for a cell on several nodes, so that the executor leaves the start of workers to the cell."""
        return "srun" if self.get_nodes(wildcards) > 1 else None


def is_done(path: str) -> bool:
    """Return whether an artefact exists with status done."""
    return Path(path).exists() and read_json(Path(path)).get("status") == "done"


def get_conda_of_study(wildcards: Wildcards) -> str:
    """Return the conda environment that measures the cells of a study."""
    return f"../envs/{studies.get_study(wildcards.study).environment}.yaml"


def get_study(wildcards: Wildcards) -> str:
    """Return the study that makes a dataset, the first part of the dataset's name."""
    return wildcards.dataset.partition("-")[0]


def get_attempt(wildcards: Wildcards, attempt: int) -> int:
    """Return the number of the attempt; a second attempt, after a kill from outside, only records the failure."""
    return attempt


def list_printed(wildcards: Wildcards) -> list[str]:
    """Return the tables of a published study and of its audit."""
    folder = Path("results/published", wildcards.published)
    return [str(path) for pattern in ("*.csv", "audit/*") for path in sorted(folder.glob(pattern))]
