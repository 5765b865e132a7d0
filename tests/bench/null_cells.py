"""The workflow's overhead around a measurement, part by part: cells that read next to nothing."""

import statistics
from collections.abc import Iterator
from pathlib import Path

import h5py

from sbench.probe.program import Problem, build_command, read_json
from tests.bench import common
from tests.bench.common import DISK, LIBRARIES, S3, Row, Say, compare_times, format_seconds, run_command, snakemake

_LIBRARY = "hdf5-2.0.0"
_STORES = {"disk": DISK, "s3": S3, "proxied": {**S3, "network": {}}}


def measure_null_cells(folder: Path, say: Say, repeats: int = 6, starts: int = 7) -> Iterator[Row]:
    """Run cells that read next to nothing under Snakemake, from three stores, and take apart their time."""
    tree, config = common.copy_tree(folder), _write_run(folder, repeats)
    say("making data and putting them into their stores")
    run_command(snakemake(config, "--until", "ready"), tree)
    say(f"measuring {repeats * len(_STORES)} null cells")
    measuring = snakemake(config, "--until", "measure")
    whole = run_command(measuring, tree).seconds
    say("starting Snakemake with nothing to do, and the step alone")
    idle = [run_command(measuring, tree).seconds for _ in range(starts)]
    imports = [run_command(build_command("step", "measure", "--help")).seconds for _ in range(starts)]
    records = _read_records(tree)
    steps = {store: [of["step_seconds"] for of in records if of["cell"]["store"] == store] for store in _STORES}
    all_steps = [record["step_seconds"] for record in records]
    a_cell = (whole - statistics.median(idle)) / len(records)
    rest = a_cell - statistics.mean(all_steps) - statistics.median(imports)
    yield Row("Snakemake: start, and a plan with nothing to do", format_seconds(idle))
    yield Row("null cell under Snakemake, mean of all stores", format_seconds([a_cell]))
    yield Row("  Snakemake and the shell", format_seconds([rest]), "left over by the other parts")
    yield Row("  interpreter and imports of the step", format_seconds(imports))
    yield Row("  the step", format_seconds(all_steps))
    for key, what in (("cluster_start", "Dask cluster start"), ("null", "an empty task"), ("total", "timed window")):
        yield Row(f"    {what}", format_seconds([record["seconds"][key] for record in records]))
    yield compare_times("step of a null cell from S3", steps["s3"], "on disk", steps["disk"])
    yield compare_times("step of a null cell from S3 behind the proxy", steps["proxied"], "from S3", steps["s3"])


def _write_run(folder: Path, repeats: int) -> Path:
    """Write a configuration of a null cell in each store, and the smallest shot; return its file."""
    data = folder / "null.h5"
    with h5py.File(data, "w") as file:
        file["shots/1/signals/null"] = 0.0
    levels = {"library": [_LIBRARY], "layout": ["single-shot"], "access": ["shots"], "workers": [1], "cache": ["cold"]}
    on_disk = levels | {"store": ["disk"], "driver": ["sec2"], "page_buffer": ["unset"]}
    on_s3 = levels | {"store": ["s3", "proxied"], "driver": ["ros3"], "page_buffer": ["0"]}
    section = {"data": {"files": str(data)}, "matrix": [on_disk, on_s3]}
    return common.write_configuration(folder / "null.json", LIBRARIES, _STORES, repeats, **section)


def _read_records(tree: Path) -> list[dict]:
    """Return the records in the order of their repeats."""
    records = [read_json(path) for path in (tree / "results/bench/shots/records").glob("*/repeat=*.json")]
    for record in records:
        if record["status"] != "done" or not record["valid"]:
            raise Problem(f"a null cell failed: {'; '.join(record['reasons'])}")
    return sorted(records, key=lambda record: record["repeat"])
