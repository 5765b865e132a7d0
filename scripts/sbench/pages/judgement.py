"""Describe how a run was measured and judged, the results of its controls, and the limits of its data."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from sbench.design.study import ANEW, COPIED, REBUILT
from sbench.measure.judging import DEPENDENT
from sbench.pages import cell_tables, prose, references, words
from sbench.pages.markup import bold, code
from sbench.pages.results import Results
from sbench.pages.run_files import is_true
from sbench.probe.slowed import SHARES
from sbench.verdicts import HARNESS, MIN_BLOCKS, stats
from sbench.verdicts.looks import DECIDED, GIVEN_UP, OPEN, SAME
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

TOO_NOISY = 2  # detectable ratio above which a run is too noisy
# The ratio that an undecided comparison should detect, and the most repeats to propose for it.
WORTHWHILE, MOST_REPEATS = 1.1, 40
SERIAL = 0.01  # p below which blocks count as dependent on the blocks before them

TROUBLES = ("invalid", "edited", "failed")


def describe_control(verdicts: pd.DataFrame) -> str:
    """Describe the verdicts on A/A pairs, which measure the same cell twice under two names."""
    rows = _select_controls(verdicts)
    rows = rows[~rows["control"].isin([*SHARES, *ANEW])]
    if rows.empty:
        return words.fill("no control")
    total, parts = rows["metric"] == "total", []
    for chosen, name in ((rows[total], "alarms of the total"), (rows[~total], "alarms of parts")):
        judged = chosen["verdict"][chosen["verdict"].isin(JUDGED)]
        if len(judged):
            parts.append(words.fill(name, alarms=int(judged.isin(ORDERED).sum()), of=len(judged)))
    cells = prose.format_count(rows["contender"].nunique(), "cell")
    if not parts:
        return words.fill("control unjudged", cells=cells)
    return words.fill("control", cells=cells, alarms=prose.format_list(parts))


def describe_slowed(facts: dict) -> str:
    """Describe how many deliberate slowdowns were detected, over all runs on this machine.

    The text is empty if the run lacks slowed controls.
    """
    counts = facts.get("controls") or {}
    levels = sorted(SHARES.keys() & counts.keys(), key=SHARES.get, reverse=True)
    if not levels:
        return ""
    names = [_format_percent(SHARES[level]) for level in levels]
    if not any(counts[level][1] for level in levels):
        return words.fill("slowed unjudged", shares=prose.format_list(names), outcome=words.fill("too few to judge"))
    detected = [
        words.fill("slowed detected", percent=name, detected=counts[level][0], of=counts[level][1])
        for name, level in zip(names, levels, strict=True)
    ]
    alarms, judged = counts["alarms"]
    bound = (
        words.fill("alarms bound", percent=_format_percent(stats.compute_upper_bound(alarms, judged))) if judged else ""
    )
    shares = [_format_percent(counts["reached"][level]) for level in levels if level in counts["reached"]]
    reached = words.fill("waits", shares=prose.format_list(shares)) if shares else ""
    fields = {"shares": ", ".join(detected), "alarms": alarms, "of": judged, "bound": bound, "reached": reached}
    return words.fill("slowed", **fields, runs=prose.format_count(counts["runs"], "run"))


def describe_further_twins(run: Results) -> list[str]:
    """Describe, in one line each, the verdicts on twins with another copy of the data or another build."""
    rows, counts = _select_controls(run.verdicts), run.facts.get("controls") or {}
    lines = []
    for row in rows[rows["control"].isin(ANEW)].to_dict("records"):
        outcome, ratio, runs = words.get_outcome(row["verdict"], run.same_percent), "", ""
        if math.isfinite(row["ratio"]):
            ratio = words.fill("times", ratio=row["ratio"], low=row["ratio_low"], high=row["ratio_high"])
        if row["control"] in counts:
            differing, judged = counts[row["control"]]
            runs = words.fill("in runs", differing=differing, runs=prose.format_count(judged, "run"))
        fields = {
            "control": prose.capitalize_first(ANEW[row["control"]]),
            "outcome": outcome,
            "ratio": ratio,
            "runs": runs,
        }
        lines.append(words.fill("anew", **fields))
    return lines


def _describe_kept(run: Results) -> list[str]:
    """Warn that all blocks used the same copy of the data or the same build, which limits the verdicts (METHOD 6)."""
    rows = run.verdicts
    if run.report.unit != "block" or rows.empty or not rows["verdict"].isin(JUDGED).any():
        return []
    kept = {COPIED: "kept data", **({REBUILT: "kept build"} if "library" in run.cells else {})}
    kept = [words.fill(what) for level, what in kept.items() if level not in set(_select_controls(rows)["control"])]
    return [words.fill("kept", parts=" and ".join(kept))] if kept else []


def _describe_unseen_stalls(run: Results) -> list[str]:
    """Describe how frequent stalls could be without being observed in comparisons judged the same (METHOD 17)."""
    rows = run.get_comparisons()
    blocks = rows["blocks"][rows["verdict"] == Outcome.SAME] if run.report.unit == "block" and len(rows) else []
    return (
        [words.fill("stalls", percent=f"{100 * stats.compute_unseen_share(int(min(blocks))):.0f}")]
        if len(blocks)
        else []
    )


def find_missed_control(verdicts: pd.DataFrame) -> dict | None:
    """Return the comparison with the most slowed control if it was judged but not found slower; otherwise None."""
    if verdicts.empty or "control" not in verdicts:
        return None
    level = max(SHARES, key=SHARES.get)
    rows = verdicts[(verdicts["role"] == "control") & (verdicts["control"] == level) & (verdicts["metric"] == "total")]
    missed = rows[~rows["verdict"].isin((Outcome.SLOWER, Outcome.TOO_FEW))].to_dict("records")
    return missed[0] if missed else None


def find_insensitivity(run: Results) -> str:
    """Warn that the run cannot detect small differences, if it did not detect its most slowed control.

    The limit is the detectable ratio of that comparison. The text is empty if the run detected the control, or if it
    reports no effect below the limit and leaves no comparison undecided.
    """
    control = find_missed_control(run.verdicts)
    if not control or not math.isfinite(control.get("detectable_ratio", math.nan)):
        return ""
    rows, limit = run.get_comparisons(), math.log(control["detectable_ratio"])
    shown = rows[rows["verdict"].isin(ORDERED)]
    small = int((np.log(shown["ratio"].astype(float)).abs() < limit).sum())
    if not small and not (rows["verdict"] == Outcome.NO_EVIDENCE).any():
        return ""
    many = words.fill("one small effect" if small == 1 else "small effects", many=small)
    arm = _name_slowed_arm(control, run)
    others, remedy = words.fill("in range", many=many) if small else "", _describe_remedy(control)
    if control["detectable_ratio"] > TOO_NOISY:
        times = prose.format_number(control["detectable_ratio"])
        return words.fill("too noisy", arm=arm, times=times, others=others, remedy=remedy)
    percent = _format_percent(control["detectable_ratio"] - 1)
    return words.fill("insensitive", arm=arm, percent=percent, others=others, remedy=remedy)


def _name_slowed_arm(control: Mapping, run: Results) -> str:
    """Name the cell that a slowed control repeats, by its levels of the factors that vary in the run and its place."""
    cells = run.cells[run.cells["cell"] == control["baseline"]]
    if cells.empty:
        return str(control["baseline"])
    row = cells.iloc[0].to_dict() | {"state": run.get_cache_states(cells).iloc[0]}
    varying = [name for name in run.report.names if name not in run.report.places]
    levels = run.names.format_levels(row, run.select_varying_factors(run.measured, varying))
    return ", ".join(filter(None, [levels, run.names.format_place(row)]))


def count_needed_blocks(blocks: float, detectable_ratio: float, ratio: float = WORTHWHILE) -> float:
    """Return how many blocks are needed to detect `ratio` if `blocks` blocks detect `detectable_ratio` (METHOD 5)."""
    return blocks * max(1, math.log(detectable_ratio) / math.log(ratio)) ** 2


def _describe_remedy(control: Mapping) -> str:
    needed = math.ceil(count_needed_blocks(control["blocks"], control["detectable_ratio"]))
    # The control was missed, even if it is larger than the detectable ratio, so that more blocks are needed than now.
    needed = max(needed, int(control["blocks"]) + 2)
    if needed > MOST_REPEATS:
        return words.fill("steadier")
    setting = "most_repeats" if "most_repeats" in control else "repeats"
    return words.fill("more blocks", needed=needed, repeats=code(setting))


def _select_controls(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Select the comparisons of cells with their controls. Add the column `control` to older tables that lack it."""
    rows = verdicts[verdicts["role"] == "control"] if len(verdicts) else verdicts
    return rows.assign(control=rows.get("control", ""))


