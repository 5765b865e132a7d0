"""Determine the fastest arm at each level of the factor `along`, from pairwise verdicts (METHOD 17).

Every pair of arms in a contest has a verdict, from the configured comparisons or from the comparison family `contest`.
A context is a combination of levels of the factors that the arms of a contest share.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sbench.pages import names, prose, words
from sbench.pages.headline import CLAUSES, LONGEST, Sentence
from sbench.pages.markup import bold
from sbench.pages.results import Results
from sbench.pages.run_files import ABSENT
from sbench.pages.sentences import write_stretch
from sbench.pages.statements import Leader, Outcomes
from sbench.verdicts.outcomes import DECIDED, JUDGED, Outcome

NAMED = 3  # maximum number of leaders named in a sentence
ADVICE = 4  # maximum number of sentences at the top of a page
# Kinds of leads without judged arms, or with an unjudged arm in front; `words` contains the reasons.
UNJUDGED = ("unjudged", "apart", "few", "ahead")
DECIDED_KINDS = ("one", "same")
Arm = tuple[str, ...]
Context = tuple[str, ...]
Edges = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Lead:
    """The arms that no other arm of a contest beat, at neighbouring levels and in each context with this outcome.

    Attributes:
        arms: the leading arms. If `kind` is in `UNJUDGED`, the arm with the highest value or, for `ahead`, the arm with
            the least time, which has no verdict although other arms have verdicts.
        kind: `one` (faster than every other arm), `same` (several arms, equally fast), `open` (undecided), or in
            `UNJUDGED`.
        outside: arms without a verdict, if other arms have verdicts.
        groups: groups of arms to which the lead applies.
        contexts: contexts to which the lead applies, as levels of the factors in `list_context_factors`.
        levels: levels of the factor `along` to which the lead applies.
        of: all levels of that factor in the group.
    """

    arms: tuple[Arm, ...]
    kind: str
    outside: tuple[Arm, ...] = ()
    groups: tuple[str, ...] = ()
    contexts: tuple[Context, ...] = ()
    levels: tuple[str, ...] = ()
    of: tuple[str, ...] = ()

    @property
    def outcome(self) -> tuple:
        """Return a key that is equal for leads that one sentence can describe."""
        return self.kind, frozenset(self.arms), self.outside


def find_leads(results: Results) -> list[Lead]:
    """Find the leads at each level, separately for each context and for each group of arms with the same result."""
    contest, context_names, edges = results.report.contest, list_context_factors(results), _get_edges(results)
    cells = results.measured
    cells = cells.assign(group=[contest.group(cell) for cell in cells.to_dict("records")])
    alike: dict[tuple, dict[Context, list[Lead]]] = {}
    for (group, *context), some in cells.groupby(["group", *context_names], sort=False):
        if len(some[list(contest.arm)].drop_duplicates()) > 1:
            leads = _find_leads_along(some, edges, results)
            outcomes = tuple((lead.levels, lead.of, *lead.outcome) for lead in leads)
            alike.setdefault((group, outcomes), {})[tuple(context)] = leads
    distinct = [
        replace(lead, groups=(group,), contexts=tuple(contexts))
        for (group, _), parts in alike.items()
        for contexts in split_contexts(list(parts))
        for lead in parts[contexts[0]]
    ]
    # Leads of the groups with the most levels come first.
    order = list(cells["group"].unique())
    return sorted(distinct, key=lambda lead: (-len(lead.of), order.index(lead.groups[0])))


def list_context_factors(results: Results) -> list[str]:
    """List the factors that all arms compared in a contest have in common, except the factor `along`."""
    report = results.report
    return [name for name in report.names if name not in (*report.contest.arm, report.along)]


def split_contexts(contexts: list[Context]) -> Iterator[list[Context]]:
    """Split contexts into groups that each consist of all combinations of some levels, which a sentence can name."""
    levels = [list(dict.fromkeys(column)) for column in zip(*contexts, strict=True)]
    if np.prod([len(some) for some in levels]) == len(contexts):
        yield contexts
        return
    fewest = min((place for place, some in enumerate(levels) if len(some) > 1), key=lambda place: len(levels[place]))
    for level in levels[fewest]:
        yield from split_contexts([context for context in contexts if context[fewest] == level])


def describe_lead(
    lead: Lead, results: Results, strong: Callable[[str], str] = bold, brief: bool = False
) -> tuple[str, str]:
    """Describe a lead in a sentence that includes the values of the leading arms.

    Args:
        lead: the lead.
        results: results of the study.
        strong: function that emphasises the names of arms.
        brief: whether to omit confidence intervals and the arms without a verdict.

    Returns:
        the conditions, and the sentence.
    """
    report, cells = results.report, select_cells(lead, results)
    where = _describe_conditions(lead, cells, results)
    of_arm = {arm: cells[cells["arm"] == arm] for arm in lead.arms}
    arms = sorted(lead.arms, key=lambda arm: -of_arm[arm][report.values[0].column].max())
    texts = [
        f"{strong(_format_arm(arm, results))} ({_format_values(of_arm[arm], lead, results, brief)})"
        for arm in arms[:NAMED]
    ]
    texts += [words.fill("more arms", many=len(arms) - NAMED)] if len(arms) > NAMED else []
    at = write_stretch(lead.levels, lead.of, results)
    if lead.kind in UNJUDGED:
        return where, words.fill("most without verdict", at=at, arm=texts[0], why=words.fill(lead.kind))
    among = words.fill("of those judged") if lead.outside else ""
    rest = words.fill("not judged", arms=_name_outside(lead, results)) if lead.outside and not brief else "."
    if lead.kind == "open":
        arms, fastest = prose.format_list(texts, "or"), report.contest.fastest
        return where, words.fill("not told apart", at=at, arms=arms, fastest=fastest, rest=rest)
    fastest = report.contest.fastest
    fastest = re.sub(r"^was ", "were ", fastest) if len(lead.arms) > 1 else fastest
    fields = {"fastest": fastest, "among": among, "rest": rest}
    fields["same"] = words.fill("each as fast") if lead.kind == "same" else ""
    return where, words.fill("fastest", at=at, arms=prose.format_list(texts), **fields)


def _describe_conditions(lead: Lead, cells: pd.DataFrame, results: Results) -> str:
    named = results.names
    conditions = [named.format_place({"state": " | ".join(dict.fromkeys(results.get_cache_states(cells)))})]
    for factor, column in zip(list_context_factors(results), zip(*lead.contexts, strict=True), strict=True):
        levels = list(dict.fromkeys(column))
        if factor != "cache" and levels != [""] and levels != [results.usual_levels.get(factor)]:
            conditions.append(named.format_condition(factor, levels))
    # The names of groups already state the factor that separates them.
    conditions = [text for text in conditions if text != prose.format_list(lead.groups, "or")]
    return ", ".join(dict.fromkeys(filter(None, [prose.format_list(lead.groups), *conditions])))


def _format_arm(arm: Arm, results: Results) -> str:
    contest = results.report.contest
    return contest.name(dict(zip(contest.arm, arm, strict=True)), results.names)


def _name_outside(lead: Lead, results: Results) -> str:
    return prose.format_list(_format_arm(arm, results) for arm in lead.outside)


def write_others(leads: list[Lead], results: Results) -> list[Sentence]:
    """Write a sentence for each lead that is not in the headline, and for arms without a verdict in those that are."""
    keys = {_build_key(lead) for lead in _choose_leads(leads, results)}
    first = [lead for lead in _select_first(leads) if _build_key(lead) in keys] or leads[:1]
    unjudged = [
        words.fill(
            "outside",
            where=prose.capitalize_first(_describe_conditions(lead, select_cells(lead, results), results)),
            arms=_name_outside(lead, results),
            at=write_stretch(lead.levels, lead.of, results),
        )
        for lead in first
        if lead.outside
    ]
    return [
        (
            f"{prose.capitalize_first(where)}: {text}",
            (to_statement(lead, results),) if lead.kind in DECIDED_KINDS else (),
        )
        for lead in [lead for lead in leads if lead not in first][:ADVICE]
        for where, text in [describe_lead(lead, results)]
    ] + [(text, ()) for text in unjudged]


def write_headline(leads: list[Lead], results: Results) -> list[Sentence]:
    """Summarise the decided leads in a sentence, and return it with its statements.

    If no lead was decided, write so, followed by the first lead.
    """
    chosen = _choose_leads(leads, results)
    if chosen:
        statements = tuple(to_statement(lead, results) for lead in chosen)
        undecided = _select_undecided(results)
        if len(undecided) and _is_short(chosen, results, clause := _write_undecided(undecided, results)):
            return [(_write_leads(chosen, results, clause), (*statements, Outcomes(results.to_comparisons(undecided))))]
        return [(_write_leads(chosen, results), statements)]
    where, text = describe_lead(leads[0], results, str)
    nothing = ABSENT["verdicts"] if results.verdicts.empty else words.fill("no leader")
    return [(f"{nothing} {prose.capitalize_first(where)}, {text}", ())]


def to_statement(lead: Lead, results: Results) -> Leader:
    """Convert a lead to a statement that can be checked against the data.

    The statement contains the leading cells, the cells that they were compared with, and the verdicts between them.
    """
    cells = select_cells(lead, results)
    role = np.select([cells["arm"].isin(lead.arms), cells["arm"].isin(lead.outside)], ["leads", "unjudged"], "other")
    keys = [results.report.along, *list_context_factors(results)]
    groups = [group for _, group in cells.assign(role=role).groupby(keys, sort=False)]
    leading, others, unjudged = (
        tuple(tuple(group["cell"][group["role"] == role]) for group in groups)
        for role in ("leads", "other", "unjudged")
    )
    judged = [group["cell"][group["role"] != "unjudged"] for group in groups]
    rows = _select_comparisons(results)
    rows = rows[rows["verdict"].isin(JUDGED)]
    within = [rows["baseline_cell"].isin(cells) & rows["contender_cell"].isin(cells) for cells in judged]
    chosen = rows[np.logical_or.reduce(within)] if within else rows[:0]
    return Leader(leading, others, unjudged, results.to_comparisons(chosen), lead.kind == "one")


def _select_first(leads: list[Lead]) -> list[Lead]:
    """Select the leads for the headline: the decided leads of each group in the contexts of its first decided lead."""
    decided = [lead for lead in leads if lead.kind in DECIDED_KINDS]
    contexts = {lead.groups: lead.contexts for lead in reversed(decided)}
    return [lead for lead in decided if lead.contexts == contexts[lead.groups]]


def _choose_leads(leads: list[Lead], results: Results) -> list[Lead]:
    """Choose the leads that fit in the headline: the first, and the next that is short enough.

    The remaining leads are described in other sentences.
    """
    chosen: list[Lead] = []
    # A clause remains for factors that no comparison decides.
    most = CLAUSES - 1 if len(_select_undecided(results)) else CLAUSES
    for lead in _merge_leads(_select_first(leads)):
        if not chosen or (len(chosen) < most and _is_short([*chosen, lead], results)):
            chosen.append(lead)
    return chosen


def _select_undecided(results: Results) -> pd.DataFrame:
    """Select the comparisons of each factor that distinguishes arms, if not a single one of them is decided."""
    rows, contest = results.get_comparisons(), results.report.contest
    rows = rows[rows["factor"].isin(contest.arm if contest else ())]
    return rows[~rows["verdict"].isin(DECIDED).groupby(rows["factor"]).transform("any")] if len(rows) else rows


def _write_undecided(rows: pd.DataFrame, results: Results) -> str:
    factors = [results.report.get_factor(name).title for name in rows["factor"].unique()]
    name = "headline undecided" if len(factors) == 1 else "headlines undecided"
    return words.fill(name, factors=prose.format_list(factors))


def _is_short(leads: list[Lead], results: Results, clause: str = "") -> bool:
    return len(_write_leads(leads, results, clause).split()) <= LONGEST


def _write_leads(leads: list[Lead], results: Results, clause: str = "") -> str:
    places: dict[str, list[str]] = {}
    for lead in leads:
        where, text = describe_lead(lead, results, str, brief=True)
        places.setdefault(where, []).append(text.rstrip("."))
    texts = [f"{where}, {'; '.join(texts)}" for where, texts in places.items()] + [clause] * bool(clause)
    return f"{prose.capitalize_first('; '.join(texts))}."


def _build_key(lead: Lead) -> tuple:
    return lead.levels, lead.of, lead.outcome


def _merge_leads(leads: list[Lead]) -> list[Lead]:
    alike: dict[tuple, Lead] = {}
    for lead in leads:
        key = _build_key(lead)
        if before := alike.get(key):
            groups = tuple(dict.fromkeys((*before.groups, *lead.groups)))
            lead = replace(before, groups=groups, contexts=tuple(dict.fromkeys((*before.contexts, *lead.contexts))))
        alike[key] = lead
    return list(alike.values())


def _find_leads_along(cells: pd.DataFrame, edges: Edges, results: Results) -> list[Lead]:
    along = results.report.along
    levels = sorted(cells[along].unique(), key=names.parse_amount)
    leads: list[Lead] = []
    beside = False
    for level in levels:
        here = cells[cells[along] == level]
        # A level with a single arm decides nothing, and separates the levels on either side.
        if len(here) > 1:
            lead = _find_lead(edges, here, results.report.contest.arm, results.report.values[0].column)
            before = leads.pop().levels if beside and leads[-1].outcome == lead.outcome else ()
            leads.append(replace(lead, levels=(*before, level), of=tuple(levels)))
        beside = len(here) > 1
    return leads


def _find_lead(edges: Edges, cells: pd.DataFrame, arm: tuple[str, ...], value: str) -> Lead:
    """Find the leading cells, which no other cell beats.

    If the verdicts form a cycle, all judged cells lead.
    """
    arms = dict(zip(cells["cell"], cells[list(arm)].itertuples(index=False, name=None), strict=True))
    between = {pair: verdict for pair, verdict in edges.items() if set(pair) <= arms.keys()}
    judged = {frozenset(pair): verdict for pair, verdict in between.items() if verdict in JUDGED}
    contest = [cell for cell in arms if any(cell in pair for pair in judged)]
    if not contest:
        comparable = [pair for pair, verdict in between.items() if verdict != Outcome.NOT_COMPARABLE]
        alike = set(itertools.chain(*comparable)) or arms
        most = cells.loc[cells.loc[cells["cell"].isin(alike), value].fillna(-np.inf).idxmax()]
        kind = "few" if comparable else "apart" if between else "unjudged"
        return Lead((tuple(most[list(arm)]),), kind)
    beaten = {pair for pair, verdict in between.items() if verdict == Outcome.FASTER}
    beaten |= {pair[::-1] for pair, verdict in between.items() if verdict == Outcome.SLOWER}
    losers = {loser for loser, _ in beaten}
    leading = [cell for cell in contest if cell not in losers] or contest
    if len(leading) == 1:
        kind = "one" if all((cell, leading[0]) in beaten for cell in contest if cell != leading[0]) else "open"
    else:
        pairs = map(frozenset, itertools.combinations(leading, 2))
        kind = "same" if all(judged.get(pair) == "same" for pair in pairs) else "open"
    outside = [cell for cell in arms if cell not in contest]
    times = cells.set_index("cell")["total_s"].astype(float)
    if times.reindex(outside).min() < times.reindex(leading).min():
        return Lead((arms[times.reindex(outside).idxmin()],), "ahead")
    return Lead(tuple(arms[cell] for cell in leading), kind, tuple(arms[cell] for cell in outside))


def _get_edges(results: Results) -> Edges:
    return {(row.baseline_cell, row.contender_cell): row.verdict for row in _select_comparisons(results).itertuples()}


def _select_comparisons(results: Results) -> pd.DataFrame:
    compared = results.get_comparisons()
    return pd.concat([results.contest, compared[compared["factor"].isin(results.report.contest.arm)]])


def select_cells(lead: Lead, results: Results) -> pd.DataFrame:
    """Return the cells to which a lead applies, with a column `arm`, sorted by level."""
    cells, along = results.measured, results.report.along
    cells = cells[cells[along].isin(lead.levels)]
    cells = cells[[tuple(context) in lead.contexts for context in cells[list_context_factors(results)].to_numpy()]]
    cells = cells[[results.report.contest.group(cell) in lead.groups for cell in cells.to_dict("records")]]
    cells = cells.sort_values(along, key=lambda levels: levels.map(names.parse_amount), kind="stable")
    return cells.assign(arm=list(cells[list(results.report.contest.arm)].itertuples(index=False, name=None)))


def _format_values(cells: pd.DataFrame, lead: Lead, results: Results, brief: bool) -> str:
    """Format the values at the lowest and highest level, or only the range if `brief` or with several contexts."""
    value, along = results.report.values[0], results.report.along
    if len(lead.contexts) > 1 or brief:
        return f"{prose.format_span(cells[value.column], names.format_rate)} {value.unit}"
    ends = cells[[value.column, f"{value.column}_low", f"{value.column}_high"]].itertuples(index=False, name=None)
    texts = [f"{names.format_with_interval(*row)} {value.unit}" for row in ends]
    if len(texts) == 1:
        return texts[0]
    first, last = (results.names.format_level(along, cells[along].iloc[place]) for place in (0, -1))
    return words.fill("values at ends", low=texts[0], first=first, high=texts[-1], last=last)
