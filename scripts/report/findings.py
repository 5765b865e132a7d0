"""Verdicts in sentences: comparisons that came out alike are one sentence, under the fewest conditions that tell them.

A comparison along an ordered factor (a course: from size to size) is the general case; a single comparison is a course
of one step. Nothing is interpolated: what is said of two sizes beside each other is said of these two.
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scripts.report import judgement, names, prose, words
from scripts.report.declaration import Metric
from scripts.report.markup import bold
from scripts.report.results import Results
from scripts.report.statements import Outcomes
from scripts.statistics import stats, tables, verdicts
from scripts.statistics.outcomes import DECIDED, ORDERED, Outcome

# Ratios further apart than this are not told as one range, where a level tells them apart.
ALIKE = 1.5
MOST_PARTS = 4
Conditions = dict[str, list[str]]
Steps = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Finding:
    """One sentence: `where` it holds, the rest of it, and the comparisons (rows of verdicts.csv) that it rests on.

    `verdict` is the one of all steps, or "mixed" where they differ; `conditions` are the levels that it holds under, in
    words `under`.
    """

    where: str
    text: str
    factor: str
    metric: str
    verdict: str
    conditions: Conditions
    rows: pd.DataFrame
    under: str = ""
    statement: Outcomes | None = None

    @property
    def decided(self) -> bool:
        """Whether any of its comparisons was."""
        return bool(self.rows["verdict"].isin(DECIDED).any())

    @property
    def size(self) -> float:
        """How large its largest decided effect is: |log ratio|."""
        rows = self.rows[self.rows["verdict"].isin(ORDERED)]
        return float(np.abs(np.log(rows["ratio"])).max()) if len(rows) else 0.0

    @property
    def key(self) -> str:
        """Its anchor, the same as long as it is about the same comparisons: a digest of their levels."""
        levels = self.rows.drop(columns=["verdict", "note"], errors="ignore").select_dtypes(exclude=["number", "bool"])
        digest = hashlib.sha256(levels.to_csv(index=False).encode()).hexdigest()[:6]
        return f"{self.factor}-{self.metric}-{digest}".replace("_", "-").replace(" ", "-")


def describe_place(rows: pd.DataFrame, results: Results) -> str:
    """Return where the bytes of some comparisons came from, with what was done where that was something else elsewhere.

    `rows` are all comparisons of one pair of levels in one place: "on disk, writing".
    """
    done = [
        results.names.within(factor.name, rows[factor.name].unique())
        for factor in results.report.factors
        if factor.given and rows[factor.name].nunique() == 1 < results.measured[factor.name].nunique()
    ]
    return ", ".join(filter(None, [results.names.place(rows.iloc[0]), *done[:1]]))


def find(results: Results, metric: str = "") -> list[Finding]:
    """Return what was found about a metric (default: the one that decides), in the order of the comparisons."""
    rows = results.comparisons(metric)
    rows = rows[~results.apart(rows)[0]]
    pairs = rows.groupby(results.pair_keys, sort=False) if len(rows) else ()
    return [finding for _, group in pairs for finding in _of_pair(group, results)]


def _of_pair(group: pd.DataFrame, results: Results) -> Iterator[Finding]:
    among, courses, where = *_courses(group, results), describe_place(group, results)
    decided_first = sorted(among["steps"].unique(), key=lambda steps: not any(step[1] in DECIDED for step in steps))
    for steps in decided_first:
        for part, conditions in parts(among[among["steps"] == steps], among, results):
            rows = pd.concat([courses[number] for number in part.index])
            yield _finding(where, rows, steps, conditions, len(among), results)


def _courses(group: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Courses as a table with one row each, whose `steps` are (level, verdict) in order, and the rows of each."""
    along = results.report.along
    if not along or group["factor"].iloc[0] == along:
        steps = [(("", verdict),) for verdict in group["verdict"]]
        return group.assign(steps=steps).reset_index(drop=True), [group.iloc[[row]] for row in range(len(group))]
    others = [name for name in results.report.names if name != along]
    courses = [
        course.sort_values(along, key=lambda levels: levels.map(names.amount), kind="stable")
        for _, course in group.groupby(others, sort=False)
    ]
    steps = [tuple(course[[along, "verdict"]].itertuples(index=False, name=None)) for course in courses]
    heads = pd.concat([course.head(1) for course in courses], ignore_index=True)
    return heads.assign(steps=steps, ratio=np.nan), courses


