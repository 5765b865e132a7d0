"""Statements about comparisons of runs or hosts that can be checked against the records."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sbench.pages.statements import (
    CLOSE,
    DECIDES,
    FASTER,
    MIN_BLOCKS,
    SAME,
    SLOWER,
    TOO_FEW,
    Claim,
    Comparison,
    Records,
)

# Minimum number of sessions per side for a verdict without pairs.
_MIN_SESSIONS = 4


@dataclass(frozen=True)
class SessionRatio:
    """The outcome of a comparison of two runs, with the session as the statistical unit.

    Attributes:
        baseline, contender: names of the compared cells.
        outcome: outcome according to METHOD 17; if the sessions of both runs did not alternate, it applies to these
            sessions only.
        ratio, low, high: the ratio contender / baseline and its confidence limits; NaN if unknown.
        pairs: (baseline session, contender session) pairs; empty for an unpaired comparison.
    """

    baseline: str
    contender: str
    outcome: str
    ratio: float
    low: float
    high: float
    pairs: tuple[tuple[str, str], ...] = ()

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records confirm the ratio and the outcome.

        This requires that the median ratio over pairs of sessions equals `ratio`, that there are enough sessions for
        the outcome, and that most pairs agree with its direction. If `pairs` is empty, each session of one run is
        paired with each session of the other.
        """
        base, other = (records.get_sessions(cell, DECIDES) for cell in (self.baseline, self.contender))
        if self.pairs:
            d = [math.log(other[two] / base[one]) for one, two in self.pairs if one in base and two in other]
            sessions, least = len(d), MIN_BLOCKS
        else:
            d = [math.log(two / one) for one in base.values() for two in other.values()]
            sessions, least = min(len(base), len(other)), _MIN_SESSIONS
        if math.isnan(self.ratio) or not d:
            return self.outcome not in (FASTER, SLOWER, SAME)
        if abs(np.median(d) - math.log(self.ratio)) > CLOSE:
            return False
        order = {FASTER: np.mean(np.array(d) < 0), SLOWER: np.mean(np.array(d) > 0)}
        if self.outcome in order:
            return sessions >= least and order[self.outcome] > 0.5 and (self.low > 1 or self.high < 1)
        return (sessions < least) == (self.outcome == TOO_FEW)

    @property
    def claims(self) -> Iterator[Claim]:
        """The compared cells and the outcome."""
        yield (self.baseline, self.contender), self.outcome


@dataclass(frozen=True)
class HostRatio:
    """The outcome of a comparison of two cells, with the host as the statistical unit.

    Attributes:
        baseline, contender: names of the compared cells.
        outcome: outcome according to METHOD 17.
        ratio, low, high: the ratio contender / baseline and its confidence limits; NaN if unknown.
        hosts: for each host, the comparisons of its sessions that have a ratio.
    """

    baseline: str
    contender: str
    outcome: str
    ratio: float
    low: float
    high: float
    hosts: tuple[tuple[Comparison, ...], ...]

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the records confirm the sessions, the ratio and the outcome.

        This requires that the median over hosts of the mean over sessions equals `ratio`, that there are enough hosts
        for the outcome, and that most hosts agree with its direction.
        """
        if not all(session.is_supported_by(records) for sessions in self.hosts for session in sessions):
            return False
        if math.isnan(self.ratio):
            return self.outcome not in (FASTER, SLOWER, SAME)
        d = np.array([np.mean([math.log(session.ratio) for session in sessions]) for sessions in self.hosts])
        if not len(d) or abs(np.median(d) - math.log(self.ratio)) > CLOSE:
            return False
        order = {FASTER: (d < 0).mean(), SLOWER: (d > 0).mean()}
        if self.outcome in order:
            return len(d) >= MIN_BLOCKS and order[self.outcome] > 0.5 and (self.low > 1 or self.high < 1)
        return (len(d) < MIN_BLOCKS) == (self.outcome == TOO_FEW)

    @property
    def claims(self) -> Iterator[Claim]:
        """The compared cells and the outcome."""
        yield (self.baseline, self.contender), self.outcome
