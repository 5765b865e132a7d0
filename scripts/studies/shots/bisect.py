"""Finds the release of a library, or the commit of a clone, that changed what reading HDF5 files over S3 takes.

Requests and bytes are those that the embedded server has seen: one record of a release decides. Seconds are judged by
blocks, in which both ends and the release in question are measured in turn. Each release is a library of a
configuration in results/<run>/, which the workflow measures; what is measured stays, and is not measured again.
"""

import argparse
import math
import os
import shlex
from functools import partial
from pathlib import Path

from scripts.building import releases
from scripts.lib.program import Problem, expect_folders, paths, run
from scripts.statistics.bisection import FIRST, UNDECIDED, Change, Say, search, settle
from scripts.studies.shots.bisection import METRICS, REQUESTS, SECONDS, Bisection, packages, reading
from scripts.studies.shots.first import describe_first
from scripts.studies.shots.sets import bucket_of

_UNDECIDED_STATUS = 3
# What the command of a page has, in the order of the documents.
_VARIABLES = ("library", "first", "last", "metric", "clone", "files", "run")
_NAMES = {"first": "FROM", "last": "TO"}


def main(argv: list[str] | None = None) -> int:
    """Measure, and print which release changed the metric; return 0, or 3 where seconds are undecided."""
    parser = argparse.ArgumentParser(prog=f"python -sE -m {__spec__.name}", description=__doc__)
    add = parser.add_argument
    add("--library", default="", help=f"one of {', '.join(packages())}, or the folder of a clone")
    add("--from", dest="first", default="", help="a release, a wheel, or a branch, tag or commit of the clone")
    add("--to", dest="last", default="", help="a later one")
    add("--metric", default="", help=f"one of {', '.join(METRICS)} ({REQUESTS})")
    add("--clone", default="", help="the folder of a clone of HDF5 or of the package")
    add("--files", default="", help="the user's own HDF5 files, as for make look, in place of one that is generated")
    add("--run", default="", help="name of the run, in place of bisect-<library>-<from>-<to>")
    add("--yes", action="store_true", help="do not ask, whatever it costs")
    given = parser.parse_args(argv)
    bisection = _bisection(given)
    of = bisection.of
    steps = math.ceil(math.log2(len(of.names) - 1))
    print(
        f"{of.package}: {len(of.names)} {'commits' if of.clone else 'releases'} from {of.names[0]} to {of.names[-1]},"
        f" both ends and about {steps} step{'s' * (steps != 1)} to measure; the workflow's words: {bisection.log}",
        flush=True,
    )
    return report(bisection, partial(print, flush=True), command(given))


def report(bisection: Bisection, say: Say, command: str) -> int:
    """Measure, say which release changed the metric, and make the page; return the status."""
    of, metric, seen = bisection.of, bisection.metric, bisection.ends()
    first, last = of.names[0], of.names[-1]
    say(seen.words)
    change, outcome = Change(first, last), "changed"
    if seen.like == FIRST:
        outcome = "same"
        say(f"{of.package} {first} and {last} take the same {metric}; none between them was measured")
    elif seen.like == UNDECIDED:
        outcome = "undecided"
        say(f"undecided: whether {of.package} {first} and {last} differ in {metric}; {_further(bisection, change)}")
    else:
        change = search(of.names, bisection.look, say)
        if metric == SECONDS and not change.undecided:
            say(f"{change.before} and {change.after} are built again in other folders, and all four measured in turn")
            settle(change, of.names, bisection.doubt)
        outcome = "undecided" if change.undecided or change.unconfirmed else outcome
        _say_change(bisection, change, say)
    say(f"page: {bisection.publish(command, outcome, change)}; make archive RUN={bisection.run} packs it")
    return _UNDECIDED_STATUS if outcome == "undecided" else 0


def _say_change(bisection: Bisection, change: Change, say: Say) -> None:
    of, metric, before, after = bisection.of, bisection.metric, change.before, change.after
    for one, other in change.others:
        say(f"there is another change between {one} and {other}: FROM={one} TO={other} finds it")
    if change.undecided:
        where = f"{of.package} {before} → {after}, since {change.undecided} differs from neither end"
        say(f"undecided: where {metric} changed within {where}; {_further(bisection, change)}")
        return
    if change.unconfirmed:
        where = f"between {of.package} {before} and {after} changed {metric}"
        say(f"undecided: which release {where}; {change.unconfirmed}; {_further(bisection, change)}")
        return
    skipped = f" (or {', '.join(change.skipped)}, which could not be measured)" if change.skipped else ""
    differs = (f"{name} {old} → {new}" for name, old, new in bisection.differences(before, after))
    locks = [str(path) for path in map(bisection.lock, (before, after)) if path.exists()]
    say(
        f"{of.package} {before} → {after}{skipped} changed {metric} from {bisection.number(before)} to"
        f" {bisection.number(after)} (records in {bisection.records}); what else differs:"
        f" {', '.join(differs) or 'nothing'}; lock files: {', '.join(locks or ['envs/measure.lock of both'])};"
        f" {_further(bisection, change)}"
    )


def _further(bisection: Bisection, change: Change) -> str:
    """Return what to type to measure two releases again, with a page."""
    only = f"library={bisection.name(change.before)},{bisection.name(change.after)}"
    return f"type make run CONFIG={bisection.file} RUN={bisection.run}-again ONLY={only} to measure both again"


def command(given: argparse.Namespace) -> str:
    """Return the command that the arguments are of, as a page has it: of paths their last part, as of this machine."""
    texts = {name: getattr(given, name) for name in _VARIABLES if getattr(given, name)}
    plain = {name: f"./{Path(text).name}" if os.sep in text else text for name, text in texts.items()}
    return " ".join(
        ["make bisect", *(f"{_NAMES.get(name, name.upper())}={shlex.quote(text)}" for name, text in plain.items())]
    )


def _bisection(given: argparse.Namespace) -> Bisection:
    """Return what the arguments ask for.

    Raises:
        Problem: they ask for what there is not; nothing has been measured.
    """
    if not given.first or not given.last:
        raise Problem("name both ends: make bisect LIBRARY=s3fs FROM=2024.5.0 TO=2025.2.0 METRIC=requests")
    package, clone = given.library, given.clone
    if os.sep in package:
        package, clone = releases.package_of(package, given.last), package
    if package not in packages():
        raise Problem(f"LIBRARY={package or '…'}: name one of {', '.join(packages())}, or the folder of a clone")
    metric = given.metric or REQUESTS
    if metric not in METRICS:
        raise Problem(f"METRIC={metric}: name one of {', '.join(METRICS)}")
    files = paths([given.files])
    if files and bucket_of(files):
        raise Problem(
            f"FILES={given.files}: requests are counted by the embedded server only; name files on this machine"
        )
    if files:
        describe_first({"files": files, "datasets": ["/**"]})
    of = releases.between(package, given.first, given.last, clone, reading(package)[1])
    name = given.run or f"bisect-{package}-{of.names[0]}-{of.names[-1]}"
    expect_folders(name)
    return Bisection(of, metric, name, files, given.yes)


if __name__ == "__main__":
    run(main)
