"""The arrays study: which cells are possible, cost estimates, and checks of measured records."""

from collections.abc import Iterator

from sbench.design.checks import check_page_cache, check_requests, check_settings, check_work
from sbench.design.study import Cell, Study, check_distributions, check_readable
from sbench.probe import sizes
from sbench.probe.fields import read_fields
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.arrays import pieces
from sbench.studies.arrays.checks import check_clients
from sbench.studies.arrays.pieces import MOST, TRIALS
from sbench.studies.arrays.settings import Data, Levels, Settings

# Python distributions that each backend needs and a library's lock file may lack.
NEEDS = {"library": (), "hsds": ("hsds", "h5pyd", "obstore"), "zarr": ("zarr", "obstore")}
# Factors that only apply to HSDS, with the level that cells with other backends must have.
_OF_SERVICE = {"protocol": "client", "nodes": "1", "request_limit": "100MiB", "streaming": "on"}
# Levels that trials require, because they send fixed requests.
_OF_TRIALS = {"protocol": "client", "access": "whole", "clients": "1", "concurrency": "unset"}
_HOLDS = 128 * 2**20  # HSDS's default chunk_mem_cache_size in bytes
_TRIALS_S = {"limits": 5, "faults": 45}
_START_S, _SERVICE_S, _FLUSH_S = 0.2, 1.0, 2.0
# Rough rates for estimates, in bytes per second; _GZIP is the rate of compression.
_RATES = {"library": 400 * 2**20, "zarr": 400 * 2**20, "hsds": 80 * 2**20}
_GZIP = 60 * 2**20


