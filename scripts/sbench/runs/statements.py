"""Statements on comparisons of runs, with the session as the unit, each with the check that it holds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sbench.pages.statements import CLOSE, DECIDES, FASTER, MIN_BLOCKS, SAME, SLOWER, TOO_FEW, Claim, Records

# Sessions of each side that a verdict needs without pairs.
_MIN_SESSIONS = 4


@dataclass(frozen=True)
class SessionRatio:
    """The outcome of a comparison of runs, with the session as the unit: contender / baseline.

    Attributes:
        baseline, contender: names of both cells.
        outcome: outcome by METHOD 17; of these sessions alone if the sides did not take turns.
        ratio, low, high: ratio of the sides, and both ends of its interval; NaN if unknown.
        pairs: pairs of sessions of the baseline and of the contender; empty if the sides are not paired.
    """

    baseline: str
    contender: str
    outcome: str
    ratio: float
    low: float
    high: float
    pairs: tuple[tuple[str, str], ...] = ()

    def is_supported_by(self, records: Records) -> bool:
        """Return whether the sessions have the ratio, are enough for the outcome, and most agree with its order."""
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
        """The outcome, with both cells."""
        yield (self.baseline, self.contender), self.outcome
