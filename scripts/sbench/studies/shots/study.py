"""The shots study: which configurations are possible, estimates of their cost, and checks of their records."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sbench import drivers
from sbench.design.checks import (
    check_bytes,
    check_caches,
    check_driver,
    check_injected,
    check_nodes,
    check_page_cache,
    check_requests,
    check_work,
    check_workers,
)
from sbench.design.records import Kept
from sbench.design.study import (
    Cell,
    Study,
    check_node_count,
    check_readable,
    list_mappings,
)
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, read_json
from sbench.stores import faults
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.shots import injected, runtimes, selection
from sbench.studies.shots import sets as own_sets
from sbench.studies.shots.arms import get_arm_key
from sbench.studies.shots.checks import check_layout, check_pages
from sbench.studies.shots.order import describe_order
from sbench.studies.shots.settings import Levels, Settings
from sbench.studies.shots.signal_table import select_signals

_LAYOUTS = ("single-shot", "shot-major", "signal-major")
# Size in bytes of a file with a single shot and paged allocation.
_FILE_BYTES = 16_000_000
# Assumed latency in ms of a request to a remote service, as a lower bound.
_ELSEWHERE_MS = 20
# Defaults for user files. They are not in the schema, because they would then change the settings of all other cells.
_READ = {"read_files": 1, "read_datasets": 0}


class Shots(Study):
    """The study that compares drivers for reading HDF5 files, such as files with one tokamak shot each."""

    spans_nodes = True
    # Times derived from tasks: the slowest first dataset of a task, and the sum over all other datasets.
    of_tasks = ("first", "rest")

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield messages about unknown layouts and signals, invalid selections, and mistakes in sets of user files."""
        section = self.get_section(config)
        data, where = section["data"], "studies.shots"
        sets = data.get("files")
        levels = list(sets) if isinstance(sets, dict) else _LAYOUTS
        for mapping in list_mappings(section):
            if strange := [level for level in mapping["layout"] if level not in levels]:
                yield f"{where}.matrix.layout: must be one of {', '.join(levels)} (got {strange[0]})"
            yield from filter(None, map(selection.find_mistake, mapping["selection"]))
        if isinstance(sets, dict):
            yield from own_sets.find_mistakes(data, config, f"{where}.data")
        elif "datasets" in data:
            yield f"{where}.data.datasets: requires sets of files; write files: {{mine: data/*.h5}}"
        if isinstance(named := section["read_signals"], list) and "files" not in data:
            available = select_signals(data["signals"])
            for absent in sorted({*named} - {*available})[:1]:
                yield (
                    f"{where}.read_signals: must be among the {data['signals']} generated signals (got {absent});"
                    f" choose from {', '.join(available)}, or change data.signals"
                )

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield a message for each reason why a combination of levels cannot be measured."""
        data = self.get_section(config)["data"]
        cell = read_fields(Levels, levels)
        yield from own_sets.list_obstacles(cell, config, data.get("files"))
        yield from check_readable(levels, config)
        yield from drivers.check_levels(levels)
        yield from faults.check_fault(cell.fault, cell.store, config["stores"][cell.store])
        yield from check_node_count(levels, config, None if cell.workers.endswith("x") else int(cell.workers))
        if cell.layout != "single-shot" and "files" not in data and min(data["shots"], data["signals"]) == 1:
            yield f"{cell.layout} requires at least two shots and two signals"

    def list_inputs(self, config: dict) -> Iterator[tuple[str, Callable[[], str]]]:
        """For each setting that refers to user files, yield its key, and a function that checks these files."""
        data = self.get_section(config)["data"]
        if isinstance(sets := data.get("files"), dict):
            for name in sets:
                yield f"data.files.{name}", partial(_describe_user_set, self, config, name)
        elif sets:
            yield "data.files", lambda: _describe_user_files(self.get_section(config))

    def get_data_settings(self, config: dict, levels: dict[str, str]) -> dict:
        """Return the settings of a dataset, which differ between generated files and sets of user files."""
        data = self.get_section(config)["data"]
        if isinstance(data.get("files"), dict):
            return own_sets.get_data_settings(data, config, levels)
        return super().get_data_settings(config, levels)

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Add defaults for how many files and datasets to read to a cell's settings, if it reads sets of user files."""
        return _READ | settings if "datasets" in settings["data"] else settings

    def build_facts(self, plan: dict, kept: Sequence[Kept], imported: dict, config: dict) -> dict:
        """Return facts for the report: index costs, outcomes of injected faults, TLS handshakes and orders of reads.

        Each record makes its index again; the facts contain the index cost in the last record of each cell.
        """
        indexes = {one.cell: one.record["index"] for one in kept if one.record and "index" in one.record}
        shaken = {
            one.cell: network["handshakes"]
            for one in kept
            if one.record and "handshakes" in (network := one.record.get("network") or {})
        }
        facts = {
            "indexes": [{"cell": cell, "index": index} for cell, index in indexes.items()],
            "injected": injected.list_outcomes(kept),
            "handshakes": shaken,
            "reads": _list_orders(plan, kept),
        }
        return {name: value for name, value in facts.items() if value}

    def get_contest(self, levels: dict[str, str], config: dict) -> tuple[str, str] | None:
        """Return (access, selection) if the run is by `sbench advise`, which compares cells by them, otherwise None."""
        return (levels["access"], levels["selection"]) if "advice" in self.get_section(config) else None

    def compute_forecast(self, cell: Cell, config: dict) -> float | None:
        """Return the time that `sbench advise` forecast for a record, in seconds, or None in other runs."""
        for arm in self.get_section(config).get("advice", {}).get("arms", []):
            if get_arm_key(arm) == get_arm_key(cell.levels):
                return arm["seconds"][cell.levels["selection"]] * (cell.settings["read_files"] or 1)
        return None

    def estimate_record(self, settings: dict) -> dict:
        """Estimate the cost of a record before any measurement: {"requests", "bytes", "seconds"}.

        Each task opens its files itself. When ROS3 opens a file, it fetches `drivers.ROS3_FIRST_BYTES` in up to three
        requests; a file with a single shot is smaller. Two to four of 61 signals make up nearly all of a shot's 8 MB.
        """
        given = read_fields(Settings, settings)
        cell, data = given.cell, given.data
        if data.datasets:
            return own_sets.estimate_record(given)
        shots, signals, single = data.shots, data.signals, cell.layout == "single-shot"
        workers = int(cell.workers.rstrip("x"))
        if cell.access == "shots":
            shots = given.read_shots or shots
            opens = shots * min(workers, signals)
        else:
            signals = given.count_signals()
            opens = signals * (shots if single else min(workers, shots))
        datasets, store = 2 * shots * signals, stores.get_store(given.store)
        size, requests = 8_000_000 * shots * signals / data.signals, opens * 3 + datasets
        if _is_bufferless(cell):
            # Observed with HDF5 2.2.0 and such files.
            requests = opens * 22 + datasets * 3
        elif not store.files and single:
            size, requests = _FILE_BYTES * opens, opens * 3
        elif not store.files:
            size += drivers.ROS3_FIRST_BYTES * opens
        latency_ms = given.network.get("latency_ms", _ELSEWHERE_MS if store.elsewhere else 0)
        rate = min(500, networks.compute_rate_limit(given.network, workers)) * 2**20
        seconds = size / rate + requests * latency_ms / 1000 / min(workers, opens)
        return {"requests": requests, "bytes": size, "seconds": seconds}

    def find_published_time(self, settings: dict) -> tuple[float, str] | None:
        """Return the published seconds for the same configuration, with a note (see config/facts)."""
        return runtimes.find_runtime(read_fields(Settings, settings))

    def estimate_data_bytes(self, data: dict) -> int:
        """Estimate the size of a generated dataset in bytes, with 16 MB per shot, or 8 MB in a shared file.

        Return 0 for user files.
        """
        if "files" in data:
            return 0
        return data["shots"] * (_FILE_BYTES if data["layout"] == "single-shot" else 8_000_000)

    def count_data_objects(self, data: dict) -> int:
        """Return the number of generated files."""
        return 0 if "files" in data else data["shots"] if data["layout"] == "single-shot" else 1

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return messages about settings that differ from the requested ones. Any difference fails the record.

        The checks are METHOD 3, 10 and 11.

        Args:
            record: the part of the record from the measuring program.
            settings: the requested settings of the cell.
            manifest: the manifest of the dataset, with `layout` as read back from the files.
        """
        effective, given = record["effective"], read_fields(Settings, settings)
        label = {} if given.data.datasets else settings["data"]
        return [
            *check_driver(effective, given.library["hdf5"], given.cell.driver),
            *check_nodes(effective, settings),
            *check_requests(record, settings),
            *check_layout(manifest, label),
            *check_pages(effective, manifest["layout"]),
        ]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons why a measured record is invalid (METHOD 3, 8, 9, 10, 20)."""
        cell = read_fields(Levels, settings["cell"])
        return [
            *check_work(record["work"]),
            *check_bytes(record, record["work"].get("stored_bytes")),
            *check_page_cache(record["cache"]),
            *check_caches(record["effective"], cell.page_buffer, cell.read_cache),
            *check_workers(record["effective"]),
            *check_injected(record),
        ]


