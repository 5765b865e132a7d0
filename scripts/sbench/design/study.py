"""The base class of studies. It tells the workflow what a study's schema cannot express."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sbench import drivers
from sbench.design.records import Kept
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.stores import trust

if TYPE_CHECKING:
    # Not imported at run time, because measuring a cell also imports its study, but builds no tables.
    import pandas as pd

T = TypeVar("T")
# Levels of `control` for twins that replace the data or the build, which a cell otherwise uses in all its blocks
# (METHOD 6).
COPIED, REBUILT = "copied", "rebuilt"
ANEW = {COPIED: "another copy of the data", REBUILT: "another build of the library"}


@dataclass(frozen=True)
class Cell:
    """One combination of levels, with everything that is needed to measure it.

    Attributes:
        name: the levels that differ from the schema's defaults, followed by 10 hexadecimal digits of the hash of the
            settings. It is also the name of the cell's folder.
        study: the name of the study.
        levels: factor -> level (a string), in schema order. The level of `control` is an empty string for ordinary
            cells, and "twin", a key of `ANEW`, or a level in `sbench.probe.slowed` for controls.
        settings: the input of the measuring program. Different settings make a different cell.
        dataset: the id of the dataset that the cell reads; an empty string if it reads none.
        twin_of: the name of the cell that a control repeats; an empty string for ordinary cells.
    """

    name: str
    study: str
    levels: dict[str, str]
    settings: dict = field(compare=False, hash=False)
    dataset: str
    twin_of: str = ""

    @property
    def library(self) -> str:
        """The environment name of the library under test; an empty string if the study tests none.

        A rebuilt twin has a separate environment.
        """
        return self.levels.get("library", "") + f"+{REBUILT}" * (self.levels.get("control") == REBUILT)


class Study:
    """A study with default behavior, which subclasses override where a study differs.

    Each `scripts/sbench/studies/<study>/study.py` defines an instance named `STUDY`.

    Attributes:
        name: the name of the study's folder in scripts/sbench/studies.
        environment: the name of the file in envs/ that specifies the conda environment of the cells.
        spans_nodes: whether cells can run on several nodes of a cluster, according to a factor `nodes`.
        of_tasks: the metrics of single tasks. They are not compared between cells with different numbers of tasks.
        of_record: keys of each record that the report uses in addition to the tables.
    """

    environment = "workflow"
    spans_nodes = False
    of_tasks: tuple[str, ...] = ()
    of_record: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        """Store the name of the study's folder in scripts/sbench/studies."""
        self.name = name

    def get_section(self, config: dict) -> dict:
        """Return the study's section of a resolved configuration."""
        section: dict = config["studies"][self.name]
        return section

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield mistakes in the study's section of the configuration that the schema cannot detect."""
        yield from ()

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield the reasons why a combination of levels is impossible."""
        yield from ()

    def select_steady(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells that controls may repeat.

        These are cells whose time increases by a known fraction if each read is slowed by that fraction.
        """
        return cells

    def describe_missing_twin(self, settings: dict, control: str) -> str:
        """Return why a cell with these settings cannot have a twin of the kind `control`, a key of `ANEW`.

        The result is an empty string if it can.
        """
        data, library = settings.get("data", {}), settings.get("library", {})
        if control == COPIED:
            apart = "files" not in data or (stores.get_store(settings["store"]).has_separate_data and "at" not in data)
            return "" if data and apart else "the cell reads its data in place, without a copy"
        return "" if library.get("kind") in ("source", "wheel") else "the workflow does not build its library"

    def is_in_turn(self, config: dict, cells: Sequence[Cell]) -> bool:
        """Return whether cells must run in matrix order, because each measurement affects the next."""
        return False

    def is_timed(self, levels: dict[str, str]) -> bool:
        """Return whether cells with these levels measure a time that can be compared."""
        return True

    def get_data_settings(self, config: dict, levels: dict[str, str]) -> dict:
        """Return the settings of a dataset. `levels` are the cell's levels of the factors that describe the data."""
        return {key: resolve_setting(value, levels) for key, value in self.get_section(config)["data"].items()} | levels

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Return a cell's settings with study-specific settings added. The cell's name contains a hash of them all."""
        return settings

    def list_needs(self, config: dict, cells: Sequence[Cell]) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield (name, check) for each requirement of a run of `cells`, other than folders and stores.

        The function `check` returns a short description, or raises a Problem with the remedy.
        """
        yield from ()

    def list_inputs(self, config: dict) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield (name, check) for each user-supplied file that the study reads (see `list_needs`)."""
        if "published" in self.get_section(config):
            yield "published", lambda: f"{len(self.read_printed(config))} figures"

    def read_printed(self, config: dict) -> list[dict]:
        """Return printed results from a publication.

        The study's module `printed` reads them from the file that `published` in the configuration names.
        """
        path = self.get_section(config).get("published")
        # Imported here, because no other method needs to read tables.
        rows: list[dict] = (
            importlib.import_module(f"sbench.studies.{self.name}.printed").read_printed(Path(path)) if path else []
        )
        return rows

    def list_sources(self, config: dict) -> list[Path]:
        """Return the files with external results that `imports` in the study's section names.

        Raises:
            Problem: a file is missing.
        """
        return []

    def count_repeats(self, config: dict) -> int:
        """Return how many times each cell is measured."""
        return int(config["repeats"])

    def count_most_repeats(self, config: dict) -> int:
        """Return the maximum number of times that a cell is measured, if comparisons stay undecided."""
        return max(int(config.get("most_repeats", 0)), self.count_repeats(config))

    def estimate_record(self, settings: dict) -> dict:
        """Estimate the cost of one record from a cell's settings alone: {"requests", "bytes", "seconds"}.

        Optional keys: "before_s", the part of the seconds that the cell spends waiting or preparing; "puts", the number
        of requests that write; "least", whether the estimate is a lower bound because the files were not inspected.
        """
        return {"requests": 0, "bytes": 0, "seconds": 0}

    def compute_forecast(self, cell: "Cell", config: dict) -> float | None:
        """Return the forecast number of seconds that a cell's reads take; None if it cannot be forecast."""
        return None

    def find_published_time(self, settings: dict) -> tuple[float, str] | None:
        """Return the published time in seconds of such a cell, and its source; None if no time was published."""
        return None

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the disk space in bytes that a measurement needs while it runs."""
        return 0

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the size of a generated dataset in bytes."""
        return 0

    def count_data_objects(self, data: dict) -> int:
        """Return the number of objects that a generated dataset has in a store."""
        return 1 if self.estimate_data_bytes(data) else 0

    def estimate_made_bytes(self, data: dict) -> int:
        """Return the size of a generated dataset in results/data, in bytes; 0 if it is written directly to stores."""
        return self.estimate_data_bytes(data)

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return why a cell was not measured with the settings that it specifies (METHOD 3, 10).

        Any reason makes the record failed. `record` comes from the measuring program. `manifest` contains the dataset's
        `layout` as read back from the data, and is empty if the cell reads no dataset.
        """
        return []

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons why a measured record is invalid (METHOD 23)."""
        return []

    def build_tables(
        self, matrix: "pd.DataFrame", kept: Sequence[Kept], imported: dict, config: dict
    ) -> "dict[str, pd.DataFrame] | None":
        """Build the tables of a study that does not use the standard ones.

        Args:
            matrix: the rows of matrix.csv, without omitted combinations.
            kept: the records of these cells.
            imported: the artefact of external results; empty if the study imports none.
            config: the configuration, with the section of this study only.

        Returns:
            Name of the table -> table; None if the study uses the standard tables for results in blocks.
        """
        return None

    def build_facts(self, plan: dict, kept: Sequence[Kept], imported: dict, config: dict) -> dict:
        """Collect facts for the study's report that are not in its tables.

        By default, these are the values of the `of_record` keys in each record with effective settings, and printed
        results from a publication. If the latter are unreadable, the facts contain an error message instead.

        Args:
            plan: the content of plan.json.
            kept: as in `build_tables`.
            imported: as in `build_tables`.
            config: as in `build_tables`.
        """
        readers = [
            {"cell": one.cell, **{name: one.record.get(name) for name in self.of_record}}
            for one in kept
            if self.of_record and one.record and one.record.get("effective")
        ]
        try:
            return {"readers": readers, "printed": self.read_printed(config)}
        except Problem as problem:
            return {"readers": readers, "printed": [], "not_printed": str(problem)}

    def get_contest(self, levels: dict[str, str], config: dict) -> object:
        """Return a key that groups cells. All cells with the same key are compared with each other.

        None means that the cell is only compared as `compare` in the configuration specifies.
        """
        return None


