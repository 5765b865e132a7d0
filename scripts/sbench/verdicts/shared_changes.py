"""Find changes in a series of sessions, and decide whether both arms of a comparison share them.

Whatever happens to the machine, the network or the store affects both arms of a comparison by the same factor, so that
their ratio within the session stays the same. A change in the library of a single arm changes the ratio.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from sbench.verdicts import changes
from sbench.verdicts.changes import MIN_SEGMENT, Segment
from sbench.verdicts.stats import Floats

# Change points of different series that are at most this far apart are the same change.
_NEAR = MIN_SEGMENT - 1


class Owner(StrEnum):
    """What a change belongs to."""

    MACHINE = "machine"
    BASELINE = "baseline"
    CONTENDER = "contender"
    UNDECIDED = "undecided"


class Change(NamedTuple):
    """A change in the series of a comparison.

    Attributes:
        first: index of the first session after the change, counted from 0.
        owner: what the change belongs to.
        baseline: times of the baseline since the change, and their jump.
        contender: the same for the contender.
        ratio: the same for contender / baseline.
    """

    first: int
    owner: Owner
    baseline: Segment
    contender: Segment
    ratio: Segment


def find_changes(
    baseline: Floats, contender: Floats, ratio: Floats, equivalence_percent: float = 5, seed: int = 1
) -> list[Change]:
    """Find the changes of a comparison in the order of its sessions, and decide what each of them belongs to.

    A change of the ratio belongs to the arm whose time changed accordingly. If both arms also changed in the same
    direction, the machine changed in the same session, and there is a `Change` for both. Without a change of the ratio,
    a change belongs to the machine if both arms changed in the same direction, or if the ratio changed by less than
    half as much as the arm (on a logarithmic scale). It is otherwise undecided.

    Args:
        baseline: time of the baseline in each session.
        contender: the same for the contender.
        ratio: contender / baseline in each session, from their blocks.
        equivalence_percent: jumps below this percentage, or below 10 %, are ignored.
        seed: seed of the resampling.
    """
    series = [ratio, baseline, contender]
    places = [[part.first for part in changes.find_segments(own, equivalence_percent, seed)[1:]] for own in series]
    # Ratios scatter least, so they come first if the series disagree on the session.
    order = [place for own in places for place in own]
    groups = _group_places(sorted(order))
    firsts = [max(group, key=lambda place: (group[place], -order.index(place))) for group in groups]
    edges = [0, *firsts, len(ratio)]
    segments = [changes.build_segments(own, edges, seed)[1:] for own in series]
    result = []
    for first, group, *parts in zip(firsts, groups, *segments, strict=True):
        is_changed = [
            changes.is_change(part, equivalence_percent) or bool(group.keys() & set(own))
            for part, own in zip(parts, places, strict=True)
        ]
        of_ratio, of_baseline, of_contender = parts
        for owner in _list_owners(*parts, *is_changed):
            result.append(Change(first, owner, of_baseline, of_contender, of_ratio))
    return result


def _group_places(places: Sequence[int]) -> list[Counter[int]]:
    """Group sorted places whose distance to the previous one is at most `_NEAR`, and count each place in its group."""
    groups: list[Counter[int]] = []
    for place in places:
        if not groups or place - max(groups[-1]) > _NEAR:
            groups.append(Counter())
        groups[-1][place] += 1
    return groups


def _list_owners(
    ratio: Segment,
    baseline: Segment,
    contender: Segment,
    is_ratio_changed: bool,
    is_baseline_changed: bool,
    is_contender_changed: bool,
) -> Iterator[Owner]:
    """List what a change belongs to, from the segments that begin with it (see `find_changes`)."""
    is_shared = is_baseline_changed and is_contender_changed and (baseline.jump > 1) == (contender.jump > 1)
    if is_shared:
        yield Owner.MACHINE
    if is_ratio_changed:
        # A contender that slows down, or a baseline that speeds up, increases the ratio.
        grows = ratio.jump > 1
        own = [Owner.BASELINE] if is_baseline_changed and (baseline.jump < 1) == grows else []
        own += [Owner.CONTENDER] if is_contender_changed and (contender.jump > 1) == grows else []
        yield from own or [Owner.UNDECIDED]
    elif not is_shared:
        arms = [baseline] * is_baseline_changed + [contender] * is_contender_changed
        is_small = all(abs(math.log(ratio.jump)) < abs(math.log(arm.jump)) / 2 for arm in arms)
        yield Owner.MACHINE if is_small else Owner.UNDECIDED
