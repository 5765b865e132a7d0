"""Choose the blocks of a call: a block measures every cell of a study once, in one piece of time (METHOD 2, 5).

A later session never completes a block, since a cell measured later lacks a partner in it. Further blocks replace the
missing records, and a run that measures until it can decide adds rounds of blocks of the cells that need them.
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

# Choose the most even of this many seeded sets of orders; of fewer if they have more places, which takes seconds.
DRAWS, _PLACES = 60, 300_000
# Blocks with a record, by cell: block -> session, or None if the record is unusable.
Measured = Mapping[str, Mapping[int, str | None]]


class Order(NamedTuple):
    """Blocks to measure.

    Attributes:
        blocks: numbers of the blocks, each of all `cells`.
        cells: names of the cells; None for all cells.
        round: number of the round, from 1; each round ends with a look at the results.
        draw: number of the set of orders of these blocks; None if cells run in the order of the matrix.
    """

    blocks: list[int]
    cells: list[str] | None = None
    round: int = 1
    draw: int | None = 0

    def select_cells(self, names: Iterable[str]) -> list[str]:
        """Return the names of the cells that the blocks measure."""
        return [name for name in names if self.cells is None or name in self.cells]


class Open(NamedTuple):
    """The blocks that a call begins with.

    Attributes:
        blocks: numbers of the blocks that measure `cells`.
        conditional: those of `blocks` that only `fresh` cells need, and which are useless without `needs`.
        fresh: names of the cells without a record.
        needs: artefacts of the libraries and the data of the fresh cells.
        anew: closed blocks that measure a cell again on request, by the cell's name, and nothing else.
        draw, round, cells: as in `Order`.
    """

    blocks: list[int]
    conditional: list[int]
    fresh: list[str]
    needs: list[str]
    anew: dict[str, list[int]]
    draw: int | None = 0
    round: int = 1
    cells: list[str] | None = None

    @property
    def order(self) -> Order:
        """Return the blocks with their cells, round and orders."""
        return Order(self.blocks, self.cells, self.round, self.draw)


def get_order_seed(config: dict, study: str) -> str:
    """Return the seed of the orders of a study's cells, which is in no cell's settings."""
    return f"{config.get('order_seed', config['run'])} {study}"


def build_order(names: Sequence[str], seed: str, block: int, draw: int | None) -> list[str]:
    """Return the names of a study's cells in the measuring order of a block.

    The order is random, differs between draws, and orders two cells alike whichever other cells there are. Names keep
    their order if `draw` is None, as when a measurement leaves traces in the next.
    """
    if draw is None:
        return list(names)
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {block} {draw} {name}".encode()).digest())


def choose_draw(cells: Sequence[Cell], compare: Sequence[dict], seed: str, blocks: Sequence[int]) -> int:
    """Return the number of the set of orders, with one order per block, that places compared cells most evenly.

    Each order is random, so that no load hits one cell more often than another, whatever its period. Of `DRAWS` sets,
    take the set with the smallest largest mean gap between the places of two compared cells, so that a steady drift
    hits all cells alike.
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


def get_order(opened: Open, looks: Path, block: int) -> Order:
    """Return the order that a block belongs to: of the call's begin, or of a look in the folder `looks`."""
    if block not in opened.blocks:
        for order in read_orders(looks):
            if block in order.blocks:
                return order
    return opened.order


def read_orders(looks: Path) -> list[Order]:
    """Return the orders of the looks of a call, in their order; the last may have no blocks."""
    orders = []
    for number in itertools.count(1):
        try:
            orders.append(read_order(looks / f"{number}.json"))
        except (Problem, KeyError):
            break
    return orders


def read_order(path: Path) -> Order:
    """Return the order in the file of a look."""
    look = read_json(path)
    return Order(*(look[name] for name in Order._fields))


def list_factor_pairs(levels: Mapping[str, Mapping[str, str]], factor: str, baseline: str) -> list[tuple[str, str]]:
    """Return the (baseline, contender) names of a comparison: cells that differ in the factor alone."""
    places = {name: tuple(level for key, level in own.items() if key != factor) for name, own in levels.items()}
    bases = {places[name]: name for name, own in levels.items() if own[factor] == baseline}
    others = [name for name, own in levels.items() if own[factor] != baseline]
    return [(bases[places[name]], name) for name in others if places[name] in bases]


def list_pairs(cells: Iterable[Cell], compare: Sequence[dict]) -> list[tuple[str, str]]:
    """Return the (baseline, contender) names of all compared cells: entries of `compare`, and twins."""
    levels = {cell.name: cell.levels for cell in cells}
    originals = {cell.name: cell.levels for cell in cells if not cell.twin_of}
    of_twins = [(cell.twin_of, cell.name) for cell in cells if cell.twin_of in levels]
    named = (list_factor_pairs(originals, entry["factor"], str(entry["baseline"])) for entry in compare)
    return [*of_twins, *itertools.chain(*named)]