def parts(chosen: pd.DataFrame, among: pd.DataFrame, results: Results) -> list[tuple[pd.DataFrame, Conditions | None]]:
    """Return `chosen`, courses that came out alike, in parts that a few levels tell from the rest of `among`.

    The conditions of a part (factor -> levels) hold in it and nowhere else in `among`. More than four parts are too
    many to read: then all of `chosen` comes back in one part, its conditions None.
    """
    context = [name for name in results.report.names if name in among and among[name].nunique() > 1]
    for cut in ([], *([name] for name in context), *map(list, itertools.combinations(context, 2))):
        pieces = [rows for _, rows in chosen.groupby(cut, sort=False)] if cut else [chosen]
        tried = ((rows, _conditions(rows, among, context)) for rows in pieces)
        named = list(itertools.takewhile(lambda piece: piece[1] is not None, tried))
        if len(named) == len(pieces):
            close = [piece for rows, conditions in named for piece in _close(rows, conditions, among, context)]
            return close if len(close) <= MOST_PARTS else [(chosen, None)]
    return [(chosen, None)]


def _conditions(chosen: pd.DataFrame, among: pd.DataFrame, context: list[str]) -> Conditions | None:
    """Return the fewest levels of single factors that tell `chosen` from the rest; None if none do."""

    def tell(conditions: Conditions) -> bool:
        held = [among[factor].isin(levels) for factor, levels in conditions.items()]
        return (int(np.logical_and.reduce(held).sum()) if held else len(among)) == len(chosen)

    conditions = {factor: list(dict.fromkeys(chosen[factor])) for factor in context}
    conditions = {factor: levels for factor, levels in conditions.items() if len(levels) < among[factor].nunique()}
    if not tell(conditions):
        return None
    # What the other conditions imply is left out.
    for factor in list(conditions):
        fewer = {name: levels for name, levels in conditions.items() if name != factor}
        conditions = fewer if tell(fewer) else conditions
    return conditions


def _close(
    rows: pd.DataFrame, conditions: Conditions, among: pd.DataFrame, context: list[str]
) -> list[tuple[pd.DataFrame, Conditions]]:
    """Cut a part whose ratios lie far apart by the factor that brings them closest together."""
    closest, pieces = _spread(rows) / 2, [(rows, conditions)]
    if _spread(rows) <= np.log(ALIKE):
        return pieces
    for factor in context:
        cut = [(part, _conditions(part, among, context)) for _, part in rows.groupby(factor, sort=False)]
        spread = max(_spread(part) for part, _ in cut)
        if len(cut) > 1 and spread < closest and all(conditions is not None for _, conditions in cut):
            closest, pieces = spread, cut
    return pieces


def _spread(rows: pd.DataFrame) -> float:
    return float(np.log(rows["ratio"].max() / rows["ratio"].min())) if rows["ratio"].count() > 1 else 0.0


def _finding(
    where: str, rows: pd.DataFrame, steps: Steps, conditions: Conditions | None, of: int, results: Results
) -> Finding:
    head, verdicts = rows.iloc[0], {verdict for _, verdict in steps}
    if conditions and len(steps) > 1:
        # The sentence names the levels along which it goes.
        conditions = {factor: levels for factor, levels in conditions.items() if factor != results.report.along}
    under = ", ".join(results.names.within(factor, levels) for factor, levels in (conditions or {}).items())
    some = f"in {len(rows) // len(steps)} of {of} comparisons (the figure shows which)" if conditions is None else ""
    return Finding(
        where=where,
        text=sentence(rows, steps, under or some, results),
        factor=head["factor"],
        metric=head["metric"],
        verdict=verdicts.pop() if len(verdicts) == 1 else "mixed",
        conditions=conditions or {},
        rows=rows,
        under=under,
        statement=Outcomes(results.to_comparisons(rows)),
    )


