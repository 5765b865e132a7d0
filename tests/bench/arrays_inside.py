"""The part of the benchmark of arrays that runs in an interpreter with HSDS and Zarr; it prints rounds and JSON."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import h5py

from sbench.probe import page_cache
from sbench.probe.program import json_object, run
from sbench.studies.arrays import backends, pieces, values
from sbench.studies.arrays.backends import Target
from sbench.studies.arrays.pieces import Piece

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_STARTS, _CACHE = 3, 8 << 20


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=json_object, help='JSON as {"shape", "rounds", "folder", "store", "key"}')
    print(json.dumps(taken_by(parser.parse_args(argv).job)))
    return 0


def taken_by(job: dict) -> dict:
    """Return the seconds of each pair of ways to read, in turn, and of the service's starts.

    `job` has the array's shape, how many rounds, a folder, and the store of objects with a key in it.
    """
    import obstore
    import zarr

    from sbench.studies.arrays import objects, service

    shape = pieces.of_levels(job["shape"], "1500x275")
    array = values.make("formula", shape.columns, slice(0, shape.rows), 1)
    piece = Piece((0, shape.rows), (0, shape.columns))
    folder = Path(job["folder"])
    path = str(folder / "array.h5")
    places = {
        "library": {"address": path, "driver": "sec2", "rdcc_nbytes": _CACHE},
        "zarr": {"prefix": f"{job['key']}/bench.zarr"},
        "hsds": {"folder": str(folder / "hsds"), "bucket": "arrays", "domain": "/bench.h5"},
    }
    of = {name: Target(name, shape, "u8", "none", place, store=job["store"]) for name, place in places.items()}
    taken: dict = {"bytes": shape.bytes, "ready_s": []}

    def write(target: Target) -> None:
        with backends.of(target.backend).writing(target, new=True) as do:
            do(piece, array)
        backends.of(target.backend).store(target)

    def read(target: Target) -> Callable[[], object]:
        def once() -> None:
            with backends.of(target.backend).reading(target) as do:
                do(piece)

        return once

    def bare_library() -> None:
        with h5py.File(path, "r", rdcc_nbytes=_CACHE) as file:
            file["array"][...]

    write(of["library"])
    page_cache.load([path])
    taken["library"] = _in_turn(job["rounds"], read(of["library"]), bare_library)
    write(of["zarr"])
    store = objects.opened(places["zarr"], job["store"])
    chunks = [entry["path"] for entries in obstore.list(store) for entry in entries if "/c/" in f"/{entry['path']}"]
    at_once = zarr.config.get("async.concurrency")
    taken["zarr"] = _in_turn(job["rounds"], read(of["zarr"]), lambda: asyncio.run(_get(store, chunks, at_once)))
    settings, where = service.Settings(1, 100 << 20, streaming=True), service.storage(places["hsds"], {})
    for number in range(_STARTS):
        with service.running(settings, where, folder) as running:
            taken["ready_s"].append(running.ready_s)
            if number < _STARTS - 1:
                continue
            here = {**places["hsds"], "endpoint": running.endpoint}
            target = replace(of["hsds"], place=here, secrets=(service.USER, running.password))
            write(target)
            taken["h5pyd"] = _in_turn(job["rounds"], read(target), read(replace(target, protocol="binary")))
    return taken


def _in_turn(rounds: int, first: Callable[[], object], second: Callable[[], object]) -> tuple[list, list]:
    """Return the seconds of two ways, once each unseen, then in turn, each as often ahead as behind."""
    first(), second()
    taken: tuple[list, list] = ([], [])
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        ways = [(taken[0], first), (taken[1], second)]
        for own, way in ways if number % 2 else reversed(ways):
            began = time.perf_counter()
            way()
            own.append(time.perf_counter() - began)
    return taken


async def _get(store: "ObjectStore", names: list[str], at_once: int) -> None:
    """Get objects whole, so many at once, and drop them."""
    import obstore

    room = asyncio.Semaphore(at_once)

    async def get(name: str) -> None:
        async with room:
            await (await obstore.get_async(store, name)).bytes_async()

    await asyncio.gather(*map(get, names))


if __name__ == "__main__":
    run(main)
