"""Recommend a configuration for each situation, and the number of blocks to add for undecided comparisons."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from sbench.pages import names, prose, words
from sbench.pages.headline import Sentence
from sbench.pages.judgement import MOST_REPEATS, WORTHWHILE, count_needed_blocks
from sbench.pages.markup import bold, code
from sbench.pages.results import Results
from sbench.pages.sentences import name_sides
from sbench.pages.statements import Choice, Recommendation
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import Outcome

MOST = 4  # maximum number of recommendations on a page; the tables cover all cells
NAMED = 3  # maximum number of undecided pairs of levels named in a sentence


def list_recommendations(results: Results) -> list[Sentence]:
    """Recommend the configuration with the least time in each situation, and name the factors that matter.

    A situation is a storage location and the reader's work. A factor matters if the recommended cell is faster, by
    verdict, than a cell that differs from it in that factor alone. There is no recommendation for a situation in which
    the cell with the least time lacks verdicts.
    """
    rows = pd.concat([results.get_comparisons(), results.contest])
    if rows.empty or results.measured.empty:
        return []
    alike: dict[tuple, list[Recommendation]] = {}
    for situation, cells in _iter_situations(results):
        if made := _find_recommendation(situation, cells, rows, results):
            choices = tuple(_list_levels(choice, made, results) for choice in made.choices)
            alike.setdefault((_describe_place(situation, results), *choices), []).append(made)
    return [_write_recommendation(group, results) for group in alike.values()][:MOST]


def _iter_situations(results: Results) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Yield the levels of each situation, and its measured cells with a time and without failures."""
    report, cells = results.report, results.measured
    contest = report.contest
    keys = list(dict.fromkeys([*results.situation_factors, *([report.along] if report.along else [])]))
    keys += ["store"] if contest and "store" in report.names and "store" not in keys else []
    cells = cells.assign(group=[contest.group(cell) if contest else "" for cell in cells.to_dict("records")])
    cells = cells[cells["total_s"].notna() & (cells["failed"] == 0)]
    for levels, group in cells.groupby([*keys, "group"], sort=False):
        yield dict(zip([*keys, "group"], levels, strict=True)), group


def _find_recommendation(
    situation: dict[str, str], cells: pd.DataFrame, rows: pd.DataFrame, results: Results
) -> Recommendation | None:
    """Return the recommendation for a situation, or None if no factor matters or another cell beat the fastest one."""
    own, best = set(cells["cell"]), cells.loc[cells["total_s"].idxmin()]
    mine = rows[rows["baseline_cell"].isin(own) & rows["contender_cell"].isin(own)]
    mine = mine[(mine["baseline_cell"] == best["cell"]) | (mine["contender_cell"] == best["cell"])]
    compared = list(zip(mine["factor"], results.to_comparisons(mine), strict=True))
    if any(one.winner not in ("", best["cell"]) for _, one in compared):
        return None
    choices = [
        Choice(factor, str(best[factor]), tuple(one for name, one in compared if name == factor and one.winner))
        for factor in dict.fromkeys(mine["factor"])
        if factor in results.report.names
    ]
    choices = tuple(choice for choice in choices if choice.comparisons)
    return Recommendation(tuple(situation.items()), best["cell"], tuple(cells["cell"]), choices) if choices else None


def _list_levels(choice: Choice, made: Recommendation, results: Results) -> tuple[str, ...]:
    """Return a tuple of the factor, the recommended level and all levels that it beat."""
    levels = results.cells.set_index("cell")[choice.factor]
    losers = [one.baseline if one.contender == made.cell else one.contender for one in choice.comparisons]
    return choice.factor, choice.level, *(levels[loser] for loser in losers)


def _write_recommendation(group: list[Recommendation], results: Results) -> Sentence:
    times = results.cells.set_index("cell")[results.report.time_column].astype(float)
    named = _name_situations([dict(made.situation) for made in group], results)
    texts = [_write_choice(number, group, results) for number in range(len(group[0].choices))]
    time = _format_times(group, times, results)
    rest = _name_rest(group, results)
    time = words.fill("with rest, too" if time.endswith(")") else "with rest", time=time, rest=rest) if rest else time
    sentence = words.fill("use", situation=named, choices=prose.format_list(texts), time=time)
    return prose.capitalize_first(sentence), tuple(group)


def _format_times(group: list[Recommendation], times: pd.Series, results: Results) -> str:
    """Format the time of the recommended cells. If it is a range, describe the work at its ends where they differ."""
    low, high = (choose(group, key=lambda made: times[made.cell]) for choose in (min, max))
    ends = [names.format_seconds(times[made.cell]) for made in (low, high)]
    levels = [dict(made.situation) for made in (low, high)]
    differ = [name for name in results.report.names if levels[0].get(name) != levels[1].get(name)]
    works = [results.names.format_levels(own, differ) for own in levels] if differ else ["", ""]
    if ends[0] == ends[1] or not all(works):
        return names.format_seconds_span([times[made.cell] for made in group])
    return words.fill("times at levels", low=ends[0], of_low=works[0], high=ends[1], of_high=works[1])


def _write_choice(number: int, group: list[Recommendation], results: Results) -> str:
    """Describe a level and its speedup: "a 64 MiB page buffer (3.3× as fast as no page buffer)"."""
    factor, level, *others = _list_levels(group[0].choices[number], group[0], results)
    gains = [
        prose.format_span(
            (made.choices[number].comparisons[place].compute_gain(made.cell) for made in group), names.format_gain
        )
        for place in range(len(others))
    ]
    than = [
        words.fill("gain", gain=gain, other=results.names.format_subject(factor, other))
        for gain, other in zip(gains, others, strict=True)
    ]
    return words.fill("rather", level=bold(results.names.format_subject(factor, level)), others=", ".join(than))


