"""What a page opens with: the answer in one sentence, its reason, the best configurations and what to do next."""

import math

import numpy as np
import pandas as pd

from scripts.report import names, prose
from scripts.report.findings import Finding, sides
from scripts.report.judgement import equivalence
from scripts.report.markup import bold, code
from scripts.report.page import Table
from scripts.report.results import ABSENT, Results
from scripts.statistics import MIN_BLOCKS

MIB = 2**20
# The difference that an undecided comparison should be able to tell, and the most repeats that are proposed for it.
WORTHWHILE, MOST_REPEATS = 1.1, 40
# Reasons and pieces of advice that are told; the tables have all.
REASONS = 3


def headline(results: Results, findings: list[Finding], secondary: list[Finding]) -> str:
    """Return one bold sentence that answers the study's question with its figures."""
    if results.measured.empty:
        return bold(_nothing_measured(results.cells))
    if results.verdicts.empty:
        return bold(ABSENT["verdicts"])
    factor = _asked_about(findings, results)
    own = [finding for finding in findings if finding.factor == factor]
    if not own:
        return bold("Nothing was compared by what the question asks about.")
    decided = [finding for finding in own if finding.verdict in ("faster", "slower")]
    if not decided:
        return bold(_undecided_headline(own, results))
    where = max(dict.fromkeys(finding.where for finding in decided), key=lambda place: _weight(decided, place))
    here = sorted((finding for finding in decided if finding.where == where), key=lambda finding: -finding.size)
    new, old = sides(here[0].rows.iloc[0], results)
    texts = [_clause(finding, old if not number else "") for number, finding in enumerate(here[:3])]
    text = prose.capital(f"{where}, {new}" if where else new) + f" {prose.listing(texts)}"
    beyond = [one for one in secondary if one.factor == factor and one.where == where and one.verdict != "same"]
    if beyond:
        strongest = max(beyond, key=lambda finding: (len(finding.rows), finding.size))
        spent_to = results.report.metric(strongest.metric).spent_to
        text += " ".join(filter(None, [f"; it {strongest.effect.text} to {spent_to}", strongest.under]))
    rest = sum(len(one.rows) for one in own if not one.decided)
    if rest:
        text += f"; {prose.count(rest, 'comparison')} stayed undecided"
    return bold(f"{text}.")


def _asked_about(findings: list[Finding], results: Results) -> str:
    """Return the factor that the study's question is about, or the first that the configuration compares instead."""
    compared = results.comparisons(results.report.metrics[0].name).get("factor", [])
    factors = {finding.factor for finding in findings}
    return next((factor for factor in (results.report.headline, *compared) if factor in factors), "")


def _nothing_measured(cells: pd.DataFrame) -> str:
    """Why there is no answer: the reason that most cells have, where they have one."""
    # Which repeats failed says nothing where all did.
    reasons = cells["reasons"].str.replace(r"\brepeats? [\d, ]+: ", "", regex=True)
    reasons = reasons[reasons != ""].value_counts()
    why = f": {reasons.index[0].rstrip('.')}" if len(reasons) else ""
    return f"Nothing was measured, {prose.count(len(cells), 'cell')} failed or broke a rule of measuring{why}."


def _weight(findings: list[Finding], place: str) -> int:
    return sum(len(finding.rows) for finding in findings if finding.where == place)


def _clause(finding: Finding, old: str) -> str:
    than = f"{finding.effect.than} {old}" if old else ""
    return " ".join(filter(None, [finding.effect.text, than, finding.under]))


def _undecided_headline(own: list[Finding], results: Results) -> str:
    new, old = sides(own[0].rows.iloc[0], results)
    rows = pd.concat([finding.rows for finding in own])
    if (rows["verdict"] == "too few repeats").all():
        most = prose.count(int(rows["blocks"].max()), "complete repeat")
        return f"No verdict: {most} of the {MIN_BLOCKS} that it needs."
    if (rows["verdict"] == "same").any():
        many = prose.count(int((rows["verdict"] == "same").sum()), "comparison")
        return f"{new} and {old} were the same within ±{equivalence(results.facts):g} % in {many} of {len(rows)}."
    seen = rows["detectable_ratio"].replace(np.inf, np.nan).dropna()
    least = f": this run could have detected {prose.span(seen, names.detectable)}" if len(seen) else ""
    return f"Nothing was decided between {new} and {old}{least}."


def reasons(results: Results, findings: list[Finding]) -> list[str]:
    """Return why the largest effects are as they are: requests and bytes, which repeat exactly, where they differ."""
    cells = results.cells.set_index("cell")
    lines = []
    for finding in sorted(findings, key=lambda finding: -finding.size):
        if finding.verdict in ("faster", "slower") and (text := _moved(finding, cells, results)):
            lines.append(text)
    return lines[:REASONS]


def _moved(finding: Finding, cells: pd.DataFrame, results: Results) -> str:
    """What the contender asked of the store where the baseline asked for something else; "" where neither is known."""
    if "requests" not in cells:
        return ""
    counts = {}
    for side in ("contender", "baseline"):
        own = cells.reindex(finding.rows[f"{side}_cell"])
        moved = own.get("bytes_delivered", own["requests"] * np.nan).fillna(own.get("bytes_offered", np.nan))
        if own["requests"].isna().any() or moved.isna().any():
            return ""
        counts[side] = (own["requests"], moved / MIB)
    (new_requests, new_moved), (old_requests, old_moved) = counts["contender"], counts["baseline"]
    if (new_requests.to_numpy() == old_requests.to_numpy()).all() and np.allclose(new_moved, old_moved, rtol=0.01):
        return ""
    new, old = sides(finding.rows.iloc[0], results)
    under = f"{finding.under}: " if finding.under else ""
    return prose.capital(
        f"{under}{new} made {_requests(new_requests)} for {_mib(new_moved)}, "
        f"{old} {_requests(old_requests)} for {_mib(old_moved)}."
    )


