"""What was found in words: who feeds the processes fastest from which size on, and every comparison along the size."""

from dataclasses import asdict, dataclass

from scripts.report import judgement
from scripts.studies.blobs.report import caveats, courses, leaders, words
from scripts.studies.blobs.report.data import Results

# Of an answer; others are told as not decided.
DECIDED = ("one", "same", *courses.DECIDED)


@dataclass(frozen=True)
class Answer:
    """One sentence, `where` it holds and the rest of it; `factor` names the kind of question it answers."""

    where: str
    text: str
    factor: str
    verdict: str
    comparisons: int = 0


def conditions(results: Results) -> str:
    """Return what holds wherever nothing else is said."""
    facts = results.facts
    told = [
        words.level(factor, level, facts)
        for factor, level in words.usual(results.measured).items()
        if (factor, level) not in (("cache", "any"), ("objects", "shared")) and level
    ]
    return f"Where nothing else is said: {', '.join(told)}." if told else ""


def fastest(results: Results) -> list[Answer]:
    """Return who leads at which sizes, as far as verdicts say; runs without verdicts are told as what they are."""
    return [Answer(*leaders.in_words(lead, results), "fastest", lead.kind) for lead in leaders.find(results)]


def decided(results: Results) -> list[Answer]:
    """Return the comparisons of which a verdict was reached at any size: a sentence a pair of levels and context."""
    return [_answer(course, results) for course in courses.find(results) if course.decided]


def undecided(results: Results) -> list[Answer]:
    """Return the comparisons that were not decided at any size, and why."""
    return [_answer(course, results) for course in courses.find(results) if not course.decided]


def otherwise(results: Results) -> str:
    """Return a sentence where no verdict was reached at all."""
    reached = decided(results) or any(answer.verdict in ("one", "same") for answer in fastest(results))
    return "" if reached else caveats.nothing_decided(results)


def as_json(results: Results, study: str, title: str) -> dict:
    """Return what the index needs to open with this study's answers."""
    found = [*fastest(results), *decided(results)]
    return {
        "study": study,
        "title": title,
        "question": results.facts.get("question", ""),
        "run": results.facts.get("run", ""),
        "conditions": conditions(results),
        "answers": [asdict(answer) for answer in found if answer.verdict in DECIDED],
        "secondary": [],
        "undecided": [asdict(answer) for answer in (*found, *undecided(results)) if answer.verdict not in DECIDED],
        "control": judgement.control(results.verdicts, "on the time of all iterations"),
        "limits": caveats.limits(results),
        "cells": len(results.cells),
        "failed": int(results.cells["failed"].sum()),
        "invalid": int(results.cells["invalid"].sum()),
    }


def _answer(course: courses.Course, results: Results) -> Answer:
    verdicts = [verdict for _, verdict in course.steps if verdict in courses.DECIDED]
    verdict = verdicts[0] if verdicts else "undecided"
    return Answer(
        courses.where(course, results), courses.sentence(course, results), course.factor, verdict, len(course.rows)
    )
