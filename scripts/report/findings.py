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

from scripts.report import names, prose
from scripts.report.judgement import equivalence
from scripts.report.markup import bold
from scripts.report.results import Results

DECIDED = ("faster", "slower", "same", "meets", "misses", "modelled")
# Ratios further apart than this are not told as one range, where a level tells them apart.
ALIKE = 1.5
MOST_PARTS = 4
_TURNED = {("faster", "slower"), ("slower", "faster")}
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

    @property
    def effect(self) -> names.Effect:
        """What was decided, in words."""
        return names.effect(self.rows["ratio"], self.rows["ratio_low"].min(), self.rows["ratio_high"].max())

    @property
    def decided(self) -> bool:
        """Whether any of its comparisons was."""
        return bool(self.rows["verdict"].isin(DECIDED).any())

    @property
    def size(self) -> float:
        """How large its largest decided effect is: |log ratio|."""
        rows = self.rows[self.rows["verdict"].isin(("faster", "slower"))]
        return float(np.abs(np.log(rows["ratio"])).max()) if len(rows) else 0.0

    @property
    def key(self) -> str:
        """A name that stays the same as long as it is about the same comparisons."""
        return results_key(self.rows)


def results_key(rows: pd.DataFrame) -> str:
    """Return the anchor of some comparisons: what is compared on which metric, and a digest of where."""
    head = rows.iloc[0]
    text = rows.drop(columns=["ratio", "ratio_low", "ratio_high", "p"], errors="ignore").to_csv(index=False)
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{head['factor']}-{head['metric']}-{digest}".replace("_", "-")


def find(results: Results, metric: str = "") -> list[Finding]:
    """Return what was found about a metric (default: the one that decides), in the order of the comparisons."""
    rows = results.comparisons(metric or results.report.metrics[0].name)
    rows = rows[~results.of_other_code(rows)] if len(rows) else rows
    keys = ["factor", "baseline", "contender", *results.report.places, "state"]
    return [
        finding
        for _, group in (rows.groupby(keys, sort=False) if len(rows) else ())
        for finding in _of_pair(group, results)
    ]


def _of_pair(group: pd.DataFrame, results: Results) -> Iterator[Finding]:
    """Yield the findings about one pair of levels in one place."""
    among, courses = _courses(group, results)
    for steps in sorted(dict.fromkeys(among["steps"]), key=lambda steps: not _is_decided(steps)):
        for part, conditions in parts(among[among["steps"] == steps], among, results):
            rows = pd.concat([courses[number] for number in part.index])
            yield _finding(rows, steps, conditions, len(among), results)


def _courses(group: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, dict[int, pd.DataFrame]]:
    """A row per course with its steps, a tuple of (level, verdict), and its comparisons by the number of the row."""
    along = results.report.along
    if not along or group["factor"].iloc[0] == along:
        group = group.reset_index(drop=True)
        steps = [(("", verdict),) for verdict in group["verdict"]]
        return group.assign(steps=steps), {number: group.iloc[[number]] for number in group.index}
    others = [name for name in results.report.names if name != along]
    rows, courses = [], {}
    for _, part in group.groupby(others, sort=False):
        part = part.sort_values(along, key=lambda levels: levels.map(names.amount), kind="stable")
        courses[len(rows)] = part
        steps = tuple(part[[along, "verdict"]].itertuples(index=False, name=None))
        rows.append(part.iloc[0].to_dict() | {"steps": steps, "ratio": np.nan})
    return pd.DataFrame(rows), courses


def parts(chosen: pd.DataFrame, among: pd.DataFrame, results: Results) -> list[tuple[pd.DataFrame, Conditions | None]]:
    """Return `chosen`, courses that came out alike, in parts that a few levels tell from the rest of `among`.

    Returns:
        Parts with their conditions (factor -> levels), which hold in that part and nowhere else in `among`. More than
        four parts are too many to read: then all of `chosen` comes back in one part, its conditions None.
    """
    context = [name for name in results.report.names if name in among and among[name].nunique() > 1]
    named_parts = _named(chosen, among, context)
    for factors in itertools.chain(*(itertools.combinations(context, count) for count in (1, 2))):
        if named_parts is not None:
            break
        pieces = [_named(rows, among, context) for _, rows in chosen.groupby(list(factors), sort=False)]
        if all(piece is not None for piece in pieces):
            named_parts = list(itertools.chain(*pieces))
    named_parts = [piece for part in named_parts or [] for piece in _close(*part, among, context)]
    return named_parts if 0 < len(named_parts) <= MOST_PARTS else [(chosen, None)]


