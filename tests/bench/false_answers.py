"""Rates of false answers of `sbench compare`, `advise`, `fit` and `bisect` in simulated runs whose truth is known."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from sbench.files import judged_releases, ways
from sbench.runs import compare
from sbench.runs.sides import Side
from sbench.studies.shots.arms import Arm
from sbench.studies.volumes import fit, limits, tables
from sbench.studies.volumes.series import Battery, Series
from sbench.verdicts import looks, sessions, stats
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench.common import Row, Say, count_false, count_right, simulate
from tests.helpers import volumes_records

NOISE = 0.02  # standard deviation (sd) of ln(time) of a record, and of a cell in a session
# Sides of sessions: ln(week 2 / week 1), ln(machine 2 / machine 1); of days the sd and the autocorrelation.
WEEK, MACHINE, DAY, KEPT = 0.03, 0.1, 0.05, 0.8
CELLS, MANY = 4, 24  # cells of a side, and those among which one is slower
BESIDE, IN_TURN, TWO = "AAAABBBB", "ABBABAAB", "MNNMNMMN"  # orders of the sessions of both sides, and their machines
MOSTLY = "MNNMMNNMMNMN"  # machines of three times ABBA: five of six sessions of a side are on the same one
# Advice: files that are tried, files that a record reads, blocks, and the sd of ln(gain) between files.
FILES, READ, BLOCKS, SPREADS = 6, 3, 6, (0.05, 0.1, 0.2)
# Volumes: jobs, their writes, sd of ln(latency) in a job and of ln(p99) between jobs, which are like those before.
JOBS, WRITES, SHAPE, JOB_NOISE, JOB_KEPT = 20, 2_000, 0.5, 0.05, 0.5
LIMIT_MS, SOURCES = 10.0, ("report of 1 battery", "report of 3", "sbench fit")
BUILDS = (0.02, 0.03)  # sd of ln(time) between builds of one release
_LEVEL = "all"
_CACHES = ("default", "blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB", "readahead-1MiB")
_FORECAST = {key: {_LEVEL: 1.0} for key in ("requests", "bytes", "seconds")}
_ARMS = [vars(Arm("original", "s3fs", read_cache=cache, **_FORECAST)) for cache in _CACHES]
_VOLUME = ("volume", "etcd", "none", "", "")
_LIMIT = {"name": "etcd", "p99_ms": LIMIT_MS, "operation": "sync", "job": "etcd"}
Effects = Callable[[np.random.Generator, str], Sequence[float]]


def compare_sides(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Compare 400 simulated pairs of sides of one library, and others of a slower one."""
    cases: dict[str, tuple[str, str, Effects]] = {
        "in two weeks that differ by 3 %": (BESIDE, "", _draw_weeks),
        "in turn, in two weeks that differ by 3 %": (IN_TURN, "", _draw_weeks),
        f"on 8 consecutive days, AR(1) {KEPT:g}": (BESIDE, "", _draw_days),
        f"on 16 consecutive days, AR(1) {KEPT:g}": (8 * "A" + 8 * "B", "", _draw_days),
        f"in turn, AR(1) {KEPT:g}": (IN_TURN, "", _draw_days),
        "in turn on two machines that differ by 10 %": (IN_TURN, TWO, lambda *_: [MACHINE * (at == "N") for at in TWO]),
        "in turn, mostly on two machines that differ by 10 %": (
            *(3 * "ABBA", MOSTLY),
            lambda *_: [MACHINE * (at == "N") for at in MOSTLY],
        ),
        "in strict turn, every second day 3 % slower": (8 * "AB", "", lambda _, order: WEEK * (np.arange(16) % 2)),
    }
    for what, case in cases.items():
        what = f"false verdicts between sides measured {what}"
        yield count_false(what, simulate(what, partial(_is_difference_reported, *case), runs, say))
    for ratio in (1.05, 1.1, 1.2):
        what = f"power for ×{ratio:.2f} among {MANY} cells at {sessions.LEAST} sessions on each side, noise 2 %"
        yield count_right(what, simulate(what, partial(_is_slower_detected, ratio), runs, say))


def _draw_weeks(random: np.random.Generator, order: str) -> Sequence[float]:
    return WEEK * (np.arange(len(order)) >= len(order) / 2)


def _draw_days(random: np.random.Generator, order: str) -> Sequence[float]:
    steps = random.normal(0, [DAY, *[DAY * (1 - KEPT**2) ** 0.5] * (len(order) - 1)])
    return [*itertools.accumulate(steps, lambda last, step: KEPT * last + step)]