def sentence(rows: pd.DataFrame, steps: Steps, conditions: str, results: Results) -> str:
    """Return what some courses that came out alike say, with the conditions that they hold under."""
    report, along = results.report, results.report.along
    blocks = prose.span(rows["blocks"], "{:.0f}".format)
    comparisons = len(rows) // len(steps)
    evidence = f"{blocks} {report.unit}{'' if blocks == '1' else 's'}"
    evidence = f"{comparisons} comparisons of {evidence}" if comparisons > 1 else evidence
    evidence += _spikes(rows, *sides(rows.iloc[0], results)) + _failures(rows, *sides(rows.iloc[0], results))
    evidence += _reason(rows, results)
    under = f", {conditions}" if conditions else ""
    new, old = sides(rows.iloc[0], results)
    if len(steps) == 1:
        return f"{outcome(rows, results, new, old)}{under} ({evidence})."
    texts = []
    for verdict, alike in itertools.groupby(steps, key=lambda step: step[1]):
        levels = [level for level, _ in alike]
        part = rows[rows[along].isin(levels)].assign(verdict=verdict)
        texts.append(f"{stretch(levels, [level for level, _ in steps], results)} {outcome(part, results)}")
    decided = [(results.names.level(along, level), verdict) for level, verdict in steps if verdict in ORDERED]
    turns = [f"between {a} and {b}" for (a, before), (b, after) in itertools.pairwise(decided) if before != after]
    turn = f" {bold(f'The order turns {prose.listing(turns)}.')}" if turns else ""
    in_time = _in_time(report.metric(rows["metric"].iloc[0]))
    return f"{new} against {old}{in_time}{under}: {'; '.join(texts)} ({evidence}).{turn}"


def outcome(rows: pd.DataFrame, results: Results, new: str = "", old: str = "") -> str:
    """Return what one verdict says, with ratio and interval; with `new` and `old` as a whole sentence."""
    low, high = rows["ratio_low"].min(), rows["ratio_high"].max()
    metric = results.report.metric(rows["metric"].iloc[0])
    # What does not decide is of the second rank.
    strong = bold if metric == results.report.metrics[0] else str
    in_time, nothing = _in_time(metric) if new else "", words.get_outcome(Outcome.NO_EVIDENCE)
    against = f"{new} against {old}: " if new else ""
    match rows["verdict"].iloc[0]:
        case Outcome.FASTER | Outcome.SLOWER:
            effect = get_effect(rows, results)
            text = f"{strong(effect.text)} {effect.interval}"
            spent = f" to {metric.spent_to}" if metric.spent_to else ""
            return f"{new} {text}{spent} {effect.than} {old}" if new else text
        case Outcome.SAME:
            same = strong(words.get_outcome(Outcome.SAME, results.same_percent))
            ratio = names.ratio_with_interval(rows["ratio"].median(), low, high)
            return f"{f'{new} and {old} were ' if new else ''}{same}{in_time}, ratio {ratio}"
        case Outcome.NO_EVIDENCE if new:
            return f"{strong(nothing)} that {new} and {old} differ{in_time}: {_doubt(rows)}"
        case Outcome.NO_EVIDENCE:
            return f"{bold(nothing)} of a difference ({_doubt(rows)})"
        case Outcome.TOO_FEW:
            ratios = f", ratio {prose.span(rows['ratio'])}" if rows["ratio"].notna().any() else ""
            return f"{against}{strong(words.get_outcome(Outcome.TOO_FEW))}{ratios}"
        case _:
            notes = dict.fromkeys(part for note in rows["note"] for part in str(note).split("; ") if part)
            why = f" ({'; '.join(notes)})" if notes else ""
            return f"{against}{strong(words.get_outcome(Outcome.NOT_COMPARABLE))}{why}"


