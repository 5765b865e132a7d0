"""Whether reads recover from the faults that were injected, with figures."""

from collections.abc import Iterator

import pandas as pd

from sbench.pages import prose
from sbench.pages.markup import bold
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.studies.shots.report import words
from sbench.verdicts import stats


def answers(run: Results) -> list[str]:
    """Return a sentence for each reader: from which faults it recovered, how often, and what a fault cost."""
    by_reader: dict[str, list[str]] = {}
    for who, fault, row in _rows(run):
        by_reader.setdefault(who, []).append(f"{_verb(row)} {fault} ({_figures(row)})")
    return [f"{prose.capital(who)} {prose.listing(said)}." for who, said in by_reader.items()]


def headline(run: Results) -> str:
    """Return who recovered from all faults and who failed how often, in one bold sentence; "" without faults."""
    by_reader: dict[str, list[tuple[str, dict]]] = {}
    for who, fault, row in _rows(run):
        if row["attempts"]:
            by_reader.setdefault(who, []).append((fault, row))
    whole = {who: rows for who, rows in by_reader.items() if not any(row["failed"] for _, row in rows)}
    parts = []
    if whole:
        reads = prose.count(sum(row["attempts"] for rows in whole.values() for _, row in rows), "read")
        parts.append(words.fill("recovered", who=prose.listing(whole), reads=reads))
    for who, rows in by_reader.items():
        if who not in whole:
            failed = [
                words.fill("failed with", failed=row["failed"], attempts=row["attempts"], fault=fault)
                for fault, row in rows
                if row["failed"]
            ]
            parts.append(words.fill("failed reads", who=who, failed=prose.listing(failed)))
    return bold(f"{prose.capital('; '.join(parts))}.") if parts else ""


def table(run: Results) -> Table:
    """Return the same as a table: attempts and failures with the exact interval of their share, faults and cost."""
    lines = []
    for who, fault, row in _rows(run):
        lines.append(
            {
                **{"reader": who, "fault": fault},
                **{"reads": row["attempts"], "failed": row["failed"], "recovered": row["attempts"] - row["failed"]},
                "failed / % [95 % CI]": f"{100 * row['failed'] / row['attempts']:.0f} {_interval(row)}]"
                if row["attempts"]
                else "",
                **{"faults survived": row["injected"], "reads without a fault": row["missed"]},
                **{"GETs more per fault": row["extra_gets"], "s more per fault": row["extra_s"]},
            }
        )
    formats = dict.fromkeys(("GETs more per fault", "s more per fault"), _amount)
    return Table("recovery", words.fill("table of recovery"), pd.DataFrame(lines, dtype=object), formats)


def _rows(run: Results) -> Iterator[tuple[str, str, dict]]:
    """Yield reader, fault and outcome of each cell with faults, reader by reader."""
    outcomes = {row["cell"]: row for row in run.facts.get("injected") or []}
    cells = run.cells[run.cells["cell"].isin(outcomes)]
    names = [name for name in run.report.names if name != "fault"]
    names = [name for name in names if name in {"library", "driver", *run.telling(cells, names)}]
    for cell in run.names.sort(cells, [*names, "fault"]).to_dict("records"):
        kind, _, every = cell["fault"].partition("-every-")
        fault = words.fill("fault", what=words.FAULTS[kind], every=every)
        yield run.names.row(cell, names), fault, outcomes[cell["cell"]]


def _verb(row: dict) -> str:
    if not row["attempts"]:
        return words.fill("not met")
    verbs = {0: "recovers", row["attempts"]: "never recovers"}
    return bold(words.fill(verbs.get(row["failed"], "not always recovers")))


def _figures(row: dict) -> str:
    if not row["attempts"]:
        return f"in {prose.count(row['missed'], 'read')}"
    reads = prose.count(row["attempts"], "read")
    text = words.fill("failed", failed=row["failed"], reads=reads, interval=_interval(row))
    if not row["injected"]:
        return text
    text += words.fill("survived", faults=prose.count(row["injected"], "fault"))
    if row["extra_s"] is None:
        return text
    more = {"gets": _amount(row["extra_gets"]), "s": "s" * (row["extra_gets"] != 1)}
    return text + words.fill("cost of faults", **more, seconds=_amount(row["extra_s"]))


def _interval(row: dict) -> str:
    share = stats.share(row["failed"], row["attempts"])
    return f"[{100 * share.low:.0f}, {100 * share.high:.0f}"


def _amount(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.2g}"
