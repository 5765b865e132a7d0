"""Measure claims with Snakemake, and print their verdicts."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbench.court.tested_claim import TestedClaim, list_claims, load_claim, read_commit
from sbench.measure.start import build_progress_options, call_snakemake, get_snakemake, hold_folder
from sbench.probe.program import print_json, read_json, write_json


def test_claims(names: Sequence[str], cores: str, as_json: bool) -> int:
    """Measure claims, make their pages, print a line or an object per claim, and return the exit status of Snakemake.

    Args:
        names: names of claims; all claims and their index if empty.
        cores: number of cores for Snakemake.
        as_json: whether to print JSON.

    Raises:
        Problem: a claim does not exist, its file is wrong, or it is not committed, or a run is in progress.
    """
    claims = [load_claim(name) for name in names or list_claims()]
    for claim in claims:
        read_commit(claim)
    hold_folder()
    for claim in claims:
        _measure_cells(claim, cores)
    # The runs are targets, too: without them, an older page would be enough.
    targets = [*map(str, map(_get_runs, claims)), *([str(_get_page(claim, ".html")) for claim in claims])]
    command = [get_snakemake(), *targets, *(["claims"] if not names else []), f"--cores={cores}", "--keep-going"]
    status = call_snakemake([*command, *build_progress_options("claims")], sys.stderr)
    # Snakemake removes the runs of a claim that fails, but not the page of an earlier run.
    answers = [_get_page(claim, "_answers.json") for claim in claims if _get_runs(claim).exists()]
    rows = [read_json(path) for path in answers if path.exists()]
    if as_json:
        print_json(rows)
    else:
        print(*_format_rows(rows), sep="\n")
    return status


def _get_runs(claim: TestedClaim) -> Path:
    return Path("results/claims", claim.id, "runs.csv")


def _get_page(claim: TestedClaim, ending: str) -> Path:
    return Path("reports/claims", f"{claim.id}{ending}")


def _measure_cells(claim: TestedClaim, cores: str) -> None:
    """Measure the cells of a claim as a separate run; if it fails, its verdicts are missing in the next step."""
    if claim.cells:
        path = Path("results/claims", claim.id, "run.json")
        write_json(path, {"run": claim.run, **claim.cells})
        options = [f"--cores={cores}", f"--configfile={path}", *build_progress_options(claim.run)]
        call_snakemake([get_snakemake(), *options], sys.stderr)


def _format_rows(rows: Sequence[dict]) -> Iterator[str]:
    for row in rows:
        numbers = f"claimed {row['claimed_text']}, found {row['found_text']}"
        yield f"{row['id']}: {row['outcome']} ({numbers}): {row['reason']}"
