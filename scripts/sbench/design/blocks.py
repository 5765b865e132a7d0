"""Blocks: all cells of a study, each measured once, in one piece of time (METHOD 2, 5).

A block that another session has begun is closed: what is missing in it stays missing, since a cell that is measured
later has no partner there. It is made good by further blocks of all cells that are selected.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sbench.design import records, validity
from sbench.design import study as studies
from sbench.design.study import Cell
from sbench.probe.program import Problem, read_json, write_json

# Of so many seeded sets of orders the most even is taken; of fewer where that many places would take seconds.
DRAWS, _PLACES = 60, 300_000
# By name of a cell: the blocks in which it has a record, each with its session, or None where the record is unusable.
Measured = Mapping[str, Mapping[int, str | None]]


class Open(NamedTuple):
    """The blocks that a call measures.

    Attributes:
        blocks: numbers of those in which all cells that are selected are measured.
        conditional: those of them that are for the sake of `fresh` cells alone: where what these need cannot be made,
            the others need no more blocks.
        fresh: names of the cells that were never measured.
        needs: the artefacts that those need; without them what is conditional is measured in vain.
        anew: on purpose, and only these: the closed blocks in which a cell is measured anew, by its name.
        draw: number of the set of orders of these blocks; None where cells are measured in the order of the matrix.
    """

    blocks: list[int]
    conditional: list[int]
    fresh: list[str]
    needs: list[str]
    anew: dict[str, list[int]]
    draw: int | None = 0


def get_order_seed(config: dict, study: str) -> str:
    """Return the seed of the orders in which cells of a study are measured; no cell has it in its settings."""
    return f"{config.get('order_seed', config['run'])} {study}"


def build_order(names: Sequence[str], seed: str, block: int, draw: int | None) -> list[str]:
    """Return the names of a study's cells in the order in which a block measures them.

    It is random, another for each `draw`, and the same for two cells whichever others there are. Where `draw` is None,
    as one measurement leaves its traces in the next, it is as given.
    """
    if draw is None:
        return list(names)
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {block} {draw} {name}".encode()).digest())


def choose_draw(cells: Sequence[Cell], compare: Sequence[dict], seed: str, blocks: Sequence[int]) -> int:
    """Return the number of the set of orders, one for each of some blocks, in which compared cells stand most evenly.

    Each order is random, so that no load hits one cell more often than another, whatever its period. Of `DRAWS` such
    sets the chosen one has the smallest largest mean gap between the places of two cells that are compared, so that
    what drifts steadily hits all alike.
    """
    compared_cells, names = list_pairs(cells, compare), [cell.name for cell in cells]

    def compute_largest_gap(draw: int) -> int:
        gaps = [0] * len(compared_cells)
        for block in blocks:
            places = {name: place for place, name in enumerate(build_order(names, seed, block, draw))}
            gaps = [gap + places[other] - places[base] for gap, (base, other) in zip(gaps, compared_cells, strict=True)]
        return max(map(abs, gaps), default=0)

    draws = min(DRAWS, _PLACES // max(1, len(names) * len(blocks)))
    return min(range(max(1, draws)), key=compute_largest_gap)


def get_draw(opened: Open, appended: Path, block: int) -> int | None:
    """Return the number of the set of orders that a block is of; `appended` says what was appended to a call."""
    if opened.draw is not None and block not in opened.blocks:
        with contextlib.suppress(Problem, KeyError):
            added = read_json(appended)
            return added["draw"] if block in added["blocks"] else opened.draw
    return opened.draw


def list_factor_pairs(levels: Mapping[str, Mapping[str, str]], factor: str, baseline: str) -> list[tuple[str, str]]:
    """Return the (baseline, contender) of a comparison: cells, by name, that differ in the factor alone."""
    places = {name: tuple(level for key, level in own.items() if key != factor) for name, own in levels.items()}
    bases = {places[name]: name for name, own in levels.items() if own[factor] == baseline}
    others = [name for name, own in levels.items() if own[factor] != baseline]
    return [(bases[places[name]], name) for name in others if places[name] in bases]


def list_pairs(cells: Iterable[Cell], compare: Sequence[dict]) -> list[tuple[str, str]]:
    """Return the pairs of cells that are compared with each other: as `compare` asks, and twins."""
    levels = {cell.name: cell.levels for cell in cells}
    originals = {cell.name: cell.levels for cell in cells if not cell.twin_of}
    of_twins = [(cell.twin_of, cell.name) for cell in cells if cell.twin_of in levels]
    named = (list_factor_pairs(originals, entry["factor"], str(entry["baseline"])) for entry in compare)
    return [*of_twins, *itertools.chain(*named)]


def count_cut_pairs(cells: Iterable[Cell], names: Collection[str], compare: Sequence[dict]) -> int:
    """Return how many comparisons have one cell among `names` and the other one not."""
    return sum((base in names) != (other in names) for base, other in list_pairs(cells, compare))


def read_measured_blocks(config: dict, cells: Iterable[Cell]) -> Measured:
    """Return what the records in results/ say of cells; a step that was skipped has measured nothing."""
    sessions: dict[str, dict[int, str | None]] = {}
    for cell in cells:
        for block, path in records.list_repeats(Path("results", config["run"], cell.study, "records", cell.name)):
            session = None
            with contextlib.suppress(Problem):
                record = records.read_record(path, config["run"], cell.study)
                if "cause" in record:
                    continue
                # One that was ended by its time limit has a time, of at least that.
                usable = (
                    record.get("timed_out_s") or records.is_injected_failure(record) or not validity.list_faults(record)
                )
                session = record.get("session", "") if usable else None
            sessions.setdefault(cell.name, {})[block] = session
    return sessions


def count_lacking_blocks(cells: Sequence[Cell], compare: Sequence[dict], sessions: Measured, repeats: int) -> int:
    """Return how many more blocks it takes until every cell and comparison has so many.

    A comparison counts the blocks in which both of its cells were measured in one session. A cell that has failed in
    every block is not waited for; where all have, all blocks are lacking.
    """
    given_up = list_failing_cells(cells, sessions)
    waited = {cell.name: cell for cell in cells if cell.name not in given_up}
    usable = {
        name: {block: session for block, session in sessions.get(name, {}).items() if session is not None}
        for name in waited
    }
    counts = [len(usable[base].items() & usable[other].items()) for base, other in list_pairs(waited.values(), compare)]
    counts += [len(blocks) for blocks in usable.values()]
    return max(0, repeats - min(counts, default=0)) if cells else 0


def list_failing_cells(cells: Iterable[Cell], sessions: Measured) -> list[str]:
    """Return the names of the cells that were measured and have no record that can be used."""
    return [cell.name for cell in cells if cell.name in sessions and set(sessions[cell.name].values()) == {None}]


def choose_blocks(config: dict, selected: Sequence[Cell], sessions: Measured) -> Open:
    """Return the blocks in which a call measures the cells of a study that are selected.

    `sessions` says what was measured of all cells of the study.
    """
    if not selected:
        return Open([], [], [], [], {})
    study = studies.get_study(selected[0].study)
    in_turn = study.is_in_turn(config, selected)
    if words := tuple(config["again"]):
        named = (cell.name for cell in selected if cell.name.startswith(words) and cell.name in sessions)
        anew = {name: sorted(sessions[name]) for name in named}
        return Open([], [], [], [], anew, None if in_turn else 0)
    compare, repeats = study.get_section(config)["compare"], study.count_repeats(config)
    fresh = [cell for cell in selected if cell.name not in sessions]
    needs = list_library_artefacts(config["run"], fresh) + list_data_artefacts(config["run"], fresh)
    measured_before = [cell for cell in selected if cell.name in sessions]
    blocks = list_next_blocks(list_begun_blocks(sessions), count_lacking_blocks(selected, compare, sessions, repeats))
    certain = count_lacking_blocks(measured_before, compare, sessions, repeats) if measured_before else len(blocks)
    draw = None if in_turn else choose_draw(selected, compare, get_order_seed(config, study.name), blocks)
    return Open(blocks, blocks[certain:], [cell.name for cell in fresh], needs, {}, draw)


def list_library_artefacts(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefacts of the libraries under test of cells; none where there is no library under test."""
    return [f"results/{run}/environments/{name}.json" for name in sorted({cell.library for cell in cells} - {""})]


