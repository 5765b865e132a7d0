"""Rates of false verdicts in runs without a difference: from records to sentences, under loads, at repeated looks."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import blocks, records
from sbench.design.study import Cell
from sbench.measure import gather, tables
from sbench.pages import findings
from sbench.studies.shots.report import results
from sbench.studies.volumes import series, volume_ratios
from sbench.studies.volumes import tables as volume_tables
from sbench.verdicts import MIN_BLOCKS, stats
from sbench.verdicts.outcomes import DECIDED, ORDERED, Outcome
from tests.bench.common import Row, Say, count_false, count_right, simulate
from tests.helpers import volumes_records

NOISE, SLOWER = 0.02, 1.05  # standard deviation of ln(time) of a record; slowdown of a later session
OFTEN, TIMES = 0.2, 3  # the share of slow repeats, and how many times as long they take
PAIRS, JOBS, WRITES = 6, 20, 2000  # batteries of a volume, their jobs, and the writes of each
FIRST_SLOWER = 1.1  # how much longer the first battery of a pair takes
FACTORS = {"library": "abc", "store": "st", "workers": "12"}
COMPARE = [{"factor": factor, "baseline": levels[0]} for factor, levels in FACTORS.items()]
LOOKS = ((6, 8, 10, 12, 16, 20), (10, 12, 16, 20))  # blocks after which the results are looked at
UNDECIDED = 0.1  # standard deviation of ln(time) at which nothing is the same, so that each look is a chance
_MATRIX = "cell,library,store,control,omitted,twin_of\nold,old,disk,,,\nnew,new,disk,,,\n"
_SHOTS = {"shots": {"compare": [{"factor": "library", "baseline": "old"}]}}
Load = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def judge_runs(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge 400 simulated runs of each kind in which nothing differs, and others with a known difference."""
    judges = {
        "a second session is 5 % slower": partial(_judge_later_session, folder, 4),
        "one arm was measured again in a slower session": partial(_judge_later_session, folder, 0),
        "4 blocks added where 6 were undecided": partial(_judge_twice, folder),
        "batteries of identical volumes differ by 5 %": partial(_judge_batteries, 0.05),
        "batteries of identical volumes differ by 10 %": partial(_judge_batteries, 0.1),
    }
    for what, judge in judges.items():
        verdicts = simulate(what, judge, runs, say)
        yield count_false(f"false verdicts where {what}", [verdict in ORDERED for verdict in verdicts])
    for repeats in (10, 20, 30):
        what = f"called the same though a fifth of {repeats} repeats take 3 times as long"
        verdicts = simulate(what, partial(_judge_with_slow_repeats, folder, repeats), runs, say)
        yield count_false(what, [verdict == Outcome.SAME for verdict in verdicts if verdict])
    for repeats in (6, 10, 20):
        what = f"called the same though a fifth of one arm's records fail, {repeats} blocks"
        verdicts = simulate(what, partial(_judge_with_lost_records, folder, repeats), runs, say)
        met = (1 - OFTEN) ** repeats
        yield count_false(what, [verdict == Outcome.SAME for verdict in verdicts], met)
    for repeats in (6, 8):
        what = f"power for ×1.10 among 24 comparisons at {repeats} repeats, noise {100 * NOISE:.0f} %"
        yield count_right(what, simulate(what, partial(_is_slower_detected, repeats), runs, say))


