"""Run one measurement of one cell of the containers study: make a container from the source files, and read it.

scripts/step.py starts this program with the Python interpreter of the library under test; see sbench.probe.conversation
for the protocol between the two.
"""

import argparse
import contextlib
import dataclasses
import errno
import hashlib
import os
import resource
import shutil
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbench.probe import page_cache, provenance, slowed
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, run_main
from sbench.stores import store as stores
from sbench.studies.containers import netcdf, opening, selections, values, zarr
from sbench.studies.containers.base import Target, get_container, load_libraries, plan_grid
from sbench.studies.containers.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Read a step from standard input, measure its cell, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return run_measurement(measure_cell)


def measure_cell(step: Step) -> dict:
    """Measure a cell and return the part of its record that results from the measurement."""
    settings = read_fields(Settings, step.job["settings"])
    container = get_container(settings.cell.container)
    with _make_target(step.job, settings) as target, _explain_open_files(target), contextlib.ExitStack() as stack:
        versions = load_libraries(settings.cell, target.is_local)
        conversion = _convert(step, target) if container.is_made else {}
        if container.is_zarr:
            stack.enter_context(zarr.set_options(target))
        parts = selections.list_parts(settings.cell.access, target.grid.shape, settings.seed)
        _warm_up(target, parts)
        _forget_clients()
        files = _list_files(step.job, target)
        # Before the window opens, so that it counts the CPU seconds and requests of the read alone.
        state = page_cache.set_cache_state(settings.cell.cache, files)
        step.open_window(sets_cache=True)
        reading = _Reading(target, parts)
        reading.run()
        step.close_window()
        state["resident_after"] = page_cache.measure_resident(files)
        forecast = container.forecast_requests(target, parts) if settings.cell.opening == opening.LIBRARY else None
        layout = container.read_layout(target)
        elsewhere = {"state": "elsewhere"} if stores.get_store(settings.store).elsewhere else {}
        return {
            **reading.build_record(forecast),
            "conversion": conversion,
            "seconds": reading.seconds | ({"convert": conversion["convert_s"]} if conversion else {}),
            "effective": versions | layout,
            "verified": "after the read",
            "cache": state | elsewhere,
            # List all modules, so that the source is the same for all containers, whichever a process has imported.
            "modules": provenance.list_package_modules("studies/containers"),
        }


class _Reading:
    """A timed read of all parts."""

    def __init__(self, target: Target, parts: Sequence[selections.Index]) -> None:
        self._target, self._parts, self.seconds = target, parts, {}

    def run(self) -> None:
        """Open the container, read all parts, and time it."""
        waits, results = slowed.Waits(self._target.cell.control), []
        began = time.perf_counter()
        with opening.set_workers(self._target), contextlib.closing(opening.open_container(self._target)) as opened:
            opened_s = time.perf_counter() - began
            waits.wait_after(opened_s)
            self.variables = 0 if self._parts else opened.walk()
            for index in self._parts:
                start = time.perf_counter()
                results.append(opened.read(index))
                waits.wait_after(time.perf_counter() - start)
        total = time.perf_counter() - began
        self.seconds = {"total": total, "open": opened_s}
        self._waited, self._results = waits.seconds, results

    def build_record(self, forecast: int | None) -> dict:
        """Compare all values with the expected ones, and return the samples and the work of the record."""
        target, shape = self._target, self._target.grid.shape
        expected, actual = 0, 0
        for index, result in zip(self._parts, self._results, strict=True):
            wanted = values.make_values(shape, index, target.settings.data.seed)
            expected, actual = zlib.crc32(wanted, expected), zlib.crc32(result.astype("f4", order="C"), actual)
        requested = selections.count_values(self._parts, shape) * selections.ITEM
        sample = {"total_s": self.seconds["total"], "open_s": self.seconds["open"]}
        sample |= {"bytes": requested, "parts": len(self._parts), "worker-pid": os.getpid()}
        return {
            "samples": [sample],
            "work": {
                "tasks_asked": len(self._parts),
                "tasks_done": len(self._results),
                "datasets_asked": 0 if self._parts else 1 + len(netcdf.COORDINATES),
                "datasets": self.variables,
                "logical_bytes_asked": requested,
                "logical_bytes": sum(result.nbytes for result in self._results),
                "forecast_requests": forecast,
                "checksum_asked": f"{expected:08x}",
                "checksum": f"{actual:08x}",
                **slowed.report_waited(target.cell.control, self._waited),
            },
        }


