"""A bisect as a run of the workflow: releases are its libraries, each measured when it is asked for, and a page."""

import contextlib
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from sbench import drivers
from sbench.build import release_range
from sbench.build.release_range import Reader, Releases, Unusable
from sbench.design import config as configuration
from sbench.design import matrix, records, validity
from sbench.drivers import Driver
from sbench.files.judged_releases import (
    FIRST,
    LAST,
    NEITHER,
    Change,
    Seen,
    find_doubt,
    likeness,
    of_ends,
    ratio,
    verdicts,
)
from sbench.probe.processes import owned
from sbench.probe.program import Problem, make_command, read_json, write_text
from sbench.runs import rebuild

STUDY = "shots"
REQUESTS, BYTES, SECONDS = METRICS = ("requests", "bytes", "seconds")
H5PY, _BY_DEFAULT = "h5py", "s3fs"
_LEVELS = {"store": ["s3"], "workers": [1], "page_buffer": ["unset"], "cache": ["any"]}
# A file of 8 MB, of which a read-ahead of some megabytes is a part; ROS3 keeps the first 16 MiB of a file.
_GENERATED = {"shots": 2, "signals": 16, "page_size": 4 * 2**20}
_SHOTS = {release_range.HDF5: 8}
_STORE = {"kind": "s3", "bucket": "bisect", "server": "embedded"}
_NETWORK = {"latency_ms": 10, "per_connection_mib_s": 100, "shared_mib_s": 200}
_REPEATS = 10
_PATIENCE_S = 20.0
# Behind the name of a release: its second build, in another folder.
_AGAIN = "-again"


def packages() -> list[str]:
    """Return what can be bisected: HDF5, h5py, and the distributions that drivers which read from S3 import."""
    names = {name for driver in drivers.declared().values() for name in _imported(driver)}
    return [release_range.HDF5, H5PY, *sorted(names - {H5PY})]


def reading(package: str) -> tuple[dict, Reader]:
    """Return the levels of what reads with a package, and what a library needs for that.

    For a package that several drivers import it is the one of its name, or that which needs the fewest others.
    """
    if package == release_range.HDF5:
        return {"driver": ["ros3"]}, Reader()
    able = {name: driver for name, driver in drivers.declared().items() if package in _imported(driver)}
    name = min(able, key=lambda name: (name != package, len(able[name].needs), name), default=_BY_DEFAULT)
    driver = drivers.of(name)
    modules = dict.fromkeys(module.partition(".")[0] for module in driver.libraries)
    # For h5py no cache is between what it asks for and the server.
    levels = {"driver": [name]} | ({"read_cache": ["none"]} if package == H5PY else {})
    return levels, Reader(driver.needs, tuple(modules))


def _imported(driver: Driver) -> set[str]:
    modules = {module.partition(".")[0].replace("_", "-") for module in driver.libraries}
    return modules | set(driver.needs) if driver.s3 else set()


