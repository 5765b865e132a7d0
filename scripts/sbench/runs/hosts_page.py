"""Build the page that compares the arms of a configuration over the hosts that measured it."""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import pandas as pd

from sbench.pages import answer, comparisons, findings, names, pages, prose
from sbench.pages import headline as headlines
from sbench.pages.declaration import Report
from sbench.pages.markup import bold, bullets, code, heading
from sbench.pages.page import Page, Table
from sbench.pages.results import Results, complete_cells
from sbench.pages.run_files import TEXTS, read_facts, read_table
from sbench.pages.statements import DECIDES, Comparison
from sbench.runs.compare_hosts import describe_hosts, describe_share
from sbench.runs.side_by_side import describe_counts, describe_rules
from sbench.runs.statements import HostRatio
from sbench.verdicts import MIN_BLOCKS, sessions

_OF_SESSIONS = ("baseline_cell", "contender_cell", "unit_of", "host")


@dataclass(frozen=True, eq=False)
class Hosts(Results):
    """The results of a study on several hosts. `of_sessions` has a row per comparison and session."""

    of_sessions: pd.DataFrame = field(default_factory=pd.DataFrame)

    def to_comparisons(self, rows: pd.DataFrame) -> tuple[HostRatio, ...]:
        """Convert rows of `get_comparisons` to checkable statements."""
        return tuple(
            HostRatio(
                baseline=row["baseline_cell"],
                contender=row["contender_cell"],
                outcome=row["verdict"],
                ratio=float(row["ratio"]),
                low=float(row["ratio_low"]),
                high=float(row["ratio_high"]),
                hosts=self._list_hosts(row["baseline_cell"], row["contender_cell"]),
            )
            for row in rows.to_dict("records")
        )

    def _list_hosts(self, baseline: str, contender: str) -> tuple[tuple[Comparison, ...], ...]:
        rows = self.of_sessions
        rows = rows[(rows["baseline_cell"] == baseline) & (rows["contender_cell"] == contender) & rows["ratio"].notna()]
        return tuple(
            tuple(
                Comparison(
                    **{"baseline": baseline, "contender": contender, "column": DECIDES, "outcome": row["verdict"]},
                    blocks=tuple(map(int, str(row["used_blocks"]).split())),
                    **{"ratio": row["ratio"], "low": row["ratio_low"], "high": row["ratio_high"]},
                    same_within=self.same_percent / 100,
                    is_bound=pd.notna(row["harness_percent"]),
                )
                for row in of_host.to_dict("records")
            )
            for _, of_host in rows.groupby("host", sort=False)
        )


def load_hosts(tables: Path | str, facts: Path | str) -> tuple[Hosts, pd.DataFrame, pd.DataFrame]:
    """Load a comparison over hosts: the results, the table of counts, and the table of hosts."""
    folder, answers = Path(tables), read_facts(facts)
    own = import_module(f"sbench.studies.{answers['study']}.report").REPORT
    texts = (*TEXTS, *own.names, *_OF_SESSIONS)
    of_sessions, of_hosts, verdicts, cells, raw = (
        read_table(folder / f"{name}.csv", texts) for name in ("sessions", "hosts", "verdicts", "cells", "records")
    )
    report = _build_report(own, answers)
    cells = complete_cells(cells, pd.DataFrame({"cell": [], "valid": pd.Series(dtype=bool)}), report)
    verdicts = verdicts.assign(**dict.fromkeys(set(own.names) - set(verdicts), ""))
    run = Hosts(
        pd.DataFrame(), cells, verdicts, pd.DataFrame(), answers, report=report, raw=raw, of_sessions=of_sessions
    )
    return run, read_table(folder / "counts.csv", (*texts, *sessions.COUNTS)), of_hosts


def _build_report(report: Report, facts: dict) -> Report:
    own = {"scaling": None, "contest": None, "along": "", "harness": (), "effective": (), "moved": (), "panels": ()}
    title = f"{report.title} on {prose.format_count(facts['hosts'], 'host')}"
    return replace(report, title=title, unit="host", **own)