@contextlib.contextmanager
def _make_target(job: dict, settings: Settings) -> Iterator[Target]:
    """Yield the target of a cell, with an empty place for the converted container that is removed at the end."""
    name, location, scratch = hashlib.sha256(job["scratch"].encode()).hexdigest()[:10], job["location"], job["scratch"]
    if stores.get_store(settings.store).files:
        own = Path(location["folder"], f".{name}") if "path" in settings.store else Path(scratch, "container")
        place = {"folder": str(own)}
    else:
        place = {"url": f"{location['url']}/{name}", "prefix": f"{location['key']}/{name}"}
    temporary = Path(scratch, "temporary")
    temporary.mkdir(parents=True, exist_ok=True)
    files = tuple(map(Path, job["local_files"]))
    target = Target(settings, location, place, files, temporary, plan_grid(settings.cell))
    if not get_container(settings.cell.container).is_made:
        yield target
        return
    # Objects may be left over from an earlier attempt that was killed.
    _remove_container(target)
    try:
        yield target
    except BaseException:
        # The first failure is the one to report.
        with contextlib.suppress(Exception):
            _remove_container(target)
        raise
    _remove_container(target)


def _remove_container(target: Target) -> None:
    if target.is_local:
        if os.path.lexists(target.place["folder"]):
            shutil.rmtree(target.place["folder"])
        return
    # Imported here, because a library that only reads HDF5 needs no obstore.
    from sbench.stores import objects

    objects.remove_objects(target.open_objects())


def _convert(step: Step, target: Target) -> dict:
    """Make the container in a window of its own, and return its cost.

    Returns:
        {"convert_s", "cpu_s", "requests": by HTTP method, "objects", "bytes": size of the container}.
    """
    from sbench.stores import objects

    step.open_window(sets_cache=True)
    cpu, began = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        # Consolidated metadata and some codecs are not part of Zarr's specification.
        warnings.simplefilter("ignore")
        get_container(target.cell.container).convert(target)
    target.sync()
    cost = {"convert_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    requests = step.close_window()
    count, size = objects.count_objects(target.open_objects())
    return cost | {"requests": requests, "objects": count, "bytes": size}


@contextlib.contextmanager
def _explain_open_files(target: Target) -> Iterator[None]:
    """Raise a Problem with the remedy if more files are open in the `with` block than the process may open."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        text = os.strerror(errno.EMFILE)
        if getattr(error, "errno", None) != errno.EMFILE and text not in str(error):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise Problem(
            f"{target.cell.files} files are too many for {limit} open files (ulimit -n); raise the limit, or use fewer"
            " files"
        ) from error


def _warm_up(target: Target, parts: Sequence[selections.Index]) -> None:
    """Open the container, or its first file, and read a value or walk it, so that the timed read imports no module.

    Otherwise, containers that are converted in this process would need fewer imports than the source files.
    """
    first = dataclasses.replace(target.settings, cell=dataclasses.replace(target.cell, files="1"))
    _Reading(dataclasses.replace(target, settings=first), [(slice(1),) * 3] if parts else []).run()


def _forget_clients() -> None:
    """Let s3fs create a client anew, as the other clients do, so that no read uses earlier connections."""
    if "s3fs" in sys.modules:
        sys.modules["s3fs"].S3FileSystem.clear_instance_cache()


def _list_files(job: dict, target: Target) -> list[Path]:
    """Return the files of the source and of the container, whose pages must be in the cell's cache state."""
    held = target.place.get("folder") or job["served_folder"]
    made = [path for path in Path(held).rglob("*") if path.is_file()] if held else []
    return list(dict.fromkeys([*map(Path, job["local_files"]), *made]))


if __name__ == "__main__":
    run_main(main)
