"""Run a script with releases of a package, or with other versions of its packages, and count its S3 requests."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from sbench.build import dated_packages
from sbench.build.dated_packages import Dated
from sbench.build.interpreters import find_python
from sbench.build.release_range import Releases, Unusable
from sbench.build.shell import get_base_python, get_clean_environment
from sbench.files import buckets, budget, count_page
from sbench.files.count import Count
from sbench.files.count import Query as CountQuery
from sbench.files.judged_releases import Say
from sbench.probe.processes import run_process
from sbench.probe.program import Problem, shorten_name

# A run may take this many times as long as the slowest one before, but at least so many seconds.
_SLOWER, _LEAST_LIMIT_S = 10, 60
_TRACEBACK = "Traceback (most recent call last)"


class Script(NamedTuple):
    """A script, and what it needs.

    Attributes:
        path: path of the Python script.
        cwd: its working directory.
        folders: the folder of each bucket, by name; None for an empty bucket.
        wanted: further requirements, such as "s3fs".
        python: release of Python, such as "3.13"; an empty string for this one.
    """

    path: Path
    cwd: str
    folders: Mapping[str, Path | None]
    wanted: Sequence[str]
    python: str = ""


class ScriptRuns:
    """The runs of a script.

    Attributes:
        of: the releases.
        packages: the packages with which each release is measured.
        counts: the requests of each run, by name.
        reasons: why releases could not be measured.
    """

    def __init__(self, script: Script, of: Releases, metric: str, scratch: Path, log: IO[str], say: Say) -> None:
        """Prepare the runs.

        Args:
            script: the script.
            of: the releases.
            metric: name of a limit in a budget.
            scratch: folder for the environment, which each run replaces.
            log: file for the output of the script.
            say: function that reports a line.
        """
        self.of, self._script, self._metric, self._log, self._say = of, script, metric, log, say
        self._environment, self._limit_s = scratch / "environment", None
        self._base = find_python(script.python)["path"] if script.python else get_base_python()
        self.packages: dict[str, Dated] = {}
        self.counts: dict[str, Count] = {}
        self.reasons: dict[str, str] = {}

    def measure_release(self, name: str) -> int:
        """Measure a release with the other packages of its date, and return its figure.

        Raises:
            Unusable: it cannot be installed, or the script fails.
        """
        try:
            wanted = self._script.wanted
            self.packages[name] = dated_packages.resolve_release(self.of.package, name, wanted, self._base)
            figure = self.measure_packages(name, self.packages[name])
        except Unusable as problem:
            self.reasons[name] = str(problem).removeprefix(f"{self.of.package} {name}: ").rstrip(".")
            # Without an end, there is no search.
            if name not in (self.of.names[0], self.of.names[-1]):
                self._say(f"{name}: skipped: {self.reasons[name]}")
            raise Unusable(self.reasons[name]) from None
        self._say(f"{name}: {figure:,} {self._metric}{' (yanked)' * (name in self.of.withdrawn)}")
        return figure

    def measure_packages(self, name: str, packages: Dated) -> int:
        """Measure an environment of exactly these packages, and return its figure.

        Raises:
            Unusable: a package cannot be installed, or the script fails.
        """
        what = f"{self.of.package} {name}"
        python = dated_packages.install_packages(what, packages, self._environment, self._base)
        dated_packages.expect_no_shadows(self._script.path, self._environment)
        self.counts[name] = self._run_script(name, python)
        return self.read_figure(name)

    def read_figure(self, name: str) -> int:
        """Return the metric of a run."""
        return budget.count_totals(self.counts[name].requests)[self._metric]

    def check_repeat(self, name: str) -> None:
        """Measure a release again.

        Raises:
            Problem: the figure is another one, or the script fails.
        """
        figure = self.read_figure(name)
        try:
            again = self.measure_packages(name, self.packages[name])
        except Unusable as problem:
            raise Problem(f"{self.of.package} {name}: second run: {problem}; correct the cause") from None
        if again != figure:
            raise Problem(
                f"with {self.of.package} {name}, the script made {figure:,} {self._metric}, and in a second run"
                f" {again:,}; change it so that its requests repeat exactly"
            )

    def write_page(self, name: str, folder: Path) -> Path:
        """Write the page with the requests of a run, and return its path."""
        page, script = folder / f"{name}.html", self._script
        query = CountQuery(script.folders, ["python", script.path.name], script.cwd, {})
        count_page.write_page(self.counts[name], query, 0, page)
        return page

    def _run_script(self, name: str, python: Path) -> Count:
        script, log = self._script, self._log
        print(f"## {name}", file=log, flush=True)
        begin = log.seek(0, os.SEEK_END)
        with buckets.serve_buckets(script.folders, {}, anonymous=True) as served:
            env = buckets.build_environment(get_clean_environment(), served.variables)
            env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
            command, began = [str(python), str(script.path)], time.monotonic()
            with run_process(command, log, env, cwd=script.cwd, stdin=subprocess.DEVNULL) as process:
                try:
                    status = process.wait(self._limit_s)
                except subprocess.TimeoutExpired:
                    raise Unusable(f"the script did not end within {self._limit_s:.0f} s") from None
            seconds, requests = time.monotonic() - began, served.read_requests()
        if status:
            log.seek(begin)
            raise Unusable(f"the script ended with status {status}: {shorten_name(find_reason(list(log)))}")
        self._limit_s = max(self._limit_s or _LEAST_LIMIT_S, _SLOWER * seconds)
        return Count(status, seconds, requests)


def find_reason(lines: Sequence[str]) -> str:
    """Return the part of a script's output that states why it failed: the last exception, or else the last line."""
    lines = [line.rstrip() for line in lines if line.strip()]
    begins = [place for place, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    after = lines[begins[-1] + 1 :] if begins else []
    # The message of an exception may have several lines.
    place = next((place for place, line in enumerate(after) if not line.startswith(" ")), len(after))
    return " ".join(line.strip() for line in after[place:] or lines[-1:] or ["it printed nothing"])
