"""What volumes, advice, fit and comparisons of runs state, against what they were drawn from, by brute force."""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts.lib.program import write_json
from scripts.published import compare, side_by_side
from scripts.published.sides import Side
from scripts.published.statements import SessionRatio
from scripts.report.statements import Comparison, Gain, NoGain, Outcomes, Records
from scripts.statistics import tables
from scripts.studies.shots.report import advised
from scripts.studies.shots.report.ways import LEAST_FILES, read_advice
from scripts.studies.volumes import fit
from scripts.studies.volumes.report import conclusions
from scripts.studies.volumes.report.statements import Jobs, Limit, Ratio, Segment, VolumeChoice
from tests import synthetic_volumes, volumes_records
from tests.synthetic_runs import Synthetic, draw_advice
from tests.synthetic_volumes import LIMIT_MS

pytestmark = pytest.mark.rule(22)

RUNS = 120
# A run of volumes takes a second of resampling.
VOLUMES = 16


@pytest.mark.thorough
def test_every_statement_on_drawn_volumes_is_borne_out_by_their_latencies(tmp_path):
    wrong = []
    for seed in range(VOLUMES):
        drawn = synthetic_volumes.draw(seed, tmp_path / str(seed))
        wrong += [f"{seed}: {problem}" for problem in find_wrong_volumes(drawn)]
    assert wrong == []


def find_wrong_volumes(drawn: synthetic_volumes.Synthetic) -> Iterator[str]:
    """Yield what is wrong with what is stated of volumes."""
    run, courses = drawn.run, conclusions.courses(drawn.run)
    headline, advice = conclusions.headline(run), conclusions.advice(run)
    conclusions.find(run)
    yield from (f"withheld: {text}" for text in run.withheld)
    for course in courses:
        batteries = drawn.latencies.get(course.whole["store"], {})
        yield from _find_wrong_limit(course.statement, batteries)
    for name in {course.whole["store"] for course in courses}:
        if headline.count(f"on {name}") + headline.count(f"and {name} ") + headline.count(f", {name} ") < 1:
            yield f"{name} is not in the headline: {headline}"
    kept = {course.whole["store"] for course in courses if course.verdict == "meets"}
    for line in (line for line in advice if line.startswith("Use ")):
        used = {name for name in synthetic_volumes.STORES if re.search(rf"\b{name}\b", line)}
        if not used or not used <= kept:
            yield f"{line} – of those that meet the limit: {kept}"
    for ratio in run.to_comparisons(run.comparisons()):
        yield from _find_wrong_ratio(ratio, drawn)


def _find_wrong_limit(limit: Limit, batteries: dict[int, list[np.ndarray]]) -> Iterator[str]:
    for segment in limit.segments:
        own = np.concatenate(batteries[segment.repeat][segment.first : segment.first + segment.jobs])
        if abs(math.log(segment.value / volumes_records.nth(own, 99))) > 0.02:
            yield f"{segment} has the p99 {volumes_records.nth(own, 99)}"
    whole = [volumes_records.nth(np.concatenate(own), 99) for own in batteries.values()]
    if limit.outcome == "meets" and (max(whole) >= LIMIT_MS or min(map(len, batteries.values())) < 20):
        yield f"{limit} meets, with {whole}"
    jobs = [volumes_records.nth(job, 99) for own in batteries.values() for job in own]
    if limit.outcome == "misses" and max(jobs) < LIMIT_MS:
        yield f"{limit} misses, and no job did"


def _find_wrong_ratio(ratio: Ratio, drawn: synthetic_volumes.Synthetic) -> Iterator[str]:
    """An order needs six batteries of each side, and most pairs of them have it."""
    if ratio.outcome not in ("faster", "slower") or ratio.column != "p99_ms" or ratio.part != "all":
        return
    base, other = (drawn.latencies[dict(side)["store"]] for side in (ratio.baseline, ratio.contender))
    both = sorted(base.keys() & other.keys())
    p99 = [[volumes_records.nth(np.concatenate(side[repeat]), 99) for repeat in both] for side in (base, other)]
    shares = np.mean(np.array(p99[1]) < np.array(p99[0]))
    if len(both) < 6 or (shares if ratio.outcome == "faster" else 1 - shares) < 0.5:
        yield f"{ratio} with {p99}"


