"""Blocks: all cells of a study, each measured once, in one piece of time (METHOD 2, 5).

A block that another session has begun is closed: what is missing in it stays missing, since a cell that is measured
later has no partner there. It is made good by further blocks of all cells that are selected.
"""

import contextlib
import itertools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.frame import records
from scripts.frame import study as studies
from scripts.frame.study import Cell
from scripts.lib.program import Problem, read_json, write_json

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
    """

    blocks: list[int]
    conditional: list[int]
    fresh: list[str]
    needs: list[str]
    anew: dict[str, list[int]]


def order(names: Sequence[str], seed: str, block: int, in_series: bool) -> list[str]:
    """Return the names of a study's cells in the order in which a block measures them.

    It is random in odd blocks and mirrored in the even ones that follow them, so that what drifts steadily hits all
    cells alike. Where one measurement leaves its traces in the next, as credits of a volume do, it is as given.
    """
    if in_series:
        return list(names)
    mixed = sorted(names)
    random.Random(f"{seed} {(block + 1) // 2}").shuffle(mixed)
    return mixed if block % 2 else mixed[::-1]


def compared(levels: Mapping[str, Mapping[str, str]], factor: str, baseline: str) -> list[tuple[str, str]]:
    """Return the (baseline, contender) of a comparison: cells, by name, that differ in the factor alone."""
    places = {name: tuple(level for key, level in own.items() if key != factor) for name, own in levels.items()}
    bases = {places[name]: name for name, own in levels.items() if own[factor] == baseline}
    others = [name for name, own in levels.items() if own[factor] != baseline]
    return [(bases[places[name]], name) for name in others if places[name] in bases]


def pairs(cells: Iterable[Cell], compare: Sequence[dict]) -> list[tuple[str, str]]:
    """Return the pairs of cells that are compared with each other: as `compare` asks, and twins."""
    levels = {cell.name: cell.levels for cell in cells}
    originals = {cell.name: cell.levels for cell in cells if not cell.twin_of}
    of_twins = [(cell.twin_of, cell.name) for cell in cells if cell.twin_of in levels]
    named = (compared(originals, entry["factor"], str(entry["baseline"])) for entry in compare)
    return [*of_twins, *itertools.chain(*named)]


def cut(cells: Iterable[Cell], names: Collection[str], compare: Sequence[dict]) -> int:
    """Return how many comparisons have one cell among `names` and the other one not."""
    return sum((base in names) != (other in names) for base, other in pairs(cells, compare))


def measured(config: dict, cells: Iterable[Cell]) -> Measured:
    """Return what the records in results/ say of cells; a step that was skipped has measured nothing."""
    sessions: dict[str, dict[int, str | None]] = {}
    for cell in cells:
        for block, path in records.repeats(Path("results", config["run"], cell.study, "records", cell.name)):
            session = None
            with contextlib.suppress(Problem):
                record = records.read(path, config["run"], cell.study)
                if "cause" in record:
                    continue
                # One that was ended by its time limit has a time, of at least that.
                usable = record.get("timed_out_s") or records.gave_in(record) or not records.faults(record)
                session = record.get("session", "") if usable else None
            sessions.setdefault(cell.name, {})[block] = session
    return sessions


def lacking(cells: Sequence[Cell], compare: Sequence[dict], sessions: Measured, repeats: int) -> int:
    """Return how many more blocks it takes until every cell and comparison has so many.

    A comparison counts the blocks in which both of its cells were measured in one session. A cell that has failed in
    every block is not waited for; where all have, all blocks are lacking.
    """
    given_up = failing(cells, sessions)
    waited = {cell.name: cell for cell in cells if cell.name not in given_up}
    usable = {
        name: {block: session for block, session in sessions.get(name, {}).items() if session is not None}
        for name in waited
    }
    counts = [len(usable[base].items() & usable[other].items()) for base, other in pairs(waited.values(), compare)]
    counts += [len(blocks) for blocks in usable.values()]
    return max(0, repeats - min(counts, default=0)) if cells else 0


def failing(cells: Iterable[Cell], sessions: Measured) -> list[str]:
    """Return the names of the cells that were measured and have no record that can be used."""
    return [cell.name for cell in cells if cell.name in sessions and set(sessions[cell.name].values()) == {None}]


def decide(config: dict, selected: Sequence[Cell], sessions: Measured) -> Open:
    """Return the blocks in which a call measures the cells of a study that are selected.

    `sessions` says what was measured of all cells of the study.
    """
    if not selected:
        return Open([], [], [], [], {})
    study = studies.of(selected[0].study)
    if words := tuple(config["again"]):
        named = (cell.name for cell in selected if cell.name.startswith(words) and cell.name in sessions)
        return Open([], [], [], [], {name: sorted(sessions[name]) for name in named})
    compare, repeats = study.section(config)["compare"], study.repeats(config)
    fresh = [cell for cell in selected if cell.name not in sessions]
    needs = libraries_of(config["run"], fresh) + data_of(config["run"], fresh)
    measured_before = [cell for cell in selected if cell.name in sessions]
    blocks = after(begun(sessions), lacking(selected, compare, sessions, repeats))
    certain = lacking(measured_before, compare, sessions, repeats) if measured_before else len(blocks)
    return Open(blocks, blocks[certain:], [cell.name for cell in fresh], needs, {})


def libraries_of(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefacts of the libraries under test of cells; none where there is no library under test."""
    names = {cell.levels["library"] for cell in cells if "library" in cell.levels}
    return [f"results/{run}/environments/{name}.json" for name in sorted(names)]


def data_of(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefacts of the data of cells in their stores; none where they read none."""
    stored = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{run}/data/{data}/{store}.json" for data, store in sorted(stored)]


def begun(sessions: Measured) -> set[int]:
    """Return the numbers of the blocks in which anything was measured."""
    return {block for blocks in sessions.values() for block in blocks}


def after(numbers: Collection[int], many: int) -> list[int]:
    """Return the numbers of so many blocks after those."""
    last = max(numbers, default=0)
    return list(range(last + 1, last + 1 + many))


def last(opened: Open) -> int:
    """Return the number of the last block in which a call measures anything, 0 where it measures nothing."""
    return max(itertools.chain(opened.blocks, *opened.anew.values()), default=0)


def read(run: str, study: str) -> Open:
    """Return what `write` wrote: what the call decided of which this process is a job."""
    return Open(**read_json(_path(run, study)))


def needs(path: Path | None, block: int) -> list[Path]:
    """Return the artefacts without which a block is measured in vain, by what `write` wrote; none without a file."""
    opened = Open(**read_json(path)) if path else None
    return list(map(Path, opened.needs)) if opened and block in opened.conditional else []


def write(run: str, study: str, opened: Open) -> None:
    """Write which blocks of a study are measured, to results/<run>/<study>/blocks.json."""
    write_json(_path(run, study), opened._asdict())


def _path(run: str, study: str) -> Path:
    return Path("results", run, study, "blocks.json")
