"""Volumes promise what their documentation says, and their credits run out when arithmetic says."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from conftest import sbench

from sbench.design import config as configuration
from sbench.design import matrix
from sbench.studies.volumes import credits, promises
from sbench.verdicts.changes import Segment

FULL = 5_400_000


def jobs(ios, seconds, pause=10.0, reads=0.0, device=math.nan):
    """Jobs one after the other, as `Series.jobs` has them."""
    ios, seconds = np.broadcast_arrays(np.atleast_1d(ios).astype(float), np.atleast_1d(seconds).astype(float))
    found = {"writes": ios, "reads": reads, "seconds": seconds, "pause_s": pause, "device_writes": device}
    return pd.DataFrame(found).assign(mean_ms=1e3 * seconds / ios, start_s=np.cumsum(seconds + pause) - seconds - pause)


def ran_out(spent):
    return next((place for place, one in enumerate(spent) if one.credits_end <= 0), None)


@pytest.mark.parametrize(
    "size, baseline, burst, throughput",
    [
        (1, 100, 3000, 128),
        (33, 100, 3000, 128),
        (128, 384, 3000, 128),
        (170, 510, 3000, 128),
        (171, 513, 3000, 250),
        (334, 1002, 3000, 250),
        (999, 2997, 3000, 250),
        (1000, 3000, 3000, 250),
        (2000, 6000, 6000, 250),
        (8000, 16000, 16000, 250),
    ],
)
def test_gp2_grows_with_its_size(size, baseline, burst, throughput):
    found = promises.compute_promises({"type": "gp2", "size_gib": size})
    assert (found.baseline_iops, found.burst_iops, found.ceiling_mib_s) == (baseline, burst, throughput)
    assert (found.credits == FULL) == (baseline < 3000)


@pytest.mark.parametrize(
    "volume, iops, throughput",
    [
        ({"type": "gp3", "size_gib": 128}, 3000, 125),
        ({"type": "gp3", "size_gib": 128, "iops": 6000, "throughput_mib_s": 500}, 6000, 500),
        ({"type": "io1", "iops": 1000}, 1000, 250),
        ({"type": "io1", "iops": 2000}, 2000, 500),
        ({"type": "io1", "iops": 32000}, 32000, 500),
        ({"type": "io1", "iops": 48000}, 48000, 750),
        ({"type": "io1", "iops": 64000}, 64000, 1000),
        ({"type": "io2", "iops": 10000}, 10000, 2560),
        ({"type": "io2", "iops": 100000}, 100000, 4000),
        ({"type": "st1", "size_gib": 1024}, 500, 250),
        ({"type": "st1", "size_gib": 4096}, 500, 500),
        ({"type": "sc1", "size_gib": 512}, 250, 40),
    ],
)
def test_other_types_have_the_ceilings_of_their_documentation(volume, iops, throughput):
    found = promises.compute_promises(volume)
    assert (found.burst_iops, found.ceiling_mib_s) == (iops, throughput)
    assert math.isnan(found.credits)


def test_what_is_not_known_of_a_volume_is_left_open():
    assert np.isnan(promises.compute_promises({})[1:6]).all()
    assert np.isnan(promises.compute_promises({"type": "gp2"})[2:4]).all()
    assert math.isnan(promises.compute_promises({"type": "io1", "size_gib": 100}).ceiling_mib_s)
    assert "not modelled" in promises.compute_promises({"type": "st1", "size_gib": 500}).note
    assert "1 to 16,384 GiB in 2023" in promises.compute_promises({"type": "gp2", "size_gib": 20_000}).note
    other = promises.compute_promises({"type": "standard", "size_gib": 40})
    assert (other.size_gib, other.note) == (40, "standard is not in config/facts/volume_types.yaml")
    assert np.isnan(other[2:6]).all()


@pytest.mark.parametrize("size, seconds", [(1, 1862), (100, 2000), (334, 2703), (750, 7200)])
def test_a_full_bucket_lasts_as_long_as_the_documentation_says(size, seconds):
    volume = promises.compute_promises({"type": "gp2", "size_gib": size})
    steady = jobs(np.full(90, 3000 * 100), 100, pause=0)
    assert ran_out(credits.compute_spending(steady, volume, 1)) == math.ceil(seconds / 100) - 1


@pytest.mark.parametrize("size, seconds", [(1, 54_000), (100, 18_000), (334, 5_389), (750, 2_400)])
def test_an_empty_bucket_fills_in_the_documented_time(size, seconds):
    volume = promises.compute_promises({"type": "gp2", "size_gib": size})
    idle = credits.compute_spending(jobs([1, 1], 1, pause=seconds), volume, 1, start=0.0)
    assert idle[1].credits_start == pytest.approx(FULL, rel=1e-3)
    assert credits.compute_spending(jobs([1, 1], 1, pause=2 * seconds), volume, 1)[1].credits_start == FULL


def test_a_volume_without_credits_does_its_baseline():
    volume = promises.compute_promises({"type": "gp2", "size_gib": 100})
    first, second = credits.compute_spending(jobs([10_000_000, 30_000], [5_000, 10]), volume, 1)
    assert (first.credits_end, first.allowed_iops) == (0, 300)
    assert first.modelled_s == pytest.approx(FULL / 1700 + (10_000_000 - 2000 * FULL / 1700) / 300)
    # What was earned in the pause is spent first.
    assert second.credits_start == 3_000
    assert second.modelled_s == pytest.approx((30_000 - 3_000) / 300)
    below = credits.compute_spending(jobs([1_000], [10]), volume, 1, start=50.0)[0]
    assert below == pytest.approx((50, 50 + 2_000, 10, 100, 3_000))


def test_ios_of_the_device_and_reads_are_what_is_spent():
    volume = promises.compute_promises({"type": "gp2", "size_gib": 100})
    once = credits.compute_spending(jobs(np.full(50, 100_000), 100), volume, 1)
    twice = credits.compute_spending(jobs(np.full(50, 100_000), 100), volume, 2)
    reading = credits.compute_spending(jobs(np.full(50, 100_000), 100, reads=100_000), volume, 1)
    assert (ran_out(once), ran_out(twice)) == (None, 32)
    assert twice == reading
    assert once[0].credits_end == pytest.approx(FULL - (1000 - 300) * 100)


def test_jobs_after_the_collapse_do_not_tell_when_it_was():
    """They took long because the credits were gone: with their times, a rate of the baseline would look sustainable."""
    volume = promises.compute_promises({"type": "gp2", "size_gib": 100})
    seconds = np.where(np.arange(50) < 20, 100.0, 700.0)
    assert ran_out(credits.compute_spending(jobs(np.full(50, 200_000), seconds), volume, 1, collapsed=None)) is None
    assert ran_out(credits.compute_spending(jobs(np.full(50, 200_000), seconds), volume, 1, collapsed=20)) == 32


def test_a_collapse_is_a_rise_of_the_mean_by_half():
    series = jobs(np.full(30, 1000), np.repeat([1.0, 1.2, 6.0], 10))
    parts = [Segment(first, first + 10, 1.0, 1.0, 1.0, 1.0) for first in (0, 10, 20)]
    assert credits.find_collapse(series, parts).first == 20
    assert credits.find_collapse(series.iloc[:20], parts[:2]) is None
    assert credits.find_collapse(series.iloc[::-1].reset_index(drop=True), parts) is None


def test_a_refill_takes_what_an_empty_bucket_needs_and_spending_what_a_burst_does():
    gp2, gp3 = ({"type": name, "size_gib": 128} for name in ("gp2", "gp3"))
    full, spent = (promises.compute_lead_time(promises.compute_promises(gp2), state) for state in ("full", "spent"))
    assert full["seconds"] / 3600 == pytest.approx(3.9, abs=0.01)
    assert spent["seconds"] == math.ceil(FULL / (3000 - 384))
    assert spent["ios"] == pytest.approx(3000 * FULL / (3000 - 384))
    assert promises.compute_lead_time(promises.compute_promises(gp3), "full")["seconds"] == math.inf


@pytest.fixture
def planned(tmp_path):
    """Return a function that writes a configuration of a volume of 128 GiB with levels of credits."""

    def write(levels, volume_type="gp2", **settings):
        stores = {"disk": {"kind": "posix", "path": str(tmp_path), "volume": {"type": volume_type, "size_gib": 128}}}
        mapping = {
            "store": ["disk"],
            "job": ["etcd"],
            "background": ["none"],
            **({"start_credits": levels} if levels else {}),
        }
        section = {"matrix": mapping, "compare": [], **settings}
        file = tmp_path / "credits.yaml"
        file.write_text(json.dumps({"run": "credits-test", "stores": stores, "studies": {"volumes": section}}))
        return file

    return write


def test_credits_at_the_start_are_cells_whose_wait_is_in_the_plan(planned):
    plan = sbench("plan", planned(["", "full", "spent"])).stdout
    assert plan.count(" of it before the cell begins)") == 2
    assert "3.9 h of it" in plan
    assert "0.6 h of it" in plan
    total = next(line for line in plan.splitlines() if line.startswith("in all: 3 cells"))
    assert re.search(r"about (4|5)(\.\d)? h|about (4|5) h", total), total


def test_a_cell_without_the_factor_is_what_it_was_before_there_was_one(planned):
    (before,), _ = matrix.expand_matrix(configuration.load_config(planned(None)), "volumes")
    cells, _ = matrix.expand_matrix(configuration.load_config(planned(["", "spent"])), "volumes")
    assert before.name == cells[0].name
    assert "start_credits" not in before.settings["cell"]
    assert "start" not in before.settings
    assert cells[1].settings["start"]["seconds"] == math.ceil(FULL / (3000 - 384))


def test_a_volume_without_credits_or_time_for_them_is_left_out(planned):
    _, left_out = matrix.expand_matrix(configuration.load_config(planned(["", "full"], "gp3")), "volumes")
    reason = "store disk lacks burst credits to start with (full), or its volume lacks size_gib"
    assert [one.reason for one in left_out] == [reason]
    _, left_out = matrix.expand_matrix(configuration.load_config(planned(["", "full"], time_limit_s=3600)), "volumes")
    assert left_out[0].reason == "credits are full after 14,063 s; raise time_limit_s above that (now 3600)"


def test_the_amplification_is_counted_or_from_hindsight_or_assumed():
    volume = promises.compute_promises({"type": "gp2", "size_gib": 100})
    fast, slow = jobs(np.full(5, 100_000), 100), jobs(np.full(4, 100_000), [400, 990, 990, 990])
    counted = credits.estimate_ios_per_write(jobs(np.full(5, 1000), 1, device=2_500), slow, volume)
    assert counted == (2.5, "counted by the device")
    value, source = credits.estimate_ios_per_write(fast, slow, volume)
    assert value == pytest.approx(300 * 1000 / 100_000)
    assert source == "throttled segment (hindsight)"
    assert credits.estimate_ios_per_write(fast, fast.iloc[:0], volume) == (1, "assumed (the minimum)")
    # As fast as that it is not throttled: less than an I/O a write cannot be.
    assert credits.estimate_ios_per_write(fast, jobs(np.full(4, 100_000), 200), volume)[0] == 1
