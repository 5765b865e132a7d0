"""The size of the project, and the time of its tests."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from sbench.design import schema
from sbench.design import study as studies
from tests.bench.common import DISK, Row, Say, copy_tree, run_command, snakemake, write_configuration

TIMES = Path(".pytest_cache/tests.xml")  # written by `make test`
PACKAGE = Path("scripts/sbench")
ENGINE = ("probe", "drivers", "stores", "build", "design", "measure", "verdicts", "pages")
_CODE = (".py", ".sh", ".smk", ".go", "")  # the last one of the Snakefile
# Appended to the package that every process of a run imports, in a copy: it notes the files whose functions are called
# by functions (CO_OPTIMIZED), not while a module is imported.
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
_FINDINGS = """
import sys
sys.path[0] = "scripts"
from sbench.pages import pages
from sbench.studies.shots.report import results
def write_sentences():
    assert any(pages.get_findings(results.load_results("results/bench/shots", "results/bench/shots/facts.json")))
write_sentences()
"""
# The parts of a cell's way, and words of the commands that each consists of.
_WAY = {
    "from the cell to its record": ("scripts/step.py measure", "sbench.studies.shots.measure", "multiprocessing"),
    "from the record to tables": ("scripts/gather.py",),
    "from tables to sentences": ("pages.get_findings",),
}
_MATRIX = {
    **{"library": ["wheel"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
    **{"access": ["shots"], "workers": [1], "page_buffer": ["unset", "0"], "cache": ["any"]},
}


def measure_project(folder: Path, say: Say) -> Iterator[Row]:
    """Count the project's lines and the files on a cell's way, and sum up the time of tests by file."""
    yield from count_lines()
    say("one cell on its way")
    yield from _trace_cell(folder)
    yield from sum_times()


def count_lines() -> Iterator[Row]:
    """Count the lines of code: their sum, and those of each room, study, driver and store."""
    rooms = {path.name: _count(path) for path in sorted(PACKAGE.iterdir()) if (path / "__init__.py").exists()}
    parts = rooms | {"scripts/*": _count(*Path("scripts").glob("*.*"), *PACKAGE.glob("*.py"))}
    parts |= {"rules": _count(Path("rules"), Path("Snakefile")), "plugins": _count(Path("plugins"))}
    parts |= {"Go": _count(Path("envs/servers"))}
    yield _to_row("scripts, rules, plugins and Go", sum(parts.values()), 40_399)
    yield from (_to_row(f"  {name}", count) for name, count in parts.items())
    yield _to_row(f"engine: {', '.join(ENGINE)}", sum(rooms[room] for room in ENGINE), 15_500)
    yield _to_row("rules/common.smk", _count(Path("rules/common.smk")), 150)
    for name in schema.list_studies():
        has_blocks = type(studies.get_study(name)).build_tables is studies.Study.build_tables
        yield _to_row(f"study {name}", _count(PACKAGE / "studies" / name), 2_000 if has_blocks else 4_000)
        yield _to_row("  its page", _count(PACKAGE / "studies" / name / "report"), 400 if has_blocks else None)
    for path in sorted((PACKAGE / "drivers").glob("[!_]*.py")):
        yield _to_row(f"drivers/{path.name}", _count(path), 150)
    for path in sorted(PACKAGE.glob("stores/*/store.py")):
        yield _to_row(f"store {path.parent.name}", _count(path.parent), 450)


def _count(*paths: Path) -> int:
    """Return the lines of code in files and folders."""
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.suffix in _CODE and file.is_file()]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def _to_row(what: str, count: int, goal: int | None = None, unit: str = "lines") -> Row:
    limit, within = ("", None) if goal is None else (f"≤ {goal:,}", count <= goal)
    return Row(what, f"{count:,} {unit}", goal=limit, within=within)


def _trace_cell(folder: Path) -> Iterator[Row]:
    """Count the files whose functions one cell of `shots` calls on its way to a sentence: all, and part by part."""
    tree, notes = copy_tree(folder), folder / "files"
    libraries, compare = {"wheel": {"kind": "wheel", "hdf5": "2.0.0"}}, [{"factor": "page_buffer", "baseline": "0"}]
    section = {"data": {"shots": 2, "signals": 4}, "matrix": _MATRIX, "compare": compare}
    config = write_configuration(folder / "cell.json", libraries, {"disk": DISK}, **section)
    run_command(snakemake(config, "--until", "ready"), tree)
    with open(tree / PACKAGE / "__init__.py", "a", encoding="utf-8") as package:
        package.write(_WITNESS.format(root=f"{tree}/", notes=str(notes)))
    run_command(snakemake(config, "--", "results/bench/shots/facts.json"), tree)
    run_command([sys.executable, "-sE", "-c", _FINDINGS], tree)
    called = [line.split("\t") for line in notes.read_text(encoding="utf-8").splitlines()]
    parts = {part: {file for file, command in called if any(map(command.count, of))} for part, of in _WAY.items()}
    what = "files on the way of one cell of shots to a sentence"
    yield _to_row(what, len(set().union(*parts.values())), 25, "files")
    for part, files in parts.items():
        yield Row(f"  {part}", f"{len(files)} files", " ".join(sorted(file.removeprefix("scripts/") for file in files)))


def sum_times() -> Iterator[Row]:
    """Sum up the time of the latest `make test` by file, the longest first."""
    if not TIMES.exists():
        yield Row("time of `make test`", "unknown", "make test writes it")
        return
    suite, seconds = next(ElementTree.parse(TIMES).iter("testsuite")), Counter()
    for case in suite.iter("testcase"):
        seconds[re.search(r"test_\w+", case.get("classname", "")).group()] += float(case.get("time", 0))
    # On 2 idle cores; three studies may take 15 minutes, each further one 3.
    goal = 60 * (15 + 3 * (len(schema.list_studies()) - 3))
    yield _to_row("time of `make test`", round(float(suite.get("time", 0))), goal, "s")
    for name, taken in seconds.most_common():
        yield Row(f"  {name}", f"{taken:.0f} s")
