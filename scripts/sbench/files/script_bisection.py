"""Find the releases of any package that changed the S3 requests of a script, and the other packages that changed them.

Counts repeat exactly, so a single run per release is enough.
"""

import argparse
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

from sbench.build import dated_packages, release_range
from sbench.build.dated_packages import Dated
from sbench.build.release_range import Releases, Unusable
from sbench.files import budget, count, count_text
from sbench.files.buckets import Requests, get_method
from sbench.files.judged_releases import Say
from sbench.files.script_runs import Script, ScriptRuns
from sbench.probe import sizes
from sbench.probe.program import Problem, expect_folders, write_json

# The number of connections differs between two runs of many clients.
METRICS = [name for name in budget.NAMES if name != "connections"]
# Releases to measure where none differ, by default and at least: both ends.
_MOST, _LEAST = 24, 2
# The number of objects that are listed with their requests before and after a change.
_LISTED = 5

_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_RESULT = "bisect.json"

# None: it cannot be measured.
Figures = dict[str, int | None]


class Query(NamedTuple):
    """The arguments of a bisection with a script.

    Attributes:
        package: normalised name of a Python package, such as zope-interface.
        first, last: two releases.
        metric: name of a limit in a budget, such as "requests" or "bytes".
        script: the script.
        name: name of the run; an empty string for a generated name.
        most: number of releases after which none is measured between releases with equal figures.
    """

    package: str
    first: str
    last: str
    metric: str
    script: Script
    name: str
    most: int


class Change(NamedTuple):
    """Two neighbours in a sequence, except for skipped members, with different figures.

    Attributes:
        before, after: their names.
        skipped: names between them that could not be measured.
        undone: the first later name with the figure of `before`; an empty string if there is none.
    """

    before: str
    after: str
    skipped: Sequence[str]
    undone: str


class Cause(NamedTuple):
    """Packages whose versions changed the figure, with the figures before and after."""

    packages: str
    before: int
    after: int


def build_query(given: argparse.Namespace) -> Query:
    """Build a query from the arguments of the command line.

    Raises:
        Problem: an argument is wrong, or has no effect with a script.
    """
    library = os.path.relpath(given.library, given.called_from) if os.sep in given.library else given.library
    others = (given.clone, given.files, library == release_range.HDF5, not _PACKAGE.fullmatch(library))
    if any(others) or any(os.sep in end or end.endswith(".whl") for end in (given.first, given.last)):
        raise Problem(
            "with --script, name a package and two of its releases, without --clone, --files, wheels and extras; name"
            " extras with --with, such as --with 'dask[array]'"
        )
    if given.name and Path(given.name).name != given.name:
        raise Problem(f"--name must be the name of a folder in results (got {given.name})")
    if given.metric not in METRICS:
        raise Problem(f"--metric must be one of {', '.join(METRICS)} with --script (got {given.metric})")
    if given.most and given.most < _LEAST:
        raise Problem(f"--most must be {_LEAST} or more (got {given.most})")
    path = Path(given.called_from, os.path.expanduser(given.script))
    if not path.is_file():
        raise Problem(f"--script must be a Python script (got {path}); name an existing file")
    folders = count.name_folders(given.folders, [], given.called_from)
    script = Script(path, given.called_from, folders, vars(given)["with"], given.python)
    return Query(
        canonicalize_name(library), given.first, given.last, given.metric, script, given.name, given.most or _MOST
    )


def run_bisect(query: Query, say: Say) -> int:
    """Run a script with releases of a package, and report which of them changed its requests.

    Returns:
        Exit status: 0.

    Raises:
        Problem: an argument is wrong, an end cannot be measured, or the requests of the script do not repeat.
    """
    of = release_range.list_releases(
        query.package, query.first, query.last, with_yanked=True, python=query.script.python
    )
    script = query.script.path.stem
    folder = Path("results", query.name or f"bisect-{of.package}-{of.names[0]}-{of.names[-1]}-{script}")
    make_folder(folder)
    with (
        # Signals end the process by an exception, so that nothing is left in the temporary folder.
        count.handle_signals(count.ENDING, count.exit_on_signal),
        open(folder / "script.log", "w+", encoding="utf-8", errors="replace") as log,
        tempfile.TemporaryDirectory(prefix="bisect.") as scratch,
    ):
        say(f"{of.package}: {len(of.names)} releases from {of.names[0]} to {of.names[-1]}; log: {log.name}")
        runs = ScriptRuns(query.script, of, query.metric, Path(scratch), log, say)
        figures = _measure_ends(runs)
        measure_range(of.names, figures, runs.measure_release, query.most)
        changes = find_changes(of.names, figures)
        _repeat_changes(runs, changes)
        causes = [_find_causes(runs, change) for change in changes]
    for change, of_change in zip(changes, causes, strict=True):
        _report_change(query, change, of_change, runs, say)
    _report_rest(query, of, figures, changes, say)
    pages = [runs.write_page(name, folder) for name in dict.fromkeys(name for one in changes for name in one[:2])]
    write_json(folder / _RESULT, _build_json(query, of, runs, changes, causes))
    say(f"figures and versions: {folder / _RESULT}{'; requests: ' * bool(pages)}{', '.join(map(str, pages))}")
    return 0


