"""What a page opens with: the answer in one sentence, its reason, the best configurations and what to do next."""

import math

import numpy as np
import pandas as pd

from scripts.report import names, prose
from scripts.report.findings import Finding, detectable, modelled, sides
from scripts.report.judgement import equivalence
from scripts.report.markup import bold, code
from scripts.report.page import Table
from scripts.report.results import ABSENT, Results
from scripts.statistics import MIN_BLOCKS, tables
from scripts.statistics.outcomes import ORDERED, Outcome

MIB = 2**20
# The difference that an undecided comparison should be able to tell, and the most repeats that are proposed for it.
WORTHWHILE, MOST_REPEATS = 1.1, 40
# Reasons and pieces of advice that are told; the tables have all.
REASONS, ADVICE = 3, 4


def headline(results: Results, findings: list[Finding], secondary: list[Finding]) -> str:
    """Return one bold sentence that answers the study's question with its figures."""
    if results.measured.empty:
        return bold(_nothing_measured(results.cells))
    if results.verdicts.empty:
        return bold(ABSENT["verdicts"])
    factor = _headline_factor(results, findings)
    own = [finding for finding in findings if finding.factor == factor]
    if not own:
        return bold("Nothing was compared by what the question asks about.")
    decided = [finding for finding in own if finding.verdict in ORDERED]
    if not decided:
        return bold(_undecided_headline(own, results))
    counts = pd.Series([len(one.rows) for one in decided]).groupby([one.where for one in decided], sort=False).sum()
    where = counts.idxmax()
    places = {place: _largest(decided, place) for place in (where, *counts.index)}
    here = places.pop(where)
    first = sides(here[0].rows.iloc[0], results)
    text = prose.capital(_clause(where, here, results))
    # What was done elsewhere, such as reading beside writing, is as much of the answer as the parts of a run.
    also = [place for place, rest in places.items() if _done(rest, results) not in ("", _done(here, results))]
    beyond = [one for one in secondary if one.factor == factor and one.where == where and one.verdict != Outcome.SAME]
    if also:
        # Of each pair what was largest; the findings have the rest.
        largest = {sides(one.rows.iloc[0], results): one for one in reversed(places[also[0]])}
        text += f"; {_clause(also[0], [*largest.values()][::-1], results)}"
    elif beyond:
        strongest = max(beyond, key=lambda finding: (len(finding.rows), finding.size))
        spent_to = results.report.metric(strongest.metric).spent_to
        others = {sides(one.rows.iloc[0], results) for one in (*here, strongest)} != {first}
        who = sides(strongest.rows.iloc[0], results)[0] if others else "it"
        text += f"; {who} {_joined(strongest.effect.text, f'to {spent_to}', strongest.under)}"
    rest = sum(len(one.rows) for one in own if not one.decided)
    return bold(text + (f"; {prose.count(rest, 'comparison')} stayed undecided." if rest else "."))


def _headline_factor(results: Results, findings: list[Finding]) -> str:
    """The factor that the study's question is about, or the first that the configuration compares instead."""
    asked_first = [results.report.headline, *results.comparisons()["factor"]]
    return next((factor for factor in asked_first if any(one.factor == factor for one in findings)), "")


def _largest(findings: list[Finding], where: str) -> list[Finding]:
    return sorted((one for one in findings if one.where == where), key=lambda finding: -finding.size)[:3]


def _clause(where: str, findings: list[Finding], results: Results) -> str:
    """What was decided in one place: what is compared is named once, and again where something else is."""
    pairs = [sides(one.rows.iloc[0], results) for one in findings]
    alike = len(set(pairs)) == 1
    # Several against one thing, without conditions: it is named once, behind the last, where the words before it fit.
    last_only = len({new for new, _ in pairs}) == len(pairs) and len({old for _, old in pairs}) == 1
    last_only &= not any(one.under for one in findings) and len({one.effect.than for one in findings}) == 1
    texts = []
    for one, (new, old) in zip(findings, pairs, strict=True):
        than = "" if (alike and texts) or (last_only and one is not findings[-1]) else f"{one.effect.than} {old}"
        texts.append(_joined("" if alike and texts else new, one.effect.text, than, one.under))
    joined = prose.listing(texts)
    if "," in "".join(texts):
        joined = "; ".join([texts[0], *(f"it {text}" if alike else text for text in texts[1:])])
    return ", ".join(filter(None, [where, _done(findings, results), joined]))