def _describe_place(situation: dict[str, str], results: Results) -> str:
    return results.describe_place({name: situation[name] for name in results.report.places if name in situation})


def _name_rest(group: list[Recommendation], results: Results) -> str:
    """Describe the other levels that all recommended cells share, for factors that vary in these situations."""
    cells = results.cells.set_index("cell")
    chosen = cells.loc[[made.cell for made in group]]
    among = cells.loc[[cell for made in group for cell in made.cells]]
    own = {choice.factor for choice in group[0].choices} | {key for key, _ in group[0].situation}
    names_of = [name for name in results.report.names if name not in own]
    shared = [name for name in results.select_varying_factors(among, names_of) if chosen[name].nunique() == 1]
    return results.names.format_levels(chosen.iloc[0].to_dict(), shared)


def _name_situations(situations: list[dict[str, str]], results: Results) -> str:
    """Describe a recommendation's situations by the levels that distinguish them from all other situations.

    Return an empty string if the recommendation applies everywhere.
    """
    report = results.report
    every = [situation for situation, _ in _iter_situations(results)]

    def is_distinctive(key: Callable[[dict], object]) -> bool:
        return len(set(map(key, situations))) < len(set(map(key, every)))

    is_apart = len({_describe_place(one, results) for one in every}) > 1
    texts = [_describe_place(situations[0], results)] if is_apart else []
    named = [
        key
        for key in every[0]
        if key not in (*report.places, "group") and is_distinctive(lambda levels, key=key: levels[key])
    ]
    texts += [
        results.names.format_condition(key, dict.fromkeys(one[key] for one in situations if one[key])) for key in named
    ]
    groups = dict.fromkeys(one["group"] for one in situations)
    given = {
        results.names.format_condition(name, [one[name]])
        for name in report.names
        if name in every[0]
        for one in situations
    }
    if report.contest and not set(groups) <= given and is_distinctive(lambda levels: levels["group"]):
        texts.insert(0, prose.format_list(groups))
    return f"{prose.capitalize_first(', '.join(filter(None, texts)))}: " if texts else ""


def describe_needed_repeats(results: Results) -> list[str]:
    """Write how many more repeats a verdict or a worthwhile difference needs, and how long they would take."""
    if "published" in results.facts:
        return [f"Measure the same here: {code(f'sbench run --study {results.report.study}')}."]
    return _describe_lacking_blocks(results) + _describe_repeats_to_detect(results)


def _describe_lacking_blocks(results: Results) -> list[str]:
    """Advise how to add the blocks that comparisons of measured cells still need for a verdict.

    The next run appends as many blocks as `repeats` specifies.
    """
    rows = results.get_comparisons()
    few = rows[rows["verdict"] == Outcome.TOO_FEW]
    # Failed reads under fault injection are a result, for which a run does not append blocks.
    gave_in = [row["cell"] for row in results.facts.get("injected") or [] if row["failed"]]
    for side in ("baseline_cell", "contender_cell") if len(few) else ():
        few = few[few[side].isin(results.measured["cell"]) & ~few[side].isin(gave_in)]
    if few.empty or not results.facts.get("repeats"):
        return []
    lacking = MIN_BLOCKS - int(few["blocks"].min())
    way = f"run again, which appends {prose.format_count(lacking, 'block')} of every cell"
    if int(results.facts["repeats"]) < MIN_BLOCKS:
        way = f"raise {code('repeats')} to {MIN_BLOCKS} and run again"
    return [f"{prose.capitalize_first(prose.format_count(len(few), 'comparison'))} without a verdict: {way}."]


def _describe_repeats_to_detect(results: Results) -> list[str]:
    rows = results.get_comparisons()
    detectable_ratios = rows.get("detectable_ratio", pd.Series(dtype=float)).astype(float)
    doubtful = rows[(rows["verdict"] == Outcome.NO_EVIDENCE) & np.isfinite(detectable_ratios)]
    if doubtful.empty:
        return []
    needed = [
        math.ceil(count_needed_blocks(*row))
        for row in zip(doubtful["blocks"], detectable_ratios[doubtful.index], strict=True)
    ]
    needed = pd.Series(needed, doubtful.index)
    within = doubtful[needed <= MOST_REPEATS]
    if within.empty:
        return [words.fill("too many repeats", most=MOST_REPEATS, **_describe_undecided(doubtful, results))]
    repeats = int(needed[within.index].max())
    more = repeats - int(within["blocks"].min())
    if more < 1:
        return []
    cells = pd.unique(within[["baseline_cell", "contender_cell"]].to_numpy().ravel())
    minutes = more * float(results.cells.set_index("cell")["total_s"].reindex(cells).sum()) / 60
    about = f", at least {minutes:.0f} min of reading" if minutes >= 1 else ""
    fields = {"more": more, "about": about, "repeats": code("repeats"), "needed": repeats}
    return [words.fill("more repeats", **fields, **_describe_undecided(within, results))]


def _describe_undecided(rows: pd.DataFrame, results: Results) -> dict[str, str]:
    """Return the template fields for undecided comparisons: their number, the pairs, and a worthwhile difference."""
    pairs = dict.fromkeys(" vs ".join(name_sides(row, results)) for _, row in rows.iterrows())
    shown = [*pairs] if len(pairs) <= NAMED else [*pairs][: NAMED - 1]
    shown += [words.fill("more arms", many=len(pairs) - len(shown))] if len(shown) < len(pairs) else []
    many, percent = prose.format_count(len(rows), "comparison"), f"{100 * (WORTHWHILE - 1):.0f}"
    return {"comparisons": many, "pairs": "; ".join(shown), "percent": percent}
