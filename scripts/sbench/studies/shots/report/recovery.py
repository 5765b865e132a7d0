"""Describe how reads recover from injected faults."""

from collections.abc import Iterator

import pandas as pd

from sbench.pages import prose
from sbench.pages.markup import bold
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.studies.shots.report import words
from sbench.verdicts import stats


def describe_recovery(run: Results) -> list[str]:
    """Write a sentence for each reading library on the faults it recovered from, how often, and the cost per fault."""
    by_reader: dict[str, list[str]] = {}
    for who, fault, row in _iter_rows(run):
        by_reader.setdefault(who, []).append(f"{_format_verb(row)} {fault} ({_format_figures(row)})")
    return [f"{prose.capitalize_first(who)} {prose.format_list(phrases)}." for who, phrases in by_reader.items()]


def render_headline(run: Results) -> str:
    """Write a bold sentence on which readers recovered from all faults, and how often the others failed.

    Return an empty string if no read encountered a fault.
    """
    by_reader: dict[str, list[tuple[str, dict]]] = {}
    for who, fault, row in _iter_rows(run):
        if row["attempts"]:
            by_reader.setdefault(who, []).append((fault, row))
    whole = {who: rows for who, rows in by_reader.items() if not any(row["failed"] for _, row in rows)}
    parts = []
    if whole:
        reads = prose.format_count(sum(row["attempts"] for rows in whole.values() for _, row in rows), "read")
        parts.append(words.fill("recovered", who=prose.format_list(whole), reads=reads))
    for who, rows in by_reader.items():
        if who not in whole:
            failed = [
                words.fill("failed with", failed=row["failed"], attempts=row["attempts"], fault=fault)
                for fault, row in rows
                if row["failed"]
            ]
            parts.append(words.fill("failed reads", who=who, failed=prose.format_list(failed)))
    return bold(f"{prose.capitalize_first('; '.join(parts))}.") if parts else ""


def build_recovery_table(run: Results) -> Table:
    """Build a table of reads with faults: the share that failed, with its exact 95 % CI, and the cost per fault."""
    lines = []
    for who, fault, row in _iter_rows(run):
        lines.append(
            {
                **{"reader": who, "fault": fault},
                **{"reads": row["attempts"], "failed": row["failed"], "recovered": row["attempts"] - row["failed"]},
                "failed / % [95 % CI]": f"{100 * row['failed'] / row['attempts']:.0f} {_format_interval(row)}]"
                if row["attempts"]
                else "",
                **{"faults survived": row["injected"], "reads without a fault": row["missed"]},
                **{"additional GETs per fault": row["extra_gets"], "additional seconds per fault": row["extra_s"]},
            }
        )
    formats = dict.fromkeys(("additional GETs per fault", "additional seconds per fault"), _format_amount)
    return Table("recovery", words.fill("table of recovery"), pd.DataFrame(lines, dtype=object), formats)


def _iter_rows(run: Results) -> Iterator[tuple[str, str, dict]]:
    """Yield the reader, fault and outcome of each cell with injected faults, grouped by reader."""
    outcomes = {row["cell"]: row for row in run.facts.get("injected") or []}
    cells = run.cells[run.cells["cell"].isin(outcomes)]
    names = [name for name in run.report.names if name != "fault"]
    names = [name for name in names if name in {"library", "driver", *run.select_telling_factors(cells, names)}]
    for cell in run.names.sort_rows(cells, [*names, "fault"]).to_dict("records"):
        kind, _, every = cell["fault"].partition("-every-")
        fault = words.fill("fault", fault=words.FAULTS[kind], every=every)
        yield run.names.format_row(cell, names), fault, outcomes[cell["cell"]]


def _format_verb(row: dict) -> str:
    if not row["attempts"]:
        return words.fill("not met")
    verbs = {0: "recovers", row["attempts"]: "never recovers"}
    return bold(words.fill(verbs.get(row["failed"], "not always recovers")))


def _format_figures(row: dict) -> str:
    if not row["attempts"]:
        return f"in {prose.format_count(row['missed'], 'read')}"
    reads = prose.format_count(row["attempts"], "read")
    text = words.fill("failed", failed=row["failed"], reads=reads, interval=_format_interval(row))
    if not row["injected"]:
        return text
    text += words.fill("survived", faults=prose.format_count(row["injected"], "fault"))
    if row["extra_s"] is None:
        return text
    more = {"gets": _format_amount(row["extra_gets"]), "s": "s" * (row["extra_gets"] != 1)}
    return text + words.fill("cost of faults", **more, seconds=_format_amount(row["extra_s"]))


def _format_interval(row: dict) -> str:
    share = stats.estimate_share(row["failed"], row["attempts"])
    return f"[{100 * share.low:.0f}, {100 * share.high:.0f}"


def _format_amount(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.2g}"