class Arrays(Study):
    """The study of writing and reading a 2-D array through HSDS, as Zarr and with the HDF5 library."""

    of_record = ("repeat", "effective", "work")

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield the reasons why a combination of levels is impossible."""
        cell = read_fields(Levels, levels)
        entry, backend, clients = config["stores"][cell.store], cell.backend, int(cell.clients)
        reads, writes, trials = cell.operation == "read", cell.operation == "write", cell.operation in TRIALS
        store, shape = stores.get_store(entry), pieces.parse_shape(cell.shape, cell.chunks)
        running = not store.takes_files
        limit, service = sizes.parse_size(cell.request_limit), backend == "hsds"
        others = [name for name, level in _OF_SERVICE.items() if levels[name] != level]
        bands = pieces.split_rows(shape, clients)
        largest = next(pieces.iter_pieces(shape, bands[0], cell.access, limit)).bytes
        reasons = {
            "the store of an array must be a folder, S3, Azure Blob or HSDS": bool(
                {"device", "shell", "share"} & entry.keys()
            ),
            f"{', '.join(others)}: only for backend hsds; use the default": others and not service,
            "backend library has a single request in flight; set concurrency to unset": (
                backend == "library" and cell.concurrency != "unset"
            ),
            "the HDF5 library does not write to an object store; use backend hsds or zarr": (
                backend == "library" and writes and not store.files
            ),
            "a chunk is larger than the array; use smaller chunks": (
                shape.chunk_rows > shape.rows or shape.chunk_columns > shape.columns
            ),
            f"a chunk must fit into the chunk cache of a data node, {sizes.format_size(_HOLDS)}; use smaller chunks": (
                service and shape.padded_bytes // shape.chunks > _HOLDS
            ),
            "the array has fewer rows of chunks than clients; use fewer clients": len(bands) < clients,
            "only a read has a cache state; set cache to any": not reads and cell.cache != "any",
            "operations limits and faults require backend hsds, started by the workflow": (
                trials and (not service or running)
            ),
            "a store of kind hsds requires backend hsds": running and not service,
            "a store of kind hsds has fixed nodes, limits and concurrency; use the defaults": running
            and (
                cell.concurrency != "unset"
                or any(levels[name] != level for name, level in _OF_SERVICE.items() if name != "protocol")
            ),
            "limits and faults send fixed requests; set protocol client, access whole, clients 1, concurrency unset": (
                trials and any(levels[name] != level for name, level in _OF_TRIALS.items())
            ),
            "operation faults slows the store down, which requires a folder": (
                cell.operation == "faults" and not store.files
            ),
            f"limits and faults request up to {MOST} times request_limit, more than the array; use a larger array or a "
            "lower limit": (trials and MOST * limit > shape.bytes),
            f"without streaming, HSDS refuses requests of {sizes.format_size(largest)}; use access pieces": (
                service and not trials and cell.streaming == "off" and largest >= limit
            ),
            f"a JSON request has up to {pieces.TEXT} times the bytes of its values, which exceeds request_limit; use "
            "access pieces and a higher limit, or protocol binary": (
                service and cell.protocol == "json" and pieces.TEXT * largest >= limit
            ),
        }
        yield from (reason for reason, holds in reasons.items() if holds)
        if backend == "library":
            yield from check_readable(levels | {"driver": "sec2" if writes or store.files else "ros3"}, config)
        yield from check_distributions(levels, config, NEEDS[backend], f"backend {backend}")

    def select_steady(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells that control measurements may repeat. Only timed cells qualify."""
        return [cell for cell in cells if self.is_timed(cell.levels)]

    def is_timed(self, levels: dict[str, str]) -> bool:
        """Return whether the operation is timed. The operations "limits" and "faults" are not."""
        return levels["operation"] not in TRIALS

    def estimate_record(self, settings: dict) -> dict:
        """Estimate the "requests", "bytes" and "seconds" of a record before any measurement.

        "puts" is the number of the requests that write; it is missing for operations that are not timed.
        """
        given = read_fields(Settings, settings)
        cell, network = given.cell, given.store.get("network") or {}
        shape, backend = pieces.parse_shape(cell.shape, cell.chunks), cell.backend
        rate = min(_RATES[backend], networks.compute_rate_limit(network, 8) * 2**20)
        gzip = shape.bytes / _GZIP if cell.compression == "gzip" else 0
        # Except when the HDF5 library reads the generated file, the array is transferred twice: it is written before a
        # read, or read back after a write.
        once = shape.bytes / rate + shape.chunks * network.get("latency_ms", 0) / 1000 / 8
        ahead = backend != "library" or cell.operation == "write"
        if cell.operation in TRIALS:
            return {"requests": shape.chunks, "bytes": MOST * shape.bytes, "seconds": _TRIALS_S[cell.operation]}
        service = (2 * _SERVICE_S + _FLUSH_S) if backend == "hsds" else 0
        seconds = _START_S + service + once * (1 + ahead) + gzip * ahead
        counts = {"requests": shape.chunks * (1 + ahead), "puts": shape.chunks * ahead}
        return counts | {"bytes": shape.bytes * (1 + ahead), "seconds": seconds}

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the uncompressed size of an array's file in bytes."""
        given = read_fields(Data, data)
        return pieces.parse_shape(given.shape, given.chunks).padded_bytes

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the bytes that a measurement writes to disk."""
        return self.estimate_data_bytes(settings["data"])

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return the mismatches between a record and its label (METHOD 3, 10, 11). Any mismatch fails the record."""
        given, effective = read_fields(Settings, settings), {**manifest["layout"], **record["effective"]}
        cell = given.cell
        label = {"chunks": cell.chunks, "compression": cell.compression, "hdf5": given.library["hdf5"]}
        if cell.backend == "hsds" and not stores.get_store(given.store).elsewhere:
            label |= {"nodes": int(cell.nodes), "request_limit": sizes.parse_size(cell.request_limit)}
        if cell.concurrency != "unset" and "concurrency" in effective:
            label |= {"concurrency": int(cell.concurrency)}
        counted = check_requests(record, settings) if cell.operation == "read" else []
        return [*check_settings(effective, label), *counted]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons why a measured record is invalid (METHOD 8, 9)."""
        cell = read_fields(Settings, settings).cell
        reasons = [*check_work(record["work"]), *check_clients(record["effective"])]
        return reasons + (check_page_cache(record["cache"]) if cell.operation == "read" else [])


STUDY = Arrays("arrays")
