"""Which blocks a call measures: a hole stays a hole, and what is missing is made good by whole blocks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from small_runs import TWO_CELLS

from sbench.design import blocks, matrix
from sbench.design import config as configuration
from sbench.design.study import Cell
from sbench.measure import failures
from sbench.probe.program import read_json, write_json
from scripts import look

COMPARE = [{"factor": "library", "baseline": "old"}]
MONDAY, TUESDAY = "2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z"


def cell(library: str, store: str = "disk", twin_of: str = "") -> Cell:
    levels = {"library": library, "store": store, "control": "twin" if twin_of else ""}
    return Cell(f"{library}-{store}" + "-twin" * bool(twin_of), "shots", levels, {}, "", twin_of)


OLD, NEW, NEWEST = cell("old"), cell("new"), cell("newest")
TWIN = cell("old", twin_of=OLD.name)


def opened(asked: list[Cell], found: blocks.Measured, repeats: int = 6, **changes: object) -> blocks.Open:
    config = {"run": "x", "repeats": repeats, "again": [], "studies": {"shots": {"compare": COMPARE}}} | changes
    return blocks.choose_blocks(config, asked, found)


def made(library: str) -> str:
    return f"results/x/environments/{library}.json"


def of(numbers: range | list[int], session: str | None = MONDAY) -> dict[int, str | None]:
    return dict.fromkeys(numbers, session)


SEED, NAMES = "tuesday shots", [f"cell-{number:02}" for number in range(20)]


@pytest.mark.rule(2)
def test_each_block_has_a_random_order_and_another_one_for_another_seed_or_draw():
    orders = [
        blocks.build_order(NAMES, seed, block, draw) for seed in (SEED, "x") for block in (1, 2) for draw in (0, 1)
    ]
    assert all(sorted(order) == NAMES for order in orders)
    assert len(set(map(tuple, orders))) == 8
    assert blocks.build_order(NAMES[::-1], SEED, 1, 0) == orders[0], "whatever the order of the matrix"
    some = [name for name in orders[0] if name in NAMES[::3]]
    assert blocks.build_order(NAMES[::3], SEED, 1, 0) == some, "whichever cells are selected"
    assert blocks.build_order(NAMES[::-1], SEED, 2, None) == NAMES[::-1], "where cells take turns it is as the matrix"


@pytest.mark.rule(2)
def test_of_two_cells_each_is_first_in_half_of_the_blocks():
    for seed in map(str, range(20)):
        for numbers in ([1, 2, 3, 4, 5, 6], [7, 8]):
            draw = blocks.choose_draw([OLD, NEW], COMPARE, seed, numbers)
            first = [blocks.build_order([OLD.name, NEW.name], seed, block, draw)[0] for block in numbers]
            assert first.count(OLD.name) == len(numbers) / 2


@pytest.mark.rule(2)
def test_of_the_sets_of_orders_that_is_taken_whose_compared_cells_stand_most_evenly():
    cells = [cell(library, store) for library in ("old", "new", "newest") for store in ("disk", "s3", "far")]
    twin = cell("new", "s3", twin_of="new-s3")
    together = [("old", "new"), ("old", "newest")]
    compared = [(f"{base}-{store}", f"{other}-{store}") for base, other in together for store in ("disk", "s3", "far")]

    def largest_gap(draw: int) -> float:
        orders = [blocks.build_order([one.name for one in (*cells, twin)], SEED, block, draw) for block in range(1, 7)]
        gaps = [
            sum(order.index(other) - order.index(base) for order in orders)
            for base, other in (*compared, (twin.twin_of, twin.name))
        ]
        return max(map(abs, gaps))

    drawn = blocks.choose_draw([*cells, twin], COMPARE, SEED, range(1, 7))
    assert largest_gap(drawn) == min(map(largest_gap, range(60))) < largest_gap(0)
    assert blocks.choose_draw([], COMPARE, SEED, []) == 0


@pytest.mark.rule(2)
def test_blocks_that_a_look_orders_have_cells_and_a_set_of_orders_of_their_own(tmp_path: Path):
    opened = blocks.Open([1, 2, 3], [], [], [], {}, draw=7)
    assert blocks.get_order(opened, tmp_path, 4).draw == 7, "no look was taken"
    orders = {4: blocks.Order([4], None, 1, 9), 5: blocks.Order([5, 6], ["a", "c"], 2, 3)}
    for number, order in enumerate(orders.values(), 1):
        write_json(tmp_path / f"{number}.json", {"status": "done", **order._asdict()})
    assert [blocks.get_order(opened, tmp_path, block) for block in (1, 3)] == [opened.order] * 2
    assert [blocks.get_order(opened, tmp_path, block) for block in (4, 5, 6)] == [orders[4], orders[5], orders[5]]
    assert orders[5].select_cells(["a", "b", "c"]) == ["a", "c"]
    assert orders[4].select_cells(["a", "b"]) == ["a", "b"]


def test_what_new_cells_need_is_needed_by_the_blocks_that_are_for_their_sake(tmp_path: Path):
    path = tmp_path / "blocks.json"
    blocks.write_blocks(path, blocks.Open([1, 2, 7], [7], ["fresh"], ["environments/new.json"], {}))
    assert blocks.read_needs(path, 7) == [Path("environments/new.json")]
    assert blocks.read_needs(path, 2) == blocks.read_needs(None, 7) == []


def test_whichever_level_is_the_baseline_the_others_are_compared_with_it():
    levels = {name: {"workers": workers, "store": "s3"} for name, workers in (("a", "1"), ("b", "2"), ("c", "4"))}
    assert blocks.list_factor_pairs(levels, "workers", "1") == [("a", "b"), ("a", "c")]
    assert blocks.list_factor_pairs(levels, "workers", "2") == [("b", "a"), ("b", "c")]
    assert blocks.list_factor_pairs(levels, "store", "s3") == []


@pytest.mark.rule(2, 5)
def test_a_first_call_measures_all_blocks_and_a_second_none():
    assert opened([OLD, NEW], {})[:5] == ([1, 2, 3, 4, 5, 6], [], [OLD.name, NEW.name], [made("new"), made("old")], {})
    assert opened([OLD, NEW], {OLD.name: of(range(1, 7)), NEW.name: of(range(1, 7))}).blocks == []
    assert opened([], {}).blocks == [], "a study of results from elsewhere has no cell"


@pytest.mark.rule(2, 5)
def test_a_hole_is_made_good_by_a_whole_block_after_the_last():
    failed = of(range(1, 7)) | {3: None}
    assert opened([OLD, NEW], {OLD.name: of(range(1, 7)), NEW.name: failed}).blocks == [7]
    missing = of([1, 2, 4, 5, 6])
    assert opened([OLD, NEW], {OLD.name: of(range(1, 7)), NEW.name: missing}).blocks == [7]
    # An interrupted call: the third block was begun.
    assert opened([OLD, NEW], {OLD.name: of([1, 2, 3]), NEW.name: of([1, 2])}).blocks == [4, 5, 6, 7]
    assert opened([OLD, NEW], {OLD.name: of(range(1, 7)), NEW.name: of(range(1, 7))}, repeats=8).blocks == [7, 8]


@pytest.mark.rule(2, 5)
def test_a_block_counts_where_both_sides_are_of_one_session():
    found = {OLD.name: of(range(1, 7)), NEW.name: of(range(1, 7)) | of([5, 6], TUESDAY)}
    assert opened([OLD, NEW], found).blocks == [7, 8]
    # Each comparison has its blocks, though no block has all cells of one session.
    found = {OLD.name: of(range(1, 7)) | of(range(7, 13), TUESDAY), NEW.name: of(range(1, 7))}
    assert opened([OLD, NEW, NEWEST], found | {NEWEST.name: of(range(7, 13), TUESDAY)}).blocks == []
    # A twin is compared with the cell that it repeats.
    assert opened([OLD, TWIN], {OLD.name: of(range(1, 7)), TWIN.name: of([1, 2, 3])}).blocks == [7, 8, 9]


@pytest.mark.rule(2, 5)
def test_cells_that_were_never_measured_have_the_others_beside_them_if_they_can_be_measured_at_all():
    found = {OLD.name: of(range(1, 7)), NEW.name: of(range(1, 7))}
    appended = opened([OLD, NEW, NEWEST], found)
    assert appended[:5] == ([7, 8, 9, 10, 11, 12], [7, 8, 9, 10, 11, 12], [NEWEST.name], [made("newest")], {})
    # So it is where the others have more blocks than they need.
    more = dict.fromkeys(found, of(range(1, 9)))
    assert opened([OLD, NEW, NEWEST], more)[:2] == ([9, 10, 11, 12, 13, 14], [9, 10, 11, 12, 13, 14])
    # Of the blocks that the others need, none is for the sake of the new cell.
    found[NEW.name] = of([1, 2, 3, 4])
    assert opened([OLD, NEW, NEWEST], found)[:2] == ([7, 8, 9, 10, 11, 12], [9, 10, 11, 12])


@pytest.mark.rule(2, 5)
def test_a_cell_that_failed_in_every_block_is_not_waited_for_unless_all_did():
    found = {OLD.name: of(range(1, 7)), NEW.name: of(range(1, 7), None)}
    assert blocks.list_failing_cells([OLD, NEW], found) == [NEW.name]
    assert opened([OLD, NEW], found).blocks == []
    assert opened([OLD, NEW], {OLD.name: of([1, 2], None), NEW.name: of([1, 2], None)}).blocks == [3, 4, 5, 6, 7, 8]


@pytest.mark.rule(2, 5)
def test_cells_are_measured_anew_on_purpose_in_their_own_blocks_and_nothing_else_is():
    found = {OLD.name: of(range(1, 7)), NEW.name: of([1, 2, 4])}
    assert opened([OLD, NEW, NEWEST], found, again=["new"])[:5] == ([], [], [], [], {NEW.name: [1, 2, 4]})
    assert blocks.count_cut_pairs([OLD, NEW, NEWEST], {NEW.name}, COMPARE) == 1
    assert blocks.count_cut_pairs([OLD, NEW, NEWEST], {OLD.name, NEW.name}, COMPARE) == 1
    assert blocks.count_cut_pairs([OLD, NEW], {OLD.name, NEW.name}, COMPARE) == 0


_SHOTS = TWO_CELLS["studies"]["shots"] | {"compare": [{"factor": "cache", "baseline": "cold"}]}
CONFIG = TWO_CELLS | {"repeats": 6, "studies": {"shots": _SHOTS}}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return a function that writes the records of two cells of a run and returns the blocks that a look orders."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)

    def order(spoilt: dict[int, dict], planned: int = 6, **changes: object) -> list[int]:
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(CONFIG | changes))
        config = configuration.load_config(tmp_path / "run.yaml")
        cells = matrix.expand_matrix(config, "shots")[0]
        folder = Path("results/small/shots")
        folder.mkdir(parents=True, exist_ok=True)
        blocks.write_blocks(folder / "blocks.json", blocks.choose_blocks(config, cells, {}))
        for one in cells:
            for number in range(1, planned + 1):
                place = {"run": "small", "study": "shots", "name": one.name, "cell": one.levels, "repeat": number}
                record = RECORD | place | (spoilt.get(number, {}) if one is cells[0] else {})
                write_json(folder / f"records/{one.name}/repeat={number}.json", record)
        out = folder / "looks/1.json"
        words = ["--config", json.dumps(config), "--study", "shots", "--number", "1", "--out", str(out)]
        assert look.main(words) == 0
        return read_json(out)["blocks"]

    return order


RECORD = {
    **{"record": 1, "status": "done", "valid": True, "reasons": [], "session": MONDAY, "seconds": {"total": 1.0}},
    **{"work": {}, "samples": [], "host": {}, "provenance": {"code_sha256": "c0de"}},
}
INVALID = {"valid": False, "reasons": ["the page cache lost pages"]}
FAILED = {"status": "failed", "valid": False, "reasons": ["no server"]}
SKIPPED = FAILED | {"cause": "results/small/environments/wheel.json"}


@pytest.mark.rule(5)
@pytest.mark.parametrize(
    "spoilt, changes, expected",
    [
        ({}, {}, []),
        ({2: INVALID}, {}, [7]),
        ({2: FAILED, 5: INVALID}, {}, [7, 8]),
        ({1: FAILED, 2: FAILED, 3: FAILED}, {}, [7, 8]),
        ({1: FAILED, 2: FAILED, 3: FAILED}, {"extra_blocks": 5}, [7, 8, 9]),
        ({1: FAILED}, {"extra_blocks": 0}, []),
        ({1: FAILED}, {"again": ["wheel"]}, []),
        (dict.fromkeys(range(1, 7), FAILED), {}, []),
        (dict.fromkeys(range(1, 7), INVALID), {}, []),
        (dict.fromkeys(range(1, 7), SKIPPED), {}, []),
    ],
    ids=["all-well", "invalid", "two", "more", "as-many-as", "none", "on-purpose", "failing", "never-valid", "skipped"],
)
def test_what_failed_or_is_invalid_is_made_good_in_the_same_call_within_limits(run, spoilt, changes, expected):
    assert run(spoilt, **changes) == expected


def test_cells_that_failed_in_every_block_are_one_line(run):
    run(dict.fromkeys(range(1, 7), FAILED))
    config = configuration.load_config(Path("run.yaml"))
    failed = failures.find_failures(Path("results/small"), failures.list_artefacts(Path("results/small")))
    [line] = failures._describe_lacking(config, "shots", failed.keys())
    name = matrix.expand_matrix(config, "shots")[0][0].name
    assert line == f"shots: 1 cell failed in every block, {name} first; sbench run --again {name} measures it again"
    run({2: INVALID})
    [line] = failures._describe_lacking(config, "shots", set())
    assert line == "shots: some comparisons lack 1 of 6 blocks; the next call appends them for all cells"


def test_the_last_block_of_a_call_is_that_of_new_blocks_and_of_cells_measured_again():
    assert blocks.get_last_block(blocks.Open([7, 8], [], [], [], {})) == 8
    assert blocks.get_last_block(blocks.Open([], [], [], [], {"a": [1, 12], "b": [3]})) == 12
    assert blocks.get_last_block(blocks.Open([], [], [], [], {})) == 0