@pytest.mark.thorough
def test_a_changed_job_makes_statements_on_volumes_false(tmp_path):
    flipped = set()
    for seed in range(12):
        run = synthetic_volumes.draw(seed, tmp_path / str(seed)).run
        slower, fewer = run.samples.assign(p99_ms=run.samples["p99_ms"] * 30), run.samples[run.samples["number"] > 1]
        for course in conclusions.courses(run):
            if course.stretches[0][0]["segment"] != "all":
                assert not course.statement.holds(Jobs(slower)), course.statement
                assert not course.statement.holds(Jobs(fewer)), course.statement
                flipped.add(Limit)
        kept = [course for course in conclusions.courses(run) if course.verdict == "meets"]
        if kept:
            _, (choice,) = conclusions._choose(kept, conclusions.courses(run), run)
            assert choice.holds(run.checks)
            assert not choice.holds(Jobs(slower))
            wrong = replace(choice, kept=(*choice.kept, replace(choice.kept[0], outcome="misses")))
            assert not wrong.holds(run.checks)
            flipped.add(VolumeChoice)
        for ratio in run.to_comparisons(run.comparisons()):
            own = run.samples["store"] == dict(ratio.contender)["store"]
            spoiled = run.samples.assign(**{ratio.column: run.samples[ratio.column].mask(own, 1e6)})
            assert not ratio.holds(Jobs(spoiled)), ratio
            flipped.add(Ratio)
    assert flipped == {Limit, VolumeChoice, Ratio}


@pytest.mark.thorough
def test_the_word_of_fit_is_that_of_each_battery_by_brute_force(tmp_path):
    limit = {"name": "etcd", "p99_ms": LIMIT_MS, "operation": "sync"}
    words = set()
    for seed in range(2 * VOLUMES):
        random = np.random.default_rng([seed, 11])
        level = LIMIT_MS / synthetic_volumes.P99 * math.exp(random.normal(0, 0.4))
        course, p99 = fit.Course(limit), []
        for number in range(1, 4):
            medians = level * random.lognormal(0, 0.02, int(random.choice([12, 22])))
            record = volumes_records.battery("a", medians, seed * 10 + number, 1_000)
            samples = [row | {"device_write_ios": 5} for row in record["samples"]]
            named = {
                "battery": f"b{number}",
                "cluster": "t1",
                "host": "",
                "pause_s": 0,
                "started_utc": None,
            } | dict.fromkeys(("ended_utc", "background", "loop"))
            battery = record | named | {"samples": samples, "facts": {"jobs": len(samples)}, "faults": []}
            course.batteries.append(battery | {"entry": {"name": "a"}, "source": f"b{number}"})
            p99.append([row["sync_lat_p99_ms"] for row in samples])
        course.judge()
        words.add(word := course.word())
        assert course.is_borne_out, seed
        if word == "meets":
            assert all(len(jobs) >= 20 and min(jobs) < LIMIT_MS for jobs in p99), seed
            assert max(map(np.median, p99)) < LIMIT_MS * 1.05, seed
        if word == "misses":
            assert max(map(max, p99)) >= LIMIT_MS, seed
    assert words == {"meets", "misses", "undecided"}


@pytest.mark.thorough
def test_the_lines_of_advice_on_drawn_files_are_borne_out_by_their_times():
    outcomes, wrong = set(), []
    for seed in range(RUNS):
        drawn = draw_advice(seed)
        lines = advised.lines(drawn.run)
        wrong += [f"{seed}: {problem}" for problem in find_wrong_advice(lines, drawn)]
        outcomes.add("none" if "no way " in "".join(lines) else lines[0][:15])
    assert wrong == []
    assert len(outcomes) >= 3, "copies, files as they are and no gain were all advised"


