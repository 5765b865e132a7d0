"""Checks that find out why a record is failed or invalid. Each check belongs to a numbered rule in docs/method.md."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sbench import drivers
from sbench.drivers import DEFAULT, UNSET
from sbench.probe import page_cache, sizes
from sbench.probe.slowed import SHARES
from sbench.stores import network as networks

Find = Callable[..., Iterable[str]]


class Check:
    """Wrap a function that yields the faults of a record, to append the number of its rule to each fault."""

    def __init__(self, find: Find, rule: int) -> None:
        """Store the function and the number of its rule."""
        functools.update_wrapper(self, find)
        self._find, self.rule = find, rule

    def __call__(self, *arguments: Any) -> list[str]:
        """Return a list of faults, one line of text for each."""
        return [f"{line} (rule {self.rule})" for line in self._find(*arguments)]


def rule(number: int) -> Callable[[Find], Check]:
    """Return a decorator that turns a function that yields faults into a `Check` of the given rule."""
    return functools.partial(Check, rule=number)


@rule(3)
def check_driver(effective: dict, library: str, driver: str) -> Iterator[str]:
    """Check that the files were opened with the HDF5 version `library` and the `driver` that the cell specifies."""
    if effective.get("hdf5") != library:
        yield f"the library under test is HDF5 {effective.get('hdf5')}, not {library}"
    if effective["driver"] != driver:
        yield f"the reader opened files with driver {effective['driver']}, not {driver}"
    if drivers.get_driver(driver).optional and not effective.get(driver):
        yield f"the library lacks {driver.upper()}"


@rule(3)
def check_injected(record: dict) -> Iterator[str]:
    """Check that at least one request failed if faults were to be injected.

    Otherwise, the record proves nothing about recovery from faults.
    """
    injected = record.get("injected")
    if injected and not injected["count"]:
        gets, first = injected["gets"], injected["first"]
        yield f"no fault was injected: the first was due at GET {first}, the cell sent {gets}; inject faults more often"


@rule(6)
def check_wait(control: str, work: dict) -> Iterator[str]:
    """Check that a slowed control, which waits after its reads on purpose, did wait."""
    if control in SHARES and not work.get("waited_s"):
        yield f"control {control} did not wait after its reads"


@rule(8)
def check_page_cache(state: dict) -> Iterator[str]:
    """Check the page cache at the start of the timed window and, for warm cells, also at its end."""
    if line := page_cache.describe_mismatch(state):
        yield line
    else:
        yield from _list_lost_pages(state)


@rule(8)
def check_pages_kept(state: dict) -> Iterator[str]:
    """Check that a warm cell's files are still in the page cache at the end of the timed window."""
    yield from _list_lost_pages(state)


def _list_lost_pages(state: dict) -> Iterator[str]:
    after = state["resident_after"]
    if state["asked"] == "warm" and after is not None and after < page_cache.WARM_AT_LEAST:
        resident = page_cache.format_percent(after)
        yield f"the page cache lost pages while the cell ran ({resident} resident at its end), expected warm"


@rule(9)
def check_work(work: dict) -> Iterator[str]:
    """Check that the reader did the requested work: tasks, datasets, bytes, and checksums of blocks and values."""
    names = (
        ("tasks_done", "tasks_asked", "tasks"),
        ("datasets", "datasets_asked", "datasets"),
        ("logical_bytes", "logical_bytes_asked", "logical bytes"),
        ("blocks_verified", "blocks_asked", "blocks with the right checksum"),
    )
    for done, expected, what in names:
        if expected in work and work.get(done) != work[expected]:
            yield f"expected {work[expected]} {what}, got {work.get(done)}"
    if work.get("checksum") != work.get("checksum_asked"):
        yield "the checksum of the values read differs from the manifest"


@rule(10)
def check_caches(effective: dict, page_buffer: str, read_cache: str = DEFAULT) -> Iterator[str]:
    """Check that the caches and the page buffer have the requested sizes.

    `effective` contains the actual settings, which `drivers.File.read_settings` reads back from the library.
    """
    kind, _, size = read_cache.partition("-")
    level = drivers.format_read_cache(kind, sizes.parse_size(size)) if size else kind
    if level not in (DEFAULT, made := effective.get("read_cache", "none")):
        yield f"the driver set the read cache to {made}, not {read_cache}"
    requested, held = drivers.parse_page_buffer(page_buffer), effective.get("page_buffer_bytes", 0)
    if requested not in (UNSET, held):
        # Rounding down to whole pages is acceptable. The library changes the size without an error in all these cases.
        if held == 0:
            yield f"the library ignored the page buffer of {requested} bytes (is the file paged?)"
        elif held > requested:
            yield f"the library raised the page buffer of {requested} bytes to {held} (one page)"
        elif held != requested - requested % effective["page_size"]:
            yield f"the library set a page buffer of {held} bytes, not {requested}"
    nbytes, slots = effective.get("rdcc_nbytes"), effective.get("rdcc_nslots")
    if nbytes not in (None, effective["rdcc_nbytes_asked"]):
        yield f"the library set a chunk cache of {nbytes} bytes, not {effective['rdcc_nbytes_asked']}"
    # 0 means the library's default. Records of earlier versions lack this entry.
    if (requested := effective.get("rdcc_nslots_asked", 0)) not in (0, slots):
        yield f"the library set a chunk cache of {slots} slots, not {requested}"


@rule(10)
def check_settings(effective: dict, label: dict) -> Iterator[str]:
    """Check that the settings read back match the cell's label."""
    for name, level in label.items():
        if effective[name] != level:
            yield f"expected {name} {level}, got {effective[name]}"


@rule(10)
def check_workers(effective: dict) -> Iterator[str]:
    """Check that the requested number of Dask workers was alive."""
    alive, wanted = effective["workers"], effective["workers_asked"]
    if alive != wanted:
        yield f"expected {wanted} workers, {alive} were alive"


@rule(10)
def check_nodes(effective: dict, settings: dict) -> Iterator[str]:
    """Check that a multi-node cell ran on the requested number of nodes."""
    nodes = int(settings["cell"].get("nodes", 1))
    if nodes > 1 and (used := len(set(effective["ran_on"]))) != nodes:
        yield f"expected {nodes} nodes, the cell ran on {used}"


@rule(11)
def check_requests(record: dict, settings: dict) -> Iterator[str]:
    """Check that an embedded server counted at least one GET request."""
    if settings["store"].get("server") == "embedded" and not record["requests"].get("GET", {}).get("count"):
        yield "the embedded server counted no GET: requests did not arrive, or counting failed"


@rule(20)
def check_bytes(record: dict, fetched: int | None) -> Iterator[str]:
    """Check that the readers did not receive more bytes than the server offered.

    `fetched` is the minimum number of bytes that the readers must have received; None if unknown.
    """
    offered = record.get("requests", {}).get("GET", {}).get("bytes_offered")
    if offered is not None and fetched is not None and offered < fetched:
        yield f"too fast to be true: the reader got at least {fetched:,} bytes, the store offered {offered:,}"


@rule(20)
def check_rate(network: dict | None, sent: int, seconds: float) -> Iterator[str]:
    """Check that the emulated network's total rate suffices to transfer `sent` bytes in `seconds`."""
    shared = networks.compute_rate_limit(network) * networks.MIB
    if sent > shared * (seconds + networks.SLACK_S) * networks.TOLERANCE:
        most = f"the limit of the emulated network is {shared / networks.MIB:g} MiB/s"
        yield f"too fast to be true: {sent / networks.MIB:.1f} MiB arrived within {seconds:.3f} s, but {most}"