def show_hosts(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Render the page of a comparison over hosts, and write its headline for the index page.

    Args:
        page: page to render to.
        tables: folder of the comparison's tables.
        facts: path of facts.json.
    """
    run, counts, of_hosts = load_hosts(tables, facts)
    words = bold(pages.select_headline([headlines.write_headline(run)], run))
    primary = pages.select_findings(findings.list_findings(run), run)
    (picture, rest), (few, _) = (comparisons.draw_deciding(run, most) for most in (comparisons.ROWS, comparisons.FEW))
    why = [*run.select_sentences(answer.list_reasons(run, primary)), *describe_counts(counts, "comparison")]
    beside = {"Why": why, "Next steps": _list_next_steps(run)}
    page.show_text(heading(1, run.report.title))
    pages.show_first_screen(page, run, f"{describe_rules(run.facts)}{words}", picture, beside, few)
    if rest.panels:
        with page.fold(f"and {prose.format_count(len(rest.numbers), 'more comparison')}"):
            page.show_figure(rest)
    page.show_table(_build_spread_table(run), "The configuration compares nothing.")
    decided = sorted((one for one in primary if one.is_decided), key=lambda finding: -finding.size)
    pages.show_findings(page, run, decided, [], [one for one in primary if not one.is_decided])
    page.show_section("Refused archives", bullets(run.facts["refused"]))
    page.show_section("Counts that contradict each other", bullets(run.facts["contradictions"]))
    page.show_section("Limits of this comparison", bullets(_list_limits(run)))
    page.show_text(heading(2, "Each host"))
    page.show_table(_build_hosts_table(run, of_hosts))


def _list_next_steps(run: Hosts) -> list[str]:
    lacking = MIN_BLOCKS - run.facts["hosts"]
    if lacking < 1:
        return []
    more = prose.format_count(lacking, "more host")
    return [
        f"Measure the same configuration on {more}, write the archives ({code('sbench archive')}), and gather again."
    ]


def _list_limits(run: Hosts) -> list[str]:
    lines = [
        "The host is the unit of repetition: a host with many sessions counts once.",
        "All hosts are judged once. If you add hosts because a comparison was undecided, choose their number first.",
        "Digests detect damage and simple edits. They cannot show that times are real.",
    ]
    if run.verdicts["between_share"].isna().all():
        lines.append("No host has two sessions, so the spread between hosts cannot be separated from other noise.")
    return lines


def _name_comparisons(run: Hosts, rows: pd.DataFrame) -> list[str]:
    varies = run.select_varying_factors(rows, run.report.names)
    return [
        ", ".join(
            filter(
                None,
                [" vs ".join(run.names.format_pair(row, run.names.format_level)), run.names.format_levels(row, varies)],
            )
        )
        for row in rows.to_dict("records")
    ]


def _build_spread_table(run: Hosts) -> Table:
    rows = run.get_comparisons()
    if rows.empty:
        return Table("hosts", "", rows)
    each = rows.to_dict("records")
    ratios = rows[["ratio", "ratio_low", "ratio_high"]].itertuples(index=False)
    frame = pd.DataFrame(
        {
            "comparison": _name_comparisons(run, rows),
            "ratio [95 % CI]": [names.format_ratio_with_interval(*row) for row in ratios],
            "verdict": rows["verdict"],
            "hosts": list(map(describe_hosts, each)),
            "between hosts / %": rows["between_percent"].round(1),
            "within hosts / %": rows["within_percent"].round(1),
            "share between hosts": [
                describe_share(row) if pd.notna(row["between_share"]) else "unknown" for row in each
            ],
            "detectable ratio": rows["detectable_ratio"].round(2),
        }
    )
    caption = (
        "Ratio of contender to baseline, median of the hosts; verdict over hosts; verdicts from the blocks of single "
        "hosts; standard deviations of the ratio between hosts and between sessions of a host; share of the variance "
        "between hosts [95 % CI]; smallest slowdown that so many hosts detect with a power of 0.8."
    )
    return Table("hosts", caption, frame, numbers=rows)


def _build_hosts_table(run: Hosts, of_hosts: pd.DataFrame) -> Table:
    rows = run.get_comparisons()
    named = dict(
        zip(
            rows[["baseline_cell", "contender_cell"]].itertuples(index=False, name=None),
            _name_comparisons(run, rows),
            strict=True,
        )
    )
    keys = list(of_hosts[["baseline_cell", "contender_cell"]].itertuples(index=False, name=None))
    sessions_of = run.of_sessions.groupby("host")["unit_of"].nunique()
    of_hosts = of_hosts.assign(comparison=[named.get(key, "") for key in keys])
    of_hosts = of_hosts[of_hosts["comparison"] != ""].sort_values("comparison", kind="stable")
    ratios = of_hosts[["ratio", "ratio_low", "ratio_high"]].itertuples(index=False)
    frame = pd.DataFrame(
        {
            "comparison": of_hosts["comparison"],
            "host": of_hosts["host"],
            "sessions": of_hosts["host"].map(sessions_of),
            "blocks": of_hosts["blocks"],
            "baseline / s": of_hosts["baseline_s"].map(prose.format_number),
            "contender / s": of_hosts["contender_s"].map(prose.format_number),
            "ratio [95 % CI]": [names.format_ratio_with_interval(*row) for row in ratios],
            "verdict": of_hosts["verdict"],
        }
    )
    caption = "Medians, ratio and verdict from all blocks of a host."
    return Table("each-host", caption, frame.reset_index(drop=True), numbers=of_hosts)
