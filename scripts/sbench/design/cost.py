"""Estimate the cost of a run before it starts: time, bytes and requests, with the source of each time estimate."""

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

# Seconds per cell in addition to the reads: Snakemake, servers, starting and stopping workers (see `make bench`).
_CELL_OVERHEAD_S = 1.6
# Seconds per study in addition to its cells (on 2 idle cores; mostly its page), overhead of a job that generates or
# uploads data, and bytes per second of generating and of uploading.
_STUDY_S, _JOB_S, _MADE_BYTES_S, _PUT_BYTES_S = 20, 1, 20 * 2**20, 100 * 2**20
# The default part size of multipart uploads.
_PART_BYTES = 2**24


class Totals(dict[str | tuple[str, str], float]):
    """Sums by quantity or by (quantity, store). Missing keys have the value 0."""

    def __missing__(self, key: str | tuple[str, str]) -> float:
        """Return 0 without storing the key."""
        return 0


class Cost(NamedTuple):
    """The estimated cost of a study's remaining measurements.

    Attributes:
        cells: a tuple (cell, remaining records, seconds per record, source of this estimate) for each cell.
        omitted: the combinations of levels that are not measured.
        totals: sums over the study. Keys: records, seconds, bytes, requests (to remote stores only), disk_bytes,
            made_bytes; seconds_least (the part of the seconds that is only a lower bound); seconds_beside (seconds for
            data, tables and pages); and, for each store, (gets, store), (puts, store) and (bytes, store).
    """

    cells: list[tuple[Cell, int, float, str]]
    omitted: list[matrix.Omitted]
    totals: Totals


def estimate_cost(
    config: dict, study: str, cells: list[Cell], omitted: list[matrix.Omitted], opened: blocks.Open
) -> Cost:
    """Estimate the cost of the remaining measurements of a study.

    The time of a cell is the first of these that is available:

    1. the time that its records took in the latest session on this machine;
    2. its forecast;
    3. its study's estimate, corrected by the ratio of measured to estimated time of other cells on the same store here;
    4. a published time of such a cell;
    5. its study's estimate.
    """
    program, (seconds_of, ratios) = studies.get_study(study), _read_step_times(study)
    rows: list[tuple[Cell, int, float, str]] = []
    totals = Totals()
    for cell in cells:
        to_do = len(opened.blocks) * len(opened.order.select_cells([cell.name]))
        to_do += len(opened.anew.get(cell.name, []))
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
        # A forecast does not include the libraries' CPU time.
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
    """Add up the totals of all studies, and return those that are positive."""
    totals = Totals()
    for what, amount in itertools.chain(*(cost.totals.items() for cost in costs.values())):
        totals[what] += amount
    return Totals({what: amount for what, amount in totals.items() if amount > 0})


def describe_time(totals: Totals, more: float = 0) -> str:
    """Format the time of all records plus `more` seconds.

    The text begins with "at least" if lower bounds make up more than half of the time, else with "about".
    """
    least = 2 * totals["seconds_least"] > totals["seconds"] + more
    return f"{'at least' if least else 'about'} {format_duration(totals['seconds'] + more)}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, depending on its length."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _estimate_record(cell: Cell, guess: dict, seconds: float) -> Totals:
    store, puts = cell.levels["store"], guess.get("puts", 0)
    requests = guess["requests"] * stores.get_store(cell.settings["store"]).elsewhere
    each = Totals({"records": 1, "seconds": seconds, "bytes": guess["bytes"], "requests": requests})
    each["gets", store], each["puts", store], each["bytes", store] = guess["requests"] - puts, puts, guess["bytes"]
    return each


def _estimate_step_seconds(guess: dict) -> float:
    """Return the estimated seconds of a cell's measuring job without the cell's preparation.

    `guess` is the study's estimate (see `Study.estimate_record`).
    """
    return float(guess["seconds"] - guess.get("before_s", 0) + _CELL_OVERHEAD_S)


def _read_step_times(study: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Read how long the measuring jobs of a study took on this machine, in all runs.

    Returns:
        Two mappings from the latest session that has values: cell name -> seconds, and digest of the store's settings
        -> ratios of measured to estimated seconds.
    """
    # Read only one record of each cell in each run, because a study may have thousands of records.
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in Path("results").glob(f"*/{study}/records/*/"):
        for _, path in records.list_repeats(cell):
            # Records of an earlier version may lack fields that estimates need.
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