def find_wrong_advice(lines: list[str], drawn: Synthetic) -> Iterator[str]:
    """Yield what is wrong with the lines that advice ends with."""
    yield from (f"withheld: {text}" for text in drawn.run.withheld)
    advice, medians = read_advice(drawn.run), drawn.times.groupby("cell")["total"].median()
    if advice is None:
        return
    shares = advice.shares

    def cost(way: object) -> float:
        return sum(share * medians[way.cells[level]["cell"]] for level, share in shares.items())

    gain = next(line for line in lines if line.startswith("gain"))
    if "no way " in gain:
        won = [
            way
            for way in advice.ways
            if way.rows.keys() == shares.keys() and all(row["verdict"] == "faster" for row in way.rows.values())
        ]
        won = [way for way in won if len(way.gains) < LEAST_FILES or min(way.gains.values()) > 1]
        if won and ("without a copy" not in gain or any(way.layout == "original" for way in won)):
            yield f"{gain}, though {[way.name for way in won]} won"
        return
    best = advice.best
    if cost(best) >= cost(advice.base):
        yield f"{best.name} is advised, and takes more"
    if best.layout != "original" and "h5repack" not in lines[0]:
        yield f"{best.layout} is advised without its copy: {lines[0]}"
    if best.arm["driver"] not in lines[1]:
        yield f"{best.name} is advised, opened by {lines[1]}"
    if len(shares) == 1:
        times = drawn.times.pivot(index="repeat", columns="cell", values="total")
        ((level, cell),) = best.cells.items()
        ratios = (times[advice.base.cells[level]["cell"]] / times[cell["cell"]]).dropna()
        bound, printed = re.match(r"gain:   (at least )?([\d.,]+) \[", gain).groups()
        error = float(printed.replace(",", "")) / np.exp(np.median(np.log(ratios))) - 1
        if error > 0.06 or (error < -0.06 and not bound):
            yield f"{gain} is not {np.exp(np.median(np.log(ratios)))}"


