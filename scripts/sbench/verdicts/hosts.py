"""Compare two arms that many hosts measured in sessions, with the host as the unit of the statistics (METHOD 17).

Sessions of one host have its hardware in common, so that more of them are no evidence about other hosts of its type.
The model is a one-way layout with random effects: ln(contender / baseline) of a session is the sum of the common
difference, an effect of the host, and an effect of the session.
"""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from sbench.verdicts import stats
from sbench.verdicts.stats import Floats, Verdict

_TAIL = (1 - stats.CONFIDENCE) / 2


class Spread(NamedTuple):
    """The spread of ln(contender / baseline) between sessions, split into its two sources.

    Attributes:
        between: standard deviation between hosts; NaN if no host has two sessions.
        within: standard deviation between sessions of a host; NaN if no host has two sessions.
        share: share of the variance of a session that is between hosts, from 0 to 1; NaN if unknown.
        low, high: 95 % CI of the share.
    """

    between: float
    within: float
    share: float
    low: float
    high: float


def average_hosts(d: Floats, hosts: Sequence[Hashable]) -> Floats:
    """Return the mean over the sessions of each host, an array (hosts, comparisons) in the order of first sessions.

    Args:
        d: ln(contender / baseline) of each session, an array (sessions, comparisons), NaN if missing.
        hosts: the host of each session.
    """
    of_hosts = [d[[other == host for other in hosts]] for host in dict.fromkeys(hosts)]
    present = [np.isfinite(of_host) for of_host in of_hosts]
    sums = [np.where(there, of_host, 0).sum(axis=0) for there, of_host in zip(present, of_hosts, strict=True)]
    counts = np.array([there.sum(axis=0) for there in present], dtype=float)
    return np.array(sums) / np.where(counts > 0, counts, math.nan)


def judge_hosts(
    d: Floats, hosts: Sequence[Hashable], equivalence_percent: float = 5, seed: int = 1, means: Floats | None = None
) -> list[Verdict]:
    """Return a verdict for each comparison of a family from `stats.judge_family`, with hosts in the place of blocks.

    The value of a host is the mean over its sessions. With fewer than six hosts, the verdict is `too few repeats`.

    Args:
        d: ln(contender / baseline) of each session, an array (sessions, comparisons), NaN if missing.
        hosts: the host of each session.
        equivalence_percent: the equivalence margin in percent.
        seed: seed of the sign flips, which are drawn at random for more than 12 hosts.
        means: ln of the ratio of mean times, like `d`. `same` then requires its CI to lie within the margin, too.

    Returns:
        A verdict per comparison, with the number of hosts as its `blocks` and the median of the hosts as its ratio.
    """
    of_means = None
    if means is not None:
        low, high = np.exp(stats.compute_bootstrap_interval(average_hosts(means, hosts)))
        of_means = [stats.Estimate(math.nan, *ends, 0) for ends in zip(low.tolist(), high.tolist(), strict=True)]
    return stats.judge_family(average_hosts(d, hosts), equivalence_percent, seed, means=of_means)


def estimate_spread(d: Floats, hosts: Sequence[Hashable]) -> Spread:
    """Split the spread of a comparison between sessions into its shares between hosts and within hosts.

    Analysis of variance of a one-way layout with random effects, also for unequal numbers of sessions (Searle, Casella
    & McCulloch, Variance Components, 1992, sections 3.6 and 4.3). The CI of the share comes from the F distribution; it
    is exact for equal numbers of sessions and normal effects.

    Args:
        d: ln(contender / baseline) of each session, NaN if missing.
        hosts: the host of each session.
    """
    groups = [d[[other == host for other in hosts] & np.isfinite(d)] for host in dict.fromkeys(hosts)]
    groups = [group for group in groups if len(group)]
    counts = np.array([len(group) for group in groups], dtype=float)
    many, total = len(groups), counts.sum()
    if many < 2 or total == many:
        return Spread(*[math.nan] * 5)
    centres = np.array([group.mean() for group in groups])
    inside = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - many)
    outside = float((counts * (centres - (counts * centres).sum() / total) ** 2).sum()) / (many - 1)
    size = float((total - (counts**2).sum() / total) / (many - 1))
    between = max(0.0, (outside - inside) / size)
    if not inside:
        share = float(outside > 0)
        return Spread(math.sqrt(between), 0.0, share, share, share)
    quantiles = [float(special.fdtri(many - 1, total - many, level)) for level in (1 - _TAIL, _TAIL)]
    ends = [outside / inside / quantile for quantile in quantiles]
    low, high = (min(1.0, max(0.0, (end - 1) / (end + size - 1))) for end in ends)
    return Spread(math.sqrt(between), math.sqrt(inside), between / (between + inside), low, high)
