"""Finds the release of a library, or the commit of a clone of HDF5, that changed what reading HDF5 files over S3 takes.

Requests and bytes are those that the embedded server has seen: one record of a release decides. Seconds are judged by
blocks, in which both ends and the release in question are measured in turn. Each release is a library of a
configuration in results/<run>/, which the workflow measures; what is measured stays, and is not measured again.
"""

import argparse
import math
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from scripts.building import releases
from scripts.building.releases import Releases, Unusable
from scripts.frame import config as configuration
from scripts.frame import matrix, records
from scripts.lib.processes import owned
from scripts.lib.program import Problem, expect_folders, read_json, run, write_text
from scripts.statistics.bisection import (
    FIRST,
    LAST,
    NEITHER,
    UNDECIDED,
    Say,
    Seen,
    likeness,
    of_ends,
    ratio,
    search,
    verdicts,
)
from scripts.studies.shots.first import describe_first
from scripts.studies.shots.sets import bucket_of

STUDY = "shots"
REQUESTS, BYTES, SECONDS = METRICS = ("requests", "bytes", "seconds")
# What reads with a package. For h5py no cache is between what it asks for and the server.
_READS = {
    releases.HDF5: {"driver": ["ros3"]},
    "s3fs": {"driver": ["s3fs"]},
    "h5py": {"driver": ["s3fs"], "read_cache": ["none"]},
}
_LEVELS = {"store": ["s3"], "workers": [1], "page_buffer": ["unset"], "cache": ["any"]}
# A file of 8 MB, of which a read-ahead of some megabytes is a part; ROS3 keeps the first 16 MiB of a file.
_GENERATED = {"shots": 2, "signals": 16, "page_size": 4 * 2**20}
_SHOTS = {releases.HDF5: 8}
_STORE = {"kind": "s3", "bucket": "bisect", "server": "embedded"}
_NETWORK = {"latency_ms": 10, "per_connection_mib_s": 100, "shared_mib_s": 200}
_REPEATS = 10
_PATIENCE_S = 20.0
_UNDECIDED_STATUS = 3


