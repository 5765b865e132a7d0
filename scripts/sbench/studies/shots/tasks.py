"""The Dask task of the shots study: opens files, reads signals with their scales, and accounts for what it did."""

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
    """What one task reads: its files one after the other, opening each.

    Attributes:
        number: index of the batch within its object, from 1.
        object_id: the shot or the signal.
        files: (address, (path of the dataset, place in it)) in the order of reading; scales follow their signal.
        units: shots or files that the batch stands for, which `wrkr-num-objs` reports.
        access: how files are opened.
        verify: stop the clock after each dataset and checksum it.
        control: the cell's level of it: a slowed control waits after each open and each dataset.
    """

    number: int
    object_id: str
    files: tuple[tuple[str, tuple[tuple[str, selection.Place | str], ...]], ...]
    units: int
    access: drivers.Access
    verify: bool
    control: str = ""


def do_nothing(batch: Batch) -> int:
    """Do nothing with a batch: what is left is the harness's own cost (METHOD 13)."""
    return batch.number


def read_batch(batch: Batch) -> dict:
    """Read a batch and return its row of the samples.

    Times in seconds. `seconds` is all of the task but the checksums: opening, reading, closing, and what a slowed
    control `waited`; `cpu` is what this process took of its cores meanwhile. The checksum of a dataset is kept in this
    process until `fetch_lines` fetches it, so that it does not travel in the timed window.
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
    """Return and forget the checksum lines of the datasets that this process has read."""
    taken = list(_lines)
    _lines.clear()
    return taken


def format_line(object_id: str, path: str, nbytes: int, crc32: int, place: Sequence = ()) -> str:
    """Return the line that stands for one dataset, or a place in it, in a record's checksum (METHOD 9)."""
    of = f"{path}\t{json.dumps(place)}" if place else path
    return f"{object_id}\t{of}\t{nbytes}\t{crc32:08x}"
