"""The containers study: which cells are possible, cost estimates, and checks of measured records."""

from collections.abc import Iterator

from sbench import drivers
from sbench.design.checks import check_page_cache, check_requests, check_settings, check_work
from sbench.design.study import Study, check_distributions, list_mappings
from sbench.probe import sizes
from sbench.probe.fields import read_fields
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.studies.containers import opening, selections
from sbench.studies.containers.base import DEFAULT, get_client, get_container, list_needs, plan_grid
from sbench.studies.containers.settings import SAME, UNSET, Data, Levels, Settings

# Rough times and rates for estimates: start of the program and its imports; conversion and reading in bytes per second.
_START_S, _CONVERT, _READ = 2.0, 60 * 2**20, 300 * 2**20
# Requests to open a file and to read its metadata.
_PER_FILE = 4


class Containers(Study):
    """The study of reading the same array from different containers."""

    of_record = ("repeat", "effective", "work", "conversion", "requests")

    def list_obstacles(self, levels: dict[str, str], config: dict) -> Iterator[str]:
        """Yield the reasons why a combination of levels is impossible."""
        cell = read_fields(Levels, levels)
        entry, container = config["stores"][cell.store], get_container(cell.container)
        store, client, base = stores.get_store(entry), get_client(cell), cell.opening.partition("+")[0]
        grid, files = plan_grid(cell), int(cell.files)
        reads_files = not container.is_zarr and cell.container != "parquet"
        caches = reads_files and not store.files and client in ("s3fs", "ros3")
        reasons = {
            "the store of a container must be a folder or S3": (
                bool({"device", "shell", "share"} & entry.keys()) or not (store.files or store.speaks_s3)
            ),
            f"client {cell.client} does not read {cell.container} (supported: {', '.join(container.clients)})": (
                client not in container.clients
            ),
            "files of a folder are read without a client; set client to default": (
                store.files and cell.client != DEFAULT
            ),
            f"{cell.container} keeps the chunks of the source; set container_chunks and codec to same": (
                not container.converts and (cell.container_chunks, cell.codec) != (SAME, SAME)
            ),
            "only zarr-shards has shards; set shard_chunks to the default": (
                cell.container != "zarr-shards" and cell.shard_chunks != "8x1x1"
            ),
            "only s3fs and ROS3 have a read cache, for hdf5 and hdf5-repacked; set read_cache to default": (
                cell.read_cache != DEFAULT and not caches
            ),
            f"opening {base} does not apply to {cell.container}": base not in container.openings,
            f"xarray does not read files with client {client}; set client to s3fs": (
                reads_files and base != opening.LIBRARY and not store.files and client != "s3fs"
            ),
            "concurrency and threads are options of zarr; set them to unset": (
                not container.is_zarr and (cell.concurrency, cell.threads) != (UNSET, UNSET)
            ),
            "coalescing is an option of zarr for shards; set it to unset": (
                cell.container != "zarr-shards" and cell.coalescing != UNSET
            ),
            "a table has no tree of metadata; set access to another level": (
                cell.container == "parquet" and cell.access == selections.WALK
            ),
            "Dask has workers, and only xarray uses it; set opening to xarray or open_mfdataset": (
                base == opening.LIBRARY and cell.workers != UNSET
            ),
            f"{files} files do not divide {grid.shape[0]} times evenly": grid.shape[0] % files,
            f"{cell.container} needs files of whole chunks; choose files of a multiple of {grid.chunks[0]} times": (
                container.is_made and not container.converts and files > 1 and grid.shape[0] // files % grid.chunks[0]
            ),
            f"{cell.access} needs more than {grid.shape[0]} times": (
                selections.count_drawn(cell.access) > grid.shape[0]
            ),
        }
        yield from (reason for reason, holds in reasons.items() if holds)
        if caches:
            yield from drivers.check_levels({"driver": client, "page_buffer": UNSET, "read_cache": cell.read_cache})
        yield from check_distributions(levels, config, list_needs(cell, store.files), f"container {cell.container}")

    def list_mistakes(self, config: dict) -> Iterator[str]:
        """Yield options of an opening that exclude each other."""
        for level in (level for row in list_mappings(self.get_section(config)) for level in row.get("opening", [])):
            names = level.split("+")[1:]
            if len(names) != len(set(names)) or {"exact", "joined"} <= set(names):
                yield f"studies.{self.name}: opening {level}: options are repeated or exclude each other; remove one"

    def estimate_record(self, settings: dict) -> dict:
        """Estimate the "requests", "bytes" and "seconds" of a record, and "puts", the requests that write."""
        given = read_fields(Settings, settings)
        cell, network = given.cell, given.store.get("network") or {}
        grid, container = plan_grid(cell), get_container(cell.container)
        parts = selections.list_parts(cell.access, grid.shape, given.seed)
        touched = sum(len(grid.list_touched(index)) for index in parts)
        size, files = touched * grid.chunk_bytes, int(cell.files) * _PER_FILE
        made, written = (grid.bytes, grid.count_chunks()) if container.converts else (0, int(container.is_made))
        rate = networks.compute_rate_limit(network, 8) * 2**20
        wait = network.get("latency_ms", 0) / 1000
        reading = touched + (files if cell.opening != opening.LIBRARY or not container.is_zarr else 1)
        scanned = (files if container.is_made else 0) + written
        seconds = _START_S + (reading + scanned) * wait + size / min(_READ, rate) + made / min(_CONVERT, rate)
        counts = {"requests": reading + scanned, "puts": written, "bytes": size + 2 * made}
        return counts | {"seconds": seconds, "before_s": seconds - reading * wait - size / min(_READ, rate)}

    def estimate_data_bytes(self, data: dict) -> int:
        """Return the uncompressed size of the source files in bytes."""
        shape = selections.parse_sides(read_fields(Data, data).shape)
        return selections.Grid(shape, shape).bytes

    def count_data_objects(self, data: dict) -> int:
        """Return the number of source files."""
        return int(read_fields(Data, data).files)

    def estimate_disk_bytes(self, settings: dict) -> int:
        """Return the bytes that a measurement writes to disk."""
        return 2 * plan_grid(read_fields(Settings, settings).cell).bytes

    def check_label(self, record: dict, settings: dict, manifest: dict) -> list[str]:
        """Return the mismatches between a record and its label (METHOD 3, 10, 11). Any mismatch fails the record."""
        given = read_fields(Settings, settings)
        # A driver that reads back no read cache has none.
        cell, effective = given.cell, {"read_cache": "none", **manifest["layout"], **record["effective"]}
        grid = plan_grid(cell)
        rows = (grid.chunks[0], *grid.shape[1:])
        label = {
            "files": cell.files,
            "compression": cell.compression,
            "chunks": selections.format_sides(rows if cell.container == "parquet" else grid.chunks),
            "codec": cell.compression if cell.codec == SAME else cell.codec,
            "hdf5": given.library["hdf5"],
        }
        label |= {"shards": selections.format_sides(grid.shards)} if grid.shards else {}
        if not stores.get_store(given.store).files:
            label["client"] = get_client(cell)
        if cell.read_cache != DEFAULT:
            kind, _, size = cell.read_cache.partition("-")
            label["read_cache"] = drivers.format_read_cache(kind, sizes.parse_size(size)) if size else kind
        if cell.coalescing != UNSET:
            gap, largest = map(sizes.parse_size, cell.coalescing.split("-"))
            label |= {"coalescing_gap_bytes": gap, "coalescing_max_bytes": largest}
        limits = ("concurrency", "threads")
        label |= {name: int(getattr(cell, name)) for name in limits if getattr(cell, name) != UNSET}
        return [*check_settings(effective, label), *check_requests(record, settings)]

    def check_record(self, record: dict, settings: dict) -> list[str]:
        """Return the reasons why a measured record is invalid (METHOD 8, 9)."""
        return [*check_work(record["work"]), *check_page_cache(record["cache"])]


STUDY = Containers("containers")
