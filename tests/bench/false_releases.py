"""How often a bisect by seconds names a release that changed nothing, where each build has a time of its own."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sbench.files import judged_releases
from sbench.verdicts import stats
from tests.bench.common import Row, Say, count_false

NOISE, BLOCKS = 0.02, 10  # standard deviation of ln(time) of a record; blocks of a step
BUILDS = (0.02, 0.03)  # standard deviation of ln(time) between builds of one release
GRADUAL, ONE = 1.02, (1.1, 1.2)
_RATE = 0.02


def rows(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Bisect 400 simulated lists of releases of each kind, whose builds differ among themselves."""
    for spread in BUILDS:
        of_builds = f"builds differ by {100 * spread:.0f} %"
        for what, times in (("8 releases alike", np.zeros(8)), ("10 steps of 2 %", math.log(GRADUAL) * np.arange(11))):
            say(f"{what}, {of_builds}")
            wrong = sum(bool(_named(np.random.default_rng(seed), times, spread)) for seed in range(runs))
            yield count_false(f"releases named of {what}, {of_builds}", wrong, runs, _RATE)
        for ratio in ONE:
            say(f"one of 8 releases takes {ratio:g} times as long, {of_builds}")
            times = np.where(np.arange(8) < 4, 0, math.log(ratio))
            named = [_named(np.random.default_rng(seed), times, spread) for seed in range(runs)]
            right, wrong = named.count(("3", "4")), runs - named.count(("3", "4")) - named.count(None)
            what = f"the release of 8 that takes ×{ratio:.2f}, {of_builds}"
            yield Row(what, f"named in {right} of {runs}", f"another one in {wrong}")


def _named(random: np.random.Generator, times: Sequence[float], spread: float) -> tuple[str, str] | None:
    """Return the releases between which a bisect names the change, None where it names none."""
    builds = times + random.normal(0, spread, len(times))
    names = [str(number) for number in range(len(times))]
    ends = _judge(random, builds[[0, -1]])
    if judged_releases.of_ends(ends[0, 1]) != judged_releases.LAST:
        return None

    def look(first: str, name: str, last: str) -> judged_releases.Seen:
        judged = _judge(random, builds[[int(first), int(name), int(last)]])
        return judged_releases.Seen(judged_releases.likeness(judged[0, 1], judged[2, 1]), "")

    def doubt(before: str, after: str) -> str:
        earlier, later = ([builds[int(one)], times[int(one)] + random.normal(0, spread)] for one in (before, after))
        judged = _judge(random, [earlier[0], *later, earlier[1]])
        return judged_releases.find_doubt([judged[end, one] for end in (0, 3) for one in (1, 2)], ends[0, 1]["ratio"])

    change = judged_releases.search(names, look, lambda _: None)
    if not change.undecided:
        judged_releases.settle(change, names, doubt)
    return None if change.undecided or change.unconfirmed else (change.before, change.after)


def _judge(random: np.random.Generator, builds: Sequence[float]) -> dict[tuple[int, int], dict]:
    """Return the verdicts on builds, measured in turn, against the first and the last of them."""
    measured = random.normal(builds, NOISE, (BLOCKS, len(builds)))
    last = len(builds) - 1
    pairs = [(end, one) for end in dict.fromkeys((0, last)) for one in range(len(builds)) if one != end]
    differences = np.stack([measured[:, one] - measured[:, end] for end, one in pairs], axis=1)
    return {pair: verdict._asdict() for pair, verdict in zip(pairs, stats.judge(differences), strict=True)}
