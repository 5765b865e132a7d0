"""Forecast the requests needed to read files: record HDF5's reads, and replay them through a model of each driver.

The drivers themselves are not used. Forecasts assume a single worker with sequential requests, and do not include
computing time in HDF5 and the driver. This program runs in an environment with h5py and fsspec.
"""

import argparse
import functools
import io
import json
import sys
from collections.abc import Callable, Sequence

import h5py

from sbench import drivers
from sbench.drivers import native
from sbench.drivers.requests import Reads, Watched, apply_sieve, compute_requests
from sbench.probe.program import Problem, run_main
from sbench.studies.shots import selection as places
from sbench.studies.shots.files import get_creation_facts, list_extents
from sbench.studies.shots.manifest import select_datasets

# Default page buffer of ROS3 for files with pages since HDF5 2.0.
_BY_DEFAULT = "64MiB"
# Drivers that use HDF5's sieve buffer.
_SIEVES = ("ros3", "sec2")


def main(argv: list[str] | None = None) -> int:
    """Read a JSON list of forecasts to make from standard input, and write a JSON list of results to standard output.

    An input is {"path", "datasets", "selections", "rdcc_nbytes", "arms": [{factor: level}]}. Its result is {"arms":
    [{selection: {"requests", "bytes"}}]}, or {"problem": reason} if the file cannot be read. The exit status is 0.
    """
    prog = "module.py sbench.files.forecast_requests"
    argparse.ArgumentParser(prog=prog, description=__doc__).parse_args(argv)
    json.dump([_build_answer(**question) for question in json.load(sys.stdin)], sys.stdout)
    return 0


def _build_answer(
    path: str, datasets: Sequence[str], selections: Sequence[str], rdcc_nbytes: int, arms: list[dict]
) -> dict:
    try:
        with h5py.File(path) as file:
            paged = get_creation_facts(file)["paged"]
        watch = functools.cache(functools.partial(record_reads, path, tuple(datasets)))
        return {
            "arms": [
                {
                    level: _compute_arm_requests(arm, paged, functools.partial(watch, level, rdcc_nbytes))
                    for level in selections
                }
                for arm in arms
            ]
        }
    except (Problem, OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError) as error:
        return {"problem": " ".join(str(error).split()) or type(error).__name__}


def _compute_arm_requests(arm: dict, paged: bool, watch: Callable[[str, str], tuple[Reads, Reads, int]]) -> dict:
    buffer = arm["page_buffer"]
    if arm["driver"] == "ros3" and buffer == "unset" and paged:
        buffer = _BY_DEFAULT
    watched, sieved, size = watch(buffer, arm["chunk_cache"])
    return compute_requests(arm["driver"], arm["read_cache"], sieved if arm["driver"] in _SIEVES else watched, size)


def record_reads(
    path: str, datasets: Sequence[str], selection: str, rdcc_nbytes: int, page_buffer: str, chunk_cache: str = "default"
) -> tuple[Reads, Reads, int]:
    """Read parts of a file with HDF5, and record which byte ranges HDF5 reads.

    Args:
        path: path of the file.
        datasets: patterns of datasets, as in data.datasets.
        selection: level of the factor `selection`.
        rdcc_nbytes: size of each dataset's chunk cache in bytes, unless `chunk_cache` sets it.
        page_buffer: level of the factor `page_buffer`.
        chunk_cache: level of the factor `chunk_cache`.

    Returns:
        The reads as (offset, length) in bytes, without and with a sieve buffer, and the size of the file in bytes.
    """
    nbytes, slots = drivers.parse_chunk_cache(chunk_cache, rdcc_nbytes)
    access = drivers.Access("sec2", drivers.parse_page_buffer(page_buffer), nbytes, rdcc_nslots=slots)
    with open(path, "rb") as raw:
        watched = Watched(raw)
        plist = native.build_access_list(access)
        plist.set_fileobj_driver(h5py.h5fd.fileobj_driver, watched)
        with h5py.File(h5py.h5f.open(repr(watched).encode(), h5py.h5f.ACC_RDONLY, plist)) as file:
            if selection == places.METADATA:
                list(native.walk_file(file))
            parts = _list_places(path, datasets, selection)
            _read_parts(file, parts)
            # With a page buffer, HDF5 reads whole pages, so the sieve buffer does not enlarge reads.
            read = [file[name] for name in {name for name, _ in parts}] if page_buffer in ("unset", "0") else []
            spans = sorted(span for one in read if not one.chunks for span in list_extents(one))
        return watched.reads, apply_sieve(watched.reads, spans), raw.seek(0, io.SEEK_END)


def _read_parts(file: h5py.File, parts: Sequence[tuple[str, places.Place]]) -> None:
    """Read parts of datasets; like a run, skip parts that h5py cannot convert. Raise if all parts fail."""
    errors = []
    for name, place in parts:
        try:
            file[name][places.convert_to_slices(place)]
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            errors.append(error)
    if errors and len(errors) == len(parts):
        raise errors[0]


def _list_places(path: str, datasets: Sequence[str], selection: str) -> list[tuple[str, places.Place]]:
    if selection == places.METADATA:
        return []
    with h5py.File(path) as file:
        return [
            (one.name, place)
            for one in select_datasets(file, datasets, path, selection)
            for place in places.iter_places(selection, one.shape or (), one.chunks)
        ]


if __name__ == "__main__":
    run_main(main)
