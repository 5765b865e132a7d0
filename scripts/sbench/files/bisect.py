"""Find the release of a library, or the commit in a clone, that changed the cost of reading HDF5 files over S3.

Requests and bytes are counted by the embedded server, so a single measurement per release is enough. Verdicts on time
need blocks that measure the first release, the last release and the release in question in alternation. Each release is
a library in the configuration in results/<run>/, which the workflow measures. Records are retained, so a second call
measures only what is missing.
"""

import math
import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sbench.build import release_range
from sbench.files.bisection import METRICS, REQUESTS, SECONDS, Bisection, choose_reader, list_packages
from sbench.files.judged_releases import FIRST, UNDECIDED, Change, Say, confirm_change, find_change
from sbench.probe.program import Problem, expect_folders
from sbench.studies.shots.addresses import get_bucket
from sbench.studies.shots.first import describe_first

_UNDECIDED_STATUS = 3


class Query(NamedTuple):
    """The arguments of a bisection.

    Attributes:
        library: one of `list_packages()`, or the path of a Git clone.
        first: a release, a wheel, or a branch, tag or commit in the clone.
        last: a later release, wheel, branch, tag or commit.
        metric: one of `METRICS`.
        clone: path of a Git clone of HDF5 or of the package; an empty string to use releases.
        files: HDF5 files of the user; empty to generate a file.
        name: name of the run; an empty string for a generated name.
    """

    library: str
    first: str
    last: str
    metric: str = REQUESTS
    clone: str = ""
    files: Sequence[str] = ()
    name: str = ""


def run_bisect(query: Query, is_sure: bool) -> int:
    """Run a bisection, and print which release changed the metric.

    Args:
        query: arguments of the bisection.
        is_sure: whether to skip the confirmation of expensive runs.

    Returns:
        Exit status: 3 if the result is undecided, otherwise 0.
    """
    bisection = _build_bisection(query, is_sure)
    of = bisection.of
    steps = math.ceil(math.log2(len(of.names) - 1))
    print(
        f"{of.package}: {len(of.names)} {'commits' if of.clone else 'releases'} from {of.names[0]} to {of.names[-1]},"
        f" both ends and about {steps} step{'s' * (steps != 1)} to measure; log: {bisection.log}",
        flush=True,
    )
    return report_bisection(bisection, partial(print, flush=True), format_command(query))


def report_bisection(bisection: Bisection, say: Say, command: str) -> int:
    """Measure releases, report which of them changed the metric, and generate the page.

    Args:
        bisection: the bisection.
        say: function that reports a line.
        command: command to repeat the bisection, for the page.

    Returns:
        Exit status: 3 if the result is undecided, otherwise 0.
    """
    of, metric, seen = bisection.of, bisection.metric, bisection.measure_ends()
    first, last = of.names[0], of.names[-1]
    say(seen.words)
    change, outcome = Change(first, last), "changed"
    if seen.like == FIRST:
        outcome = "same"
        say(f"{of.package} {first} and {last} agree in {metric}; no release between them was measured")
    elif seen.like == UNDECIDED:
        outcome = "undecided"
        step = _describe_next_step(bisection, change)
        say(f"undecided: {of.package} {first} and {last} were not shown to differ in {metric}; {step}")
    else:
        change = find_change(of.names, bisection.measure_release, say)
        if metric == SECONDS and not change.undecided:
            say(f"building {change.before} and {change.after} again in other folders, to measure all four builds")
            confirm_change(change, of.names, bisection.check_rebuilt)
        outcome = "undecided" if change.undecided or change.unconfirmed else outcome
        _report_change(bisection, change, say)
    say(f"page: {bisection.make_pages(command, outcome, change)}; archive it with sbench archive {bisection.run}")
    return _UNDECIDED_STATUS if outcome == "undecided" else 0


def _report_change(bisection: Bisection, change: Change, say: Say) -> None:
    of, metric, before, after = bisection.of, bisection.metric, change.before, change.after
    next_step = _describe_next_step(bisection, change)
    for one, other in change.others:
        say(f"another change lies between {one} and {other}; find it with sbench bisect {of.package} {one} {other}")
    if change.undecided:
        why = f"{change.undecided} was not shown to differ from either end"
        say(f"undecided: {of.package} {before} → {after} changed {metric}, but {why}; {next_step}")
        return
    if change.unconfirmed:
        where = f"between {of.package} {before} and {after} was confirmed to change {metric}"
        say(f"undecided: no release {where}; {change.unconfirmed}; {next_step}")
        return
    skipped = f" (or {', '.join(change.skipped)}, which could not be measured)" if change.skipped else ""
    differs = (f"{name} {old} → {new}" for name, old, new in bisection.list_differences(before, after))
    locks = [str(path) for path in map(bisection.get_lock_path, (before, after)) if path.exists()]
    say(
        f"{of.package} {before} → {after}{skipped} changed {metric} from {bisection.format_figure(before)} to"
        f" {bisection.format_figure(after)} (records in {bisection.records}); other differences:"
        f" {', '.join(differs) or 'none'}; lock files: {', '.join(locks or ['envs/measure.lock of both'])};"
        f" {next_step}"
    )


def _describe_next_step(bisection: Bisection, change: Change) -> str:
    """Return a sentence with the command that remeasures the releases before and after the change."""
    only = f"library={bisection.get_library_name(change.before)},{bisection.get_library_name(change.after)}"
    return f"measure both again with sbench run {bisection.file} --name {bisection.run}-again --only {only}"


def format_command(query: Query) -> str:
    """Format the command line of a query for the page; paths are shortened to their last part for privacy."""
    plain = query._replace(
        **{name: _format_path(getattr(query, name)) for name in ("library", "first", "last", "clone")},
        files=list(map(_format_path, query.files)),
    )
    words = [plain.library, plain.first, plain.last]
    if plain.metric != REQUESTS:
        words += ["--metric", plain.metric]
    for option in ("clone", "name"):
        words += [f"--{option}", getattr(plain, option)] if getattr(plain, option) else []
    words += ["--files", *plain.files] if plain.files else []
    return f"sbench bisect {shlex.join(words)}"


def _format_path(text: str) -> str:
    return f"./{Path(text).name}" if os.sep in text else text


def _build_bisection(query: Query, is_sure: bool) -> Bisection:
    """Validate a query and set up its bisection, without measuring.

    Raises:
        Problem: the query is invalid.
    """
    package, clone = query.library, query.clone
    if os.sep in package:
        package, clone = release_range.read_package_name(package, query.last), package
    if package not in list_packages():
        raise Problem(
            f"the library must be one of {', '.join(list_packages())}, or the folder of a clone (got {package})"
        )
    if query.metric not in METRICS:
        raise Problem(f"--metric must be one of {', '.join(METRICS)} (got {query.metric})")
    files = list(query.files)
    if files and get_bucket(files):
        raise Problem(
            f"--files must be on this machine, because only the embedded server counts requests (got {files[0]})"
        )
    if files:
        describe_first({"files": files, "datasets": ["/**"]})
    of = release_range.list_releases(package, query.first, query.last, clone, choose_reader(package)[1])
    name = query.name or f"bisect-{package}-{of.names[0]}-{of.names[-1]}"
    expect_folders(name)
    return Bisection(of, query.metric, name, files, is_sure)
