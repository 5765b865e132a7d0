"""Define the volumes study: settings, cost estimates and checks of a battery."""

import math
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.design import records
from sbench.design.records import Kept
from sbench.design.study import Cell, Study, list_mappings
from sbench.probe import host
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, find_tool
from sbench.stores import store as stores
from sbench.studies.volumes import fio_options, promises
from sbench.studies.volumes.checks import check_finished, check_jobs, check_output
from sbench.studies.volumes.config_files import LIMITS, VOLUME_TYPES, read_facts, read_job
from sbench.studies.volumes.settings import Levels, Section, Settings

if TYPE_CHECKING:
    import pandas as pd

NO_FIO = "apt install fio, or dnf install fio"
# Keys of the section that apply to all batteries together, or that are replaced by `background`.
_NOT_OF_A_CELL = ("batteries", "imports", "limits", "other", "background_job")
# The job that spends a volume's credits before a battery.
_SPENDING = "spend-credits"
_REACH_S = 60
# Assumed latency of a write with sync in seconds: 1 ms, as published for gp2 and gp3.
_SYNC_S = 0.001


class Volumes(Study):
    """The study that measures latencies of fio jobs on block volumes."""

    environment = "fio"

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield mistakes that the schema cannot detect.

        These are unknown limits and volume types, stores with a shell but no path or device, and a missing store of the
        background load.
        """
        section, types = read_fields(Section, self.get_section(config)), read_facts(VOLUME_TYPES)["types"]
        limits = read_facts(LIMITS)["limits"]
        for number, limit in enumerate(section.limits):
            if isinstance(limit, str) and limit not in limits:
                names = ", ".join(limits)
                yield f"studies.volumes.limits[{number}] must be one of {names} (got {limit!r}); {LIMITS} defines them"
        named = {f"stores.{name}": store for name, store in config["stores"].items()}
        imports = ((number, entry) for number, entry in enumerate(section.imports) if isinstance(entry, dict))
        named |= {f"studies.volumes.imports[{number}]": entry for number, entry in imports}
        for place, entry in named.items():
            volume = entry.get("volume")
            if isinstance(volume, dict) and volume["type"] not in types:
                names, given = ", ".join(types), volume["type"]
                yield f"{place}.volume.type must be one of {names} (got {given!r}); {VOLUME_TYPES} defines them"
            if "shell" in entry and not {"path", "device"} & entry.keys():
                yield f"{place}.shell needs a path or a device on its host; add path or device"
            if "shell" in entry and volume == "instance":
                yield f"{place}.volume: instance describes volumes of this machine only; give type and size_gib"
        if not section.other and any("other" in part["background"] for part in list_mappings(self.get_section(config))):
            yield f"studies.volumes.other must name the store of the background load: {', '.join(config['stores'])}"

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield reasons that a combination of factor levels cannot be measured."""
        cell, section = read_fields(Levels, levels), read_fields(Section, self.get_section(config))
        store, other = config["stores"][cell.store], section.other
        beside = config["stores"][other] if cell.background == "other" else {}
        if not _has_folders(store) and "device" not in store:
            yield f"fio cannot write to a store of kind {store['kind']}"
        if state := cell.start_credits:
            before_s, limit_s = _compute_lead_time(state, store)["seconds"], section.time_limit_s
            if before_s == math.inf:
                yield f"store {cell.store} lacks burst credits to start with ({state}), or its volume lacks size_gib"
            elif before_s >= limit_s:
                yield f"credits are {state} after {before_s:,.0f} s; raise time_limit_s above that (now {limit_s:g})"
        if cell.background == "other":
            if other == cell.store:
                yield f"the background load on another volume needs another store than {other}"
            elif beside.get("shell") != store.get("shell"):
                yield f"the background load on {other} would run on another host"
            elif not _has_folders(beside):
                yield f"the background load needs a folder, and {other} lacks it"
        options = fio_options.parse_job_file(read_job(cell.job))
        if fio_options.resolve_options(options).get("rate_iops") and not fio_options.get_open_loop_rate(options):
            yield f"{cell.job} has rate_iops: an open loop needs an even rate and a single operation in flight"
        if cell.background == "same" and "device" in store:
            yield "a raw device cannot hold the files of a background load"

    def is_in_turn(self, config: dict, cells: Sequence[Cell]) -> bool:
        """Return whether cells must run in the order of the matrix, because a volume has burst credits.

        A battery starts with the credits that the previous battery left, unless its cell sets them. In random order,
        the initial credits would vary at random.
        """
        levels = (read_fields(Levels, cell.levels) for cell in cells)
        stores_as_left = {own.store for own in levels if not own.start_credits}
        return any(
            _compute_lead_time("full", config["stores"][store])["seconds"] < math.inf for store in stores_as_left
        )

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Add `background` (None, or the job and store of the background load) and `start` (initial credits)."""
        kept = {key: value for key, value in settings.items() if key not in _NOT_OF_A_CELL}
        given, section = read_fields(Settings, settings), read_fields(Section, self.get_section(config))
        if state := given.cell.start_credits:
            text = read_job(_SPENDING) if state == "spent" else ""
            kept["start"] = {"state": state, **_compute_lead_time(state, given.store), "text": text}
        if given.cell.background == "none":
            return kept | {"background": None}
        job = {"name": section.background_job, "text": read_job(section.background_job)}
        store = given.store if given.cell.background == "same" else config["stores"][section.other]
        return kept | {"background": {"job": job, "store": store}}

    def list_needs(self, config: dict, cells: Sequence[Cell]) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield checks that fio is installed, that shells reach their volumes, and that no volume is in memory."""
        names = {read_fields(Levels, cell.levels).store for cell in cells}
        used = {name: config["stores"][name] for name in names}
        if not all("shell" in store for store in used.values()):
            yield "tool fio", lambda: find_tool("fio", remedy=NO_FIO)
        for name, store in sorted(used.items()):
            if "shell" in store:
                yield f"volume {name}", partial(_require_shell, store)
                continue
            place = Path(store.get("device") or store.get("path", "results"))
            if place.exists() and (memory := host.find_memory_backing(place)):
                yield f"volume {name}", partial(refuse_memory, place, memory)

    def list_sources(self, config: dict) -> list[Path]:
        """List the files of fio results to import."""
        # Import late: measuring a battery does not need this module.
        from sbench.studies.volumes import import_fio

        return import_fio.list_sources(read_fields(Section, self.get_section(config)).imports)

    def build_tables(
        self, matrix: "pd.DataFrame", kept: Sequence[Kept], imported: dict, config: dict
    ) -> "dict[str, pd.DataFrame]":
        """Build the tables of a run (see `tables.COLUMNS`)."""
        from sbench.studies.volumes import series, tables

        measured = series.build_series(matrix, kept, imported, config["stores"])
        return tables.build_tables(measured, config | self.get_section(config))

    def build_facts(self, plan: dict, kept: Sequence[Kept], imported: dict, config: dict) -> dict:
        """Return the job files by name, metadata of each battery, and the files that could not be imported."""
        jobs = [cell["settings"].get("job") for cell in plan["cells"].values()]
        sound = [one for one in imported.get("records", []) if records.is_sound(one)]
        batteries = [
            {
                **record["battery"],
                **{factor: record["cell"].get(factor, "") for factor in ("store", "job", "background", "host")},
                **{key: record.get(key) for key in ("position", "fio")},
                **{"volume": record.get("volume") or {}, "options": record.get("job_options", {})},
                "reasons": record.get("reasons", []),
            }
            for record in [*(one.record for one in kept if one.record), *sound]
            if record.get("battery")
        ]
        return {
            "jobs": {job["name"]: {"text": job["text"]} for job in jobs if job},
            "batteries": batteries,
            "left_out": imported.get("left_out", []),
        }

    def count_repeats(self, config: dict) -> int:
        """Return the number of batteries per volume; batteries are the repeats of this study."""
        return int(self.get_section(config)["batteries"])

    def count_most_repeats(self, config: dict) -> int:
        """Return the configured number of batteries. No more are added later, because credits depend on their order."""
        return self.count_repeats(config)

    def estimate_record(self, settings: dict) -> dict:
        """Estimate "requests", "bytes", "seconds" and "before_s" of a battery, assuming 1 ms per write with sync."""
        given = read_fields(Settings, settings)
        options = fio_options.parse_job_file(given.job.text)
        size, block = fio_options.compute_total_bytes(options), fio_options.get_block_bytes(options)
        each = size / block * _SYNC_S if fio_options.has_timed_syncs(options) else size / 2**27
        if rate := fio_options.get_open_loop_rate(options):
            each = max(each, size / block / rate)
        each = given.pause_s + (fio_options.get_runtime_s(options) or each)
        jobs, before_s = max(given.jobs, given.at_least_s / each), given.start.seconds
        return {"requests": 0, "bytes": jobs * size, "seconds": jobs * each + before_s, "before_s": before_s}

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the total file size of the job, the background load and the job that spends credits."""
        given = read_fields(Settings, settings)
        texts = filter(None, (given.job.text, given.load and given.load.job.text, given.start.text))
        return sum(fio_options.compute_total_bytes(fio_options.parse_job_file(text)) for text in texts)

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """If no job of the battery finished, return a message that nothing was measured (METHOD 9)."""
        return check_finished(record)

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the mismatches between a battery and its settings (METHOD 9, 10), which invalidate the record."""
        return [*check_output(record), *check_jobs(record["work"])]


