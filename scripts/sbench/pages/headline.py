"""Write a page's question, and the headline that answers it with the outcome of a comparison."""

import itertools
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.pages import names, prose, words
from sbench.pages.findings import describe_place
from sbench.pages.results import Results
from sbench.pages.run_files import ABSENT
from sbench.pages.sentences import get_effect, name_sides
from sbench.pages.statements import Outcomes, Recommendation, Statement
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

FEW = 2  # contenders that the headline describes; with more, it names only the fastest
CLAUSES, LONGEST = 2, 35  # maximum number of clauses and words in a headline
NAMED = 5  # maximum number of levels named in a question
_SETTLED = (*ORDERED, Outcome.SAME)
Sentence = tuple[str, tuple[Statement, ...]]


def list_asked_factors(results: Results) -> list[str]:
    """List the varied factors that the configuration compares, followed by other factors with comparisons.

    Without a configuration, list the factors with comparisons, starting with the study's main factor. The list is
    never empty.
    """
    settings, own = results.facts.get("settings") or {}, results.report.headline
    made = sorted(dict.fromkeys(results.get_comparisons()["factor"]), key=lambda factor: factor != own)
    compared = [entry["factor"] for entry in settings.get("compare") or []]
    cells = _select_originals(results)
    varied = [factor for factor in compared if factor in cells and cells[factor].nunique() > 1]
    return list(dict.fromkeys([*varied, *made])) or compared[:1] or [own]


def _select_originals(results: Results) -> pd.DataFrame:
    cells = results.cells
    return cells[cells["control"] == ""] if "control" in cells else cells


def write_question(results: Results) -> str:
    """Return the question from the configuration. If it has none, derive one from the comparisons and levels.

    Names that the study declares (`Report.named`) are added in brackets to the configuration's question.
    """
    if question := results.facts.get("question"):
        for phrase, name in results.report.named(results).items():
            if name and name not in question:
                question = question.replace(phrase, f"{phrase} ({name})", 1)
        return question
    first, *others = list_asked_factors(results)
    levels = list(dict.fromkeys(_select_originals(results).get(first, ())))
    rows, title = results.get_comparisons(), results.report.get_factor(first).title
    pairs = rows[rows["factor"] == first][["factor", "baseline", "contender", "metric"]].drop_duplicates()
    if len(pairs) == 1:
        new, old = name_sides(pairs.iloc[0], results)
        text = f"Is {new} faster or slower than {old}"
    else:
        named = [results.names.format_table_level(first, level) for level in levels[:NAMED]]
        more = [f"{len(levels) - NAMED} more"] if len(levels) > NAMED else []
        text = f"Which {title} takes the least time: {prose.format_list([*named, *more], 'or')}"
    also = [results.report.get_factor(factor).title for factor in others]
    return f"{text}{f', and which {prose.format_list(also)}' if also else ''}?"


def write_headline(results: Results) -> Sentence:
    """Write the headline: the outcome of comparing the first factor of `list_asked_factors`, with its statements."""
    if results.measured.empty:
        return _explain_nothing(results.cells), ()
    if results.verdicts.empty:
        return ABSENT["verdicts"], ()
    factor, rows = list_asked_factors(results)[0], results.get_comparisons()
    rows = rows[(rows["factor"] == factor) & ~results.find_unmade(rows)[0]]
    if rows.empty:
        return words.fill("no comparison", factor=f"the {results.report.get_factor(factor).title}"), ()
    rows = rows.assign(place=[results.names.format_place(row) for row in rows.to_dict("records")])
    if rows["contender"].nunique() > FEW:
        return _write_least(factor, rows, results)
    clauses: list[str] = []
    statements: list[Statement] = []
    places = sorted(rows.groupby("place", sort=False), key=lambda place: -place[1]["verdict"].isin(ORDERED).sum())
    for _, group in places:
        ordered = group[group["verdict"].isin(ORDERED)]
        text = ", ".join(filter(None, [describe_place(group, results), _write_pairs(group, results, not clauses)]))
        is_short = len(clauses) < CLAUSES and len(" ".join([*clauses, text]).split()) <= LONGEST
        if len(ordered) and (not clauses or is_short):
            clauses.append(text)
            statements.append(Outcomes(results.to_comparisons(ordered)))
    if not clauses:
        return _write_undecided(rows, results)
    return f"{prose.capitalize_first('; '.join(clauses))}.", tuple(statements)


