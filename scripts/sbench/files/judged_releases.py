"""Which release changed a figure: the search between two that differ in it, and how times decide."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sbench.build.release_range import Unusable
from sbench.design import records
from sbench.measure import tables
from sbench.measure.judging import build_verdicts_table
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

FIRST, LAST, NEITHER, UNDECIDED = "like the first", "like the last", "like neither", "undecided"
# Releases differ by so many times as much as two builds of one of them.
_APART = 1.5
Say = Callable[[str], object]
# By whether a time differs from that of the first release, and of the last.
_LIKE = {(False, True): FIRST, (True, False): LAST, (True, True): NEITHER, (False, False): UNDECIDED}


class Seen(NamedTuple):
    """What a release is like, and its figure in words."""

    like: str
    words: str


@dataclass
class Change:
    """Where a search has ended.

    Attributes:
        before, after: the releases between which the change is, next to each other but for what was skipped.
        skipped: the releases that could not be measured, each with the reason.
        others: pairs of releases between which there is another change.
        undecided: the release that could be said to be like neither end, and not to differ from both, "" if none.
        unconfirmed: the releases with the largest change, and why it is not taken for theirs; "" if it is.
    """

    before: str
    after: str
    skipped: dict[str, str] = field(default_factory=dict)
    others: list[tuple[str, str]] = field(default_factory=list)
    undecided: str = ""
    unconfirmed: str = ""


def find_change(names: Sequence[str], look: Callable[[str, str, str], Seen], say: Say) -> Change:
    """Return where a figure changes between the first and the last of some releases, whose figures differ.

    `look` says what a release is like, given the ones that it is compared with: (the first, the release, the last).
    One that is like neither has had a change before it and one behind; the search goes on with the former, and takes it
    for the last.
    """
    low, high, step = 0, len(names) - 1, 0
    first, last, change = names[0], names[-1], Change(names[0], names[-1])
    while left := [place for place in range(low + 1, high) if names[place] not in change.skipped]:
        step += 1
        place = min(left, key=lambda place: abs(2 * place - low - high))
        name = names[place]
        head = f"step {step} of about {step - 1 + math.ceil(math.log2(len(left) + 1))}: {name}: "
        try:
            seen = look(first, name, last)
        except Unusable as problem:
            change.skipped[name] = str(problem)
            say(f"{head}skipped: {problem}")
            continue
        say(f"{head}{seen.words}, {seen.like}")
        if seen.like == UNDECIDED:
            change.undecided = name
            break
        if seen.like == NEITHER:
            change.others.append((name, names[high]))
            last = name
        if seen.like == FIRST:
            low = place
        else:
            high = place
    change.before, change.after = names[low], names[high]
    change.skipped = {name: change.skipped[name] for name in names[low + 1 : high] if name in change.skipped}
    return change


def confirm_change(change: Change, ends: Sequence[str], doubt: Callable[[str, str], str]) -> None:
    """Leave in a change of times what further builds confirm: `doubt` returns why two releases do not differ, or "".

    Where it doubts those that were found, the change is somewhere between the `ends`.
    """
    change.others = [pair for pair in change.others if not doubt(*pair)]
    if reason := doubt(change.before, change.after):
        change.unconfirmed = f"{change.before} → {change.after}: {reason}"
        change.before, change.after = ends[0], ends[-1]


def find_doubt(rows: Sequence[dict], whole: float) -> str:
    """Return why two releases, of two builds each, are not shown to differ by at least half of a `whole` ratio, or "".

    `rows` are the verdicts on both builds of the later release against the first build of the earlier one, then against
    its second build. A build alone changes times by some percent, so all four have to differ, and more than two builds
    of one release do.
    """
    if any(row["verdict"] not in ORDERED for row in rows):
        return "not told apart in all of two builds each"
    logs = [math.log(row["ratio"]) for row in rows]
    if min(logs) < 0 < max(logs) or min(map(abs, logs)) < abs(math.log(whole)) / 2:
        return "less than half of the ratio of the last to the first in one of two builds each"
    of_builds = (logs[0] - logs[1], logs[2] - logs[3], logs[0] - logs[2], logs[1] - logs[3])
    if _APART * max(map(abs, of_builds)) > min(map(abs, logs)):
        return "two builds of one of them differ by more"
    return ""


def judge_libraries(folder: Path, run: str, study: str, libraries: Sequence[str]) -> dict[tuple[str, str], dict]:
    """Return the verdicts on the total time of libraries against the first and the last: (baseline, contender) -> row.

    They are one family, judged from the blocks in which both were measured (METHOD 17). `folder` is that of the study
    in the results of a run in which cells differ in their library alone.
    """
    matrix = tables.read_matrix(folder / "matrix.csv")
    matrix = matrix[matrix["library"].isin(libraries)].reset_index(drop=True)
    kept = (
        records.Kept(cell, levels, block, path, records.read_record(path, run, study, levels))
        for cell, levels in tables.get_levels(matrix).items()
        for block, path in records.list_repeats(folder / "records" / cell)
    )
    runs, _ = tables.build_runs_and_samples(matrix, kept)
    compared = [{"factor": "library", "baseline": name} for name in (libraries[0], libraries[-1])]
    rows = build_verdicts_table(matrix, runs, compared).to_dict("records")
    return {(row["baseline"], row["contender"]): row for row in rows if row["metric"] == "total"}


def judge_last(verdict: dict) -> str:
    """Return what the last release is like by its verdict against the first."""
    return LAST if verdict["verdict"] in ORDERED else FIRST if verdict["verdict"] == Outcome.SAME else UNDECIDED


def judge_release(before: dict, after: dict) -> str:
    """Return what a release is like by its verdicts against the first and the last.

    Where it is not shown to differ from one of them, and is from the other, it is like the former.
    """
    return _LIKE[before["verdict"] in ORDERED, after["verdict"] in ORDERED]


def format_ratio(verdict: dict) -> str:
    """Return the ratio of a verdict with its interval, or why there is none."""
    if verdict["verdict"] not in JUDGED:
        return f"{verdict['verdict']} ({verdict['note']})"
    return f"{verdict['ratio']:.2f} [{verdict['ratio_low']:.2f}, {verdict['ratio_high']:.2f}]"
