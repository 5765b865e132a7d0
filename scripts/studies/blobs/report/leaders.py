"""Which store and pattern feed the processes fastest at each size, as far as verdicts say (METHOD 17).

Every pair of arms of one size and context has a verdict: as the configuration asks, or in the family `contest`.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.report import judgement, names, prose
from scripts.report.findings import stretch
from scripts.report.markup import bold
from scripts.statistics.verdicts import CONTEST
from scripts.studies.blobs.report import words
from scripts.studies.blobs.report.data import ABSENT, Results
from scripts.studies.blobs.study import CONTEXT

# What tells arms apart.
ARM = ["store", "pattern", "objects"]
NAMED = 3  # leaders that a sentence names
ADVICE = 4  # sentences that a page opens with
Arm = tuple[str, str, str]
# Levels of the factors beside those that are told of.
Context = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Lead:
    """The arms that no other was shown to beat, at sizes beside each other, in all contexts that came out alike.

    `kind` is `one`, `same` (each as fast as the others) or `open` (not told apart). Where no two arms were judged it is
    `few` (too few repeats), `apart` (not comparable) or `unjudged` (there are no verdicts), and `arms` is the one with
    most bandwidth. `outside` are arms that were judged against no other, though others were.
    """

    whole: bool
    contexts: tuple[Context, ...]
    sizes: tuple[str, ...]
    of: tuple[str, ...]
    arms: tuple[Arm, ...]
    kind: str
    outside: tuple[Arm, ...] = ()


def find(results: Results) -> list[Lead]:
    """Return who leads, for patterns of whole objects and of sections, in each context, along the sizes."""
    cells = results.measured
    alike: dict[tuple, list[tuple[Context, list[Lead]]]] = {}
    for (whole, *levels), group in cells.assign(whole=cells["pattern"].map(words.whole)).groupby(
        ["whole", *CONTEXT], sort=False
    ):
        if len(group[ARM].drop_duplicates()) > 1:
            context = tuple(zip(CONTEXT, levels, strict=True))
            leads = _along(whole, context, group, results)
            same = tuple((lead.sizes, lead.of, frozenset(lead.arms), lead.kind, lead.outside) for lead in leads)
            alike.setdefault((whole, same), []).append((context, leads))
    found = []
    for parts in alike.values():
        for some in products(parts):
            contexts = tuple(context for context, _ in some)
            found += [replace(lead, contexts=contexts) for lead in some[0][1]]
    # What says most stands first: many sizes, then whole objects.
    return sorted(found, key=lambda lead: (-len(lead.of), not lead.whole))


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
    """Return where a lead holds and what it is, with bandwidths and intervals."""
    usual = words.usual(results.measured)
    levels: dict[str, dict[str, None]] = {}
    for factor, level in itertools.chain(*lead.contexts):
        levels.setdefault(factor, {})[level] = None
    cells = _cells(lead, results)
    states = dict.fromkeys(results.states(cells))
    told = [results.names.place({"state": " | ".join(states)})]
    told += [
        results.names.within(factor, found)
        for factor, found in levels.items()
        if factor != "cache" and (len(found) > 1 or any(words.worth(factor, level, usual) for level in found))
    ]
    where = f"where each process gets {'a whole object' if lead.whole else 'a section'}"
    where = ", ".join(filter(None, [where, *told]))
    arms = sorted(lead.arms, key=lambda arm: -cells[cells["arm"] == arm]["mib_s"].max())
    rates = {arm: _bandwidth(cells[cells["arm"] == arm], len(lead.contexts)) for arm in arms}
    texts = [f"{strong(_arm(arm, results))} ({rates[arm]})" for arm in arms[:NAMED]]
    texts += [f"{len(arms) - NAMED} more"] if len(arms) > NAMED else []
    at = stretch(lead.sizes, lead.of, results)
    rest = f"; not judged: {prose.listing(_arm(arm, results) for arm in lead.outside)}" if lead.outside else ""
    match lead.kind:
        case "one":
            return where, f"{at}, {texts[0]} fed the processes fastest{rest}."
        case "same":
            return where, f"{at}, {prose.listing(texts)} fed the processes fastest, each as fast as the other{rest}."
        case "unjudged" if results.is_printed:
            return where, f"{at}, most was printed for {texts[0]}; without repeats nothing is judged."
        case "unjudged":
            return where, f"{at}, most was measured with {texts[0]}; there are no verdicts."
        case "apart":
            return where, f"{at}, most was measured with {texts[0]}; the arms are not comparable."
        case "few":
            return where, f"{at}, most was measured with {texts[0]}; too few repeats for a verdict."
        case _:
            return where, f"{at}, nothing was shown to be faster than {prose.listing(texts, 'or')}{rest}."


def advice(found: list[Lead], results: Results) -> list[str]:
    """Return who leads in the other contexts and along the sizes, a sentence each."""
    first = _first(found) or found[:1]
    told = [in_words(lead, results) for lead in found if lead not in first]
    return [f"{prose.capital(where)}: {text}" for where, text in told[:ADVICE]]


def headline(found: list[Lead], results: Results) -> str:
    """Return who leads in one bold sentence: of the patterns of whole objects, and of those of sections."""
    texts = [f"{where}, {text.rstrip('.')}" for where, text in (in_words(lead, results, str) for lead in _first(found))]
    if texts:
        return bold(f"{prose.capital('; '.join(texts))}.")
    undecided = [in_words(lead, results) for lead in found[:1]]
    nothing = "".join(f" {prose.capital(where)}, {text}" for where, text in undecided)
    if results.verdicts.empty:
        return bold(ABSENT["verdicts"]) + nothing
    return bold("No store and pattern was shown to feed the processes fastest.") + nothing


def _first(found: list[Lead]) -> list[Lead]:
    """The leads that the headline tells: the first that was decided of whole objects, and of sections."""
    decided = [lead for lead in found if lead.kind in ("one", "same")]
    return [next(lead for lead in decided if lead.whole == whole) for whole in {lead.whole: None for lead in decided}]


def _along(whole: bool, context: Context, cells: pd.DataFrame, results: Results) -> list[Lead]:
    sizes = sorted(cells["size"].unique(), key=names.amount)
    edges = _edges(cells, context, results)
    leads: list[Lead] = []
    beside = False
    for size in sizes:
        here = cells[cells["size"] == size]
        # A size at which one arm alone was measured says nothing, and keeps those around it apart.
        if len(here) < 2:
            beside = False
            continue
        lead = _lead(edges, here)
        last = leads[-1] if beside else None
        if last and (last.kind, set(last.arms), last.outside) == (lead.kind, set(lead.arms), lead.outside):
            leads[-1] = replace(last, sizes=(*last.sizes, size))
        else:
            leads.append(replace(lead, sizes=(size,)))
        beside = True
    return [replace(lead, whole=whole, contexts=(context,), of=tuple(sizes)) for lead in leads]


def _lead(edges: dict[tuple[str, str], str], cells: pd.DataFrame) -> Lead:
    """Return who of some cells leads: those that no other beats; all, where the verdicts go in a circle."""
    arms = dict(zip(cells["cell"], cells[ARM].itertuples(index=False, name=None), strict=True))
    between = {pair: verdict for pair, verdict in edges.items() if set(pair) <= arms.keys()}
    judged = {pair: verdict for pair, verdict in between.items() if verdict in judgement.JUDGED}
    contest = [cell for cell in arms if any(cell in pair for pair in judged)]
    if not contest:
        known = cells.dropna(subset=["mib_s"])
        most = known.loc[known["mib_s"].idxmax()] if len(known) else cells.iloc[0]
        kind = "unjudged" if not between else "apart" if set(between.values()) == {"not comparable"} else "few"
        return Lead(True, (), (), (), (tuple(most[ARM]),), kind)
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
    return Lead(True, (), (), (), tuple(arms[cell] for cell in leading), kind, outside)


def _edges(cells: pd.DataFrame, context: Context, results: Results) -> dict[tuple[str, str], str]:
    """Return the verdicts between cells of a context: (baseline, contender) -> verdict."""
    rows = results.verdicts
    if rows.empty:
        return {}
    rows = rows[rows["metric"] == "total"]
    found = rows[rows["factor"] == CONTEST][["baseline", "contender", "verdict"]].itertuples(index=False, name=None)
    edges = {(base, other): verdict for base, other, verdict in found}
    named = dict(zip(cells[[*ARM, "size"]].itertuples(index=False, name=None), cells["cell"], strict=True))
    compared = rows[rows["factor"].isin(ARM) & (rows[[*CONTEXT]] == [level for _, level in context]).all(axis=1)]
    for row in compared.to_dict("records"):
        sides = (row | {row["factor"]: row[side]} for side in ("baseline", "contender"))
        pair = tuple(named.get((*(side[factor] for factor in ARM), side["size"])) for side in sides)
        edges[pair] = row["verdict"]
    return edges


def _cells(lead: Lead, results: Results) -> pd.DataFrame:
    cells = results.measured
    contexts = {tuple(level for _, level in context) for context in lead.contexts}
    inside = np.array([one in contexts for one in cells[[*CONTEXT]].itertuples(index=False, name=None)], dtype=bool)
    cells = cells[inside & cells["size"].isin(lead.sizes)].sort_values("bytes", kind="stable")
    return cells.assign(arm=list(cells[ARM].itertuples(index=False, name=None)))


def _arm(arm: Arm, results: Results) -> str:
    named = dict(zip(ARM, arm, strict=True))
    return f"{words.pattern_of(named)} on {results.names.store(named['store'])}"


def _bandwidth(cells: pd.DataFrame, contexts: int) -> str:
    """The bandwidth at the smallest and at the largest of the sizes; of several contexts the least and the most."""
    if contexts > 1:
        return f"{prose.span(cells['mib_s'], words.rate)} MiB/s"
    texts = [
        f"{words.rate(row.mib_s)}{words.interval(row.mib_s_low, row.mib_s_high, words.rate)} MiB/s"
        for row in cells.itertuples()
    ]
    if len(texts) == 1:
        return texts[0]
    first, last = (names.size(cells["size"].iloc[place]) for place in (0, -1))
    return f"{texts[0]} at {first}, {texts[-1]} at {last}"
