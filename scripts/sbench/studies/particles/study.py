"""Define the particles study: valid cells, cost estimates, and checks that make a record invalid or failed."""

from collections.abc import Callable, Iterator
from pathlib import Path

from sbench.design.checks import (
    check_bytes,
    check_caches,
    check_driver,
    check_nodes,
    check_page_cache,
    check_requests,
    check_work,
    check_workers,
)
from sbench.design.study import (
    Cell,
    Study,
    check_distributions,
    check_node_count,
    check_readable,
    list_mappings,
)
from sbench.probe import sizes
from sbench.probe.fields import read_fields
from sbench.stores import network as networks
from sbench.studies.particles.checks import check_chunks, check_particles, check_threads
from sbench.studies.particles.methods import METHODS
from sbench.studies.particles.settings import Data, Levels, Settings

# Factors that must have equal levels when methods are compared with each other.
CONTEXT = (
    *("library", "store", "driver", "page_buffer", "particles", "chunk", "rereads", "operation", "selection"),
    *("workers", "nodes", "threads", "pool", "memory", "cache"),
)
_FIELD_BYTES, _PARTICLE_BYTES = 4, 44  # per particle of a generated file: the field alone, and all fields
_START_S, _TASK_S, _ARRAY_TASK_S = 0.3, 0.002, 0.005
# The only levels that apply to yt, which opens and splits files itself. Regions are excluded, because yt's regions also
# contain particles outside that extend into them.
_OF_YT = {"driver": "sec2", "page_buffer": "unset", "chunk": "262144", "selection": "all"}
# Minimum memory of a worker. Interpreter and libraries take 100 MB, and a worker that stays near its limit is paused
# forever.
_LEAST_MEMORY = 192 * 2**20