def make_folder(folder: Path) -> None:
    """Make the folder of a run, or remove the results of an earlier one, which could be mistaken for new ones.

    Raises:
        Problem: the folder cannot be made, or belongs to a run of another command.
    """
    expect_folders(folder.name)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / "script.log").exists():
        raise Problem(f"{folder} belongs to another run; choose another name with --name")
    for path in (folder / _RESULT, *folder.glob("*.html")):
        path.unlink(missing_ok=True)


def measure_range(names: Sequence[str], figures: Figures, measure: Callable[[str], int], most: int) -> None:
    """Measure as many members of a sequence as are needed to find where the figure changes.

    First, the middle between two neighbours with different figures is measured, until these are adjacent. Then members
    between neighbours with equal figures follow, because a change may have been undone there.

    Args:
        names: the sequence.
        figures: the figures known so far, which include both ends; modified.
        measure: function that returns the figure of a member, or raises Unusable.
        most: number of figures after which no member between equal figures is measured.
    """
    while name := _choose_next(names, figures, most):
        try:
            figures[name] = measure(name)
        except Unusable:
            figures[name] = None


def _choose_next(names: Sequence[str], figures: Figures, most: int) -> str:
    gaps = []
    for low, high in pairwise(_list_measured(names, figures)):
        left = [name for name in names[low + 1 : high] if name not in figures]
        differs = figures[names[low]] != figures[names[high]]
        if left and (differs or len(figures) < most):
            gaps.append((differs, len(left), left[len(left) // 2]))
    return max(gaps, key=lambda gap: gap[:2])[2] if gaps else ""


def find_changes(names: Sequence[str], figures: Figures) -> list[Change]:
    """Return the changes between measured neighbours in a sequence, in order."""
    places, changes = _list_measured(names, figures), []
    for low, high in pairwise(places):
        if figures[names[low]] != figures[names[high]]:
            later = (names[place] for place in places if place > high)
            undone = next((name for name in later if figures[name] == figures[names[low]]), "")
            changes.append(Change(names[low], names[high], names[low + 1 : high], undone))
    return changes


def _list_measured(names: Sequence[str], figures: Figures) -> list[int]:
    return [place for place, name in enumerate(names) if figures.get(name) is not None]


def _measure_ends(runs: ScriptRuns) -> Figures:
    """Measure the first and the last release, twice each.

    Raises:
        Problem: one of them cannot be measured, makes no request, or makes other requests in its second run.
    """
    figures: Figures = {}
    for name in (runs.of.names[0], runs.of.names[-1]):
        try:
            figures[name] = runs.measure_release(name)
            runs.check_repeat(name)
        except Unusable as problem:
            raise Problem(f"{runs.of.package} {name}: {problem}; correct the cause, or name another release") from None
    if not any(count.requests.methods for count in runs.counts.values()):
        raise Problem(count_text.NO_REQUESTS)
    return figures


def _repeat_changes(runs: ScriptRuns, changes: Sequence[Change]) -> None:
    """Measure the releases before and after each change again, except for the ends, which were measured twice.

    Raises:
        Problem: one of them makes other requests in its second run, or fails.
    """
    names = {name: None for change in changes for name in (change.before, change.after)}
    for name in names:
        if name not in (runs.of.names[0], runs.of.names[-1]):
            runs.check_repeat(name)


def _find_causes(runs: ScriptRuns, change: Change) -> list[Cause]:
    """Find the packages that changed the figure between two releases.

    Starting from the packages of the earlier release, new packages are added, and then the versions of the later one
    are installed one after the other, beginning with the bisected package. Requirements are ignored, so some of these
    environments may not work; packages that changed only together are reported together.
    """
    both = [runs.packages[name] for name in (change.before, change.after)]
    (before, after), until = (packages.requirements for packages in both), max(packages.until for packages in both)
    new = [name for name in after if name not in before]
    others = [name for name in dated_packages.list_differences(before, after) if name not in (*new, runs.of.package)]
    names, states = [change.before], {change.before: dict(before)}
    for changed in (*([new] if new else []), [runs.of.package], *([name] for name in others)):
        state = states[names[-1]] | {name: after[name] for name in changed if name in after}
        label = _name_packages(changed, after)
        states[label] = {name: pin for name, pin in state.items() if name in after or name not in changed}
        names.append(label)
    figures: Figures = {names[0]: runs.read_figure(change.before), names[-1]: runs.read_figure(change.after)}
    measure_range(names, figures, lambda name: runs.measure_packages(name, Dated(states[name], until)), len(figures))
    return [
        Cause(", ".join([*step.skipped, step.after]), figures[step.before] or 0, figures[step.after] or 0)
        for step in find_changes(names, figures)
    ]


def _name_packages(names: Sequence[str], pins: Mapping[str, str]) -> str:
    return ", ".join(pins[name].replace("==", " ") if name in pins else f"{name} removed" for name in names)


def _report_change(query: Query, change: Change, causes: Sequence[Cause], runs: ScriptRuns, say: Say) -> None:
    package, metric = query.package, query.metric
    before, after = (runs.read_figure(name) for name in change[:2])
    skipped = f" (or {', '.join(change.skipped)}, which could not be measured)" if change.skipped else ""
    undone = f"; {change.undone} undoes it" if change.undone else ""
    say(f"{package} {change.before} → {change.after}{skipped} changed {metric} from {before:,} to {after:,}{undone}")
    if [cause.packages for cause in causes] == [f"{package} {change.after}"]:
        say(f"  the cause is {package} itself, also with the other packages of {change.before}")
    else:
        say("  the causes, installed in this order:")
        for cause in causes:
            say(f"  {cause.packages}: {cause.before:,} → {cause.after:,}")
    for line in _compare_requests(metric, *(runs.counts[name].requests for name in change[:2])):
        say(f"  {line}")


def _compare_requests(metric: str, before: Requests, after: Requests) -> Iterator[str]:
    """Yield the objects and methods whose requests or bytes differ most between two runs."""
    both = [_sum_by_object(metric, requests) for requests in (before, after)]
    differing = [key for key in {**both[0], **both[1]} if both[0][key] != both[1][key]]
    differing.sort(key=lambda key: -abs(both[1][key] - both[0][key]))
    for key in differing[:_LISTED]:
        yield f"{key}: {both[0][key]:,} → {both[1][key]:,}"
    if len(differing) > _LISTED:
        yield f"… and {sizes.format_count(len(differing) - _LISTED, 'more object')}"


def _sum_by_object(metric: str, requests: Requests) -> Counter[str]:
    sums: Counter[str] = Counter()
    for row in budget.select_rows(requests.passed["exchanges"], metric):
        sums[f"{get_method(row)} {row['path']}"] += row["bytes"] if metric in budget.SIZES else 1
    return sums


def _report_rest(query: Query, of: Releases, figures: Figures, changes: Sequence[Change], say: Say) -> None:
    """Report that nothing changed, and the releases that were skipped or not measured."""
    if not changes:
        (figure,) = {figure for figure in figures.values() if figure is not None}
        say(f"{of.package} {of.names[0]} to {of.names[-1]}: {figure:,} {query.metric} with all measured releases")
    if skipped := [name for name in of.names if name in figures and figures[name] is None]:
        say(f"skipped: {', '.join(skipped)}")
    if left := len(of.names) - len(figures):
        say(
            f"{sizes.format_count(left, 'release')} between releases with equal {query.metric} not measured; --most"
            f" {len(of.names)} measures all, to find changes that were undone"
        )


def _build_json(
    query: Query, of: Releases, runs: ScriptRuns, changes: Sequence[Change], causes: Sequence[Sequence[Cause]]
) -> dict:
    measured = {
        name: {
            "figures": budget.count_totals(runs.counts[name].requests),
            "seconds": runs.counts[name].seconds,
            "requirements": list(runs.packages[name].requirements.values()),
        }
        for name in of.names
        if name in runs.counts
    }
    pairs = zip(changes, causes, strict=True)
    return {
        "package": of.package,
        "script": query.script.path.name,
        "metric": query.metric,
        "releases": measured,
        "skipped": runs.reasons,
        "changes": [change._asdict() | {"causes": [cause._asdict() for cause in own]} for change, own in pairs],
    }