def _is_difference_reported(order: str, machines: str, effects: Effects, seed: int) -> bool:
    """Return whether `sbench compare` orders two sides of which only the sessions differ."""
    random = np.random.default_rng(seed)
    seconds = np.exp(random.normal(0, NOISE, (len(order), CELLS)) + np.asarray(effects(random, order))[:, None])
    head = dict.fromkeys(sessions.COLUMNS, "") | dict.fromkeys(sessions.COUNTS, np.nan)
    head |= {"repeat": 1, "valid": True, "figure": "total", "unit": "s"}
    records = [
        {"cell": f"c{cell}", "access": f"c{cell}", **head, "session": f"2026-11-{day:02}T01:00:00Z"}
        | {"value": value, "run": f"{side}{day}", "machine": f"cpu {machine}", "side": side}
        for day, (side, machine, of_day) in enumerate(zip(order, machines or "M" * len(order), seconds, strict=True), 1)
        for cell, value in enumerate(of_day)
    ]
    sides = [
        Side({"shots": table.drop(columns="side").reset_index(drop=True)}, {"shots": [{"run": side}]})
        for side, table in pd.DataFrame(records).groupby("side")
    ]
    return compare.compare_study("shots", *sides)[1]["verdicts"]["verdict"].isin(ORDERED).any()


def _is_slower_detected(ratio: float, seed: int) -> bool:
    base, other = np.random.default_rng(seed).normal(0, NOISE, (2, sessions.LEAST, MANY))
    other[:, 0] += np.log(ratio)
    return sessions.judge_sessions(base, other)[0].verdict == Outcome.SLOWER


