"""How often `sbench advise` recommends a way that gains nothing on other files, where files differ in what it gains."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from sbench.files import ways
from sbench.studies.shots.arms import Arm
from sbench.verdicts import stats
from tests.bench.common import Row, Say, count_false

NOISE, BLOCKS, FILES, READ = 0.02, 6, 6, 3  # sd of ln(time) of a read; files that are tried, and read by a record
SPREADS = (0.05, 0.1, 0.2)  # sd of ln(gain) between files
_LEVEL = "all"
_CACHES = ("default", "blockcache-1MiB", "blockcache-4MiB", "blockcache-16MiB", "readahead-1MiB")
_FORECAST = {key: {_LEVEL: 1.0} for key in ("requests", "bytes", "seconds")}
_ARMS = [vars(Arm("original", "s3fs", read_cache=cache, **_FORECAST)) for cache in _CACHES]
_RATE = 0.1


def rows(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Advise 400 simulated times on files of which no way gains anything on average, and where one does."""
    for files, spread in itertools.product((READ, FILES), SPREADS):
        say(f"{files} files differ by {100 * spread:.0f} % in what 4 ways gain, which is nothing on average")
        wrong = sum(_advise(np.random.default_rng(seed), 1.0, spread, files).is_of_others for seed in range(runs))
        what = f"advice on other files, which gain nothing; {files} differ by {100 * spread:.0f} %"
        yield count_false(what, wrong, runs, _RATE)
    for spread, gain in itertools.product(SPREADS, (1.3, 2.0)):
        say(f"one of 4 ways is {gain:g} times as fast, files differ by {100 * spread:.0f} %")
        advised = (_advise(np.random.default_rng(seed), gain, spread, FILES) for seed in range(runs))
        right = sum(advice.best.arm["read_cache"] == _CACHES[1] for advice in advised)
        what = f"a way that is {gain:g} times as fast, files differ by {100 * spread:.0f} %"
        yield Row(what, f"advised in {right} of {runs}")


def _advise(random: np.random.Generator, gain: float, spread: float, files: int) -> ways.Advice:
    """Return the advice on files as they are, and four other ways of which the first gains something on average."""
    gains = random.normal(0, spread, (len(_ARMS), files))
    gains[0], gains[1] = 0, gains[1] + np.log(gain)
    read = np.array([random.permutation(files)[:READ] for _ in range(BLOCKS)])
    seconds = np.exp(
        random.normal(0, 0.5, files)[read] - gains[:, read] + random.normal(0, NOISE, gains[:, read].shape)
    )
    cells = [
        arm | {"cell": str(number), "selection": _LEVEL, "access": "files", "total_s": np.median(of.sum(axis=1))}
        for number, (arm, of) in enumerate(zip(_ARMS, seconds, strict=True))
    ]
    samples = [
        {"cell": str(arm), "repeat": block + 1, "obj-id": str(read[block, place]), "valid": True}
        | {"open+read-data-time": seconds[arm, block, place]}
        for arm, block, place in np.ndindex(seconds.shape)
    ]
    run = SimpleNamespace(
        measured=pd.DataFrame(cells),
        contest=_contest(seconds.sum(axis=2)),
        comparisons=lambda: pd.DataFrame(),
        samples=pd.DataFrame(samples),
        facts={
            "settings": {"advice": {"accesses": {_LEVEL: 1.0}, "arms": _ARMS, "considered": _ARMS}, "read_files": READ}
        },
    )
    return ways.read_advice(run)


def _contest(seconds: np.ndarray) -> pd.DataFrame:
    """Return the verdicts on all pairs of arms, by the seconds of their blocks (arms, blocks), as one family."""
    pairs = list(itertools.combinations(range(len(seconds)), 2))
    logs = np.log(seconds)
    judged = stats.judge(np.stack([logs[two] - logs[one] for one, two in pairs], axis=1))
    return pd.DataFrame(
        [
            {"baseline_cell": str(one), "contender_cell": str(two), "ratio": verdict.ratio, "ratio_low": verdict.low}
            | {"ratio_high": verdict.high, "verdict": verdict.verdict, "detectable_ratio": verdict.detectable_ratio}
            for (one, two), verdict in zip(pairs, judged, strict=True)
        ]
    )
