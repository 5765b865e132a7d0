"""The words of advice: what is recommended, with which gain, and what was not decided or not measured."""

import re
from types import SimpleNamespace

import pandas as pd
import pytest

from sbench.files import advise_page
from sbench.files.ways import read_advice
from sbench.pages.markup import bold, code

LEVEL = "[0:100, ...]"


def arm(layout: str, driver: str, seconds: float, level: str = LEVEL, **settings: str) -> dict:
    settings = {"page_buffer": "unset", "read_cache": "default", "chunk_cache": "default"} | settings
    asked = {"requests": {level: 10}, "bytes": {level: 2**20}, "seconds": {level: seconds}}
    return {"layout": layout, "driver": driver, **settings, **asked}


ARMS = [
    arm("original", "ros3", 2.0),
    arm("original", "s3fs", 0.45, read_cache="blockcache-4MiB"),
    arm("paged-4MiB", "ros3", 0.4, page_buffer="64MiB"),
]
ON_COPY = arm("paged-4MiB", "s3fs", 0.6)
COPY = {"typed": "h5repack -S PAGE", "original_bytes": 2**30, "copy_bytes": 1.1 * 2**30, "seconds": 3.0}
FACTS = {
    "accesses": {LEVEL: 1.0},
    "place": "a round trip of 20 ms (as given)",
    "considered": [*ARMS, ON_COPY],
    "copies": {"paged-4MiB": COPY},
    "left_out": ["paged-1MiB: h5repack failed: no room"],
    "unsuited": [],
    "where": {
        "files": {"original": "bucket/file.h5", "paged-4MiB": "bucket/copy.h5"},
        "region": "eu-west-1",
        "groups": ["/"],
    },
}


def run_of(
    seconds: list[float],
    verdicts: list[str],
    arms: list[dict],
    files: int = 1,
    detectable: float = 1.2,
    **facts: object,
) -> SimpleNamespace:
    """Return what is needed of a run in which arms took so many seconds, with their verdicts against the first."""
    cells, samples = [], []
    for number, (one, took) in enumerate(zip(arms, seconds, strict=True)):
        (level,) = one["seconds"]
        cell = {"cell": str(number), "selection": level, "total_s": took, "requests": 100.0 / (number + 1)}
        cells.append(one | cell)
        share = [0.6, *[0.4 / (files - 1)] * (files - 1)] if files > 1 else [1.0]
        for part in share:
            samples.append({"cell": str(number), "repeat": 1, "open+read-data-time": part * took, "cpu-time": 0.01})
    # The last comparison is the other way round.
    rows = [
        {"baseline_cell": "0", "contender_cell": str(number + 1), **ratios(took / seconds[0]), "verdict": verdict}
        for number, (took, verdict) in enumerate(zip(seconds[1:], verdicts, strict=True))
    ]
    if rows:
        verdict = {"faster": "slower", "slower": "faster"}.get(verdicts[-1], verdicts[-1])
        sides = {"baseline_cell": str(len(rows)), "contender_cell": "0", "verdict": verdict}
        rows[-1] = {**sides, **ratios(seconds[0] / seconds[-1])}
    rows = [row | {"detectable_ratio": detectable} for row in rows]
    settings = {"advice": FACTS | {"arms": arms} | facts, "read_files": files}
    frame = pd.DataFrame(rows, columns=["baseline_cell", "contender_cell", *ratios(1), "verdict", "detectable_ratio"])
    return SimpleNamespace(
        select_sentences=lambda said: [text for text, _ in said],
        to_comparisons=lambda rows: (),
        measured=pd.DataFrame(cells),
        contest=frame[:1],
        get_comparisons=lambda: frame[1:],
        facts={"settings": settings},
        samples=pd.DataFrame(samples),
    )


def ratios(ratio: float) -> dict:
    return {"ratio": ratio, "ratio_low": ratio / 1.1, "ratio_high": ratio * 1.1}