class Bisection:
    """A run of the workflow whose libraries are the releases that are measured.

    Attributes:
        of, metric, run: the releases, what is looked for, and the run's name.
        folder, file, log, records: of the run: its results, configuration, words and records.
    """

    def __init__(self, of: Releases, metric: str, run_name: str, files: list[str], yes: bool = False) -> None:
        """Say what is measured; `files` are the user's own, none for one that is generated."""
        self.of, self.metric, self.run, self._yes = of, metric, run_name, yes
        self._measured, self._whole = False, 1.0
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
            # What passes a proxy is recorded, request by request.
            "stores": {"s3": _STORE | {"network": _NETWORK if timed else {}}},
            "studies": {
                STUDY: {
                    "question": f"Which {of.package} changed {metric}?",
                    **data,
                    "control_cells": 0,
                    "matrix": {"library": [], **reading(of.package)[0], **_LEVELS, **layout},
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
            raise Problem(f"{problem}; name another release, or mend that") from None
        words = f"the first, {first}: {self.words(first)}; the last, {last}: {self.words(last)}"
        if self.metric != SECONDS:
            return Seen(FIRST if len(set(figures)) == 1 else LAST, words)
        verdict = self._verdicts(names, last)[0]
        self._whole = verdict["ratio"]
        return Seen(of_ends(verdict), f"{words}, {ratio(verdict)} of that of the first")

    def doubt(self, before: str, after: str) -> str:
        """Build two releases again in other folders, measure all four in turn, and return `find_doubt` of them."""
        names = [before, after, f"{after}{_AGAIN}", f"{before}{_AGAIN}"]
        try:
            self._measure(names)
        except Unusable as problem:
            return str(problem)
        rows = [row for later in names[1:3] for row in self._verdicts(names, later)]
        return find_doubt([*rows[::2], *rows[1::2]], self._whole)

    def figure(self, release: str) -> float:
        """Return the requests or bytes of a release that was measured, or the median of its seconds.

        Raises:
            Unusable: it could not be measured.
        """
        of_release = [record for _, record in sorted(self._records(release).items())]
        usable = [record for record in of_release if not validity.list_faults(record)]
        if not usable:
            faults = validity.list_faults(of_release[0]) if of_release else ["it has no record"]
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
        """Write the configuration, in which the times of releases are compared with those of some, if times count."""
        named = baselines if self.metric == SECONDS else ()
        compared = [{"factor": "library", "baseline": self.name(release)} for release in named]
        self._config["studies"][STUDY]["compare"] = compared
        write_text(self.file, yaml.safe_dump(self._config, sort_keys=False, allow_unicode=True))
        cells = matrix.expand(configuration.load(self.file), STUDY)[0]
        self._cells = {cell.levels["library"]: cell.name for cell in cells}

    def differences(self, before: str, after: str) -> list[list[str]]:
        """Return what else differs between the libraries with two releases, by their locks and builds.

        Each is a name, and the versions before and after.
        """
        both = [self._environment(name)["promised"] for name in (before, after)]
        names = sorted({*both[0], *both[1]} - {self.of.package})
        texts = [[name, *(promised.get(name, "none") for promised in both)] for name in names]
        return [text for text in texts if text[1] != text[2]]

    def publish(self, command: str, outcome: str, change: Change) -> Path:
        """Make the page of the run, whose configuration then has what came of it, and return the first page.

        A page that has the same is not made again.
        """
        measured = {release: self.name(release) for release in self.of.names if self._usable(release)}
        section = {"package": self.of.package, "metric": self.metric, "command": command}
        section |= {"releases": self.of.names, "libraries": measured, "outcome": outcome}
        section |= {"before": change.before, "after": change.after, "skipped": change.skipped}
        section |= {"unconfirmed": change.unconfirmed}
        section |= {"others": list(map(list, change.others)), "differs": self.differences(change.before, change.after)}
        index, config = Path("reports", self.run, "index.html"), self._write(section, change.before)
        if self._measured or not index.exists() or self._published() != section:
            rebuild.make_plan(config, STUDY, self.folder)
            rebuild.make_tables(config, STUDY, self.folder)
            page = rebuild.make_page(STUDY, self.folder / STUDY, index.with_name(f"{STUDY}.html"))
            rebuild.make_index([page], index.parent)
        return index

    def _write(self, section: dict, baseline: str) -> dict:
        """Write the configuration with what came of it, and return what its study depends on."""
        self._config["studies"][STUDY]["bisect"] = section
        self.compare(baseline)
        return configuration.of_study(configuration.load(self.file), STUDY)

    def _published(self) -> dict:
        """Return what the page that is there says came of it, nothing where there is none."""
        with contextlib.suppress(Problem):
            return read_json(self.folder / STUDY / "facts.json")["settings"].get("bisect", {})
        return {}

    def _usable(self, release: str) -> bool:
        if self.name(release) not in self._config["libraries"]:
            return False
        return not all(map(validity.list_faults, self._records(release).values()))

    def _records(self, release: str) -> dict[int, dict]:
        """Return the records of a release by block; a cell that was skipped for a failed build has measured nothing."""
        of_cell = records.repeats(self.records / self._cells[self.name(release)])
        return {block: record for block, path in of_cell if "cause" not in (record := read_json(path))}

    def _environment(self, release: str) -> dict:
        """Return the artefact of the library with a release, nothing where it was not made."""
        path = self._artefact(release)
        return read_json(path) if path.exists() else {}

    def _artefact(self, release: str) -> Path:
        return self.folder / "environments" / f"{self.name(release)}.json"

    def _verdicts(self, names: Sequence[str], release: str) -> list[dict]:
        """Return the verdicts on a release against the first and the last of those that were measured with it."""
        made = verdicts(self.folder / STUDY, self.run, STUDY, [*map(self.name, names)])
        return [made[pair] for end in (names[0], names[-1]) if (pair := (self.name(end), self.name(release))) in made]

    def _measure(self, names: Sequence[str]) -> None:
        """Have the workflow measure releases that were not yet, or all in as many blocks as it takes; or Unusable."""
        libraries = self._config["libraries"]
        for name in names:
            if self.name(name) not in libraries:
                libraries[self.name(name)] = self._library(name)
        self._config["studies"][STUDY]["matrix"]["library"] = list(libraries)
        timed = self.metric == SECONDS
        self.compare(*((names[0], names[-1]) if timed else self.of.names[:1]))
        blocks = [set(self._records(name)) for name in names]
        if timed:
            due = names if len(set.intersection(*blocks)) < _REPEATS else []
        else:
            due = [name for name, of_name in zip(names, blocks, strict=True) if not of_name]
        for name in due:
            # What failed before is tried again, and must not be taken for what comes of it.
            if self._environment(name).get("status") == "failed":
                self._artefact(name).unlink()
        stopped = self._call(due) if due else ""
        self._measured |= bool(due)
        for name in due:
            environment = self._environment(name)
            if environment.get("status") == "failed":
                raise Unusable(f"{self.name(name)} cannot be built: {'; '.join(environment['reasons'])}")
            if not self._records(name):
                raise Problem(f"{self.name(name)} was not measured: {stopped}")

    def _library(self, name: str) -> dict:
        """Return the entry of the configuration for a release, or for its second build."""
        release = name.removesuffix(_AGAIN)
        return self.of.library(release, self.lock(release)) | ({} if name == release else {"copy": "again"})

    def _call(self, names: Sequence[str]) -> str:
        """Call the workflow for releases; returns why it stopped, if it did not measure them."""
        only = f"library={','.join(map(self.name, names))}"
        command = make_command("sbench.cli", "run", self.file, "--only", only)
        command += [*["--yes"] * self._yes, "--", "--nocolor", f"{self.folder}/{STUDY}/appended.json"]
        with open(self.log, "a+", encoding="utf-8", errors="replace") as words:
            begin = words.tell()
            with owned(command, words, dict(os.environ), _PATIENCE_S, stdin=subprocess.DEVNULL) as process:
                status = process.wait()
            words.seek(begin)
            problems = [line.partition("problem: ")[2].strip() for line in words if "problem: " in line]
        return problems[0] if problems else f"the workflow ended with status {status}; its words are in {self.log}"
