"""The published batteries, of which there are the latencies of each job, as records of this study."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sbench.design import csv_file
from sbench.design.csv_file import AMOUNT, TEXT
from sbench.studies.volumes import fio, fio_options, promises
from sbench.studies.volumes.config_files import read_job

FILE = "all_metrics_long.csv"
COLUMNS = {name: AMOUNT if name.startswith("sync_") else TEXT for name in fio.COLUMNS[:9]}
# The job and the pause that the study prints; each of its files is one job of these options.
JOB, PAUSE_S = "etcd-published", 10
# Layouts are named after the type of their volumes, gp2x1: one volume of type gp2; all have this size.
LAYOUTS = ("gp2x1", "gp2x2", "gp3x1", "gp3x2")
SIZE_GIB = 128
# Settings of the study that its page needs.
SETTINGS = {"limits": ["etcd", "openshift"]}


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record for each battery: neither times nor histograms of it are published."""
    options = fio_options.parse_job_file(read_job(JOB))
    rows = csv_file.read_table(files[FILE], COLUMNS)
    for (layout, host), jobs in rows.groupby(["layout", "node_name"], sort=False):
        cell = {"store": layout, "job": JOB, "background": "unknown", "host": host}
        volume = {"type": layout.partition("x")[0], "size_gib": SIZE_GIB}
        yield {
            **{"cell": cell, "repeat": 1, "samples": jobs.to_dict("records"), "seconds": {}},
            **{"battery": {"pause_s": PAUSE_S}},
            **{"volume": volume, "histograms": {}, "job_options": options, "study": "volumes"},
        }


def compute_ceilings() -> dict[str, dict]:
    """Return what the volumes of each layout carry, as config/facts/machines.yaml says it of machines."""
    volumes = {
        layout: promises.compute_promises({"type": layout.partition("x")[0], "size_gib": SIZE_GIB})
        for layout in LAYOUTS
    }
    return {layout: {"IOPS": {"value": volume.burst_iops, "unit": "IOPS"}} for layout, volume in volumes.items()}
