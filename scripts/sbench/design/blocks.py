"""Choose the blocks to measure. A block measures every cell of a study once, close together in time (METHOD 2, 5).

An incomplete block is never completed by a later session, because a cell measured later could not be compared with the
cells measured earlier. Missing records are replaced by additional blocks instead. A run that measures until it can
decide also adds rounds of blocks, limited to the cells that need more data.
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

# `choose_draw` compares this many random sets of orders, or fewer if all their orders together list more than `_PLACES`
# cells, which would take seconds.
DRAWS, _PLACES = 60, 300_000
# Measured blocks: cell -> block -> the session that measured it, or None if the record is unusable.
Measured = Mapping[str, Mapping[int, str | None]]


class Order(NamedTuple):
    """A set of blocks to measure, and the cells in them.

    Attributes:
        blocks: the block numbers. Each block measures all `cells`.
        cells: the cell names; None for all cells.
        round: the round number, starting at 1. The results are judged after each round (a "look").
        draw: the number of the random set of cell orders that these blocks use; None for matrix order.
    """

    blocks: list[int]
    cells: list[str] | None = None
    round: int = 1
    draw: int | None = 0

    def select_cells(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that the blocks measure."""
        return [name for name in names if self.cells is None or name in self.cells]


class Open(NamedTuple):
    """The first blocks that a session measures.

    Attributes:
        blocks: the numbers of the blocks that measure `cells`.
        conditional: the subset of `blocks` that only `fresh` cells need, and which are useless without `needs`.
        fresh: the names of the cells without a record.
        needs: the artefacts of the libraries and datasets that the fresh cells use.
        anew: cell name -> the existing blocks in which the user wants only this cell measured again.
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
        """The same blocks as an `Order`."""
        return Order(self.blocks, self.cells, self.round, self.draw)


def get_order_seed(config: dict, study: str) -> str:
    """Return the seed that shuffles a study's cells. It is not a cell setting, so it does not affect cell names."""
    return f"{config.get('order_seed', config['run'])} {study}"


def build_order(names: Sequence[str], seed: str, block: int, draw: int | None) -> list[str]:
    """Return the cell names in the measuring order of a block.

    The order is pseudorandom and differs between blocks and draws. The relative order of two cells does not depend on
    which other cells there are. If `draw` is None, the names are not shuffled; this is for studies in which a
    measurement affects the next one.
    """
    if draw is None:
        return list(names)
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {block} {draw} {name}".encode()).digest())


def choose_draw(cells: Sequence[Cell], compare: Sequence[dict], seed: str, blocks: Sequence[int]) -> int:
    """Return the draw (a random order for each block) that balances the positions of compared cells best.

    Random orders ensure that periodic load on the machine does not hit a cell more often than another. To also balance
    a steady drift, try `DRAWS` draws. For each, compute the mean difference in position of every two compared cells
    over the blocks, and choose the draw whose largest absolute mean difference is smallest.
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
    """Return the order that contains a block: an order of a look in the folder `looks`, otherwise the initial order."""
    if block not in opened.blocks:
        for order in read_orders(looks):
            if block in order.blocks:
                return order
    return opened.order


def read_orders(looks: Path) -> list[Order]:
    """Return the orders that a session's looks requested, oldest first. The last order may contain no blocks."""
    orders = []
    for number in itertools.count(1):
        try:
            orders.append(read_order(looks / f"{number}.json"))
        except (Problem, KeyError):
            break
    return orders


def read_order(path: Path) -> Order:
    """Read the order that a look requested from the look's JSON file."""
    look = read_json(path)
    return Order(*(look[name] for name in Order._fields))


def list_factor_pairs(levels: Mapping[str, Mapping[str, str]], factor: str, baseline: str) -> list[tuple[str, str]]:
    """Return the (baseline, contender) names of all pairs of cells that differ only in `factor`.

    `levels` contains the levels of each cell by factor. The first cell of each pair has the level `baseline`.
    """
    places = {name: tuple(level for key, level in own.items() if key != factor) for name, own in levels.items()}
    bases = {places[name]: name for name, own in levels.items() if own[factor] == baseline}
    others = [name for name, own in levels.items() if own[factor] != baseline]
    return [(bases[places[name]], name) for name in others if places[name] in bases]


def list_pairs(cells: Iterable[Cell], compare: Sequence[dict]) -> list[tuple[str, str]]:
    """Return the (baseline, contender) names of all pairs to compare: controls with their cells, then `compare`."""
    levels = {cell.name: cell.levels for cell in cells}
    originals = {cell.name: cell.levels for cell in cells if not cell.twin_of}
    of_twins = [(cell.twin_of, cell.name) for cell in cells if cell.twin_of in levels]
    named = (list_factor_pairs(originals, entry["factor"], str(entry["baseline"])) for entry in compare)
    return [*of_twins, *itertools.chain(*named)]


def count_cut_pairs(cells: Iterable[Cell], names: Collection[str], compare: Sequence[dict]) -> int:
    """Count the comparisons that have exactly one of their two cells in `names`."""
    return sum((base in names) != (other in names) for base, other in list_pairs(cells, compare))