def list_data_artefacts(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefacts of the data of cells in their stores; none where they read none."""
    stored = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{run}/data/{data}/{store}.json" for data, store in sorted(stored)]


def list_begun_blocks(sessions: Measured) -> set[int]:
    """Return the numbers of the blocks in which anything was measured."""
    return {block for blocks in sessions.values() for block in blocks}


def list_next_blocks(numbers: Collection[int], many: int) -> list[int]:
    """Return the numbers of so many blocks after those."""
    last = max(numbers, default=0)
    return list(range(last + 1, last + 1 + many))


def get_last_block(opened: Open) -> int:
    """Return the number of the last block in which a call measures anything, 0 where it measures nothing."""
    return max(itertools.chain(opened.blocks, *opened.anew.values()), default=0)


def read_blocks(path: Path) -> Open:
    """Return what `write_blocks` wrote: what the call decided of which this process is a job."""
    return Open(**read_json(path))


def read_needs(path: Path | None, block: int) -> list[Path]:
    """Return the artefacts without which a block is measured in vain, as `write_blocks` wrote; none without a file."""
    opened = read_blocks(path) if path else None
    return list(map(Path, opened.needs)) if opened and block in opened.conditional else []


def write_blocks(path: Path, opened: Open) -> None:
    """Write which blocks of a study are measured."""
    write_json(path, opened._asdict())