def judge_orders(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge runs without a difference under a load that comes and goes, or under a drift."""
    loads = {f"a load of ±{n} % with a period of two blocks": partial(_load, n / 100, False) for n in (3, 5, 10)}
    loads |= {f"a drift of {n} %": partial(_load, n / 100, True) for n in (10, 30)}
    for (what, load), repeats in itertools.product(loads.items(), (6, 10)):
        what = f"false verdicts per family, {what}, {repeats} blocks"
        counts = simulate(what, partial(_count_false_families, repeats, load), runs, say)
        yield count_false(what, counts, families=len(FACTORS))
    for in_turn, which in ((False, ""), (True, " that have burst credits")):
        what = f"false verdicts, identical volumes{which}, the first battery of each pair 10 % slower"
        verdicts = simulate(what, partial(_judge_first_slower, in_turn), runs, say)
        yield count_false(what, [verdict in ORDERED for verdict in verdicts])


def judge_looks(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge families without a difference again and again, as blocks are added."""
    for at, many in itertools.product(LOOKS, (1, 8, 24)):
        what = f"false verdicts per family of {many}, looked at after {' '.join(map(str, at))} blocks"
        answers = simulate(what, partial(_is_decided_at_some_look, at, many), runs, say)
        yield count_false(what, answers, stats.LEVEL if at[0] == MIN_BLOCKS else stats.MOST)


def _judge_later_session(folder: Path, first: int, seed: int) -> str:
    """Return the verdict on a library whose blocks from `first` on are of a later session, which is slower."""
    base, other = np.exp(np.random.default_rng(seed).normal(0, NOISE, (2, 10)))
    other[first:] *= SLOWER
    return _judge_records(folder, base, other, "1" * 10, "1" * first + "2" * (10 - first))


def _judge_twice(folder: Path, seed: int) -> str:
    base, other = np.exp(np.random.default_rng(seed).normal(0, NOISE, (2, 10)))
    verdict = _judge_records(folder, base[:6], other[:6], "111111", "111111")
    is_undecided = verdict == Outcome.NO_EVIDENCE
    return _judge_records(folder, base, other, "1111112222", "1111112222") if is_undecided else verdict


def _judge_with_slow_repeats(folder: Path, repeats: int, seed: int) -> str:
    """Return the verdict on a contender of which a fifth of the repeats is slow; "" if none was."""
    random = np.random.default_rng(seed)
    base, other = np.exp(random.normal(0, NOISE, (2, repeats)))
    slow = random.random(repeats) < OFTEN
    times = np.where(slow, TIMES, 1) * other
    return _judge_records(folder, base, times, "1" * repeats, "1" * repeats) if slow.any() else ""


def _judge_with_lost_records(folder: Path, repeats: int, seed: int) -> str:
    """Return the verdict on a contender of which a fifth of the records fail."""
    random = np.random.default_rng(seed)
    base, other = np.exp(random.normal(0, NOISE / 2, (2, repeats)))
    times = np.where(random.random(repeats) < OFTEN, np.nan, other)
    return _judge_records(folder, base, times, "1" * repeats, "1" * repeats)


def _judge_records(folder: Path, base: np.ndarray, other: np.ndarray, sessions: str, of_other: str) -> str:
    """Return the verdict of a run by its records, tables and sentence; the page has to agree with the table.

    Where a time is NaN, the record has failed.
    """
    kept = []
    for cell, seconds, names in (("old", base, sessions), ("new", other, of_other)):
        levels = {"library": cell, "store": "disk", "control": ""}
        for number, (time, session) in enumerate(zip(seconds, names, strict=True), 1):
            record = {
                **{
                    "record": 1,
                    "status": "done" if np.isfinite(time) else "failed",
                    "run": "bench",
                    "study": "shots",
                    "name": cell,
                    "cell": levels,
                },
                **{
                    "repeat": number,
                    "valid": bool(np.isfinite(time)),
                    "reasons": [],
                    "session": session,
                    "samples": [],
                },
                **{"seconds": {"total": float(time)}, "work": {"logical_bytes": 2**20}},
                **{"host": {"node": "a"}, "provenance": {}},
            }
            kept.append(records.Kept(cell, levels, number, Path(f"{cell}/repeat={number}.json"), record))
    (folder / "matrix.csv").write_text(_MATRIX, encoding="utf-8")
    (folder / "facts.json").write_text(json.dumps({"study": "shots", "stores": {"disk": {"kind": "posix"}}}))
    config = {"equivalence_percent": 5, "seed": 1, "studies": _SHOTS}
    made = gather.build_tables(config, "shots", tables.read_matrix(folder / "matrix.csv"), kept, {})
    gather.write_tables(made, folder)
    verdict = made["verdicts"].iloc[0]["verdict"]
    texts = [finding.verdict for finding in findings.list_findings(results.load_results(folder, folder / "facts.json"))]
    return verdict if verdict in texts or verdict not in DECIDED else f"{verdict}, but the page has {texts}"


def _judge_batteries(effect: float, seed: int) -> str:
    """Return the verdict on identical volumes whose batteries each have an effect that all its jobs share."""
    random = np.random.default_rng(seed)
    return _judge_volumes(random, lambda store, repeat: (math.exp(random.normal(0, effect)), {}))


def _judge_first_slower(in_turn: bool, seed: int) -> str:
    """Return the verdict on identical volumes of which the first one in a block is slower."""
    random = np.random.default_rng(seed)
    cells = [Cell(store, "volumes", {"store": store}, {}, "", "") for store in "ab"]
    draw = blocks.choose_draw(cells, [{"factor": "store", "baseline": "a"}], str(seed), range(1, PAIRS + 1))

    def place(store: str, repeat: int) -> tuple[float, dict]:
        number = blocks.build_order(["a", "b"], str(seed), repeat, None if in_turn else draw).index(store)
        effect = math.exp(random.normal(0, NOISE)) * (1 if number else FIRST_SLOWER)
        return effect, {"position": 2 * repeat + number}

    return _judge_volumes(random, place)


def _judge_volumes(random: np.random.Generator, place: Callable[[str, int], tuple[float, dict]]) -> str:
    """Return the verdict on the p99 of 6 pairs of batteries.

    `place` gives, by store and repeat, how many times as long the operations of a battery take, and further facts.
    """
    kept = []
    for store, repeat in itertools.product("ab", range(1, PAIRS + 1)):
        (median, facts), seed = place(store, repeat), int(random.integers(2**31))
        medians = median * np.exp(random.normal(0, NOISE, JOBS))
        record = volumes_records.battery(store, medians, seed, WRITES, repeat=repeat, session="1", **facts)
        kept.append(records.Kept(store, record["cell"], repeat, Path(f"{store}/repeat={repeat}.json"), record))
    cells = [{"cell": first.cell, **first.levels, "omitted": "", "twin_of": ""} for first in kept[::PAIRS]]
    volumes = series.build_series(pd.DataFrame(cells), kept, {}, {})
    segments = {volume.levels: volume_tables.list_segments(volume) for volume in volumes}
    rows = volume_ratios.compare_series(volumes, segments, [{"factor": "store", "baseline": "a"}])
    return rows[(rows["metric"] == "p99") & (rows["phase"] == "all")]["verdict"].item()


def _is_slower_detected(repeats: int, seed: int) -> bool:
    d = np.random.default_rng(seed).normal(0, NOISE * np.sqrt(2), (repeats, 24))
    d[:, 0] += np.log(1.1)
    return stats.judge_family(d)[0].verdict == Outcome.SLOWER


def _load(size: float, is_drift: bool, when: np.ndarray, random: np.random.Generator) -> np.ndarray:
    wave = np.sin(np.pi * when + random.uniform(0, 2 * np.pi))
    return math.log1p(size) * when / when.max() if is_drift else size * wave


def _count_false_families(repeats: int, load: Load, seed: int) -> int:
    """Return in how many families of `COMPARE` a verdict is false; `load` is ln(time) by time, in blocks."""
    random, numbers = np.random.default_rng(seed), range(1, repeats + 1)
    levels = [dict(zip(FACTORS, each, strict=True)) for each in itertools.product(*FACTORS.values())]
    cells = {name: Cell(name, "shots", each, {}, "", "") for each in levels if (name := "".join(each.values()))}
    draw = blocks.choose_draw([*cells.values()], COMPARE, str(seed), numbers)
    orders = [blocks.build_order(list(cells), str(seed), block, draw) for block in numbers]
    places = np.array([[order.index(name) for name in cells] for order in orders])
    when = np.arange(repeats)[:, None] + places / len(cells)
    logs = dict(zip(cells, (random.normal(0, NOISE, when.shape) + load(when, random)).T, strict=True))
    families = [blocks.list_pairs(cells.values(), [entry]) for entry in COMPARE]
    differences = [np.column_stack([logs[other] - logs[base] for base, other in pairs]) for pairs in families]
    return sum(any(verdict.verdict in ORDERED for verdict in stats.judge_family(d)) for d in differences)


def _is_decided_at_some_look(at: Sequence[int], many: int, seed: int) -> bool:
    d = np.random.default_rng(seed).normal(0, UNDECIDED, (at[-1], many))
    judged = (stats.judge_family(d[:count], looks=look) for look, count in enumerate(at, 1))
    return any(verdict.verdict in ORDERED for verdicts in judged for verdict in verdicts)
