"""Reads fio's results from elsewhere into records of the volumes study: tarballs, folders, single JSON files."""

import argparse
import glob
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.frame.matrix import digest
from scripts.lib import provenance
from scripts.lib.program import Problem, run, write_text
from scripts.studies.volumes import fio, study, tarballs

_SAY_EVERY = 500
# What no name of a file has that Snakemake watches: it takes braces for wildcards, and stumbles over the others.
_ODD = re.compile(r"[{}\x00-\x1f\x7f\ud800-\udfff]")
# What battery.txt says of the machine, by the names that scripts.lib.host has.
_HOST = {
    **{key: key for key in ("cpu", "cores", "kernel", "mount_point", "mount_options")},
    "file_system": "mount_type",
    "device": "mount_source",
}


def main(argv: list[str] | None = None) -> int:
    """Write the records of all batteries that are found, and what was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--imports",
        required=True,
        help='what to read: JSON as [{"from": "results/b2_t1-*.tar.gz", "name": "gp2x1", "volume": {"type": "gp2"}}]; '
        "from is a tarball, a folder, a JSON file or a pattern, the rest may be left out",
    )
    parser.add_argument("--run", required=True, help="name of the run, for the records")
    parser.add_argument(
        "--jobs-folder",
        type=Path,
        default=Path(study.JOB_FILE).parent,
        help="job files: imported jobs with the same options have their names",
    )
    parser.add_argument("--out", required=True, type=Path, help="the records, JSON")
    arguments = parser.parse_args(argv)
    files = sorted(arguments.jobs_folder.glob("*.fio"))
    job_files = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in files}
    batteries, left_out = gather(parse(arguments.imports), lambda line: print(line, file=sys.stderr, flush=True))
    if not batteries:
        first = f": {left_out[0]['file']} {left_out[0]['reason']}" if left_out else ""
        raise Problem(f"no results of fio were found{first}{_more(len(left_out) - 1)}")
    code = provenance.facts(provenance.loaded())
    parts = ['{"status":"done","records":[']
    for battery, record in zip(batteries, records(batteries, job_files, arguments.run), strict=True):
        text = _json(record | {"provenance": code | record["provenance"]})
        parts += ["\n" if len(parts) == 1 else ",\n", text[:-1], ',"histograms":', battery.histograms, "}"]
    write_text(arguments.out, "".join([*parts, '\n],\n"left_out":', _json(left_out), "}\n"]))
    jobs = sum(len(battery.facts["samples"]) for battery in batteries)
    print(f"{arguments.out}: {len(batteries)} batteries, {jobs} jobs, {len(left_out)} files left out")
    return 0


def parse(text: str) -> list[dict]:
    """Return the imports in JSON, each {"from", and perhaps "name", "volume"}."""
    try:
        imports = json.loads(text)
    except ValueError as error:
        raise Problem(f"imports: not JSON ({error})") from error
    named = entries(imports) if isinstance(imports, list) else []
    if not named or not all(isinstance(one, dict) and "from" in one for one in named):
        raise Problem("imports: name at least one tarball, folder or file, each as its path or as from")
    return named


def entries(imports: Iterable[str | dict]) -> list[dict]:
    """Return imports as mappings with `from`, which a path alone stands for."""
    return [{"from": entry} if isinstance(entry, str) else entry for entry in imports]


def sources(imports: Iterable[str | dict]) -> list[Path]:
    """Return the files that imports name, sorted; of a folder those that may hold results.

    Raises:
        Problem: there is no such file or folder, or nothing matches, or a folder has no such files, or one has a name
            that Snakemake cannot watch.
    """
    paths: set[Path] = set()
    for entry in entries(imports):
        for path in _places(entry["from"]):
            files = [file for file in fio.walk(path) if _may_matter(file.name)] if path.is_dir() else [path]
            if not files:
                raise Problem(f"imports: {path} holds no tarball and no JSON file; put fio's results there")
            paths.update(files)
    for path in sorted(paths):
        if _ODD.search(str(path)):
            raise Problem(f"imports: {tarballs.shown(str(path))} has a brace or a control character in it; rename it")
    return sorted(paths)


@dataclass(frozen=True)
class Battery:
    """A battery that was found.

    Attributes:
        facts: what scripts.studies.volumes.fio says of it, without its histograms.
        histograms: these as JSON, which takes a tenth of their memory.
        source: the tarball, or the folder, that it lies in.
        entry: the import that names it.
        marks: marks of its jobs' content.
    """

    facts: dict
    histograms: str
    source: str
    entry: dict
    marks: frozenset[str]

    def rank(self) -> tuple[int, bool]:
        """Return how much is known of it, for the choice between two that have the same results."""
        return len(self.facts["samples"]), bool(self.entry.keys() - {"from"})


def gather(imports: Iterable[dict], say: Callable[[str], None]) -> tuple[list[Battery], list[dict]]:
    """Return the batteries that imports name, and [{"file", "reason"}] of what was left out.

    Results that are there twice, such as a tarball and the folder that was unpacked from it, are taken once.
    """
    kept: list[Battery] = []
    left_out: list[dict] = []
    holders: dict[str, int] = {}
    for tree in _trees(imports, say):
        any_read = False
        for facts in tree.read.batteries():
            any_read = True
            marks = frozenset(facts.pop("marks").values())
            source = tree.place(facts.pop("folder"))
            battery = Battery(facts, _json(facts.pop("histograms")), source, tree.entry, marks)
            at = next((holders[mark] for mark in sorted(marks) if mark in holders), len(kept))
            holders |= dict.fromkeys(marks, at)
            if at == len(kept):
                kept.append(battery)
                continue
            kept[at], other = sorted((kept[at], battery), key=Battery.rank, reverse=True)
            if other.source != kept[at].source:
                left_out.append({"file": other.source, "reason": _twice(kept[at], other)})
        left_out += tree.read.left_out
        if not any_read and not tree.read.left_out:
            left_out.append({"file": tree.source, "reason": "holds no results of fio"})
    return kept, left_out


def _twice(kept: Battery, other: Battery) -> str:
    more = len(other.marks - kept.marks)
    note = f"holds {len(other.marks & kept.marks)} jobs that {kept.source} holds too: they are taken once"
    return f"{note}, and {more} more, which are not taken" if more else note


def records(batteries: list[Battery], job_files: dict[str, str], run_name: str) -> list[dict]:
    """Return a record for each battery, without histograms and the measuring code.

    Args:
        batteries: see `gather`.
        job_files: their text by name.
        run_name: the run that they become part of.
    """
    jobs = fio.names([battery.facts["job_options"] for battery in batteries], job_files)
    repeats: dict[tuple[str, ...], int] = {}
    by_number: dict[int, dict] = {}
    times = [(str(battery.facts["started_utc"] or ""), number) for number, battery in enumerate(batteries)]
    for _, number in sorted(times):
        levels = _levels(batteries[number], jobs[number])
        key = tuple(levels.values())
        repeats[key] = repeats.get(key, 0) + 1
        by_number[number] = _record(batteries[number], levels, repeats[key], run_name)
    return [by_number[number] for number in range(len(batteries))]


def _levels(battery: Battery, job: str) -> dict[str, str]:
    facts = battery.facts
    layout = battery.entry.get("name") or "_".join(filter(None, (facts["battery"], facts["cluster"])))
    return {
        "store": layout,
        "job": job,
        "background": _background(facts["facts"]),
        "host": facts["host"],
        "control": "",
    }


def _background(facts: dict) -> str:
    """Return the level of the background load by battery.txt: none, same or other volume, else the load's name."""
    job, folders = str(facts.get("background", "unknown")), [facts.get("directory"), facts.get("background_directory")]
    if job in ("none", "unknown") or not all(folders):
        return job
    return "same" if folders[0] == folders[1] else "other"


