"""Check records of any study: a check finds why a record is failed or invalid, with its rule in docs/method.md."""

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
    """A function that yields the faults of a record, and the number of its rule, which ends each line."""

    def __init__(self, find: Find, rule: int) -> None:
        """Store the function and its rule."""
        functools.update_wrapper(self, find)
        self._find, self.rule = find, rule

    def __call__(self, *arguments: Any) -> list[str]:
        """Return the faults, each as a line."""
        return [f"{line} (rule {self.rule})" for line in self._find(*arguments)]


def rule(number: int) -> Callable[[Find], Check]:
    """Return a decorator that turns a function yielding faults into the check of a rule."""
    return functools.partial(Check, rule=number)


@rule(3)
def check_driver(effective: dict, library: str, driver: str) -> Iterator[str]:
    """Check that files were opened with the HDF5 `library` and the `driver` of the label."""
    if effective.get("hdf5") != library:
        yield f"the library under test is HDF5 {effective.get('hdf5')}, not {library}"
    if effective["driver"] != driver:
        yield f"the reader opened files with driver {effective['driver']}, not {driver}"
    if drivers.get_driver(driver).optional and not effective.get(driver):
        yield f"the library lacks {driver.upper()}"


@rule(3)
def check_injected(record: dict) -> Iterator[str]:
    """Check that a fault to be injected hit some request; otherwise the record proves nothing about recovery."""
    injected = record.get("injected")
    if injected and not injected["count"]:
        gets, first = injected["gets"], injected["first"]
        yield f"no fault was injected: the first was due at GET {first}, the cell sent {gets}; inject faults more often"


@rule(6)
def check_wait(control: str, work: dict) -> Iterator[str]:
    """Check that a deliberately slowed control has waited."""
    if control in SHARES and not work.get("waited_s"):
        yield f"control {control} did not wait after its reads"


@rule(8)
def check_page_cache(state: dict) -> Iterator[str]:
    """Check the state of the page cache as the window opens, and of a warm cell also as it closes."""
    if line := page_cache.describe_mismatch(state):
        yield line
    else:
        yield from _list_lost_pages(state)


@rule(8)
def check_pages_kept(state: dict) -> Iterator[str]:
    """Check that the page cache still holds the files of a warm cell at its end."""
    yield from _list_lost_pages(state)


def _list_lost_pages(state: dict) -> Iterator[str]:
    after = state["resident_after"]
    if state["asked"] == "warm" and after is not None and after < page_cache.WARM_AT_LEAST:
        resident = page_cache.format_percent(after)
        yield f"the page cache lost pages while the cell ran ({resident} resident at its end), expected warm"


@rule(9)
def check_work(work: dict) -> Iterator[str]:
    """Check that the work done equals the work requested."""
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
    """Check that each cache and the page buffer, as `drivers.File.read_settings` read them back, are as requested."""
    kind, _, size = read_cache.partition("-")
    level = drivers.format_read_cache(kind, sizes.parse_size(size)) if size else kind
    if level not in (DEFAULT, made := effective.get("read_cache", "none")):
        yield f"the driver set the read cache to {made}, not {read_cache}"
    requested, held = drivers.parse_page_buffer(page_buffer), effective.get("page_buffer_bytes", 0)
    if requested not in (UNSET, held):
        # Rounding down to whole pages keeps the label true. The library does all of this silently.
        if held == 0:
            yield f"the library ignored the page buffer of {requested} bytes (is the file paged?)"
        elif held > requested:
            yield f"the library raised the page buffer of {requested} bytes to {held} (one page)"
        elif held != requested - requested % effective["page_size"]:
            yield f"the library set a page buffer of {held} bytes, not {requested}"
    nbytes, slots = effective.get("rdcc_nbytes"), effective.get("rdcc_nslots")
    if nbytes not in (None, effective["rdcc_nbytes_asked"]):
        yield f"the library set a chunk cache of {nbytes} bytes, not {effective['rdcc_nbytes_asked']}"
    # 0 leaves the number to the library; earlier records lack it.
    if (requested := effective.get("rdcc_nslots_asked", 0)) not in (0, slots):
        yield f"the library set a chunk cache of {slots} slots, not {requested}"


@rule(10)
def check_workers(effective: dict) -> Iterator[str]:
    """Check that as many Dask workers were alive as requested."""
    alive, wanted = effective["workers"], effective["workers_asked"]
    if alive != wanted:
        yield f"expected {wanted} workers, {alive} were alive"


@rule(10)
def check_nodes(effective: dict, settings: dict) -> Iterator[str]:
    """Check that a cell of several nodes ran on that number of nodes."""
    nodes = int(settings["cell"].get("nodes", 1))
    if nodes > 1 and (used := len(set(effective["ran_on"]))) != nodes:
        yield f"expected {nodes} nodes, the cell ran on {used}"


@rule(11)
def check_requests(record: dict, settings: dict) -> Iterator[str]:
    """Check that the record counts requests to an embedded server."""
    if settings["store"].get("server") == "embedded" and not record["requests"].get("GET", {}).get("count"):
        yield "the embedded server counted no GET: requests did not arrive, or counting failed"


@rule(20)
def check_bytes(record: dict, fetched: int | None) -> Iterator[str]:
    """Check that readers got no more bytes than the server offered; `fetched`: their least number, None if unknown."""
    offered = record.get("requests", {}).get("GET", {}).get("bytes_offered")
    if offered is not None and fetched is not None and offered < fetched:
        yield f"too fast to be true: the reader got at least {fetched:,} bytes, the store offered {offered:,}"


@rule(20)
def check_rate(network: dict | None, sent: int, seconds: float) -> Iterator[str]:
    """Check that the emulated network could carry the bytes within a window, at the rate that all connections share."""
    shared = networks.compute_rate_limit(network) * networks.MIB
    if sent > shared * (seconds + networks.SLACK_S) * networks.TOLERANCE:
        most = f"the limit of the emulated network is {shared / networks.MIB:g} MiB/s"
        yield f"too fast to be true: {sent / networks.MIB:.1f} MiB arrived within {seconds:.3f} s, but {most}"