def count_cut_pairs(cells: Iterable[Cell], names: Collection[str], compare: Sequence[dict]) -> int:
    """Count the comparisons with exactly one of their two cells among `names`."""
    return sum((base in names) != (other in names) for base, other in list_pairs(cells, compare))


def read_measured_blocks(config: dict, cells: Iterable[Cell]) -> Measured:
    """Return the blocks and sessions of the cells' records in results/, without records of skipped steps."""
    sessions: dict[str, dict[int, str | None]] = {}
    for cell in cells:
        for block, path in records.list_repeats(Path("results", config["run"], cell.study, "records", cell.name)):
            session = None
            with contextlib.suppress(Problem):
                record = records.read_record(path, config["run"], cell.study)
                if "cause" in record:
                    continue
                # A record ended by its time limit is usable: it gives a lower bound of the time.
                usable = (
                    record.get("timed_out_s") or records.is_injected_failure(record) or not validity.list_faults(record)
                )
                session = record.get("session", "") if usable else None
            sessions.setdefault(cell.name, {})[block] = session
    return sessions


def count_lacking_blocks(cells: Sequence[Cell], compare: Sequence[dict], sessions: Measured, repeats: int) -> int:
    """Count the blocks that are missing until every cell and comparison has `repeats` of them.

    A comparison counts the blocks in which one session measured both of its cells. Cells that failed in every block are
    ignored; if all cells failed, all blocks are missing.
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
    """Return the names of the measured cells without a usable record."""
    return [cell.name for cell in cells if cell.name in sessions and set(sessions[cell.name].values()) == {None}]


def open_blocks(config: dict, selected: Sequence[Cell], cells: Iterable[Cell]) -> Open:
    """Choose the blocks that a call begins with, from the files of the run: records and looks.

    If cells and comparisons have enough blocks, but the last look ordered a round of which nothing was measured, the
    call measures that round: an earlier call ended there, as on a cluster, where a call measures one round.
    """
    sessions = read_measured_blocks(config, cells)
    opened = choose_blocks(config, selected, sessions)
    if not selected or opened.anew:
        return opened
    orders = read_orders(get_looks_folder(config["run"], selected[0].study))
    if orders and not opened.blocks and not list_begun_blocks(sessions).intersection(orders[-1].blocks):
        last, names = orders[-1], {cell.name for cell in selected}
        return opened._replace(
            blocks=last.blocks,
            cells=[name for name in last.cells or names if name in names],
            round=last.round,
            draw=last.draw,
        )
    return opened._replace(round=orders[-1].round + 1 if orders else 1)


def get_looks_folder(run: str, study: str) -> Path:
    """Return the folder of the looks that a call of a run took at a study."""
    return Path("results", run, study, "looks")


def choose_blocks(config: dict, selected: Sequence[Cell], sessions: Measured) -> Open:
    """Choose the blocks of the selected cells of a study that are missing; `sessions` covers all its cells."""
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
    """Return the artefacts of the cells' libraries under test, if any."""
    return [f"results/{run}/environments/{name}.json" for name in sorted({cell.library for cell in cells} - {""})]


def list_data_artefacts(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefacts of the cells' data in their stores, if any."""
    stored = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{run}/data/{data}/{store}.json" for data, store in sorted(stored)]


def list_begun_blocks(sessions: Measured) -> set[int]:
    """Return the numbers of the blocks with any measurement."""
    return {block for blocks in sessions.values() for block in blocks}


def list_next_blocks(numbers: Collection[int], many: int) -> list[int]:
    """Return the next `many` block numbers."""
    last = max(numbers, default=0)
    return list(range(last + 1, last + 1 + many))


def get_last_block(opened: Open) -> int:
    """Return the number of the last block in which a call measures anything, or 0."""
    return max(itertools.chain(opened.blocks, *opened.anew.values()), default=0)


def read_blocks(path: Path) -> Open:
    """Read the file of `write_blocks`: the blocks that the call of this job decided to measure."""
    return Open(**read_json(path))


def read_needs(path: Path | None, block: int) -> list[Path]:
    """Return the artefacts that a block cannot do without, from the file of `write_blocks`; nothing without a file."""
    opened = read_blocks(path) if path else None
    return list(map(Path, opened.needs)) if opened and block in opened.conditional else []


def write_blocks(path: Path, opened: Open) -> None:
    """Write the blocks that a call measures."""
    write_json(path, opened._asdict())
