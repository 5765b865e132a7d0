"""Plan the operation of a cell: the array, its location and the work of each client."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sbench import drivers
from sbench.probe import sizes
from sbench.stores import store as stores
from sbench.studies.arrays import backends, pieces, values
from sbench.studies.arrays.backends import Target
from sbench.studies.arrays.clients import Work
from sbench.studies.arrays.make import NAME
from sbench.studies.arrays.settings import Settings

# Name of the bucket in the directory where an HSDS service stores its objects.
BUCKET = "arrays"


def build_record_name(job: dict) -> str:
    """Derive a unique name for the objects written for a record from the job's scratch directory."""
    return hashlib.sha256(job["scratch"].encode()).hexdigest()[:10]


def get_record_folder(job: dict, settings: Settings) -> Path:
    """Return the directory for a record's files: on the file system under test, or in scratch for an object store."""
    own_disk = "path" in settings.store
    return Path(job["location"]["folder"], f".{build_record_name(job)}") if own_disk else Path(job["scratch"])


@contextlib.contextmanager
def make_record_folder(job: dict, settings: Settings) -> Iterator[Path]:
    """Create an empty directory for a record's files, and remove it after the `with` block."""
    path = get_record_folder(job, settings)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def build_target(job: dict, settings: Settings) -> Target:
    """Return the array to write or read. If the benchmark starts the service, its endpoint is added later."""
    cell = settings.cell
    return Target(
        cell.backend,
        pieces.parse_shape(cell.shape, cell.chunks),
        str(values.get_dtype(cell.values)),
        cell.compression,
        _build_place(job, settings),
        cell.protocol,
        None if cell.concurrency == "unset" else int(cell.concurrency),
        settings.store,
    )


def _build_place(job: dict, settings: Settings) -> dict:
    location, name, own = job["location"], build_record_name(job), get_record_folder(job, settings)
    cell, store = settings.cell, settings.store
    of_kind = stores.get_store(store)
    here = of_kind.files
    match cell.backend:
        case "library":
            address = str(own / NAME) if cell.operation == "write" else drivers.build_address(location, NAME)
            driver = "sec2" if here else "ros3"
            return {"address": address, "driver": driver, "rdcc_nbytes": settings.rdcc_nbytes}
        case "zarr":
            return {"folder": str(own / "array.zarr")} if here else {"prefix": f"{location['key']}/{name}"}
        case _ if not of_kind.takes_files:
            elsewhere = {"domain": f"{store['folder']}/{name}.h5", "endpoint": store["endpoint"]}
            return elsewhere | ({"bucket": store["bucket"]} if "bucket" in store else {})
        case _:
            holder = {"bucket": BUCKET if here else store[of_kind.holder]}
            return {"domain": f"/{name}.h5"} | holder | ({"folder": str(own / "hsds")} if here else {})


def plan_works(settings: Settings, target: Target, writes: bool) -> list[Work]:
    """Divide an operation among the clients. If there are fewer rows of chunks than clients, use fewer clients."""
    cell, shared = settings.cell, backends.get_backend(target.backend).shared
    bands = pieces.split_rows(target.shape, int(cell.clients))
    apart = not shared and cell.operation == "write" and len(bands) > 1
    own = _split_target(target, bands) if apart else ((target, band, 0) for band in bands)
    limit, new = sizes.parse_size(cell.request_limit), writes and (apart or len(bands) == 1)
    return [
        Work(
            *(
                part,
                list(pieces.iter_pieces(part.shape, band, cell.access, limit)),
                first,
                cell.values,
                settings.data.seed,
            ),
            *(writes, new, cell.control),
        )
        for part, band, first in own
    ]


def plan_write_ahead(settings: Settings, target: Target) -> Work:
    """Plan the untimed write of an array that is to be read, in requests below the size limit."""
    limit = sizes.parse_size(settings.cell.request_limit)
    parts = list(pieces.iter_pieces(target.shape, (0, target.shape.rows), "pieces", limit))
    plain = replace(target, protocol="client")
    return Work(plain, parts, 0, settings.cell.values, settings.data.seed, writes=True, new=True)


def _split_target(target: Target, bands: list[tuple[int, int]]) -> Iterator[tuple[Target, tuple[int, int], int]]:
    """Split an array into a separate array for each client. Yield its target, row range and first row in the whole."""
    for number, (first, end) in enumerate(bands):
        shape = replace(target.shape, rows=end - first)
        address = str(Path(target.place["address"]).with_suffix(f".{number}.h5"))
        yield replace(target, shape=shape, place={**target.place, "address": address}), (0, end - first), first
