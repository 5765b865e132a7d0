"""The Dask task of the shots study: opens files, reads signals with their scales, and accounts for what it did."""

import contextlib
import os
import time
from dataclasses import dataclass

import numpy as np

from scripts.studies.shots import drivers
from scripts.studies.shots.files import fingerprint

_lines: list[str] = []


@dataclass(frozen=True)
class Batch:
    """What one task reads: its files one after the other, opening each.

    Attributes:
        number: index of the batch within its object, from 1.
        object_id: the shot or the signal.
        files: (address, paths of the datasets) in the order of reading; scales follow their signal.
        units: shots or files that the batch stands for, which `wrkr-num-objs` reports.
        access: how files are opened.
        verify: stop the clock after each dataset and checksum it.
    """

    number: int
    object_id: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    units: int
    access: drivers.Access
    verify: bool


def nothing(batch: Batch) -> int:
    """Do nothing with a batch: what is left is the harness's own cost (METHOD 13)."""
    return batch.number


def read(batch: Batch) -> dict:
    """Read a batch and return its row of the samples.

    Times in seconds. `seconds` is all of the task but the checksums: opening, reading, closing. The checksum of a data
    set is kept in this process until `lines` fetches it, so that it does not travel in the timed window.
    """
    clock = time.perf_counter
    opens, reads, facts = [], [], []
    verify, logical = 0.0, 0
    driver = drivers.of(batch.access.driver)
    start = clock()
    for address, paths in batch.files:
        before = clock()
        with contextlib.closing(driver.open(address, batch.access)) as file:
            opened = clock()
            opens.append(opened - before)
            facts.append(file.effective())
            for path in paths:
                began = clock()
                values = file.read(path)
                ended = clock()
                reads.append(ended - began)
                logical += values.nbytes
                if batch.verify:
                    _keep(batch.object_id, path, values)
                    verify += clock() - ended
                del values
    seconds = clock() - start - verify
    return {
        "number": batch.number,
        "object_id": batch.object_id,
        "seconds": seconds,
        "units": batch.units,
        "datasets": len(reads),
        "opens": opens,
        "first": reads[0],
        "rest": sum(reads[1:]),
        "verify": verify,
        "bytes": logical,
        "effective": facts,
        "pid": os.getpid(),
    }


def lines() -> list[str]:
    """Return and forget the checksum lines of the datasets that this process has read."""
    taken = list(_lines)
    _lines.clear()
    return taken


def line(object_id: str, path: str, nbytes: int, crc32: int) -> str:
    """Return the line that stands for one dataset in a record's checksum (METHOD 9)."""
    return f"{object_id}\t{path}\t{nbytes}\t{crc32:08x}"


def _keep(object_id: str, path: str, values: np.ndarray) -> None:
    _lines.append(line(object_id, path, *fingerprint(values)))