def test_a_copy_is_advised_where_it_is_shown_to_be_faster_by_enough():
    repack, opened, needs, other, gain, *_ = advise_page.format_advice(
        run_of([2.0, 1.0, 0.5], ["faster", "faster"], ARMS)
    )
    assert repack == "repack: h5repack -S PAGE"
    assert opened == (
        'open:   import h5py; file = h5py.File("s3://bucket/copy.h5", driver="ros3", aws_region=b"eu-west-1",'
        " page_buf_size=67108864)"
    )
    assert "needs an h5py with ROS3" in needs
    assert other == 'or:     import h5py, s3fs; file = h5py.File(s3fs.S3FileSystem().open("bucket/copy.h5"))'
    assert gain.startswith("gain:   4.0 [3.6, 4.4] times as fast as the original files with ros3 (defaults): 0.500 s")
    assert ": 0.500 s instead of 2.00 s per read, 33 requests instead of 100" in gain
    assert gain.endswith("for a copy (+10 % bytes, 3.00 s per GiB to make)")


def test_of_two_that_are_about_as_fast_that_without_a_copy_is_advised():
    repack, opened, gain, *_ = advise_page.format_advice(run_of([2.0, 0.51, 0.5], ["faster", "faster"], ARMS))
    assert repack == "repack: no, leave the files as they are"
    assert 's3fs.S3FileSystem().open("bucket/file.h5", cache_type="blockcache", block_size=4194304)' in opened
    assert gain.endswith("without a copy")


@pytest.fixture
def no_picture(monkeypatch):
    """Leave the picture and the number of repeats out, which take a whole run."""
    monkeypatch.setattr(advise_page, "_draw_ways", lambda *_: None)
    monkeypatch.setattr(advise_page.recommendation, "describe_needed_repeats", lambda _: ["more repeats"])


@pytest.mark.parametrize(
    "verdicts, detectable, headline",
    [
        (["same", "slower"], 1.1, "Leave the files as they are, and read them with ros3 (defaults)"),
        (["same", "slower"], 3.0, "Leave the files"),
        (["no evidence", "no evidence"], 1.2, "Leave the files"),
        (["no evidence", "no evidence"], 2.2, "Undecided"),
        (["same", "not comparable"], 1.1, "Undecided"),
        (["too few repeats", "slower"], 1.1, "Undecided"),
    ],
)
def test_leaving_the_files_is_advice_only_where_a_gain_could_have_been_detected(
    no_picture, verdicts, detectable, headline
):
    run = run_of([2.0, 1.9, 2.5], verdicts, ARMS, detectable=detectable)
    answer = advise_page.build_answer(run)
    assert answer.headline.startswith(bold(headline).rstrip("\x02"))
    assert ("this run cannot detect gains below 2.2×" in answer.headline) == (detectable == 2.2)
    assert ("more repeats" in answer.to_do) == headline.startswith("Undecided")
    assert (
        "no way was shown to be faster than reading the original files with ros3 (defaults) in 2.00 s"
        in answer.headline
    )
    repack, *_ = advise_page.format_advice(run)
    assert repack.startswith(
        "repack: undecided" if headline == "Undecided" else "repack: no, leave the files as they are"
    )


def test_the_page_has_the_code_what_was_left_out_and_what_does_not_suit(no_picture):
    unsuited = "[0:100, ...] fetches 46 MiB for 7.6 MiB"
    run = run_of([2.0, 1.0, 0.5], ["faster", "faster"], ARMS, unsuited=[unsuited])
    answer = advise_page.build_answer(run)
    headline = "Repack the files with pages, and read them with ros3 (page buffer of 64 MiB)"
    assert answer.headline.startswith(bold(headline))
    repack, opened, xarray, other = answer.to_do
    assert "h5repack -S PAGE" in repack
    assert "needs an h5py with ROS3" in opened
    assert "import xarray; data = xarray.open_dataset(" in xarray
    assert other.startswith(f"With PyPI's h5py: {code('import h5py, s3fs;')[:-1]}")
    effort, first, *_ = [text for text, _ in advise_page.list_reasons(run)]
    assert re.fullmatch(r"0\.500 s instead of 2\.00 s per read, .* requests instead of .*, for a copy \(.*", effort)
    assert first == f"{unsuited}."
    assert len(re.sub(r"[*`]", "", answer.headline).split()) <= 35
    assert advise_page._list_copies(FACTS)[-1] == "Left out: paged-1MiB: h5repack failed: no room"


def test_several_files_of_a_client_have_a_first_and_further_ones():
    *_, gain, clients = advise_page.format_advice(run_of([3.0, 1.5, 2.0], ["faster", "slower"], ARMS, files=3))
    assert "0.500 s instead of 1.00 s per read, 17 requests instead of 33" in gain
    assert (
        clients
        == "note:   the first file takes 0.900 s instead of 1.80 s, each further file 0.300 s instead of 0.600 s"
    )


