"""Plan the measurements of a call: its cells and blocks, their cost, and a forecast of further rounds."""

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sbench.build import environments, servers
from sbench.build.cache import find_piece, set_build_copy
from sbench.design import blocks, cost, matrix, prices, schema
from sbench.design import config as configuration
from sbench.design import study as studies
from sbench.design.cost import Cost
from sbench.design.study import Cell
from sbench.measure import preflight
from sbench.measure.forecast import Forecast, add_forecasts, forecast_rounds
from sbench.probe import sizes, slurm
from sbench.probe.program import Problem, print_json
from sbench.stores import store as stores
from sbench.verdicts import MIN_BLOCKS

# Build times in seconds on 2 idle cores, by kind of library or by server.
_BUILD_S = {"source": 240, "wheel": 20, "conda": 120, "versitygw": 60, "toxiproxy": 30, "azurite": 30}
# The minimum and maximum overhead of a Slurm job in seconds (docs/hpc.md).
_JOB_S = (20, 45)


class Plan(NamedTuple):
    """The measurements that a run would make.

    Attributes:
        file: the configuration file.
        config: the resolved configuration, including changes from the command line.
        changes: only the changes from the command line, to pass to Snakemake.
        cells: study -> the selected cells.
        costs: study -> the estimated cost.
        notes: study -> messages about the blocks to be measured.
        forecasts: study -> the forecast of its rounds, for studies that are measured until they are decided.
    """

    file: str
    config: dict
    changes: dict
    cells: dict[str, list[Cell]]
    costs: dict[str, Cost]
    notes: dict[str, list[str]]
    forecasts: dict[str, Forecast]


def make_plan(
    file: str,
    name: str = "",
    study: str = "",
    only: Sequence[str] = (),
    again: Sequence[str] = (),
    imports: Sequence[str] = (),
    budget: str = "",
    simulates: bool = False,
    session: str | None = None,
) -> Plan:
    """Plan the measurements of a configuration.

    Args:
        file: the configuration file.
        name: the name of the run; overrides the configured name.
        study: measure this study only.
        only: restrict the measurements to cells with these levels, each given as FACTOR=LEVEL,….
        again: prefixes of the names of cells to measure again.
        imports: paths of external results to report; override the configured paths.
        budget: the maximum measuring time per study, such as 10m; overrides the configured budget.
        simulates: whether to simulate runs, for the likely duration of all rounds.
        session: the index of the session on one of several machines, which becomes a part of the run's name.

    Raises:
        Problem: an argument is invalid or names something that does not exist.
    """
    changes: dict = {"run": _parse_run_name(name)} if name else {}
    if session is not None:
        run = name or configuration.load_config(file)["run"]
        changes["run"] = f"{run}-session-{_parse_session(session)}"
    changes |= {"budget_s": parse_duration(budget)} if budget else {}
    config = configuration.load_config(file, changes)
    if budget and "most_repeats" not in config:
        raise Problem(f"--budget needs most_repeats in {file}, the largest number of repeats; add most_repeats: 20")
    if imports:
        paths = list(map(os.path.abspath, imports))
        changes["studies"] = {name: {"imports": paths} for name, own in config["studies"].items() if "imports" in own}
        if not changes["studies"]:
            raise Problem(f"{file} contains no study that imports results; name another configuration")
        for importing, section in changes["studies"].items():
            config["studies"][importing] |= section
        configuration.expect_plain(config, "the command line")
    if chosen := _parse_only(config, [*only, *([f"study={study}"] if study else [])]):
        changes["only"] = config["only"] = chosen
    expanded = matrix.expand_all(config, [file])
    cells = {
        study: matrix.select_cells(expanded[study][0], config["only"])
        for study in config["only"].get("study", config["studies"])
    }
    if again:
        _expect_measured(config, [cell for of_study in cells.values() for cell in of_study], again)
        changes["again"] = config["again"] = list(again)
    opened = {study: blocks.open_blocks(config, cells[study], expanded[study][0]) for study in cells}
    costs = {
        study: cost.estimate_cost(config, study, cells[study], expanded[study][1], opened[study]) for study in cells
    }
    notes = {
        study: [*_describe_pairing(config, study, expanded[study][0], cells[study], opened[study])] for study in cells
    }
    forecasts = {
        study: forecast
        for study in cells
        if (forecast := forecast_rounds(config, studies.get_study(study), cells[study], costs[study], simulates))
    }
    return Plan(file, config, changes, cells, costs, notes, forecasts)


