"""Calls into which faults are injected, the call after each, and what has to hold after both."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sbench.probe.program import build_command
from tests.inject import points
from tests.inject.finished import ROWS, STUDIES, copy_without, read_records
from tests.inject.points import Point

LIMIT_S = 400
# A reason that names a class of Python's, or none at all, tells a user nothing.
_POOR = re.compile(r"\b[A-Za-z]*(Error|Exception)\b: |no output|no reason given|Traceback")


@dataclass
class Call:
    """A call of the workflow in a copy of the finished run, the next one, and what was amiss.

    Attributes:
        part: what is missing of the run (`finished.MISSING`).
        study: the study that the call is limited to, or "".
        chosen: the points at which it is to fail.
        failed: those at which it failed.
        amiss: what did not hold, a line each.
        reasons: the lines with which it said why something failed.
        poor: those that tell a user nothing, which are to be made better.
    """

    part: str
    study: str
    chosen: list[Point]
    failed: list[Point] = field(default_factory=list)
    amiss: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    poor: list[str] = field(default_factory=list)

    def make(self, finished: Path, folder: Path, cache: Path, library: Path) -> None:
        """Make both calls in a folder of their own and note what is amiss."""
        folder.mkdir()
        clone, table, scratch = folder / "clone", folder / "table", folder / "tmp"
        copy_without(self.part, self.study, finished, clone)
        points.make_table(table)
        (folder / "points").write_text("".join(point.line for point in self.chosen), encoding="utf-8")
        scratch.mkdir()
        env = os.environ | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
        inject = {"LD_PRELOAD": library, "INJECT_TABLE": table, "INJECT_POINTS": folder / "points"}
        before, pages = read_records(clone), [name for name in STUDIES if _page(clone, name).exists()]
        status, words = self._run(clone, env | {name: str(value) for name, value in inject.items()}, folder / "first")
        self.failed = points.read_failed(table, self.chosen)
        after = read_records(clone)
        self.amiss += self._compare("records that were there", before, after)
        self.amiss += [*_check_pages(clone, pages), *_check_left(folder, scratch)]
        why = [line for line in words.splitlines() if re.search(r"(problem|failed|FAILED\b.*): \S", line)]
        self.reasons = list(dict.fromkeys([*why, *_failures(clone)]))
        self.amiss += ["a traceback was printed"] * ("Traceback" in words)
        self.amiss += [f"status {status} without a reason"] * bool(status and not why)
        self.poor += [line for line in self.reasons if _POOR.search(line)]
        done = {name: data for name, data in after.items() if json.loads(data)["status"] == "done"}
        status, words = self._run(clone, env, folder / "second")
        self.amiss += [f"the next call ended with status {status}"] * bool(status)
        self.amiss += ["the next call printed a traceback"] * ("Traceback" in words)
        last = read_records(clone)
        self.amiss += self._compare("records of the faulty call", done, last)
        self.amiss += [*_check_pages(clone, STUDIES), *_check_left(folder, scratch), *_check_blocks(last)]

    def _run(self, clone: Path, env: dict[str, str], log: Path) -> tuple[int, str]:
        study = [f"--study={self.study}"] if self.study else []
        # Pages take longer than all cells, and have calls of their own.
        targets = [f"results/smoke/{name}/facts.json" for name in ROWS] if self.part == "cells" else []
        command = build_command("sbench.cli", "run", "--cores=2", *study, "--", *targets)
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                command, cwd=clone, env=env, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
            )
            try:
                status = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                self.amiss.append(f"it did not end within {LIMIT_S} s")
                status = process.wait()
        return status, log.read_text(encoding="utf-8", errors="replace")

    def _compare(self, what: str, before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[str]:
        for name in before:
            if before[name] != after.get(name):
                yield f"{what}: {name} is {'another one' if name in after else 'gone'}"


def _failures(clone: Path) -> Iterator[str]:
    """Yield the reasons in the records and artefacts that failed."""
    for path in [*clone.glob("results/smoke/*/records/*/*.json"), *clone.glob("results/smoke/failed/**/*.json")]:
        artefact = json.loads(path.read_bytes())
        if "cause" not in artefact and artefact.get("reasons"):
            yield f"{path.relative_to(clone)}: {'; '.join(artefact['reasons'])}"


def _page(clone: Path, name: str) -> Path:
    return clone / "reports/smoke" / f"{name}.html"


def _check_pages(clone: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield those of some pages that are not whole."""
    for name in names:
        page = _page(clone, name)
        if not page.exists() or b"</html>" not in page.read_bytes()[-200:]:
            yield f"the page {page.name} is not whole"


def _check_left(folder: Path, scratch: Path) -> Iterator[str]:
    """Yield files and processes that were left behind."""
    yield from (f"left in TMPDIR: {path}" for path in scratch.iterdir())
    deadline = time.monotonic() + 10
    while (left := list(_processes(str(folder)))) and time.monotonic() < deadline:
        time.sleep(0.2)
    yield from (f"still running: {line}" for line in left)
    for pattern in (".*.part", ".*.scratch"):
        yield from (f"left in results: {path}" for path in folder.glob(f"clone/*/smoke/**/{pattern}"))


def _processes(text: str) -> Iterator[str]:
    """Yield the command lines of processes that mention a text, work in its folder or have it in their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            seen = line + os.readlink(entry / "cwd") + (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if line and text in seen:
            yield line


def _check_blocks(records: dict[str, bytes]) -> Iterator[str]:
    """Yield the cells that have less than two valid records."""
    valid: dict[str, int] = {}
    for name, data in records.items():
        cell = os.path.dirname(name)
        valid[cell] = valid.get(cell, 0) + bool(json.loads(data)["valid"])
    yield from (f"{count} valid records: {cell}" for cell, count in valid.items() if count < 2)
