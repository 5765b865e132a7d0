"""The size of the project itself, and how long its tests took: what to look at before it grows."""

import datetime
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import yaml

from scripts.benchmarks.common import TREE, Row, Say, copy_tree, snakemake, used
from scripts.frame import study as studies

# What `make test` leaves behind.
TIMES = Path(".pytest_cache/tests.xml")
_FIRST_PAGE = Path("tests/__snapshots__/test_pages/test_index_of_all_studies_is_as_it_was.md")
_CODE = (".py", ".sh", ".smk", ".ipynb", ".js", ".css", ".j2")
_LINES, _REPORT_LINES, _WORDS, _FILES, _MINUTES = 20_000, 350, 500, 25, 15
# Appended to the package that every process of a run imports, in a copy: it notes the files whose functions are called.
# What a module calls while it is imported says nothing about the cell.
_WITNESS = """
import sys, threading

def _witness(frame, event, _, seen=set(), root={root!r}, notes={notes!r}):
    file = frame.f_code.co_filename
    if file.startswith(root) and file not in seen and frame.f_back and frame.f_back.f_code.co_name != "<module>":
        seen.add(file)
        with open(notes, "a") as out:
            out.write(file + "\\n")

threading.settrace(_witness)
sys.settrace(_witness)
"""
_CELL = {
    "run": "bench",
    "repeats": 1,
    "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}},
    "stores": {"disk": {"kind": "posix"}},
    "studies": {
        "shots": {
            "data": {"shots": 2, "signals": 4},
            "control_cells": 0,
            "matrix": {
                **{"library": ["wheel"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
                **{"access": ["shots"], "workers": [1], "page_buffer": ["unset"], "cache": ["any"]},
            },
        }
    },
}


def rows(folder: Path, say: Say, until: str = "all") -> Iterator[Row]:
    """Count lines, words and files, and sum up the times of the latest `make test`; a cell goes as far as `until`."""
    yield from lines()
    words = len(re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", _FIRST_PAGE.read_text(encoding="utf-8")).split())
    yield Row("words of the first page of the synthetic runs", f"{words}", "", "", f"≤ {_WORDS}", words <= _WORDS)
    say("one cell on its way")
    files = _files(folder, until)
    way = ", ".join(f"{name} {count}" for name, count in Counter(map(_folder, files)).most_common())
    what = "files on the way of one cell of shots, its library and data in place"
    yield Row(what, f"{len(files)}", way, "", f"≤ {_FILES}", len(files) <= _FILES)
    yield from times()


def lines() -> Iterator[Row]:
    """Count the lines of programs, rules, notebooks and templates by folder, and of each study and its report."""
    paths = [path for name in TREE for path in (Path(name), *Path(name).rglob("*")) if path.is_file()]
    counts = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in paths
        if path.suffix in _CODE or path.name == "Snakefile"
    }
    folders: Counter = Counter()
    for path, count in counts.items():
        folders[_folder(path)] += count
    total = sum(counts.values())
    by_folder = ", ".join(f"{name} {count:,}" for name, count in folders.most_common())
    yield Row("lines outside tests", f"{total:,}", by_folder, "", f"≤ {_LINES:,}", total <= _LINES)
    for name in studies.names():
        home = Path("scripts/studies", name)
        own = sum(count for path, count in counts.items() if path.is_relative_to(home))
        report = sum(count for path, count in counts.items() if path.is_relative_to(home / "report"))
        blocks = type(studies.of(name)).tables is studies.Study.tables
        limit = (f"report ≤ {_REPORT_LINES}", report <= _REPORT_LINES) if blocks else ("", None)
        yield Row(f"  of {name}", f"{own:,}", f"its report: {report:,}", "", *limit)


def _folder(path: Path) -> str:
    """Return the folder that a file is counted in: of `scripts` and its studies the ones inside."""
    parts = path.parts[:-1]
    depth = 3 if parts[:2] == ("scripts", "studies") else 2 if parts[:1] == ("scripts",) else 1
    return "/".join(parts[:depth]) or "."


def _files(folder: Path, until: str) -> list[Path]:
    """Return the files with a function that runs for a cell of `shots`, whose library and data are in place."""
    tree, notes = copy_tree(folder), folder / "files"
    package = tree / "scripts/__init__.py"
    witness = _WITNESS.format(root=f"{tree}/", notes=str(notes))
    package.write_text(package.read_text(encoding="utf-8") + witness, encoding="utf-8")
    config = folder / "cell.yaml"
    config.write_text(yaml.safe_dump(_CELL), encoding="utf-8")
    used(snakemake(config, "--until", "ready"), tree)
    notes.unlink()
    used(snakemake(config, "--until", until), tree)
    return sorted(Path(line).relative_to(tree) for line in set(notes.read_text(encoding="utf-8").splitlines()))


def times() -> Iterator[Row]:
    """Sum up how long tests took by file, the longest first."""
    if not TIMES.exists():
        yield Row("time of `make test`", "not known", "make test leaves it behind")
        return
    seconds: Counter = Counter()
    suite = next(ElementTree.parse(TIMES).iter("testsuite"))
    for case in suite.iter("testcase"):
        seconds[re.search(r"test_\w+", case.get("classname", "")).group()] += float(case.get("time", 0))
    minutes = float(suite.get("time", 0)) / 60
    when = datetime.datetime.fromisoformat(suite.get("timestamp", "")).strftime("%Y-%m-%d %H:%M")
    limit = f"≤ {_MINUTES} min on 2 idle cores"
    yield Row("time of `make test`", f"{minutes:.1f} min", f"at {when}", "", limit, minutes <= _MINUTES)
    for name, taken in seconds.most_common():
        yield Row(f"  {name}", f"{taken:.0f} s")
