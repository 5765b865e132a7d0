"""Report the failed jobs of a run, the missing blocks, and which of them the next call of the workflow repairs.

Failed builds and datasets are moved aside, so that the next call makes them again. Failed records stay in place: they
count as attempts, and blocks are never completed later.
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
    """Print the failures of a run, and write them to the file `log`.

    `reports` is the folder with the run's pages. Return False if the next call would make an artefact again or append
    blocks.
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
    """Read the record of a measurement that was attempted; return None for skipped cells and other artefacts."""
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
    """Yield messages about blocks of a study that the next call appends, and cells that failed in every block."""
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
    """Yield a message if the next call measures another round.

    This happens on a cluster, where each call of the workflow measures a single round.
    """
    cells = matrix.expand_matrix(config, study)[0]
    opened = blocks.open_blocks(config, matrix.select_cells(cells, config["only"]), cells)
    if opened.blocks and opened.cells:
        many = f"{len(opened.blocks)} blocks of {len(opened.cells)} cells"
        yield f"{study}: comparisons are undecided; repeat the command, which measures {many}"


def find_failures(results: Path, paths: Iterable[Path]) -> dict[Path, list[str]]:
    """Return the failed or unusable artefacts among `paths`: path -> reasons."""
    return {path: reasons for path in paths if (reasons := records.list_failure_reasons(path, results, results.name))}


def list_artefacts(results: Path) -> Iterator[Path]:
    """Yield the paths of all artefacts of a run: environments, data, imports and notebooks, followed by records."""
    of_study = ("*/ready.json", "*/imported.json")
    for pattern in ("environments/*.json", "data/*/*.json", *of_study, "export/*.json", "extra/*.json"):
        yield from sorted(results.glob(pattern))
    for cell in sorted(results.glob("*/records/*/")):
        yield from (path for _, path in records.list_repeats(cell))


def find_failed_artefacts(results: Path) -> Iterable[Path]:
    """Return the artefacts that the next call makes again.

    For speed, read a file completely only if its first 4 KiB contain "failed".
    """

    def may_have_failed(path: Path) -> bool:
        if not path.is_file():
            return True
        with open(path, "rb") as file:
            return b'"failed"' in file.read(4096)

    failed = find_failures(results, filter(may_have_failed, list_artefacts(results)))
    return [path for path in failed if not _read_attempt(path, results)]


def move_aside(results: Path, paths: Iterable[Path], aside: str = "failed") -> Path:
    """Move artefacts or folders to `results`/`aside`/<current time>/…, so that they are made again.

    Return the folder that they were moved to.
    """
    attempt = results / aside / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for path in paths:
        target = attempt / path.relative_to(results)
        expect_room(target)
        path.rename(target)
    return attempt
