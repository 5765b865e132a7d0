"""Build a page's explanations of the largest effects and its table of the fastest configurations."""

import numpy as np
import pandas as pd

from sbench.pages import costs, names, prose, words
from sbench.pages.findings import Finding
from sbench.pages.headline import Sentence, list_asked_factors
from sbench.pages.markup import bold
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.pages.sentences import get_modelled_ratios, name_sides
from sbench.pages.statements import Cost, Counts
from sbench.verdicts import model
from sbench.verdicts.outcomes import ORDERED

MIB = 2**20
_CLOSE = 0.005  # costs that differ by less count as equal
REASONS = 3  # maximum on a page; the tables cover all effects


def list_reasons(results: Results, findings: list[Finding]) -> list[Sentence]:
    """Explain the largest effects by the differences in request and byte counts, which are exactly reproducible."""
    cells = results.cells.set_index("cell")
    if "requests" not in cells:
        return []
    moved = cells.get("bytes_delivered", cells["requests"] * np.nan).fillna(cells.get("bytes_offered", np.nan))
    cells = cells.reindex(columns=["requests", "opens", "connections"]).assign(moved=moved / MIB)
    largest = sorted((one for one in findings if one.verdict in ORDERED), key=lambda finding: -finding.size)
    factor = list_asked_factors(results)[0]
    lines = [(one, *_describe_requests(one, cells, results)) for one in largest]
    lines = [line for line in lines if line[1]]
    # The explanation for the headline comes first.
    first = next((one for one, *_ in lines if one.factor == factor), None)
    lines = sorted(lines, key=lambda line: line[0] is not first)[:REASONS]
    explained = [one for one, *_ in lines]
    reasons: list[Sentence] = [
        (_add_condition(text, one, explained), (one.statement, counts)) for one, text, counts in lines
    ]
    return reasons + describe_costs(results, explained)


def _add_condition(text: str, finding: Finding, explained: list[Finding]) -> str:
    """Begin a sentence with the condition of its finding, and with its place if the explained findings have several."""
    place = finding.where if len({one.where for one in explained}) > 1 else ""
    condition = ", ".join(filter(None, [place, finding.under]))
    return prose.capitalize_first(": ".join(filter(None, [condition, text])))


def describe_costs(results: Results, explained: list[Finding]) -> list[Sentence]:
    """Return a sentence on the costs of the first finding whose sides differ in them, if there is one."""
    cells = results.cells.set_index("cell")
    usd = costs.compute_costs(results, results.cells).set_axis(cells.index)
    for finding in explained:
        new, old = (usd.reindex(list(finding.rows[f"{side}_cell"])) for side in ("contender", "baseline"))
        if not (new.isna().any() or old.isna().any() or np.allclose(new, old, rtol=_CLOSE, atol=0)):
            text, cost = _write_costs(finding, new, old, cells, results)
            return [(_add_condition(text, finding, explained), (cost,))]
    return []


def _write_costs(
    finding: Finding, usd_of_new: pd.Series, usd_of_old: pd.Series, cells: pd.DataFrame, results: Results
) -> tuple[str, Cost]:
    usd, rates = pd.concat([usd_of_new, usd_of_old]).groupby(level=0).first(), costs.find_rates(results)
    rows = cells.loc[usd.index]
    new, old = name_sides(finding.rows.iloc[0], results)
    text = words.fill(
        "costs",
        work="writes" if rows.get("operation", rows["store"]).eq("write").all() else "reads",
        new=new,
        old=old,
        of_new=prose.format_span(usd_of_new, prose.format_number),
        of_old=prose.format_span(usd_of_old, prose.format_number),
        prices=costs.format_prices(rates[name] for name in rows["store"].unique()),
    )
    stated = [
        (cell, float(usd[cell]), tuple((name, costs.READS * each) for name, each in rates[store].usd.items() if each))
        for cell, store in rows["store"].items()
    ]
    return text, Cost(tuple(stated))


def _describe_requests(finding: Finding, cells: pd.DataFrame, results: Results) -> tuple[str, Counts | None]:
    """Describe the requests that each side of a finding sent.

    Returns:
        a sentence and the counts that it states. They are an empty string and None if the counts are unknown, or if the
            sides do not differ and the model does not apply.
    """
    names_of = [tuple(finding.rows[f"{side}_cell"]) for side in ("contender", "baseline")]
    both = [cells.reindex(list(side)).astype(float) for side in names_of]
    if any(side[["requests", "moved"]].isna().any(axis=None) for side in both):
        return "", None
    counts = [
        name
        for name in ("requests", "opens", "connections")
        if not np.allclose(*(one[name] for one in both), equal_nan=True)
    ]
    new, old = name_sides(finding.rows.iloc[0], results)
    why = _describe_model(finding.rows, old, results)
    if not why and not counts and np.allclose(*(side["moved"] for side in both), rtol=0.01):
        return "", None
    # Always print requests with bytes; print opens and connections only if they differ.
    shown = [name for name in ("opens", "connections") if name in counts and not both[0][name].isna().any()]
    texts = [", ".join([_format_requests(side), *(_format_count(side[name], name) for name in shown)]) for side in both]
    spans = tuple(
        (column, *((float(factor * side[name].min()), float(factor * side[name].max())) for side in both))
        for column, name, factor in (("requests", "requests", 1), ("bytes", "moved", MIB), *((n, n, 1) for n in shown))
    )
    fields = {"new": new, "of_new": texts[0], "old": old, "of_old": texts[1], "why": f" {why}" if why else ""}
    return words.fill("moved", **fields), Counts(tuple(names_of), spans)


