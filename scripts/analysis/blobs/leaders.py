"""Which store and pattern feed the processes fastest at each size, as far as verdicts say (METHOD 17).

Arms that the configuration does not name for comparison are judged here by the same rule: all such pairs of one size
and context are a family.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.analysis import judgement, prose, stats
from scripts.analysis.blobs import courses, words
from scripts.analysis.blobs.courses import Context
from scripts.analysis.blobs.data import Results

# What an arm is, and what all arms that are compared have in common beside the size.
ARM = ["store", "pattern", "objects"]
CONTEXT = ["processes", "operation_size", "chunk_size", "concurrency", "cache"]
NAMED = 3  # leaders that a sentence names
Arm = tuple[str, str, str]


@dataclass(frozen=True)
class Lead:
    """The arms that no other was shown to beat, at sizes beside each other, in all contexts that came out alike.

    `kind` is `one`, `same` (each as fast as the others), `open` (not told apart), `few` (too few repeats to judge) or
    `apart` (not comparable); of the last two `arms` is the one with most bandwidth.
    """

    whole: bool
    contexts: tuple[Context, ...]
    sizes: tuple[str, ...]
    of: tuple[str, ...]
    arms: tuple[Arm, ...]
    kind: str


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
            same = tuple((lead.sizes, lead.of, frozenset(lead.arms), lead.kind) for lead in leads)
            alike.setdefault((whole, same), []).append((context, leads))
    found = []
    for parts in alike.values():
        for some in courses.products(parts):
            contexts = tuple(context for context, _ in some)
            found += [replace(lead, contexts=contexts) for lead in some[0][1]]
    # What says most stands first: many sizes, then whole objects.
    return sorted(found, key=lambda lead: (-len(lead.of), not lead.whole))


def in_words(lead: Lead, results: Results) -> tuple[str, str]:
    """Return where a lead holds and what it is, with bandwidths and intervals."""
    facts, usual = results.facts, words.usual(results.measured)
    levels: dict[str, dict[str, None]] = {}
    for factor, level in itertools.chain(*lead.contexts):
        levels.setdefault(factor, {})[level] = None
    told = [
        words.levels(factor, found, facts)
        for factor, found in levels.items()
        if len(found) > 1 or any(words.worth(factor, level, usual) for level in found)
    ]
    where = ", ".join([f"where each process gets {'a whole object' if lead.whole else 'a section'}", *told])
    cells = _cells(lead, results)
    arms = sorted(lead.arms, key=lambda arm: -cells[cells["arm"] == arm]["mib_s"].max())
    rates = {arm: _bandwidth(cells[cells["arm"] == arm], len(lead.contexts)) for arm in arms}
    texts = [f"**{_arm(arm, facts)}** ({rates[arm]})" for arm in arms[:NAMED]]
    texts += [f"{len(arms) - NAMED} more"] if len(arms) > NAMED else []
    at = words.stretch(lead.sizes, lead.of)
    match lead.kind:
        case "one":
            return where, f"{at}, {texts[0]} fed the processes fastest."
        case "same":
            return where, f"{at}, {prose.listing(texts)} fed the processes fastest, each as fast as the other."
        case "few" if results.is_printed:
            return where, f"{at}, most was printed for {texts[0]}; without repeats nothing is judged."
        case "apart":
            return where, f"{at}, most was measured with {texts[0]}; the arms are not comparable."
        case "few":
            return where, f"{at}, most was measured with {texts[0]}; too few repeats for a verdict."
        case _:
            return where, f"{at}, nothing was shown to be faster than {prose.listing(texts, 'or')}."


def _along(whole: bool, context: Context, cells: pd.DataFrame, results: Results) -> list[Lead]:
    sizes = sorted(cells["size"].unique(), key=words.amount)
    leads: list[Lead] = []
    for size in sizes:
        here = cells[cells["size"] == size]
        if len(here) < 2:
            continue
        kind, leading = _lead(_edges(here, size, context, results), here)
        last = leads[-1] if leads else None
        if last and (last.kind, set(last.arms)) == (kind, set(leading)):
            leads[-1] = Lead(whole, (context,), (*last.sizes, size), (), last.arms, kind)
        else:
            leads.append(Lead(whole, (context,), (size,), (), tuple(leading), kind))
    return [Lead(whole, (context,), lead.sizes, tuple(sizes), lead.arms, lead.kind) for lead in leads]


def _lead(edges: dict[tuple[Arm, Arm], str], cells: pd.DataFrame) -> tuple[str, list[Arm]]:
    """Return how the arms that no other beats stand to each other, and them; all, where the verdicts go in a circle."""
    arms = list(cells[ARM].itertuples(index=False, name=None))
    beaten: dict[Arm, set[Arm]] = {arm: set() for arm in arms}
    for (base, other), verdict in edges.items():
        if verdict in ("faster", "slower"):
            loser, winner = (base, other) if verdict == "faster" else (other, base)
            beaten[loser].add(winner)
    if not any(verdict in judgement.JUDGED for verdict in edges.values()):
        known = cells.dropna(subset=["mib_s"])
        most = known.loc[known["mib_s"].idxmax()] if len(known) else cells.iloc[0]
        apart = edges and set(edges.values()) == {"not comparable"}
        return "apart" if apart else "few", [tuple(most[ARM])]
    leading = [arm for arm in arms if not beaten[arm]] or arms
    pairs = [edges.get((one, other), edges.get((other, one))) for one, other in itertools.combinations(leading, 2)]
    if len(leading) == 1:
        beats_all = all(leading[0] in beaten[arm] for arm in arms if arm != leading[0])
        return "one" if beats_all else "open", leading
    return ("same" if all(verdict == "same" for verdict in pairs) else "open"), leading


def _edges(cells: pd.DataFrame, size: str, context: Context, results: Results) -> dict[tuple[Arm, Arm], str]:
    """Return the verdicts between the arms of a size: (baseline, contender) -> verdict."""
    arms = dict(zip(cells[ARM].itertuples(index=False, name=None), cells["cell"], strict=True))
    found = {}
    for row in _rows(size, context, results).to_dict("records"):
        levels = {factor: row[factor] for factor in ARM}
        base, other = (tuple((levels | {row["factor"]: row[side]}).values()) for side in ("baseline", "contender"))
        if base in arms and other in arms:
            found[base, other] = row["verdict"]
    known = {frozenset(pair) for pair in found}
    pairs = [pair for pair in itertools.combinations(arms, 2) if frozenset(pair) not in known]
    return found | dict(zip(pairs, _judged([(arms[a], arms[b]) for a, b in pairs], results), strict=False))


def _rows(size: str, context: Context, results: Results) -> pd.DataFrame:
    rows = results.verdicts
    if rows.empty:
        return rows
    rows = rows[(rows["metric"] == "total") & (rows["role"] != "control") & rows["factor"].isin(ARM)]
    return rows[(rows["size"] == size) & (rows[CONTEXT] == [level for _, level in context]).all(axis=1)]


def _judged(pairs: list[tuple[str, str]], results: Results) -> list[str]:
    """Return the verdicts of pairs of cells by their records; none where code or machine changed within the run."""
    alike = all(len(results.facts.get(key) or []) < 2 for key in ("code", "machines"))
    if not pairs or results.records.empty or not alike:
        return []
    good = results.records[results.records["valid"]]
    totals = good.pivot(index="repeat", columns="cell", values="total_s")
    base, other = (totals.reindex(columns=[pair[side] for pair in pairs]).to_numpy(float) for side in (0, 1))
    percent = judgement.equivalence(results.facts)
    return [one.verdict for one in stats.judge(np.log(other) - np.log(base), percent)]


def _cells(lead: Lead, results: Results) -> pd.DataFrame:
    cells = results.measured
    contexts = {tuple(level for _, level in context) for context in lead.contexts}
    inside = np.array([one in contexts for one in cells[CONTEXT].itertuples(index=False, name=None)], dtype=bool)
    cells = cells[inside & cells["size"].isin(lead.sizes)].sort_values("bytes", kind="stable")
    return cells.assign(arm=list(cells[ARM].itertuples(index=False, name=None)))


def _arm(arm: Arm, facts: dict) -> str:
    named = dict(zip(ARM, arm, strict=True))
    return f"{words.pattern_of(named)} from {words.source(named['store'], facts)}"


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
    first, last = (words.size(cells["size"].iloc[place]) for place in (0, -1))
    return f"{texts[0]} at {first}, {texts[-1]} at {last}"