def _is_bufferless(cell: Levels) -> bool:
    """Return whether caches of file content are disabled, so that every access to the file sends a request."""
    return cell.page_buffer == "0" and cell.read_cache == "none"


def _describe_user_files(section: dict) -> str:
    """Describe the first user file with shots; raise Problem if it does not fit the matrix of the study."""
    # Imported here because these modules import h5py, which is not needed to process settings.
    from sbench.studies.shots import inputs, shot_files

    first = inputs.find_sources(section["data"]["files"])[0]
    facts = shot_files.describe_files([first], values=False)["layout"]
    paged = f"paged ({facts['page_size']} bytes)" if facts["page_size"] else "not paged"
    words = f"{first.where} is {paged}, {facts['layout']}, {facts['shots']} shots of {facts['signals']} signals"
    layouts = {level for mapping in list_mappings(section) for level in mapping["layout"]}
    if layouts != {facts["layout"]}:
        raise Problem(f"{words}; set layout in the matrix to {facts['layout']} (got {', '.join(sorted(layouts))})")
    buffers = {level for mapping in list_mappings(section) for level in mapping["page_buffer"]} - {"unset", "0"}
    if buffers and not facts["page_size"]:
        ask = f"a page buffer of {', '.join(sorted(buffers))} requires pages"
        raise Problem(f'{words}; {ask}; repack the file (h5repack -S PAGE), or set page_buffer to "0" or unset')
    return words