def _format_requests(side: pd.DataFrame) -> str:
    size = prose.format_span(side["moved"], prose.format_number)
    return words.fill("moved by side", requests=_format_count(side["requests"], "requests"), size=size)


def _format_count(values: pd.Series, noun: str) -> str:
    text = prose.format_span(values, "{:,.0f}".format)
    return f"{text} {noun.removesuffix('s') if text == '1' else noun}"


def _describe_model(rows: pd.DataFrame, old: str, results: Results) -> str:
    """Compare the measured time ratio with the ratio that the model predicts from requests, bytes, CPU time and opens.

    Return an empty string if a prediction is missing. `old` is the name of the baseline.
    """
    ratios, measured = get_modelled_ratios(rows, results), rows["ratio"].astype(float)
    if ratios.isna().any():
        return ""
    spans = {"model": prose.format_span(ratios), "measured": prose.format_span(measured), "old": old}
    if model.is_explained(ratios, measured).all():
        return words.fill("as measured", **spans)
    same_way = model.has_direction(ratios, measured)
    if same_way.all():
        return words.fill("same way", **spans)
    some = words.fill("in comparisons", many=(~same_way).sum(), of=len(rows)) if same_way.any() else ""
    return words.fill("unexplained", **spans, strong=bold(words.fill("by neither")) + some)


def build_best_table(results: Results) -> Table:
    """Build the table of the fastest configuration for each storage location, cache state and kind of work.

    The levels of the given factors (`Factor.given`), such as the data to read, define the work. Times are in seconds.
    """
    report, cells = results.report, results.measured
    given = [factor.name for factor in report.factors if factor.given]
    places = [name for name in results.situation_factors if name not in given]
    if cells.empty or not given:
        return Table("best", "", pd.DataFrame())
    cells = cells[cells["total_s"].notna()].assign(state=results.get_cache_states(cells))
    keys = [*places, "state", *given]
    varies = [name for name in report.names if cells[name].nunique() > 1]
    side = [name for name in varies if name not in keys and report.get_factor(name).apart][:1]
    # Rank cells with failures last: reads that survive a fault do not represent the reads that failed.
    ranked = cells.sort_values("total_s", kind="stable").sort_values("failed", key=lambda many: many > 0, kind="stable")
    fastest = ranked.drop_duplicates([*keys, *side])
    fastest = results.names.sort_rows(fastest.sort_values("total_s", kind="stable"), keys).reset_index(drop=True)
    rows = fastest.to_dict("records")
    frame = pd.DataFrame(
        {"": [results.names.format_place({name: row[name] for name in [*places, "state"]}) for row in rows]}
    )
    for name in [*given, *side, *(name for name in varies if name not in (*keys, *side))]:
        if name in varies:
            frame[name] = [results.names.format_levels(row, [name]) for row in rows]
    frame, common = _split_shared_columns(frame, results)
    frame = frame.rename(columns=lambda name: report.get_factor(name).title)
    if "" in frame:
        frame[""] = frame[""].map(prose.capitalize_first)
    ends = [f"{report.time_column}{end}" for end in ("", "_low", "_high")]
    frame["time / s"] = [
        names.format_with_interval(*(row[end] for end in ends), prose.format_number) + _format_failures(row)
        for row in rows
    ]
    without = words.fill("best without failures") if cells["failed"].any() else ""
    caption = words.fill("table of best", title=report.metrics[0].title, without=without, common=common)
    return Table("best", caption, frame, numbers=fastest[["cell", *report.names, "n", *ends]])


def _format_failures(row: dict) -> str:
    attempts = row["n"] + row["failed"]
    return words.fill("failed attempts", failed=row["failed"], attempts=attempts) if row["failed"] else ""


def _split_shared_columns(frame: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, str]:
    """Remove each column that has the same level in all rows.

    Returns:
        the remaining columns, and sentences that state the removed levels.
    """
    shared: dict[str, list[str]] = {}
    for name in list(frame) if len(frame) > 1 else []:
        levels, only = frame.loc[frame[name] != "", name].unique(), results.report.get_factor(name).only
        everywhere = (frame[name] != "").all()
        if len(levels) == 0 or (len(levels) == 1 and (everywhere or only)):
            whose = ", ".join(results.names.format_condition(other, of) for other, of in only.items())
            shared.setdefault("In all rows" if everywhere else prose.capitalize_first(whose), []).extend(levels)
            frame = frame.drop(columns=name)
    return frame, "".join(f" {where}: {', '.join(levels)}." for where, levels in shared.items() if levels)