def _done(findings: list[Finding], results: Results) -> str:
    """What was done, as "writing", where the findings are of that alone and other cells of something else."""
    given = [factor.name for factor in results.report.factors if factor.given][:1]
    levels = {level for name in given for finding in findings for level in finding.rows[name] if level}
    named = len(levels) == 1 and results.measured[given[0]].nunique() > 1
    return results.names.within(given[0], levels) if named else ""


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _nothing_measured(cells: pd.DataFrame) -> str:
    """Why there is no answer: the reason that most cells have, where they have one."""
    # Which repeats failed says nothing where all did.
    reasons = cells["reasons"].str.replace(r"\brepeats? [\d, ]+: ", "", regex=True)
    reasons = reasons[reasons != ""].value_counts()
    why = f": {reasons.index[0].rstrip('.')}" if len(reasons) else ""
    return f"Nothing was measured, {prose.count(len(cells), 'cell')} failed or broke a rule of measuring{why}."


def _undecided_headline(own: list[Finding], results: Results) -> str:
    new, old = sides(own[0].rows.iloc[0], results)
    rows = pd.concat([finding.rows for finding in own])
    if (rows["verdict"] == Outcome.TOO_FEW).all():
        most = prose.count(int(rows["blocks"].max()), "complete repeat")
        return f"No verdict: {most} of the {MIN_BLOCKS} that it needs."
    if same := int((rows["verdict"] == Outcome.SAME).sum()):
        many = prose.count(same, "comparison")
        return f"{new} and {old} were the same within ±{equivalence(results.facts):g} % in {many} of {len(rows)}."
    return f"{': '.join(filter(None, [f'Nothing was decided between {new} and {old}', detectable(rows)]))}."


def reasons(results: Results, findings: list[Finding]) -> list[str]:
    """Return why the largest effects are as they are: requests and bytes, which repeat exactly, where they differ."""
    cells = results.cells.set_index("cell")
    if "requests" not in cells:
        return []
    moved = cells.get("bytes_delivered", cells["requests"] * np.nan).fillna(cells.get("bytes_offered", np.nan))
    cells = cells.reindex(columns=["requests", "opens", "connections"]).assign(moved=moved / MIB)
    largest = sorted((one for one in findings if one.verdict in ORDERED), key=lambda finding: -finding.size)
    factor = _headline_factor(results, findings)
    lines = [(one, text) for one in largest if (text := _moved(one, cells, results))]
    # What the headline says has its reason first.
    first = next((one for one, _ in lines if one.factor == factor), None)
    lines = sorted(lines, key=lambda line: line[0] is not first)[:REASONS]
    several = len({one.where for one, _ in lines}) > 1
    conditions = [", ".join(filter(None, [one.where if several else "", one.under])) for one, _ in lines]
    return [
        prose.capital(": ".join(filter(None, [under, text])))
        for under, (_, text) in zip(conditions, lines, strict=True)
    ]


def _moved(finding: Finding, cells: pd.DataFrame, results: Results) -> str:
    """What the contender asked of the store where the baseline asked for something else; "" where neither is known."""
    both = [cells.reindex(finding.rows[f"{side}_cell"]).astype(float) for side in ("contender", "baseline")]
    if any(side[["requests", "moved"]].isna().any(axis=None) for side in both):
        return ""
    counts = [
        name
        for name in ("requests", "opens", "connections")
        if not np.allclose(*(one[name] for one in both), equal_nan=True)
    ]
    why = _explained(finding.rows, results)
    if not why and not counts and np.allclose(*(side["moved"] for side in both), rtol=0.01):
        return ""
    # What is alike is not told twice, but requests, which bytes are told with.
    shown = [name for name in ("opens", "connections") if name in counts and not both[0][name].isna().any()]
    texts = [", ".join([_asked(side), *(_counted(side[name], name) for name in shown)]) for side in both]
    new, old = sides(finding.rows.iloc[0], results)
    return f"{new} made {texts[0]}; {old} {texts[1]}{why}."


def _asked(side: pd.DataFrame) -> str:
    return f"{_counted(side['requests'], 'requests')} for {prose.span(side['moved'], prose.number)} MiB"


def _counted(values: pd.Series, noun: str) -> str:
    text = prose.span(values, "{:,.0f}".format)
    return f"{text} {noun.removesuffix('s') if text == '1' else noun}"


def _explained(rows: pd.DataFrame, results: Results) -> str:
    """What the model of requests, bytes, CPU and opens gives beside what was measured; "" where it is not known."""
    ratios, measured = modelled(rows, results), rows["ratio"].astype(float)
    if ratios.isna().any():
        return ""
    explains = tables.explains(ratios, measured)
    gives = f"with CPU time and the cost of an open these give {prose.span(ratios)}×"
    if explains.all():
        return f" ({gives}, as measured)"
    some = f" in {(~explains).sum()} of {len(rows)} comparisons" if explains.any() else ""
    return f" ({gives}, measured was {prose.span(measured)}×: {bold('not explained by requests or bytes')}{some})"


