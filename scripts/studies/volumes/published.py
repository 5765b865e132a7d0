"""The published batteries, of which there are the latencies of each job, as records of this study."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.frame import csv_file
from scripts.frame.csv_file import AMOUNT, TEXT
from scripts.studies.volumes import fio

FILE = "all_metrics_long.csv"
COLUMNS = {name: AMOUNT if name.startswith("sync_") else TEXT for name in fio.COLUMNS[:9]}
# Layouts are named after the type of their volumes, gp2x1: one volume of type gp2; all have this size.
SIZE_GIB = 128
# What the page is told of the data beside them.
SETTINGS = {"limits": ["etcd", "openshift"]}


def records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record for each battery: neither N, nor times, nor histograms of it are published."""
    rows = csv_file.read(files[FILE], COLUMNS)
    for (layout, host), jobs in rows.groupby(["layout", "node_name"], sort=False):
        cell = {"store": layout, "job": "etcd-published", "background": "unknown", "host": host}
        volume = {"type": layout.partition("x")[0], "size_gib": SIZE_GIB}
        yield {
            **{"cell": cell, "repeat": 1, "samples": jobs.to_dict("records"), "seconds": {}, "battery": {}},
            **{"volume": volume, "histograms": {}, "job_options": {}, "study": "volumes"},
        }
