"""How often the project is wrong: runs without a difference, from their records to the sentences of a page."""

import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import records
from sbench.measure import gather, tables
from sbench.pages import findings
from sbench.studies.shots.report import results
from sbench.studies.volumes import fio, judging, series
from sbench.studies.volumes import tables as of_volumes
from sbench.verdicts import stats
from sbench.verdicts.outcomes import DECIDED, ORDERED, Outcome
from tests.bench.common import Row, Say, count_false
from tests.fio_results import Battery, Job, write_battery

NOISE, SLOWER = 0.02, 1.05  # standard deviation of ln(time) of a record; what a later session is slower by
PAIRS, JOBS, WRITES = 6, 20, 2000  # batteries of a volume, their jobs, and the writes of each
OFTEN, TIMES = 0.2, 3  # the share of slow repeats, and how many times as long they take
_MATRIX = "cell,library,store,control,omitted,twin_of\nold,old,disk,,,\nnew,new,disk,,,\n"
_COMPARE = [{"factor": "library", "baseline": "old"}]
Arms = tuple[list[float], list[str], list[float], list[str]]


def rows(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge 400 simulated runs of each kind in which nothing differs, and others with a known difference."""
    simulated: dict[str, Callable[[np.random.Generator], str]] = {
        "a second session is 5 % slower": lambda random: judge_records(folder, _later_session(random, 4)),
        "one arm was measured again in a slower session": lambda random: judge_records(
            folder, _later_session(random, 0)
        ),
        "4 blocks added where 6 were undecided": lambda random: _looked_at_twice(folder, random),
    }
    for what, judge in simulated.items():
        say(what)
        wrong = sum(judge(np.random.default_rng(seed)) in ORDERED for seed in range(runs))
        yield count_false(f"false verdicts where {what}", wrong, runs)
    for effect in (0.05, 0.1):
        say(f"identical volumes whose batteries differ by {100 * effect:.0f} %, from fio's files")
        wrong = sum(_unlike_batteries(folder, np.random.default_rng(seed), effect) for seed in range(runs))
        yield count_false(
            f"false verdicts between identical volumes, batteries differ by {100 * effect:.0f} %", wrong, runs
        )
    for repeats in (10, 20, 30):
        say(f"{repeats} repeats of which a fifth take 3 times as long")
        verdicts = [judge_records(folder, arms) for seed in range(runs) if (arms := _slow_at_times(seed, repeats))]
        what = f"called the same of {repeats} repeats with slow ones"
        yield count_false(what, verdicts.count(Outcome.SAME), len(verdicts))
    for repeats in (6, 8):
        say(f"24 comparisons, one of them 10 % slower, {repeats} repeats")
        right = sum(_power(np.random.default_rng(seed), repeats) for seed in range(runs))
        what = f"power for ×1.10 among 24 comparisons at {repeats} repeats, noise {100 * NOISE:.0f} %"
        yield Row(what, f"{right / runs:.2f}", f"{right} of {runs} runs")


def _times(random: np.random.Generator, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.exp(random.normal(0, NOISE, (2, repeats))))


def _later_session(random: np.random.Generator, first: int) -> Arms:
    """A library whose blocks from `first` on were measured in a later session, which is slower."""
    base, other = _times(random, 10)
    other[first:] *= SLOWER
    return [*base], ["1"] * 10, [*other], ["1"] * first + ["2"] * (10 - first)


def _looked_at_twice(folder: Path, random: np.random.Generator) -> str:
    base, other = _times(random, 10)
    first = judge_records(folder, ([*base[:6]], ["1"] * 6, [*other[:6]], ["1"] * 6))
    if first != Outcome.NO_EVIDENCE:
        return first
    sessions = ["1"] * 6 + ["2"] * 4
    return judge_records(folder, ([*base], sessions, [*other], sessions))


def _slow_at_times(seed: int, repeats: int) -> Arms | None:
    """A contender that takes 3 times as long in a fifth of its repeats; None where it never did."""
    random = np.random.default_rng(seed)
    base, other = _times(random, repeats)
    slow = random.random(repeats) < OFTEN
    sessions = ["1"] * repeats
    return ([*base], sessions, [*np.where(slow, TIMES, 1) * other], sessions) if slow.any() else None


def _unlike_batteries(folder: Path, random: np.random.Generator, effect: float) -> bool:
    """Whether identical volumes are told apart whose batteries each have an effect that all its jobs share."""
    verdict = judge_volumes(folder, random, lambda store, repeat: math.exp(random.normal(0, effect)))
    return verdict in ORDERED


def judge_volumes(
    folder: Path,
    random: np.random.Generator,
    scale: Callable[[str, int], float],
    position: Callable[[str, int], int] | None = None,
) -> str:
    """Return the verdict on the p99 of 6 pairs of batteries in fio's files.

    `scale` is how many times as long the operations of a battery take, by its store and repeat, `position` its place in
    the order in which batteries are measured, which is not known without it.
    """
    kept = []
    for store, repeat in itertools.product("ab", range(1, PAIRS + 1)):
        slower, seed = scale(store, repeat), int(random.integers(2**31))
        job = Job(mean_ms=slower, p99_ms=2 * slower, writes=WRITES)
        with tempfile.TemporaryDirectory(dir=folder) as parent:
            battery = fio.read_battery(write_battery(Path(parent), Battery(jobs=JOBS, job=job, noise=NOISE, seed=seed)))
        levels = {"store": store, "job": "etcd", "background": "none", "start_credits": "", "host": "", "control": ""}
        record = _record("volumes", store, levels, repeat, "1") | {"volume": {}, "battery": battery["facts"]}
        record |= {key: battery[key] for key in ("histograms", "fio", "job_options", "background", "loop", "samples")}
        record |= {"position": position(store, repeat)} if position else {}
        kept.append(records.Kept(store, levels, repeat, folder / f"{store}/repeat={repeat}.json", record))
    matrix = pd.DataFrame([{"cell": store, **levels, "omitted": "", "twin_of": ""} for store, levels in _cells(kept)])
    volumes = series.read(matrix, kept, {}, {})
    segments = {one.levels: of_volumes.segments_of(one) for one in volumes}
    rows = judging.comparisons(volumes, segments, [{"factor": "store", "baseline": "a"}])
    return rows[(rows["metric"] == "p99") & (rows["phase"] == "all")]["verdict"].item()


def _cells(kept: list[records.Kept]) -> list[tuple[str, dict]]:
    return list({one.cell: one.levels for one in kept}.items())


def _power(random: np.random.Generator, repeats: int) -> bool:
    """Whether the one of 24 comparisons that is 10 % slower is found."""
    d = random.normal(0, NOISE * np.sqrt(2), (repeats, 24))
    d[:, 0] += np.log(1.1)
    return stats.judge(d)[0].verdict == Outcome.SLOWER


def judge_records(folder: Path, arms: Arms) -> str:
    """Return the verdict of a run by its records, tables and sentence; the sentence says what the verdict is.

    A record whose time is NaN has failed.
    """
    (folder / "matrix.csv").write_text(_MATRIX, encoding="utf-8")
    kept = [*_kept("old", *arms[:2]), *_kept("new", *arms[2:])]
    config = {"equivalence_percent": 5, "seed": 1, "studies": {"shots": {"compare": _COMPARE}}}
    made = gather.merged(config, "shots", tables.read_matrix(folder / "matrix.csv"), kept, {})
    gather.write(made, folder)
    (folder / "facts.json").write_text(json.dumps({"study": "shots", "stores": {"disk": {"kind": "posix"}}}))
    run = results.load(folder, folder / "facts.json")
    verdict = made["verdicts"].iloc[0]["verdict"]
    texts = [one.verdict for one in findings.find(run)]
    return verdict if verdict in texts or verdict not in DECIDED else f"{verdict}, but the page says {texts}"


def _kept(cell: str, seconds: list[float], sessions: list[str]) -> Iterator[records.Kept]:
    levels = {"library": cell, "store": "disk", "control": ""}
    for number, (took, session) in enumerate(zip(seconds, sessions, strict=True), 1):
        record = _record("shots", cell, levels, number, session)
        record |= {"seconds": {"total": float(took)}, "work": {"logical_bytes": 2**20}, "samples": []}
        record |= {"status": "failed", "valid": False, "reasons": ["no answer"]} if math.isnan(took) else {}
        yield records.Kept(cell, levels, number, Path(f"{cell}/repeat={number}.json"), record)


def _record(study: str, cell: str, levels: dict, repeat: int, session: str) -> dict:
    return {
        **{"record": 1, "status": "done", "run": "bench", "study": study, "name": cell, "cell": levels},
        **{"repeat": repeat, "valid": True, "reasons": [], "session": session, "seconds": {"total": 1.0}},
        **{"work": {}, "host": {"node": "a"}, "provenance": {}},
    }