def best(results: Results) -> Table:
    """Return the fastest configuration per place, what is read and how it is laid out, in seconds."""
    report, cells = results.report, results.measured
    given = [factor.name for factor in report.factors if factor.given]
    if cells.empty or not given:
        return Table("best", "", pd.DataFrame())
    cells = cells[cells["total_s"].notna()].assign(state=results.states(cells))
    keys = [*report.places, "state", *given]
    varies = [name for name in report.names if cells[name].nunique() > 1]
    side = [name for name in varies if name not in keys and report.factor(name).apart][:1]
    # The reads that a fault left over say nothing of those that failed.
    ranked = cells.sort_values("total_s", kind="stable").sort_values("failed", key=lambda many: many > 0, kind="stable")
    fastest = ranked.drop_duplicates([*keys, *side])
    fastest = results.names.sort(fastest.sort_values("total_s", kind="stable"), keys).reset_index(drop=True)
    rows = fastest.to_dict("records")
    frame = pd.DataFrame({"": [results.names.place(row) for row in rows]})
    for name in [*given, *side, *(name for name in varies if name not in (*keys, *side))]:
        if name in varies:
            frame[name] = [results.names.levels(row, [name]) for row in rows]
    frame, common = _shared(frame, results)
    frame = frame.rename(columns=lambda name: report.factor(name).title)
    if "" in frame:
        frame[""] = frame[""].map(prose.capital)
    ends = ["total_s", "total_s_low", "total_s_high"]
    frame["time / s"] = [names.with_interval(*(row[end] for end in ends), prose.number) + _failed(row) for row in rows]
    without = " One with failures is listed only where all have some." * bool(cells["failed"].any())
    least = f"The configuration with the least {report.metrics[0].title} of those measured, median [95 % CI]."
    return Table("best", least + without + common, frame, numbers=fastest[["cell", *report.names, "n", *ends]])


def _failed(row: dict) -> str:
    attempts = row["n"] + row["failed"]
    return f" ({row['failed']:.0f} of {attempts:.0f} failed)" if row["failed"] else ""


def _shared(frame: pd.DataFrame, results: Results) -> tuple[pd.DataFrame, str]:
    """Return the columns that say something else from row to row, and sentences of what the others say."""
    shared: dict[str, list[str]] = {}
    for name in list(frame) if len(frame) > 1 else []:
        levels, only = frame.loc[frame[name] != "", name].unique(), results.report.factor(name).only
        everywhere = (frame[name] != "").all()
        if len(levels) == 0 or (len(levels) == 1 and (everywhere or only)):
            whose = ", ".join(results.names.within(other, of) for other, of in only.items())
            shared.setdefault("In all rows" if everywhere else prose.capital(whose), []).extend(levels)
            frame = frame.drop(columns=name)
    return frame, "".join(f" {where}: {', '.join(levels)}." for where, levels in shared.items() if levels)


def advice(results: Results) -> list[str]:
    """Return what to choose for each thing that is read, as far as it was decided.

    The headline says it of its own factor, or of the arms of a contest: these are told where nothing else was decided.
    """
    factors = dict.fromkeys(results.comparisons()["factor"])
    apart = {factor.name for factor in results.report.factors if factor.given or factor.place}
    others, answered = (
        [one for one in factors if one not in apart and _answered(one, results) == is_so] for is_so in (False, True)
    )
    return _choices(others, results) or _choices(answered, results)[:ADVICE]


def _answered(factor: str, results: Results) -> bool:
    report = results.report
    return factor in {report.headline, *(report.contest.arm if report.contest else ())}


def _choices(factors: list[str], results: Results) -> list[str]:
    """What to take of each of some factors, a sentence for each thing that is read."""
    report, rows = results.report, results.comparisons()
    given = [factor.name for factor in report.factors if factor.given]
    lines, varies = [], results.varying(results.measured, given)
    for levels, group in rows.groupby(given, sort=False) if given and len(rows) else [((), rows)]:
        texts = [text for factor in factors for text in _choice(factor, group[group["factor"] == factor], results)]
        if texts:
            work = [(name, level) for name, level in zip(given, levels, strict=True) if level and name in varies]
            named = [results.names.subject(name, level) for name, level in work]
            lines.append(prose.capital(": ".join(filter(None, [", ".join(named), "; ".join(texts)])) + "."))
    return lines


