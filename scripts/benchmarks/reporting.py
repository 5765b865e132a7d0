"""What it takes to make tables and the report of a large run, from records that nothing measured."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.common import Row, Say, Usage, program, used
from scripts.frame import config as configuration
from scripts.frame.records import write as write_record
from scripts.lib import host
from scripts.lib.program import read_json, write_json

RECORDS, SAMPLES = 2_000, 46
ROUNDS = 3
SECONDS_LIMIT = 30
PEAK_LIMIT_MB = 1_000
HTML_LIMIT_MB = 3
_STEPS = ("gather", "report")


def rows(folder: Path, say: Say, records: int = RECORDS, rounds: int = ROUNDS) -> Iterator[Row]:
    """Tables and report as the rules make them, one after the other; memory is that of the largest step."""
    study = folder / "results" / "shots"
    say(f"writing {records} records")
    used(program("tests.records", "--out", study, "--records", records, "--samples", SAMPLES))
    written = [_complete(path) for path in sorted(study.glob("records/*/repeat=*.json"))]
    config = _config(written)
    cells = {path.name: {"dataset": "bench", "settings": {}} for path in sorted((study / "records").iterdir())}
    write_json(study / "plan.json", {"status": "done", "cells": cells})
    write_json(folder / "results/data/bench/manifest.json", {"status": "done", "files": []})
    taken: dict[str, list[Usage]] = {step: [] for step in _STEPS}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for step, command in zip(_STEPS, _commands(folder, study, config), strict=True):
            taken[step].append(used(command))
    seconds = statistics.median(sum(taken[step][number].seconds for step in _STEPS) for number in range(rounds))
    cpu = statistics.median(sum(taken[step][number].cpu_seconds for step in _STEPS) for number in range(rounds))
    parts = {step: statistics.median(usage.seconds for usage in taken[step]) for step in _STEPS}
    peaks = {step: max(usage.peak_bytes for usage in taken[step]) for step in _STEPS}
    size = (folder / "reports/shots.html").stat().st_size
    what = f"{len(written):,} records of {SAMPLES} samples to tables and report"
    yield Row(
        f"{what}, time",
        f"{seconds:.1f} s",
        ", ".join(f"{step} {part:.1f} s" for step, part in parts.items()) + f"; processor time {cpu:.1f} s",
        "",
        f"≤ {SECONDS_LIMIT} s",
        seconds <= SECONDS_LIMIT,
    )
    yield Row(
        f"{what}, memory",
        f"{max(peaks.values()) / 1e6:.0f} MB",
        ", ".join(f"{step} {peak / 1e6:.0f} MB" for step, peak in peaks.items()),
        "",
        f"≤ {PEAK_LIMIT_MB} MB",
        max(peaks.values()) <= PEAK_LIMIT_MB * 1e6,
    )
    yield Row(
        f"{what}, HTML",
        f"{size / 1e6:.2f} MB",
        "",
        "",
        f"≤ {HTML_LIMIT_MB} MB",
        size <= HTML_LIMIT_MB * 1e6,
    )


def _complete(path: Path) -> dict:
    """Give a synthetic record what only the facts of a report ask for, and return it."""
    record = read_json(path)
    record |= {"run": "bench", "session": "2000-01-01T00:00:00Z"}
    record["host"] = host.facts()
    record["provenance"] |= {"git": None, "dirty": None}
    write_record(path, record)
    return record


def _config(records: list[dict]) -> dict:
    """Return the configuration that such records could come from."""
    factors = configuration.factors("shots")
    levels = {factor: sorted({record["cell"][factor] for record in records}) for factor in factors}
    levels["workers"] = sorted(map(int, levels["workers"]))
    compare = [{"factor": "library", "baseline": "hdf5-1.14.6"}, {"factor": "page_buffer", "baseline": "0"}]
    return configuration.resolve(
        {
            "run": "bench",
            "repeats": max(record["repeat"] for record in records),
            "libraries": {name: {"kind": "source", "hdf5": name.removeprefix("hdf5-")} for name in levels["library"]},
            "stores": {name: {"kind": "s3", "bucket": "bench", "server": "embedded"} for name in levels["store"]},
            "studies": {"shots": {"matrix": levels, "compare": compare}},
        },
        [],
    )


def _commands(folder: Path, study: Path, config: dict) -> list[list[str]]:
    report = ("--notebook", "notebooks/shots.ipynb", "--tables", study, "--facts", study / "facts.json")
    return [
        program("scripts.gather", "--study", "shots", "--config", json.dumps(config), "--results", folder / "results"),
        program("scripts.report", "--study", "shots", *report, "--out", folder / "reports/shots.html"),
    ]
