"""What it takes to import fio's results from elsewhere and to report them."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.common import Row, Say, Usage, program, used
from scripts.frame import config as configuration
from scripts.lib.program import write_json, write_text
from scripts.plan import matrix_csv, plan

FILES = (200, 2_000)
ROUNDS = 3
SECONDS_LIMIT = 30
PEAK_LIMIT_MB = 1_000
_STEPS = ("import", "gather", "report")


def rows(folder: Path, say: Say, sizes: tuple[int, ...] = FILES, rounds: int = ROUNDS) -> Iterator[Row]:
    """Import, tables and report as the rules make them, one after the other; memory is that of the largest."""
    for files in sizes:
        place = folder / str(files)
        study = place / "results" / "volumes"
        study.mkdir(parents=True)
        say(f"writing {files} files of fio")
        used(program("scripts.benchmarks.fio_results", "--out", place / "fio", "--files", files))
        commands = _commands(place, study)
        taken: dict[str, list[Usage]] = {step: [] for step in _STEPS}
        for number in range(rounds):
            say(f"{files} files: round {number + 1} of {rounds}")
            for step, command in zip(_STEPS, commands, strict=True):
                taken[step].append(used(command))
        seconds = statistics.median(sum(taken[step][number].seconds for step in _STEPS) for number in range(rounds))
        parts = {step: statistics.median(usage.seconds for usage in taken[step]) for step in _STEPS}
        peaks = {step: max(usage.peak_bytes for usage in taken[step]) / 1e6 for step in _STEPS}
        what = f"{files:,} JSON files of fio to tables and report"
        by_step = ", ".join(f"{step} {part:.1f} s" for step, part in parts.items())
        yield Row(f"{what}, time", f"{seconds:.1f} s", by_step, "", f"≤ {SECONDS_LIMIT} s", seconds <= SECONDS_LIMIT)
        by_step = ", ".join(f"{step} {peak:.0f} MB" for step, peak in peaks.items())
        peak = max(peaks.values())
        yield Row(f"{what}, memory", f"{peak:.0f} MB", by_step, "", f"≤ {PEAK_LIMIT_MB} MB", peak <= PEAK_LIMIT_MB)


def _commands(place: Path, study: Path) -> list[list[str]]:
    """Return the commands of the steps, with a plan and a matrix that have no cells: nothing is measured."""
    imports = [{"from": str(place / "fio")}]
    config = configuration.resolve({"run": "bench", "studies": {"volumes": {"imports": imports}}}, [])
    write_json(study / "plan.json", plan(config, "volumes", []))
    factors = [*configuration.factors("volumes"), "control"]
    write_text(study / "matrix.csv", matrix_csv(factors, [], []))
    imported = study / "imported.json"
    gathered = ("--config", json.dumps(config), "--results", place / "results", "--imported", imported)
    report = ("--notebook", "notebooks/volumes.ipynb", "--tables", study, "--facts", study / "facts.json")
    return [
        program(
            "scripts.studies.volumes.import_fio", "--imports", json.dumps(imports), "--run", "bench", "--out", imported
        ),
        program("scripts.gather", "--study", "volumes", *gathered),
        program("scripts.report", "--study", "volumes", *report, "--out", place / "reports/volumes.html"),
    ]
