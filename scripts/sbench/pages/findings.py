"""Turn verdicts into findings: a sentence per group of comparisons that came out alike, under the fewest conditions.

A course is a series of comparisons along an ordered factor, such as from size to size; a single comparison is a course
of one step. Nothing is interpolated: a finding about two neighbouring sizes covers these two.
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sbench.pages import names, words
from sbench.pages.results import Results
from sbench.pages.sentences import Steps, write_finding
from sbench.pages.statements import Outcomes
from sbench.verdicts.outcomes import DECIDED, ORDERED

ALIKE = 1.5  # ratio beyond which a range is split if a level separates it
MOST_PARTS = 4
Conditions = dict[str, list[str]]


@dataclass(frozen=True)
class Finding:
    """Comparisons (rows of verdicts.csv) with the same outcome, in one sentence.

    `where` is their place, `text` the rest of the sentence. `verdict` is the verdict of all steps, or "mixed" if they
    differ; `conditions` are the levels at which it holds, `under` the same in words.
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
    def is_decided(self) -> bool:
        """Return whether any of its comparisons was decided."""
        return bool(self.rows["verdict"].isin(DECIDED).any())

    @property
    def size(self) -> float:
        """Return the largest decided effect, |log ratio|."""
        rows = self.rows[self.rows["verdict"].isin(ORDERED)]
        return float(np.abs(np.log(rows["ratio"])).max()) if len(rows) else 0.0

    @property
    def key(self) -> str:
        """Return its anchor, a digest of the compared levels: stable as long as the comparisons are the same."""
        levels = self.rows.drop(columns=["verdict", "note"], errors="ignore").select_dtypes(exclude=["number", "bool"])
        digest = hashlib.sha256(levels.to_csv(index=False).encode()).hexdigest()[:6]
        return f"{self.factor}-{self.metric}-{digest}".replace("_", "-").replace(" ", "-")


def describe_place(rows: pd.DataFrame, results: Results) -> str:
    """Describe place and, if it differs elsewhere, work of all comparisons of a pair: "on disk, writing 50 MiB"."""
    done = [
        results.names.format_condition(factor.name, rows[factor.name].unique())
        for factor in results.report.factors
        if factor.given and rows[factor.name].nunique() == 1 < results.measured[factor.name].nunique()
    ]
    amounts = {results.report.amount(row) for row in rows.to_dict("records")}
    done = [*amounts] if len(amounts) == 1 and amounts != {""} else done[:1]
    return ", ".join(filter(None, [results.names.format_place(rows.iloc[0]), *done]))


def list_findings(results: Results, metric: str = "") -> list[Finding]:
    """List the findings on a metric (default: the deciding metric), in the order of the comparisons."""
    rows = results.get_comparisons(metric)
    rows = rows[~results.find_unmade(rows)[0]]
    pairs = rows.groupby(results.pair_keys, sort=False) if len(rows) else ()
    return [finding for _, group in pairs for finding in _iter_pair_findings(group, results)]


def _iter_pair_findings(group: pd.DataFrame, results: Results) -> Iterator[Finding]:
    among, courses, where = *_split_courses(group, results), describe_place(group, results)
    decided_first = sorted(among["steps"].unique(), key=lambda steps: not any(step[1] in DECIDED for step in steps))
    for steps in decided_first:
        for part, conditions in split_by_levels(among[among["steps"] == steps], among, results):
            rows = pd.concat([courses[number] for number in part.index])
            yield _build_finding(where, rows, steps, conditions, len(among), results)