def test_a_way_that_misses_its_forecast_is_named():
    *_, note = advise_page.format_advice(run_of([2.0, 1.0, 0.5], ["faster", "faster"], ARMS))
    assert note == "note:   original with s3fs (blockcache of 4 MiB) took 2.2 times its forecast"
    printed = advise_page.format_advice(run_of([2.0, 0.9, 0.5], ["faster", "faster"], ARMS))
    assert not any("its forecast" in line for line in printed)


def test_the_way_without_settings_is_named_with_its_forecast_where_it_takes_too_long():
    slow = arm("original", "ros3", 462.0)
    printed = advise_page.format_advice(run_of([2.0, 0.5], ["faster"], ARMS[1:], considered=[slow, *ARMS[1:]]))
    gain, note = next(line for line in printed if line.startswith("gain")), printed[-1]
    assert gain.startswith("gain:   4.0 [3.6, 4.4] times as fast as the original files with s3fs (blockcache of 4 MiB)")
    assert note == "note:   ros3 (defaults): 10 requests, 1 MiB and 8 min by forecast, too long to measure"


def test_without_a_measurement_of_the_files_as_they_are_nothing_is_advised():
    run = run_of([2.0], [], ARMS[:1])
    run.measured = run.measured.assign(driver="sec2")
    assert advise_page.format_advice(run) == [
        "advice: none, because the original files could not be measured; see the reasons in the report"
    ]
    run.facts = {}
    assert advise_page.build_answer(run) is None


# Files that differ in what a way gains.


def run_of_files(*gains: list[float]) -> SimpleNamespace:
    """Return a run of ways that gain so much by file, in three blocks, all of them faster over all files."""
    arms = [*ARMS[:2], arm("original", "s3fs", 1.0)][: len(gains) + 1]
    seconds = [1.0, *(len(of) / sum(of) for of in gains)]
    run = run_of(seconds, ["faster"] * len(gains), arms)
    run.measured = run.measured.assign(access="files")
    run.samples = pd.DataFrame(
        {"cell": str(way), "repeat": block, "obj-id": f"{name}.h5", "valid": True, "cpu-time": 0.1}
        | {"open+read-data-time": (name + 1) * block / gain}
        for way, of in enumerate([[1.0] * len(gains[0]), *gains])
        for block in (1, 2, 3)
        for name, gain in enumerate(of)
    )
    return run


@pytest.mark.parametrize(
    "gains, words",
    [
        ([1.5], "1.5× on this file only"),
        ([1.5, 1.2, 2.0], "1.2–2.0× on these 3 files only"),
        # Of fewer than six files some may gain nothing: it is on these alone.
        ([1.5, 0.9, 2.0], "0.9–2.0× on these 3 files only"),
        ([1.5, 1.2, 2.0, 1.3, 1.1, 1.4], "1.1–2.0× on each of these 6 files"),
    ],
)
def test_a_gain_is_of_each_file_and_of_other_files_if_six_gain(no_picture, gains, words):
    run = run_of_files(gains)
    assert words in advise_page.format_advice(run)[2]
    assert read_advice(run).is_of_others == (len(gains) == 6)
    assert words in advise_page.build_answer(run).headline


def test_a_way_that_slows_one_of_six_files_is_not_advised(no_picture):
    run = run_of_files([1.5, 1.2, 2.0, 1.3, 0.9, 1.4])
    assert advise_page.build_answer(run).headline.startswith(bold("Undecided").rstrip("\x02"))
    (note,) = [line for line in advise_page.format_advice(run) if "other files may gain nothing" in line]
    assert "is 0.9–2.0× as fast, above 1× on only 5 of these 6 files" in note


def test_of_several_ways_one_is_chosen_by_half_of_the_files_and_its_gain_is_of_the_others(no_picture):
    """The second is the fastest by the files 0, 2 and 4, the third by all."""
    chosen, other = [2.0, 1.1, 2.0, 1.2, 2.0, 1.3], [1.5, 3.0, 1.5, 3.0, 1.5, 3.0]
    advice = read_advice(run_of_files(chosen, other))
    assert advice.best.arm["read_cache"] == "blockcache-4MiB"
    assert sorted(advice.quoted_gains) == pytest.approx([1.1, 1.2, 1.3])
    words = "1.1–1.3× on 3 of these 6 files, which did not select this way"
    assert words in advise_page.build_answer(run_of_files(chosen, other)).headline