def resolve_setting(value: T | Mapping[str, T], levels: dict[str, str]) -> T:
    """Return the value of a setting for a cell. If `value` maps levels to values, choose by the cell's levels."""
    return next(value[level] for level in levels.values() if level in value) if isinstance(value, Mapping) else value


def list_mappings(section: dict) -> list[dict]:
    """Return the matrix of a study's section as a list of mappings; an empty list if it only imports results."""
    matrix = section.get("matrix", [])
    return matrix if isinstance(matrix, list) else [matrix]


def get_study(name: str) -> Study:
    """Return the `STUDY` that is defined in the folder `name` in studies/."""
    study: Study = importlib.import_module(f"sbench.studies.{name}.study").STUDY
    return study


def check_readable(levels: dict[str, str], config: dict) -> Iterator[str]:
    """Yield the reasons why a library cannot read HDF5 files from a store through a driver."""
    # Imported here, because provenance hashes all modules that measuring imports, and these two only build libraries.
    from sbench.build.distributions import has_user_h5py
    from sbench.build.sources import load_pinned_sources

    driver, store = drivers.get_driver(levels["driver"]), config["stores"][levels["store"]]
    library = config["libraries"][levels["library"]]
    if not driver.supports_store(stores.get_store(store)):
        yield f"driver {levels['driver']} does not read a {store['kind']} store"
    if store.get("tls") and driver.trusts_system(library["hdf5"]) and (why := trust.describe_mount_obstacle()):
        yield f"{levels['library']} cannot trust the certificate of store {levels['store']} here ({why}); run as root"
    if "device" in store:
        yield "files cannot be read from a raw device"
    # Whether a user-supplied h5py contains a driver is unknown before it is installed.
    of_h5py = library["kind"] == "wheel" and not has_user_h5py(library)
    if (
        driver.optional
        and of_h5py
        and not load_pinned_sources()["wheels"].get(library["hdf5"], {}).get(levels["driver"])
    ):
        yield f"{levels['library']} is a wheel without {levels['driver'].upper()}"
    yield from check_distributions(levels, config, driver.needs, f"driver {levels['driver']}")


