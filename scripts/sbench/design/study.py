"""Describe a study to the workflow, in addition to its schema; a study overrides only its peculiarities."""

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
    # Measuring a cell imports its study, too, and makes no tables.
    import pandas as pd

T = TypeVar("T")
# Levels of `control` whose twins renew something that a cell keeps across blocks (METHOD 6), described in `ANEW`.
COPIED, REBUILT = "copied", "rebuilt"
ANEW = {COPIED: "another copy of the data", REBUILT: "another build of the library"}


@dataclass(frozen=True)
class Cell:
    """One combination of levels with all that measuring it takes.

    Attributes:
        name: the readable levels, without the defaults of the schema, and 10 hexadecimal digits of the resolved
            settings; the cell's folder.
        levels: factor -> level, as text, in the order of the schema; `control` is "", "twin", a key of `ANEW`, or the
            level of a slowed control (`sbench.probe.slowed`).
        settings: input of the measuring program; other settings make another cell.
        dataset: the id of the data it reads, "" if the study makes none.
        twin_of: name of the cell that a control repeats, "" for all others.
    """

    name: str
    study: str
    levels: dict[str, str]
    settings: dict = field(compare=False, hash=False)
    dataset: str
    twin_of: str = ""

    @property
    def library(self) -> str:
        """The name of its library's environment, "" without a library; a rebuilt twin has a separate environment."""
        return self.levels.get("library", "") + f"+{REBUILT}" * (self.levels.get("control") == REBUILT)