def _format_percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def describe_families(verdicts: pd.DataFrame) -> list[str]:
    """Describe how often verdicts are expected to be due to chance alone, given the number of families of a report."""
    rows = verdicts[(verdicts["role"] != "control") & verdicts["verdict"].isin(JUDGED)] if len(verdicts) else verdicts
    if rows.empty:
        return []
    deciding = rows["role"] == "decides"
    counts = [len(part.groupby(["factor", "metric"])) for part in (rows[deciding], rows[~deciding])]
    # Judging again after adding blocks increases the probability of false verdicts (METHOD 5).
    looks = rows.get("looks", pd.Series(1, rows.index)).astype(float).max()
    level = 100 * (stats.MOST if looks > 1 and "look" not in rows else stats.LEVEL)
    parts = [
        words.fill(what, many=count, percent=f"{min(level * count, 100):.3g}")
        for count, what in zip(counts, ("families that decide", "families of parts"), strict=True)
        if count
    ]
    return [words.fill("families", percent=f"{level:.2g}", parts=prose.format_list(parts))]


def describe_looks(run: Results) -> str:
    """Describe how many comparisons are decided in a run that measures until it can decide.

    The text is empty if the number of repeats is fixed.
    """
    rows = run.get_comparisons()
    if "most_repeats" not in rows or rows.empty:
        return ""
    states, most = rows["decision"].value_counts(), int(rows["most_repeats"].max())
    decided, given_up, still = (
        sum(int(states.get(name, 0)) for name in names) for names in ((DECIDED, SAME), (GIVEN_UP,), (OPEN,))
    )
    counts = {"given up": given_up, "not comparable": len(rows) - decided - given_up - still, "still open": still}
    parts = [words.fill("decided of", decided=decided, comparisons=prose.format_count(len(rows), "comparison"))]
    parts += [words.fill(name, many=many) for name, many in counts.items() if many]
    return words.fill("looks taken", blocks=int(rows["blocks"].max()), most=most, parts=prose.format_list(parts))


