"""Rates of right and wrong verdicts over hosts, in simulated sessions of hosts whose truth is known."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sbench.verdicts import hosts, stats
from sbench.verdicts.outcomes import ORDERED, Outcome
from tests.bench.common import Row, Say, count_false, simulate

BLOCKS, RECORD = 6, 0.02  # blocks of a session; standard deviation (sd) of ln(time) of a record
FOUND = 0.9  # share of runs in which a difference of 10 % should be detected


@dataclass(frozen=True)
class Case:
    """Simulated hosts.

    Attributes:
        ratio: contender / baseline in the first comparison.
        hosts, sessions: number of hosts, and of sessions of each.
        of_host: sd of ln(time) between hosts, alike in both arms.
        of_ratio: sd of ln(contender / baseline) between hosts.
        slow: ln of how much longer the first host takes, in both arms.
        comparisons: comparisons of the family; only the first differs.
    """

    ratio: float = 1.0
    hosts: int = 6
    sessions: int = 2
    of_host: float = 0.05
    of_ratio: float = 0.02
    slow: float = 0.0
    comparisons: int = 1


SLOW_HOST = Case(slow=math.log(1.3), comparisons=4)
DIFFERENT = Case(ratio=1.1)


def judge_simulated_hosts(case: Case, seed: int) -> list[Outcome]:
    """Return the outcomes of the comparisons in a simulated set of sessions."""
    d, names = draw_sessions(case, seed)
    return [verdict.verdict for verdict in hosts.judge_hosts(d, names)]


def draw_sessions(case: Case, seed: int) -> tuple[np.ndarray, list[int]]:
    """Return ln(contender / baseline) of simulated sessions, an array (sessions, comparisons), and their hosts."""
    random = np.random.default_rng(seed)
    names = np.repeat(np.arange(case.hosts), case.sessions)
    shape = (case.hosts, 1, case.comparisons)
    level = random.normal(0, case.of_host, shape) + case.slow * (np.arange(case.hosts) == 0)[:, None, None]
    difference = random.normal(0, case.of_ratio, shape)
    difference[:, :, 0] += math.log(case.ratio)
    noise = random.normal(0, RECORD, (2, len(names), BLOCKS, case.comparisons))
    base, other = level[names] + noise[0], (level + difference)[names] + noise[1]
    return np.median(other - base, axis=1), names.tolist()


def _has_false_verdict_at_a_look(case: Case, seed: int) -> bool:
    """Return whether hosts that do not differ get a verdict at 6, 8, 10 or 12 hosts, if looked at each time."""
    d, names = draw_sessions(case, seed)
    ends = [number * case.sessions for number in range(6, case.hosts + 1, 2)]
    return any(one.verdict in ORDERED for end in ends for one in hosts.judge_hosts(d[:end], names[:end]))


def judge_hosts(folder: Path, say: Say, runs: int = 400) -> Iterator[Row]:
    """Judge 400 simulated sets of sessions on hosts that do not differ, and on hosts with a true difference."""
    for what, case in {
        "one host of six 30 % slower in both arms, 4 comparisons": SLOW_HOST,
        "ratios differ by 5 % between 6 hosts, 4 comparisons": Case(of_ratio=0.05, comparisons=4),
        "ratios differ by 5 % between 12 hosts, 4 comparisons": Case(of_ratio=0.05, comparisons=4, hosts=12),
    }.items():
        judged = simulate(what, partial(judge_simulated_hosts, case), runs, say)
        yield count_false(f"false verdicts: {what}", [any(one in ORDERED for one in run) for run in judged])
    what = "ratios differ by 5 %, looked at 6, 8, 10 and 12 hosts, 4 comparisons"
    judged = simulate(
        what, partial(_has_false_verdict_at_a_look, Case(of_ratio=0.05, comparisons=4, hosts=12)), runs, say
    )
    yield Row(f"false verdicts: {what}", f"{sum(judged)} of {len(judged)}")
    of_ratio = replace(DIFFERENT, of_ratio=0.05)
    for what, case in {
        "6 hosts × 2 sessions, times differ by 5 % between hosts, ratios by 2 %": DIFFERENT,
        "6 hosts × 2 sessions, ratios differ by 5 % between hosts": of_ratio,
        "8 hosts × 2 sessions, ratios differ by 5 % between hosts": replace(of_ratio, hosts=8),
        "8 hosts × 2 sessions, ratios differ by 5 %, among 4 comparisons": replace(of_ratio, hosts=8, comparisons=4),
    }.items():
        judged = simulate(what, partial(judge_simulated_hosts, case), runs, say)
        right = sum(run[0] == Outcome.SLOWER for run in judged)
        share = stats.estimate_share(right, len(judged))
        interval, least = f"[{100 * share.low:.1f}, {100 * share.high:.1f}] %", math.ceil(FOUND * len(judged))
        goal = f"≥ {least} of {len(judged)}"
        yield Row(f"×1.10 detected: {what}", f"{right} of {len(judged)}", interval, goal=goal, within=right >= least)