def check_node_count(levels: dict[str, str], config: dict, processes: int | None) -> Iterator[str]:
    """Yield the reasons why a cell cannot run on several nodes of a cluster.

    `processes` is None if the number of processes is a multiple of the number of cores.
    """
    nodes, store = int(levels["nodes"]), stores.get_store(config["stores"][levels["store"]])
    if nodes == 1:
        return
    if store.embedded:
        yield f"an embedded server is reachable from a single machine only, not from {nodes} nodes"
    if processes is None:
        yield "a multiple of the cores applies to a single machine; write the total number of workers of all nodes"
    elif processes < nodes or processes % nodes:
        yield f"{processes} processes do not divide evenly among {nodes} nodes"


def check_distributions(levels: dict[str, str], config: dict, needs: Sequence[str], what: str) -> Iterator[str]:
    """Yield a message if a library's lock files and wheels lack any of the distributions in `needs`.

    `what` is the part of the cell that needs them, for the message.
    """
    from sbench.build.distributions import list_versions

    library = config["libraries"][levels["library"]]
    # The distributions in a conda environment or of an existing interpreter are unknown before the run.
    missing = [
        name for name in needs if library["kind"] not in ("conda", "python") and name not in list_versions(library)
    ]
    if missing:
        yield f"library {levels['library']} lacks {', '.join(missing)}, which {what} needs"
