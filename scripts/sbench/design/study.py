"""What the workflow must know of a study beside its schema; a study states only what it has."""

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
    # Measuring a cell asks its study, too, and makes no tables.
    import pandas as pd

T = TypeVar("T")
# Levels of `control` whose twins have something anew that a cell keeps across blocks (METHOD 6), and what that is.
COPIED, REBUILT = "copied", "rebuilt"
ANEW = {COPIED: "another copy of the data", REBUILT: "another build of the library"}


@dataclass(frozen=True)
class Cell:
    """One combination of levels and all that it takes to measure it.

    Attributes:
        name: the readable levels, without those that the schema has as defaults, and 10 hexadecimal digits of the
            resolved settings; the cell's folder.
        study: the study's name.
        levels: factor -> level, as text, in the order of the schema; `control` is "", "twin", one of `ANEW`, or that
            of a slowed control (`sbench.probe.slowed`).
        settings: what the measuring program is given; what differs here is a different cell.
        dataset: the id of the data it reads, "" where the study makes none.
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
        """The name of its library's environment, "" without one; a twin that is rebuilt has one of its own."""
        return self.levels.get("library", "") + f"+{REBUILT}" * (self.levels.get("control") == REBUILT)


class Study:
    """A study without peculiarities: `scripts/sbench/studies/<study>/study.py` declares its own as `STUDY`.

    Attributes:
        name: that of its folder in scripts/sbench/studies.
        environment: that of the file in envs/ from which conda makes what its cells are measured in.
        spans_nodes: whether cells run on several nodes of a cluster, by a factor `nodes`.
        of_tasks: the metrics of single tasks: cells of different numbers of tasks are not compared by them.
        of_record: what of each record its report reads beside the tables.
    """

    environment = "workflow"
    spans_nodes = False
    of_tasks: tuple[str, ...] = ()
    of_record: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        """Name it as its folder in scripts/sbench/studies."""
        self.name = name

    def get_section(self, config: dict) -> dict:
        """Return what a resolved configuration says of this study."""
        section: dict = config["studies"][self.name]
        return section

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield what is wrong with the study's section and the schema cannot see."""
        yield from ()

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield why a combination of levels cannot exist."""
        yield from ()

    def select_steady(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells that controls may repeat: those whose time a wait of a known share makes longer by that."""
        return cells

    def describe_missing_twin(self, settings: dict, control: str) -> str:
        """Return why a cell of such settings has no twin of a level of `ANEW`; "" where it has."""
        data, library = settings.get("data", {}), settings.get("library", {})
        if control == COPIED:
            apart = "files" not in data or (stores.get_store(settings["store"]).has_separate_data and "at" not in data)
            return "" if data and apart else "its data are read where they lie, which is one place"
        return "" if library.get("kind") in ("source", "wheel") else "its library is not built here"

    def is_in_turn(self, config: dict, cells: Sequence[Cell]) -> bool:
        """Return whether cells are measured in the order of the matrix, as one leaves traces in those after it."""
        return False

    def is_timed(self, levels: dict[str, str]) -> bool:
        """Return whether cells of these levels take a time that is compared with that of others."""
        return True

    def get_data_settings(self, config: dict, levels: dict[str, str]) -> dict:
        """Return the settings of the dataset of these levels, which are those of the factors that describe the data."""
        return {key: resolve_setting(value, levels) for key, value in self.get_section(config)["data"].items()} | levels

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Return a cell's settings with what only the study knows; all that is in them makes the cell."""
        return settings

    def list_needs(self, config: dict, cells: Sequence[Cell]) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield what a run of `cells` needs beside folders and stores, each with what says that it is there.

        What is called returns a few words, or raises the Problem that says what to do.
        """
        yield from ()

    def list_inputs(self, config: dict) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield what the study reads of the user's own, each with what looks at it (see `list_needs`)."""
        if "published" in self.get_section(config):
            yield "published", lambda: f"{len(self.read_printed(config))} figures"

    def read_printed(self, config: dict) -> list[dict]:
        """Return what was printed elsewhere, as the study's `printed` reads it in the file that `published` names."""
        path = self.get_section(config).get("published")
        # What reads tables is needed by nothing else that is asked of a study.
        rows: list[dict] = (
            importlib.import_module(f"sbench.studies.{self.name}.printed").read_printed(Path(path)) if path else []
        )
        return rows

    def list_sources(self, config: dict) -> list[Path]:
        """Return the files of results from elsewhere that the study's `imports` name.

        Raises:
            Problem: one of them is not there.
        """
        return []

    def count_repeats(self, config: dict) -> int:
        """Return how often each cell is measured."""
        return int(config["repeats"])

    def estimate_record(self, settings: dict) -> dict:
        """Estimate one record of a cell before anything is known: {"requests", "bytes", "seconds"}.

        Where a cell has to wait, or to prepare something, "before_s" says how many of the seconds; "puts" says how many
        of the requests write, "least" that the files, which nobody looked into, may need more of all.
        """
        return {"requests": 0, "bytes": 0, "seconds": 0}

    def compute_forecast(self, cell: "Cell", config: dict) -> float | None:
        """Return the seconds that a record of a cell is forecast to read; None without a forecast."""
        return None

    def find_published_time(self, settings: dict) -> tuple[float, str] | None:
        """Return the seconds that a record of such a cell took by what was published, and what that is of."""
        return None

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the bytes that a record needs for itself where it measures, while it measures."""
        return 0

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the bytes of a dataset that is generated."""
        return 0

    def count_data_objects(self, data: dict) -> int:
        """Return how many objects a dataset that is generated is in a store."""
        return 1 if self.estimate_data_bytes(data) else 0

    def estimate_made_bytes(self, data: dict) -> int:
        """Return how many of them lie in results/data: none where they are made on their way into stores."""
        return self.estimate_data_bytes(data)

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return why a cell was not measured as its label says (METHOD 3, 10): such a record is failed.

        `record` is what the measuring program handed over; the `layout` of the dataset's manifest was read back, and
        the manifest is empty where the study has no data.
        """
        return []

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return why a record that was measured is not valid (METHOD 23)."""
        return []

    def build_tables(
        self, matrix: "pd.DataFrame", kept: Sequence[Kept], imported: dict, config: dict
    ) -> "dict[str, pd.DataFrame] | None":
        """Return the study's own tables by name; None where its results are blocks, whose tables are the usual ones.

        `matrix` has the cells that are not left out, as in matrix.csv, `kept` their records, `imported` the artefact of
        results from elsewhere, if any, `config` no section but this study's.
        """
        return None

    def build_facts(self, plan: dict, kept: Sequence[Kept], imported: dict, config: dict) -> dict:
        """Return what only this study's report says beside figures; `plan` is plan.json, the rest as in `build_tables`.

        By default it is what `of_record` names, of each record that tells what was in force, and what was printed
        elsewhere; what was measured is shown without that if need be.
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
        """Return what cells that are each compared with each have in common; None: only as `compare` asks."""
        return None


def resolve_setting(value: T | Mapping[str, T], levels: dict[str, str]) -> T:
    """Return a setting for a cell: it may be a mapping from the levels of a factor."""
    return next(value[level] for level in levels.values() if level in value) if isinstance(value, Mapping) else value


def list_mappings(section: dict) -> list[dict]:
    """Return the matrix of a study as a list of mappings; it is empty where a study only imports results."""
    matrix = section.get("matrix", [])
    return matrix if isinstance(matrix, list) else [matrix]


def get_study(name: str) -> Study:
    """Return the study of that name, as its folder declares it."""
    study: Study = importlib.import_module(f"sbench.studies.{name}.study").STUDY
    return study


def check_readable(levels: dict[str, str], config: dict) -> Iterator[str]:
    """Yield why a library cannot read HDF5 files of a store through a driver."""
    # Here, as what builds libraries has no part in measuring, whose code a record's provenance tells.
    from sbench.build.distributions import has_user_h5py
    from sbench.build.sources import load_pinned_sources

    driver, store = drivers.get_driver(levels["driver"]), config["stores"][levels["store"]]
    library = config["libraries"][levels["library"]]
    if not driver.supports_store(stores.get_store(store)):
        yield f"driver {levels['driver']} does not read a {store['kind']} store"
    if store.get("tls") and driver.trusts_system(library["hdf5"]) and (why := trust.describe_mount_obstacle()):
        yield f"{levels['library']} cannot be made to trust store {levels['store']} here ({why}); run as root"
    if "device" in store:
        yield "files cannot be read from a raw device"
    # What a wheel of the user's own, or a lock of theirs, brings instead of h5py's own wheel is seen when it is built.
    of_h5py = library["kind"] == "wheel" and not has_user_h5py(library)
    if (
        driver.optional
        and of_h5py
        and not load_pinned_sources()["wheels"].get(library["hdf5"], {}).get(levels["driver"])
    ):
        yield f"{levels['library']} is a wheel, which has no {levels['driver'].upper()}"
    yield from check_distributions(levels, config, driver.needs, f"driver {levels['driver']}")


def check_node_count(levels: dict[str, str], config: dict, processes: int | None) -> Iterator[str]:
    """Yield why a cell cannot run on several nodes of a cluster; `processes`: how many it has, None: by the cores."""
    nodes, store = int(levels["nodes"]), stores.get_store(config["stores"][levels["store"]])
    if nodes == 1:
        return
    if store.embedded:
        yield f"an embedded server is reached from its own machine only, not from {nodes} nodes"
    if processes is None:
        yield "a multiple of the cores is of one machine; write how many workers several nodes have together"
    elif processes < nodes or processes % nodes:
        yield f"{processes} cannot be divided among {nodes} nodes"


def check_distributions(levels: dict[str, str], config: dict, needs: Sequence[str], what: str) -> Iterator[str]:
    """Yield that a library's locks and wheels lack a distribution that `what` needs."""
    from sbench.build.distributions import list_versions

    library = config["libraries"][levels["library"]]
    # What conda brings beside its locked packages, or an interpreter has, is not known before it is started.
    missing = [
        name for name in needs if library["kind"] not in ("conda", "python") and name not in list_versions(library)
    ]
    if missing:
        yield f"library {levels['library']} lacks {', '.join(missing)}, which {what} needs"