@pytest.mark.thorough
def test_the_headline_of_a_comparison_of_drawn_runs_is_borne_out_by_their_sessions(tmp_path):
    outcomes, wrong = set(), []
    for seed in range(RUNS // 2):
        run, ratios, counts = draw_comparison(seed, tmp_path / str(seed))
        text = side_by_side.headline(run)
        rows = run.comparisons()
        wrong += [f"{seed}: withheld: {one}" for one in run.withheld]
        outcomes |= {*rows["verdict"], *rows["of_sessions"]}
        for row, one in zip(rows.to_dict("records"), run.to_comparisons(rows), strict=True):
            ratio = ratios[row["driver"]]
            if one.outcome in ("faster", "slower") and (ratio < 1) != (one.outcome == "faster"):
                wrong.append(f"{seed}: {one} where sessions have {ratio}")
            if one.outcome in ("faster", "slower", "same") and min(counts) < 4:
                wrong.append(f"{seed}: {one} of {counts} sessions")
        if min(counts) < 4 and "cannot decide" not in text:
            wrong.append(f"{seed}: {text}")
        spoiled = run.raw.assign(value=run.raw["value"] * np.where(run.raw["cell"].str.startswith("new"), 50, 1))
        statement = Outcomes(run.to_comparisons(rows))
        if statement.holds(Records(spoiled)):
            wrong.append(f"{seed}: holds, whatever the records say")
    assert wrong == []
    assert {"faster", "slower", "too few repeats", "not comparable"} <= outcomes


def draw_comparison(seed: int, folder: Path) -> tuple[side_by_side.Sides, dict[str, float], tuple[int, int]]:
    """Return two sides of two cells in 2 to 7 sessions, in turn or not, the ratio of each cell, and the sessions."""
    random = np.random.default_rng([seed, 13])
    many, is_paired = (int(random.integers(2, 8)), int(random.integers(2, 8))), random.random() < 0.3
    many = (max(many[0], 6),) * 2 if is_paired else many
    in_turn, effects = random.random() < 0.7, {name: random.normal(0, 0.2) for name in ("ros3", "s3fs")}
    sides = []
    for side, name in enumerate(("old", "new")):
        rows = []
        for session, (driver, repeat) in itertools.product(range(many[side]), itertools.product(effects, (1, 2))):
            day = 2 * session + 1 + side if in_turn else session + 1 + 12 * side
            value = math.exp(side * effects[driver] + random.normal(0, 0.03))
            rows.append(
                {"cell": driver, "driver": driver, "control": "", "repeat": repeat}
                | {"session": f"2026-11-{day:02}T01:00:00Z", "run": name, "valid": random.random() > 0.05}
                | {"figure": "total", "value": value, "unit": "s", "requests": 5 + side, "bytes": 100, "opens": 1}
                | {"connections": 1, "cache_state": "cold", "read": "a", "code": "c", "data": "d", "packages": "p"}
                | {"machine": "kind node"}
            )
        facts = {"run": name, "name": f"shots-{name}", "config": {"studies": {}}, "machines": [{"node": "a"}]}
        sides.append(Side({"shots": pd.DataFrame(rows)}, {"shots": [facts]}))
    said, made = compare.of_study("shots", *sides, paired=is_paired)
    for name, table in made.items():
        tables.write(table, folder / f"{name}.csv", digits=12)
    write_json(folder / "facts.json", said)
    run, _ = side_by_side.load(folder, folder / "facts.json")
    medians = [
        side.records["shots"][side.records["shots"]["valid"]].groupby("driver")["value"].median() for side in sides
    ]
    return run, (medians[1] / medians[0]).to_dict(), many


# Statements by hand: each holds, and each change makes it false.

JOBS = pd.DataFrame(
    [
        {"store": store, "repeat": 1, "number": number, "p99_ms": p99, "status": "done", "valid": True}
        for store, many in (("fast", (4.0, 5.0, 6.0, 9.0)), ("slow", (11.0, 12.0, 14.0, 16.0)))
        for number, p99 in enumerate(many, 1)
    ]
)
FAST, SLOW = (("store", "fast"),), (("store", "slow"),)
KEPT = Segment(repeat=1, first=0, jobs=4, over=0, value=6.0, low=5.0, high=8.0, outcome="meets")
LOST = Segment(repeat=1, first=0, jobs=4, over=4, value=13.0, low=12.0, high=15.0, outcome="misses")
PARTS = (replace(KEPT, jobs=2, value=4.5, low=4.1), replace(KEPT, first=2, jobs=2, value=7.0))


@pytest.mark.parametrize(
    "limit, change",
    [
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"outcome": "misses"}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"limit_ms": 8.0}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"limit_ms": 9.0}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"levels": SLOW}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": ()}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": PARTS[:1]}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], repeat=2))}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], outcome="undecided"))}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], first=0))}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, value=9.2),)}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, value=3.9),)}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, over=1),)}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"outcome": "meets"}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"limit_ms": 12.1}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"segments": (replace(LOST, outcome="undecided"),)}),
    ],
)
def test_a_limit_holds_and_no_longer_where_it_is_changed(limit, change):
    assert limit.holds(Jobs(JOBS))
    assert not replace(limit, **change).holds(Jobs(JOBS))


def test_a_job_that_does_not_count_bears_nothing_out():
    limit = Limit(FAST, 10.0, "meets", (KEPT,))
    for change in ({"valid": False}, {"status": "failed"}):
        first = (JOBS["store"] == "fast") & (JOBS["number"] == 1)
        assert not limit.holds(Jobs(JOBS.assign(**{key: JOBS[key].mask(first, to) for key, to in change.items()})))
    assert not Jobs(JOBS[:0])


