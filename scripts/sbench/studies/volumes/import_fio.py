"""Convert fio results from other machines (tarballs, directories, single files) to records of the volumes study."""

import argparse
import glob
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from sbench.design.matrix import compute_digest
from sbench.probe import globs, packed, provenance
from sbench.probe.program import Problem, replace_file, run_main, shorten_name
from sbench.probe.spool import Spool
from sbench.studies.volumes import battery_work, config_files, fio, fio_facts, fio_options, fio_text
from sbench.studies.volumes.checks import check_jobs, check_output

_OF_A_BATTERY = ("source", "started_utc", "ended_utc", "fio", "job_options", "background", "loop")
# Characters that are refused in file names: Snakemake interprets braces as wildcards, and fails on the others.
_ODD = re.compile(r"[{}\x00-\x1f\x7f\ud800-\udfff]")


def main(argv: list[str] | None = None) -> int:
    """Write the records of all batteries, and the list of files that were left out, to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--imports", required=True, type=json.loads, help="`imports` of a configuration, as JSON")
    parser.add_argument("--run", required=True, help="name of the run, for the records")
    parser.add_argument("--out", required=True, type=Path, help="the records, JSON")
    arguments = parser.parse_args(argv)
    if not arguments.imports:
        raise Problem("imports must name at least 1 tarball, folder or file, as a path or as from: path")
    batteries, left_out = read_batteries(expand_imports(arguments.imports), spool := Spool())
    if not batteries:
        first = f": {left_out[0]['file']} {left_out[0]['reason']}" if left_out else ""
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise Problem(f"found no fio results{first}{more}")
    code = provenance.describe_code(provenance.list_loaded_modules())
    with replace_file(arguments.out) as part, open(part, "w", encoding="utf-8") as file:
        before = '{"status":"done","records":[\n'
        for record in build_records(batteries, arguments.run, spool):
            # Write the samples piece by piece: lists of many jobs would take many times the memory of their JSON text.
            samples, histograms = (record.pop(name) for name in ("samples", "histograms"))
            rest = _dump_json(record | {"provenance": code | record["provenance"]})
            file.write(f'{before}{rest[:-1]},"samples":[')
            file.writelines(_add_commas(map(_dump_json, samples)))
            file.write('],"histograms":{')
            file.writelines(
                _add_commas(_dump_json(fio.convert_to_pairs({name: own}))[1:-1] for name, own in histograms.items())
            )
            file.write("}}")
            before = ",\n"
        file.write(f'\n],\n"left_out":{_dump_json(left_out)}}}\n')
    jobs = sum(battery["jobs"] for battery in batteries)
    print(f"{arguments.out}: {len(batteries)} batteries, {jobs} jobs, {len(left_out)} files left out")
    return 0


def expand_imports(imports: Iterable[str | dict]) -> list[dict]:
    """Convert all entries of `imports` to mappings: a plain path becomes {"from": path}."""
    return [{"from": entry} if isinstance(entry, str) else entry for entry in imports]


def list_sources(imports: Iterable[str | dict]) -> list[Path]:
    """Return a sorted list of all files that the entries of `imports` refer to.

    Raises:
        Problem: a path does not exist or contains no files, or a file name contains forbidden characters.
    """
    paths: set[Path] = set()
    for entry in expand_imports(imports):
        for path in _find_places(entry["from"]):
            files = _list_files(path)
            if not files:
                raise Problem(f"imports: {path} contains no files; put fio's results there")
            paths.update(files)
    for path in sorted(paths):
        if _ODD.search(str(path)):
            raise Problem(
                f"imports: {shorten_name(str(path))} has a brace or a control character in its name; rename it"
            )
    return sorted(paths)


def read_batteries(imports: Iterable[dict], spool: Spool) -> tuple[list[dict], list[dict]]:
    """Read the batteries that the entries of `imports` refer to.

    Duplicate results, such as a tarball and the directory unpacked from it, count once: from the source with more jobs,
    or, if equal, from an import with more keys than its path.

    Returns:
        The batteries, and the files that were left out, [{"file", "reason"}]. A battery is an item of
        `fio.Tree.list_batteries`. Its samples and histograms are moved to the spool, and replaced by the number of
        "jobs" and the "place" in the spool. "source" is its tarball or directory, "entry" its import.
    """
    batteries, left_out = [], []
    for entry, source, whole, tree in _read_trees(imports):
        count = 0
        for battery in tree.list_batteries():
            place = source if whole or not battery["folder"] else f"{source}/{battery['folder']}"
            jobs = len(battery["samples"])
            if jobs:
                large = {name: battery.pop(name) for name in ("samples", "histograms")}
                batteries.append(
                    battery | {"jobs": jobs, "place": spool.save_value(large), "source": place, "entry": entry}
                )
            elif battery["facts"]:
                status = battery["facts"].get("status", "no status")
                left_out.append({"file": place, "reason": f"describes a battery without results: {status}"})
            count += jobs
        left_out += tree.left_out
        if not tree.left_out and not count:
            left_out.append({"file": source, "reason": fio_text.NOTHING})
    holders: dict[str, dict] = {}
    for battery in sorted(batteries, key=lambda each: (each["jobs"], len(each["entry"]) > 1), reverse=True):
        marks = set(battery["marks"])
        first = next((holders[mark] for mark in battery["marks"] if mark in holders), battery)
        if first["source"] != battery["source"]:
            both, more = len(marks & {*first["marks"]}), len(marks - {*first["marks"]})
            reason = f"repeats {both} jobs of {first['source']}, which count once"
            reason += f"; its {more} other jobs are ignored" if more else ""
            left_out.append({"file": battery["source"], "reason": reason})
        holders |= dict.fromkeys(marks, first)
    kept = {id(battery) for battery in holders.values()}
    return [battery for battery in batteries if id(battery) in kept], left_out


def build_records(batteries: list[dict], run_name: str, spool: Spool | None = None) -> Iterator[dict]:
    """Yield a record for each battery. It lacks the provenance of the code.

    Histograms stay in the form of `fio.Tree.list_batteries`. `spool` is the spool passed to `read_batteries`, or None
    if the batteries contain their samples and histograms.
    """
    texts = {path.stem: config_files.read_job(path.stem) for path in Path(config_files.JOB_FILE).parent.glob("*.fio")}
    jobs = fio_options.choose_job_names([battery["job_options"] for battery in batteries], texts)
    cells = [_get_levels(battery, job) for battery, job in zip(batteries, jobs, strict=True)]
    order = sorted(range(len(batteries)), key=lambda number: str(batteries[number]["started_utc"] or ""))
    repeats, counts = [0] * len(batteries), Counter()
    for number in order:
        counts[place := tuple(cells[number].values())] += 1
        repeats[number] = counts[place]
    for battery, levels, repeat in zip(batteries, cells, repeats, strict=True):
        yield _build_record(battery | (spool.load_value(battery["place"]) if spool else {}), levels, repeat, run_name)


def _get_levels(battery: dict, job: str) -> dict[str, str]:
    """Return the factor levels of a battery.

    The level of the background load is `same` or `other` if it is known whether the load ran on the battery's volume,
    and otherwise the name of the load (or `none`, or `unknown`).
    """
    facts = battery["facts"]
    background = str(facts.get("background", "unknown"))
    folders = [facts.get("directory"), facts.get("background_directory")]
    if background not in ("none", "unknown") and all(folders):
        background = "same" if folders[0] == folders[1] else "other"
    layout = battery["entry"].get("name") or "_".join(filter(None, (battery["battery"], battery["cluster"])))
    return {"store": layout, "job": job, "background": background, "host": battery["host"], "control": ""}


def _build_record(battery: dict, levels: dict[str, str], repeat: int, run_name: str) -> dict:
    facts = battery["facts"]
    samples = [row | {"layout": levels["store"]} for row in battery["samples"]]
    work = battery_work.count_work(facts.get("jobs", len(samples)), len(samples), samples)
    reasons = [*check_output(battery), *check_jobs(work)]
    readable = "_".join(re.sub(r"[^A-Za-z0-9.-]", "-", level) for level in levels.values() if level)
    volume, last = battery["entry"].get("volume"), samples[-1]
    ended_s = _estimate_runtime_s(battery) if last["started_s"] is None else last["started_s"] + last["runtime_s"]
    return {
        **{"record": 1, "status": "done", "run": run_name, "study": "volumes"},
        **{"name": f"{readable}-{compute_digest(levels)}", "cell": levels, "repeat": repeat},
        **{key: battery[key] for key in _OF_A_BATTERY},
        "battery": {key: battery[key] for key in ("battery", "cluster", "host", "pause_s")} | facts,
        "volume": volume | {"source": "the configuration"} if volume else {},
        "work": work,
        "seconds": {"total": ended_s},
        "samples": samples,
        "histograms": battery["histograms"],
        "host": fio_facts.get_host_facts(facts | {"host": battery["host"]}),
        "provenance": {"data_sha256": None, "lock_sha256": None, "build": None},
        **{"valid": not reasons, "reasons": reasons},
    }


def _estimate_runtime_s(battery: dict) -> float:
    """Estimate the duration of a battery without start times: the sum of run times, or if missing, of latencies.

    Pauses between the jobs are not included. Each latency counts with the upper bound of its bin or range.
    """
    own = [one for of_job in battery["histograms"].values() for one in of_job.values()]
    most_ns = sum(row[-2] * row[-1] for one in own for row in one.list_rows())
    return sum(row["runtime_s"] or 0 for row in battery["samples"]) or most_ns / 1e9


def _read_trees(imports: Iterable[dict]) -> Iterator[tuple[dict, str, bool, fio.Tree]]:
    """Read each tarball and directory. Yield (import, source, whether it is a tarball, tree of results) for each."""
    for entry in imports:
        folders: dict[Path, list[Path]] = {}
        for place in _find_places(entry["from"]):
            folders.setdefault(place if place.is_dir() else place.parent, []).extend(_list_files(place))
        for folder, paths in folders.items():
            place = shorten_name(str(folder))
            print(f"{place}: {len(paths):,} files", file=sys.stderr, flush=True)
            loose, trees = fio.Tree(shorten_name(folder.resolve().name), f"{place}/"), 0
            for path in paths:
                name, source = shorten_name(path.relative_to(folder).as_posix()), shorten_name(str(path))
                tree = fio.Tree(packed.remove_suffix(path.name), f"{source}: ")
                try:
                    if not packed.has_files(path):
                        loose.add_file(name, path)
                        continue
                    tree.add_packed(path)
                except Problem as problem:
                    tree = fio.Tree("", source)
                    tree.add_left_out("", str(problem))
                trees += 1
                yield entry, source, True, tree
            if trees < len(paths):
                yield entry, place, False, loose


def _list_files(place: Path) -> list[Path]:
    """List a file itself, or all files below a directory except hidden ones."""
    if not place.is_dir():
        return [place]
    inside = [(path, path.relative_to(place).parts) for path in sorted(globs.iter_limited(place.rglob("*"), place))]
    return [path for path, parts in inside if not any(part.startswith(".") for part in parts) and path.is_file()]


def _find_places(pattern: str) -> list[Path]:
    """Return the file or directory at a path. If it does not exist, expand the path as a pattern instead."""
    try:
        named = [Path(pattern)] if Path(pattern).exists() else list(map(Path, globs.expand_pattern(pattern)))
    except OSError as error:
        raise Problem(f"imports: {shorten_name(pattern)}: {error.strerror}") from error
    paths = [path for path in named if path.is_file() or path.is_dir()]
    if not paths:
        state = "matches no file or folder" if glob.has_magic(pattern) else "does not exist"
        raise Problem(f"imports: {pattern} {state}; correct the path")
    return paths


def _add_commas(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f",{text}" if number else text


def _dump_json(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


if __name__ == "__main__":
    run_main(main)