def _split_courses(group: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Return a table with a row per course and its `steps`, (level, verdict) in order, and the rows of each course."""
    along = results.report.along
    if not along or group["factor"].iloc[0] == along:
        steps = [(("", verdict),) for verdict in group["verdict"]]
        return group.assign(steps=steps).reset_index(drop=True), [group.iloc[[row]] for row in range(len(group))]
    others = [name for name in results.report.names if name != along]
    courses = [
        course.sort_values(along, key=lambda levels: levels.map(names.parse_amount), kind="stable")
        for _, course in group.groupby(others, sort=False)
    ]
    steps = [tuple(course[[along, "verdict"]].itertuples(index=False, name=None)) for course in courses]
    heads = pd.concat([course.head(1) for course in courses], ignore_index=True)
    return heads.assign(steps=steps, ratio=np.nan), courses


def split_by_levels(
    chosen: pd.DataFrame, among: pd.DataFrame, results: Results
) -> list[tuple[pd.DataFrame, Conditions | None]]:
    """Split `chosen`, courses that came out alike, into parts that a few levels separate from the rest of `among`.

    The conditions of a part (factor -> levels) hold in it and nowhere else in `among`. Return `chosen` in one part with
    conditions None if that is impossible, or takes more than four parts, which are too many to read.
    """
    context = [name for name in results.report.names if name in among and among[name].nunique() > 1]
    for cut in ([], *([name] for name in context), *map(list, itertools.combinations(context, 2))):
        pieces = [rows for _, rows in chosen.groupby(cut, sort=False)] if cut else [chosen]
        tried = ((rows, _find_conditions(rows, among, context)) for rows in pieces)
        named = list(itertools.takewhile(lambda piece: piece[1] is not None, tried))
        if len(named) == len(pieces):
            close = [piece for rows, conditions in named for piece in _split_by_ratio(rows, conditions, among, context)]
            return close if len(close) <= MOST_PARTS else [(chosen, None)]
    return [(chosen, None)]


def _find_conditions(chosen: pd.DataFrame, among: pd.DataFrame, context: list[str]) -> Conditions | None:
    """Return the fewest levels of single factors that separate `chosen` from the rest, else None."""

    def is_exact(conditions: Conditions) -> bool:
        held = [among[factor].isin(levels) for factor, levels in conditions.items()]
        return (int(np.logical_and.reduce(held).sum()) if held else len(among)) == len(chosen)

    conditions = {factor: list(dict.fromkeys(chosen[factor])) for factor in context}
    conditions = {factor: levels for factor, levels in conditions.items() if len(levels) < among[factor].nunique()}
    if not is_exact(conditions):
        return None
    # Leave out conditions that the others imply.
    for factor in list(conditions):
        fewer = {name: levels for name, levels in conditions.items() if name != factor}
        conditions = fewer if is_exact(fewer) else conditions
    return conditions


def _split_by_ratio(
    rows: pd.DataFrame, conditions: Conditions, among: pd.DataFrame, context: list[str]
) -> list[tuple[pd.DataFrame, Conditions]]:
    """Split a part with ratios far apart by the factor that reduces their spread most, at least by half."""
    closest, pieces = _compute_spread(rows) / 2, [(rows, conditions)]
    if _compute_spread(rows) <= np.log(ALIKE):
        return pieces
    for factor in context:
        cut = [(part, _find_conditions(part, among, context)) for _, part in rows.groupby(factor, sort=False)]
        spread = max(_compute_spread(part) for part, _ in cut)
        if len(cut) > 1 and spread < closest and all(conditions is not None for _, conditions in cut):
            closest, pieces = spread, cut
    return pieces


def _compute_spread(rows: pd.DataFrame) -> float:
    return float(np.log(rows["ratio"].max() / rows["ratio"].min())) if rows["ratio"].count() > 1 else 0.0


def _build_finding(
    where: str, rows: pd.DataFrame, steps: Steps, conditions: Conditions | None, of: int, results: Results
) -> Finding:
    head, verdicts = rows.iloc[0], {verdict for _, verdict in steps}
    if conditions and len(steps) > 1:
        # The sentence names the levels of the factor `along`.
        conditions = {factor: levels for factor, levels in conditions.items() if factor != results.report.along}
    under = ", ".join(results.names.format_condition(factor, levels) for factor, levels in (conditions or {}).items())
    some = words.fill("in some comparisons", many=len(rows) // len(steps), of=of) if conditions is None else ""
    return Finding(
        where=where,
        text=write_finding(rows, steps, under or some, results),
        factor=head["factor"],
        metric=head["metric"],
        verdict=verdicts.pop() if len(verdicts) == 1 else "mixed",
        conditions=conditions or {},
        rows=rows,
        under=under,
        statement=Outcomes(results.to_comparisons(rows)),
    )
