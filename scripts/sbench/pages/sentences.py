"""Write sentences about comparisons: their outcome, effect, evidence and levels."""

import itertools

import numpy as np
import pandas as pd

from sbench.measure import families
from sbench.measure.judging import DEPENDENT
from sbench.pages import judgement, names, prose, words
from sbench.pages.markup import bold
from sbench.pages.results import Results
from sbench.verdicts import model, stats
from sbench.verdicts.outcomes import ORDERED, Outcome

# The (level, outcome) pairs of a series of comparisons, in order.
Steps = tuple[tuple[str, str], ...]


def write_finding(rows: pd.DataFrame, steps: Steps, conditions: str, results: Results) -> str:
    """Describe series of comparisons with the same outcomes in a sentence, with the evidence and the conditions."""
    report, along = results.report, results.report.along
    blocks = prose.format_span(rows["blocks"], "{:.0f}".format)
    comparisons = len(rows) // len(steps)
    evidence = f"{blocks} {report.unit}{'' if blocks == '1' else 's'}"
    evidence = words.fill("of comparisons", many=comparisons, evidence=evidence) if comparisons > 1 else evidence
    evidence += _describe_spikes(rows, *name_sides(rows.iloc[0], results)) + _describe_failures(
        rows, *name_sides(rows.iloc[0], results)
    )
    evidence += _describe_reason(rows, results)
    evidence += f"; {DEPENDENT}" if rows["note"].fillna("").str.contains(DEPENDENT).any() else ""
    under = f", {conditions}" if conditions else ""
    new, old = name_sides(rows.iloc[0], results)
    metric = report.get_metric(rows["metric"].iloc[0])
    # For other quantities than times, the names of the sides already contain the metric's title.
    of = f"{prose.capitalize_first(metric.title)}: " if metric.is_time and metric != report.metrics[0] else ""
    stretches = [
        (verdict, [level for level, _ in alike])
        for verdict, alike in itertools.groupby(steps, key=lambda step: step[1])
    ]
    if len(stretches) == 1:
        at = f", {write_stretch(stretches[0][1], stretches[0][1], results)}" if len(steps) > 1 else ""
        return f"{of}{write_outcome(rows, results, new, old, under + at)} ({evidence})."
    texts = []
    for verdict, levels in stretches:
        part = rows[rows[along].isin(levels)].assign(verdict=verdict)
        texts.append(f"{write_stretch(levels, [level for level, _ in steps], results)} {write_outcome(part, results)}")
    decided = [(level, verdict) for level, verdict in steps if verdict in ORDERED]
    # Write the unit of a number only once.
    write = results.names.format_table_level if report.get_factor(along).unit else results.names.format_level
    turns = [
        words.fill("turn", before=write(along, before), after=results.names.format_level(along, after))
        for (before, verdict), (after, other) in itertools.pairwise(decided)
        if verdict != other
    ]
    turn = f" {bold(words.fill('turns', where=prose.format_list(turns)))}" if turns else ""
    text = words.fill("course", new=new, old=old, under=under, steps="; ".join(texts), evidence=evidence, turn=turn)
    return f"{of}{text}"