class Study:
    """A study without peculiarities: `scripts/sbench/studies/<study>/study.py` declares its study as `STUDY`.

    Attributes:
        name: the name of its folder in scripts/sbench/studies.
        environment: the name of the file in envs/ that conda makes the environment of its cells from.
        spans_nodes: whether cells run on several nodes of a cluster, by a factor `nodes`.
        of_tasks: the metrics of single tasks: cells of different numbers of tasks are not compared by them.
        of_record: keys of each record that its report reads in addition to the tables.
    """

    environment = "workflow"
    spans_nodes = False
    of_tasks: tuple[str, ...] = ()
    of_record: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        """Set the name of its folder in scripts/sbench/studies."""
        self.name = name

    def get_section(self, config: dict) -> dict:
        """Return the study's section of a resolved configuration."""
        section: dict = config["studies"][self.name]
        return section

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield mistakes in the study's section that the schema cannot see."""
        yield from ()

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield why a combination of levels cannot exist."""
        yield from ()

    def select_steady(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells that controls may repeat: a wait of a known share makes their time longer by that share."""
        return cells

    def describe_missing_twin(self, settings: dict, control: str) -> str:
        """Return why a cell of such settings cannot have a twin of a level of `ANEW`; "" if it can."""
        data, library = settings.get("data", {}), settings.get("library", {})
        if control == COPIED:
            apart = "files" not in data or (stores.get_store(settings["store"]).has_separate_data and "at" not in data)
            return "" if data and apart else "the cell reads its data in place, without a copy"
        return "" if library.get("kind") in ("source", "wheel") else "the workflow does not build its library"

    def is_in_turn(self, config: dict, cells: Sequence[Cell]) -> bool:
        """Return whether cells run in the order of the matrix, as each leaves traces in the next."""
        return False

    def is_timed(self, levels: dict[str, str]) -> bool:
        """Return whether cells of these levels take a time to compare."""
        return True

    def get_data_settings(self, config: dict, levels: dict[str, str]) -> dict:
        """Return the settings of a dataset; `levels` are the levels of the factors that describe the data."""
        return {key: resolve_setting(value, levels) for key, value in self.get_section(config)["data"].items()} | levels

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Add settings that only the study knows to a cell's settings; all settings identify the cell."""
        return settings

    def list_needs(self, config: dict, cells: Sequence[Cell]) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the needs of a run of `cells` other than folders and stores, each with a function that checks it.

        The function returns a few words, or raises a Problem with the remedy.
        """
        yield from ()

    def list_inputs(self, config: dict) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the user's files that the study reads, each with a function that checks it (see `list_needs`)."""
        if "published" in self.get_section(config):
            yield "published", lambda: f"{len(self.read_printed(config))} figures"

    def read_printed(self, config: dict) -> list[dict]:
        """Return the figures printed elsewhere, as the study's `printed` reads them from the file of `published`."""
        path = self.get_section(config).get("published")
        # Imported here: nothing else asked of a study needs to read tables.
        rows: list[dict] = (
            importlib.import_module(f"sbench.studies.{self.name}.printed").read_printed(Path(path)) if path else []
        )
        return rows

    def list_sources(self, config: dict) -> list[Path]:
        """Return the files of results from elsewhere that the study's `imports` name.

        Raises:
            Problem: a file is missing.
        """
        return []

    def count_repeats(self, config: dict) -> int:
        """Return how often each cell is measured."""
        return int(config["repeats"])

    def count_most_repeats(self, config: dict) -> int:
        """Return how often a cell is measured at most, if comparisons stay undecided."""
        return max(int(config.get("most_repeats", 0)), self.count_repeats(config))

    def estimate_record(self, settings: dict) -> dict:
        """Estimate one record of a cell before anything is known: {"requests", "bytes", "seconds"}.

        Optional keys: "before_s", the seconds that the cell waits or prepares; "puts", the part of the
        requests that write; "least", whether unread files may need more of everything.
        """
        return {"requests": 0, "bytes": 0, "seconds": 0}

    def compute_forecast(self, cell: "Cell", config: dict) -> float | None:
        """Return the forecast reading seconds of a cell's record; None without a forecast."""
        return None

    def find_published_time(self, settings: dict) -> tuple[float, str] | None:
        """Return the published seconds of a record of such a cell, and the name of their source."""
        return None

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the bytes of disk that a record needs while it measures."""
        return 0

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the bytes of a generated dataset."""
        return 0

    def count_data_objects(self, data: dict) -> int:
        """Return the number of objects of a generated dataset in a store."""
        return 1 if self.estimate_data_bytes(data) else 0

    def estimate_made_bytes(self, data: dict) -> int:
        """Return the bytes of a generated dataset in results/data: 0 if it goes directly into stores."""
        return self.estimate_data_bytes(data)

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return why a cell was not measured as its label requires (METHOD 3, 10), which makes the record failed.

        `record` comes from the measuring program; `manifest` has the dataset's `layout`, read back, and is empty
        without data.
        """
        return []

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return why a measured record is invalid (METHOD 23)."""
        return []

    def build_tables(
        self, matrix: "pd.DataFrame", kept: Sequence[Kept], imported: dict, config: dict
    ) -> "dict[str, pd.DataFrame] | None":
        """Return the study's special tables by name; None if its results are blocks, with the usual tables.

        `matrix` has the cells that are not left out, as in matrix.csv, `kept` their records, `imported` the artefact of
        results from elsewhere, if any, `config` only this study's section.
        """
        return None

    def build_facts(self, plan: dict, kept: Sequence[Kept], imported: dict, config: dict) -> dict:
        """Return facts for this study's report other than figures; `plan` is plan.json, the rest as in `build_tables`.

        By default: the `of_record` keys of each record with effective settings, and figures printed elsewhere.
        Unreadable printed figures do not hide the measured facts.
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
        """Return the common property of cells to compare each with each; None: compare only as in `compare`."""
        return None


def resolve_setting(value: T | Mapping[str, T], levels: dict[str, str]) -> T:
    """Return a setting for a cell: a plain value, or a mapping from the levels of a factor."""
    return next(value[level] for level in levels.values() if level in value) if isinstance(value, Mapping) else value


def list_mappings(section: dict) -> list[dict]:
    """Return the matrix of a study as a list of mappings, empty if the study only imports results."""
    matrix = section.get("matrix", [])
    return matrix if isinstance(matrix, list) else [matrix]


def get_study(name: str) -> Study:
    """Return the study that a folder in studies/ declares."""
    study: Study = importlib.import_module(f"sbench.studies.{name}.study").STUDY
    return study


def check_readable(levels: dict[str, str], config: dict) -> Iterator[str]:
    """Yield why a library cannot read HDF5 files of a store through a driver."""
    # Imported here: provenance hashes the code that measures, and building libraries is no part of it.
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
    # The build shows the content of a user-supplied wheel or lock that replaces h5py's standard wheel.
    of_h5py = library["kind"] == "wheel" and not has_user_h5py(library)
    if (
        driver.optional
        and of_h5py
        and not load_pinned_sources()["wheels"].get(library["hdf5"], {}).get(levels["driver"])
    ):
        yield f"{levels['library']} is a wheel without {levels['driver'].upper()}"
    yield from check_distributions(levels, config, driver.needs, f"driver {levels['driver']}")


def check_node_count(levels: dict[str, str], config: dict, processes: int | None) -> Iterator[str]:
    """Yield why a cell cannot run on several nodes of a cluster; `processes` is None if the cores decide it."""
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
    """Yield a message about the distributions in `needs` that a library's locks and wheels lack, if any."""
    from sbench.build.distributions import list_versions

    library = config["libraries"][levels["library"]]
    # Distributions that conda adds to its locked packages, or that an interpreter has, are unknown before it starts.
    missing = [
        name for name in needs if library["kind"] not in ("conda", "python") and name not in list_versions(library)
    ]
    if missing:
        yield f"library {levels['library']} lacks {', '.join(missing)}, which {what} needs"
