"""The verdicts in words: comparisons that came out alike become one sentence, with the range of what was found."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from scripts.report import judgement, prose
from scripts.report.markup import bold
from scripts.studies.shots.report import caveats, words
from scripts.studies.shots.report.merging import Conditions, parts
from scripts.studies.shots.report.results import Results

PURPOSES = {
    "total": "",
    "open": " to open a file",
    "first": " to read the first data set",
    "rest": " in the data sets after the first",
}


@dataclass(frozen=True)
class Answer:
    """One sentence, `where` it holds and the rest of it, and how many comparisons it rests on."""

    where: str
    text: str
    factor: str
    metric: str
    verdict: str
    comparisons: int


def decided(results: Results, metric: str = "total") -> list[Answer]:
    """Return what was decided about `metric`, in the order of the comparisons: a sentence a place and outcome."""
    return [answer for group in _groups(results, metric) for answer in _decided(group, results)]


def undecided(results: Results, metric: str = "total") -> list[Answer]:
    """Return what was not decided about `metric`, and why."""
    return [answer for group in _groups(results, metric) for answer in _undecided(group, results)]


def secondary(results: Results, others: bool = False) -> list[Answer]:
    """Return where opens, first data sets or the rest clearly differ: of the first factor compared, or of the `others`.

    These comparisons are many and each is judged by itself, so false alarms are among them: a sentence is made of those
    whose whole interval lies outside what counts as the same. All are in the table.
    """
    if results.verdicts.empty:
        return []
    first = results.verdicts["factor"].iloc[0]
    bound = 1 + judgement.equivalence(results.facts) / 100
    found = []
    for metric in ("open", "first", "rest"):
        for group in _groups(results, metric):
            if (group["factor"].iloc[0] != first) == others:
                beyond = (group["ratio_low"] > bound) | (group["ratio_high"] < 1 / bound)
                weak = group["verdict"].isin(("faster", "slower")) & ~beyond
                found += _decided(group.assign(verdict=group["verdict"].mask(weak, "no evidence")), results)
    return [answer for answer in found if answer.verdict != "same"]


def as_json(results: Results, study: str, title: str) -> dict:
    """Return what the index needs to open with this study's answers."""
    return {
        "study": study,
        "title": title,
        "question": results.facts.get("question", ""),
        "run": results.facts.get("run", ""),
        "answers": [asdict(answer) for answer in decided(results)],
        "secondary": [asdict(answer) for answer in secondary(results)],
        "undecided": [asdict(answer) for answer in undecided(results)],
        "control": judgement.control(results.verdicts),
        "limits": caveats.limits(results),
        "cells": len(results.cells),
        "failed": int(results.cells["failed"].sum()),
        "invalid": int(results.cells["invalid"].sum()),
    }


def _groups(results: Results, metric: str) -> Iterator[pd.DataFrame]:
    """Yield the comparisons of one pair of levels in one place."""
    rows = results.verdicts
    if rows.empty:
        return
    rows = rows[(rows["metric"] == metric) & (rows["role"] != "control")]
    pairs = zip(rows["layout"], rows["access"], strict=True)
    direction = ["along" if pair in words.ALONG else "across" if pair in words.ACROSS else "" for pair in pairs]
    keys = ["factor", "baseline", "contender", *words.PLACE]
    for _, group in rows.assign(direction=direction).groupby(keys, sort=False):
        yield group


def _decided(group: pd.DataFrame, results: Results) -> Iterator[Answer]:
    judged = group[group["verdict"].isin(judgement.JUDGED)]
    for verdict in ("slower", "faster", "same"):
        for part, conditions in parts(judged[judged["verdict"] == verdict], judged):
            yield _answer(part, _sentence(part, verdict, conditions, len(judged), results.facts), results)