def _named(
    chosen: pd.DataFrame, among: pd.DataFrame, context: list[str]
) -> list[tuple[pd.DataFrame, Conditions]] | None:
    """Return `chosen` as one part if levels of single factors tell it from the rest, else None."""

    def inside(conditions: Conditions) -> int:
        held = [among[factor].isin(levels) for factor, levels in conditions.items()]
        return int(np.logical_and.reduce(held).sum()) if held else len(among)

    conditions = {factor: list(dict.fromkeys(chosen[factor])) for factor in context}
    conditions = {factor: levels for factor, levels in conditions.items() if len(levels) < among[factor].nunique()}
    if inside(conditions) != len(chosen):
        return None
    # What the other conditions imply is left out.
    for factor in list(conditions):
        fewer = {name: levels for name, levels in conditions.items() if name != factor}
        if inside(fewer) == len(chosen):
            conditions = fewer
    return [(chosen, conditions)]


def _close(
    rows: pd.DataFrame, conditions: Conditions, among: pd.DataFrame, context: list[str]
) -> list[tuple[pd.DataFrame, Conditions]]:
    """Cut a part whose ratios lie far apart by the factor that brings them closest together."""
    if _spread(rows) <= np.log(ALIKE):
        return [(rows, conditions)]
    trials = []
    for factor in context:
        named = [_named(part, among, context) for _, part in rows.groupby(factor, sort=False)]
        if len(named) > 1 and all(named):
            pieces = [piece for one in named for piece in one]
            trials.append((max(_spread(part) for part, _ in pieces), pieces))
    spread, cut = min(trials, key=lambda trial: trial[0], default=(np.inf, []))
    return cut if spread < _spread(rows) / 2 else [(rows, conditions)]


def _spread(rows: pd.DataFrame) -> float:
    ratios = rows["ratio"].dropna()
    return float(np.log(ratios.max() / ratios.min())) if len(ratios) > 1 else 0.0


def _is_decided(steps: Steps) -> bool:
    return any(verdict in DECIDED for _, verdict in steps)


def _finding(rows: pd.DataFrame, steps: Steps, conditions: Conditions | None, of: int, results: Results) -> Finding:
    head, named = rows.iloc[0], results.names
    verdicts = {verdict for _, verdict in steps}
    some = ""
    if conditions and len(steps) > 1:
        # The sentence names the levels along which it goes.
        conditions = {factor: levels for factor, levels in conditions.items() if factor != results.report.along}
    if conditions is None:
        some = f"in {len(rows) // len(steps)} of {of} comparisons (the figure shows which)"
    under = ", ".join(named.within(factor, levels) for factor, levels in (conditions or {}).items())
    text = sentence(rows, steps, under or some, results)
    return Finding(
        where=named.place(head),
        text=text,
        factor=head["factor"],
        metric=head["metric"],
        verdict=verdicts.pop() if len(verdicts) == 1 else "mixed",
        conditions=conditions or {},
        rows=rows,
        under=under,
    )


def sentence(rows: pd.DataFrame, steps: Steps, conditions: str, results: Results) -> str:
    """Return what some courses that came out alike say, with the conditions that they hold under."""
    new, old = sides(rows.iloc[0], results)
    spent_to = results.report.metric(rows["metric"].iloc[0]).spent_to
    blocks = prose.span(rows["blocks"], "{:.0f}".format)
    comparisons = len(rows) // len(steps)
    evidence = f"{blocks} {results.report.unit}{'' if blocks == '1' else 's'}"
    evidence = f"{comparisons} comparisons of {evidence}" if comparisons > 1 else evidence
    under = f", {conditions}" if conditions else ""
    if len(steps) == 1:
        text = outcome(rows, new, old, results, spent_to)
        return f"{text}{under} ({evidence})."
    texts = []
    for verdict, alike in itertools.groupby(steps, key=lambda step: step[1]):
        levels = [level for level, _ in alike]
        part = rows[rows[results.report.along].isin(levels)].assign(verdict=verdict)
        texts.append(f"{stretch(levels, [level for level, _ in steps], results)} {outcome(part, '', '', results)}")
    turned = [f"between {results.names.level(results.report.along, a)} and {b}" for a, b in _turns(steps, results)]
    turn = f" {bold(f'The order turns {prose.listing(turned)}.')}" if turned else ""
    if turned and results.report.confirm and not _confirmed(rows, results):
        deciding, other = (
            results.report.metric(name).title for name in (rows["metric"].iloc[0], results.report.confirm)
        )
        turn += f" This holds for the {deciding}; it is not shown for the {other}."
    in_time = f" in the time to {spent_to}" if spent_to else ""
    return f"{new} against {old}{in_time}{under}: {'; '.join(texts)} ({evidence}).{turn}"