def advise_on_files(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Advise 400 simulated times on files of which no way gains anything on average, and where one does."""
    for files, spread in itertools.product((READ, FILES), SPREADS):
        what = f"advice on other files, which gain nothing; {files} differ by {100 * spread:.0f} %"
        advice = simulate(what, partial(_advise, 1.0, spread, files), runs, say)
        yield count_false(what, [each.is_of_others for each in advice], 0.1)
    for spread, gain in itertools.product(SPREADS, (1.3, 2.0)):
        what = f"advised: a way that is {gain:g} times as fast, files differ by {100 * spread:.0f} %"
        advice = simulate(what, partial(_advise, gain, spread, FILES), runs, say)
        yield count_right(what, [each.best.arm["read_cache"] == _CACHES[1] for each in advice])


def _advise(gain: float, spread: float, files: int, seed: int) -> ways.Advice:
    """Return the advice on files as they are, and four other ways of which the first gains something on average."""
    random = np.random.default_rng(seed)
    gains = random.normal(0, spread, (len(_ARMS), files))
    gains[0], gains[1] = 0, gains[1] + np.log(gain)
    read = np.array([random.permutation(files)[:READ] for _ in range(BLOCKS)])
    sizes, noise = random.normal(0, 0.5, files)[read], random.normal(0, NOISE, (len(_ARMS), *read.shape))
    seconds = np.exp(sizes - gains[:, read] + noise)
    cells = [
        arm | {"cell": str(number), "selection": _LEVEL, "access": "files", "total_s": np.median(of_arm.sum(axis=1))}
        for number, (arm, of_arm) in enumerate(zip(_ARMS, seconds, strict=True))
    ]
    samples = [
        {"cell": str(arm), "repeat": block + 1, "obj-id": str(read[block, place]), "valid": True}
        | {"open+read-data-time": seconds[arm, block, place]}
        for arm, block, place in np.ndindex(seconds.shape)
    ]
    pairs = list(itertools.combinations(range(len(_ARMS)), 2))
    logs = np.log(seconds.sum(axis=2))
    judged = stats.judge_family(np.stack([logs[other] - logs[base] for base, other in pairs], axis=1))
    contest = [
        {"baseline_cell": str(base), "contender_cell": str(other), "ratio_low": verdict.low, "ratio_high": verdict.high}
        | {"ratio": verdict.ratio, "verdict": verdict.verdict, "detectable_ratio": verdict.detectable_ratio}
        for (base, other), verdict in zip(pairs, judged, strict=True)
    ]
    advice = {"accesses": {_LEVEL: 1.0}, "arms": _ARMS, "considered": _ARMS}
    frames = {"measured": pd.DataFrame(cells), "contest": pd.DataFrame(contest), "samples": pd.DataFrame(samples)}
    facts = {"settings": {"advice": advice, "read_files": READ}}
    return ways.read_advice(SimpleNamespace(**frames, get_comparisons=pd.DataFrame, facts=facts))


def judge_volumes(folder: Path, say: Say, runs: int = 200) -> Iterator[Row]:
    """Judge 200 simulated volumes of each kind whose p99 is 3 % below a limit, or above it, and clear ones."""
    near = itertools.product((0.03, 0.05), ((0.97, Outcome.MISSES, False), (1.03, Outcome.MEETS, False)))
    clear = itertools.product((0.05,), ((0.8, Outcome.MEETS, True), (1.2, Outcome.MISSES, True)))
    for spread, (height, word, is_right) in (*near, *clear):
        what = f"`{word}` at {height:g} of the limit, batteries differ by {100 * spread:.0f} %"
        words = simulate(what, partial(_judge_volume, height, spread), runs, say)
        count = count_right if is_right else partial(count_false, rate=0.1)
        for source, of_source in zip(SOURCES, zip(*words, strict=True), strict=True):
            yield count(f"{what}: {source}", [each == word for each in of_source])


def _judge_volume(height: float, spread: float, seed: int) -> tuple[str, ...]:
    """Return the words of `SOURCES` on a volume whose p99 is `height` × the limit."""
    random, course, judged = np.random.default_rng(seed), fit.Course(_LIMIT), []
    batteries = [_draw_battery(random, repeat, height, spread) for repeat in (1, 2, 3)]
    for count in (1, 2, 3):
        series = Series("volume", _VOLUME, tuple(batteries[:count]))
        judged.append(limits.judge_limits(series, tables.list_segments(series), [_LIMIT]))
        if not (course.rows and course.is_missed):
            course.rows, course.batteries = judged[-1], [battery.record for battery in batteries[:count]]
    return judged[0][0]["verdict"], judged[2][0]["verdict"], course.get_verdict()


def _draw_battery(random: np.random.Generator, repeat: int, height: float, spread: float) -> Battery:
    """Return a battery whose jobs have a common effect, and one each that is like that of the job before."""
    battery, job, samples, histograms, started = random.normal(0, spread), random.normal(0, JOB_NOISE), [], {}, 0.0
    for number in range(1, JOBS + 1):
        job = JOB_KEPT * job + random.normal(0, JOB_NOISE * math.sqrt(1 - JOB_KEPT**2))
        median = 1e6 * height * LIMIT_MS / math.exp(2.326 * SHAPE) * math.exp(battery + job)
        latencies = median * random.lognormal(0, SHAPE, WRITES)
        samples.append(volumes_records.sample(latencies, number, started, device_write_ios=2 * WRITES))
        histograms[samples[-1]["job_Id"]] = {"sync": volumes_records.fio_bins(latencies) / (1e6, 1)}
        started += samples[-1]["runtime_s"] + 10
    return Battery("volume", _VOLUME, repeat, volumes_records.record("volume", samples), [], histograms)


def bisect_releases(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Bisect 400 simulated lists of releases of each kind, whose builds differ among themselves."""
    for spread in BUILDS:
        of_builds = f"builds differ by {100 * spread:.0f} %"
        for what, times in (("8 releases alike", np.zeros(8)), ("10 steps of 2 %", math.log(1.02) * np.arange(11))):
            what = f"releases named of {what}, {of_builds}"
            yield count_false(what, list(map(bool, simulate(what, partial(_bisect, times, spread), runs, say))), 0.02)
        for ratio in (1.1, 1.2):
            what = f"named: the release of 8 that takes ×{ratio:.2f}, {of_builds}"
            times = np.where(np.arange(8) < 4, 0, math.log(ratio))
            named = simulate(what, partial(_bisect, times, spread), runs, say)
            others = sum(change not in (None, ("3", "4")) for change in named)
            yield count_right(what, [change == ("3", "4") for change in named], f"another one in {others}")


def _bisect(times: Sequence[float], spread: float, seed: int) -> tuple[str, str] | None:
    """Return the releases between which a bisect names the change, None if it names none; `times` are ln(time)."""
    random = np.random.default_rng(seed)
    builds = times + random.normal(0, spread, len(times))
    names = [str(number) for number in range(len(times))]
    ends = _judge_builds(random, builds[[0, -1]])
    whole = ends[0, 1]["ratio"]
    if judged_releases.judge_last(ends[0, 1]) != judged_releases.LAST:
        return None

    def look(first: str, name: str, last: str) -> judged_releases.Seen:
        judged = _judge_builds(random, builds[[int(first), int(name), int(last)]], whole)
        return judged_releases.Seen(judged_releases.judge_release(judged[0, 1], judged[2, 1]), "")

    def doubt(before: str, after: str) -> str:
        pairs = [[builds[int(name)], times[int(name)] + random.normal(0, spread)] for name in (before, after)]
        judged = _judge_builds(random, [pairs[0][0], *pairs[1], pairs[0][1]], whole)
        return judged_releases.find_doubt([judged[end, of] for end in (0, 3) for of in (1, 2)], whole)

    change = judged_releases.find_change(names, look, lambda _: None)
    if not change.undecided:
        judged_releases.confirm_change(change, names, doubt)
    return None if change.undecided or change.unconfirmed else (change.before, change.after)


def _judge_builds(
    random: np.random.Generator, builds: Sequence[float], whole: float = 1.0
) -> dict[tuple[int, int], dict]:
    """Measure builds until those between the first and the last are decided; return the verdicts against these two."""
    ends = judged_releases.LOOKS
    measured = random.normal(builds, NOISE, (ends[-1], len(builds)))
    pairs = [(end, other) for end in sorted({0, len(builds) - 1}) for other in range(len(builds)) if other != end]
    differences = np.stack([measured[:, other] - measured[:, end] for end, other in pairs], axis=1)
    contenders = range(1, max(2, len(builds) - 1))
    for number, blocks in enumerate(ends, 1):
        schedule = looks.plan_schedule(ends[:number], [ends[-1]] * number)
        judged = {
            pair: {**states[-1].verdict._asdict(), "decision": states[-1].name}
            for pair, states in zip(pairs, looks.judge_looks(differences[:blocks], schedule), strict=True)
        }
        rows = [
            row | {"ratio_low": row["low"], "ratio_high": row["high"]}
            for pair, row in judged.items()
            if pair[1] in contenders
        ]
        if not judged_releases.needs_more_blocks(rows, whole):
            break
    return judged
