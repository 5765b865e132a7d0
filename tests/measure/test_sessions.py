"""Tests whose unit is the session: against SciPy's exact ones, and against how often they are wrong."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from sbench.measure import session_records
from sbench.runs import privacy
from sbench.verdicts import sessions
from sbench.verdicts.outcomes import Outcome

FASTER = math.log(0.8)
# Sessions of a side, and the spread of their ln times.
SCATTER = ((4, 0.1), (8, 0.02))


def sides(shift: float, cells: int = 3, of: tuple[int, int] = (4, 4), seed: int = 1, noise: float = 0.02):
    """Return ln times of sessions of two sides, the first cell of the other one shifted."""
    random = np.random.default_rng(seed)
    base, other = (random.normal(0, noise, (count, cells)) for count in of)
    other[:, 0] += shift
    return base, other


@pytest.mark.parametrize("of", [(4, 4), (4, 6), (7, 5)])
def test_the_p_of_one_cell_is_that_of_all_splits_or_of_welch_where_that_is_larger(of):
    base, other = sides(0.03, cells=1, of=of)
    (verdict,) = sessions.judge_sessions(base, other)

    def t(x, y):
        return abs(scipy_stats.ttest_ind(x, y).statistic)

    values, observed = np.concatenate([other[:, 0], base[:, 0]]), t(other[:, 0], base[:, 0])
    splits = [list(split) for split in itertools.combinations(range(len(values)), of[1])]
    reached = [t(values[split], np.delete(values, split)) >= observed * (1 - 1e-9) for split in splits]
    welch = scipy_stats.ttest_ind(base, other, equal_var=False).pvalue[0]
    assert verdict.p == pytest.approx(max(np.mean(reached), welch))


@pytest.mark.rule(17)
@pytest.mark.parametrize("cells", [1, 12])
def test_few_sessions_that_scatter_more_than_many_are_rarely_called_slower(cells):
    """Splits alone call one of them faster or slower in a fifth of these runs."""
    wrong = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        few, many = (random.normal(0, spread, (n, 1)) + random.normal(0, 0.01, (n, cells)) for n, spread in SCATTER)
        wrong += any(verdict.verdict in ("faster", "slower") for verdict in sessions.judge_sessions(few, many))
    assert wrong <= 20


@pytest.mark.rule(17)
def test_few_sessions_are_rarely_called_slower_than_many_that_scatter_almost_as_much():
    """The factor is below that of `UNEQUAL`. Where each cell is tested by itself a quarter of these runs is wrong."""
    wrong = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        many, few = random.normal(0, 0.02, (12, 24)), random.normal(0, 0.038, (4, 24))
        wrong += any(verdict.verdict in ("faster", "slower") for verdict in sessions.judge_sessions(many, few))
    assert wrong <= 30


@pytest.mark.rule(17)
@pytest.mark.parametrize("times, holds_welch", [(1.5, False), (3, True)])
def test_the_interval_is_also_that_of_welch_from_twice_the_scatter_on(times, holds_welch):
    """Below that factor the interval is that of the rank-sum test alone, which is narrower here."""
    base = 0.01 * np.array([-1.0, -0.1, -0.05, 0.0, 0.02, 0.05, 0.1, 1.0])[:, None]
    other = times * base
    (verdict,) = sessions.judge_sessions(base, other)
    low, high = scipy_stats.ttest_ind(other, base, equal_var=False).confidence_interval(0.95)
    assert (np.log(verdict.low) <= low[0] + 1e-12 and high[0] - 1e-12 <= np.log(verdict.high)) == holds_welch


@pytest.mark.parametrize("m, n", [*itertools.combinations_with_replacement(range(1, 7), 2), (2, 79)])
def test_an_interval_is_by_the_largest_rank_that_at_most_2_5_percent_of_splits_fall_below(m, n):
    """Brute force; of 2 and 79 sessions, 81 of the 3,240 splits are 2.5 % exactly."""
    splits = itertools.combinations(range(m + n), m)
    pairs = np.array([sum(place - below for below, place in enumerate(split)) for split in splits])
    ranks = [rank for rank in range(1, m * n + 1) if (pairs < rank).mean() <= 0.025 + 1e-12]
    assert sessions._compute_rank(m, n) == max(ranks, default=0)


def test_sessions_that_are_all_alike_are_no_division_by_nothing():
    base, other = np.zeros((4, 2)), np.tile([math.log(2), 0], (4, 1))
    assert [verdict.verdict for verdict in sessions.judge_sessions(base, other)] == ["slower", "same"]


@pytest.mark.parametrize("m, n", [(4, 4), (4, 7), (9, 6), (12, 12)])
def test_the_interval_is_that_of_the_exact_rank_sum_test(m, n):
    random = np.random.default_rng(m * n)
    base, other = random.normal(0, 1, m), random.normal(0.5, 1, n)
    (verdict,) = sessions.judge_sessions(base[:, None], other[:, None])
    differences = np.sort((other[:, None] - base).ravel())
    assert verdict.ratio == pytest.approx(math.exp(np.median(differences)))

    def p(shift: float) -> float:
        return scipy_stats.mannwhitneyu(other - shift, base, method="exact").pvalue

    low, high = math.log(verdict.low), math.log(verdict.high)
    assert p(low + 1e-9) > 0.05
    assert p(low - 1e-9) <= 0.05
    assert p(high - 1e-9) > 0.05
    assert p(high + 1e-9) <= 0.05


def test_four_sessions_on_each_side_decide_and_three_do_not():
    assert [one.verdict for one in sessions.judge_sessions(*sides(FASTER))] == ["faster", "same", "same"]
    fewer = sessions.judge_sessions(*sides(FASTER, of=(4, 3)))
    assert {one.verdict for one in fewer} == {Outcome.TOO_FEW}
    assert fewer[0].ratio == pytest.approx(0.8, rel=0.05)
    assert all(math.isnan(one.low) and math.isnan(one.p) for one in fewer)


def test_exchanging_the_sides_turns_every_verdict_round():
    base, other = sides(FASTER, of=(5, 4), noise=0.04)
    for forth, back in zip(sessions.judge_sessions(base, other), sessions.judge_sessions(other, base), strict=True):
        assert forth.ratio * back.ratio == pytest.approx(1)
        assert forth.low * back.high == pytest.approx(1)
        assert forth.p == pytest.approx(back.p)
    assert sessions.judge_sessions(other, base)[0].verdict == "slower"


def test_pairs_are_judged_by_their_differences_and_need_six():
    base, other = sides(FASTER, of=(6, 6), noise=0.3)
    other = base + np.where(np.arange(3) == 0, FASTER, 0) + 0.01 * (other - other.mean(axis=0))
    assert [one.verdict for one in sessions.judge_sessions(base, other, paired=True)] == ["faster", "same", "same"]
    assert {one.verdict for one in sessions.judge_sessions(base[:5], other[:5], paired=True)} == {Outcome.TOO_FEW}


@pytest.mark.rule(17)
@pytest.mark.parametrize("paired, of", [(False, (4, 4)), (True, (6, 6))])
def test_medians_that_are_the_same_are_not_while_means_lie_apart(paired, of):
    base, other = sides(0, of=of, noise=0.003)
    means = base.copy(), other + np.array([0, 0.3, 0])
    verdicts = [one.verdict for one in sessions.judge_sessions(base, other, paired, means=means)]
    assert verdicts == ["same", "no evidence", "same"]
    assert {one.verdict for one in sessions.judge_sessions(base, other, paired)} == {"same"}


def test_a_cell_that_a_session_lacks_is_judged_by_the_others():
    base, other = sides(FASTER, of=(5, 5), noise=0.005)
    base[0, 1] = other[:2, 2] = math.nan
    judged = sessions.judge_sessions(base, other)
    assert [one.verdict for one in judged] == ["faster", "same", Outcome.TOO_FEW]
    assert [one.blocks for one in judged] == [5, 4, 3]


def test_times_that_never_vary_are_the_same_and_others_not():
    base = np.zeros((4, 2))
    judged = sessions.judge_sessions(base, base + np.array([0, 1]))
    assert [one.verdict for one in judged] == ["same", "slower"]
    assert judged[0].p == 1


def test_many_sessions_are_split_by_seeded_draws_the_real_sides_among_them():
    base, other = sides(FASTER, of=(10, 10))
    judged = sessions.judge_sessions(base, other)
    assert judged[0].verdict == "faster"
    assert judged[0].p == pytest.approx(1 / sessions.SPLITS, abs=4 / sessions.SPLITS)
    assert judged == sessions.judge_sessions(base, other)


@pytest.mark.rule(14, 17)
@pytest.mark.parametrize("of", [(4, 4), (6, 5)])
def test_sessions_that_differ_by_the_day_alone_give_false_verdicts_in_few_comparisons(of):
    """Each session has a day of its own, 5 % from the others: with repeats as the unit most would differ."""
    wrong = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        base, other = (random.normal(0, 0.05, (count, 1)) + random.normal(0, 0.01, (count, 8)) for count in of)
        wrong += any(one.verdict in ("faster", "slower") for one in sessions.judge_sessions(base, other))
    assert wrong <= 25


def counted(requests: list, read: list | None = None) -> pd.DataFrame:
    return pd.DataFrame({"requests": requests, "read": read or ["a"] * len(requests)}, dtype=object)


@pytest.mark.rule(11)
@pytest.mark.parametrize(
    "base, other, outcome",
    [
        (counted([5, 5]), counted([5, 5]), "same"),
        (counted([5, 5]), counted([8, 8]), "more"),
        (counted([5, 5]), counted([4, 4]), "fewer"),
        (counted([5]), counted([8, 8]), "one repeat"),
        (counted([5, 6]), counted([8, 8]), "differs between repeats"),
        (counted([5, 6], ["a", "b"]), counted([5, 6], ["a", "b"]), "same"),
        (counted([5, 6], ["a", "b"]), counted([6, 5], ["a", "b"]), "depends on what is read"),
        (counted([5, 5]), counted([8, 8], ["b", "b"]), "other objects were read"),
        (counted([5, 5]), counted([None, None]), ""),
    ],
)
def test_counts_are_compared_exactly_among_records_that_read_the_same(base, other, outcome):
    assert (
        sessions.compare_counts(base.astype({"requests": float}), other.astype({"requests": float}), "requests")
        == outcome
    )


def measured(order: str, machines: str = "", days: str = "") -> list[pd.DataFrame]:
    """Return the records of sides A and B, a session each, a day apart, in the order of letters, on machines."""
    places = {letter: f"kind{letter.lower()} {letter}" for letter in "MN"}
    rows = [
        {
            "side": side,
            "session": f"2026-11-{days[number] if days else number + 1:>02}T{number:02}:00:00Z",
            "unit_of": number,
            "machine": places.get(machine, machine),
        }
        for number, (side, machine) in enumerate(zip(order, machines or "M" * len(order), strict=True))
    ]
    table = pd.DataFrame(rows)
    return [table[table["side"] == side].drop(columns="side") for side in "AB"]


@pytest.mark.rule(17)
@pytest.mark.parametrize(
    "order, machines, apart",
    [
        ("ABBAABBA", "", []),
        ("ABABBABA", "", []),
        ("AAAABBBB", "", ["days"]),
        ("AABBBBAA", "", ["days"]),
        ("AAABBBBA", "", ["days"]),
        # Four stretches are few among 16 sessions, and not among 8.
        ("AAABABBB", "", []),
        (7 * "A" + "BA" + 7 * "B", "", ["days"]),
        # One side is always first, or mostly.
        ("ABABABAB", "", ["turns"]),
        ("ABABABABABBA", "", ["turns"]),
        ("ABABABBABABA", "", []),
        ("ABBAABBA", "MNNMMNNM", ["machines"]),
        ("ABABABAB", "MNMNMNMN", ["turns", "machines"]),
        ("AAAABBBB", "MMMMNNNN", ["days", "machines"]),
        ("ABBAABBA", "MMNNMMNN", []),
        ("ABBAABBA", "MNMMMMMM", []),
        # Five of six sessions of a side have the machine that one of six of the other has.
        ("ABBAABBAABBA", "MNNMMNNMMNMN", ["machines"]),
        ("ABBAABBAABBA", "MNNMMNNMNMMN", []),
        # A side of which each session had a machine, beside one that has one machine.
        ("ABBAABBA", "MWXMMYZM", ["machines"]),
    ],
)
def test_sides_take_turns_in_time_and_on_each_machine_or_lie_apart(order, machines, apart):
    assert sessions.find_apart(*measured(order, machines)) == apart
    assert sessions.find_apart(*reversed(measured(order, machines))) == apart


@pytest.mark.rule(17)
def test_sides_that_have_every_second_day_are_in_strict_turn():
    """A load on every second day cannot be told from the sides, however many sessions a day has."""
    assert sessions.find_apart(*measured("AABBAABB", days="11223344")) == ["turns"]
    assert sessions.find_apart(*measured("ABBAABBA", days="11223344")) == []


@pytest.mark.rule(17)
def test_nodes_of_one_kind_that_measured_a_session_each_belong_to_no_side():
    base, other = measured("ABBAABBA")
    alike = [
        side.assign(machine=[f"kind {name}{number}" for number in range(4)])
        for side, name in ((base, "m"), (other, "n"))
    ]
    assert sessions.find_apart(*alike) == []
    kinds = [
        side.assign(machine=[f"{name} {name}{number}" for number in range(4)])
        for side, name in ((base, "m"), (other, "n"))
    ]
    assert sessions.find_apart(*kinds) == ["machines"]
    assert sessions.find_apart(base.drop(columns="machine"), other.assign(machine="")) == []


@pytest.mark.rule(17)
def test_hours_of_one_day_are_no_other_days():
    assert sessions.find_apart(*measured("AAAABBBB", days="11111111")) == ["times"]


def test_a_machine_is_known_by_its_kind_and_its_node_also_where_that_is_hidden():
    host = {"node": "node-17.lab", "cpu": "a CPU", "ram_bytes": 1, "boot": "x"}
    machine = session_records.name_machine(host)
    assert "lab" not in machine
    assert machine == session_records.name_machine(privacy.hide_identities(host))
    assert machine.split()[0] == session_records.name_machine(host | {"node": "node-18.lab"}).split()[0]
    assert machine != session_records.name_machine(host | {"node": "node-18.lab"})
    assert machine.split()[0] != session_records.name_machine(host | {"cpu": "another"}).split()[0]
    assert session_records.name_machine({}) == ""


def grow(shift: float, seed: int, paired: bool, each: int = 12, cells: int = 8) -> tuple[bool, bool]:
    """Return whether a comparison was called different at some look while both sides grew, and at the last one.

    The sides are measured in turn, and compared after each session from the fourth (the sixth pair) on.
    """
    base, other = sides(shift, cells, (each, each), seed)
    times = [[f"{2 * number + side:03}" for number in range(each)] for side in (0, 1)]
    called = []
    for number in range(sessions.LEAST_PAIRS if paired else sessions.LEAST, each + 1):
        judged = sessions.judge_sessions(
            base[:number], other[:number], paired, 1e-9, times=[of_side[:number] for of_side in times]
        )
        called.append([one.verdict in ("faster", "slower") for one in judged])
    return any(map(any, called)), called[-1][0]


@pytest.mark.rule(5)
@pytest.mark.rule(17)
@pytest.mark.thorough
@pytest.mark.parametrize("paired", [False, True])
def test_sides_that_are_compared_after_each_session_are_rarely_called_different(paired: bool):
    """Without the looks, a sixth of these families is wrong at one of them."""
    assert sum(grow(0, seed, paired)[0] for seed in range(200)) <= 18
    assert sum(grow(0.06, seed, paired)[1] for seed in range(50)) >= 45


@pytest.mark.rule(5)
def test_the_first_look_has_the_p_of_a_single_comparison():
    base, other = sides(0.05)
    times = [[f"{number}{side}" for number in range(4)] for side in "ab"]
    looked = sessions.judge_sessions(base, other, times=times)
    alone = sessions.judge_sessions(base, other)
    assert [one.p for one in looked] == pytest.approx([one.p for one in alone])


@pytest.mark.rule(5)
def test_the_order_in_which_sessions_came_decides_what_earlier_looks_saw():
    base, other = sides(0.04, of=(8, 8), seed=3)
    in_turn = [[f"{number:02}{side}" for number in range(8)] for side in "ab"]
    reverse = [names[::-1] for names in in_turn]
    p, back = ([one.p for one in sessions.judge_sessions(base, other, times=times)] for times in (in_turn, reverse))
    assert p != back
    # The figures themselves do not depend on it.
    assert [one.ratio for one in sessions.judge_sessions(base, other, times=in_turn)] == [
        one.ratio for one in sessions.judge_sessions(base, other, times=reverse)
    ]
    missing = other.copy()
    missing[:5, 1] = np.nan
    judged = sessions.judge_sessions(base, missing, times=in_turn)
    assert [one.verdict == Outcome.TOO_FEW for one in judged] == [False, True, False]
