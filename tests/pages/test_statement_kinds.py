"""Statements made by hand: each holds for its records, and no longer where it or they are changed."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from sbench.pages.statements import (
    Choice,
    Comparison,
    Counts,
    Gain,
    Leader,
    NoGain,
    Outcomes,
    Recommendation,
    Records,
    Stated,
)
from sbench.runs.statements import SessionRatio
from sbench.studies.volumes.report.statements import Jobs, Limit, Ratio, Segment, VolumeChoice, build_limit

pytestmark = pytest.mark.rule(22)


JOBS = pd.DataFrame(
    [
        {"store": store, "repeat": 1, "number": number, "p99_ms": p99, "status": "done", "valid": True}
        for store, many in (("fast", (4.0, 5.0, 6.0, 9.0)), ("slow", (11.0, 12.0, 14.0, 16.0)))
        for number, p99 in enumerate(many, 1)
    ]
)
FAST, SLOW = (("store", "fast"),), (("store", "slow"),)
KEPT = Segment(repeat=1, first=0, jobs=4, over=0, value=6.0, low=5.0, high=8.0, outcome="meets")
LOST = Segment(repeat=1, first=0, jobs=4, over=4, value=13.0, low=12.0, high=15.0, outcome="misses")
PARTS = (replace(KEPT, jobs=2, value=4.5, low=4.1), replace(KEPT, first=2, jobs=2, value=7.0))


@pytest.mark.parametrize(
    "limit, change",
    [
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"outcome": "misses"}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"limit_ms": 8.0}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"limit_ms": 9.0}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"levels": SLOW}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": ()}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": PARTS[:1]}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], repeat=2))}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], outcome="undecided"))}),
        (Limit(FAST, 10.0, "meets", PARTS), {"segments": (PARTS[0], replace(PARTS[1], first=0))}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (KEPT, PARTS[0])}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, value=9.2),)}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, value=3.9),)}),
        (Limit(FAST, 10.0, "meets", (KEPT,)), {"segments": (replace(KEPT, over=1),)}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"outcome": "meets"}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"limit_ms": 12.1}),
        (Limit(SLOW, 10.0, "misses", (LOST,)), {"segments": (replace(LOST, outcome="undecided"),)}),
    ],
)
def test_a_limit_holds_and_no_longer_where_it_is_changed(limit, change):
    assert limit.is_supported_by(Jobs(JOBS))
    assert not replace(limit, **change).is_supported_by(Jobs(JOBS))


def test_a_job_that_does_not_count_bears_nothing_out():
    limit = Limit(FAST, 10.0, "meets", (KEPT,))
    for change in ({"valid": False}, {"status": "failed"}):
        first = (JOBS["store"] == "fast") & (JOBS["number"] == 1)
        assert not limit.is_supported_by(
            Jobs(JOBS.assign(**{key: JOBS[key].mask(first, to) for key, to in change.items()}))
        )
    assert not Jobs(JOBS[:0])


def test_no_limit_is_met_where_all_jobs_are_over_it_whatever_their_percentile_may_be():
    bounds = replace(LOST, value=math.nan, low=7.0, high=9.0)
    assert Limit(SLOW, 10.0, "undecided", (replace(bounds, outcome="undecided"),)).is_supported_by(Jobs(JOBS))
    assert not Limit(SLOW, 10.0, "meets", (replace(bounds, outcome="meets"),)).is_supported_by(Jobs(JOBS))


def test_jobs_are_those_of_the_levels_that_have_a_name():
    table = JOBS.assign(background=["none", "load"] * 4, host=["a", "b"] * 4, start_credits=["", "full"] * 4)
    jobs = Jobs(table)
    assert {repeat: list(own) for repeat, own in jobs.get_values(FAST, "p99_ms").items()} == {1: [4, 5, 6, 9]}
    assert list(jobs.get_values((*FAST, ("background", ""), ("host", "all")), "p99_ms")[1]) == [4, 5, 6, 9]
    assert list(jobs.get_values((*FAST, ("background", "load")), "p99_ms")[1]) == [5, 9]
    assert list(jobs.get_values((*FAST, ("host", "a")), "p99_ms")[1]) == [4, 6]
    assert list(jobs.get_values((*FAST, ("start_credits", "full")), "p99_ms")[1]) == [4, 5, 6, 9]
    assert jobs.get_values((*FAST, ("start_credits", "full")), "iops")[1].shape == (4,)
    assert jobs.get_values((("store", "another"),), "p99_ms") == Jobs(JOBS[:0]).get_values(FAST, "p99_ms") == {}


def test_the_segments_of_a_battery_lie_one_after_the_other():
    whole = {"segment": "all", "limit_ms": 10, "verdict": "meets"}
    figures = {"value_ms": 1, "low_ms": 1, "high_ms": 1, "jobs_over": 0, "verdict": "meets"}
    rows = [
        {"segment": number, "repeat": repeat, "jobs": jobs} | figures
        for number, (repeat, jobs) in enumerate([(1, 2), (1, 3), (2, 4), (1, 1)])
    ]
    limit = build_limit(FAST, whole, [whole, *rows])
    assert (limit.limit_ms, limit.outcome) == (10, "meets")
    assert [(one.repeat, one.first, one.jobs) for one in limit.segments] == [(1, 0, 2), (1, 2, 3), (2, 0, 4), (1, 5, 1)]


def ratio_of(**change: object) -> Ratio:
    """Return the ratio of the two volumes, six jobs of each."""
    right = {"baseline": FAST, "contender": SLOW, "column": "p99_ms", "part": "all", "outcome": "slower"}
    right |= {"values": (6.0, 13.0), "ratio": 13 / 6, "low": 1.9, "high": 2.4}
    return Ratio(**right | change)


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "faster"},
        {"more_is_faster": True},
        {"low": 0.4, "high": 0.9},
        {"low": 0.9},
        {"values": (3.0, 13.0)},
        {"values": (6.0, 17.0)},
        {"ratio": 5.0},
        {"outcome": "too few repeats", "ratio": 2.2},
        {"baseline": (("store", "none"),)},
    ],
    ids=str,
)
def test_a_ratio_holds_and_no_longer_where_it_is_changed(change):
    six = pd.concat([JOBS, JOBS.assign(repeat=2)], ignore_index=True)
    assert ratio_of().is_supported_by(Jobs(six))
    assert ratio_of(outcome="too few repeats").is_supported_by(Jobs(six))
    assert not ratio_of(**change).is_supported_by(Jobs(six))
    assert not ratio_of().is_supported_by(Jobs(JOBS)), "four jobs are too few"


SESSIONS = pd.DataFrame(
    [
        {"cell": cell, "repeat": repeat, "unit_of": f"{day} {cell}", "valid": True, "value": value * (1 + day / 1000)}
        for day in range(1, 7)
        for cell, value in (("old", 2.0), ("new", 1.0))
        for repeat in (1, 2)
    ]
)


@pytest.mark.parametrize("pairs", [(), tuple((f"{day} old", f"{day} new") for day in range(1, 7))], ids=["", "pairs"])
def test_a_ratio_of_sessions_holds_and_no_longer_where_it_is_changed(pairs):
    right = {"baseline": "old", "contender": "new", "outcome": "faster", "ratio": 0.5, "low": 0.4, "high": 0.6}
    one, records = SessionRatio(**right, pairs=pairs), Records(SESSIONS)
    assert one.is_supported_by(records)
    assert replace(one, outcome="no evidence").is_supported_by(records)
    for change in ({"outcome": "slower"}, {"ratio": 0.51}, {"high": 1.1}, {"outcome": "too few repeats"}):
        assert not replace(one, **change).is_supported_by(records), change
    few = Records(SESSIONS[SESSIONS["unit_of"].str[0].astype(int) < 4])
    assert not one.is_supported_by(few)
    assert replace(one, outcome="too few repeats").is_supported_by(few)
    unknown = replace(one, ratio=math.nan)
    assert not unknown.is_supported_by(records)
    assert replace(unknown, outcome="not comparable").is_supported_by(records)


def test_gain_and_no_gain_hold_where_a_way_won_or_none_did():
    table = pd.DataFrame(
        [
            {"cell": cell, "repeat": block, "valid": True, "value": seconds}
            for cell, seconds in (("base", 2.0), ("base all", 3.0), ("way", 1.0), ("way all", 3.6))
            for block in range(1, 7)
        ]
    )
    records, blocks = Records(table), (1, 2, 3, 4, 5, 6)
    won = Comparison("base", "way", "value", "faster", blocks, 0.5, 0.5, 0.5)
    lost = Comparison("base all", "way all", "value", "slower", blocks, 1.2, 1.2, 1.2)
    assert Gain((won, lost), (0.75, 0.25)).is_supported_by(records)
    assert not Gain((won, lost), (0.1, 0.9)).is_supported_by(records), "what is read mostly takes longer"
    assert not Gain((lost,), (1.0,)).is_supported_by(records)
    assert NoGain(((won, lost),)).is_supported_by(records)
    assert NoGain(((lost,), ())).is_supported_by(records)
    assert not NoGain(((won,), (lost,))).is_supported_by(records)
    assert not NoGain(((replace(lost, ratio=1.3),),)).is_supported_by(records)


# Three arms by time: the first won against the second, and against the third nothing was shown.
ARMS = Records(
    pd.DataFrame(
        [
            {"cell": cell, "repeat": block, "valid": True, "value": seconds}
            for cell, seconds in (("first", 1.0), ("second", 2.0), ("third", 1.1), ("alike", 1.0))
            for block in range(1, 7)
        ]
    )
)
WON = Comparison("second", "first", "value", "faster", (1, 2, 3, 4, 5, 6), 0.5, 0.5, 0.5)
OPEN = Comparison("third", "first", "value", "no evidence", (1, 2, 3, 4, 5, 6), 1 / 1.1, 0.8, 1.1)


@pytest.mark.parametrize(
    "change, holds",
    [
        ({}, True),
        ({"choices": (Choice("driver", "new", (WON,)), Choice("layout", "new", (OPEN,)))}, False),
        ({"choices": (Choice("driver", "new", (replace(WON, ratio=0.6),)),)}, False),
        ({"choices": ()}, True),
        ({"cell": "second"}, False),
        ({"cell": "alike", "cells": ("alike", "first", "never measured"), "choices": ()}, True),
        ({"cell": "never measured", "cells": ("never measured", "first"), "choices": ()}, False),
    ],
    ids=str,
)
def test_a_recommendation_holds_for_the_cell_that_took_least_and_won_what_it_is_chosen_by(change, holds):
    made = Recommendation((), "first", ("first", "second", "third"), (Choice("driver", "new", (WON,)),))
    assert replace(made, **change).is_supported_by(ARMS) == holds


@pytest.mark.parametrize(
    "change, holds",
    [
        ({}, True),
        ({"is_alone": True}, False),
        ({"is_alone": True, "others": (("second",),), "unjudged": (("third",),)}, True),
        ({"comparisons": (replace(WON, ratio=0.6), OPEN)}, False),
        ({"cells": (("second",),), "others": (("first", "third"),)}, False),
        ({"others": (("second",),), "unjudged": (("third",),)}, True),
        ({"cells": (("third",),), "others": (("second",),), "unjudged": (("first",),)}, False),
        ({"others": (("second", "third"),), "unjudged": (("alike",),)}, True),
        ({"cells": (("second", "first"),), "others": (("third",),)}, True),
    ],
    ids=str,
)
def test_arms_lead_where_none_beat_them_and_none_without_a_verdict_took_less(change, holds):
    made = Leader((("first",),), (("second", "third"),), ((),), (WON, OPEN), is_alone=False)
    assert replace(made, **change).is_supported_by(ARMS) == holds


@pytest.mark.parametrize(
    "change, holds",
    [
        ({}, True),
        ({"outcome": "too few repeats", "blocks": (1, 2)}, True),
        ({"blocks": (1, 2, 3, 4, 5)}, False),
        ({"high": 1.0}, False),
        ({"outcome": "slower", "low": 1.2, "high": 1.3}, False),
        ({"outcome": "same"}, False),
        ({"outcome": "same", "ratio": 0.5, "low": 0.5, "high": 0.5, "same_within": 1.0}, True),
        ({"outcome": "same", "blocks": (1, 2, 3), "same_within": 1.0}, False),
        ({"outcome": "no evidence"}, True),
        ({"ratio": math.nan}, False),
        ({"ratio": math.nan, "outcome": "not comparable"}, True),
    ],
    ids=str,
)
def test_a_comparison_holds_with_its_blocks_its_ratio_and_its_interval(change, holds):
    assert replace(WON, **change).is_supported_by(ARMS) == holds


def test_an_order_needs_three_of_four_blocks():
    times = {block: 1.0 if block <= 6 else 3.0 for block in range(1, 9)}
    rows = [{"cell": "new", "repeat": block, "valid": True, "value": seconds} for block, seconds in times.items()]
    rows += [{"cell": "old", "repeat": block, "valid": True, "value": 2.0} for block in times]
    one = Comparison("old", "new", "value", "faster", tuple(times), 0.5, 0.4, 0.6)
    assert one.is_supported_by(Records(pd.DataFrame(rows)))
    rows[5]["value"] = 3.0
    assert not one.is_supported_by(Records(pd.DataFrame(rows)))
    other = Comparison("new", "old", "value", "slower", tuple(times), 2.0, 1.6, 2.4)
    assert not other.is_supported_by(Records(pd.DataFrame(rows)))
    rows[5]["value"] = 1.0
    assert other.is_supported_by(Records(pd.DataFrame(rows)))


def test_counts_hold_from_the_least_median_to_the_most():
    rows = [
        {"cell": cell, "repeat": block, "valid": True, "GET": count}
        for cell, count in (("a", 4), ("b", 9), ("c", 20))
        for block in (1, 2, 3)
    ]
    records = Records(pd.DataFrame(rows))
    assert Counts((("a", "b"), ("c",)), (("GET", (4, 9), (20, 20)),)).is_supported_by(records)
    for spans in (((4, 8), (20, 20)), ((3, 9), (20, 20)), ((4, 9), (20, 21))):
        assert not Counts((("a", "b"), ("c",)), (("GET", *spans),)).is_supported_by(records)


def test_what_is_stated_twice_has_to_be_alike():
    stated = Stated()
    assert stated.add_statements([Outcomes((WON,))])
    assert stated.add_statements([Outcomes((WON, OPEN))])
    assert not stated.add_statements([Outcomes((replace(OPEN, outcome="faster"),))])
    assert not stated.add_statements([Recommendation((("store", "s3"),), "second", ("first",), ())]), "it lost"
    assert stated.add_statements([Recommendation((("store", "s3"),), "first", ("second",), ())])
    assert not stated.add_statements([Recommendation((("store", "s3"),), "third", (), ())]), (
        "one situation has one choice"
    )
    assert stated.add_statements([Recommendation((("store", "disk"),), "third", (), ())])
    both = [Outcomes((replace(WON, column="open_s"),)), Outcomes((replace(WON, column="open_s", outcome="slower"),))]
    assert not stated.add_statements(both), "nor at once"
    assert stated.add_statements(both[:1])


def test_any_volume_may_be_used_only_where_none_was_lower_than_all_others():
    jobs = Jobs(pd.concat([JOBS, JOBS.assign(repeat=2)], ignore_index=True))
    kept = tuple(
        Limit(levels, 20.0, "meets", tuple(replace(part, repeat=repeat, outcome="meets", over=0) for repeat in (1, 2)))
        for levels, part in ((FAST, KEPT), (SLOW, LOST))
    )
    of_any = VolumeChoice(kept, (), kept, (ratio_of(outcome="no evidence"),))
    assert of_any.is_supported_by(jobs)
    assert not replace(of_any, ratios=(ratio_of(),)).is_supported_by(jobs), "the fast one was shown to be lower"
    assert replace(of_any, chosen=kept[:1], ratios=(ratio_of(),)).is_supported_by(jobs)
    assert not replace(of_any, chosen=kept[1:], ratios=(ratio_of(),)).is_supported_by(jobs)