def outcome(rows: pd.DataFrame, new: str, old: str, results: Results, spent_to: str = "") -> str:
    """Return what one verdict says, with ratio and interval; with `new` and `old` as a whole sentence."""
    verdict, low, high = rows["verdict"].iloc[0], rows["ratio_low"].min(), rows["ratio_high"].max()
    # What does not decide is of the second rank.
    strong = bold if rows["metric"].iloc[0] == results.report.metrics[0].name else str
    pair = f"{new} and {old}" if new else ""
    against = f"{new} against {old}: " if new else ""
    in_time = f" in the time to {spent_to}" if spent_to else ""
    match verdict:
        case "faster" | "slower":
            plural = results.report.factor(rows["factor"].iloc[0]).plural
            is_time = results.report.metric(rows["metric"].iloc[0]).is_time
            effect = names.effect(rows["ratio"], low, high, plural, is_time)
            than = f" {effect.than} {old}" if old else ""
            return (
                " ".join(filter(None, [new, strong(effect.text), effect.interval]))
                + (f" to {spent_to}" if spent_to else "")
                + than
            )
        case "same":
            ratio = names.ratio_with_interval(rows["ratio"].median(), low, high)
            same = strong(f"the same within ±{equivalence(results.facts):g} %")
            return f"{pair} were {same}{in_time}, ratio {ratio}" if pair else f"{same}, ratio {ratio}"
        case "no evidence":
            return f"{strong('no evidence')} that {pair} differ{in_time}: {_doubt(rows)}" if pair else _unsure(rows)
        case "too few repeats":
            ratios = f", ratio {prose.span(rows['ratio'])}" if rows["ratio"].notna().any() else ""
            return f"{against}{strong('too few repeats')}{ratios}"
        case _:
            notes = dict.fromkeys(part for note in rows["note"] for part in str(note).split("; ") if part)
            return f"{against}{strong('not comparable')}" + (f" ({'; '.join(notes)})" if notes else "")


def _unsure(rows: pd.DataFrame) -> str:
    return f"{bold('no evidence')} of a difference ({_doubt(rows)})"


def _doubt(rows: pd.DataFrame) -> str:
    """The ratios, what this run could have detected, and why an interval without 1 does not decide."""
    seen = rows["detectable_ratio"].replace(np.inf, np.nan).dropna()
    ratios = names.ratio_with_interval(rows["ratio"].median(), rows["ratio_low"].min(), rows["ratio_high"].max())
    parts_ = [f"ratio {prose.span(rows['ratio']) if len(seen) else ratios}"]
    parts_ += [f"this run could have detected {prose.span(seen, names.detectable)}"] if len(seen) else []
    beyond = int(((rows["ratio_low"] > 1) | (rows["ratio_high"] < 1)).sum())
    if beyond:
        of = "the interval" if len(rows) == 1 else f"{beyond} of {len(rows)} intervals"
        which = f"{of} exclude{'s' * (beyond == 1)}"
        parts_.append(f"{which} 1, but not after correction for all comparisons of this factor")
    return "; ".join(parts_)


def sides(row: pd.Series, results: Results) -> tuple[str, str]:
    """Return contender and baseline as a sentence is about them; the second without what both begin with."""
    new, old = (results.names.subject(row["factor"], row[side]) for side in ("contender", "baseline"))
    if new.startswith("HDF5 ") and old.startswith("HDF5 "):
        old = old.removeprefix("HDF5 ")
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


def _confirmed(rows: pd.DataFrame, results: Results) -> bool:
    """Whether the metric that has to confirm a turn has the same verdicts."""
    later = results.comparisons(results.report.confirm)
    keys = ["factor", "baseline", "contender", *results.report.names]
    both = rows.merge(later[[*keys, "verdict"]], on=keys, how="left", suffixes=("", "_later"))
    return bool((both["verdict"] == both["verdict_later"]).all())


def _turns(steps: Steps, results: Results) -> list[tuple[str, str]]:
    """The levels between which the order turns round: the last of one order, the first of the other."""
    decided = [(level, verdict) for level, verdict in steps if verdict in ("faster", "slower")]
    turned = [(a, b) for (a, before), (b, after) in itertools.pairwise(decided) if (before, after) in _TURNED]
    return [(a, results.names.level(results.report.along, b)) for a, b in turned]
