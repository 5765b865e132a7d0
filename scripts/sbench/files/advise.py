"""Recommend how to read HDF5 files: try drivers, caches and copies in other layouts, and choose the fastest.

Requests and bytes are forecast for each combination of file layout, driver and driver settings. Only the best
combinations are measured and compared with the original files. The advice tells how to repack the files, how to open
them, how much faster they are to read, and how much the copies cost.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from sbench.design import blocks, cost, matrix
from sbench.design import config as configuration
from sbench.design.matrix import build_permanent_name
from sbench.files import advise_page, copies
from sbench.files.place import find_place, parse_network, parse_store
from sbench.files.probes import find_misses, find_next_best
from sbench.files.trial import LONGEST_S, MOST_COPIES, ORIGINAL, Trial
from sbench.probe import sizes
from sbench.probe.processes import die_with_parent
from sbench.probe.program import Problem, build_command, print_json, read_json, write_json
from sbench.stores import store as stores
from sbench.studies.shots import accesses as access
from sbench.studies.shots import addresses, choice
from sbench.studies.shots import arms as ways
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.inputs import Source, build_store_entry, find_sources
from sbench.studies.shots.manifest import list_datasets
from sbench.studies.shots.report import results as tables

# Maximum number of files, and total size in bytes, of the sample that represents all files.
_FILES, _BYTES = 6, 2 * 2**30
# Smaller files are not measured, because starting a measurement takes longer than reading them.
_SMALL = 2**20
# Maximum number of rounds of probes; after each, the next best way is added for each missed forecast.
_REPLACED = 2
# Number of files that a record reads in sequence with the same client; fewer if this would take too long.
_READ_FILES = 3
_READERS = "readers"
_LIBRARY = {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"}


class Query(NamedTuple):
    """The arguments of a request for advice.

    Attributes:
        files: files, folders, patterns, or s3://bucket/prefix/*.h5.
        access: how to read them (`accesses.parse_accesses`).
        datasets: patterns of the datasets to read; empty for all.
        latency: round-trip time of the store in ms, or None.
        rate: maximum rate of a connection to the store in MiB/s, or None.
        store: the user's bucket for uploads, s3://bucket/prefix; an empty string for none.
        scratch: folder for copies; an empty string for a folder in the results.
        name: name of the run; an empty string for a generated name.
    """

    files: Sequence[str]
    access: str = ""
    datasets: Sequence[str] = ()
    latency: int | None = None
    rate: int | None = None
    store: str = ""
    scratch: str = ""
    name: str = ""


def print_advice(query: Query, repeats: int, as_json: bool = False) -> int:
    """Measure ways to read files, and print the advice.

    Args:
        query: arguments of the request.
        repeats: number of repeats of each measurement.
        as_json: whether to print the advice as JSON, and progress on standard error.

    Returns:
        Exit status of the run.
    """
    if as_json:
        with contextlib.redirect_stdout(sys.stderr):
            config = _make_config(query)
            status, lines = _measure_arms(config, repeats)
        print_json({"advice": lines, "config": str(config), "status": status})
        return status
    status, lines = _measure_arms(_make_config(query), repeats)
    print(*lines, sep="\n")
    return status


def _make_config(query: Query) -> Path:
    """Return the path of the configuration file for a query; on the first call, make the copies and write the file.

    Raises:
        Problem: the run's name is in use for a different query, or the files cannot be used.
    """
    wanted, accesses, datasets = list(query.files), access.parse_accesses(query.access), list(query.datasets) or ["/**"]
    bucket = addresses.get_bucket(wanted)
    given, own = parse_network(query.latency, query.rate), parse_store(query.store)
    at = build_store_entry(bucket) if bucket else None
    of_set = find_sources(wanted, at)
    place = find_place(own, given, at, of_set)
    some = _select_usable(_select_sample(of_set), datasets, accesses)
    datasets = [*datasets, *_list_exclusions(some, datasets)]
    print(f"{len(of_set)} files, a sample of {len(some)}: {sizes.format_size(sum(one.bytes for one in some))}")
    print(f"store: {place.words}", flush=True)
    versions = [(one.where, one.bytes, one.version) for one in some]
    question = build_permanent_name("advise", wanted, asdict(accesses), datasets, query.store, given, versions)
    name = query.name or question
    results = Path("results", name)
    scratch = Path(query.scratch, name) if query.scratch else results / "scratch"
    config, asks = scratch / "advise.json", scratch / "question.json"
    if not config.exists():
        scratch.mkdir(parents=True, exist_ok=True)
        copies.expect_room(scratch, sum(one.bytes for one in some) * (2 + 3 * MOST_COPIES))
        files = _fetch_files(some, scratch / ORIGINAL)
        named = _list_shell_names(wanted, of_set)
        every = files if at else [Path(path) for one in named for path in _expand_pattern(one)]
        trial = Trial(files, named, every, accesses, datasets, place, scratch, _ensure_python(results))
        trial.make_copies(trial.choose_layouts())
        _expect_unchanged(some, find_sources(wanted, at))
        write_json(asks, question)
        write_json(config, _build_config(name, trial, _build_locations(trial, some[0], at)))
    elif json.loads(asks.read_text(encoding="utf-8")) != question:
        raise Problem(f"{results} answers another question, or its files have changed since; choose another --name")
    return config


def _select_sample(of_set: Sequence[Source]) -> list[Source]:
    """Select evenly spaced files: at least one, and at most `_FILES` files with at most `_BYTES` in total."""
    count = min(len(of_set), _FILES)
    some = [of_set[number * len(of_set) // count] for number in range(count)]
    while len(some) > 1 and sum(one.bytes for one in some) > _BYTES:
        some = some[:-1]
    return some


def _select_usable(some: Sequence[Source], datasets: Sequence[str], accesses: Accesses) -> list[Source]:
    """Return the files that contain datasets to read, and print for each of the rest why it is left out.

    Raises:
        Problem: none of the files has datasets to read.
    """
    usable, problems = [], []
    for one in some:
        try:
            with one.open_hdf5() as file:
                list_datasets(file, datasets, one.where, accesses)
            usable.append(one)
        except Problem as problem:
            problems.append(str(problem))
    if not usable:
        raise Problem(problems[0])
    for problem in problems:
        print(f"left out: {problem}")
    return usable


def _list_exclusions(some: Sequence[Source], datasets: Sequence[str]) -> list[str]:
    """Return patterns that exclude datasets whose values are stored in other files, and print each such dataset.

    A copy of a file would lack these values.
    """
    entries = {}
    for one in some:
        with one.open_hdf5() as file:
            entries |= {entry.path: str(entry) for entry in choice.list_datasets_elsewhere(file, datasets, one.where)}
    for words in entries.values():
        print(f"left out: {words}")
    return [f"!{path}" for path in entries]


def _ensure_python(results: Path) -> str:
    """Build the environment that reads the files, if necessary, and return the path of its Python interpreter."""
    artefact = results / "environments" / f"{_READERS}.json"
    spec = ("--library", _READERS, "--spec", json.dumps(_LIBRARY), "--out", str(artefact))
    done = subprocess.run(build_command("build_library", *spec), check=False)
    if done.returncode:
        raise Problem("the build of the reading library failed; see the reason in the lines above")
    return read_json(artefact)["python"]


def _fetch_files(some: Sequence[Source], folder: Path) -> list[Path]:
    """Make files available in one file system under distinct names, by copies or symbolic links where necessary.

    Files in another file system or in a bucket are copied to `folder`. Local files whose names repeat get symbolic
    links there, and the rest are used from where they are.

    Returns:
        The paths, in the order of `some`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device, brought = folder.stat().st_dev, []
    own_names = len({Path(one.name).name for one in some}) == len(some)
    for number, one in enumerate(some):
        there = not one.reader and Path(one.where).stat().st_dev == device
        name = Path(one.name).name
        path = Path(one.where) if there and own_names else folder / (name if own_names else f"{number}-{name}")
        brought.append(path)
        if there and not own_names:
            path.unlink(missing_ok=True)
            path.symlink_to(one.where)
        elif not there:
            with one.open_raw() as source, open(path, "wb") as copy:
                shutil.copyfileobj(source, copy, 2**22)
    return brought


