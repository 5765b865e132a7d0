"""Measure the releases of a bisection with the workflow, each as a library under test of the same run."""

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
    LOOKS,
    NEITHER,
    Change,
    Seen,
    find_doubt,
    format_ratio,
    judge_last,
    judge_libraries,
    judge_release,
    needs_more_blocks,
)
from sbench.probe.processes import run_process
from sbench.probe.program import Problem, build_command, read_json, write_text
from sbench.runs import rebuild

STUDY = "shots"
REQUESTS, BYTES, SECONDS = METRICS = ("requests", "bytes", "seconds")
H5PY, _BY_DEFAULT = "h5py", "s3fs"
_LEVELS = {"store": ["s3"], "workers": [1], "page_buffer": ["unset"], "cache": ["any"]}
# The generated file has 8 MB, so it is larger than the usual read-ahead. For ROS3, which caches the first 16 MiB, it
# has more shots.
_GENERATED = {"shots": 2, "signals": 16, "page_size": 4 * 2**20}
_SHOTS = {release_range.HDF5: 8}
_STORE = {"kind": "s3", "bucket": "bisect", "server": "embedded"}
_NETWORK = {"latency_ms": 10, "per_connection_mib_s": 100, "shared_mib_s": 200}
_PATIENCE_S = 20.0
# Suffix that identifies the second build of a release, in a different folder.
_AGAIN = "-again"


def list_packages() -> list[str]:
    """List the packages that can be bisected: HDF5, h5py, and the distributions that S3 drivers import."""
    names = {name for driver in drivers.load_drivers().values() for name in _list_imports(driver)}
    return [release_range.HDF5, H5PY, *sorted(names - {H5PY})]


def choose_reader(package: str) -> tuple[dict, Reader]:
    """Choose the driver whose reads exercise a package.

    If more than one driver imports the package, prefer the driver with the same name, then the driver with the fewest
    requirements.

    Returns:
        The factor levels of the driver, and the requirements of the library to build.
    """
    if package == release_range.HDF5:
        return {"driver": ["ros3"]}, Reader()
    able = {name: driver for name, driver in drivers.load_drivers().items() if package in _list_imports(driver)}
    name = min(able, key=lambda name: (name != package, len(able[name].needs), name), default=_BY_DEFAULT)
    driver = drivers.get_driver(name)
    modules = dict.fromkeys(module.partition(".")[0] for module in driver.libraries)
    # h5py's reads must reach the server, so no read cache is used.
    levels = {"driver": [name]} | ({"read_cache": ["none"]} if package == H5PY else {})
    return levels, Reader(driver.needs, tuple(modules))


def _list_imports(driver: Driver) -> set[str]:
    modules = {module.partition(".")[0].replace("_", "-") for module in driver.libraries}
    return modules | set(driver.needs) if driver.s3 else set()


