"""Comparisons along the size: what is faster up to which size, and between which sizes the order turns.

Nothing is interpolated: what is said of two sizes beside each other is said of these two.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scripts.report import judgement, prose
from scripts.report.markup import bold
from scripts.statistics.verdicts import OF_CELLS
from scripts.studies.blobs.report import words
from scripts.studies.blobs.report.data import Results

DECIDED = ("faster", "slower", "same")
# Levels of the factors beside those that are told of, and what was found with them.
Context = tuple[tuple[str, str], ...]
Part = tuple[Context, Any]
_TURNED = {("faster", "slower"), ("slower", "faster")}


@dataclass(frozen=True)
class Course:
    """One pair of levels along the size, in all contexts in which it came out alike.

    `rows` are the comparisons; `steps` the verdict at each size; `contexts` levels of the factors beside pair and size.
    """

    factor: str
    baseline: str
    contender: str
    steps: tuple[tuple[str, str], ...]
    contexts: tuple[Context, ...]
    rows: pd.DataFrame

    @property
    def decided(self) -> bool:
        """Whether any size of it was decided."""
        return any(verdict in DECIDED for _, verdict in self.steps)

    @property
    def turns(self) -> list[tuple[str, str]]:
        """The sizes between which the order turns round: the last of one order, the first of the other."""
        known = [(size, verdict) for size, verdict in self.steps if verdict in ("faster", "slower")]
        return [(a, b) for (a, before), (b, after) in itertools.pairwise(known) if (before, after) in _TURNED]


def find(results: Results, metric: str = "total") -> list[Course]:
    """Return the courses of all comparisons but the control's, in the order of the comparisons."""
    rows = rows_of(results, metric)
    courses: list[Course] = []
    if rows.empty:
        return courses
    for pair, group in rows.groupby(["factor", "baseline", "contender"], sort=False):
        others = [factor for factor in words.FACTORS if factor not in (pair[0], "size")]
        alike: dict[tuple, list[Part]] = {}
        for levels, part in group.groupby(others, sort=False):
            part = part.assign(bytes=part["size"].map(words.amount)).sort_values("bytes")
            steps = tuple(part[["size", "verdict"]].itertuples(index=False, name=None))
            alike.setdefault(steps, []).append((tuple(zip(others, levels, strict=True)), part))
        for steps, parts in alike.items():
            for some in products(parts):
                found = pd.concat([part for _, part in some])
                courses.append(Course(*pair, steps, tuple(context for context, _ in some), found))
    return courses


def rows_of(results: Results, metric: str = "total") -> pd.DataFrame:
    """Return the comparisons on a metric; without those of arms that deliver different amounts by their nature."""
    rows = _asked(results, metric)
    return rows[~_unequal(rows)] if len(rows) else rows


def left_out(results: Results) -> int:
    """Return how many comparisons that the configuration asks for deliver different amounts."""
    rows = _asked(results, "total")
    return int(_unequal(rows).sum()) if len(rows) else 0


def _asked(results: Results, metric: str) -> pd.DataFrame:
    rows = results.verdicts
    return rows[(rows["metric"] == metric) & ~rows["factor"].isin(OF_CELLS)] if len(rows) else rows


def _unequal(rows: pd.DataFrame) -> pd.Series:
    whole = {side: rows[side].map(words.whole) for side in ("baseline", "contender", "pattern")}
    mixed = (rows["factor"] == "pattern") & (whole["baseline"] != whole["contender"])
    grown = (rows["factor"] == "processes") & whole["pattern"]
    return mixed | grown | (rows["factor"] == "size")


def products(parts: list[Part]) -> Iterator[list[Part]]:
    """Yield parts whose contexts are all combinations of some levels, so that a sentence can name them."""
    levels: dict[str, set[str]] = {}
    for context, _ in parts:
        for factor, value in context:
            levels.setdefault(factor, set()).add(value)
    if np.prod([len(values) for values in levels.values()]) == len(parts):
        yield parts
        return
    factor = min((name for name in levels if len(levels[name]) > 1), key=lambda name: len(levels[name]))
    for value in dict.fromkeys(dict(context)[factor] for context, _ in parts):
        yield from products([part for part in parts if dict(part[0])[factor] == value])


