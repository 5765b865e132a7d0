"""Convert the CSV files of the published benchmarks to records of this study."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from sbench.design import csv_file
from sbench.design.csv_file import AMOUNT, COUNT, TEXT

# The levels that each CSV file was measured with. Its page buffer is the requested size; caches were not controlled.
FILES = {
    "ec2-s3.csv": {"library": "hdf5-1.14.6", "store": "s3", "driver": "ros3"},
    "ec2-s3-libaws.csv": {"library": "hdf5-2.0.0", "store": "s3", "driver": "ros3"},
    "ec2-local.csv": {"library": "unknown", "store": "local", "driver": "sec2"},
}
COLUMNS = {
    **{
        "worker#": COUNT,
        "obj-id": TEXT,
        "open+read-data-time": AMOUNT,
        "wrkr-num-objs": COUNT,
        "mean-obj-time": AMOUNT,
    },
    **{"num-dsets": COUNT, "mean-dset-time": AMOUNT, "pb-size": COUNT, "num-workers": COUNT, "obj-type": TEXT},
    **{"tot-num-obj": COUNT, "total-runtime": AMOUNT},
}
_RUN = ["obj-type", "pb-size", "num-workers"]
# Settings that the study's report needs.
SETTINGS = {"page_size": 8_000_000}


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield the records of each combination of settings in the CSV files. Each distinct total runtime is a record."""
    for name, levels in FILES.items():
        if name in files:
            rows = csv_file.read_table(files[name], COLUMNS)
            # Correct the column as in the published study: reading a shot reads a single file.
            rows["tot-num-obj"] = rows["tot-num-obj"].mask(rows["obj-type"] == "shots", 1)
            for (access, size, workers), same in rows.groupby(_RUN, sort=False):
                own = {"access": access, "workers": str(workers), "page_buffer": _format_buffer(size)}
                for repeat, (runtime, samples) in enumerate(same.groupby("total-runtime", sort=False), 1):
                    yield _build_record(levels | own, repeat, runtime, samples)


def _build_record(levels: dict, repeat: int, runtime: float, samples: pd.DataFrame) -> dict:
    cell = levels | {"layout": "single-shot", "cache": "any"}
    measured = {"seconds": {"total": float(runtime)}, "work": {"tasks_done": len(samples)}}
    return {"cell": cell, "repeat": repeat, **measured, "samples": samples.to_dict("records")}


def _format_buffer(size: int) -> str:
    return f"{size // 2**20}MiB" if size else "0"