class Bisection:
    """A run of the workflow whose libraries are the releases that are measured.

    Attributes:
        of, metric, run: the releases, what is looked for, and the run's name.
        folder, file, log, records: of the run: its results, configuration, words and records.
    """

    def __init__(self, of: Releases, metric: str, run_name: str, files: list[str], yes: bool = False) -> None:
        """Say what is measured; `files` are the user's own, none for one that is generated."""
        self.of, self.metric, self.run, self._yes = of, metric, run_name, yes
        self.folder = Path("results", run_name)
        self.file, self.log = self.folder / "bisect.yaml", self.folder / "bisect.log"
        self.records = self.folder / STUDY / "records"
        own = {"files": {"files": files}}
        generated = _GENERATED | {"shots": _SHOTS.get(of.package, _GENERATED["shots"])}
        data = {"data": own, "read_files": 0} if files else {"data": generated, "read_shots": 0}
        layout = (
            {"layout": ["files"], "access": ["files"]} if files else {"layout": ["shot-major"], "access": ["shots"]}
        )
        timed, self._cells = metric == SECONDS, {}
        self._config = {
            "run": run_name,
            "repeats": _REPEATS if timed else 1,
            "libraries": {},
            "stores": {"s3": _STORE | ({"network": _NETWORK} if timed else {})},
            "studies": {
                STUDY: {
                    "question": f"Which {of.package} changed {metric}?",
                    **data,
                    "control_cells": 0,
                    "matrix": {"library": [], **_READS[of.package], **_LEVELS, **layout},
                }
            },
        }

    def name(self, release: str) -> str:
        """Return the name of the library with a release."""
        return f"{self.of.package}-{release}"

    def lock(self, release: str) -> Path:
        """Return where the lock of a release from wheels is kept."""
        return self.folder / "locks" / f"{self.name(release)}.lock"

    def look(self, first: str, release: str, last: str) -> Seen:
        """Measure a release, if it is not yet, and return what it is like.

        Raises:
            Unusable: it could not be measured.
        """
        if self.metric == SECONDS:
            self._measure([first, release, last])
            before, after = self._verdicts([first, release, last], release)
            words = f"{self.words(release)}, {ratio(before)} of that of {first}, {ratio(after)} of that of {last}"
            return Seen(likeness(before, after), words)
        self._measure([release])
        figure, ends = self.figure(release), (self.figure(first), self.figure(last))
        return Seen((FIRST, LAST)[ends.index(figure)] if figure in ends else NEITHER, self.words(release))

    def ends(self) -> Seen:
        """Measure both ends, and return what the last is like, and in words what they take.

        Raises:
            Problem: one cannot be measured.
        """
        first, last = names = (self.of.names[0], self.of.names[-1])
        try:
            self._measure(names)
            figures = [self.figure(name) for name in names]
        except Unusable as problem:
            raise Problem(f"{problem}; name another FROM or TO, or mend that") from None
        words = f"FROM, {first}: {self.words(first)}; TO, {last}: {self.words(last)}"
        if self.metric != SECONDS:
            return Seen(FIRST if len(set(figures)) == 1 else LAST, words)
        verdict = self._verdicts(names, last)[0]
        return Seen(of_ends(verdict), f"{words}, {ratio(verdict)} of that of FROM")

    def figure(self, release: str) -> float:
        """Return the requests or bytes of a release that was measured, or the median of its seconds.

        Raises:
            Unusable: it could not be measured.
        """
        of_release = [record for _, record in sorted(self._records(release).items())]
        usable = [record for record in of_release if not records.faults(record)]
        if not usable:
            faults = records.faults(of_release[0]) if of_release else ["it has no record"]
            raise Unusable(f"{self.name(release)} cannot be measured: {'; '.join(faults)}")
        if self.metric == SECONDS:
            return statistics.median(record["seconds"]["total"] for record in usable)
        key = "count" if self.metric == REQUESTS else "bytes_offered"
        return sum(method[key] or 0 for method in usable[0]["requests"].values())

    def number(self, release: str) -> str:
        """Return the figure of a release in words, without its unit."""
        return f"{self.figure(release):{'.3g' if self.metric == SECONDS else ','}}"

    def words(self, release: str) -> str:
        """Return the figure of a release with its unit."""
        return f"{self.number(release)} {self.metric}"

    def compare(self, *baselines: str) -> None:
        """Write the configuration, in which releases are compared with those."""
        compared = [{"factor": "library", "baseline": self.name(release)} for release in baselines]
        self._config["studies"][STUDY]["compare"] = compared
        write_text(self.file, yaml.safe_dump(self._config, sort_keys=False, allow_unicode=True))
        cells = matrix.expand(configuration.load(self.file), STUDY)[0]
        self._cells = {cell.levels["library"]: cell.name for cell in cells}

    def differences(self, before: str, after: str) -> list[str]:
        """Return what else differs between the libraries with two releases, by their locks and builds."""
        both = [self._environment(name)["promised"] for name in (before, after)]
        names = sorted({*both[0], *both[1]} - {self.of.package})
        texts = [(name, *(promised.get(name, "none") for promised in both)) for name in names]
        return [f"{name} {old} → {new}" for name, old, new in texts if old != new]

    def _records(self, release: str) -> dict[int, dict]:
        """Return the records of a release by block."""
        of_cell = records.repeats(self.records / self._cells[self.name(release)])
        return {block: read_json(path) for block, path in of_cell}

    def _environment(self, release: str) -> dict:
        """Return the artefact of the library with a release, nothing where it was not made."""
        path = self.folder / "environments" / f"{self.name(release)}.json"
        return read_json(path) if path.exists() else {}

    def _verdicts(self, names: Sequence[str], release: str) -> list[dict]:
        """Return the verdicts on a release against the first and the last of those that were measured with it."""
        made = verdicts(self.folder / STUDY, self.run, STUDY, [*map(self.name, names)])
        return [made[pair] for end in (names[0], names[-1]) if (pair := (self.name(end), self.name(release))) in made]

    def _measure(self, names: Sequence[str]) -> None:
        """Have the workflow measure releases that were not yet, or all of them in as many blocks as it takes.

        Raises:
            Unusable: one cannot be had or built.
            Problem: the workflow stopped.
        """
        libraries = self._config["libraries"]
        for name in names:
            if self.name(name) not in libraries:
                libraries[self.name(name)] = self.of.library(name, self.lock(name))
        self._config["studies"][STUDY]["matrix"]["library"] = list(libraries)
        timed = self.metric == SECONDS
        self.compare(*((names[0], names[-1]) if timed else self.of.names[:1]))
        blocks = [set(self._records(name)) for name in names]
        if timed:
            due = names if len(set.intersection(*blocks)) < _REPEATS else []
        else:
            due = [name for name, of_name in zip(names, blocks, strict=True) if not of_name]
        stopped = self._call(due) if due else ""
        for name in due:
            environment = self._environment(name)
            if environment.get("status") == "failed":
                raise Unusable(f"{self.name(name)} cannot be built: {'; '.join(environment['reasons'])}")
            if not self._records(name):
                raise Problem(f"{self.name(name)} was not measured: {stopped}")

    def _call(self, names: Sequence[str]) -> str:
        """Call the workflow for releases; returns why it stopped, if it did not measure them."""
        only = f"--only=library={','.join(map(self.name, names))}"
        command = [sys.executable, "-sE", "-m", "scripts.launch", f"--configfile={self.file}", only]
        # The launcher ends with an option that takes any number of values; the next one ends them.
        command += [*["--yes"] * self._yes, "--", "--nocolor", f"{self.folder}/{STUDY}/appended.json"]
        with open(self.log, "a+", encoding="utf-8", errors="replace") as words:
            begin = words.tell()
            with owned(command, words, dict(os.environ), _PATIENCE_S, stdin=subprocess.DEVNULL) as process:
                status = process.wait()
            words.seek(begin)
            problems = [line.partition("problem: ")[2].strip() for line in words if "problem: " in line]
        return problems[0] if problems else f"the workflow ended with status {status}; its words are in {self.log}"


