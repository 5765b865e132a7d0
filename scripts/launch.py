"""Says what a run will measure and cost, asks where that is above a limit, and starts Snakemake.

Everything after -- goes to Snakemake. Without it: .venv/bin/snakemake --cores 2 --configfile config/config.yaml
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
from rich.console import Console

from scripts import preflight
from scripts.building.cache import COMPLETE, cache_folder
from scripts.frame import config as configuration
from scripts.frame import matrix, records
from scripts.frame import study as studies
from scripts.frame.study import Cell
from scripts.lib import host
from scripts.lib.program import Problem, expect_folders, read_json, run
from scripts.statistics import MIN_BLOCKS
from scripts.stores import store as stores

# What a cell costs beside its reading: Snakemake, the servers, the workers' start and end (`make bench` measures it).
_CELL_OVERHEAD_S = 1.6
# What builds take on 2 idle cores, by kind of library and by server.
_BUILD_S = {"source": 240, "wheel": 20, "conda": 120, "servers": 90, "azurite": 30}
# Snakemake's options that only show what it would do; short ones may stand together, as in -pn.
_DRY_RUN = re.compile(r"-[A-Za-z]*n[A-Za-z]*|--dry.*")


def main(argv: list[str] | None = None) -> int:
    """Print the plan; then become Snakemake, unless only the plan was asked."""
    arguments = _parser().parse_args(argv)
    config = configuration.load(arguments.configfile, {"run": _run_name(arguments.run)} if arguments.run else {})
    matrix.expand_all(config, [arguments.configfile])
    only, repeated, imports = _words(arguments.only), _words(arguments.again), paths(arguments.imports)
    importing = [study for study, section in config["studies"].items() if "imports" in section]
    if imports:
        if not importing:
            raise Problem(f"{arguments.configfile} has no study that imports results; name another configuration")
        for study in importing:
            config["studies"][study]["imports"] = list(map(os.path.abspath, imports))
        configuration.expect_plain(config, "the command line")
    config["only"] = _chosen(config, arguments.study, only)
    chosen_studies = config["only"].get("study", list(config["studies"]))
    again = _to_repeat(config, chosen_studies, repeated)
    costs = {study: _cost(config, study, again) for study in chosen_studies}
    if arguments.plan:
        for what, fine, detail in preflight.inputs(config):
            print(f"{'' if fine else 'AMISS  '}{what}: {detail}")
    _show(config, costs, cells=arguments.plan)
    if arguments.plan:
        return 0
    expect_folders(config["run"])
    _ask(config, costs, arguments.yes)
    sys.stdout.flush()
    command = [
        *(str(Path(sys.executable).with_name("snakemake")), f"--cores={arguments.cores}"),
        f"--configfile={arguments.configfile}",
        # What is measured now, how far it is, how long it will take (plugins/).
        *("--logger=benchmark", f"--logger-benchmark-reports=reports/{config['run']}"),
    ]
    _free_folder(command)
    for study in chosen_studies:
        studies.of(study).sources(config)
    changed = {"run": arguments.run} if arguments.run else {}
    changed |= {"only": config["only"]} if config["only"] else {}
    if imports:
        changed["studies"] = {study: {"imports": config["studies"][study]["imports"]} for study in importing}
    if changed:
        command += ["--config", *(f"{key}={json.dumps(value)}" for key, value in changed.items())]
    if not any(map(_DRY_RUN.fullmatch, arguments.snakemake)):
        _move_aside(again)
    os.execv(command[0], [*command, *arguments.snakemake])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, several = parser.add_argument, {"nargs": "*", "default": []}
    add("--configfile", default="config/config.yaml", help="the configuration (default: %(default)s)")
    add("--cores", type=_cores, default=host.usable_cores(), help="cores that Snakemake may use (default: all)")
    add("--run", default="", help="name of the run, in place of the configured one")
    add("--study", default="", help="measure this study only")
    add("--only", **several, metavar="FACTOR=LEVEL,…", help="measure the cells with these levels only")
    add("--again", **several, metavar="CELL", help="measure the cells again whose name begins so")
    add(
        "--imports", **several, metavar="PATH", help="results from elsewhere to report, in place of the configured ones"
    )
    add("--plan", action="store_true", help="print the plan, cell by cell, and stop")
    add("--yes", action="store_true", help="do not ask, whatever it costs")
    add("snakemake", nargs="*", help="options of Snakemake, after --")
    return parser


def _cores(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise Problem(f"{text!r} is no number of cores; write for example CORES=2 (--cores 2)")
    return int(text)


def _run_name(text: str) -> str:
    """Return the name of a run from the command line.

    Raises:
        Problem: Snakemake, which is given it on its own command line, takes it for a number.
    """
    with contextlib.suppress(ValueError):
        float(text)
        raise Problem(f"{text!r} is a number, and no name of a run here; put a letter before it, as RUN=day-{text}")
    return text


def _words(texts: list[str]) -> list[str]:
    """Return the words of texts, each one or several in a row, as a shell takes quotes but nothing else of them.

    Raises:
        Problem: a quote is not closed.
    """
    try:
        return [word for text in texts for word in shlex.split(text)]
    except ValueError as error:
        raise Problem(f"{' '.join(texts)!r}: {str(error).lower()}; quote each part that has a blank in it") from error


def paths(texts: list[str]) -> list[str]:
    """Return the paths in texts: a text that is the name of a file or folder, else its words, quoted where need be."""
    return [path for text in texts for path in ([text] if Path(text).exists() else _words([text]))]


def _chosen(config: dict, study: str, words: list[str]) -> dict[str, list[str]]:
    """Return `only` of the configuration with what the command line adds: --study, --only library=a,b workers=1.

    Raises:
        Problem: there is no such study, factor or level in the configuration.
    """
    only = dict(config["only"])
    if study:
        only["study"] = [study]
    for word in words:
        factor, equals, levels = word.partition("=")
        if not equals or not levels:
            raise Problem(f"{word!r} is not FACTOR=LEVEL; write for example ONLY='library=hdf5-2.0.0 workers=1,2'")
        only[factor] = levels.split(",")
    configuration.check_only(config | {"only": only}, "the command line")
    return only


def _cost(config: dict, study: str, again: set[Path]) -> dict:
    """Estimate what a study still has to measure; `again` are folders of cells whose records are measured again.

    Returns:
        {"cells": [(cell, records to do, seconds each, basis)], "omitted", "records", "seconds", "bytes", "requests",
        "disk_bytes"}; `basis` says in words what the seconds come from.
    """
    program = studies.of(study)
    everything, omitted = matrix.expand(config, study)
    cells = matrix.selected(everything, config["only"])
    before = _seconds_before(study)
    rows, totals = [], {"records": 0, "seconds": 0.0, "bytes": 0.0, "requests": 0.0}
    for cell in cells:
        folder, repeats = _folder(config, cell), matrix.repeats(config, study)
        done = [record for n in repeats if (record := _done(folder / f"repeat={n}.json", config["run"], study))]
        to_do = len(repeats) - (0 if folder in again else len(done))
        guess = program.estimate(cell.settings)
        own = [took for record in done if (took := _took_here(record))]
        if own := own or before.get(cell.name):
            seconds, basis = statistics.median(own), "as before"
        elif alike := before.get(matrix.digest(cell.settings["store"])):
            seconds, basis = statistics.median(alike), f"as cells on {cell.levels['store']} before"
        else:
            seconds, basis = guess["seconds"] + _CELL_OVERHEAD_S, "estimated"
        rows.append((cell, to_do, seconds, basis))
        totals["records"] += to_do
        totals["seconds"] += seconds * to_do
        totals["bytes"] += guess["bytes"] * to_do
        totals["requests"] += guess["requests"] * to_do * stores.of(cell.settings["store"]).elsewhere
    datasets = matrix.datasets(cells)
    absent = [name for name in datasets if not Path("results", config["run"], "data", name, "manifest.json").exists()]
    disk = sum(program.data_bytes(datasets[name]) for name in absent)
    return {"cells": rows, "omitted": omitted, "disk_bytes": disk, **totals}


def _seconds_before(study: str) -> dict[str, list[float]]:
    """Return what steps of a study took on this machine, in seconds, by the name of their cell and a hash of its store.

    They are those of the last session in which there were any. Of each cell in results/ one record is read: a plan may
    have thousands.
    """
    sessions: dict[str, dict[str, list[float]]] = {}
    for cell in Path("results").glob(f"*/{study}/records/*/"):
        for _, path in records.repeats(cell):
            with contextlib.suppress(Problem):
                record = read_json(path)
                if took := _took_here(record):
                    store = (record.get("settings") or {}).get("store")
                    for place in (cell.name, matrix.digest(store)):
                        sessions.setdefault(place, {}).setdefault(record.get("session", ""), []).append(took)
                    break
    return {place: seconds[max(seconds)] for place, seconds in sessions.items()}


def _took_here(record: dict) -> float | None:
    """Return the seconds that the step of a record took; None where it was not on this machine, or is not known."""
    return record.get("step_seconds") if record.get("host", {}).get("node") == platform.node() else None


def _builds(config: dict, cells: list[Cell]) -> dict[str, int]:
    """Return the seconds that building takes, by what is built; nothing for what was built before.

    A piece in the cache counts as built whatever it was built from: its inputs are compared when it is needed.
    """
    libraries = [config["libraries"][name] for name in {cell.levels.get("library") for cell in cells} - {None}]
    pieces = {f"{one['kind']}-{one['hdf5']}": _BUILD_S[one["kind"]] for one in libraries}
    needed = stores.needed([config["stores"][name] for name in {cell.levels["store"] for cell in cells}])
    pieces |= {name: _BUILD_S[name] for name in {"azurite" if one == "azurite" else "servers" for one in needed}}
    return {name: took for name, took in pieces.items() if not any(cache_folder().glob(f"{name}-*/{COMPLETE}"))}


def _done(path: Path, run_name: str, study: str) -> dict | None:
    """Return a record that stays; None where there is none, or one that failed or cannot be used: it is done again."""
    with contextlib.suppress(Problem):
        record = records.read(path, run_name, study)
        return record if record["status"] == "done" else None


def _show(config: dict, costs: dict[str, dict], cells: bool) -> None:
    console = Console(stderr=not cells, highlight=False, markup=False, emoji=False)
    for study, one in costs.items():
        exploratory = not configuration.is_series(study) and config["repeats"] < MIN_BLOCKS
        if cells:
            width = max((len(cell.name) for cell, *_ in one["cells"]), default=0)
            for cell, to_do, seconds, basis in one["cells"]:
                each = f"{seconds:5.1f} s each ({basis})"
                console.print(f"{cell.name:{width}}  {to_do:3} to do  {each}", soft_wrap=True)
            for left_out in one["omitted"]:
                levels = " ".join(filter(None, left_out.levels.values()))
                console.print(f"left out: {levels}: {left_out.reason}", soft_wrap=True)
        console.print(
            f"{config['run']}/{study}: {len(one['cells'])} cells, {len(one['omitted'])} left out, "
            f"{one['records']} records to measure: about {_duration(one['seconds'])}, "
            f"{one['bytes'] / 2**30:.2f} GiB to read or write, {one['requests']:.0f} requests to stores elsewhere, "
            f"{one['disk_bytes'] / 2**30:.2f} GiB of data to generate"
            + ("; exploratory: too few repeats for a verdict" if exploratory else ""),
            soft_wrap=True,
        )
    all_cells = [cell for one in costs.values() for cell, *_ in one["cells"]]
    built = _builds(config, all_cells)
    building, totals = sum(built.values()), _totals(costs)
    console.print(
        f"in all: {len(all_cells)} cells, {totals['records']} records: "
        f"about {_duration(totals['seconds'] + building)}, "
        + (f"of which {_duration(building)} build {', '.join(sorted(built))}" if built else "nothing to build")
        + f"; report: reports/{config['run']}/index.html",
        soft_wrap=True,
    )


def _totals(costs: dict[str, dict]) -> dict[str, float]:
    keys = ("records", "seconds", "bytes", "requests", "disk_bytes")
    return {key: sum(one[key] for one in costs.values()) for key in keys}


def _ask(config: dict, costs: dict[str, dict], yes: bool) -> None:
    """Ask before something dear.

    Raises:
        Problem: the answer was no, or there is nobody to ask.
    """
    totals = _totals(costs)
    sums = {"hours": totals["seconds"] / 3600, "gib": totals["bytes"] / 2**30}
    sums |= {"requests": totals["requests"], "disk_gib": totals["disk_bytes"] / 2**30}
    above = [f"{key} {sums[key]:.3g} > {limit:g}" for key, limit in config["ask_above"].items() if sums[key] > limit]
    if not above or yes:
        return
    line = f"this run is above the limits of ask_above: {', '.join(above)}"
    if not sys.stdin.isatty():
        raise Problem(f"{line}; say YES=1 (--yes), or raise them in the configuration")
    if input(f"{line}. Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Problem("nothing was started")


def _folder(config: dict, cell: Cell) -> Path:
    return Path("results", config["run"], cell.study, "records", cell.name)


def _to_repeat(config: dict, names: list[str], words: list[str]) -> set[Path]:
    """Return the folders of the measured cells that are asked for and whose names begin with one of the words.

    Raises:
        Problem: there is none for a word.
    """
    if not words:
        return set()
    cells = [cell for study in names for cell in matrix.selected(matrix.expand(config, study)[0], config["only"])]
    measured = {cell.name: folder for cell in cells if (folder := _folder(config, cell)).is_dir()}
    for word in words:
        if not any(name.startswith(word) for name in measured):
            among = " and is asked for" if config["only"] else ""
            base = Path("results", config["run"])
            raise Problem(f"no measured cell of {base} begins with {word!r}{among}; make plan lists the names")
    return {folder for name, folder in measured.items() if name.startswith(tuple(words))}


def _move_aside(folders: set[Path]) -> None:
    """Move the records of cells aside, from results/<run>/… to results/<run>/again/<now>/…."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for folder in sorted(folders):
        base = Path(*folder.parts[:2])
        target = base / "again" / now / folder.relative_to(base)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
        print(f"moved {folder} to {target}", file=sys.stderr)


def _free_folder(command: list[str]) -> None:
    """Take away the lock of a run that was killed.

    Raises:
        Problem: its run is still going on.
    """
    if not any(Path(".snakemake/locks").glob("*")):
        return
    for process in psutil.process_iter(["cmdline", "cwd"]):
        programs = {os.path.basename(word) for word in (process.info["cmdline"] or [])[:2]}
        if "snakemake" in programs and process.info["cwd"] == os.getcwd():
            raise Problem(f"another run is going on in this folder (process {process.pid}): wait, or use another clone")
    subprocess.run([*command, "--unlock"], capture_output=True, check=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    run(main)