def print_plan(plan: Plan, as_json: bool = False) -> int:
    """Print a plan with a line for each cell, or as a JSON object with times in seconds. Return the exit status 0."""
    if as_json:
        by_study = {
            study: _to_json(own)
            | {"notes": plan.notes[study]}
            | ({"rounds_seconds": plan.forecasts[study]._asdict()} if study in plan.forecasts else {})
            for study, own in plan.costs.items()
        }
        print_json({"run": plan.config["run"], "studies": by_study})
        return 0
    for what, fine, detail in preflight.check_inputs(plan.config):
        print(f"{'' if fine else 'FAILED '}{what}: {detail}")
    for note in preflight.check_begun_libraries(plan.config):
        print(note)
    print_costs(plan, listed=True)
    return 0


def _to_json(costs: Cost) -> dict:
    keys = ("cell", "records", "seconds_each", "basis")
    return {
        "cells": [dict(zip(keys, (cell.name, *of), strict=True)) for cell, *of in costs.cells],
        "left_out": [{"levels": one.levels, "reason": one.reason} for one in costs.omitted],
        "totals": {" ".join([key] if isinstance(key, str) else key): value for key, value in costs.totals.items()},
    }


def parse_duration(text: str) -> float:
    """Convert a duration such as 90s, 10m or 1.5h to seconds. A number without a unit is in seconds.

    Raises:
        Problem: the text is not a duration.
    """
    if not (match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)):
        raise Problem(f"a duration must be a number with s, m or h, such as 10m (got {text!r})")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _parse_run_name(text: str) -> str:
    """Check and return the name of a run that was given on the command line.

    Raises:
        Problem: Snakemake would parse the name as a number.
    """
    with contextlib.suppress(ValueError):
        float(text)
        raise Problem(f"--name must not be a number (got {text!r}); put a letter before it, such as --name day-{text}")
    return text


def _parse_session(text: str) -> int:
    """Parse the index of a session.

    Raises:
        Problem: it is not an integer of at least 0.
    """
    if not re.fullmatch("[0-9]{1,9}", text):
        raise Problem(f"--session must be an integer of at least 0, such as --session 3 (got {text!r})")
    return int(text)


def _parse_only(config: dict, words: Sequence[str]) -> dict[str, list[str]]:
    """Parse selections such as library=a,b and workers=1, and merge them into the configured `only`.

    Raises:
        Problem: the syntax is wrong, or the configuration does not contain the study, factor or level.
    """
    only = dict(config["only"])
    for word in words:
        factor, equals, levels = word.partition("=")
        if not equals or not levels:
            raise Problem(f"{word!r} is not FACTOR=LEVEL; write for example --only library=hdf5-2.0.0 workers=1,2")
        only[factor] = levels.split(",")
    configuration.validate_only(config | {"only": only}, "the command line")
    return only


def _estimate_builds(config: dict, cells: list[Cell]) -> dict[str, int]:
    """Estimate the time in seconds of each build that the cells need and that is not yet in the cache."""
    seconds: Counter[str] = Counter()
    for name, library in matrix.list_libraries(cells).items():
        with set_build_copy(library.get("copy", "")):
            if library["kind"] in _BUILD_S and not environments.is_built(name, library):
                seconds[f"{library['kind']}-{library['hdf5']}"] += _BUILD_S[library["kind"]]
    needed = stores.list_needed_servers([config["stores"][name] for name in {cell.levels["store"] for cell in cells}])
    return seconds | {name: _BUILD_S[name] for name in needed if not find_piece(servers.create_server_recipe(name))}


