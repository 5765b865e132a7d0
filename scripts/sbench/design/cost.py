"""What a run still has to measure: how long it takes, what it reads and asks for, and what each figure comes from."""

import contextlib
import itertools
import statistics
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from sbench.design import blocks, matrix, records
from sbench.design import study as studies
from sbench.design.study import Cell
from sbench.probe import host
from sbench.probe.program import Problem, read_json
from sbench.stores import store as stores

# What a cell costs beside its reading: Snakemake, the servers, the workers' start and end (`make bench` measures it).
_CELL_OVERHEAD_S = 1.6
# What a study takes beside its cells on 2 idle cores, most of it its page; a job that makes data or puts them into a
# store; and so many bytes a second of these.
_STUDY_S, _JOB_S, _MADE_BYTES_S, _PUT_BYTES_S = 20, 1, 20 * 2**20, 100 * 2**20
# Objects are uploaded in parts of this size where nothing else is said.
_PART_BYTES = 2**24


class Totals(dict[str | tuple[str, str], float]):
    """Sums by what they are of, or by that and a store; 0 of what nothing was added to."""

    def __missing__(self, key: str | tuple[str, str]) -> float:
        """Return 0, and keep no key for it."""
        return 0


class Cost(NamedTuple):
    """What a study has still to measure.

    Attributes:
        cells: (cell, records to do, seconds each, what these come from).
        omitted: the combinations that are left out.
        totals: the sums: records, seconds, bytes, requests to stores elsewhere, disk_bytes, made_bytes; seconds_least,
            the part of the seconds that may take longer; seconds_beside, the seconds for data, tables and pages; and
            by store, as (what, store): gets, puts and bytes.
    """

    cells: list[tuple[Cell, int, float, str]]
    omitted: list[matrix.Omitted]
    totals: Totals


def estimate_cost(
    config: dict, study: str, cells: list[Cell], omitted: list[matrix.Omitted], opened: blocks.Open
) -> Cost:
    """Estimate what a study still has to measure.

    The seconds of a cell are those of its last records on this machine; else its forecast; else its study's estimate,
    scaled by the ratio of both for cells on the same store here; else the published time of such a cell; else the
    estimate.
    """
    program, (seconds_of, ratios) = studies.get_study(study), _read_step_times(study)
    rows: list[tuple[Cell, int, float, str]] = []
    totals = Totals()
    for cell in cells:
        to_do = len(opened.blocks) + len(opened.anew.get(cell.name, []))
        guess = program.estimate_record(cell.settings)
        before_s = guess.get("before_s", 0)
        if own := seconds_of.get(cell.name):
            seconds, basis = statistics.median(own), "as before"
        elif (forecast := program.compute_forecast(cell, config)) is not None:
            seconds, basis = forecast + _CELL_OVERHEAD_S, "forecast"
        elif alike := ratios.get(matrix.compute_digest(cell.settings["store"])):
            seconds = statistics.median(alike) * _estimate_step_seconds(guess) + before_s
            basis = f"estimated by cells on {cell.levels['store']} before"
        elif published := program.find_published_time(cell.settings):
            seconds, basis = published[0] + _CELL_OVERHEAD_S, published[1]
        else:
            seconds, basis = _estimate_step_seconds(guess) + before_s, "estimated"
        # A forecast leaves out what libraries compute.
        is_least = basis == "forecast" or (basis == "estimated" and guess.get("least", False))
        totals["seconds_least"] += seconds * to_do * is_least
        basis += f", {before_s / 3600:.1f} h of it before the cell begins" if before_s else ""
        rows.append((cell, to_do, seconds, basis))
        for what, amount in _estimate_record(cell, guess, seconds).items():
            totals[what] += amount * to_do
    for name, data in matrix.list_datasets(cells).items():
        folder = Path("results", config["run"], "data", name)
        if not (folder / "manifest.json").exists():
            totals["disk_bytes"] += program.estimate_data_bytes(data)
            totals["made_bytes"] += program.estimate_made_bytes(data)
            totals["seconds_beside"] += _JOB_S + program.estimate_data_bytes(data) / _MADE_BYTES_S
        for store in {cell.levels["store"] for cell in cells if cell.dataset == name}:
            if not (folder / f"{store}.json").exists():
                totals["puts", store] += max(
                    program.count_data_objects(data), program.estimate_data_bytes(data) // _PART_BYTES
                )
                totals["seconds_beside"] += _JOB_S + program.estimate_data_bytes(data) / _PUT_BYTES_S
    if totals["records"] or program.get_section(config).get("imports"):
        totals["seconds_beside"] += _STUDY_S
    return Cost(rows, omitted, totals)


def compute_totals(costs: dict[str, Cost]) -> Totals:
    """Return the sums over all studies that are not 0."""
    totals = Totals()
    for what, amount in itertools.chain(*(cost.totals.items() for cost in costs.values())):
        totals[what] += amount
    return Totals({what: amount for what, amount in totals.items() if amount > 0})


def describe_time(totals: Totals, more: float = 0) -> str:
    """Return in words how long records and so many seconds `more` take; where most was never timed, it is a least."""
    least = 2 * totals["seconds_least"] > totals["seconds"] + more
    return f"{'at least' if least else 'about'} {format_duration(totals['seconds'] + more)}"


def format_duration(seconds: float) -> str:
    """Return seconds in the unit that people would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _estimate_record(cell: Cell, guess: dict, seconds: float) -> Totals:
    """Return what one record of a cell adds to the sums."""
    store, puts = cell.levels["store"], guess.get("puts", 0)
    requests = guess["requests"] * stores.get_store(cell.settings["store"]).elsewhere
    each = Totals({"records": 1, "seconds": seconds, "bytes": guess["bytes"], "requests": requests})
    each["gets", store], each["puts", store], each["bytes", store] = guess["requests"] - puts, puts, guess["bytes"]
    return each


def _estimate_step_seconds(guess: dict) -> float:
    """Return the seconds of a cell's step by its study's estimate, once it begins."""
    return float(guess["seconds"] - guess.get("before_s", 0) + _CELL_OVERHEAD_S)


def _read_step_times(study: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return what a study's steps took: seconds by cell, and by store (a hash of it) the ratio to their estimate."""
    # Of the last session that has any, by one record of each cell: a plan may have thousands.
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in Path("results").glob(f"*/{study}/records/*/"):
        for _, path in records.list_repeats(cell):
            # What an earlier version wrote may lack what is estimated by now.
            with contextlib.suppress(Problem, LookupError, TypeError, ValueError, AttributeError, OSError):
                record = read_json(path)
                here = record.get("host", {}).get("node") == host.get_node_name()
                if here and (took := record.get("step_seconds")):
                    session = record.get("session", "")
                    taken[cell.name][session].append(took)
                    guess = _estimate_step_seconds(studies.get_study(study).estimate_record(record["settings"]))
                    ratios[matrix.compute_digest(record["settings"]["store"])][session].append(took / guess)
                    break
    seconds_of, ratios_of = ({place: of[max(of)] for place, of in by_place.items()} for by_place in (taken, ratios))
    return seconds_of, ratios_of
