"""Convert the published batteries, which consist of latencies per job, to records of the volumes study."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sbench.design import csv_file
from sbench.design.csv_file import AMOUNT, TEXT
from sbench.studies.volumes import fio, fio_options, promises
from sbench.studies.volumes.config_files import read_job

FILE = "all_metrics_long.csv"
COLUMNS = {name: AMOUNT if name.startswith("sync_") else TEXT for name in fio.COLUMNS[:9]}
# The job file and the pause in seconds that the published study states for all its jobs.
JOB, PAUSE_S = "etcd-published", 10
# The names of layouts begin with the volume type (gp2x1: one gp2 volume). All volumes have the size SIZE_GIB.
LAYOUTS = ("gp2x1", "gp2x2", "gp3x1", "gp3x2")
SIZE_GIB = 128
# Settings that the report page of the study needs.
SETTINGS = {"limits": ["etcd", "openshift"]}


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record for each battery. Times and histograms are missing, because they were not published."""
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
    """Compute each layout's maximum IOPS, and return them in the format of config/facts/machines.yaml."""
    volumes = {
        layout: promises.compute_promises({"type": layout.partition("x")[0], "size_gib": SIZE_GIB})
        for layout in LAYOUTS
    }
    return {layout: {"IOPS": {"value": volume.burst_iops, "unit": "IOPS"}} for layout, volume in volumes.items()}