def test_files_that_are_read_together_or_not_by_both_ways_have_no_gain():
    run = run_of_files([1.5, 1.2])
    run.samples = run.samples[(run.samples["cell"] == "0") | (run.samples["obj-id"] == "1.h5")]
    assert read_advice(run).best.gains == {"1.h5": pytest.approx(1.2)}
    run.measured = run.measured.assign(access="datasets")
    assert read_advice(run).best.gains == {}
    assert "on these files only" in advise_page.format_advice(run)[2]


# Several accesses.

TWO = {"[:, 0]": 0.75, "all": 0.25}


def run_of_two(first: tuple[float, float], second: tuple[float, float], verdicts: tuple[str, str]) -> SimpleNamespace:
    """Return a run of two ways and two accesses, each with the seconds of both accesses."""
    arms = [arm("original", "ros3", 1.0), dict(ARMS[1])]
    for one in arms:
        for what in ("requests", "bytes", "seconds"):
            one[what] = dict.fromkeys(TWO, 1)
    cells = [
        one | {"cell": f"{number} {level}", "selection": level, "total_s": took, "requests": 10.0}
        for number, (one, times) in enumerate(zip(arms, (first, second), strict=True))
        for level, took in zip(TWO, times, strict=True)
    ]
    rows = [
        {
            "baseline_cell": f"0 {level}",
            "contender_cell": f"1 {level}",
            **ratios(after / before),
            "verdict": verdict,
            "detectable_ratio": 1.2,
        }
        for level, before, after, verdict in zip(TWO, first, second, verdicts, strict=True)
    ]
    frame = pd.DataFrame(rows)
    samples = pd.DataFrame({"cell": [cell["cell"] for cell in cells], "repeat": 1, "cpu-time": 1e3})
    samples["open+read-data-time"] = 1.0
    settings = {"advice": FACTS | {"arms": arms, "considered": arms, "accesses": TWO}, "read_files": 1}
    return SimpleNamespace(
        select_sentences=lambda said: [text for text, _ in said],
        to_comparisons=lambda rows: (),
        measured=pd.DataFrame(cells),
        contest=frame[:0],
        get_comparisons=lambda: frame,
        facts={"settings": settings},
        samples=samples,
    )


@pytest.mark.parametrize(
    "first, second, verdicts, repaid",
    [
        # Much faster where most accesses are, somewhat slower elsewhere.
        ((1.0, 1.0), (0.2, 1.5), ("faster", "slower"), True),
        # What it gains in the frequent access it loses in the other.
        ((1.0, 1.0), (0.8, 3.0), ("faster", "slower"), False),
        # An undecided access counts with the upper end of its interval.
        ((1.0, 10.0), (0.8, 10.0), ("faster", "no evidence"), False),
        ((1.0, 1.0), (0.9, 0.9), ("no evidence", "no evidence"), False),
    ],
)
def test_accesses_are_weighed_by_their_shares(first, second, verdicts, repaid):
    gain = next(
        line for line in advise_page.format_advice(run_of_two(first, second, verdicts)) if line.startswith("gain")
    )
    assert ("no way was shown to be faster" not in gain) == repaid
    if repaid:
        assert gain.startswith("gain:   [:, 0] (75 %): 5.0 [4.5, 5.5] times as fast")
        assert "; all (25 %): 0.7 [" in gain


# Without measurements.


def test_small_files_are_advised_on_by_forecast():
    repack, opened, *_, gain = advise_page.format_forecast_advice(FACTS | {"arms": []})
    assert (repack, "paged-4MiB" in repack) == ("repack: h5repack -S PAGE", False)
    assert "copy.h5" in opened
    assert gain.startswith("gain:   by forecast, not measured: 10 requests, 1 MiB and 0.400 s instead of 10 requests")
    assert gain.endswith("5.0 times as fast")
    alone = FACTS | {"arms": [], "considered": [ARMS[0], arm("original", "s3fs", 1.9)]}
    repack, opened, *_, gain = advise_page.format_forecast_advice(alone)
    assert repack == "repack: no, leave the files as they are"
    assert 'driver="ros3"' in opened
    assert gain == "gain:   by forecast, not measured: 10 requests, 1 MiB and 2.00 s"
