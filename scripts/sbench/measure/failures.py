"""Report the failed steps of a run, the missing blocks, and the repairs of the next call.

Failed builds and data are moved aside, so that the next call makes them again. A failed record stays: it is an attempt
of its cell, and its block is closed.
"""

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from sbench.design import blocks, matrix, records, session
from sbench.design import study as studies
from sbench.probe.program import Problem, escape_text, expect_room, write_text


def report_failures(config: dict, reports: Path, log: Path) -> bool:
    """Print and log the failures of a run, and return whether the next call has nothing to repair.

    `reports` is the run's folder of pages; the file `log` gets a copy of the messages.
    """
    results = Path("results", config["run"])
    failed = find_failures(results, list_artefacts(results))
    attempts = {path: record for path in failed if (record := _read_attempt(path, results))}
    now = os.environ.get(session.SESSION)
    old = {path for path, record in attempts.items() if now and record.get("session") != now}
    lines = _describe_failed_steps({path: failed[path] for path in failed.keys() - old}, f"{reports}/index.html")
    if amiss := sorted(failed.keys() - attempts.keys()):
        lines.append(
            f"Failed builds and data were moved to {move_aside(results, amiss)}; the next call makes them again."
        )
    lacking = [
        line
        for study in config["only"].get("study", config["studies"])
        for line in _describe_lacking(config, study, failed.keys())
    ]
    lines += [
        line for study in config["only"].get("study", config["studies"]) for line in _describe_round(config, study)
    ]
    if words := list(map(escape_text, lines + lacking)):
        print(*words, sep="\n", file=sys.stderr)
        write_text(log, "\n".join([*words, ""]))
    return not amiss and not lacking


def _read_attempt(path: Path, results: Path) -> dict | None:
    """Return the record of a cell's failed attempt; None for skipped cells and other artefacts."""
    study, kind = path.relative_to(results).parts[:2]
    with contextlib.suppress(Problem):
        if kind == "records" and "cause" not in (record := records.read_record(path, results.name, study)):
            return record
    return None


def _describe_failed_steps(failed: dict[Path, list[str]], page: str) -> list[str]:
    by_reason: dict[str, list[Path]] = defaultdict(list)
    skipped = set(filter(records.is_skipped, failed))
    for path in sorted(failed.keys() - skipped):
        by_reason["; ".join(failed[path])].append(path)
    many = len(failed) - len(skipped)
    outcome = f"{many} step{'s' * (many != 1)} failed" + (f", {len(skipped)} skipped" if skipped else "")
    lines = [f"{outcome}; the report shows the rest: {page}"] if failed else []
    for reason, paths in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines += [f"  {reason}", f"    {paths[0]}{more}"]
    return lines


def _describe_lacking(config: dict, study: str, failed: Set[Path]) -> Iterator[str]:
    """Yield the blocks of a study that the next call appends, and the cells that failed in every block."""
    cells = matrix.expand_matrix(config, study)[0]
    selected, sessions = matrix.select_cells(cells, config["only"]), blocks.read_measured_blocks(config, cells)
    if sessions and (lacking := len(blocks.choose_blocks(config, selected, sessions).blocks)):
        due = studies.get_study(study).count_repeats(config)
        yield f"{study}: some comparisons lack {lacking} of {due} blocks; the next call appends them for all cells"
    results = Path("results", config["run"])
    by_cell = {
        cell.name: {path for _, path in records.list_repeats(results / study / "records" / cell.name)}
        for cell in selected
    }
    if names := [name for name, paths in by_cell.items() if paths and failed >= paths]:
        many = f"{len(names)} cell{'s' * (len(names) > 1)} failed in every block"
        yield f"{study}: {many}, {names[0]} first; sbench run --again {names[0]} measures it again"


def _describe_round(config: dict, study: str) -> Iterator[str]:
    """Yield a line on the round that the next call measures, as on a cluster, where a call measures one round."""
    cells = matrix.expand_matrix(config, study)[0]
    opened = blocks.open_blocks(config, matrix.select_cells(cells, config["only"]), cells)
    if opened.blocks and opened.cells:
        many = f"{len(opened.blocks)} blocks of {len(opened.cells)} cells"
        yield f"{study}: comparisons are undecided; repeat the command, which measures {many}"


def find_failures(results: Path, paths: Iterable[Path]) -> dict[Path, list[str]]:
    """Return the failed artefacts and unusable records of a run with the reasons."""
    return {path: reasons for path in paths if (reasons := records.list_failure_reasons(path, results, results.name))}


def list_artefacts(results: Path) -> Iterator[Path]:
    """Yield all artefacts of a run: of environments, data, imports and the user's notebooks, then records."""
    of_study = ("*/ready.json", "*/imported.json")
    for pattern in ("environments/*.json", "data/*/*.json", *of_study, "export/*.json", "extra/*.json"):
        yield from sorted(results.glob(pattern))
    for cell in sorted(results.glob("*/records/*/")):
        yield from (path for _, path in records.list_repeats(cell))


def find_failed_artefacts(results: Path) -> Iterable[Path]:
    """Return the artefacts that the next call makes again; read only the start of all others."""

    def may_have_failed(path: Path) -> bool:
        if not path.is_file():
            return True
        with open(path, "rb") as file:
            return b'"failed"' in file.read(4096)

    failed = find_failures(results, filter(may_have_failed, list_artefacts(results)))
    return [path for path in failed if not _read_attempt(path, results)]


def move_aside(results: Path, paths: Iterable[Path], aside: str = "failed") -> Path:
    """Move artefacts, or folders of artefacts, to `results`/`aside`/<now>/…, to be made again; return that folder."""
    attempt = results / aside / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for path in paths:
        target = attempt / path.relative_to(results)
        expect_room(target)
        path.rename(target)
    return attempt