def read_measured_blocks(config: dict, cells: Iterable[Cell]) -> Measured:
    """Find the measured blocks of each cell, and their sessions, from the records in results/.

    Records of skipped steps are ignored.
    """
    sessions: dict[str, dict[int, str | None]] = {}
    for cell in cells:
        for block, path in records.list_repeats(Path("results", config["run"], cell.study, "records", cell.name)):
            session = None
            with contextlib.suppress(Problem):
                record = records.read_record(path, config["run"], cell.study)
                if "cause" in record:
                    continue
                # A measurement stopped by its time limit is usable: it gives a lower bound on the time.
                usable = (
                    record.get("timed_out_s") or records.is_injected_failure(record) or not validity.list_faults(record)
                )
                session = record.get("session", "") if usable else None
            sessions.setdefault(cell.name, {})[block] = session
    return sessions


def count_lacking_blocks(cells: Sequence[Cell], compare: Sequence[dict], sessions: Measured, repeats: int) -> int:
    """Count the blocks still to measure until every cell and comparison has `repeats` usable blocks.

    A block counts for a comparison only if the same session measured both cells. Cells that failed in every block are
    ignored. If all cells failed, the result is `repeats`.
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
    """Return the names of the cells that were measured, but lack a usable record."""
    return [cell.name for cell in cells if cell.name in sessions and set(sessions[cell.name].values()) == {None}]


def open_blocks(config: dict, selected: Sequence[Cell], cells: Iterable[Cell]) -> Open:
    """Choose the first blocks that a session measures, from the run's records and looks.

    If all cells and comparisons have enough blocks, but the last look requested a round that was never started, measure
    that round. This happens when an earlier session ended at that point; on a cluster, every session measures only one
    round.
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


def get_limits(config: dict, study: str) -> dict:
    """Return the settings that decide when a study ends; a look taken with other settings must be taken again."""
    program = studies.get_study(study)
    counts = {"repeats": program.count_repeats(config), "most_repeats": program.count_most_repeats(config)}
    return counts | {name: config.get(name) for name in ("extra_blocks", "budget_s", "resolve_percent")}


def get_looks_folder(run: str, study: str) -> Path:
    """Return the folder with the look files of a study in a run."""
    return Path("results", run, study, "looks")


def choose_blocks(config: dict, selected: Sequence[Cell], sessions: Measured) -> Open:
    """Choose the missing blocks of the selected cells of a study.

    `sessions` contains the measured blocks of all the study's cells (see `read_measured_blocks`).
    """
    if not selected:
        return Open([], [], [], [], {})
    study = studies.get_study(selected[0].study)
    in_turn = study.is_in_turn(config, selected)
    if words := tuple(config["again"]):
        named = (cell.name for cell in selected if cell.name.startswith(words) and cell.name in sessions)
        anew = {name: sorted(sessions[name]) for name in named}
        return Open([], [], [], [], anew, None if in_turn else 0, cells=list(anew))
    compare, repeats = study.get_section(config)["compare"], study.count_repeats(config)
    fresh = [cell for cell in selected if cell.name not in sessions]
    needs = list_library_artefacts(config["run"], fresh) + list_data_artefacts(config["run"], fresh)
    measured_before = [cell for cell in selected if cell.name in sessions]
    blocks = list_next_blocks(list_begun_blocks(sessions), count_lacking_blocks(selected, compare, sessions, repeats))
    certain = count_lacking_blocks(measured_before, compare, sessions, repeats) if measured_before else len(blocks)
    draw = None if in_turn else choose_draw(selected, compare, get_order_seed(config, study.name), blocks)
    names = [cell.name for cell in selected] if config.get("only") else None
    return Open(blocks, blocks[certain:], [cell.name for cell in fresh], needs, {}, draw, cells=names)


def list_library_artefacts(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the artefact paths of the libraries under test that the cells use."""
    return [f"results/{run}/environments/{name}.json" for name in sorted({cell.library for cell in cells} - {""})]


def list_data_artefacts(run: str, cells: Iterable[Cell]) -> list[str]:
    """Return the paths of the artefacts for the datasets that the cells read, one for each dataset and store."""
    stored = {(cell.dataset, cell.levels["store"]) for cell in cells if cell.dataset}
    return [f"results/{run}/data/{data}/{store}.json" for data, store in sorted(stored)]


def list_begun_blocks(sessions: Measured) -> set[int]:
    """Return the numbers of all blocks with at least one measured cell."""
    return {block for blocks in sessions.values() for block in blocks}


def list_next_blocks(numbers: Collection[int], many: int) -> list[int]:
    """Return the `many` block numbers that follow the highest of `numbers`."""
    last = max(numbers, default=0)
    return list(range(last + 1, last + 1 + many))


def get_last_block(opened: Open) -> int:
    """Return the number of the last block that the session measures, at least partly; 0 if it measures none."""
    return max(itertools.chain(opened.blocks, *opened.anew.values()), default=0)


def read_blocks(path: Path) -> Open:
    """Read the session's initial blocks from a file that `write_blocks` wrote."""
    return Open(**read_json(path))


def read_needs(path: Path | None, block: int) -> list[Path]:
    """Return the artefacts that a block requires.

    `path` is a file that `write_blocks` wrote. The list is empty if `path` is None or the block is unconditional.
    """
    opened = read_blocks(path) if path else None
    return list(map(Path, opened.needs)) if opened and block in opened.conditional else []


def write_blocks(path: Path, opened: Open) -> None:
    """Write the session's initial blocks to a JSON file, for the jobs of the session."""
    write_json(path, opened._asdict())