def get_verdict_meanings(percent: float) -> dict[str, str]:
    """Return the explanation of each verdict, where differences up to `percent` count as the same."""
    return {verdict: meaning.format(percent=percent) for verdict, meaning in words.MEANINGS.items()}


def describe_trouble(cells: pd.DataFrame, blocks: bool = True) -> list[str]:
    """Describe how many repeats are invalid, edited or failed.

    If repeats are `blocks`, also describe how many cells have too few of them for a verdict.
    """
    lines = []
    for kind in TROUBLES:
        counts = cells[kind] - (cells["edited"] if kind == "invalid" else 0)
        if many := int(counts.sum()):
            be, been = ("is", "was") if many == 1 else ("are", "were")
            cells_of = prose.format_count(int((counts > 0).sum()), "cell")
            fields = {"repeats": prose.format_count(many, "repeat"), "cells": cells_of, "be": be, "been": been}
            lines.append(words.fill(kind, **fields))
    if blocks and (few := int(((cells["n"] > 0) & (cells["n"] < MIN_BLOCKS) & (cells["control"] == "")).sum())):
        fields = {"cells": prose.format_count(few, "cell"), "have": "has" if few == 1 else "have", "needed": MIN_BLOCKS}
        lines.append(words.fill("few repeats of cells", **fields))
    return lines


def describe_method(run: Results, own: Iterable[str]) -> list[str]:
    """Describe briefly how the run was measured and judged. `own` contains additional sentences from the study."""
    if run.verdicts.empty:
        return [words.fill("method of values")]
    title, meanings = run.report.metrics[0].title, get_verdict_meanings(run.same_percent).items()
    if "published" in run.facts:
        own = [words.fill("method of others")]
    return [
        *_describe_order(run.facts.get("order") or {}),
        *own,
        *(f"{line}." for line in run.facts.get("on_purpose") or []),
        words.fill("method of ratios"),
        *(words.fill("method of verdicts", verdict=bold(verdict), meaning=meaning) for verdict, meaning in meanings),
        *describe_families(run.verdicts),
        words.fill("method of metrics", title=title),
        words.fill("method of repeats"),
    ]


