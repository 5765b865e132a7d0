"""The size of the project itself, and how long its tests took: what to look at before it grows."""

import datetime
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from scripts.benchmarks.common import TREE, Row, Say
from scripts.frame import study as studies

# What `make test` leaves behind.
TIMES = Path(".pytest_cache/tests.xml")
_FIRST_PAGE = Path("tests/__snapshots__/test_pages/test_index_of_all_studies_is_as_it_was.md")
_CODE = (".py", ".sh", ".smk", ".ipynb", ".js", ".css", ".j2")
_LINES, _REPORT_LINES, _WORDS, _MINUTES = 20_000, 350, 500, 15


def rows(folder: Path, say: Say) -> Iterator[Row]:
    """Count lines and words of the project, and sum up the time of its tests by file."""
    yield from lines()
    words = len(re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", _FIRST_PAGE.read_text(encoding="utf-8")).split())
    yield Row("words of the first page of the synthetic runs", f"{words}", "", "", f"≤ {_WORDS}", words <= _WORDS)
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
        home = Path("scripts/studies", name)
        own = sum(count for path, count in counts.items() if path.is_relative_to(home))
        report = sum(count for path, count in counts.items() if path.is_relative_to(home / "report"))
        blocks = type(studies.of(name)).tables is studies.Study.tables
        limit = (f"report ≤ {_REPORT_LINES}", report <= _REPORT_LINES) if blocks else ("", None)
        yield Row(f"  of {name}", f"{own:,}", f"its report: {report:,}", "", *limit)


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