def write_outcome(rows: pd.DataFrame, results: Results, new: str = "", old: str = "", under: str = "") -> str:
    """Write a verdict with its ratio and confidence interval.

    Args:
        rows: comparisons with this verdict.
        results: results of the study.
        new: name of the contender; without it, the result is part of a sentence.
        old: name of the baseline.
        under: conditions.
    """
    low, high = rows["ratio_low"].min(), rows["ratio_high"].max()
    metric = results.report.get_metric(rows["metric"].iloc[0])
    # Only the primary metric is bold.
    strong = bold if metric == results.report.metrics[0] else str
    nothing = words.get_outcome(Outcome.NO_EVIDENCE)
    against = words.fill("against", new=new, old=old, under=under) if new else ""
    match rows["verdict"].iloc[0]:
        case Outcome.FASTER | Outcome.SLOWER:
            effect = get_effect(rows, results)
            text = f"{strong(effect.text)} {effect.interval}"
            return words.fill("order", new=new, effect=text, than=effect.than, old=old) + under if new else text
        case Outcome.SAME:
            same = strong(words.get_outcome(Outcome.SAME, results.same_percent))
            ratio = names.format_ratio_with_interval(rows["ratio"].median(), low, high)
            text = words.fill("both the same" if new else "step the same", new=new, old=old, same=same, ratio=ratio)
            return text + under
        case Outcome.NO_EVIDENCE if new:
            return against + words.fill("no evidence", nothing=strong(nothing), doubt=_describe_doubt(rows))
        case Outcome.NO_EVIDENCE:
            return words.fill("step no evidence", nothing=bold(nothing), doubt=_describe_doubt(rows))
        case Outcome.TOO_FEW:
            ratios = (
                words.fill("ratios", ratios=prose.format_span(rows["ratio"])) if rows["ratio"].notna().any() else ""
            )
            return f"{against}{strong(words.get_outcome(Outcome.TOO_FEW))}{ratios}"
        case _:
            notes = dict.fromkeys(part for note in rows["note"] for part in str(note).split("; ") if part)
            why = f" ({'; '.join(notes)})" if notes else ""
            return f"{against}{strong(words.get_outcome(Outcome.NOT_COMPARABLE))}{why}"


def get_effect(rows: pd.DataFrame, results: Results) -> names.Effect:
    """Describe the effect of comparisons that all have the same direction.

    It begins with "at least" if the harness's overhead makes it a lower bound.
    """
    metric, factor = (
        results.report.get_metric(rows["metric"].iloc[0]),
        results.report.get_factor(rows["factor"].iloc[0]),
    )
    ends = rows["ratio_low"].min(), rows["ratio_high"].max()
    is_bound = "harness_percent" in rows and bool(rows["harness_percent"].notna().any())
    return names.describe_effect(rows["ratio"], *ends, factor.plural, metric.is_time, is_bound)


def _describe_spikes(rows: pd.DataFrame, new: str, old: str) -> str:
    """Describe blocks in which one side took much longer than usual, because medians hide such blocks."""
    counts = {
        who: pd.to_numeric(rows.get(column, pd.Series(0, rows.index))).fillna(0)
        for who, column in ((new, "slow_contender"), (old, "slow_baseline"))
    }
    slow = rows[sum(counts.values()) > 0]
    if slow.empty:
        return ""
    times = prose.format_span(slow["slow_ratio"], lambda ratio: f"{prose.format_ratio(ratio)}×")
    blocks = f"{rows['blocks'].sum():.0f}"
    if all(count.sum() for count in counts.values()):
        # The ratio covers both sides together.
        either = sum(count.sum() for count in counts.values())
        return words.fill("slow blocks of both", slow=f"{either:.0f}", blocks=blocks, times=times)
    who = next(who for who, count in counts.items() if count.sum())
    return words.fill("slow blocks", who=who, slow=f"{counts[who].sum():.0f}", blocks=blocks, times=times)


def _describe_failures(rows: pd.DataFrame, new: str, old: str) -> str:
    """Describe the failed attempts of each side, with the exact confidence interval of the failure rate (METHOD 15).

    Return an empty string if none failed.
    """
    texts, any_failed = [], False
    for who, side in ((new, "contender"), (old, "baseline")):
        if f"attempts_{side}" not in rows:
            return ""
        cells = rows.drop_duplicates(f"{side}_cell")
        failed, attempts = (int(cells[f"{what}_{side}"].sum()) for what in ("failed", "attempts"))
        of = stats.estimate_share(failed, attempts)
        ends = {"low": 100 * of.low, "high": 100 * of.high}
        texts.append(words.fill("failures", who=who, failed=failed, attempts=attempts, **ends))
        any_failed |= failed > 0
    return words.fill("failed sides", sides=", ".join(texts)) if any_failed else ""


def get_modelled_ratios(rows: pd.DataFrame, results: Results) -> pd.Series:
    """Return the time ratio that the model predicts for each comparison, or NaN if a prediction is missing."""
    seconds = results.cells.set_index("cell").get("modelled_s", pd.Series(dtype=float)).astype(float)
    new, old = (seconds.reindex(rows[f"{side}_cell"]).to_numpy() for side in ("contender", "baseline"))
    return pd.Series(new / old, index=rows.index)