def ratio_of(**change: object) -> Ratio:
    """Return the ratio of the two volumes, six jobs of each."""
    right = {"baseline": FAST, "contender": SLOW, "column": "p99_ms", "part": "all", "outcome": "slower"}
    right |= {"values": (6.0, 13.0), "ratio": 13 / 6, "low": 1.9, "high": 2.4}
    return Ratio(**right | change)


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "faster"},
        {"more_is_faster": True},
        {"low": 0.9},
        {"values": (3.0, 13.0)},
        {"values": (6.0, 17.0)},
        {"ratio": 5.0},
        {"outcome": "too few repeats", "ratio": 2.2},
        {"baseline": (("store", "none"),)},
    ],
    ids=str,
)
def test_a_ratio_holds_and_no_longer_where_it_is_changed(change):
    six = pd.concat([JOBS, JOBS.assign(repeat=2)], ignore_index=True)
    assert ratio_of().holds(Jobs(six))
    assert ratio_of(outcome="too few repeats").holds(Jobs(six))
    assert not ratio_of(**change).holds(Jobs(six))
    assert not ratio_of().holds(Jobs(JOBS)), "four jobs are too few"


SESSIONS = pd.DataFrame(
    [
        {"cell": cell, "repeat": repeat, "unit_of": f"{day} {cell}", "valid": True, "value": value * (1 + day / 1000)}
        for day in range(1, 7)
        for cell, value in (("old", 2.0), ("new", 1.0))
        for repeat in (1, 2)
    ]
)


@pytest.mark.parametrize("pairs", [(), tuple((f"{day} old", f"{day} new") for day in range(1, 7))], ids=["", "pairs"])
def test_a_ratio_of_sessions_holds_and_no_longer_where_it_is_changed(pairs):
    right = {"baseline": "old", "contender": "new", "outcome": "faster", "ratio": 0.5, "low": 0.4, "high": 0.6}
    one, records = SessionRatio(**right, pairs=pairs), Records(SESSIONS)
    assert one.holds(records)
    assert replace(one, outcome="no evidence").holds(records)
    for change in ({"outcome": "slower"}, {"ratio": 0.51}, {"high": 1.1}, {"outcome": "too few repeats"}):
        assert not replace(one, **change).holds(records), change
    few = Records(SESSIONS[SESSIONS["unit_of"].str[0].astype(int) < 4])
    assert not one.holds(few)
    assert replace(one, outcome="too few repeats").holds(few)
    unknown = replace(one, ratio=math.nan)
    assert not unknown.holds(records)
    assert replace(unknown, outcome="not comparable").holds(records)


def test_gain_and_no_gain_hold_where_a_way_won_or_none_did():
    table = pd.DataFrame(
        [
            {"cell": cell, "repeat": block, "valid": True, "value": seconds}
            for cell, seconds in (("base", 2.0), ("base all", 3.0), ("way", 1.0), ("way all", 3.6))
            for block in range(1, 7)
        ]
    )
    records, blocks = Records(table), (1, 2, 3, 4, 5, 6)
    won = Comparison("base", "way", "value", "faster", blocks, 0.5, 0.5, 0.5)
    lost = Comparison("base all", "way all", "value", "slower", blocks, 1.2, 1.2, 1.2)
    assert Gain((won, lost), (0.75, 0.25)).holds(records)
    assert not Gain((won, lost), (0.1, 0.9)).holds(records), "what is read mostly takes longer"
    assert not Gain((lost,), (1.0,)).holds(records)
    assert NoGain(((won, lost),)).holds(records)
    assert not NoGain(((won,), (lost,))).holds(records)
    assert not NoGain(((replace(lost, ratio=1.3),),)).holds(records)


def test_any_volume_may_be_used_only_where_none_was_lower_than_all_others():
    jobs = Jobs(pd.concat([JOBS, JOBS.assign(repeat=2)], ignore_index=True))
    kept = tuple(
        Limit(levels, 20.0, "meets", tuple(replace(part, repeat=repeat, outcome="meets", over=0) for repeat in (1, 2)))
        for levels, part in ((FAST, KEPT), (SLOW, LOST))
    )
    of_any = VolumeChoice(kept, (), kept, (ratio_of(outcome="no evidence"),))
    assert of_any.holds(jobs)
    assert not replace(of_any, ratios=(ratio_of(),)).holds(jobs), "the fast one was shown to be lower"
    assert replace(of_any, chosen=kept[:1], ratios=(ratio_of(),)).holds(jobs)
    assert not replace(of_any, chosen=kept[1:], ratios=(ratio_of(),)).holds(jobs)
