"""The blobs study: which cells are possible, cost estimates, and checks of measured records."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from sbench.design.checks import check_bytes, check_nodes, check_pages_kept, check_requests, check_work
from sbench.design.study import Cell, Study, check_node_count, list_mappings
from sbench.probe import memory, sizes
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, find_tool, read_yaml
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.blobs import patterns
from sbench.studies.blobs.checks import check_iterations, check_memory, check_page_caches, check_size
from sbench.studies.blobs.mpi import BY_NODES, count_slots, read_hosts
from sbench.studies.blobs.settings import Data, Levels, Section, Settings

# Factors, in addition to the size, whose levels must be equal for stores and patterns to be compared.
CONTEXT = ("processes", "nodes", "operation_size", "chunk_size", "concurrency", "cache")
LIMITS = Path("config/facts/object_limits.yaml")
_START_S = 0.5


class Blobs(Study):
    """The study of parallel reads of raw objects by MPI processes."""

    environment = "mpi"
    spans_nodes = True
    of_record = ("repeat", "effective", "memory", "retries", "attempts", "ceiling")

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield mistakes in the configuration, such as missing entries, too few objects or invalid MPI settings."""
        section, parts = read_fields(Section, self.get_section(config)), list_mappings(self.get_section(config))
        for part in parts:
            own = any(patterns.PATTERNS[name].one_each for name in part["pattern"]) or "own" in part["objects"]
            needed = max(part["processes"]) if own else 1
            for size in part["size"]:
                if not _get_for_size(section.iterations, size):
                    yield f"studies.blobs.iterations lacks {size}; add its number of iterations"
                if not _get_for_size(section.time_limit_s, size):
                    yield f"studies.blobs.time_limit_s lacks {size}; add its limit in seconds"
                if (there := _get_for_size(section.data["objects"], size)) < needed:
                    each = ", since each process reads a different object" if own else ""
                    few = f"must be at least {needed} for {size}{each} (got {there})"
                    yield f"studies.blobs.data.objects: {few}"
        yield from _list_never_compared(section.compare, {name for part in parts for name in part["pattern"]})
        launcher, hostfile, library = section.mpi.launcher, section.mpi.hostfile, section.mpi.library
        most = max(count for part in parts for count in part["processes"])
        if hostfile and not Path(hostfile).is_file():
            yield f"studies.blobs.mpi.hostfile: {hostfile} does not exist"
        elif hostfile and (there := count_slots(Path(hostfile))) < most:
            yield (
                f"studies.blobs.mpi.hostfile: {hostfile} must have {most} slots for the processes of the matrix"
                f" (got {there})"
            )
        several = any(max(part["nodes"]) > 1 for part in parts)
        if launcher and several and not any(word in part for word in BY_NODES for part in launcher):
            yield f"studies.blobs.mpi.launcher: must contain {' or '.join(BY_NODES)} for cells of several nodes"
        if library and "/" in library and not Path(library).is_file():
            yield f"studies.blobs.mpi.library: {library} does not exist"

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield the reasons why a combination of levels is impossible."""
        cell, hostfile = read_fields(Levels, levels), read_fields(Section, self.get_section(config)).mpi.hostfile
        pattern, entry = patterns.PATTERNS[cell.pattern], config["stores"][cell.store]
        kind, store = entry["kind"], stores.get_store(entry)
        direct, own = cell.cache == "direct", cell.objects == "own" and not pattern.is_split
        reasons = {
            "objects cannot be read from a raw device": "device" in entry,
            f"MPI-IO reads files, not stores of kind {kind}": pattern.mpi_io and not store.files,
            f"O_DIRECT requires files (got a store of kind {kind})": direct and not store.files,
            "MPI-IO opens its file itself, without O_DIRECT": pattern.mpi_io and direct,
            "MPI-IO reads a single operation of a process at a time": pattern.mpi_io and cell.concurrency != "1",
            "an embedded server is reachable only from its machine, but a hostfile may name other machines": (
                store.embedded and hostfile
            ),
            f"{cell.pattern} already reads an object per process; set objects to shared": own and pattern.one_each,
            f"{cell.pattern} reads a single object; set objects to shared": own and pattern.is_read_once,
            "whole objects per process require pattern multiple-files": (
                own and not (pattern.one_each or pattern.is_read_once)
            ),
        }
        yield from (reason for reason, holds in reasons.items() if holds)
        yield from check_node_count(levels, config, int(cell.processes))
        yield from _list_size_conflicts(cell, store.copies)
        limit = read_object_limits().get(kind)
        if limit and sizes.parse_size(cell.size) > limit["gib"] * 2**30:
            largest = sizes.format_size(limit["gib"] * 2**30)
            yield f"an object of {kind} must have at most {largest} ({limit['as_of']}; {limit['source']})"

    def list_needs(self, config: dict, cells: Sequence[Cell]) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield a check of the configured launcher, and of this machine's memory if all processes run here.

        Cells check the memory of other machines when they start.
        """
        mpi = read_fields(Section, self.get_section(config)).mpi
        if launcher := mpi.launcher:
            remedy = "load its module, or correct mpi.launcher"
            yield f"tool {launcher[0]}", lambda: find_tool(launcher[0], remedy=remedy, trial=())
        if not (mpi.launcher or mpi.hostfile):
            yield "memory", lambda: _expect_memory(cells)

    def complete_settings(self, settings: dict, config: dict) -> dict:
        """Add the number of iterations for a cell's object size, and the complete MPI settings, to its settings."""
        cell, section = read_fields(Levels, settings["cell"]), read_fields(Section, self.get_section(config))
        mpi = {"launcher": [], "hostfile": None, "library": None} | settings["mpi"]
        # Include the hosts, so that another list of hosts in the same file makes a different cell.
        hosts = {"hosts": read_hosts(Path(section.mpi.hostfile))} if section.mpi.hostfile else {}
        return settings | {"iterations": _get_for_size(section.iterations, cell.size), "mpi": mpi | hosts}

    def estimate_record(self, settings: dict) -> dict:
        """Estimate the "requests", "bytes" and "seconds" of a record before any measurement.

        Each round that measures the store's highest rate reads at most the first operation of each process.
        """
        given = read_fields(Settings, settings)
        cell, network = given.cell, given.store.get("network") or {}
        size, processes, concurrency = sizes.parse_size(cell.size), int(cell.processes), int(cell.concurrency)
        read = size if patterns.PATTERNS[cell.pattern].is_read_once else size * processes
        ceiling = min(read, sizes.parse_size(cell.operation_size) * processes)
        # Objects that need several operations are read again for verification.
        again = read if read > ceiling else 0
        iterations = given.launches * given.iterations
        total = iterations * read + given.launches * again + given.ceiling_rounds * ceiling
        rounds = iterations + given.ceiling_rounds
        requests = max(rounds * processes, total / sizes.parse_size(cell.chunk_size))
        rate = min(1000, networks.compute_rate_limit(network, processes * concurrency)) * 2**20
        waiting = requests * network.get("latency_ms", 0) / 1000 / processes / concurrency
        return {"requests": requests, "bytes": total, "seconds": given.launches * _START_S + total / rate + waiting}

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the total bytes of the generated objects of one size."""
        given = read_fields(Data, data)
        return sizes.parse_size(given.size) * given.objects

    def count_data_objects(self, data: dict) -> int:
        """Return the number of generated objects of one size."""
        return read_fields(Data, data).objects

    def estimate_made_bytes(self, data: dict) -> int:
        """Return 0, because objects are generated while they are uploaded to stores."""
        return 0

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return the mismatches between a record and its label (METHOD 3, 10, 11). Any mismatch fails the record."""
        # Without samples, objects changed before the first read, so no request was sent.
        reasons = check_requests(record, settings) if record["samples"] else []
        size = read_fields(Settings, settings).data.size
        return [*reasons, *check_nodes(record["effective"], settings), *check_size(manifest, size)]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons why a measured record is invalid (METHOD 4, 8, 9, 20)."""
        return [
            *(
                [*check_page_caches(record), *check_iterations(record)]
                or [*check_pages_kept(record["cache"]), *check_work(record["work"])]
            ),
            *check_memory(record["memory"]),
            *check_bytes(record, record["work"].get("fetched_bytes")),
        ]

    def get_contest(self, levels: dict[str, str], config: dict) -> tuple[str | bool, ...]:
        """Return a key that is equal for cells whose stores and patterns are compared: they deliver the same bytes."""
        cell, context = read_fields(Levels, levels), (level for factor, level in levels.items() if factor in CONTEXT)
        return (cell.pattern in patterns.WHOLE, cell.size, *context)


@cache
def read_object_limits() -> dict[str, dict]:
    """Return the maximum object size of each kind of store: "gib", with its source and date ("source", "as_of")."""
    return read_yaml(LIMITS)["limits"]


def _list_size_conflicts(cell: Levels, copies: bool) -> Iterator[str]:
    """Yield a message for each contradiction between a cell's sizes of objects, operations and chunks.

    Args:
        cell: levels of the cell.
        copies: whether the store's SDK buffers a second copy of each chunk in flight.
    """
    pattern, concurrency = patterns.PATTERNS[cell.pattern], int(cell.concurrency)
    size, operation, chunk = map(sizes.parse_size, (cell.size, cell.operation_size, cell.chunk_size))
    block = sizes.compute_block_bytes(size)
    if operation < patterns.PAGE:
        yield f"operation_size must be at least {sizes.format_size(patterns.PAGE)}, a page (got {cell.operation_size})"
    elif pattern.by == "scatter" and operation < block:
        yield f"scatter requires an operation_size of at least a block, {sizes.format_size(block)} for {cell.size}"
    # Size of the largest operation of any process. With interleaved pieces, each piece is a chunk.
    buffer = min(operation, -(-size // int(cell.processes)) if pattern.is_split else size)
    chunks = -(-buffer // chunk)
    if concurrency > chunks and pattern.gives != "pieces":
        has = f"{chunks} chunk{'s' * (chunks != 1)} of {cell.chunk_size}"
        of = f"a request of a process at {cell.size}"
        yield f"{concurrency} requests in flight require as many chunks: {of} has {has}"
    held = buffer + 2 * min(chunk, buffer) * concurrency
    if copies and held > operation + memory.SPARE:
        yield (
            f"the SDK holds two copies of each chunk: {sizes.format_size(buffer)} + 2 × {sizes.format_size(chunk)}"
            f" × {concurrency} = {sizes.format_size(held)} is more than an operation and"
            f" {sizes.format_size(memory.SPARE)}"
        )


def _expect_memory(cells: Sequence[Cell]) -> str:
    """Check that this machine has enough free memory for the largest cell. Return a text with both amounts.

    Each cell checks this again when it starts.

    Raises:
        Problem: there is too little free memory.
    """
    needs = []
    for cell in cells:
        given = read_fields(Settings, cell.settings)
        size = sizes.parse_size(given.data.size)
        plan = patterns.Plan(given.cell, {"size_bytes": size, "block_bytes": sizes.compute_block_bytes(size)})
        buffers = sum(map(plan.compute_buffer_bytes, range(plan.processes)))
        needs.append((buffers + plan.processes * memory.SPARE, plan.processes))
    needed, count = max(needs)
    free = memory.compute_available_bytes()
    processes = "process needs" if count == 1 else "processes need"
    words = f"{count} {processes} {sizes.format_size(needed)}, {sizes.format_size(free)} free"
    if needed > free:
        raise Problem(f"{words}; choose a smaller operation_size, or fewer processes")
    return words


def _list_never_compared(compare: Sequence[dict], names: set[str]) -> Iterator[str]:
    """Yield messages about configured comparisons that are never made.

    These are comparisons of cells that deliver different numbers of bytes.
    """
    for number, entry in enumerate(compare):
        if entry["factor"] == "size":
            yield f"studies.blobs.compare[{number}]: objects of different sizes deliver different amounts; remove it"
    bases = {entry["baseline"] for entry in compare if entry["factor"] == "pattern"}
    alone = sorted(
        name for name in names if not any((name in patterns.WHOLE) == (base in patterns.WHOLE) for base in bases)
    )
    # In comparisons by other factors, every pattern is compared with itself.
    if bases and alone and all(entry["factor"] == "pattern" for entry in compare):
        yield (
            f"studies.blobs.compare: {', '.join(alone)} deliver different amounts than"
            f" {', '.join(sorted(bases))}, so no comparison includes them; add"
            f" {{factor: pattern, baseline: {alone[0]}}}"
        )


def _get_for_size(setting: int | dict[str, int], size: str) -> int:
    """Look up a setting for an object size. A number applies to all sizes; a missing entry of a mapping counts as 0."""
    return setting.get(size, 0) if isinstance(setting, dict) else setting


STUDY = Blobs("blobs")
