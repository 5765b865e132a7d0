"""A change of both arms is of the machine, a change of one arm is of that arm, and noise is no change."""

from collections import Counter

import numpy as np
import pytest

from sbench.verdicts import shared_changes
from sbench.verdicts.shared_changes import Change, Owner

SESSIONS, FIRST = 20, 11


def simulate(
    seed: int,
    baseline: float = 1.0,
    contender: float = 1.0,
    sessions: int = SESSIONS,
    shared: float = 0.05,
    own: float = 0.02,
) -> list[Change]:
    """Find the changes of a comparison whose times are multiplied by these factors from session `FIRST` on.

    The noise of a session is `shared` by both arms, or the `own` of each arm.
    """
    random = np.random.default_rng(seed)
    session, of_arms = random.normal(0, shared, sessions), random.normal(0, own, (2, sessions))
    is_after = np.arange(sessions) >= FIRST
    factors = (np.where(is_after, factor, 1.0) for factor in (baseline, contender))
    base, other = (factor * np.exp(session + noise) for factor, noise in zip(factors, of_arms, strict=True))
    return shared_changes.find_changes(base, 1.2 * other, 1.2 * other / base)


@pytest.mark.parametrize("sessions", [6, 20, 60])
def test_series_without_a_change_are_given_one_in_at_most_5_percent(sessions: int):
    false = sum(bool(simulate(seed, sessions=sessions)) for seed in range(200))
    assert false <= 10


@pytest.mark.parametrize(
    "baseline, contender, owners",
    [
        (1.3, 1.3, [Owner.MACHINE]),
        (0.7, 0.7, [Owner.MACHINE]),
        (1.0, 1.3, [Owner.CONTENDER]),
        (1.0, 0.7, [Owner.CONTENDER]),
        (1.3, 1.0, [Owner.BASELINE]),
        (0.7, 1.0, [Owner.BASELINE]),
        (1.3, 1.6, [Owner.MACHINE, Owner.CONTENDER]),
        (1.6, 1.3, [Owner.MACHINE, Owner.BASELINE]),
        (0.7, 1.3, [Owner.BASELINE, Owner.CONTENDER]),
    ],
)
def test_the_owner_of_a_step_is_known_in_95_of_100_series(baseline: float, contender: float, owners: list[Owner]):
    series = [simulate(seed, baseline, contender) for seed in range(100)]
    right = [[change.owner for change in changes] == owners for changes in series]
    near = [all(abs(change.first - FIRST) <= 1 for change in changes) for changes in series]
    assert sum(right) >= 95
    assert sum(near) >= 95


@pytest.mark.parametrize("baseline, contender", [(1.3, 1.3), (1.0, 1.3), (1.3, 1.0)])
def test_amid_much_noise_a_step_is_missed_or_undecided_rather_than_of_the_wrong_owner(baseline, contender):
    right = Owner.MACHINE if baseline == contender else Owner.CONTENDER if contender > 1 else Owner.BASELINE
    series = [simulate(seed, baseline, contender, shared=0.15, own=0.05) for seed in range(100)]
    owners = Counter(change.owner for changes in series for change in changes if abs(change.first - FIRST) <= 1)
    assert sum(owners.values()) >= 10
    assert sum(owners.values()) - owners[right] - owners[Owner.UNDECIDED] <= 5


@pytest.mark.parametrize(
    "baseline, contender, owner",
    [(1.03, 1.12, Owner.UNDECIDED), (1.09, 1.12, Owner.MACHINE), (1.12, 1.03, Owner.UNDECIDED)],
)
def test_a_change_of_one_arm_that_the_ratio_does_not_confirm_is_undecided(baseline, contender, owner):
    (change,) = simulate(1, baseline, contender, shared=0.004, own=0.002)
    assert change.owner == owner


def test_a_change_has_the_size_of_each_series_with_its_interval():
    (change,) = simulate(3, 1.0, 1.3)
    assert change.first == FIRST
    for part, jump in ((change.baseline, 1.0), (change.contender, 1.3), (change.ratio, 1.3)):
        assert part.jump == pytest.approx(jump, rel=0.06)
        assert part.low <= jump <= part.high
    assert change.ratio.level == pytest.approx(1.2 * 1.3, rel=0.03)
