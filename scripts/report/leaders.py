"""Which arm is the fastest at each level of the factor along which a study compares, by its verdicts (METHOD 17).

Every pair of arms of one contest has a verdict: as the configuration asks, or in the family `contest`.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.report import judgement, names, prose
from scripts.report.findings import stretch
from scripts.report.markup import bold
from scripts.report.results import ABSENT, Results
from scripts.statistics.verdicts import CONTEST

NAMED = 3  # leaders that a sentence names
ADVICE = 4  # sentences that a page opens with
Arm = tuple[str, ...]
# Levels of the factors beside those that are compared.
Context = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Lead:
    """The arms that no other was shown to beat, at levels beside each other, in all contexts that came out alike.

    `kind` is `one`, `same` (each as fast as the others) or `open` (not told apart). Where no two arms were judged it is
    `few` (too few repeats), `apart` (not comparable) or `unjudged` (there are no verdicts), and `arms` is the one with
    the highest value. `outside` are arms that were judged against no other, though others were.
    """

    group: str
    contexts: tuple[Context, ...]
    levels: tuple[str, ...]
    of: tuple[str, ...]
    arms: tuple[Arm, ...]
    kind: str
    outside: tuple[Arm, ...] = ()


def find(results: Results) -> list[Lead]:
    """Return who leads, in each group of arms that deliver the same and in each context, along the levels."""
    contest, names_of = results.report.contest, context_of(results)
    cells = results.measured
    groups = [contest.group(cell) for cell in cells.to_dict("records")]
    order = list(dict.fromkeys(groups))
    edges = _edges(results)
    alike: dict[tuple, list[tuple[Context, list[Lead]]]] = {}
    for (group, *levels), some in cells.assign(group=groups).groupby(["group", *names_of], sort=False):
        if len(some[list(contest.arm)].drop_duplicates()) > 1:
            context = tuple(zip(names_of, levels, strict=True))
            leads = _along(group, context, some, edges, results)
            same = tuple((lead.levels, lead.of, frozenset(lead.arms), lead.kind, lead.outside) for lead in leads)
            alike.setdefault((group, same), []).append((context, leads))
    distinct = []
    for parts in alike.values():
        for some in products(parts):
            contexts = tuple(context for context, _ in some)
            distinct += [replace(lead, contexts=contexts) for lead in some[0][1]]
    # What says most stands first.
    return sorted(distinct, key=lambda lead: (-len(lead.of), order.index(lead.group)))


def context_of(results: Results) -> list[str]:
    """Return the factors that arms of one contest have in common, beside the one along which they are compared."""
    report = results.report
    return [name for name in report.names if name not in (*report.contest.arm, report.along)]


def products(parts: list[tuple[Context, object]]) -> Iterator[list]:
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


def in_words(lead: Lead, results: Results, strong: Callable[[str], str] = bold) -> tuple[str, str]:
    """Return where a lead holds and what it is, with values and intervals."""
    usual = results.usual
    levels: dict[str, dict[str, None]] = {}
    for factor, level in itertools.chain(*lead.contexts):
        levels.setdefault(factor, {})[level] = None
    cells = _cells(lead, results)
    states = dict.fromkeys(results.states(cells))
    conditions = [results.names.place({"state": " | ".join(states)})]
    conditions += [
        results.names.within(factor, among)
        for factor, among in levels.items()
        if factor != "cache" and (len(among) > 1 or any(level and level != usual.get(factor) for level in among))
    ]
    where = ", ".join(filter(None, [lead.group, *conditions]))
    value, fastest = results.report.values[0], results.report.contest.fastest
    arms = sorted(lead.arms, key=lambda arm: -cells[cells["arm"] == arm][value.column].max())
    rates = {arm: _values(cells[cells["arm"] == arm], len(lead.contexts), results) for arm in arms}
    texts = [f"{strong(_arm(arm, results))} ({rates[arm]})" for arm in arms[:NAMED]]
    texts += [f"{len(arms) - NAMED} more"] if len(arms) > NAMED else []
    at = stretch(lead.levels, lead.of, results)
    rest = f"; not judged: {prose.listing(_arm(arm, results) for arm in lead.outside)}" if lead.outside else ""
    match lead.kind:
        case "one":
            return where, f"{at}, {texts[0]} {fastest}{rest}."
        case "same":
            return where, f"{at}, {prose.listing(texts)} {fastest}, each as fast as the other{rest}."
        case "unjudged":
            return where, f"{at}, most was measured with {texts[0]}; without repeats nothing is judged."
        case "apart":
            return where, f"{at}, most was measured with {texts[0]}; the arms are not comparable."
        case "few":
            return where, f"{at}, most was measured with {texts[0]}; too few repeats for a verdict."
        case _:
            return where, f"{at}, nothing was shown to be faster than {prose.listing(texts, 'or')}{rest}."


def advice(leads: list[Lead], results: Results) -> list[str]:
    """Return who leads in the other contexts and along the sizes, a sentence each."""
    first = _first(leads) or leads[:1]
    sentences = [in_words(lead, results) for lead in leads if lead not in first]
    return [f"{prose.capital(where)}: {text}" for where, text in sentences[:ADVICE]]


def headline(leads: list[Lead], results: Results) -> str:
    """Return who leads in one bold sentence, of each group of arms."""
    texts = [f"{where}, {text.rstrip('.')}" for where, text in (in_words(lead, results, str) for lead in _first(leads))]
    if texts:
        return bold(f"{prose.capital('; '.join(texts))}.")
    undecided = [in_words(lead, results) for lead in leads[:1]]
    nothing = "".join(f" {prose.capital(where)}, {text}" for where, text in undecided)
    if results.verdicts.empty:
        return bold(ABSENT["verdicts"]) + nothing
    return bold("No arm was shown to be the fastest.") + nothing


def _first(leads: list[Lead]) -> list[Lead]:
    """The leads that the headline tells: the first that was decided of each group."""
    decided = [lead for lead in leads if lead.kind in ("one", "same")]
    return [next(lead for lead in decided if lead.group == group) for group in {lead.group: None for lead in decided}]


def _along(
    group: str, context: Context, cells: pd.DataFrame, edges: dict[tuple[str, str], str], results: Results
) -> list[Lead]:
    along = results.report.along
    levels = sorted(cells[along].unique(), key=names.amount)
    leads: list[Lead] = []
    beside = False
    for level in levels:
        here = cells[cells[along] == level]
        # A level at which one arm alone was measured says nothing, and keeps those around it apart.
        if len(here) < 2:
            beside = False
            continue
        lead = _lead(edges, here, results.report.contest.arm, results.report.values[0].column)
        last = leads[-1] if beside else None
        if last and (last.kind, set(last.arms), last.outside) == (lead.kind, set(lead.arms), lead.outside):
            leads[-1] = replace(last, levels=(*last.levels, level))
        else:
            leads.append(replace(lead, levels=(level,)))
        beside = True
    return [replace(lead, group=group, contexts=(context,), of=tuple(levels)) for lead in leads]


def _lead(edges: dict[tuple[str, str], str], cells: pd.DataFrame, arm: Sequence[str], value: str) -> Lead:
    """Return who of some cells leads: those that no other beats; all, where the verdicts go in a circle."""
    arms = dict(zip(cells["cell"], cells[list(arm)].itertuples(index=False, name=None), strict=True))
    between = {pair: verdict for pair, verdict in edges.items() if set(pair) <= arms.keys()}
    judged = {pair: verdict for pair, verdict in between.items() if verdict in judgement.JUDGED}
    contest = [cell for cell in arms if any(cell in pair for pair in judged)]
    if not contest:
        measured = cells.dropna(subset=[value])
        most = measured.loc[measured[value].idxmax()] if len(measured) else cells.iloc[0]
        kind = "unjudged" if not between else "apart" if set(between.values()) == {"not comparable"} else "few"
        return Lead("", (), (), (), (tuple(most[list(arm)]),), kind)
    beaten: dict[str, set[str]] = {cell: set() for cell in contest}
    for (base, other), verdict in judged.items():
        if verdict in ("faster", "slower"):
            loser, winner = (base, other) if verdict == "faster" else (other, base)
            beaten[loser].add(winner)
    leading = [cell for cell in contest if not beaten[cell]] or contest
    if len(leading) == 1:
        kind = "one" if all(leading[0] in beaten[cell] for cell in contest if cell != leading[0]) else "open"
    else:
        pairs = itertools.combinations(leading, 2)
        same = all("same" in (judged.get(pair), judged.get(pair[::-1])) for pair in pairs)
        kind = "same" if same else "open"
    outside = tuple(arm for cell, arm in arms.items() if cell not in contest)
    return Lead("", (), (), (), tuple(arms[cell] for cell in leading), kind, outside)


def _edges(results: Results) -> dict[tuple[str, str], str]:
    """Return the verdicts between arms of the contests: (baseline's cell, contender's cell) -> verdict."""
    metric, arm = results.report.metrics[0].name, results.report.contest.arm
    rows, compared = results.verdicts, results.comparisons(metric)
    if rows.empty:
        return {}
    pairs = rows[(rows["metric"] == metric) & (rows["factor"] == CONTEST)][["baseline", "contender", "verdict"]]
    compared = compared[compared["factor"].isin(arm)][["baseline_cell", "contender_cell", "verdict"]]
    return {
        (base, other): verdict
        for table in (pairs, compared)
        for base, other, verdict in table.itertuples(index=False, name=None)
    }


def _cells(lead: Lead, results: Results) -> pd.DataFrame:
    cells, along = results.measured, results.report.along
    contexts = {tuple(level for _, level in context) for context in lead.contexts}
    rows = cells[context_of(results)].itertuples(index=False, name=None)
    inside = np.array([row in contexts for row in rows], dtype=bool)
    cells = cells[inside & cells[along].isin(lead.levels)]
    cells = cells.sort_values(along, key=lambda levels: levels.map(names.amount), kind="stable")
    return cells.assign(arm=list(cells[list(results.report.contest.arm)].itertuples(index=False, name=None)))


def _arm(arm: Arm, results: Results) -> str:
    contest = results.report.contest
    return contest.name(dict(zip(contest.arm, arm, strict=True)), results.names)


def _values(cells: pd.DataFrame, contexts: int, results: Results) -> str:
    """The value at the smallest and at the largest level; of several contexts their range."""
    value, along = results.report.values[0], results.report.along
    ends = [value.column, f"{value.column}_low", f"{value.column}_high"]
    if contexts > 1:
        return f"{prose.span(cells[value.column], names.rate)} {value.unit}"
    texts = [f"{names.with_interval(*row)} {value.unit}" for row in cells[ends].itertuples(index=False, name=None)]
    if len(texts) == 1:
        return texts[0]
    first, last = (results.names.level(along, cells[along].iloc[place]) for place in (0, -1))
    return f"{texts[0]} at {first}, {texts[-1]} at {last}"