def list_explanations(run: Results, factor: str, explanations: Mapping[str, str]) -> list[str]:
    """Return a sentence for each level of a factor that occurs in the run and has an explanation."""
    there = set(run.cells[factor])
    return [f"{code(level)}: {explanation}." for level, explanation in explanations.items() if level in there]


def _describe_order(order: dict) -> list[str]:
    if not order:
        return []
    repeats, complete, orders, overlapping = (order[key] for key in ("repeats", "complete", "orders", "overlapping"))
    # Facts of earlier versions do not list them.
    full = len(order.get("full", range(repeats)))
    fields = {"repeats": prose.format_count(full, "repeat"), "complete": complete, "more": repeats - full}
    every = words.fill("each cell in each" if complete == full else "each cell in some", **fields)
    some = words.fill("some cells in others", **fields) if full < repeats else ""
    if not full:
        every, some = words.fill("each cell in some", **fields), words.fill("no full block")
    how = words.fill("in few orders", orders=prose.format_count(orders, "order")) if repeats > 1 else ""
    how = words.fill("in own orders") if orders > 1 and orders >= repeats - 1 else how
    beside = words.fill("time unknown") if overlapping is None else words.fill("none overlap")
    beside = words.fill("overlap", records=prose.format_count(overlapping, "record")) if overlapping else beside
    return [f"{prose.capitalize_first(every)}{how}; {beside}.{some}"]


def _describe_dependence(verdicts: pd.DataFrame) -> list[str]:
    """Warn if consecutive blocks are correlated, because verdicts assume that they are independent (METHOD 17)."""
    p = verdicts["serial_p"].min() if "serial_p" in verdicts else math.nan
    if not p < SERIAL:
        return []
    later = int(verdicts["note"].fillna("").str.contains(DEPENDENT).sum())
    some = words.fill("serial looks", many=prose.format_count(later, "verdict"), s="s" * (later == 1)) if later else ""
    return [words.fill("serial", p=f"{p:.2g}", some=some)]


def list_limits(run: Results, own: Iterable[str] = ()) -> list[str]:
    """Describe the limits of a run's data. `own` contains additional limits from the study."""
    cells = run.measured
    lines = [f"{prose.capitalize_first(str(line).rstrip('.'))}." for line in run.facts.get("limits") or []]
    if (cells["cache"] == "cold").any():
        lines.append(words.fill("cold"))
    lines += _describe_dependence(run.verdicts)
    if sessions := len(run.facts.get("sessions") or []) if run.report.unit == "block" else 0:
        lines.append(words.fill("of sessions", sessions=prose.format_count(sessions, "session")))
    share, decides = cell_tables.compute_harness_share(cells), run.report.metrics[0].title
    counts = {
        "odd cache": cell_tables.has_odd_cache_state(cells),
        "oversubscribed": is_true(cell_tables.get_column(cells, "oversubscribed")),
        "harness": share > HARNESS,
    }
    fields = {"percent": HARNESS, "most": f"{share.max():.0f}", "title": decides}
    lines += [
        words.fill(name, cells=prose.format_count(int(those.sum()), "cell"), **fields)
        for name, those in counts.items()
        if those.any()
    ]
    unmade, lacking = (int(those.sum()) for those in run.find_unmade(run.get_comparisons()))
    comparisons = {"unequal": run.unequal_count, "untried": run.untried_count, "unmade": unmade, "lacking": lacking}
    files = {"again": code("sbench run --again"), "table": code("verdicts.csv")}
    lines += [
        words.fill(
            name,
            many=prose.format_count(many, "comparison"),
            are="is" if many == 1 else "are",
            s="s" * (many == 1),
            **files,
        )
        for name, many in comparisons.items()
        if many
    ]
    lines += references.list_limits(run)
    lines += _describe_unseen_stalls(run)
    # Published studies were measured by others, and a comparison of runs lists the limits of each run.
    lines += [] if {"published", "sides"} & run.facts.keys() else _describe_kept(run)
    if run.withheld:
        lines.append(words.fill("withheld", many=prose.format_count(len(run.withheld), "statement")))
    if len(run.verdicts) and not run.is_checked and run.report.unit == "block" and "sides" not in run.facts:
        lines.append(words.fill("unchecked"))
    return [*lines, *own, *describe_trouble(run.cells, run.report.unit == "block"), *run.absent]