def _record(battery: Battery, levels: dict[str, str], repeat: int, run_name: str) -> dict:
    facts, battery_facts = battery.facts, battery.facts["facts"]
    samples = [row | {"layout": levels["store"]} for row in facts["samples"]]
    work = {"jobs_asked": battery_facts.get("jobs", len(samples)), "jobs_done": len(samples)}
    work |= {key: sum(row[key] for row in samples) for key in ("read_bytes", "write_bytes")}
    reasons = study.STUDY.faults({"faults": facts["faults"], "work": work}, {})
    volume = battery.entry.get("volume")
    last = samples[-1]
    return {
        "record": 1,
        "status": "done",
        "run": run_name,
        "study": "volumes",
        "name": _name(levels),
        "cell": levels,
        "repeat": repeat,
        "source": battery.source,
        "started_utc": facts["started_utc"],
        "ended_utc": facts["ended_utc"],
        "fio": facts["fio"],
        "job_options": facts["job_options"],
        "battery": {key: facts[key] for key in ("battery", "cluster", "host", "pause_s")} | battery_facts,
        "volume": volume | {"source": "the configuration"} if volume else {},
        "background": facts["background"],
        "work": work,
        "seconds": {"total": None if last["started_s"] is None else last["started_s"] + last["runtime_s"]},
        "samples": samples,
        "host": {"node": facts["host"]} | {key: battery_facts.get(name) for key, name in _HOST.items()},
        "provenance": {"data_sha256": None, "lock_sha256": None, "build": None},
        "valid": not reasons,
        "reasons": reasons,
    }