def main(argv: list[str] | None = None) -> int:
    """Measure, and print which release changed the metric; return 0, or 3 where seconds are undecided."""
    parser = argparse.ArgumentParser(prog=f"python -sE -m {__spec__.name}", description=__doc__)
    add, packages = parser.add_argument, ", ".join(_READS)
    add("--library", default="", help=f"one of {packages}, or the folder of a clone of HDF5")
    add("--from", dest="first", default="", help="a release, or a branch, tag or commit of the clone")
    add("--to", dest="last", default="", help="a later one")
    add("--metric", default="", help=f"one of {', '.join(METRICS)} ({REQUESTS})")
    add("--clone", default="", help="the folder of a clone of HDF5")
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
    return report(bisection, partial(print, flush=True))


def report(bisection: Bisection, say: Say) -> int:
    """Measure, and say which release changed the metric; return the status."""
    of, metric, seen = bisection.of, bisection.metric, bisection.ends()
    first, last = of.names[0], of.names[-1]
    say(seen.words)
    if seen.like == FIRST:
        say(f"{of.package} {first} and {last} take the same {metric}; none between them was measured")
        return 0
    if seen.like == UNDECIDED:
        say(
            f"undecided: whether {of.package} {first} and {last} differ in {metric}; {_further(bisection, first, last)}"
        )
        return _UNDECIDED_STATUS
    change = search(of.names, bisection.look, say)
    before, after = change.before, change.after
    for one, other in change.others:
        say(f"there is another change between {one} and {other}: FROM={one} TO={other} finds it")
    if change.undecided:
        where = f"{of.package} {before} → {after}, since {change.undecided} differs from neither end"
        say(f"undecided: where {metric} changed within {where}; {_further(bisection, before, after)}")
        return _UNDECIDED_STATUS
    skipped = f" (or {', '.join(change.skipped)}, which could not be measured)" if change.skipped else ""
    beside = ", ".join(bisection.differences(before, after)) or "nothing"
    locks = [str(path) for path in map(bisection.lock, (before, after)) if path.exists()]
    say(
        f"{of.package} {before} → {after}{skipped} changed {metric} from {bisection.number(before)} to"
        f" {bisection.number(after)} (records in {bisection.records}); what else differs: {beside};"
        f" lock files: {', '.join(locks or ['envs/measure.lock of both'])}; {_further(bisection, before, after)}"
    )
    return 0


def _further(bisection: Bisection, before: str, after: str) -> str:
    """Return what to type to measure two releases again, with a page."""
    bisection.compare(before)
    only = f"library={bisection.name(before)},{bisection.name(after)}"
    return f"type make run CONFIG={bisection.file} RUN={bisection.run}-again ONLY={only} to measure both again"


def _bisection(given: argparse.Namespace) -> Bisection:
    """Return what the arguments ask for.

    Raises:
        Problem: they ask for what there is not; nothing has been measured.
    """
    package, clone = given.library, given.clone
    if os.sep in package:
        package, clone = releases.HDF5, package
    if package not in _READS:
        raise Problem(f"LIBRARY={package or '…'}: name one of {', '.join(_READS)}, or the folder of a clone of HDF5")
    if clone and package != releases.HDF5:
        raise Problem(f"CLONE={clone}: only commits of HDF5 are built from a clone; drop it, or write LIBRARY=hdf5")
    metric = given.metric or REQUESTS
    if metric not in METRICS:
        raise Problem(f"METRIC={metric}: name one of {', '.join(METRICS)}")
    if not given.first or not given.last:
        raise Problem("name both ends: make bisect LIBRARY=s3fs FROM=2024.5.0 TO=2025.2.0 METRIC=requests")
    try:
        files = shlex.split(given.files)
    except ValueError as error:
        raise Problem(f"FILES={given.files}: {str(error).lower()}; quote each name that has a space in it") from error
    if files and bucket_of(files):
        raise Problem(
            f"FILES={given.files}: requests are counted by the embedded server only; name files on this machine"
        )
    if files:
        describe_first({"files": files, "datasets": ["/**"]})
    of = releases.between(package, given.first, given.last, clone)
    name = given.run or f"bisect-{package}-{of.names[0]}-{of.names[-1]}"
    expect_folders(name)
    return Bisection(of, metric, name, files, given.yes)


if __name__ == "__main__":
    run(main)
