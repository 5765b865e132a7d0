"""The Dask task of the shots study: opens files, reads signals with their scales, and accounts for what it did."""

import contextlib
import json
import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import drivers
from scripts.lib.slowed import Waits
from scripts.studies.shots import selection

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


def nothing(batch: Batch) -> int:
    """Do nothing with a batch: what is left is the harness's own cost (METHOD 13)."""
    return batch.number


def read(batch: Batch) -> dict:
    """Read a batch and return its row of the samples.

    Times in seconds. `seconds` is all of the task but the checksums: opening, reading, closing, and what a slowed
    control `waited`; `cpu` is what this process took of its cores meanwhile. The checksum of a dataset is kept in this
    process until `lines` fetches it, so that it does not travel in the timed window.
    """
    clock = time.perf_counter
    opens, reads, facts = [], [], []
    verify, verify_cpu, logical = 0.0, 0.0, 0
    driver, waits = drivers.of(batch.access.driver), Waits(batch.control)
    start, cpu = clock(), time.process_time()
    for address, parts in batch.files:
        before = clock()
        with contextlib.closing(driver.open(address, batch.access)) as file:
            opened = clock()
            opens.append(opened - before)
            waits.after(opens[-1])
            facts.append(file.effective())
            for path, place in parts:
                began = clock()
                values = list(file.walk()) if place == selection.WALK else file.read(path, selection.slices(place))
                reads.append(clock() - began)
                waits.after(reads[-1])
                stopped, cpu_before = clock(), time.process_time()
                if batch.verify or not hasattr(values, "nbytes") or values.dtype.hasobject:
                    # How large texts are is not known without looking at each.
                    size, crc = fingerprint(values)
                    logical += size
                    if batch.verify:
                        _lines.append(line(batch.object_id, path, size, crc, place))
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


def lines() -> list[str]:
    """Return and forget the checksum lines of the datasets that this process has read."""
    taken = list(_lines)
    _lines.clear()
    return taken


def line(object_id: str, path: str, nbytes: int, crc32: int, place: Sequence = ()) -> str:
    """Return the line that stands for one dataset, or a place in it, in a record's checksum (METHOD 9)."""
    of = f"{path}\t{json.dumps(place)}" if place else path
    return f"{object_id}\t{of}\t{nbytes}\t{crc32:08x}"


def fingerprint(values: object) -> tuple[int, int]:
    """Return (bytes in memory, crc32) of what `dataset[()]` gave, in C order and native byte order.

    Elements of variable length count with a NUL behind each; a dataset without values has no bytes. What `File.walk`
    gave, as a list, has the bytes of its sorted descriptions.
    """
    # Here, as the process that starts the workers imports this module, too, and reads nothing.
    import h5py
    import numpy as np

    if isinstance(values, list):
        data = b"\n".join(sorted(drivers.described(*item) for item in values))
        return len(data), zlib.crc32(data)
    # One text of variable length is a str or bytes of Python's own; of fixed length it is numpy's.
    values = [values] if type(values) in (str, bytes) else values
    kind = object if isinstance(values, list) else None
    values = np.empty(0) if isinstance(values, h5py.Empty) else np.asarray(values, kind)
    if values.dtype.hasobject:
        texts = (value.encode() if isinstance(value, str) else value for value in values.ravel())
        data = b"".join((text if isinstance(text, bytes) else np.asarray(text).tobytes()) + b"\0" for text in texts)
    else:
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")).reshape(-1).view(np.uint8)
    return len(data), zlib.crc32(data)
