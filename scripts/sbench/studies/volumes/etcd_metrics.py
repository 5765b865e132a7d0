"""Parse etcd's histograms of disk latency in the text format of its /metrics endpoint or of Prometheus."""

import re
from collections.abc import Iterator

from sbench.probe.program import Problem
from sbench.studies.volumes.fio_output import Histogram, Job, build_latency_columns

# etcd waits for an append to its write-ahead log (one fdatasync) and for a backend commit (several fdatasyncs).
METRICS = {
    "wal_fsync": "etcd_disk_wal_fsync_duration_seconds",
    "backend_commit": "etcd_disk_backend_commit_duration_seconds",
}
_LINE = re.compile(
    r"etcd_disk_(?P<metric>wal_fsync|backend_commit)_duration_seconds_(?P<part>bucket|sum|count)"
    r"(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>[0-9.eE+-]+)"
)
_LABEL = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_NS = 1e9
# Upper bound in ns of the last bucket, which has no upper bound (le="+Inf").
_ENDLESS = 10**18


def parse_jobs(text: str) -> list[Job]:
    """Parse etcd's histograms, and convert each to a job. Return an empty list if the text contains none.

    The operations in a bucket become a range between the bucket's bounds. The job's run time is the sum of latencies.

    Raises:
        Problem: a histogram is damaged. The message begins with a verb, so that callers can prefix the file name.
    """
    try:
        return _parse_metrics(text)
    except (ValueError, OverflowError) as error:
        raise Problem("is damaged: a histogram of etcd has an invalid number") from error


def _parse_metrics(text: str) -> list[Job]:
    histograms: dict[tuple[str, str], dict] = {}
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"] or ""))
        value, host = float(line["value"]), labels.get("instance") or labels.get("pod") or ""
        parts = histograms.setdefault((line["metric"], host), {"bounds": {}})
        if line["part"] != "bucket":
            parts[line["part"]] = value
        elif "le" in labels:
            # The counters are cumulative: a later scrape replaces an earlier scrape.
            parts["bounds"][float(labels["le"])] = value
    return [_build_job(metric, host, parts) for (metric, host), parts in histograms.items() if parts["bounds"]]


def _build_job(metric: str, host: str, parts: dict) -> Job:
    name, ranges = METRICS[metric], list(_list_ranges(parts["bounds"], METRICS[metric]))
    n = sum(count for *_, count in ranges)
    total = parts.get("sum")
    if parts.get("count", n) != n:
        raise Problem(f"has {parts['count']:.0f} operations of {name}, but {n} in its buckets")
    latency = {"n": n, "max": None, "stddev": None, "percentiles": {}, "bins": {}, "ranges": ranges}
    latency["mean"] = total * _NS / n if n and total else None
    columns = build_latency_columns("sync", latency) | {"runtime_s": total, "error": 0}
    columns |= {f"{kind}_{what}": None for kind in ("read", "write") for what in ("ios", "bytes")}
    options = {"name": metric, "metric": name, "fdatasync": "1"}
    job = Job(metric, "etcd", options, columns, {"sync": Histogram.from_rows(ranges, 3)}, None, False, None, 0, {})
    job.host = host
    return job


def _list_ranges(bounds: dict[float, float], name: str) -> Iterator[tuple[int, int, int]]:
    """Convert cumulative buckets {upper bound in s: count} to non-empty ranges (lowest ns, highest ns, count)."""
    floor, below = 0, 0
    for bound, counted in sorted(bounds.items()):
        if counted < below:
            raise Problem(f"has cumulative buckets of {name} that decrease")
        high = _ENDLESS if bound == float("inf") else round(bound * _NS)
        if counted > below:
            yield floor, high, int(counted - below)
        floor, below = high, counted