def _has_folders(store: dict) -> bool:
    """Return whether fio can create files in a store, on this machine or through the store's shell."""
    return (stores.get_store(store).files or "shell" in store) and "device" not in store


def _require_shell(store: dict) -> str:
    """Check that a store's shell (such as ssh) reaches its volume, and return the host name.

    Raises:
        Problem: the shell does not start, or the host lacks the directory, the device or fio.
    """
    place, words = shlex.quote(store.get("path") or store["device"]), shlex.join(store["shell"])
    script, pipes = f"uname -n; test -e {place} && command -v fio", {"capture_output": True, "text": True}
    try:
        done = subprocess.run([*store["shell"], "sh", "-s"], input=script, timeout=_REACH_S, check=False, **pipes)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"'{words}' must open a shell ({error}); correct the store's shell") from error
    name, *_ = [*done.stdout.split(), ""]
    if done.returncode:
        silent = " ".join(done.stderr.split())[-200:] or "it printed nothing"
        why = f"host {name} lacks {place} or fio" if name else silent
        raise Problem(f"'{words}' did not reach the volume: {why}; correct the store's shell or path")
    return name


def _compute_lead_time(state: str, store: dict) -> dict:
    """Return how long it takes at most to refill or spend a volume's burst credits, and the I/Os to spend them."""
    volume = store.get("volume")
    return promises.compute_lead_time(promises.compute_promises(volume if isinstance(volume, dict) else {}), state)


def refuse_memory(place: Path, memory: str) -> str:
    """Raise a Problem because `place` is on `memory`, a RAM-backed file system or device."""
    raise Problem(f"{place} is in memory ({memory}); name a folder on a disk")


STUDY = Volumes("volumes")