def _requests(values: pd.Series) -> str:
    text = prose.span(values, "{:,.0f}".format)
    return f"{text} request{'' if text == '1' else 's'}"


def _mib(values: pd.Series) -> str:
    return f"{prose.span(values, prose.number)} MiB"


def best(results: Results) -> Table:
    """Return the fastest configuration per place, what is read and how it is laid out, in seconds."""
    report, cells = results.report, results.measured
    given = [name for name in report.names if report.factor(name).given]
    if cells.empty or not given:
        return Table("best", "", pd.DataFrame())
    cells = cells[cells["total_s"].notna()]
    place = cells.assign(state=results.states(cells))
    rows = []
    keys = [*(name for name in report.names if report.factor(name).place), "state", *given]
    chosen = [name for name in report.names if name not in keys]
    side = next((name for name in chosen if report.factor(name).apart and cells[name].nunique() > 1), None)
    for _, group in place.groupby([*keys, *([side] if side else [])], sort=False):
        rows.append(group.loc[group["total_s"].idxmin()])
    table = pd.DataFrame(rows).sort_values([*keys, "total_s"], kind="stable").reset_index(drop=True)
    frame = pd.DataFrame({"": [prose.capital(results.names.place(row)) for row in table.to_dict("records")]})
    for name in [*given, *([side] if side else []), *(one for one in chosen if one != side)]:
        if cells[name].nunique() > 1:
            frame[report.factor(name).title] = [results.names.level(name, level) for level in table[name]]
    ends = ["total_s", "total_s_low", "total_s_high"]
    frame["time / s"] = [names.with_interval(*row, prose.number) for row in table[ends].itertuples(index=False)]
    caption = f"The configuration with the least {report.metrics[0].title} of those measured, median [95 % CI]."
    return Table("best", caption, frame, numbers=table[["cell", *report.names, "n", *ends]])


def advice(results: Results) -> list[str]:
    """Return what to choose for each thing that is read, as far as it was decided."""
    report = results.report
    lines = []
    rows = results.comparisons(report.metrics[0].name)
    if rows.empty:
        return []
    given = [name for name in report.names if report.factor(name).given]
    for levels, group in rows.groupby([*given], sort=False) if given else [((), rows)]:
        texts = []
        for factor, own in group.groupby("factor", sort=False):
            if not report.factor(factor).given and factor not in report.places and factor != report.headline:
                texts += _choice(factor, own, results)
        if texts:
            named = [results.names.subject(name, level) for name, level in zip(given, levels, strict=True) if level]
            lines.append(prose.capital(": ".join(filter(None, [", ".join(named), "; ".join(texts)])) + "."))
    return lines


def _choice(factor: str, rows: pd.DataFrame, results: Results) -> list[str]:
    """What to take of one factor, where all that was decided points to the same side."""
    decided = rows[rows["verdict"].isin(("faster", "slower"))]
    texts = []
    for (baseline, contender), own in decided.groupby(["baseline", "contender"], sort=False):
        if own["verdict"].nunique() > 1:
            texts.append(f"the best {results.report.factor(factor).title} depends on the case")
            continue
        winner = contender if own["verdict"].iloc[0] == "faster" else baseline
        ratios = 1 / own["ratio"] if winner == contender else own["ratio"]
        all_of = len(rows[(rows["baseline"] == baseline) & (rows["contender"] == contender)])
        some = f" in {len(own)} of {all_of} comparisons" if len(own) < all_of else ""
        gain = prose.span(ratios, names.times).replace(" to ", "–")
        texts.append(f"use {results.names.subject(factor, winner)}, {bold(f'{gain}× as fast')}{some}")
    return texts


def more_repeats(results: Results) -> list[str]:
    """Return how many more repeats would tell a difference that is worth knowing, and how long they take."""
    rows = results.comparisons(results.report.metrics[0].name)
    if rows.empty:
        return []
    doubtful = rows[(rows["verdict"] == "no evidence") & np.isfinite(rows["detectable_ratio"].astype(float))]
    if doubtful.empty:
        return []
    log = np.log(doubtful["detectable_ratio"].astype(float)) / math.log(WORTHWHILE)
    needed = np.ceil(doubtful["blocks"] * log.clip(lower=1) ** 2)
    within = doubtful[needed <= MOST_REPEATS]
    if within.empty:
        undecided = prose.count(len(doubtful), "comparison")
        return [f"{undecided} undecided: to detect {WORTHWHILE}× would take more than {MOST_REPEATS} repeats."]
    repeats = int(needed[needed <= MOST_REPEATS].max())
    more = repeats - int(within["blocks"].min())
    if more < 1:
        return []
    cells = results.cells.set_index("cell")["total_s"].reindex(
        pd.unique(within[["baseline_cell", "contender_cell"]].to_numpy().ravel())
    )
    minutes = more * float(cells.sum()) / 60
    about = f", at least {minutes:.0f} min of reading" if minutes >= 1 else ""
    many = prose.count(len(within), "undecided comparison")
    return [
        f"{prose.capital(many)}: {more} more repeats{about} would detect {WORTHWHILE}×; "
        f"raise {code('repeats')} to {repeats} and run again."
    ]
