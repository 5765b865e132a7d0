"""Find changes of level in the latencies of a series of jobs, and estimate each jump.

The series is ln(p99) of the jobs, in units of its noise, with spikes of one or two jobs cut off. PELT finds the best
piecewise constant level at a fixed cost per change (Killick, Fearnhead & Eckley, JASA 107, 2012; the library is
ruptures: Truong, Oudre & Vayatis, Signal Processing 167, 2020). A change counts only if the medians on both sides
differ by 10 % or more, and the interval of their ratio excludes 1.

Simulated series of 6 to 200 jobs without a change set the cost. PELT finds a change in at most 5 % of them: with 10 %
of lognormal noise in 0 to 1 %, with autocorrelated noise (AR(1) with 0.3) in 2 to 3 %, with heavy tails (Student's t, 3
degrees of freedom) in 0 to 1 %. A wandering level, AR(1) with 0.5, defeats it: it finds a change in 2, 20 and 39 % of
series of 6, 50 and 200 jobs, and in 4 % of series of 50 jobs if every tenth is slower by half or more amid 3 % of
noise. It finds a jump by a factor of 1.5 amid 10 % of noise in 99.9 % of series of 50 jobs, in 99.6 % within a job of
its place, if it is 5 or more jobs from the ends; in 89 % 3 or 4 jobs from an end, in 63 % of series of 12 jobs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from sbench.verdicts import histograms, stats

MIN_SERIES = 6
MIN_SEGMENT = 3
MIN_JUMP_PERCENT = 10.0
# Cost of a change, in squares of the noise: above the 95 % quantile of the most that it saves in 200 jobs of AR(1)
# noise with 0.3.
COST = 27.0
# Half a bin of fio's percentiles hides smaller noise, so jobs that agree are not free of noise.
_LEAST_NOISE = histograms.RESOLUTION / 2
_NORMAL = 1.4826  # standard deviation / median absolute deviation
_SPIKE = 3.0
_WINDOW = 5


class Segment(NamedTuple):
    """Jobs first … last - 1 (from 0) with their median `level`; `jump` is its ratio to the level before."""

    first: int
    last: int
    level: float
    jump: float
    low: float
    high: float


def find_segments(values: Sequence[float], equivalence_percent: float = 5, seed: int = 1) -> list[Segment]:
    """Return the segments of a series of positive values; fewer than 6 values are too few to split.

    The interval of a jump is for the ratio of medians of independently resampled jobs on both sides. A change below 10
    %, or below a larger `equivalence_percent`, splits nothing.
    """
    values = np.asarray(values, dtype=float)
    if not len(values):
        return []
    edges = [0, *find_change_points(values), len(values)]
    least = math.log1p(max(MIN_JUMP_PERCENT, equivalence_percent) / 100)
    while True:
        parts = [_build_segment(values, edges, place, seed) for place in range(len(edges) - 1)]
        jumps = {place: abs(math.log(part.jump)) for place, part in enumerate(parts) if place}
        weak = [place for place, jump in jumps.items() if jump < least or parts[place].low <= 1 <= parts[place].high]
        if not weak:
            return parts
        edges.pop(min(weak, key=jumps.get))


def find_change_points(values: Sequence[float]) -> list[int]:
    """Return the first place (from 0) of each level that PELT finds, except the first level."""
    if len(values) < MIN_SERIES:
        return []
    logs = np.log(np.asarray(values, dtype=float))
    noise = max(_NORMAL * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2), _LEAST_NOISE)
    level = ndimage.median_filter(logs, size=_WINDOW, mode="nearest")
    signal = (level + np.clip(logs - level, -_SPIKE * noise, _SPIKE * noise)) / noise
    # Import here: it takes a second, and a report does not look for changes.
    import ruptures

    # The linear kernel's cost is the sum of squares around the mean.
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_SEGMENT).fit(signal.reshape(-1, 1))
    return [int(place) for place in search.predict(pen=COST)[:-1]]


def _build_segment(values: np.ndarray, edges: list[int], place: int, seed: int) -> Segment:
    first, last = edges[place : place + 2]
    level = float(np.median(values[first:last]))
    if place == 0:
        return Segment(first, last, level, math.nan, math.nan, math.nan)
    before = values[edges[place - 1] : first]
    ratios = histograms.resample_medians(values[first:last], seed, 1) / histograms.resample_medians(before, seed, 0)
    low, high = stats.compute_interval(ratios, max(min(len(before), last - first), stats.MIN_BLOCKS))
    return Segment(first, last, level, level / float(np.median(before)), float(low), float(high))