def _write_pairs(rows: pd.DataFrame, results: Results, is_first: bool) -> str:
    """Write how each contender at a storage location compares with the baseline, naming it only once if possible."""
    pairs = [pair for _, pair in rows.groupby("contender", sort=False) if pair["verdict"].isin(ORDERED).any()]
    parts = [_split_by_order(pair)[0] for pair in pairs]
    is_alike = len({get_effect(part, results).than for part in parts}) == 1
    is_named = [is_first and (pair is pairs[-1] or not is_alike) for pair in pairs]
    texts = [_write_pair(pair, results, named) for pair, named in zip(pairs, is_named, strict=True)]
    if any("," in text for text in texts):
        return "; ".join(texts)
    return prose.format_list(_remove_repetition(texts)) if texts else ""


def _remove_repetition(texts: list[str]) -> list[str]:
    """Remove words that consecutive clauses share: "HSDS took 65× and Zarr 2.6× as long"."""
    for verb, size in ((" took ", " as long"), (" was ", " as fast")):
        if all(verb in text and size in text for text in texts) and all(text.endswith(size) for text in texts[:-1]):
            texts = [texts[0], *(text.replace(verb, " ", 1) for text in texts[1:])]
            texts = [*(text.removesuffix(size) for text in texts[:-1]), texts[-1]]
    return texts


