"""What large runs take: Snakemake's plan of many cells, tables and report of many records, or of many files of fio."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import config as configuration
from sbench.design.plan import matrix_csv, plan
from sbench.design.records import write as write_record
from sbench.probe import host
from sbench.probe.program import read_json, write_json, write_text
from sbench.runs import archive
from sbench.verdicts import stats
from tests import fio_results
from tests.bench.common import LIBRARIES, S3, TREE, Row, Say, at_most, copy_tree, numbered, program, snakemake, used
from tests.bench.common import configuration as written

SAMPLES = 46
PLAN_CPU_LIMIT_S, PLAN_PEAK_LIMIT_MB = 15, 400
SECONDS_LIMIT, PEAK_LIMIT_MB, HTML_LIMIT_MB = 30, 1_000, 3
PUBLISHED_LIMIT_S, AUDIT_LIMIT_S = 90, 15
_TASKS = 50
PRINTED = "results/published"
_WORKERS = 50


def planning(folder: Path, say: Say, cells: int = 10_000, rounds: int = 3) -> Iterator[Row]:
    """Let Snakemake plan 10,000 cells, in turn with a single one."""
    tree, configs = copy_tree(folder), [many_cells(folder, count) for count in (cells, 1)]
    taken = [
        [used(snakemake(config, "--dry-run", "--quiet"), tree) for config in configs] for _ in numbered(rounds, say)
    ]
    many, one = (pd.DataFrame(usages).median() for usages in zip(*taken, strict=True))
    what, ratio = f"plan of {cells:,} cells", many / one
    against = f"plan of one cell: {one.cpu_seconds:.2f} s"
    cpu = f"{ratio.cpu_seconds:.1f}"
    yield at_most(f"{what}, processor time", many.cpu_seconds, PLAN_CPU_LIMIT_S, "s", against, cpu)
    against = f"plan of one cell: {one.peak_bytes / 1e6:.0f} MB"
    peak = f"{ratio.peak_bytes:.1f}"
    yield at_most(f"{what}, memory", many.peak_bytes / 1e6, PLAN_PEAK_LIMIT_MB, "MB", against, peak)


def reporting(folder: Path, say: Say, records: int = 2_000, rounds: int = 3) -> Iterator[Row]:
    """Make tables and report of 2,000 records of 46 samples, which nothing measured."""
    study = folder / "results" / "shots"
    say(f"writing {records} records")
    used(program("tests.records", "--out", study, "--records", records, "--samples", SAMPLES))
    written = [_complete(path) for path in sorted(study.glob("records/*/repeat=*.json"))]
    cells = {path.name: {"dataset": "bench", "settings": {}} for path in sorted((study / "records").iterdir())}
    write_json(study / "plan.json", {"status": "done", "cells": cells})
    write_json(folder / "results/data/bench/manifest.json", {"status": "done", "files": []})
    what = f"{len(written):,} records of {SAMPLES} samples to tables and report"
    yield from _steps(what, _to_report(folder, "shots", _of_records(written)), rounds, say)
    size = (folder / "reports/shots.html").stat().st_size / 1e6
    yield at_most(f"{what}, HTML", size, HTML_LIMIT_MB, "MB")


def importing(
    folder: Path, say: Say, sizes: tuple[int, ...] = (200, 2_000), many: int = 20_000, rounds: int = 3
) -> Iterator[Row]:
    """Import 200 and 2,000 JSON files of fio, and make tables and report of them; import 20,000."""
    for files in sizes:
        place = folder / str(files)
        study = place / "results" / "volumes"
        say(f"writing {files} files of fio")
        fio_results.write_many(place / "fio", files)
        imports, imported = [{"from": str(place / "fio")}], study / "imported.json"
        config = configuration.resolve({"run": "bench", "studies": {"volumes": {"imports": imports}}}, [])
        write_json(study / "plan.json", plan(config, "volumes", []))
        write_text(study / "matrix.csv", matrix_csv("volumes", [], []))
        arguments = ("--imports", json.dumps(imports), "--run", "bench", "--out", imported)
        steps = {"import": program("sbench.studies.volumes.import_fio", *arguments)}
        steps |= _to_report(place, "volumes", config, "--imported", imported)
        yield from _steps(f"{files:,} JSON files of fio to tables and report", steps, rounds, say)
    say(f"writing {many} files of fio")
    fio_results.write_many(folder / "many", many)
    arguments = ("--imports", json.dumps([str(folder / "many")]), "--run", "bench", "--out", folder / "many.json")
    taken = used(program("sbench.studies.volumes.import_fio", *arguments))
    against = f"{taken.seconds:.0f} s"
    yield at_most(f"{many:,} JSON files of fio imported, memory", taken.peak_bytes / 1e6, PEAK_LIMIT_MB, "MB", against)


def comparing(folder: Path, say: Say, records: int = 2_000, rounds: int = 3) -> Iterator[Row]:
    """Compare two archives of 2,000 records of 46 samples, which nothing measured."""
    tree, archives = copy_tree(folder, (*TREE, archive.CITATION)), []
    for run in ("monday", "tuesday"):
        study = tree / "results" / run / "shots"
        say(f"writing and packing {records} records of {run}")
        used(program("tests.records", "--out", study, "--records", records, "--samples", SAMPLES))
        written = [_complete(path, run) for path in sorted(study.glob("records/*/repeat=*.json"))]
        write_json(study / "plan.json", {"status": "done", "cells": {}})
        gathered = ("--study", "shots", "--config", json.dumps(_of_records(written)), "--results", f"results/{run}")
        used(program("sbench.measure.gather", *gathered), tree)
        archives.append(archive.write(tree / "results" / run))
    compare = program("sbench.cli", "compare", archives[0], archives[1])
    taken = pd.DataFrame([used(compare, tree) for _ in numbered(rounds, say)]).median()
    what, size = f"two archives of {len(written):,} records compared", archives[0].stat().st_size / 1e6
    yield at_most(f"{what}, time", taken.seconds, SECONDS_LIMIT, "s", f"{size:.1f} MB each")
    yield at_most(f"{what}, memory", taken.peak_bytes / 1e6, PEAK_LIMIT_MB, "MB")


def publishing(folder: Path, say: Say, target: str = "published", rounds: int = 3) -> Iterator[Row]:
    """Make the pages of the published studies and their audits, from what is committed."""
    tree = copy_tree(folder, (*TREE, "docs", PRINTED))
    made = [tree / "reports", *(tree / PRINTED).glob("*/tables")]
    taken = []
    for _ in numbered(rounds, say):
        for place in made:
            shutil.rmtree(place, ignore_errors=True)
        partial = ("--config", "published_partial=True")
        command = snakemake(tree / "config/config.yaml", *partial, "--", target)
        taken.append(used(command, tree).seconds)
    yield at_most("published studies, regenerated and audited", stats.median(taken).value, PUBLISHED_LIMIT_S, "s")


def auditing(folder: Path, say: Say, rows: int = 100_000, many: int = 2_200_000, rounds: int = 3) -> Iterator[Row]:
    """Audit CSVs of 100,000 rows and of 200 MB with the columns of a published table, which nothing measured."""
    audit = program("sbench.cli", "published", "--audit", _write_tasks(folder / "tasks.csv", rows))
    taken = pd.DataFrame([used(audit) for _ in numbered(rounds, say)]).median()
    yield at_most(f"CSV of {rows:,} rows audited, time", taken.seconds, AUDIT_LIMIT_S, "s")
    path = _write_tasks(folder / "many.csv", many)
    taken, size = used(program("sbench.cli", "published", "--audit", path)), path.stat().st_size / 1e6
    yield at_most(f"CSV of {size:.0f} MB audited, memory", taken.peak_bytes / 1e6, PEAK_LIMIT_MB, "MB")


def _write_tasks(path: Path, rows: int) -> Path:
    random, tasks = np.random.default_rng(1), np.arange(rows)
    runs = tasks // _TASKS
    seconds = random.uniform(0.5, 1.5, rows)
    columns = {
        **{"worker#": tasks % _TASKS, "obj-id": tasks % _TASKS, "open+read-data-time": seconds, "wrkr-num-objs": 1},
        **{"mean-obj-time": seconds, "num-dsets": 61, "mean-dset-time": seconds / 61, "pb-size": 0},
        **{"num-workers": 2 ** (runs % 5), "obj-type": "shots", "tot-num-obj": 1, "total-runtime": 100 + runs / 1000},
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def _steps(what: str, steps: dict[str, list[str]], rounds: int, say: Say) -> Iterator[Row]:
    """Run steps one after the other, so many times; the rows of their time, and of the memory of the largest."""
    rows = [
        {"step": step, "round": number, **asdict(used(command))}
        for number in numbered(rounds, say)
        for step, command in steps.items()
    ]
    taken = pd.DataFrame(rows)
    whole = taken.groupby("round")[["seconds", "cpu_seconds"]].sum().median()
    by_step = taken.groupby("step", sort=False)
    seconds, peaks = by_step["seconds"].median(), by_step["peak_bytes"].max() / 1e6
    parts = ", ".join(f"{step} {part:.1f} s" for step, part in seconds.items())
    against = f"{parts}; processor time {whole.cpu_seconds:.1f} s"
    yield at_most(f"{what}, time", whole.seconds, SECONDS_LIMIT, "s", against)
    against = ", ".join(f"{step} {peak:.0f} MB" for step, peak in peaks.items())
    yield at_most(f"{what}, memory", peaks.max(), PEAK_LIMIT_MB, "MB", against)


def _to_report(folder: Path, study: str, config: dict, *imported: object) -> dict[str, list[str]]:
    """Return the steps from records, or what was imported, to the page of a study."""
    tables = folder / "results" / study
    gathered = ("--study", study, "--config", json.dumps(config), "--results", folder / "results", *imported)
    report = ("--notebook", f"notebooks/{study}.ipynb", "--tables", tables)
    page = ("--facts", tables / "facts.json", "--out", folder / f"reports/{study}.html")
    return {"gather": program("sbench.measure.gather", *gathered), "report": program("sbench.pages", *report, *page)}


def many_cells(folder: Path, cells: int) -> Path:
    """Write a configuration of so many cells (a multiple of 50 unless there are fewer) that differ in two factors."""
    workers, library = min(cells, _WORKERS), "hdf5-2.0.0"
    matrix = {
        **{"library": [library], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]},
        **{"access": ["shots"], "workers": list(range(1, workers + 1)), "cache": ["cold"]},
        "page_buffer": [f"{size}MiB" for size in range(1, cells // workers + 1)],
    }
    return written(folder / f"{cells}.json", {library: LIBRARIES[library]}, {"s3": S3}, matrix=matrix)


def _complete(path: Path, run: str = "bench") -> dict:
    """Give a synthetic record what only the facts of a report ask for, and return it."""
    record = read_json(path)
    record |= {"run": run, "session": "2000-01-01T00:00:00Z", "host": host.facts()}
    record["provenance"] |= {"git": None, "dirty": None}
    write_record(path, record)
    return record


def _of_records(records: list[dict]) -> dict:
    """Return the configuration that such records could come from."""
    factors = configuration.factors("shots")
    recorded = [factor for factor in factors if factor in records[0]["cell"]]
    levels = {factor: sorted({record["cell"][factor] for record in records}) for factor in recorded}
    levels["workers"] = sorted(map(int, levels["workers"]))
    compare = [{"factor": "library", "baseline": "hdf5-1.14.6"}, {"factor": "page_buffer", "baseline": "0"}]
    values = {
        "run": records[0]["run"],
        "repeats": max(record["repeat"] for record in records),
        "libraries": {name: LIBRARIES[name] for name in levels["library"]},
        "stores": dict.fromkeys(levels["store"], S3),
        "studies": {"shots": {"matrix": levels, "compare": compare}},
    }
    return configuration.resolve(values, [])