def _undecided(group: pd.DataFrame, results: Results) -> Iterator[Answer]:
    for verdict in ("no evidence", "too few repeats", "not comparable"):
        alike = group[group["verdict"] == verdict]
        if alike.empty:
            continue
        new, old = _sides(alike.iloc[0], results.facts)
        told = [_conditions(conditions, results.facts) for _, conditions in parts(alike, group) if conditions]
        # More of them are plainer from the figure than from words.
        found = f" ({'; '.join(told)})" if 0 < len(told) <= 2 else ""
        many = prose.count(len(alike), "comparison")
        if verdict == "no evidence":
            seen = alike["detectable_ratio"].replace(np.inf, np.nan).dropna()
            least = f"; the smallest difference this run could have seen: {prose.span(seen)} times" if len(seen) else ""
            ratios = f"ratio {prose.span(alike['ratio'])} in {many}{least}"
            text = f"{bold(verdict)} that {new} and {old} differ{found}: {ratios}."
        else:
            notes = list(dict.fromkeys(note for note in alike["note"] if note))
            why = f" ({prose.listing(notes)})" if notes else ""
            text = f"{new} against {old}{found}, {many}: {bold(verdict)}{why}."
        yield _answer(alike, text, results)


def _answer(rows: pd.DataFrame, text: str, results: Results) -> Answer:
    head = rows.iloc[0]
    place = words.place(head, results.facts)
    where = f"from {place}" if head["store"] else place
    return Answer(where, text, head["factor"], head["metric"], head["verdict"], len(rows))


def _sentence(rows: pd.DataFrame, verdict: str, conditions: Conditions | None, of: int, facts: dict) -> str:
    head = rows.iloc[0]
    new, old = _sides(head, facts)
    # "read all signals of a shot" says it better than "was … reading all signals of a shot".
    accesses = rows["access"].unique() if (head["factor"], head["metric"]) == ("library", "total") else []
    verb, known = "was", conditions or []
    if len(accesses) == 1 and accesses[0]:
        verb, known = f"read {words.reading(accesses[0])}", [one for one in known if one[0] != "access"]
    purpose = PURPOSES[head["metric"]]
    if verdict == "same":
        effect = f"{bold('as fast')} as {old} within ±{judgement.equivalence(facts):g} %{purpose}"
    else:
        ratios = rows["ratio"] if verdict == "slower" else 1 / rows["ratio"]
        effect = f"{bold(f'{prose.span(ratios)} times {verdict}')}{purpose} than {old}"
    told = f"{_conditions(known, facts)}, " if known else ""
    some = f" in {len(rows)} of {of} comparisons (the figure shows in which)" if conditions is None else ""
    return f"{told}{new} {verb} {effect}{some} {_evidence(rows, verdict, counted=conditions is not None)}."


def _evidence(rows: pd.DataFrame, verdict: str, counted: bool) -> str:
    """The interval and what it rests on: "[1.15, 1.27], 6 blocks"."""
    low, high = rows["ratio_low"].min(), rows["ratio_high"].max()
    low, high = (1 / high, 1 / low) if verdict == "faster" else (low, high)
    interval = f"[{prose.ratio(low)}, {prose.ratio(high)}]"
    blocks = prose.span(rows["blocks"], "{:.0f}".format)
    ratios = f"{'ratio' if len(rows) == 1 else 'ratios'} {prose.span(rows['ratio'])}" if verdict == "same" else ""
    if len(rows) == 1:
        return f"({ratios} {interval}, {blocks} blocks)" if ratios else f"{interval}, {blocks} blocks"
    many = prose.count(len(rows), "comparison") if counted else ""
    return f"({', '.join(filter(None, (many, ratios, f'intervals within {interval}', f'{blocks} blocks each')))})"


def _sides(head: pd.Series, facts: dict) -> tuple[str, str]:
    new, old = (words.subject(head["factor"], head[side], facts) for side in ("contender", "baseline"))
    if new.startswith("HDF5 ") and old.startswith("HDF5 "):
        old = old.removeprefix("HDF5 ")
    return new, old


def _conditions(conditions: Conditions, facts: dict) -> str:
    levels: dict[str, list[str]] = {}
    for factor, value in conditions:
        levels.setdefault(factor, []).append(value)
    return ", ".join(words.condition(factor, values, facts) for factor, values in levels.items())
