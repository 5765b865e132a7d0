"""Latencies from the intended start, of a job with a fixed rate (rate_iops): those of an open loop.

fio 3 does not count them. In its usual mode it waits for what is under way before it sleeps until the next operation is
due, and counts each from when it was begun; so an operation that stalls for a second is one, however many were due
meanwhile (coordinated omission). With io_submit_mode=offload, which was made for this, fio 3.33 hangs. But fio makes
good what it has missed, one operation right after the other, and its log has the latency of each. From these follow the
latencies that count: operations are due every 1 / rate, and each waits for those before it (Lindley, Mathematical
Proceedings of the Cambridge Philosophical Society 48, 1952).
"""

import re
import statistics
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from scripts.studies.volumes import fio_options, fio_output
from scripts.studies.volumes.fio_output import Job

_LINE = re.compile(r"^\d+, (\d+), ([01]),", re.MULTILINE)


def count_from_due(job: Job, log: str) -> bool:
    """Give a job the latencies from the intended start; return whether it has them.

    Args:
        job: as fio's output says; its latencies and histogram are replaced.
        log: fio's log of latencies (write_lat_log), a line for each operation, in ns.
    """
    rate, lines = fio_options.open_loop(job.options), _LINE.findall(log)
    kinds = {kind for _, kind in lines}
    if not rate or len(kinds) != 1:
        return False
    kind = "read" if kinds == {"0"} else "write"
    if len(lines) != job.columns[f"{kind}_N"]:
        return False
    latencies = from_due([int(ns) for ns, _ in lines], rate)
    bins = Counter(map(_middle, latencies))
    latency = {"n": len(latencies), "max": max(latencies), "mean": statistics.fmean(latencies), "percentiles": {}}
    latency |= {"stddev": statistics.stdev(latencies) if len(latencies) > 1 else None}
    job.columns |= fio_output.columns_of(kind, latency | {"bins": dict(sorted(bins.items()))})
    job.histograms = {kind: array("q", chain.from_iterable(sorted(bins.items())))}
    return True


def from_due(latencies_ns: Sequence[int], rate: float) -> list[int]:
    """Return latencies (ns) from when each operation was due, of those since it was begun, in their order.

    An operation is due 1 / rate seconds after the one before, and begins when that is done, if it is then due.
    """
    every, late, counted = 1e9 / rate, 0.0, []
    for ns in latencies_ns:
        counted.append(round(late + ns))
        late = max(0.0, late + ns - every)
    return counted


def _middle(ns: int) -> int:
    """The middle of fio's bucket of a latency: 64 buckets to each power of two."""
    width = 1 << max(ns.bit_length() - 7, 0)
    return ns // width * width + width // 2