def _split_by_order(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Split decided comparisons by direction (faster or slower), with the more frequent direction first."""
    parts = [part for _, part in rows[rows["verdict"].isin(ORDERED)].groupby("verdict", sort=False)]
    return sorted(parts, key=len, reverse=True)


def _write_pair(rows: pd.DataFrame, results: Results, is_named: bool) -> str:
    """Write how two arms compare at a storage location, and under which conditions the order was reversed."""
    new, old = name_sides(rows.iloc[0], results)
    texts: list[str] = []
    for number, part in enumerate(_split_by_order(rows)):
        effect = get_effect(part, results)
        against = f" {effect.than} {old}" if is_named and not number else ""
        who = f"{new} " if not number else "" if effect.text.startswith("took ") else "it "
        text = effect.text if not number else effect.text.removeprefix("took ")
        texts.append(f"{who}{text}{against}{_describe_conditions(part, rows, results, ' '.join(texts))}")
    return "; ".join(texts)


def _describe_conditions(part: pd.DataFrame, rows: pd.DataFrame, results: Results, before: str) -> str:
    """Describe when an order applies: " with a 64 MiB page buffer", or " … (in 3 of 4 comparisons)" if not always.

    After a text `before` about a page buffer, " with no page buffer" is " without". Return an empty string if all
    comparisons have the same order.
    """
    if len(part) == len(rows):
        return ""
    opposite = rows[rows["verdict"].isin(ORDERED) & (rows["verdict"] != part["verdict"].iloc[0])]
    conditions = _find_conditions(part, opposite, rows, results)
    among = rows[_match_conditions(rows, conditions)]
    text = ", ".join(results.names.format_condition(factor, levels) for factor, levels in conditions.items())
    some = words.fill("in comparisons", many=len(part), of=len(among))
    if not text:
        return some
    missing = text.removeprefix("with no ")
    named = words.fill("with none") if missing != text and before.endswith(f" {missing}") else f" {text}"
    return f"{named}{f' ({some.strip()})' if len(among) > len(part) else ''}"


def _find_conditions(
    part: pd.DataFrame, opposite: pd.DataFrame, rows: pd.DataFrame, results: Results
) -> dict[str, list[str]]:
    """Return the narrowest levels that include all comparisons in `part` but none with the opposite order.

    Return an empty dictionary if one or two factors do not suffice.
    """
    context = [name for name in results.report.names if name in rows and rows[name].nunique() > 1]
    levels = {name: list(dict.fromkeys(part[name])) for name in context}
    levels = {name: own for name, own in levels.items() if len(own) < rows[name].nunique()}
    tried = [dict(some) for many in (1, 2) for some in itertools.combinations(levels.items(), many)]
    fitting = [one for one in tried if not _match_conditions(opposite, one).any()]
    return min(fitting, key=lambda some: (int(_match_conditions(rows, some).sum()), len(some)), default={})


def _match_conditions(rows: pd.DataFrame, conditions: dict[str, list[str]]) -> np.ndarray:
    held = [rows[factor].isin(levels).to_numpy() for factor, levels in conditions.items()]
    return np.logical_and.reduce(held) if held else np.ones(len(rows), dtype=bool)


class _Case(NamedTuple):
    """The fastest of several arms that differ only in the factor that the question is about.

    Attributes:
        level: the arm's level of this factor.
        seconds: the arm's median time.
        row: the arm's comparison with the baseline; None if the arm is the baseline.
        unjudged: reason for a missing verdict; an empty string if there is a verdict.
        statements: claims that the arm has the least time, and about the judged comparisons with the baseline.
    """

    level: str
    seconds: float
    row: dict | None
    unjudged: str
    statements: tuple[Statement, ...]


def _write_least(factor: str, rows: pd.DataFrame, results: Results) -> Sentence:
    """Write in how many cases each arm was the fastest.

    If the fastest arm lacks a verdict in most cases, write that this is undecided.
    """
    context = [name for name in results.report.names if name in rows and name != factor]
    cases = [_find_least(case, context, results) for _, case in rows.groupby(context, sort=False)]
    unjudged = [case for case in cases if case.unjudged]
    if len(unjudged) * 2 > len(cases):
        arm, time = results.names.format_subject(factor, unjudged[0].level), names.format_seconds(unjudged[0].seconds)
        return prose.capitalize_first(words.fill("unjudged leader", arm=arm, time=time, why=unjudged[0].unjudged)), ()
    judged = [case for case in cases if not case.unjudged]
    levels = pd.Series([case.level for case in judged]).value_counts(sort=True)
    baseline, title = (
        results.names.format_subject(factor, rows["baseline"].iloc[0]),
        results.report.get_factor(factor).title,
    )
    texts = []
    for level, won in levels.head(FEW).items():
        of = words.fill("in cases", cases=won, of=len(cases)) if won < len(cases) else ""
        effect = _write_effect([case for case in judged if case.level == level], baseline, results)
        leads = "leads, too" if texts else "leads"
        texts.append(words.fill(leads, arm=results.names.format_subject(factor, level), cases=of, effect=effect))
    many = len({*rows["baseline"], *rows["contender"]})
    where = f"{rows['place'].iloc[0]}, " if rows["place"].nunique() == 1 else ""
    text = words.fill(
        "least of several", where=where, many=prose.format_count(many, title), leaders=prose.format_list(texts)
    )
    return prose.capitalize_first(text), tuple(one for case in judged for one in case.statements)


def _find_least(case: pd.DataFrame, context: list[str], results: Results) -> _Case:
    cells, base = results.cells.set_index("cell"), case.iloc[0]
    times = cells["total_s"].astype(float).reindex([base["baseline_cell"], *case["contender_cell"]]).dropna()
    if times.empty:
        return _Case(base["baseline"], np.nan, None, base["note"] or base["verdict"], ())
    best, judged = times.idxmin(), case[case["verdict"].isin(JUDGED)]
    row = next((one for one in case.to_dict("records") if one["contender_cell"] == best), None)
    level, seconds = (row["contender"] if row else base["baseline"]), float(cells[results.report.time_column][best])
    if judged.empty or (row and row["verdict"] not in JUDGED):
        why = (row or base)["note"] or (row or base)["verdict"]
        return _Case(level, seconds, row, why, ())
    situation = tuple((name, base[name]) for name in context)
    least = Recommendation(situation, best, tuple(times.index), ())
    return _Case(level, seconds, row, "", (least, Outcomes(results.to_comparisons(judged))))


def _write_effect(cases: list[_Case], baseline: str, results: Results) -> str:
    """Write how much faster an arm was than the baseline in the cases with the verdict faster.

    Return an empty string if there are none.
    """
    shown = pd.DataFrame([case.row for case in cases if case.row and case.row["verdict"] == Outcome.FASTER])
    if shown.empty:
        return ""
    effect = get_effect(shown, results)
    size = effect.text.removeprefix("was ").removeprefix("took ")
    return words.fill("effect", effect=f"{size} {effect.than}", baseline=baseline)


def _write_undecided(rows: pd.DataFrame, results: Results) -> Sentence:
    new, old = name_sides(rows.iloc[0], results)
    if (rows["verdict"] == Outcome.TOO_FEW).all():
        most = prose.format_count(int(rows["blocks"].max()), "complete repeat")
        return words.fill("too few", blocks=most, needed=MIN_BLOCKS), ()
    if same := int((rows["verdict"] == Outcome.SAME).sum()):
        many, new = f"{prose.format_count(same, 'comparison')} of {len(rows)}", prose.capitalize_first(new)
        shown = results.to_comparisons(rows[rows["verdict"] == Outcome.SAME])
        return words.fill("same", new=prose.capitalize_first(new), old=old, percent=results.same_percent, many=many), (
            Outcomes(shown),
        )
    return words.fill("undecided", new=new, old=old, medians=_format_medians(rows)), ()


def _format_medians(rows: pd.DataFrame) -> str:
    times = [rows[f"{side}_s"].dropna() for side in ("contender", "baseline")] if "baseline_s" in rows else []
    if not times or any(side.empty for side in times):
        return ""
    new, old = (names.format_seconds_span(side) for side in times)
    return words.fill("medians", new=new, old=old)


def _explain_nothing(cells: pd.DataFrame) -> str:
    # Omit the repeats' numbers, since all repeats failed.
    reasons = cells["reasons"].str.replace(r"\brepeats? [\d, ]+: ", "", regex=True)
    reasons = reasons[reasons != ""].value_counts()
    why = f": {reasons.index[0].rstrip('.')}" if len(reasons) else ""
    return words.fill("not measured", cells=prose.format_count(len(cells), "cell"), why=why)


def write_tally(results: Results) -> str:
    """Count the decided comparisons (the question's factor separately) and the outcomes of the rest.

    Return an empty string if all of them were decided.
    """
    factor, rows = list_asked_factors(results)[0], results.get_comparisons()
    own = rows["factor"] == factor
    if rows["verdict"].isin(_SETTLED).all():
        return ""
    title = results.report.get_factor(factor).title
    parts = [_count_decided("tally of factor", rows[own], factor=title)] if own.any() else []
    parts += [_count_decided("tally of others" if parts else "tally of all", rows[~own])] if not own.all() else []
    return words.fill("tally", parts="; ".join(parts))


def _count_decided(name: str, rows: pd.DataFrame, **fields: str) -> str:
    counts = rows["verdict"].value_counts().to_dict()
    decided = sum(counts.pop(outcome, 0) for outcome in _SETTLED)
    others = ", ".join(f"{count} {words.get_counted(outcome)}" for outcome, count in counts.items())
    fields |= {"others": f" ({others})" if others else "", "of": prose.format_count(len(rows), "comparison")}
    return words.fill(name, decided=decided, rest=prose.format_count(len(rows), "other"), **fields)