def where(course: Course, results: Results) -> str:
    """Return in which contexts a course holds, as the beginning of a sentence."""
    levels, usual = {}, words.usual(results.measured)
    for factor, value in itertools.chain(*course.contexts):
        levels.setdefault(factor, {})[value] = None
    parts = []
    for factor, found in levels.items():
        values = [value for value in found if value]
        if factor == "store" and values:
            order = results.levels("store") or values
            named = [words.source(store, results.facts) for store in order if store in values]
            parts.append(f"from {prose.listing(named, 'or')}")
        elif len(values) > 1 or any(words.worth(factor, value, usual) for value in values):
            named = words.levels(factor, values, results.facts)
            parts.append(f"with {named}" if factor == "pattern" else named)
    return ", ".join(parts) or "everywhere"


def sentence(course: Course, results: Results) -> str:
    """Return what a course says: each verdict with its sizes, ratios and intervals, and where the order turns."""
    facts = results.facts
    new, old = (_subject(course.factor, level, facts) for level in (course.contender, course.baseline))
    of = tuple(size for size, _ in course.steps)
    texts = []
    for verdict, steps in itertools.groupby(course.steps, key=lambda step: step[1]):
        sizes = tuple(size for size, _ in steps)
        rows = course.rows[course.rows["size"].isin(sizes)]
        texts.append(f"{words.stretch(sizes, of)} {_outcome(verdict, rows, old if not texts else '', facts)}")
    blocks = prose.span(course.rows["blocks"], "{:.0f}".format)
    blocks += " block" if blocks == "1" else " blocks"
    turned = [f"between {words.size(a)} and {words.size(b)}" for a, b in course.turns]
    turn = f" {bold(f'The order turns {prose.listing(turned)}.')}" if turned else ""
    if turned and not _turns_later(course, results):
        turn += " That is so in the time of all iterations; without the first of each record it is not shown."
    verb = "were" if course.factor in ("chunk_size", "operation_size", "processes") else "was"
    return f"{new} {verb} {'; '.join(texts)}; {blocks}.{turn}"


def _turns_later(course: Course, results: Results) -> bool:
    """Whether the time of the iterations after the first has the same verdicts on both sides of every turn."""
    rows = rows_of(results, "rest")
    keys = ["factor", "baseline", "contender", *words.FACTORS]
    around = course.rows[course.rows["size"].isin({size for turn in course.turns for size in turn})]
    later = around[[*keys, "verdict"]].merge(rows[[*keys, "verdict"]], on=keys, how="left", suffixes=("", "_later"))
    return bool((later["verdict"] == later["verdict_later"]).all())


def _outcome(verdict: str, rows: pd.DataFrame, old: str, facts: dict) -> str:
    ratios, low, high = rows["ratio"], rows["ratio_low"].min(), rows["ratio_high"].max()
    if verdict == "faster":
        ratios, low, high = 1 / ratios, 1 / high, 1 / low
    interval = words.interval(low, high, prose.ratio)
    within = f" (intervals within{interval})" if interval and len(rows) > 1 else interval
    than = f" than {old}" if old else ""
    match verdict:
        case "faster" | "slower":
            return f"{bold(f'{prose.span(ratios)} times {verdict}')}{than}{within}"
        case "same":
            as_old = f" as {old}" if old else ""
            return f"{bold('as fast')}{as_old} within ±{judgement.equivalence(facts):g} %{within}"
        case "no evidence":
            seen = rows["detectable_ratio"].replace(np.inf, np.nan).dropna()
            least = f"; {prose.span(seen)} times could have been seen" if len(seen) else ""
            return f"not told apart{f' from {old}' if old else ''}: ratio {prose.span(ratios)}{within}{least}"
        case "too few repeats":
            known = f": ratio {prose.span(ratios)}" if ratios.notna().any() else ""
            return f"not judged{f' against {old}' if old else ''}, too few repeats{known}"
        case _:
            notes = "; ".join(dict.fromkeys(part for note in rows["note"] for part in note.split("; ") if part))
            return f"not comparable{f' with {old}' if old else ''}{f' ({notes})' if notes else ''}"


def _subject(factor: str, level: str, facts: dict) -> str:
    match factor:
        case "store":
            return words.source(level, facts)
        case "pattern":
            return level
        case "concurrency":
            return f"fetching {words.level(factor, level, facts)}"
        case "objects":
            return "each process its own object" if level == "own" else "one object for all"
        case _:
            return words.level(factor, level, facts)
