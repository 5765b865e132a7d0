"""Build the page that compares two groups of runs ("sides"): a study's page with the run as an additional factor."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd

from sbench.pages import answer, comparisons, findings, names, pages, prose
from sbench.pages import headline as headlines
from sbench.pages.declaration import Factor, Report, Value
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, bullets, code, heading
from sbench.pages.page import Page, Table
from sbench.pages.results import Results, complete_cells
from sbench.pages.run_files import TEXTS, read_facts, read_table
from sbench.pages.statements import Outcomes
from sbench.probe import sizes
from sbench.runs.statements import SessionRatio
from sbench.verdicts import sessions
from sbench.verdicts.outcomes import Outcome

_COLOURS = {Outcome.SLOWER: "red", Outcome.FASTER: "green", Outcome.MORE: "red", Outcome.FEWER: "green"}
_DIFFER = (Outcome.MORE, Outcome.FEWER, Outcome.DEPENDS, "differs between repeats")
_MOVED = ("requests", "bytes")
# Outcomes of counts if both sides did not do the same work.
_INCOMPARABLE = ("", "other objects were read", Outcome.DEPENDS)
_SHOWN = 40
_ELSEWHERE = {"days": "on other days", "times": "at other times", "machines": "on other machines"}


class Sides(Results):
    """The results of a comparison of runs, whose statements are based on sessions."""

    @property
    def is_checked(self) -> bool:
        """Whether there are records to check statements against."""
        return bool(self.checks)

    def to_comparisons(self, rows: pd.DataFrame) -> tuple[SessionRatio, ...]:
        """Convert rows of `get_comparisons` to checkable statements."""
        return tuple(
            SessionRatio(
                baseline=row["baseline_cell"],
                contender=row["contender_cell"],
                outcome=row["of_sessions"] or row["verdict"],
                ratio=float(row["ratio"]),
                low=float(row["ratio_low"]),
                high=float(row["ratio_high"]),
                pairs=tuple(map(tuple, self.facts["pairs"])),
            )
            for row in rows.to_dict("records")
        )


def load_comparison(tables: Path | str, facts: Path | str) -> tuple[Sides, pd.DataFrame]:
    """Load a comparison: the results of a study with the additional factor `run`, and the table of counts."""
    folder, answers = Path(tables), read_facts(facts)
    own = import_module(f"sbench.studies.{answers['study']}.report").REPORT
    texts = (*TEXTS, "run", "of_sessions", *own.names)
    cells, verdicts = (read_table(folder / f"{name}.csv", texts) for name in ("cells", "verdicts"))
    report = _build_report(own, answers["sides"], next(name for name in cells if name.endswith("_low"))[: -len("_low")])
    cells = complete_cells(cells, pd.DataFrame({"cell": [], "valid": pd.Series(dtype=bool)}), report)
    verdicts = verdicts.assign(**dict.fromkeys(set(own.names) - set(verdicts), ""))
    raw = read_table(folder / "records.csv", ("cell", "unit_of"))
    run = Sides(pd.DataFrame(), cells, verdicts, pd.DataFrame(), answers, report=report, raw=raw)
    return run, read_table(folder / "counts.csv", (*texts, *sessions.COUNTS))


def show_comparison(page: Page, tables: Path | str, facts: Path | str) -> None:
    """Render the page of a comparison, and write its headline for the index page.

    Args:
        page: page to render to.
        tables: folder of the comparison's tables.
        facts: path of facts.json.
    """
    run, counts = load_comparison(tables, facts)
    words = render_headline(run)
    primary = pages.select_findings(findings.list_findings(run), run)
    (picture, rest), (few, _) = (comparisons.draw_deciding(run, most) for most in (comparisons.ROWS, comparisons.FEW))
    why = [*run.select_sentences(answer.list_reasons(run, primary)), *describe_counts(counts)]
    beside = {"Why": why, "Next steps": _list_next_steps(run)}
    page.show_text(heading(1, run.report.title))
    sentence = f"{describe_totals(counts, run.facts['sides'])}{describe_rules(run.facts)}{words}"
    pages.show_first_screen(page, run, sentence, picture, beside, few, summary=_build_summary_table(run, counts))
    if rest.panels:
        with page.fold(f"and {prose.format_count(len(rest.numbers), 'more comparison')}"):
            page.show_figure(rest)
    decided = sorted((one for one in primary if one.is_decided), key=lambda finding: -finding.size)
    pages.show_findings(page, run, decided, [], [one for one in primary if not one.is_decided])
    page.show_section("Limits of this comparison", bullets(list_limits(run)))
    page.show_text(heading(2, "Both sides"))
    page.show_table(_build_times_table(run), "The two sides share no cells.")
    page.show_table(_build_counts_table(counts, run), "")
    page.show_table(_build_lone_table(tables, run), "Both sides have the same cells.")
    page.show_text(heading(2, "What else differs"))
    page.show_table(
        _build_differences_table(tables),
        "No recorded difference: machine, configuration, libraries and code are equal.",
    )


def describe_rules(facts: dict) -> str:
    """Describe the outcome of the `--fail-on` rules in bold; an empty string if there are no rules."""
    answers = facts["outcome"]
    if not answers["rules"]:
        return ""
    if answers["broken"]:
        return bold(f"Fails: {prose.format_list(answers['broken'])}.") + " "
    parts = [f"Passes: {prose.format_list(answers['passed'])}" if answers["passed"] else "Neither fails nor passes"]
    parts += [f"warning, from these sessions only: {prose.format_list(answers['warned'])}"] if answers["warned"] else []
    parts += [f"not decided: {prose.format_list(answers['open'])}"] if answers["open"] else []
    return bold(f"{'; '.join(parts)}.") + " "


def describe_elsewhere(apart: Sequence[str], base: str = "") -> str:
    """Describe how the sessions of both sides are separated, as in "on other days and on other machines than base".

    Args:
        apart: reasons from `sessions.find_apart`; if empty, the result is an empty string.
        base: name of the first side; if empty, it is not named.
    """
    parts = [f"in strict turn{f' with {base}' * bool(base)}"] * ("turns" in apart)
    if elsewhere := [_ELSEWHERE[one] for one in apart if one in _ELSEWHERE]:
        parts.append(f"{prose.format_list(elsewhere)}{f' than {base}' * bool(base)}")
    return " and ".join(parts)


def describe_totals(counts: pd.DataFrame, sides: list[str]) -> str:
    """Describe the total requests and bytes of both sides in bold, for cells in which they read the same data.

    The result is an empty string if the sides share no cells.
    """
    if counts.empty:
        return ""
    both = {name: rows for name in _MOVED if name in counts and len(rows := _select_alike(counts, name))}
    if not both:
        return bold("Requests and bytes are not compared: a side lacks counts, or the sides read different data.") + " "
    texts = [_format_change(name, *rows[[f"{name}_base", f"{name}_other"]].sum()) for name, rows in both.items()]
    many = max(map(len, both.values()))
    together = f", {many} cells together" if many > 1 else ""
    return bold(f"{sides[0]} → {sides[1]}: {prose.format_list(texts)}{together}.") + " "


def render_headline(run: Results) -> str:
    """Render the headline in bold: how the second side compares with the first.

    If there are too few sessions for a verdict, the headline gives only the range of the ratios.
    """
    return bold(pages.select_headline([_write_headline(run)], run))


def _write_headline(run: Results) -> Sentence:
    rows = run.get_comparisons()
    if rows.empty:
        return "The two sides share no cells.", ()
    base, other = run.facts["sides"]
    if rows["of_sessions"].ne("").any():
        rows = rows[rows["of_sessions"] != ""]
        return _describe_sessions(run, rows), (Outcomes(run.to_comparisons(rows)),)
    if not rows["verdict"].eq(Outcome.TOO_FEW).all():
        return headlines.write_headline(run)
    ratios = prose.format_span(rows["ratio"].dropna(), prose.format_ratio) if rows["ratio"].notna().any() else "unknown"
    of = dict.fromkeys(run.facts["sessions_of"])
    have = (
        f"{prose.format_count(*of, 'session')} on each side"
        if len(of) == 1
        else f"{prose.format_list(map(str, of))} sessions"
    )
    due = run.facts["sessions_due"]
    text = (
        f"Between these two, {base} and {other}, {run.report.metrics[0].title} differs by a ratio of {ratios} in"
        f" {prose.format_count(len(rows), 'cell')}, which {have} cannot decide;"
        f" {f'{due} pairs' if due == sessions.LEAST_PAIRS else f'{due} on each side'} can."
    )
    return text, (Outcomes(run.to_comparisons(rows)),)


def _describe_sessions(run: Results, rows: pd.DataFrame) -> str:
    """Describe outcomes that apply to the measured sessions only, because the sessions did not alternate by side."""
    base, other = run.facts["sides"]
    seen = [f"{verdict} in {many}" for verdict, many in rows["of_sessions"].value_counts().items()]
    return (
        f"{other} was measured {describe_elsewhere(run.facts['apart'], base)}, so the change itself gets no"
        " verdict."
        f" These sessions only: {prose.format_list(seen)} of {prose.format_count(len(rows), 'cell')}, ratios"
        f" of {run.report.metrics[0].title} {prose.format_span(rows['ratio'])}."
    )


def describe_counts(counts: pd.DataFrame, noun: str = "cell") -> list[str]:
    """Return a sentence for each count that both sides have, with the number of cells, or of `noun`, per outcome."""
    lines = []
    for name in (name for name in sessions.COUNTS if name in counts):
        outcomes = counts.loc[counts[name] != "", name].replace("one repeat", "undecided with a single repeat")
        if outcomes.empty:
            continue
        by_outcome = [
            f"{bold(outcome) if outcome in _DIFFER else outcome} in {many}"
            for outcome, many in outcomes.value_counts().items()
        ]
        cells = prose.format_count(len(outcomes), noun)
        lines.append(f"{prose.capitalize_first(name)}: {prose.format_list(by_outcome)} of {cells}.")
    return lines


def _select_alike(counts: pd.DataFrame, name: str) -> pd.DataFrame:
    """Select the cells in which both sides read the same objects and have the count `name`."""
    is_counted = counts[[f"{name}_base", f"{name}_other"]].notna().all(axis=1)
    return counts[is_counted & ~counts[name].isin(_INCOMPARABLE)]


def _format_change(name: str, base: float, other: float) -> str:
    """Format a change in a count, as in "111 → 4 requests" or "513 MiB → 24 MiB"."""
    written, unit = (sizes.format_size, "") if name == "bytes" else ("{:,.0f}".format, f" {name}")
    return " → ".join(written(one) if one == one else "unknown" for one in (base, other)) + unit


def list_limits(run: Results) -> list[str]:
    """List the caveats of a comparison of runs."""
    lines = [
        "The session is the unit of repetition: runs of a single day compare days as well as the change.",
        "Machine, configuration, libraries and code may differ, too; the table below lists all recorded differences.",
    ]
    if apart := int((run.get_comparisons()["note"] == "the data differ").sum()):
        lines.append(
            f"In {prose.format_count(apart, 'cell')} the two sides read different data, so times are not compared."
        )
    if where := describe_elsewhere(run.facts["apart"]):
        lines.append(
            f"The second side was measured {where}: differences between these cannot be separated from the change."
        )
    return lines


def _build_report(report: Report, sides: list[str], column: str) -> Report:
    """Derive the declaration of the comparison's page from a study's page, adding the run as the factor to compare.

    Args:
        report: declaration of the study's page.
        sides: names of both sides.
        column: column of `cells` with the measured values; its name ends with the unit.
    """
    metric, unit = report.metrics[0], column.rpartition("_")[2]
    value = Value(column, prose.capitalize_first(metric.title), unit)
    own = {"scaling": None, "contest": None, "along": "", "harness": (), "effective": (), "moved": (), "panels": ()}
    title = f"{report.title}: {sides[1]} vs {sides[0]}"
    factors = (Factor("run"), *report.factors)
    return replace(report, title=title, headline="run", factors=factors, values=(value,), unit="session", **own)


def _list_next_steps(run: Results) -> list[str]:
    if run.get_comparisons().empty:
        return ["Measure both sides with the same configuration: only cells with equal levels are compared."]
    of = run.facts["sessions_of"]
    due, again = run.facts["sessions_due"], f"each with its name ({code('sbench run --name <name>')})"
    if run.facts["apart"]:
        return [f"Measure both sides in turn on the same machine (A B B A …), {due} sessions of each, {again}."]
    if (lacking := due - min(of)) < 1:
        return []
    more = prose.format_count(lacking, "more session")
    side = "each side, in turn" if len(set(of)) == 1 else "the side that has fewer"
    return [f"Measure {more} of {side}, {again}, and name all of them."]


def _build_times_table(run: Results) -> Table:
    rows, column = run.get_comparisons(), run.report.values[0]
    if rows.empty:
        return Table("times", "", rows)
    cells = run.cells.set_index("cell")
    frame = _format_levels(
        run, rows, run.select_varying_factors(rows, [name for name in run.report.names if name != "run"])
    )
    for side, name in zip(("baseline", "contender"), run.facts["sides"], strict=True):
        own = cells.reindex(rows[f"{side}_cell"])[[column.column, f"{column.column}_low", f"{column.column}_high"]]
        frame[f"{name} / {column.unit}"] = [
            names.format_with_interval(*row, prose.format_number) for row in own.itertuples(index=False)
        ]
    ends = rows[["ratio", "ratio_low", "ratio_high"]].itertuples(index=False)
    frame = frame.assign(ratio=[names.format_ratio_with_interval(*row) for row in ends], verdict=rows["verdict"])
    if run.facts["apart"]:
        frame["these sessions alone"] = rows["of_sessions"]
    over = {"verdict": [_COLOURS.get(verdict, "") for verdict in rows["verdict"]]}
    caption = (
        f"{column.title}, median of all repeats of a side [95 % CI]; ratio of the sessions' medians, second side / "
        "first, with the exact 95 % CI of sessions if there are enough."
    )
    return Table("times", caption, frame, over=over, meaning="the second side is slower, or faster", numbers=rows)


def _format_levels(run: Results, rows: pd.DataFrame, factors: list[str]) -> pd.DataFrame:
    levels = {
        run.report.get_factor(name).title: [run.names.format_table_level(name, level) for level in rows[name]]
        for name in factors
    }
    return pd.DataFrame(levels, index=rows.index)


def _build_counts_table(counts: pd.DataFrame, run: Results) -> Table:
    there = [name for name in sessions.COUNTS if name in counts]
    rows = counts[counts[there].isin(_DIFFER).any(axis=1)] if there else counts[:0]
    varies = (
        run.select_varying_factors(counts, [name for name in run.report.names if name in counts]) if len(rows) else []
    )
    frame = _format_levels(run, rows, varies)
    base, other = run.facts["sides"]
    for name in there:
        both = rows[[f"{name}_base", f"{name}_other"]].astype(float).itertuples(index=False)
        frame[name] = [_format_change(name, *pair).removesuffix(f" {name}") for pair in both]
    caption = f"Requests and bytes that differ, {base} → {other}; medians."
    over = {name: [_COLOURS.get(outcome, "") for outcome in rows[name]] for name in there}
    return Table("counts", caption, frame, over=over, meaning="the second side has more, or fewer", numbers=counts)


def _build_summary_table(run: Results, counts: pd.DataFrame) -> Table:
    """Build the table for a page without figures: one row per cell, starting with cells whose counts differ."""
    if counts.empty:
        return Table("summary", "", counts)
    factors = [name for name in run.report.names if name in counts and name != "run"]
    rows = counts.merge(
        run.get_comparisons()[[*factors, "baseline_s", "contender_s", "ratio", "verdict"]], "left", factors
    )
    frame, there = (
        _format_levels(run, rows, run.select_varying_factors(rows, factors)),
        [name for name in _MOVED if name in rows],
    )
    for name in there:
        frame[name] = [
            _format_cell_count(name, *both) for both in rows[[f"{name}_base", f"{name}_other", name]].to_numpy()
        ]
    times = rows[["baseline_s", "contender_s"]].astype(float).itertuples(index=False)
    metric, unit = run.report.metrics[0].title, run.report.values[0].unit
    frame[f"{metric} / {unit}"] = [" → ".join(map(prose.format_number, both)) for both in times]
    frame["verdict"] = rows["verdict"].fillna("")
    first = rows[there].isin(_DIFFER).any(axis=1).sort_values(ascending=False, kind="stable").index
    caption = f"{' → '.join(run.facts['sides'])}: medians of each cell; cells with different counts first."
    return Table("summary", caption, frame.loc[first].reset_index(drop=True))


def _format_cell_count(name: str, base: float, other: float, outcome: str) -> str:
    """Format a cell's count with its outcome, as in "111 → 4 (fewer)"; an empty string if a side is unknown."""
    if pd.isna(base) or pd.isna(other):
        return ""
    return f"{_format_change(name, base, other).removesuffix(f' {name}')} ({outcome or 'not compared'})"


def _build_lone_table(tables: Path | str, run: Results) -> Table:
    table = read_table(Path(tables) / "alone.csv", ("only in", *run.report.names))
    varies = [name for name in table if name == "only in" or table[name].nunique() > 1]
    frame = table[varies].rename(columns=lambda name: run.report.get_factor(name).title)
    return Table("alone", "Cells of a single side.", frame, numbers=table)


def _build_differences_table(tables: Path | str) -> Table:
    path = Path(tables) / "differences.csv"
    table = read_table(path, ())
    table = table.astype(str).where(table.notna(), "")
    short = table.apply(lambda column: column.map(lambda text: text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"))
    caption = "Recorded differences of machines, configuration, libraries and code."
    return Table("differences", caption, short, numbers=table)
