"""What was found in words: limits kept and for how long, the end of burst credits, background load, differences."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from scripts.report import judgement, prose
from scripts.report.markup import bold
from scripts.studies.volumes.compare import TOO_FEW_BATTERIES
from scripts.studies.volumes.report import caveats, kept, words
from scripts.studies.volumes.report.data import Levels, Results
from scripts.studies.volumes.series import FACTORS

DIFFERENT = ("higher", "lower")
UNDECIDED = ("undecided", "no evidence", "too few jobs")
# Told beside p99 where they differ; all are in the figure and its numbers.
BESIDE = ("p50", "mean", "iops")
REASONS = 3
NAMED = 6  # series that the headline names


@dataclass(frozen=True)
class Answer:
    """One sentence, `where` it holds and the rest of it; `factor` names the kind of question it answers."""

    where: str
    text: str
    factor: str
    verdict: str


@dataclass(frozen=True)
class Findings:
    """What was decided, limits first, and what was not, and why."""

    decided: tuple[Answer, ...]
    undecided: tuple[Answer, ...]


def find(results: Results) -> Findings:
    """Return what the tables say about limits, burst credits, background load and other differences."""
    limits, differences = list(_limits(results)), list(_differences(results))
    background = [one for one in differences if one.factor == "background"]
    others = [one for one in differences if one.factor != "background"]
    answers = [*limits, *_credits(results), *background, *others]
    return Findings(
        tuple(one for one in answers if one.verdict not in UNDECIDED),
        tuple(one for one in answers if one.verdict in UNDECIDED),
    )


def headline(results: Results) -> str:
    """Return which volumes keep the first limit, in one bold sentence."""
    rows = results.verdicts[results.verdicts["segment"] == "all"] if len(results.verdicts) else results.verdicts
    if rows.empty:
        return bold(caveats.nothing_decided(results))
    rows = rows[rows["limit"] == rows["limit"].iloc[0]]
    head = rows.iloc[0].to_dict()
    what = words.metric_of(head["metric"], words.operation(head["operation"], None, results))
    parts = []
    for verdict, text in (
        ("meets", "stayed below"),
        ("misses", "did not stay below"),
        ("undecided", "may or may not be below"),
    ):
        series = [_kept(row, results) for row in rows[rows["verdict"] == verdict].to_dict("records")]
        more = f" and {len(series) - NAMED} more" if len(series) > NAMED else ""
        if series:
            parts.append(f"{text} {words.limit(head) if not parts else 'it'} on {', '.join(series[:NAMED])}{more}")
    return bold(f"{what} {'; '.join(parts)}.")


def reasons(findings: Findings) -> list[str]:
    """Return what the model of burst credits says of what was seen."""
    modelled = [one for one in (*findings.decided, *findings.undecided) if one.factor == "burst credits"]
    return [f"{prose.capital(one.where)}, {one.text}" for one in modelled[:REASONS]]


def _kept(row: dict, results: Results) -> str:
    """A series, with the value that decided, and how long it kept a limit that it missed later."""
    name = words.label(Levels(*(row[factor] for factor in FACTORS)), results)
    value = f" ({words.ms(row['value_ms'])})" if pd.notna(row["value_ms"]) else ""
    kept = f" after {words.duration(float(row['kept_s']))}" if row["verdict"] == "misses" and row["kept_s"] > 0 else ""
    return f"{name}{value}{kept}"


def _limits(results: Results) -> Iterator[Answer]:
    """Yield a sentence a volume and limit."""
    for alike in kept.courses(results):
        where = words.places([course.whole for course in alike], results)
        yield Answer(where, kept.sentence(alike, results), "limits", alike[0].whole["verdict"])


def _credits(results: Results) -> Iterator[Answer]:
    """Yield what the credit model says of a series, against what was seen."""
    rows_by_text: dict[str, list[dict]] = {}
    for row in results.collapses.to_dict("records"):
        predicted, seen = (
            words.job(row[f"{kind}_job"], row[f"{kind}_number"]) if pd.notna(row[f"{kind}_number"]) else ""
            for kind in ("predicted", "observed")
        )
        if pd.notna(row["ios_per_write"]):
            text = _credit_sentence(row, predicted, seen)
        elif pd.isna(row["credits"]):
            text = f"{row['volume_type']} has no burst credits that could run out{_against(row, '', seen)}"
        else:
            text = row["text"]
        rows_by_text.setdefault(f"{text.rstrip('.')}.", []).append(row)
    for text, rows in rows_by_text.items():
        yield Answer(words.places(rows, results), text, "burst credits", "modelled")


def _credit_sentence(row: dict, predicted: str, seen: str) -> str:
    lasting = f"last until {bold(predicted)}" if predicted else "outlast these jobs"
    each = f"{prose.number(row['ios_per_write'])}, {row['ios_per_write_source']}"
    against = _against(row, predicted, seen)
    return f"by the model its burst credits {lasting}{against}. Device I/Os per write: {each}"


def _against(row: dict, predicted: str, seen: str) -> str:
    """What was seen, beside what the model says."""
    if not seen:
        return "; no lasting rise of latency was seen"
    if not predicted:
        return f"; latency rose at {bold(seen)}"
    later = int(row["observed_number"] - row["predicted_number"])
    if not later:
        return ", where latency rose"
    return f"; latency rose at {bold(seen)}, {prose.count(abs(later), 'job')} {'later' if later > 0 else 'earlier'}"


def _differences(results: Results) -> Iterator[Answer]:
    """Yield a sentence a comparison and phase, about p99 first; none where an arm has one battery alone."""
    rows = results.comparisons
    rows = rows[rows["verdict"] != TOO_FEW_BATTERIES] if len(rows) else rows
    if rows.empty:
        return
    keys = ["factor", "baseline", "contender", *FACTORS, "phase"]
    phases = rows.groupby(keys[:-1], sort=False)["phase"].transform("nunique")
    # Where a series changed, what lies on either side says more than both together.
    rows = rows[(rows["phase"] != "all") | (phases == 1)]
    for _, group in rows.groupby(keys, sort=False):
        lead = group[group["metric"] == "p99"]
        lead = lead if len(lead) else group
        head = lead.iloc[0]
        factor = "background" if head["factor"] == "background" else "comparison"
        yield Answer(_where(head, results), _difference(head, group, results), factor, head["verdict"])


def _where(head: pd.Series, results: Results) -> str:
    if head["factor"] == "store":
        parts = [f"from {head['baseline']} to {head['contender']}"]
        parts += [f"job {head['job']}"] if head["job"] and "job" in words.varying(results) else []
        parts += [words.BACKGROUNDS.get(head["background"], "")] if "background" in words.varying(results) else []
        return ", ".join(filter(None, parts))
    row = {factor: head[factor] for factor in FACTORS} | {head["factor"]: ""}
    return words.place(row, results)


def _difference(head: pd.Series, group: pd.DataFrame, results: Results) -> str:
    new, old = _sides(head)
    phase = f"{head['phase']}, " if head["phase"] != "all" else ""
    name = words.metric(head["metric"])
    jobs = [int(head[f"n_{side}"]) for side in ("contender", "baseline")]
    counts = f", {jobs[0]} jobs each" if len(set(jobs)) == 1 else f", {jobs[0]} and {jobs[1]} jobs"
    interval = words.interval(head["low"], head["high"], words.signed)
    match head["verdict"]:
        case "higher" | "lower":
            text = f"{phase}{name} {new} is {bold(words.change(head['percent']))} than {old}{interval}{counts}"
        case "same":
            percent = judgement.equivalence(results.facts)
            text = f"{phase}{name} {new} is {bold('the same')} as {old} within ±{percent:g} %{interval}{counts}"
        case "no evidence":
            text = f"{phase}{bold('no evidence')} that {name} {new} and {old} differ: {words.signed(head['percent'])}"
            text += f"{interval}{counts}"
        case _:
            text = f"{phase}{name} {new} against {old}{counts}: {bold(head['verdict'])}"
    others = group[group["metric"].isin(BESIDE) & group["verdict"].isin(DIFFERENT)]
    beside = [f"{words.metric(row.metric)} {words.change(row.percent)}" for row in others.itertuples()]
    return text + (f"; {prose.listing(beside)}" if beside else "") + "."


def _sides(head: pd.Series) -> tuple[str, str]:
    """Both levels as they follow the metric: "on gp3x1" and "on gp2x1"."""
    if head["factor"] == "background":
        return tuple(words.BACKGROUNDS.get(head[side], head[side]) for side in ("contender", "baseline"))
    if head["factor"] == "store":
        return f"on {head['contender']}", f"on {head['baseline']}"
    return f"with {head['factor']} {head['contender']}", f"with {head['factor']} {head['baseline']}"
