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

from sbench.files import advise_page
from sbench.files.ways import LEAST_FILES, read_advice
from sbench.measure import tables
from sbench.pages.statements import Outcomes, Records
from sbench.probe.program import write_json
from sbench.runs import compare, side_by_side
from sbench.runs.sides import Side
from sbench.studies.volumes import fit
from sbench.studies.volumes.report import answers
from sbench.studies.volumes.report.statements import Jobs, Limit, Ratio, VolumeChoice
from tests.helpers import synthetic_volumes, volumes_records
from tests.helpers.synthetic_runs import Synthetic, draw_advice
from tests.helpers.synthetic_volumes import LIMIT_MS

pytestmark = [pytest.mark.rule(22), pytest.mark.late]

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
    run, courses = drawn.run, answers.list_courses(drawn.run)
    headline, advice = answers.write_headline(run), answers.list_advice(run)
    answers.list_findings(run)
    yield from (f"withheld: {text}" for text in run.withheld)
    for course in courses:
        batteries = drawn.latencies.get(course.whole["store"], {})
        yield from _find_wrong_limit(course.statement, batteries)
    for name in {course.whole["store"] for course in courses}:
        if not re.search(rf"\b{name}\b", headline) and not re.search(r" \d of \d volumes\b", headline):
            yield f"{name} is not in the headline: {headline}"
    kept = {course.whole["store"] for course in courses if course.verdict == "meets"}
    for line in (line for line in advice if line.startswith("Use ")):
        used = {name for name in synthetic_volumes.STORES if re.search(rf"\b{name}\b", line)}
        if not used or not used <= kept:
            yield f"{line} – of those that meet the limit: {kept}"
    for ratio in run.to_comparisons(run.get_comparisons()):
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
        for course in answers.list_courses(run):
            if course.stretches[0][0]["segment"] != "all":
                assert not course.statement.is_supported_by(Jobs(slower)), course.statement
                assert not course.statement.is_supported_by(Jobs(fewer)), course.statement
                flipped.add(Limit)
        kept = [course for course in answers.list_courses(run) if course.verdict == "meets"]
        if kept:
            _, (choice,) = answers._choose_volume(kept, answers.list_courses(run), run)
            assert choice.is_supported_by(run.checks)
            assert not choice.is_supported_by(Jobs(slower))
            wrong = replace(choice, kept=(*choice.kept, replace(choice.kept[0], outcome="misses")))
            assert not wrong.is_supported_by(run.checks)
            flipped.add(VolumeChoice)
        for ratio in run.to_comparisons(run.get_comparisons()):
            own = run.samples["store"] == dict(ratio.contender)["store"]
            spoiled = run.samples.assign(**{ratio.column: run.samples[ratio.column].mask(own, 1e6)})
            assert not ratio.is_supported_by(Jobs(spoiled)), ratio
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
        course.judge_batteries()
        words.add(word := course.get_verdict())
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
        lines = advise_page.format_advice(drawn.run)
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
        text = side_by_side.render_headline(run)
        rows = run.get_comparisons()
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
        if statement.is_supported_by(Records(spoiled)):
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
    said, made = compare.compare_study("shots", *sides, paired=is_paired)
    for name, table in made.items():
        tables.write_table(table, folder / f"{name}.csv", digits=12)
    write_json(folder / "facts.json", said)
    run, _ = side_by_side.load_comparison(folder, folder / "facts.json")
    medians = [
        side.records["shots"][side.records["shots"]["valid"]].groupby("driver")["value"].median() for side in sides
    ]
    return run, (medians[1] / medians[0]).to_dict(), many


# Statements by hand: each holds, and each change makes it false.
