"""The Dask task of the shots study: open files, read signals with their dimension scales, and time the reads."""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sbench import drivers
from sbench.probe.slowed import Waits
from sbench.studies.shots import selection
from sbench.studies.shots.checksums import compute_checksum, has_known_size

_lines: list[str] = []


@dataclass(frozen=True)
class Batch:
    """The files that a task opens and reads one after another.

    Attributes:
        number: index of the batch within its object, counted from 1.
        object_id: the shot, signal or other object that the batch belongs to.
        files: for each file its path or URL, and the datasets to read from it, in order, each with its selected part.
            Dimension scales follow their signal.
        units: number of shots or files in the batch, reported as `wrkr-num-objs`.
        access: settings for opening files.
        verify: whether to stop the clock after each dataset and compute its checksum.
        control: level of the factor `control`. A planted slowdown waits after each open and each read.
    """

    number: int
    object_id: str
    files: tuple[tuple[str, tuple[tuple[str, selection.Place | str], ...]], ...]
    units: int
    access: drivers.Access
    verify: bool
    control: str = ""


def do_nothing(batch: Batch) -> int:
    """Do nothing, to measure the overhead of tasks (METHOD 13)."""
    return batch.number


def read_batch(batch: Batch) -> dict:
    """Read a batch, and return its times and counts.

    Times are in seconds. `seconds` covers opening, reading, closing and the waits of a planted slowdown (`waited`), but
    not checksums. `cpu` is the CPU time of this process during `seconds`. Checksums are stored in this process until
    `fetch_lines` is called, so that they are not transferred while requests are counted and timed.
    """
    clock = time.perf_counter
    opens, reads, facts = [], [], []
    verify, verify_cpu, logical = 0.0, 0.0, 0
    driver, waits = drivers.get_driver(batch.access.driver), Waits(batch.control)
    start, cpu = clock(), time.process_time()
    for address, parts in batch.files:
        before = clock()
        with contextlib.closing(driver.open(address, batch.access)) as file:
            opened = clock()
            opens.append(opened - before)
            waits.wait_after(opens[-1])
            facts.append(file.read_settings())
            for path, place in parts:
                began = clock()
                values = (
                    list(file.walk())
                    if place == selection.WALK
                    else file.read(path, selection.convert_to_slices(place))
                )
                reads.append(clock() - began)
                waits.wait_after(reads[-1])
                stopped, cpu_before = clock(), time.process_time()
                if batch.verify or not has_known_size(values):
                    with drivers.convert_failures(batch.access.driver, path, drivers.Unable):
                        size, crc = compute_checksum(values)
                    logical += size
                    if batch.verify:
                        _lines.append(format_line(batch.object_id, path, size, crc, place))
                    verify += clock() - stopped
                    verify_cpu += time.process_time() - cpu_before
                else:
                    logical += values.nbytes
                del values
    seconds, cpu = clock() - start - verify, time.process_time() - cpu - verify_cpu
    return {
        "number": batch.number,
        "object_id": batch.object_id,
        "seconds": seconds,
        "cpu": cpu,
        "units": batch.units,
        "datasets": len(reads),
        "opens": opens,
        "first": reads[0],
        "rest": sum(reads[1:]),
        "verify": verify,
        "waited": waits.seconds,
        "bytes": logical,
        "effective": facts,
        "pid": os.getpid(),
    }


def fetch_lines() -> list[str]:
    """Return and clear the checksum lines of the datasets that this process has read."""
    taken = list(_lines)
    _lines.clear()
    return taken


def format_line(object_id: str, path: str, nbytes: int, crc32: int, place: Sequence = ()) -> str:
    """Format a line for a record's checksum (METHOD 9) that identifies a dataset, or a part of it, and its values."""
    of = f"{path}\t{json.dumps(place)}" if place else path
    return f"{object_id}\t{of}\t{nbytes}\t{crc32:08x}"