def _choice(factor: str, rows: pd.DataFrame, results: Results) -> list[str]:
    """What to take of one factor, where all that was decided points to the same side."""
    texts = []
    pairs = rows.groupby(["baseline", "contender"], sort=False)
    for (baseline, contender), pair in pairs:
        decided = pair[pair["verdict"].isin(ORDERED)]
        if decided["verdict"].nunique() > 1:
            texts.append(f"the best {results.report.factor(factor).title} depends on the case")
        elif len(decided):
            faster = decided["verdict"].iloc[0] == Outcome.FASTER
            gain = prose.span(1 / decided["ratio"] if faster else decided["ratio"], names.times).replace(" to ", "–")
            some = f" in {len(decided)} of {len(pair)} comparisons" if len(decided) < len(pair) else ""
            best_first = (contender, baseline) if faster else (baseline, contender)
            winner, loser = (results.names.subject(factor, level) for level in best_first)
            than = f" rather than {loser}" if len(pairs) > 1 or _answered(factor, results) else ""
            texts.append(f"{_only_arm(decided, results)}use {winner}{than}, {bold(f'{gain}× as fast')}{some}")
    return texts


def _only_arm(rows: pd.DataFrame, results: Results) -> str:
    """The arm of the contest that comparisons are about, "with … on …, ", where they are of one and others competed."""
    contest = results.report.contest
    if not contest or rows["factor"].iloc[0] in contest.arm or len(rows[[*contest.arm]].drop_duplicates()) > 1:
        return ""
    if len(results.measured[[*contest.arm]].drop_duplicates()) == 1:
        return ""
    return f"with {contest.name(rows.iloc[0].to_dict(), results.names)}, "


def more_repeats(results: Results) -> list[str]:
    """Return how many more repeats a verdict needs, or would tell a difference worth knowing, and their time."""
    if "published" in results.facts:
        return [f"Measure the same here: {code(f'make run STUDY={results.report.study}')}."]
    return _to_judge(results) + _to_detect(results)


def _to_judge(results: Results) -> list[str]:
    """What gives comparisons of measured cells the blocks that they lack: the next call appends those of `repeats`."""
    rows = results.comparisons()
    few = rows[rows["verdict"] == Outcome.TOO_FEW]
    # Reads that failed at a fault are a result: no block is appended for them.
    gave_in = [row["cell"] for row in results.facts.get("injected") or [] if row["failed"]]
    for side in ("baseline_cell", "contender_cell") if len(few) else ():
        few = few[few[side].isin(results.measured["cell"]) & ~few[side].isin(gave_in)]
    if few.empty or not results.facts.get("repeats"):
        return []
    lacking = MIN_BLOCKS - int(few["blocks"].min())
    way = f"run again, which appends {prose.count(lacking, 'block')} of every cell"
    if int(results.facts["repeats"]) < MIN_BLOCKS:
        way = f"raise {code('repeats')} to {MIN_BLOCKS} and run again"
    return [f"{prose.capital(prose.count(len(few), 'comparison'))} without a verdict: {way}."]


def _to_detect(results: Results) -> list[str]:
    """How many more repeats would tell a difference that is worth knowing, and how long they take."""
    rows = results.comparisons()
    detectable_ratios = rows.get("detectable_ratio", pd.Series(dtype=float)).astype(float)
    doubtful = rows[(rows["verdict"] == Outcome.NO_EVIDENCE) & np.isfinite(detectable_ratios)]
    if doubtful.empty:
        return []
    log = np.log(detectable_ratios[doubtful.index]) / math.log(WORTHWHILE)
    needed = np.ceil(doubtful["blocks"] * log.clip(lower=1) ** 2)
    within = doubtful[needed <= MOST_REPEATS]
    if within.empty:
        undecided = prose.count(len(doubtful), "comparison")
        return [f"{undecided} undecided: to detect {WORTHWHILE}× would take more than {MOST_REPEATS} repeats."]
    repeats = int(needed[within.index].max())
    more = repeats - int(within["blocks"].min())
    if more < 1:
        return []
    cells = pd.unique(within[["baseline_cell", "contender_cell"]].to_numpy().ravel())
    minutes = more * float(results.cells.set_index("cell")["total_s"].reindex(cells).sum()) / 60
    about = f", at least {minutes:.0f} min of reading" if minutes >= 1 else ""
    many = prose.count(len(within), "undecided comparison")
    return [
        f"{prose.capital(many)}: {more} more repeats{about} would detect {WORTHWHILE}×; "
        f"raise {code('repeats')} to {repeats} and run again."
    ]
