"""Find the release that changed a metric by a binary search; times are compared by statistical tests."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sbench.build.release_range import Unusable
from sbench.design import records
from sbench.measure import tables
from sbench.measure.judging import build_verdicts_table
from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.looks import OPEN, list_looks
from sbench.verdicts.outcomes import JUDGED, ORDERED, Outcome

FIRST, LAST, NEITHER, UNDECIDED = "like the first", "like the last", "like neither", "undecided"
# The difference between releases must be at least this multiple of that between two builds of the same release.
_APART = 1.5
# The maximum number of blocks of a step, and the numbers of complete blocks after which its releases are compared.
_MOST_BLOCKS = 16
LOOKS = list_looks(MIN_BLOCKS, _MOST_BLOCKS)
Say = Callable[[str], object]
# Keys: whether the time differs from that of the first release, and from that of the last.
_LIKE = {(False, True): FIRST, (True, False): LAST, (True, True): NEITHER, (False, False): UNDECIDED}


class Seen(NamedTuple):
    """The comparison of a release with the first and the last release.

    Attributes:
        like: `FIRST`, `LAST`, `NEITHER` or `UNDECIDED`.
        words: description of the release's metric.
    """

    like: str
    words: str


@dataclass
class Change:
    """The result of a search.

    Attributes:
        before, after: the releases just before and after the change; only skipped releases are between them.
        skipped: releases between them that could not be measured, with reasons.
        others: (earlier, later) pairs of releases with another change between them.
        undecided: the release that was not shown to differ from either end; an empty string if there is none.
        unconfirmed: the releases found and the reason to doubt them; an empty string unless there is doubt.
    """

    before: str
    after: str
    skipped: dict[str, str] = field(default_factory=dict)
    others: list[tuple[str, str]] = field(default_factory=list)
    undecided: str = ""
    unconfirmed: str = ""


def find_change(names: Sequence[str], look: Callable[[str, str, str], Seen], say: Say) -> Change:
    """Find the releases around a change, given that the first and the last release differ.

    If a release is like neither end, there is a change before it and another after it; the search continues before it,
    with this release as the last.

    Args:
        names: the releases in order.
        look: function of (first, release, last) that compares a release with the first and the last.
        say: function that reports a line of progress.
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
    """Remove changes in time that further builds do not confirm.

    Args:
        change: the result of the search, which is modified. If the releases found are not confirmed, its releases
            become the first and the last of `ends`.
        ends: all releases of the search.
        doubt: function of two releases that returns the reason to doubt that they differ, or an empty string.
    """
    change.others = [pair for pair in change.others if not doubt(*pair)]
    if reason := doubt(change.before, change.after):
        change.unconfirmed = f"{change.before} → {change.after}: {reason}"
        change.before, change.after = ends[0], ends[-1]


def find_doubt(rows: Sequence[dict], whole: float) -> str:
    """Return why the two builds of each of two releases do not confirm a difference in time.

    Return an empty string if they do. Rebuilding alone changes times by a few percent. Therefore all four pairs of
    builds must differ in the same direction, by at least half of the log ratio between first and last release, and by
    clearly more than two builds of the same release.

    Args:
        rows: verdicts on both builds of the later release, first against the first build of the earlier release, then
            against its second build.
        whole: ratio of the last to the first release of the search.
    """
    if any(row["verdict"] not in ORDERED for row in rows):
        return "not all pairs of their builds differ"
    logs = [math.log(row["ratio"]) for row in rows]
    if min(logs) < 0 < max(logs) or min(map(abs, logs)) < abs(math.log(whole)) / 2:
        return "less than half of the ratio last/first, or the other direction, in a pair of their builds"
    of_builds = (logs[0] - logs[1], logs[2] - logs[3], logs[0] - logs[2], logs[1] - logs[3])
    if _APART * max(map(abs, of_builds)) > min(map(abs, logs)):
        return f"the difference is less than {_APART}× that between two builds of the same release"
    return ""


def needs_more_blocks(rows: Sequence[dict], whole: float) -> bool:
    """Return whether a step of a search needs more blocks.

    It does while a comparison is undecided, unless the comparison's interval shows a ratio below half of the log ratio
    between first and last release, so that its two releases are on the same side of the change.

    Args:
        rows: verdicts on the comparisons of the step.
        whole: ratio of the last to the first release of the search; 1 if it is not known yet.
    """
    half = abs(math.log(whole)) / 2
    within = [-half < math.log(row["ratio_low"]) and math.log(row["ratio_high"]) < half for row in rows]
    return any(row["decision"] == OPEN and not is_small for row, is_small in zip(rows, within, strict=True))


def judge_libraries(folder: Path, run: str, study: str, libraries: Sequence[str]) -> dict[tuple[str, str], dict]:
    """Compare the total time of libraries with the first and with the last of them.

    The comparisons are a family for multiple testing, with a joint error rate over all looks (METHOD 5, 17). They use
    the blocks that measured all of the libraries, so that each step of a search has an error rate of its own.

    Args:
        folder: results folder of a study whose cells differ only in the library.
        run: name of the run.
        study: name of the study.
        libraries: names of the libraries.

    Returns:
        {(baseline, contender): row of the table of verdicts}.
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
    rows = build_verdicts_table(matrix, _number_rounds(runs), compared).to_dict("records")
    return {(row["baseline"], row["contender"]): row for row in rows if row["metric"] == "total"}


def _number_rounds(runs: pd.DataFrame) -> pd.DataFrame:
    """Select the blocks that contain all libraries, up to the last look, and number the looks after which they came."""
    of_block = runs.groupby("repeat")["cell"].nunique()
    runs = runs[runs["repeat"].map(of_block) == runs["cell"].nunique()]
    complete = runs.groupby("repeat")["ok"].all()
    before = runs["repeat"].map(complete.cumsum() - complete)
    rounds = [bisect_right(LOOKS, blocks) + 1 for blocks in before]
    return runs.assign(round=rounds, most_repeats=_MOST_BLOCKS)[before < _MOST_BLOCKS]


def judge_last(verdict: dict) -> str:
    """Classify the last release based on its verdict against the first."""
    return LAST if verdict["verdict"] in ORDERED else FIRST if verdict["verdict"] == Outcome.SAME else UNDECIDED


def judge_release(before: dict, after: dict) -> str:
    """Classify a release by its verdicts against both ends; if it differs from only one end, it is like the other."""
    return _LIKE[before["verdict"] in ORDERED, after["verdict"] in ORDERED]


def format_ratio(verdict: dict) -> str:
    """Format a verdict's ratio with its confidence interval; if there is no ratio, give the reason."""
    if verdict["verdict"] not in JUDGED:
        return f"{verdict['verdict']} ({verdict['note']})"
    return f"{verdict['ratio']:.2f} [{verdict['ratio_low']:.2f}, {verdict['ratio_high']:.2f}]"
