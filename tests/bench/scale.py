"""Time and memory of large runs: many cells planned, many records reported and compared, large tables audited."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import config as configuration
from sbench.probe import host
from sbench.probe.program import build_command, write_json
from sbench.runs import archive
from tests.bench import common
from tests.bench.common import LIBRARIES, S3, TREE, Row, Say, at_most, copy_tree, run_command
from tests.helpers import fio_results
from tests.helpers.records import COMPARE, LEVELS, synthetic_cells, write_synthetic_run

REPEATS, SAMPLES, TASKS = 6, 46, 50  # of a synthetic cell, of its records, of a run in a table
Steps = Mapping[str, list[str]]


def plan_cells(folder: Path, say: Say, cells: int = 10_000, rounds: int = 3) -> Iterator[Row]:
    """Let Snakemake plan 10,000 cells, a multiple of 50, and a single one."""
    tree = copy_tree(folder)
    for count, goal_s in ((cells, 15), (1, None)):
        workers = min(count, 50)
        matrix = {
            **{"library": ["hdf5-2.0.0"], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]},
            **{"access": ["shots"], "cache": ["cold"], "workers": list(range(1, workers + 1))},
            "page_buffer": [f"{size}MiB" for size in range(1, count // workers + 1)],
        }
        config = common.write_configuration(folder / f"{count}.json", LIBRARIES, {"s3": S3}, matrix=matrix)
        command = {"plan": common.snakemake(config, "--dry-run", "--quiet")}
        yield from _measure(f"cells planned: {count:,}", command, tree, rounds, (goal_s, 400))


def report_records(folder: Path, say: Say, records: int = 2_000, rounds: int = 3) -> Iterator[Row]:
    """Make tables and page of 2,000 synthetic records of 46 samples."""
    study = folder / "results/shots"
    config, count = _write_records(study, records, "bench")
    gather = ("--study", "shots", "--config", json.dumps(config), "--results", folder / "results")
    page = ("--notebook", "notebooks/shots.ipynb", "--tables", study, "--facts", study / "facts.json")
    steps, html = {"gather": build_command("gather", *gather)}, folder / "reports/shots.html"
    steps["report"] = build_command("report", *page, "--out", html)
    yield from _measure(f"{count:,} records of {SAMPLES} samples to tables and page", steps, Path(), rounds)
    yield at_most(f"page of {count:,} records", html.stat().st_size / 1e6, 3, "MB")


def compare_archives(folder: Path, say: Say, records: int = 2_000, rounds: int = 3) -> Iterator[Row]:
    """Compare two archives of 2,000 synthetic records of 46 samples."""
    tree, archives = copy_tree(folder, (*TREE, archive.CITATION)), []
    for run in ("monday", "tuesday"):
        say(f"writing and packing {run}")
        config, count = _write_records(tree / "results" / run / "shots", records, run)
        gather = ("--study", "shots", "--config", json.dumps(config), "--results", f"results/{run}")
        run_command(build_command("gather", *gather), tree)
        archives.append(archive.write_archive(tree / "results" / run))
    command = {"compare": build_command("sbench.cli", "compare", *archives)}
    yield from _measure(f"two archives of {count:,} records compared", command, tree, rounds)


def _write_records(study: Path, records: int, run: str) -> tuple[dict, int]:
    """Write a run of at most so many synthetic records; return the configuration it could come from, and the number."""
    workers = range(1, records // (16 * REPEATS) + 1)
    cells = synthetic_cells(0, workers=tuple(map(str, workers)))
    facts = {"run": run, "session": "2000-01-01T00:00:00Z", "host": host.read_facts()}
    facts |= {"provenance": {"code_sha256": "c0de", "data_sha256": "da7a", "git": None, "dirty": None}}
    write_synthetic_run(study, cells, REPEATS, SAMPLES, change=lambda record: record | facts)
    planned = {cell["cell"]: {"dataset": "bench", "settings": {}} for cell in cells}
    write_json(study / "plan.json", {"status": "done", "cells": planned})
    write_json(study.parent / "data/bench/manifest.json", {"status": "done", "files": []})
    shots = {"matrix": LEVELS | {"workers": list(workers)}, "compare": COMPARE}
    values = {"run": run, "repeats": REPEATS, "libraries": LIBRARIES, "stores": {"s3": S3}, "studies": {"shots": shots}}
    return configuration.resolve_config(json.loads(json.dumps(values)), []), len(cells) * REPEATS


def audit_tables(folder: Path, say: Say, rows: tuple = (100_000, 2_200_000), rounds: int = 3) -> Iterator[Row]:
    """Audit CSV files of 100,000 rows and of 200 MB with the columns of a published table."""
    for count in rows:
        path, random, tasks = folder / f"{count}.csv", np.random.default_rng(1), np.arange(count)
        runs, seconds = tasks // TASKS, random.uniform(0.5, 1.5, count)
        columns = {
            **{"worker#": tasks % TASKS, "obj-id": tasks % TASKS, "open+read-data-time": seconds, "wrkr-num-objs": 1},
            **{"mean-obj-time": seconds, "num-dsets": 61, "mean-dset-time": seconds / 61, "pb-size": 0},
            **{"num-workers": 2 ** (runs % 5), "obj-type": "shots", "tot-num-obj": 1, "total-runtime": 100 + runs},
        }
        pd.DataFrame(columns).to_csv(path, index=False)
        command = {"audit": build_command("sbench.cli", "published", "--audit", path)}
        what = f"CSV of {count:,} rows ({path.stat().st_size / 1e6:.0f} MB) audited"
        yield from _measure(what, command, Path(), rounds, (15 if count == 100_000 else None, 1_000))


def import_files(folder: Path, say: Say, files: int = 20_000, rounds: int = 1) -> Iterator[Row]:
    """Import 20,000 JSON files of fio."""
    fio_results.write_many(folder / "fio", files)
    imports = ("--imports", json.dumps([str(folder / "fio")]), "--run", "bench", "--out", folder / "imported.json")
    command = {"import": build_command("sbench.studies.volumes.import_fio", *imports)}
    yield from _measure(f"{files:,} JSON files of fio imported", command, Path(), rounds, (None, 1_000))


def _measure(what: str, steps: Steps, cwd: Path, rounds: int, goals: tuple = (30, 1_000)) -> Iterator[Row]:
    """Run commands one after the other in each round; yield the rows of their time (s) and largest memory (MB)."""
    usages = [{step: run_command(command, cwd) for step, command in steps.items()} for _ in range(rounds)]
    seconds = pd.DataFrame([{step: usage.seconds for step, usage in each.items()} for each in usages]).median()
    peak = max(usage.peak_bytes for each in usages for usage in each.values()) / 1e6
    parts = ", ".join(f"{step} {value:.1f} s" for step, value in seconds.items())
    yield at_most(f"{what}, time", seconds.sum(), goals[0], "s", parts)
    yield at_most(f"{what}, memory", peak, goals[1], "MB")