def _describe_reason(rows: pd.DataFrame, results: Results) -> str:
    """Describe whether requests and bytes explain the decided comparisons on the primary metric.

    Return an empty string if that is unknown.
    """
    decided = rows[rows["verdict"].isin(ORDERED) & (rows["metric"] == results.report.metrics[0].name)]
    ratios = (
        get_modelled_ratios(decided, results) if {"baseline_cell", "contender_cell"} <= set(decided) else pd.Series()
    )
    if ratios.empty or ratios.isna().any():
        return ""
    measured = decided["ratio"].astype(float)
    if model.is_explained(ratios, measured).all():
        return words.fill("explained")
    same_way = model.has_direction(ratios, measured)
    if same_way.all():
        return words.fill("same direction")
    some = words.fill("in decided", many=(~same_way).sum(), of=len(decided)) if same_way.any() else ""
    return words.fill("not explained", some=some)


def _describe_doubt(rows: pd.DataFrame) -> str:
    """Describe the ratios, the detectable difference, and why an interval that excludes 1 may not be decisive."""
    ratios = names.format_ratio_with_interval(rows["ratio"].median(), rows["ratio_low"].min(), rows["ratio_high"].max())
    seen = write_detectable(rows)
    doubts = [
        words.fill("ratio", ratio=prose.format_span(rows["ratio"]) if seen else ratios),
        *([seen] if seen else []),
    ]
    lost = rows["note"].fillna("").str.contains(families.LOST)
    doubts += [families.LOST] if lost.any() else []
    if beyond := int((((rows["ratio_low"] > 1) | (rows["ratio_high"] < 1)) & ~lost).sum()):
        some = words.fill("exclude", many=beyond, of=len(rows), s="s" * (beyond == 1))
        which = words.fill("excludes") if len(rows) == 1 else some
        doubts.append(words.fill("corrected", which=which))
    return "; ".join(doubts)


def write_detectable(rows: pd.DataFrame) -> str:
    """Write which differences the run could have detected; return an empty string if this is unknown."""
    ratios = rows["detectable_ratio"][np.isfinite(rows["detectable_ratio"])]
    if ratios.empty:
        return ""
    if ratios.min() > judgement.TOO_NOISY:
        return words.fill("noisy")
    return words.fill("detectable", times=prose.format_span(ratios, lambda ratio: f"{prose.format_ratio(ratio)}×"))


def name_sides(row: pd.Series, results: Results) -> tuple[str, str]:
    """Return the contender and the baseline as subjects of a sentence.

    A shared prefix "HDF5 " is omitted from the baseline.
    """
    new, old = results.names.format_pair(row, results.names.format_subject)
    metric = results.report.get_metric(row["metric"])
    return (new if metric.is_time else f"{metric.title} {new}"), old


def write_stretch(levels: list[str], of: list[str], results: Results) -> str:
    """Describe which part of the levels `of` neighbouring `levels` cover, such as "up to 4 MiB" or "at 1 MiB"."""
    along, factor = results.report.along, results.report.get_factor(results.report.along)
    first, last = (results.names.format_level(along, level) for level in (levels[0], levels[-1]))
    noun = factor.title
    if len(levels) == 1:
        which = "at size"
    elif len(levels) == len(of):
        which = "at both" if len(of) == 2 else "at all sizes"
    elif levels[0] == of[0]:
        which = "up to size"
    else:
        which = "from size on" if levels[-1] == of[-1] else "between sizes"
    if factor.unit and which in ("at both", "at all sizes", "between sizes"):
        # Write the unit of a number only once: "from 1 to 4 clients", "at every number of clients from 1 to 4".
        first, bare = (results.names.format_table_level(along, level) for level in (levels[0], levels[-1]))
        noun, last = f"number of {prose.make_plural(factor.unit)}", bare if which == "at all sizes" else last
    return words.fill(which, first=first, last=last, noun=noun)