def get_effect(rows: pd.DataFrame, results: Results) -> names.Effect:
    """Return the effect of comparisons of one order in words; "at least" where the harness makes it a bound."""
    metric, factor = results.report.metric(rows["metric"].iloc[0]), results.report.factor(rows["factor"].iloc[0])
    ends = rows["ratio_low"].min(), rows["ratio_high"].max()
    is_bound = "harness_percent" in rows and bool(rows["harness_percent"].notna().any())
    return names.effect(rows["ratio"], *ends, factor.plural, metric.is_time, is_bound)


def _spikes(rows: pd.DataFrame, new: str, old: str) -> str:
    """What a median does not show: blocks in which one side took much longer than in the others."""
    counts = {
        who: pd.to_numeric(rows.get(column, pd.Series(0, rows.index))).fillna(0)
        for who, column in ((new, "slow_contender"), (old, "slow_baseline"))
    }
    slow = rows[sum(counts.values()) > 0]
    if slow.empty:
        return ""
    times = prose.span(slow["slow_ratio"], lambda ratio: f"{prose.ratio(ratio)}×")
    blocks = f"{slow['blocks'].sum():.0f}"
    if all(count.sum() for count in counts.values()):
        # Their ratio is that of both sides together.
        either = sum(count.sum() for count in counts.values())
        return words.fill("slow blocks of both", slow=f"{either:.0f}", blocks=blocks, times=times)
    who = next(who for who, count in counts.items() if count.sum())
    return words.fill("slow blocks", who=who, slow=f"{counts[who].sum():.0f}", blocks=blocks, times=times)


def _failures(rows: pd.DataFrame, new: str, old: str) -> str:
    """How many attempts at each side failed, with the exact interval of that share, where any did (METHOD 15)."""
    texts, any_failed = [], False
    for who, side in ((new, "contender"), (old, "baseline")):
        if f"attempts_{side}" not in rows:
            return ""
        cells = rows.drop_duplicates(f"{side}_cell")
        failed, attempts = (int(cells[f"{what}_{side}"].sum()) for what in ("failed", "attempts"))
        of = stats.share(failed, attempts)
        texts.append(f"{who} in {failed} of {attempts} attempts [{100 * of.low:.0f}, {100 * of.high:.0f} %]")
        any_failed |= failed > 0
    return f"; failed: {', '.join(texts)}" if any_failed else ""


def modelled(rows: pd.DataFrame, results: Results) -> pd.Series:
    """Return the ratios of times that follow from requests, bytes, CPU time and opens, NaN if unknown."""
    seconds = results.cells.set_index("cell").get("modelled_s", pd.Series(dtype=float)).astype(float)
    new, old = (seconds.reindex(rows[f"{side}_cell"]).to_numpy() for side in ("contender", "baseline"))
    return pd.Series(new / old, index=rows.index)


def _reason(rows: pd.DataFrame, results: Results) -> str:
    """Whether requests and bytes explain what was decided about the time of everything; "" where it is not known."""
    decided = rows[rows["verdict"].isin(ORDERED) & (rows["metric"] == results.report.metrics[0].name)]
    ratios = modelled(decided, results) if {"baseline_cell", "contender_cell"} <= set(decided) else pd.Series()
    if ratios.empty or ratios.isna().any():
        return ""
    measured = decided["ratio"].astype(float)
    if tables.explains(ratios, measured).all():
        return "; requests, bytes and CPU time explain it"
    same_way = tables.has_direction(ratios, measured)
    if same_way.all():
        return "; requests and bytes point the same way"
    some = f" in {(~same_way).sum()} of {len(decided)}" if same_way.any() else ""
    return f"; not explained by requests or bytes{some}"


def _in_time(metric: Metric) -> str:
    return f" in the time to {metric.spent_to}" if metric.spent_to else ""