class Bisection:
    """A run of the workflow whose libraries are the measured releases.

    Attributes:
        of: the releases.
        metric: one of `METRICS`.
        run: name of the run.
        folder: results folder of the run.
        file: path of the run's configuration.
        log: path of the log with the workflow's output.
        records: folder of the records.
    """

    def __init__(self, of: Releases, metric: str, run_name: str, files: list[str], yes: bool = False) -> None:
        """Set up the configuration of the run.

        Args:
            of: the releases.
            metric: one of `METRICS`.
            run_name: name of the run.
            files: HDF5 files of the user; if empty, the run generates a file.
            yes: whether to skip the confirmation of expensive runs.
        """
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
            "repeats": LOOKS[0] if timed else 1,
            "libraries": {},
            # Emulate a network even without limits, because its proxy records each request.
            "stores": {"s3": _STORE | {"network": _NETWORK if timed else {}}},
            "studies": {
                STUDY: {
                    "question": f"Which {of.package} changed {metric}?",
                    **data,
                    "control_cells": 0,
                    "matrix": {"library": [], **choose_reader(of.package)[0], **_LEVELS, **layout},
                }
            },
        }

    def get_library_name(self, release: str) -> str:
        """Return the name of a release's library in the configuration."""
        return f"{self.of.package}-{release}"

    def get_lock_path(self, release: str) -> Path:
        """Return the path of the lock file of a release that is installed from wheels."""
        return self.folder / "locks" / f"{self.get_library_name(release)}.lock"

    def measure_release(self, first: str, release: str, last: str) -> Seen:
        """Measure a release, if necessary, and compare it with the first and the last release.

        Raises:
            Unusable: the release could not be measured.
        """
        if self.metric == SECONDS:
            self._measure_releases([first, release, last], [release])
            before, after = self._list_verdicts([first, release, last], release)
            ratios = f"{format_ratio(before)} against {first}, {format_ratio(after)} against {last}"
            return Seen(judge_release(before, after), f"{self.describe_figure(release)}, {ratios}")
        self._measure_releases([release])
        figure, ends = self.read_figure(release), (self.read_figure(first), self.read_figure(last))
        return Seen((FIRST, LAST)[ends.index(figure)] if figure in ends else NEITHER, self.describe_figure(release))

    def measure_ends(self) -> Seen:
        """Measure the first and the last release, if necessary, and compare the last with the first.

        Raises:
            Problem: one of them cannot be measured.
        """
        first, last = names = (self.of.names[0], self.of.names[-1])
        try:
            self._measure_releases(names, [last])
            figures = [self.read_figure(name) for name in names]
        except Unusable as problem:
            raise Problem(f"{problem}; fix the cause, or name another release") from None
        words = f"first {first}: {self.describe_figure(first)}; last {last}: {self.describe_figure(last)}"
        if self.metric != SECONDS:
            return Seen(FIRST if len(set(figures)) == 1 else LAST, words)
        verdict = self._list_verdicts(names, last)[0]
        self._whole = verdict["ratio"]
        return Seen(judge_last(verdict), f"{words}, {format_ratio(verdict)} against the first")

    def check_rebuilt(self, before: str, after: str) -> str:
        """Build two releases again in different folders, measure all four builds in alternation, and compare them.

        Returns:
            The reason to doubt that the releases differ (`find_doubt`); an empty string if there is none.
        """
        names = [before, after, f"{after}{_AGAIN}", f"{before}{_AGAIN}"]
        try:
            self._measure_releases(names, names[1:3])
        except Unusable as problem:
            return str(problem)
        rows = [row for later in names[1:3] for row in self._list_verdicts(names, later)]
        return find_doubt([*rows[::2], *rows[1::2]], self._whole)

    def read_figure(self, release: str) -> float:
        """Return the metric of a measured release: the number of requests or bytes, or the median time in seconds.

        Raises:
            Unusable: the release lacks a valid record.
        """
        of_release = [record for _, record in sorted(self._read_records(release).items())]
        usable = [record for record in of_release if not validity.list_faults(record)]
        if not usable:
            faults = validity.list_faults(of_release[0]) if of_release else ["it lacks a record"]
            raise Unusable(f"{self.get_library_name(release)} cannot be measured: {'; '.join(faults)}")
        if self.metric == SECONDS:
            return statistics.median(record["seconds"]["total"] for record in usable)
        key = "count" if self.metric == REQUESTS else "bytes_offered"
        return sum(method[key] or 0 for method in usable[0]["requests"].values())

    def format_figure(self, release: str) -> str:
        """Format the metric of a release without its unit."""
        return f"{self.read_figure(release):{'.3g' if self.metric == SECONDS else ','}}"

    def describe_figure(self, release: str) -> str:
        """Format the metric of a release with its unit."""
        return f"{self.format_figure(release)} {self.metric}"

    def write_config(self, *baselines: str) -> None:
        """Write the configuration; if the metric is time, declare comparisons of all releases with `baselines`."""
        named = baselines if self.metric == SECONDS else ()
        compared = [{"factor": "library", "baseline": self.get_library_name(release)} for release in named]
        self._config["studies"][STUDY]["compare"] = compared
        write_text(self.file, yaml.safe_dump(self._config, sort_keys=False, allow_unicode=True))
        cells = matrix.expand_matrix(configuration.load_config(self.file), STUDY)[0]
        self._cells = {cell.levels["library"]: cell.name for cell in cells}

    def list_differences(self, before: str, after: str) -> list[list[str]]:
        """List the other packages whose versions differ between two releases' libraries.

        Returns:
            [name, version before, version after] per package.
        """
        both = [self._read_environment(name)["promised"] for name in (before, after)]
        names = sorted({*both[0], *both[1]} - {self.of.package})
        texts = [[name, *(promised.get(name, "none") for promised in both)] for name in names]
        return [text for text in texts if text[1] != text[2]]

    def make_pages(self, command: str, outcome: str, change: Change) -> Path:
        """Write the outcome to the configuration, and generate the pages of the run.

        Existing pages are not regenerated if nothing was measured and the outcome is the same.

        Args:
            command: command to repeat the bisection.
            outcome: "changed", "same" or "undecided".
            change: the result of the search.

        Returns:
            Path of the index page.
        """
        measured = {release: self.get_library_name(release) for release in self.of.names if self._is_usable(release)}
        section = {"package": self.of.package, "metric": self.metric, "command": command}
        section |= {"releases": self.of.names, "libraries": measured, "outcome": outcome}
        section |= {"before": change.before, "after": change.after, "skipped": change.skipped}
        section |= {"unconfirmed": change.unconfirmed}
        section |= {
            "others": list(map(list, change.others)),
            "differs": self.list_differences(change.before, change.after),
        }
        index, config = Path("reports", self.run, "index.html"), self._write_outcome(section, change.before)
        if self._measured or not index.exists() or self._read_page_section() != section:
            rebuild.make_plan(config, STUDY, self.folder)
            rebuild.make_tables(config, STUDY, self.folder)
            page = rebuild.make_page(STUDY, self.folder / STUDY, index.with_name(f"{STUDY}.html"))
            rebuild.make_index([page], index.parent)
        return index

    def _write_outcome(self, section: dict, baseline: str) -> dict:
        """Write the outcome to the configuration file, and return the study's part of the configuration."""
        self._config["studies"][STUDY]["bisect"] = section
        if self.metric == SECONDS:
            # For the command that measures the releases again.
            self._config |= {"repeats": LOOKS[0], "most_repeats": LOOKS[-1]}
        self.write_config(baseline)
        return configuration.select_study_config(configuration.load_config(self.file), STUDY)

    def _read_page_section(self) -> dict:
        """Return the outcome shown on an earlier page, from its facts.json; {} if there is none."""
        with contextlib.suppress(Problem):
            return read_json(self.folder / STUDY / "facts.json")["settings"].get("bisect", {})
        return {}

    def _is_usable(self, release: str) -> bool:
        return self.get_library_name(release) in self._config["libraries"] and bool(self._list_usable_blocks(release))

    def _list_usable_blocks(self, release: str) -> set[int]:
        """Return the blocks with a valid record of a release."""
        return {block for block, record in self._read_records(release).items() if not validity.list_faults(record)}

    def _read_records(self, release: str) -> dict[int, dict]:
        """Return the records of a release by block, excluding records of cells skipped because of a failed build."""
        of_cell = records.list_repeats(self.records / self._cells[self.get_library_name(release)])
        return {block: record for block, path in of_cell if "cause" not in (record := read_json(path))}

    def _read_environment(self, release: str) -> dict:
        """Return the JSON description of a release's built library; {} if it does not exist."""
        path = self._get_artefact_path(release)
        return read_json(path) if path.exists() else {}

    def _get_artefact_path(self, release: str) -> Path:
        return self.folder / "environments" / f"{self.get_library_name(release)}.json"

    def _list_verdicts(self, names: Sequence[str], release: str) -> list[dict]:
        """Return the verdicts that compare a release with the first and with the last of `names`."""
        made = judge_libraries(self.folder / STUDY, self.run, STUDY, [*map(self.get_library_name, names)])
        return [
            made[pair]
            for end in (names[0], names[-1])
            if (pair := (self.get_library_name(end), self.get_library_name(release))) in made
        ]

    def _measure_releases(self, names: Sequence[str], contenders: Sequence[str] = ()) -> None:
        """Measure releases that lack records.

        If the metric is time, measure all of them in blocks, until `contenders` have been compared with the first and
        the last of `names`, or the maximum number of blocks is reached.

        Raises:
            Unusable: a release cannot be built.
            Problem: a release was not measured for another reason.
        """
        libraries = self._config["libraries"]
        for name in names:
            if self.get_library_name(name) not in libraries:
                libraries[self.get_library_name(name)] = self._build_entry(name)
        self._config["studies"][STUDY]["matrix"]["library"] = list(libraries)
        if self.metric != SECONDS:
            self.write_config(*self.of.names[:1])
            self._run_workflow([name for name in names if not self._read_records(name)])
            return
        for repeats in LOOKS:
            self._config["repeats"] = repeats
            self.write_config(names[0], names[-1])
            usable = [self._list_usable_blocks(name) for name in names]
            if len(set.intersection(*usable)) < repeats:
                self._run_workflow(names)
            rows = [verdict for name in contenders for verdict in self._list_verdicts(names, name)]
            if not (needs_more_blocks(rows, self._whole) and all(map(self._is_usable, names))):
                return

    def _build_entry(self, name: str) -> dict:
        """Return the configuration entry of a release's library, or of its second build."""
        release = name.removesuffix(_AGAIN)
        return self.of.build_library_entry(release, self.get_lock_path(release)) | (
            {} if name == release else {"copy": "again"}
        )

    def _run_workflow(self, names: Sequence[str]) -> None:
        """Run the workflow for releases, if there are any.

        Raises:
            Unusable: a release cannot be built.
            Problem: a release was not measured for another reason; the message contains the first error message of the
                workflow, or its exit status if it printed none.
        """
        if not names:
            return
        for name in names:
            # Remove the result of an earlier failed build, which would be mistaken for the result of this attempt.
            if self._read_environment(name).get("status") == "failed":
                self._get_artefact_path(name).unlink()
        only = f"library={','.join(map(self.get_library_name, names))}"
        command = build_command("sbench.cli", "run", self.file, "--only", only)
        command += [*["--yes"] * self._yes, "--", "--nocolor", f"{self.folder}/{STUDY}/looks/1.json"]
        with open(self.log, "a+", encoding="utf-8", errors="replace") as words:
            begin = words.tell()
            with run_process(command, words, dict(os.environ), _PATIENCE_S, stdin=subprocess.DEVNULL) as process:
                status = process.wait()
            words.seek(begin)
            problems = [line.partition("problem: ")[2].strip() for line in words if "problem: " in line]
        stopped = problems[0] if problems else f"the workflow ended with status {status}; see {self.log}"
        self._measured = True
        for name in names:
            environment = self._read_environment(name)
            if environment.get("status") == "failed":
                raise Unusable(f"{self.get_library_name(name)} cannot be built: {'; '.join(environment['reasons'])}")
            if not self._read_records(name):
                raise Problem(f"{self.get_library_name(name)} was not measured: {stopped}")
