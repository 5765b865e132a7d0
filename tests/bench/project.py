"""The size of the project itself, and how long its tests took: what to look at before it grows."""

import datetime
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from sbench.design import study as studies
from tests.bench.common import TREE, Row, Say, configuration, copy_tree, snakemake, used

# What `make test` leaves behind.
TIMES = Path(".pytest_cache/tests.xml")
_FIRST_PAGE = Path("tests/__snapshots__/test_pages/test_index_of_all_studies_is_as_it_was.md")
_CODE = (".py", ".sh", ".smk", ".ipynb", ".js", ".css", ".j2")
_LINES, _REPORT_LINES, _FILES = 20_000, 350, 25
# Three studies may take 500 words and 15 minutes of tests, each further one a third of the words and 3 minutes.
_WORDS, _MINUTES = 500 * len(studies.names()) // 3, 15 + 3 * (len(studies.names()) - 3)
# Appended to the package that every process of a run imports, in a copy: it notes the files whose functions are called.
# Only functions called by functions count (CO_OPTIMIZED): what happens while a module is imported tells nothing.
_WITNESS = """
import sys, threading

def _witness(frame, event, _, seen=set(), root={root!r}, notes={notes!r}):
    file, caller = frame.f_code.co_filename, frame.f_back
    if file.startswith(root) and file not in seen and caller and frame.f_code.co_flags & caller.f_code.co_flags & 1:
        seen.add(file)
        with open(notes, "a") as out:
            out.write(file[len(root):] + "\\t" + " ".join(sys.orig_argv).replace("\\n", " ") + "\\n")

threading.settrace(_witness)
sys.settrace(_witness)
"""
_LIBRARIES, _STORES = {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}}, {"disk": {"kind": "posix"}}
_CELL = {
    "data": {"shots": 2, "signals": 4},
    "matrix": {
        **{"library": ["wheel"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
        **{"access": ["shots"], "workers": [1], "page_buffer": ["unset", "0"], "cache": ["any"]},
    },
    "compare": [{"factor": "page_buffer", "baseline": "0"}],
}
_FINDINGS = """
import sys
sys.path[0] = "scripts"
from sbench.pages import pages
from sbench.studies.shots.report import results
def sentences():
    assert any(pages.of_run(results.load("results/bench/shots", "results/bench/shots/facts.json")))
sentences()
"""
# What a cell passes through, and a word of the commands that do it: the step, the measuring program and its workers …
_WAY = {
    "from the cell to its record": ("scripts/step.py measure", "sbench.studies.shots.measure", "multiprocessing"),
    "from the record to tables": ("scripts/gather.py",),
    "from tables to sentences": ("pages.of_run",),
}


def rows(folder: Path, say: Say) -> Iterator[Row]:
    """Count lines, words and files of the project, and sum up the time of its tests by file."""
    yield from lines()
    words = len(re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", _FIRST_PAGE.read_text(encoding="utf-8")).split())
    yield Row("words of the first page of the synthetic runs", f"{words}", "", "", f"≤ {_WORDS}", words <= _WORDS)
    say("one cell on its way")
    yield from _way(folder)
    yield from times()


def lines() -> Iterator[Row]:
    """Count the lines of programs, rules, notebooks and templates by folder, and of each study and its report."""
    paths = [path for name in TREE for path in (Path(name), *Path(name).rglob("*")) if path.is_file()]
    counts = {path: _lines(path) for path in paths if path.suffix in _CODE or path.name == "Snakefile"}
    folders: Counter = Counter()
    for path, count in counts.items():
        folders[_folder(path)] += count
    total = sum(counts.values())
    by_folder = ", ".join(f"{name} {count:,}" for name, count in folders.most_common())
    yield Row("lines outside tests", f"{total:,}", by_folder, "", f"≤ {_LINES:,}", total <= _LINES)
    for name in studies.names():
        home = Path("scripts/sbench/studies", name)
        report = sum(count for path, count in counts.items() if path.is_relative_to(home / "report"))
        blocks = type(studies.of(name)).tables is studies.Study.tables
        limit = (f"report ≤ {_REPORT_LINES}", report <= _REPORT_LINES) if blocks else ("", None)
        files = Counter({str(path.relative_to(home)): n for path, n in counts.items() if path.is_relative_to(home)})
        largest = ", ".join(f"{file} {count:,}" for file, count in files.most_common())
        yield Row(f"  of {name}", f"{files.total():,}", f"its report: {report:,} ({largest})", "", *limit)


def _lines(path: Path) -> int:
    """Return the lines of a file; of a notebook those of its cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return len(text.splitlines())


def _folder(path: Path) -> str:
    """Return the folder that a file is counted in: of `scripts` and its studies the ones inside."""
    parts = path.parts[:-1]
    depth = 3 if parts[:2] == ("scripts", "studies") else 2 if parts[:1] == ("scripts",) else 1
    return "/".join(parts[:depth]) or "."


def _way(folder: Path) -> Iterator[Row]:
    """Count the files that one cell of `shots` passes through on its way to a sentence: all, and part by part."""
    # A file counts if one of its functions is called, other than by a module that is imported, in a process that
    # measures the cell, gathers its record, or makes findings; what such a process does for every cell counts, too.
    tree, notes = copy_tree(folder), folder / "files"
    config = configuration(folder / "cell.json", _LIBRARIES, _STORES, **_CELL)
    package = tree / "scripts/sbench/__init__.py"
    used(snakemake(config, "--until", "ready"), tree)
    witness = _WITNESS.format(root=f"{tree}/", notes=str(notes))
    package.write_text(package.read_text(encoding="utf-8") + witness, encoding="utf-8")
    used(snakemake(config, "--", "results/bench/shots/facts.json"), tree)
    used([sys.executable, "-sE", "-c", _FINDINGS], tree)
    called = [line.split("\t") for line in notes.read_text(encoding="utf-8").splitlines()]
    parts = {
        part: sorted({Path(file) for file, command in called if any(word in command for word in words)})
        for part, words in _WAY.items()
    }
    files = sorted(set().union(*parts.values()))
    by_folder = ", ".join(f"{name} {count}" for name, count in Counter(map(_folder, files)).most_common())
    what = "files on the way of one cell of shots to a sentence"
    yield Row(what, f"{len(files)}", by_folder, "", f"≤ {_FILES}", len(files) <= _FILES)
    for part, of_part in parts.items():
        names = " ".join(str(file.relative_to("scripts").with_suffix("")) for file in of_part)
        yield Row(f"  {part}", f"{len(of_part)}", names)


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