def _expect_unchanged(before: Sequence[Source], after: Sequence[Source]) -> None:
    """Raise Problem if a file changed while the copies were made."""
    now = {one.where: (one.bytes, one.version) for one in after}
    for one in before:
        if now.get(one.where) != (one.bytes, one.version):
            raise Problem(f"{one.where} changed during the copy; try again when no process writes to it")


def _build_config(name: str, trial: Trial, where: dict) -> dict:
    """Build the configuration of the run, which measures nothing if all files are smaller than `_SMALL`."""
    small = max(path.stat().st_size for path in trial.files) < _SMALL
    arms = [] if small else trial.choose_arms()
    slowest = max((arm.compute_rank(trial.accesses)[0] for arm in arms), default=0)
    files = max(1, min(_READ_FILES, len(trial.files), int(LONGEST_S // max(slowest, 1))))
    shots = {
        "question": "How are these files read fastest, and is a copy in another layout worth it?",
        "data": {"files": trial.sets, "datasets": trial.patterns},
        "read_files": files if trial.accesses.unit == "files" else 1,
        "rdcc_nbytes": ways.RDCC_NBYTES,
        "control_cells": 1,
        "advice": trial.build_facts(arms) | {"where": where | {"groups": trial.groups}},
        "matrix": [_build_mapping(arm, trial.accesses) for arm in arms],
    }
    return {
        **{"run": name, "libraries": {_READERS: _LIBRARY}, "stores": {"tried": trial.place.store}},
        "studies": {"shots": shots},
    }


def _build_mapping(arm: ways.Arm, accesses: Accesses) -> dict:
    levels = {factor: [level] for factor, level in arm.levels.items()}
    levels |= {"library": [_READERS], "store": ["tried"], "workers": [1], "cache": ["cold"]}
    return levels | {"access": [accesses.unit], "selection": list(accesses.shares)}


def _measure_arms(config: Path, repeats: int) -> tuple[int, list[str]]:
    """Execute the run that a configuration describes, and return its exit status and the lines of the advice."""
    settings = read_json(config)
    advice, results = settings["studies"]["shots"]["advice"], Path("results", settings["run"])
    if not advice["arms"]:
        return 0, list(advise_page.format_forecast_advice(advice))
    if not _get_probe_folder(results).exists():
        print(_describe_plan(config, repeats), flush=True)
        _run_probes(config, settings)
    write_json(config, read_json(config) | {"repeats": repeats})
    cells = results / "shots/cells.csv"
    earlier = cells.exists() and cells.stat().st_mtime_ns
    status = _run_workflow(config)
    lines = [f"remove: {line}" for line in _list_removals(settings, results)]
    # If this call failed before it measured anything, the tables are from an earlier call and are ignored.
    if cells.exists() and (not status or cells.stat().st_mtime_ns != earlier):
        lines = [
            *advise_page.format_advice(tables.load_results(results / "shots", results / "shots/facts.json")),
            *lines,
        ]
    return status, lines


def _describe_plan(config: Path, repeats: int) -> str:
    """Describe the number of measurements that the run makes, and its estimated duration."""
    resolved = configuration.load_config(config, {"repeats": repeats})
    cells, omitted = matrix.expand_matrix(resolved, "shots")
    once = [cell for cell in cells if not cell.twin_of]
    costs = {
        times: cost.estimate_cost(resolved, "shots", of, omitted, blocks.Open([*range(times)], [], [], [], {}))
        for times, of in ((1, once), (repeats, cells))
    }
    totals = cost.compute_totals(costs)
    return (
        f"{len(once)} ways to read: a probe of each, then {repeats} repeats with {len(cells) - len(once)} controls, "
        f"{cost.describe_time(totals, totals['seconds_beside'])} in all"
    )


def _run_probes(config: Path, settings: dict) -> None:
    """Measure each combination of layout, driver and settings ("arm") once, as a probe.

    For each arm that took much longer than forecast, the next best arm is added to the configuration and also probed.
    """
    shots, results = settings["studies"]["shots"], Path("results", settings["run"])
    once = config.with_name("probe.json")
    for _ in range(_REPLACED):
        probed = settings | {"repeats": 1, "extra_blocks": 0, "studies": {"shots": shots | {"control_cells": 0}}}
        write_json(once, probed)
        _run_workflow(once, "--", f"{results}/shots/looks/1.json")
        misses = find_misses(shots["advice"], results / "shots/records")
        if not (added := find_next_best(shots["advice"], misses)):
            break
        shots["advice"]["arms"] += added
        accesses = Accesses(shots["matrix"][0]["access"][0], shots["advice"]["accesses"])
        shots["matrix"] += [_build_mapping(ways.Arm(**arm), accesses) for arm in added]
        write_json(config, settings)
    # Move the records of the probes. Verdicts must not use them, because they were used to choose arms; the estimate of
    # the run's time does.
    if (results / "shots").exists():
        _get_probe_folder(results).parent.mkdir(exist_ok=True)
        (results / "shots").rename(_get_probe_folder(results))


def _get_probe_folder(results: Path) -> Path:
    return results.with_name(f"{results.name}-probe") / "shots"


def _run_workflow(config: Path, *words: str) -> int:
    command = build_command("sbench.cli", "run", config, "--yes", *words)
    # It would go on alone if this process were ended.
    return subprocess.run(command, preexec_fn=lambda: die_with_parent(signal.SIGTERM), check=False).returncode


def _list_removals(settings: dict, results: Path) -> Iterator[str]:
    """Yield the commands that delete the uploaded data from the user's bucket."""
    store = settings["stores"]["tried"]
    if store.get("upload"):
        endpoint = f" --endpoint-url {store['endpoint']}" if "endpoint" in store else ""
        for artefact in sorted(results.glob("data/*/tried.json")):
            place = "/".join(filter(None, [store["bucket"], store["prefix"], artefact.parent.name]))
            yield f"aws s3 rm --recursive s3://{place}/{endpoint}"


def _list_shell_names(wanted: Sequence[str], of_set: Sequence[Source]) -> list[str]:
    """Return paths and shell patterns that match the user's files, for commands that the user can run.

    A folder is replaced by one pattern per file suffix. Patterns with `**` are replaced too, because not all shells
    support them. Files in a bucket are replaced by a pattern that matches their downloaded copies.
    """
    if of_set[0].reader:
        return [f"{ORIGINAL}/*"]
    repeated = len({Path(one.name).name for one in of_set}) < len(of_set)
    named = []
    for one in map(os.path.expanduser, wanted):
        files = [Path(source.where) for source in find_sources(one)]
        if Path(one).is_dir():
            folder = _format_path(Path(one).resolve()) if repeated else one.rstrip("/")
            named += sorted({f"{folder}/*{file.suffix}" for file in files})
        elif "**" in one or repeated:
            last = Path(one).name
            names = {file: f"*{file.suffix}" if "**" in last else last for file in files}
            named += sorted({f"{_format_path(file.parent)}/{name}" for file, name in names.items()})
        else:
            named.append(one)
    return list(dict.fromkeys(named))


def _format_path(path: Path) -> str:
    """Format a path relative to the working directory, or unchanged if it is outside that directory."""
    below = os.path.relpath(path)
    return str(path) if below.startswith("..") else below


def _expand_pattern(pattern: str) -> list[str]:
    """Expand a path or glob pattern as a shell would."""
    return [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern))


def _build_locations(trial: Trial, first: Source, at: dict | None) -> dict:
    """Return where the first file and its copies can be opened (paths or object keys), and the bucket's region."""
    name, store = Path(first.name).name, trial.place.store
    path = _format_path(Path(first.where))
    if trial.is_mirrored and not at:
        name = copies.get_copy_name(Path(path), True)
    copied = {key: copies.LARGE if layout.merged else f"{key}/{name}" for key, (layout, _) in trial.made.items()}
    if stores.get_store(store).files:
        return {"files": {ORIGINAL: path} | copied, "region": ""}
    own = at or (store if store.get("upload") else {"bucket": "bucket", "prefix": ""})
    within = "/".join(filter(None, [own["bucket"], own["prefix"]]))
    original = first.where.removeprefix(addresses.IN_BUCKET) if at else f"{within}/{name}"
    files = {ORIGINAL: original} | {key: f"{within}/{path}" for key, path in copied.items()}
    return {"files": files, "region": own.get("region", "us-east-1")}