def print_costs(plan: Plan, listed: bool) -> float:
    """Print the cost of each study with its notes, and the total cost.

    If `listed`, also print each cell and each omitted combination, and use standard output instead of standard error.

    Returns:
        The expected duration of the whole run in seconds.
    """
    say, config, costs = partial(print, file=sys.stdout if listed else sys.stderr), plan.config, plan.costs
    for study, own in costs.items():
        width = max((len(cell.name) for cell, *_ in own.cells), default=0)
        for cell, to_do, seconds, basis in own.cells if listed else ():
            say(f"{cell.name:{width}}  {to_do:3} to do  {seconds:5.1f} s each ({basis})")
        for left_out in own.omitted if listed else ():
            say(f"left out: {' '.join(filter(None, left_out.levels.values()))}: {left_out.reason}")
        if config["studies"][study].get("imports") and not own.cells:
            files = len(studies.get_study(study).list_sources(config))
            say(f"{config['run']}/{study}: {sizes.format_count(files, 'file')} of results from elsewhere to import")
            continue
        exploratory = not schema.is_series(study) and config["repeats"] < MIN_BLOCKS
        totals = own.totals
        say(
            f"{config['run']}/{study}: {len(own.cells)} cells, {len(own.omitted)} left out, "
            f"{totals['records']} records to measure: {cost.describe_time(totals)}, "
            f"{totals['bytes'] / 2**30:.2f} GiB to read or write, "
            f"{totals['requests']:.0f} requests to stores elsewhere, "
            f"{totals['disk_bytes'] / 2**30:.2f} GiB of data to generate"
            + ("; exploratory: too few repeats for a verdict" if exploratory else "")
        )
        forecast = [plan.forecasts[study].describe()] if study in plan.forecasts and len(costs) > 1 else []
        for note in plan.notes[study] + forecast:
            say(f"  {note}")
    cells, totals = (
        [(cell, to_do) for own in costs.values() for cell, to_do, *_ in own.cells],
        cost.compute_totals(costs),
    )
    built = _estimate_builds(config, [cell for cell, to_do in cells if to_do])
    building, beside = sum(built.values()), totals["seconds_beside"]
    if slurm.has_nodes_elsewhere() and totals["records"]:
        jobs = sum(max(to_do for _, to_do, *_ in own.cells) for own in costs.values() if own.cells)
        least, most = (cost.format_duration(jobs * each) for each in _JOB_S)
        say(
            f"with --workflow-profile profiles/slurm: {jobs} blocks, each a job, take about {least} to {most} more,"
            " plus their time in the queue"
        )
    parts = [f"{cost.format_duration(building)} to build {', '.join(sorted(built))}"] * bool(built)
    parts += [f"{cost.format_duration(beside)} for data and pages"] * bool(beside)
    seconds = totals["seconds"] + building + beside
    say(
        "in all: "
        + f"{sizes.format_count(len(cells), 'cell')}, {sizes.format_count(int(totals['records']), 'record')}: "
        * bool(cells)
        + cost.describe_time(totals, building + beside)
        + f", including {' and '.join(parts)}" * bool(parts)
        + ", nothing to build" * (not built)
        + f"; report: reports/{config['run']}/index.html"
    )
    if bill := prices.compute_bill(config, totals, seconds):
        say(f"cost: {bill.line}")
    if plan.forecasts:
        whole, largest = add_forecasts(costs, plan.forecasts, building + beside)
        bill = prices.compute_bill(config, largest, whole.most)
        say(whole.describe() + (f", about {bill.usd:.2f} USD" if bill else ""))
    return seconds


def _describe_pairing(
    config: dict, study: str, cells: list[Cell], selected: list[Cell], opened: blocks.Open
) -> Iterator[str]:
    compare, names = config["studies"][study]["compare"], {cell.name for cell in selected}
    if opened.blocks and opened.blocks[0] > 1:
        why = "incomplete blocks stay incomplete, as compared cells must share a session"
        if opened.blocks[-1] == studies.get_study(study).count_repeats(config):
            why = f"the configuration sets {opened.blocks[-1]} repeats"
        elif opened.conditional:
            why = f"{sizes.format_count(len(opened.fresh), 'cell')} without a record must share blocks with the others"
        yield f"{_format_blocks(opened.blocks)}, of {sizes.format_count(len(names), 'cell')}, appended: {why}"
    if opened.blocks and (cut := blocks.count_cut_pairs(cells, names, compare)):
        yield f"{sizes.format_count(cut, 'comparison')} not in these blocks: they need cells that are not selected"
    if (
        opened.blocks
        and opened.draw is None
        and compare
        and studies.get_study(study).count_repeats(config) >= MIN_BLOCKS
    ):
        yield "cells run in the order of the matrix, as each affects the next: they are not comparable"
    if opened.anew and (cut := blocks.count_cut_pairs(cells, opened.anew.keys(), compare)):
        anew = sizes.format_count(len(opened.anew), "cell")
        others = sizes.format_count(cut, "comparison")
        yield f"{anew} measured again without the other arm of {others}; sbench run measures both"


def _format_blocks(blocks_opened: list[int]) -> str:
    first, last = blocks_opened[0], blocks_opened[-1]
    return f"block {first}" if first == last else f"blocks {first} to {last}"


def _expect_measured(config: dict, cells: Iterable[Cell], words: Sequence[str]) -> None:
    """Check that each word is a prefix of the name of a measured cell.

    Raises:
        Problem: no measured cell starts with a word.
    """
    base = Path("results", config["run"])
    measured = [cell.name for cell in cells if (base / cell.study / "records" / cell.name).is_dir()]
    for word in words:
        if not any(name.startswith(word) for name in measured):
            selected = "selected and " if config["only"] else ""
            raise Problem(f"no {selected}measured cell of {base} begins with {word!r}; sbench plan lists the names")
