"""Summarise verdicts as findings: a sentence per outcome, with the fewest conditions under which it applies.

A course is a series of comparisons along an ordered factor, such as a range of sizes; a single comparison is a course
of one step. Nothing is interpolated: a finding about two neighbouring sizes covers only these two.
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

ALIKE = 1.5  # a wider range of ratios (largest / smallest) is split if a factor's levels separate it
MOST_PARTS = 4
Conditions = dict[str, list[str]]


@dataclass(frozen=True)
class Finding:
    """A group of comparisons (rows of verdicts.csv) with the same outcome, and the sentence that describes it.

    Attributes:
        where: their storage location.
        text: the rest of the sentence.
        factor: name of the compared factor.
        metric: name of the compared metric.
        verdict: verdict of all steps, or "mixed" if they differ.
        conditions: levels at which the finding applies, by factor.
        rows: the comparisons.
        under: description of `conditions`.
        statement: claim that pages check against the data.
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
        """Return whether at least one of the comparisons was decided."""
        return bool(self.rows["verdict"].isin(DECIDED).any())

    @property
    def size(self) -> float:
        """Return the largest decided effect, |log ratio|."""
        rows = self.rows[self.rows["verdict"].isin(ORDERED)]
        return float(np.abs(np.log(rows["ratio"])).max()) if len(rows) else 0.0

    @property
    def key(self) -> str:
        """Return the finding's HTML anchor, a digest of the compared levels that changes only if the comparisons do."""
        levels = self.rows.drop(columns=["verdict", "note"], errors="ignore").select_dtypes(exclude=["number", "bool"])
        digest = hashlib.sha256(levels.to_csv(index=False).encode()).hexdigest()[:6]
        return f"{self.factor}-{self.metric}-{digest}".replace("_", "-").replace(" ", "-")


def describe_place(rows: pd.DataFrame, results: Results) -> str:
    """Describe where and on which data a pair of levels was compared, such as "on disk, writing 50 MiB".

    The data are included only if they are the same in all of these comparisons and differ in other cells.
    """
    done = [
        results.names.format_condition(factor.name, rows[factor.name].unique())
        for factor in results.report.factors
        if factor.given and rows[factor.name].nunique() == 1 < results.measured[factor.name].nunique()
    ]
    amounts = {results.report.amount(row) for row in rows.to_dict("records")}
    done = [*amounts] if len(amounts) == 1 and amounts != {""} else done[:1]
    return ", ".join(filter(None, [results.names.format_place(rows.iloc[0]), *done]))


def list_findings(results: Results, metric: str = "") -> list[Finding]:
    """List the findings for a metric (by default, the primary metric), in the order of the comparisons."""
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
    """Split the comparisons of a pair of levels into courses (see the module docstring).

    Returns:
        a table with a row per course and a column `steps`, the ordered (level, verdict) pairs of the course; and the
            comparisons of each course.
    """
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
    """Split courses with the same outcome into parts that each have conditions which no other course meets.

    Args:
        chosen: the courses with the same outcome.
        among: all courses.
        results: results of the study.

    Returns:
        the parts, each with its conditions (factor -> levels), which all of its courses and no other courses in
            `among` meet. If this is impossible or would require more than `MOST_PARTS` parts, `chosen` is the only part
            and its conditions are None.
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
    """Return the fewest factors and their levels that select exactly `chosen` from `among`, or None if none do."""

    def is_exact(conditions: Conditions) -> bool:
        held = [among[factor].isin(levels) for factor, levels in conditions.items()]
        return (int(np.logical_and.reduce(held).sum()) if held else len(among)) == len(chosen)

    conditions = {factor: list(dict.fromkeys(chosen[factor])) for factor in context}
    conditions = {factor: levels for factor, levels in conditions.items() if len(levels) < among[factor].nunique()}
    if not is_exact(conditions):
        return None
    # Omit conditions that are implied by the remaining ones.
    for factor in list(conditions):
        fewer = {name: levels for name, levels in conditions.items() if name != factor}
        conditions = fewer if is_exact(fewer) else conditions
    return conditions


def _split_by_ratio(
    rows: pd.DataFrame, conditions: Conditions, among: pd.DataFrame, context: list[str]
) -> list[tuple[pd.DataFrame, Conditions]]:
    """Split a part with widely differing ratios by the factor that reduces their spread most, if at least by half."""
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
        # The sentence already names the levels of the factor `along`.
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