def _name(levels: dict[str, str]) -> str:
    readable = "_".join(re.sub(r"[^A-Za-z0-9.-]", "-", level) for level in levels.values() if level)
    return f"{readable}-{digest(levels)}"


@dataclass(frozen=True)
class _Source:
    """A tarball, or the files of a folder that are none, as read; `entry` is the import that names it."""

    source: str
    entry: dict
    read: fio.Tree
    packed: bool

    def place(self, folder: str) -> str:
        """Return where a folder within it is."""
        if self.packed:
            return self.source
        return f"{self.source}/{folder}" if folder else self.source


def _trees(imports: Iterable[dict], say: Callable[[str], None]) -> Iterator[_Source]:
    """Yield each tarball, each folder, and each folder of single files that imports name."""
    progress = _Progress(say)
    for entry in imports:
        single: dict[Path, list[Path]] = {}
        for place in _places(entry["from"]):
            if not place.is_dir():
                single.setdefault(place.parent, []).append(place)
                continue
            inside = [path for path in fio.walk(place) if _may_matter(path.name)]
            yield from _read(place, inside, entry, progress)
        for folder, paths in single.items():
            yield from _read(folder, paths, entry, progress)
    progress.end()


def _read(folder: Path, paths: list[Path], entry: dict, progress: "_Progress") -> Iterator[_Source]:
    """Yield the tarballs among files of a folder, and the others together."""
    place = tarballs.shown(str(folder))
    loose = fio.Tree(tarballs.shown(folder.resolve().name), f"{place}/")
    for path in paths:
        if tarballs.is_tarball(path.name):
            yield _Source(tarballs.shown(str(path)), entry, _unpacked(path, progress), True)
            continue
        name = tarballs.shown(path.relative_to(folder).as_posix())
        if fio.wanted(name):
            loose.add_file(name, path)
        else:
            loose.leave_out(name, "is neither a tarball nor a JSON file")
        progress.count()
    if loose.files or loose.left_out:
        yield _Source(place, entry, loose, False)


def _unpacked(path: Path, progress: "_Progress") -> fio.Tree:
    """Return the tree in a tarball; of one that is refused nothing is taken."""
    source = tarballs.shown(str(path))
    tree = fio.Tree(tarballs.stem(path.name), f"{source}: ")
    try:
        for name, data in tarballs.contents(path, fio.wanted, tarballs.Limits(file_bytes=fio.FILE_BYTES)):
            tree.add(name, data)
            progress.count()
    except Problem as problem:
        tree = fio.Tree("")
        tree.left_out.append({"file": source, "reason": str(problem)})
    return tree


class _Progress:
    """Says now and then how many files have been read."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._count = say, 0

    def count(self) -> None:
        self._count += 1
        if self._count % _SAY_EVERY == 0:
            self._say(f"{self._count:,} files read")

    def end(self) -> None:
        self._say(f"{self._count:,} files read, all")


def _places(pattern: str) -> list[Path]:
    """Return what `from` names: a file or a folder, else all that matches it as a pattern."""
    try:
        named = [Path(pattern)] if Path(pattern).exists() else sorted(map(Path, glob.glob(pattern, recursive=True)))
    except OSError as error:
        raise Problem(f"imports: {tarballs.shown(pattern)}: {error.strerror}") from error
    paths = [path for path in named if path.is_file() or path.is_dir()]
    if not paths:
        what = "nothing matches" if glob.has_magic(pattern) else "there is no file or folder"
        raise Problem(f"imports: {what} {pattern}")
    return paths


def _may_matter(name: str) -> bool:
    return tarballs.is_tarball(name) or fio.wanted(name)


def _more(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


def _json(value: object) -> str:
    # A single sign beyond ASCII would double the memory of all of the text.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


if __name__ == "__main__":
    run(main)