def _describe_user_set(study: Shots, config: dict, name: str) -> str:
    """Describe the first readable file of a set; raise Problem if it does not fit the matrix of the study."""
    from sbench.studies.shots.first import describe_first

    data = study.get_data_settings(config, {"layout": name})
    levels = [mapping for mapping in list_mappings(study.get_section(config)) if name in mapping["layout"]]
    looked = describe_first(data, dict.fromkeys(level for mapping in levels for level in mapping["selection"]))
    buffers = {level for mapping in levels for level in mapping["page_buffer"]} - {"unset", "0"}
    if buffers and not looked.paged:
        ask = f"a page buffer of {', '.join(sorted(buffers))} requires pages"
        raise Problem(f'{looked.words}; {ask}; repack the file (h5repack -S PAGE), or set page_buffer to "0" or unset')
    wanted = study.get_section(config).get("read_files", _READ["read_files"])
    if wanted > looked.files and any("files" in mapping["access"] for mapping in levels):
        return f"{looked.words}; read_files is {wanted}, so each record reads all of them"
    return looked.words


def _list_orders(plan: dict, kept: Sequence[Kept]) -> list[dict]:
    """Describe the order of reads for each existing dataset and level of `access`, from their first record."""
    first = {
        (plan["cells"][one.cell]["dataset"], one.levels["access"]): one
        for one in reversed(kept)
        if one.record and one.record["status"] == "done" and one.cell in plan["cells"]
    }
    orders = []
    for (dataset, access), one in sorted(first.items()):
        # Skip datasets that were removed, or that lack objects in the record.
        with contextlib.suppress(Problem, KeyError):
            manifest = read_json(one.path.parents[3] / "data" / dataset / "manifest.json")
            orders.append({"data": dataset} | describe_order(manifest, access, one.record["read"]))
    return orders


STUDY = Shots("shots")