class Particles(Study):
    """The study of loading and reducing chunked particle data with Dask."""

    spans_nodes = True
    of_tasks = ("chunk",)
    of_record = ("repeat", "effective")

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield messages if the levels of `particles` contradict the setting `data.files`."""
        section = self.get_section(config)
        wanted = {str(level) for mapping in list_mappings(section) for level in mapping["particles"]}
        own = read_fields(Data, section["data"]).files
        if own and wanted != {"own"}:
            yield "studies.particles.matrix.particles: must be [own] with data.files; change it, or remove data.files"
        if not own and "own" in wanted:
            yield "studies.particles.data.files: missing, but particles is own; name a folder of HDF5 files, or a file"

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield reasons that a combination of factor levels cannot be measured."""
        yield from check_readable(levels, config)
        cell = read_fields(Levels, levels)
        name, method, load = cell.method, METHODS[cell.method], cell.operation == "load"
        limited, copied = cell.memory != "none", cell.driver == "parquet"
        once = name == "yt-serial" and cell.rereads != "1"
        spread = cell.nodes != "1"
        of_yt = ", ".join(f"{factor} {level}" for factor, level in _OF_YT.items())
        reasons = {
            f"{name} does not load; use operation sum, moments or histogram": load and not method.loads,
            f"{name} does not reduce; use operation load": not load and not method.reduces,
            "a load holds all values in memory; set memory to none, or use a reduction": limited and load,
            f"{name} reads in the client, which Dask's memory limit does not cover; set memory to none": (
                limited and not method.dask
            ),
            f"a Dask worker needs at least {sizes.format_size(_LEAST_MEMORY)}; raise memory, or lower workers": (
                limited and sizes.parse_size(cell.memory) < int(cell.workers) * _LEAST_MEMORY
            ),
            "Dask limits the memory of processes, not of threads; set pool to processes": (
                limited and cell.pool == "threads"
            ),
            "workers on several nodes must be processes; set pool to processes": spread and cell.pool == "threads",
            "Dask's memory limit works only on a single machine; set nodes to 1, or memory to none": spread and limited,
            "a Parquet copy contains only the field; set selection to all": copied and cell.selection != "all",
            "a page buffer does not apply to a Parquet copy; set page_buffer to unset": (
                copied and cell.page_buffer != "unset"
            ),
            f"yt opens and splits files itself; set {of_yt}": method.yt and not _OF_YT.items() <= levels.items(),
            "yt reads all data once, however often chunks are listed; set rereads to 1": once,
            f"{name} merges equal tasks, which exist only if rereads is above 1; use futures": (
                method.pure and cell.rereads == "1"
            ),
        }
        yield from (reason for reason, holds in reasons.items() if holds)
        yield from check_distributions(levels, config, ("yt",) if method.yt else (), f"method {name}")
        yield from check_node_count(levels, config, int(cell.workers))

    def list_inputs(self, config: dict) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield checks of the user-supplied snapshot, and of the inputs common to all studies."""
        data = read_fields(Data, self.get_section(config)["data"])
        if data.files:
            yield "data.files", lambda: _describe_files(data)
        yield from super().list_inputs(config)

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Remove data settings that do not apply, depending on whether the snapshot is generated or user-supplied."""
        data = settings["data"]
        unused = ("particles", "per_file", "seed") if "files" in data else ("group", "field")
        return settings | {"data": {key: value for key, value in data.items() if key not in unused}}

    def select_steady(self, cells: list[Cell]) -> list[Cell]:
        """Select the cells for deliberate slowdowns: all with a single reading thread, or all cells if there are none.

        With more threads, other threads can read while one waits, so a wait need not extend the total time.
        """
        return [cell for cell in cells if _count_readers(read_fields(Levels, cell.levels)) == 1] or cells

    def estimate_record(self, settings: dict) -> dict:
        """Estimate "requests", "bytes" and "seconds" of a record without using earlier records."""
        given = read_fields(Settings, settings)
        cell, network = given.cell, given.store.get("network") or {}
        particles, rereads = _count_particles(given.data), int(cell.rereads)
        chunks = -(-particles // int(cell.chunk)) * rereads
        size = particles * _FIELD_BYTES * rereads
        at_once = int(cell.workers) if METHODS[cell.method].dask else 1
        rate = min(300, networks.compute_rate_limit(network, at_once)) * 2**20
        task = _ARRAY_TASK_S if cell.method == "array" else _TASK_S
        waiting = chunks * (task + 4 * network.get("latency_ms", 0) / 1000 / at_once)
        once = size / rate + waiting
        times = given.launches * given.iterations
        seconds = given.launches * (_START_S + once) + times * once
        return {"requests": times * chunks, "bytes": times * size, "seconds": seconds}

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the size of a generated snapshot in bytes; 0 for user-supplied files."""
        given = read_fields(Data, data)
        return 0 if given.files else _count_particles(given) * _PARTICLE_BYTES

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the size of the Parquet copy in bytes; 0 for cells without a copy."""
        given = read_fields(Settings, settings)
        return _count_particles(given.data) * _FIELD_BYTES if given.cell.driver == "parquet" else 0

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return the mismatches between a record and its label (METHOD 3, 10, 11). Any mismatch fails the record."""
        given, effective = read_fields(Settings, settings), record["effective"]
        cell, wanted = given.cell, given.data.particles
        return [
            *check_driver(effective, given.library["hdf5"], cell.driver),
            *check_threads(effective, int(cell.threads)),
            *(check_particles(manifest["layout"], wanted, _count_particles(given.data)) if wanted else []),
            *check_nodes(effective, settings),
            *check_requests(record, settings),
        ]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons that a measured record is invalid (METHOD 8, 9, 10, 20)."""
        work, effective = record["work"], record["effective"]
        return [
            *check_work(work),
            *check_caches(effective, read_fields(Settings, settings).cell.page_buffer),
            *check_workers(effective),
            *check_chunks(work),
            *check_page_cache(record["cache"]),
            *check_bytes(record, work["stored_bytes"]),
        ]

    def get_contest(self, levels: dict[str, str], config: dict) -> tuple[str | None, ...] | None:
        """Return a key that is equal for methods that do the same work and are compared pairwise.

        The key is None for methods that run equal tasks only once, which are not compared.
        """
        return None if METHODS[levels["method"]].pure else tuple(levels.get(factor) for factor in CONTEXT)


def _count_readers(cell: Levels) -> int:
    return int(cell.workers) * int(cell.threads) if METHODS[cell.method].dask else 1


def _count_particles(data: Data) -> int:
    """Return the number of particles of a generated snapshot, or estimate it from the size of user-supplied files."""
    # Imported late, because `make` needs h5py, which is required only in the environments under test.
    from sbench.studies.particles.make import list_source_files, plan_snapshot

    if data.files:
        return sum(path.stat().st_size for path in list_source_files(Path(data.files))) // _PARTICLE_BYTES
    return plan_snapshot(data)[0]


def _describe_files(data: Data) -> str:
    """Describe the user-supplied snapshot, and check that all its files contain the field."""
    from sbench.studies.particles import make, snapshots

    paths = make.list_source_files(Path(data.files))
    files = snapshots.describe_files(paths, data.group, data.field)
    total = sum(file["particles"] for file in files)
    size = sizes.format_size(sum(file["bytes"] for file in files))
    return f"{len(files)} files, {size}, {total} values of {data.group}/{data.field}"


STUDY = Particles("particles")