def _doubt(rows: pd.DataFrame) -> str:
    """The ratios, what this run could have detected, and why an interval without 1 does not decide."""
    ratios = names.ratio_with_interval(rows["ratio"].median(), rows["ratio_low"].min(), rows["ratio_high"].max())
    seen = detectable(rows)
    doubts = [f"ratio {prose.span(rows['ratio'])}", seen] if seen else [f"ratio {ratios}"]
    lost = rows["note"].fillna("").str.contains(verdicts.LOST)
    doubts += [verdicts.LOST] if lost.any() else []
    if beyond := int((((rows["ratio_low"] > 1) | (rows["ratio_high"] < 1)) & ~lost).sum()):
        of = "the interval" if len(rows) == 1 else f"{beyond} of {len(rows)} intervals"
        which = f"{of} exclude{'s' * (beyond == 1)}"
        doubts.append(f"{which} 1, but not after correction for all comparisons of this factor")
    return "; ".join(doubts)


def detectable(rows: pd.DataFrame) -> str:
    """Return which differences a run could have detected, "" where that is not known."""
    ratios = rows["detectable_ratio"][np.isfinite(rows["detectable_ratio"])]
    if ratios.empty:
        return ""
    if ratios.min() > judgement.TOO_NOISY:
        return words.fill("noisy")
    return words.fill("detectable", times=prose.span(ratios, lambda ratio: f"{prose.ratio(ratio)}×"))


def sides(row: pd.Series, results: Results) -> tuple[str, str]:
    """Return contender and baseline as a sentence is about them; the second without what both begin with."""
    new, old = results.names.pair(row, results.names.subject)
    metric = results.report.metric(row["metric"])
    return (new if metric.is_time else f"{metric.title} {new}"), old


def stretch(levels: list[str], of: list[str], results: Results) -> str:
    """Return where among the levels `of` some beside each other lie: "up to 4 MiB", "at 1 MiB"."""
    first, last = (results.names.level(results.report.along, level) for level in (levels[0], levels[-1]))
    if len(levels) == 1:
        return f"at {first}"
    if len(levels) == len(of):
        return f"at {first} and at {last}" if len(of) == 2 else f"at all sizes from {first} to {last}"
    if levels[0] == of[0]:
        return f"up to {last}"
    return f"from {first} on" if levels[-1] == of[-1] else f"from {first} to {last}"


def where_it_stops(run: Results) -> list[str]:
    """Return a sentence for arms that came out alike: bases, and beyond what level they gain no more (METHOD 19)."""
    scaling, value = run.report.scaling, run.report.values[0]
    if run.records.empty or not scaling:
        return []
    records = run.records[run.records["valid"] & run.records["cell"].isin(run.measured["cell"])]
    others = [name for name in run.report.names if name != scaling.factor]
    arms = verdicts.stops_scaling(records, others, scaling.factor, scaling.time, run.same_percent)
    arms = arms[arms["outcome"] != "single"]
    tells = run.telling(arms, others) or others[:1]
    cells = run.measured.set_index([*others, scaling.factor])[value.column]
    lines: dict[str, list[str]] = {}
    for arm in arms.to_dict("records"):
        base = cells.get((*(arm[name] for name in others), str(arm["base"])), float("nan"))
        level = run.names.level(scaling.factor, str(arm["base"]))
        base_value = f", {prose.number(base)} {value.unit}" if pd.notna(base) else ""
        own = records[(records[others] == [arm[name] for name in others]).all(axis=1)]
        lines.setdefault(_stop(arm, own, run), []).append(f"{run.names.row(arm, tells)} (base: {level}{base_value})")
    return [f"{prose.capital('; '.join(who))}: {outcome}." for outcome, who in lines.items()]


def _stop(arm: dict, records: pd.DataFrame, run: Results) -> str:
    scaling = run.report.scaling
    if arm["outcome"] == "few":
        return f"fewer than {stats.MIN_BLOCKS} complete repeats, so where it stops to gain is not decided"
    if arm["outcome"] == "stops":
        at, after = (run.names.level(scaling.factor, str(arm[key])) for key in ("stops_at", "next"))
        effect = names.ratio_with_interval(arm["ratio"], arm["ratio_low"], arm["ratio_high"])
        return f"no gain is shown beyond {at}: the {scaling.title} with {after} is {effect} of that"
    most = run.names.level(scaling.factor, max(records[scaling.factor], key=int))
    return f"still gains at {most}, the most measured"
