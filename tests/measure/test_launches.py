"""Records of several launches: what adds up, what does not, and a fault of any launch is a fault of the record."""

import copy
from pathlib import Path

import pytest
from small_runs import launch, records, write

from sbench.design import matrix
from sbench.design.config import load_config
from sbench.measure import launches

PART = {
    "samples": [{"iteration": 1, "seconds": 2.0}, {"iteration": 2, "seconds": 1.0}],
    "seconds": {"total": 1.0, "null": 0.1, "first": 2.0, "latency": None},
    "work": {"tasks_done": 4, "checksum": "abc", "checksum_asked": "abc"},
    "effective": {"processes": 2},
    "memory": {"growth_bytes": 5, "allowed_bytes": 9},
    "cache": {"asked": "cold", "state": "cold", "resident_before": 0.0, "resident_after": 0.5},
    "faults": [],
    "retries": 1,
    "modules": ["a"],
    "peak_bytes": 100,
}
# Objects in memory, and two starts of two processes.
BLOBS = {
    "run": "tiny",
    "repeats": 1,
    "libraries": {},
    "stores": {"s3": {"kind": "s3", "bucket": "blobs", "server": "embedded"}},
    "studies": {
        "blobs": {
            "data": {"objects": 1},
            "iterations": 3,
            "launches": 2,
            "control_cells": 0,
            "ceiling_rounds": 2,
            "matrix": {
                **{"store": ["s3"], "pattern": ["single-file"], "size": ["256KiB"], "processes": [2]},
                **{"objects": ["shared"], "operation_size": ["1MiB"], "chunk_size": ["256KiB"], "concurrency": [1]},
                "cache": ["any"],
            },
            "compare": [],
        }
    },
}


def window(seconds: float, **passed: object) -> launches.Window:
    """Return a closed window in which so many seconds passed, with two requests."""
    made = launches.Window("any", [], None)
    made.seconds, made.requests = seconds, {"GET": {"count": 2, "bytes_delivered": None}}
    made.resources = {"window_s": seconds, "reader": {"user_s": 1.0, "peak_bytes": 7}, "machine": {"mhz": 2000.0}}
    made.passed = {"sent": 10, "exchanges": [{"begin": 0.5, "first": 0.6, "end": None}]} | passed
    return made


def test_a_single_launch_is_as_it_was():
    assert launches.merge_parts([PART]) is PART


@pytest.mark.rule(6)
def test_work_and_total_add_up_and_other_times_are_medians():
    parts = [copy.deepcopy(PART) for _ in range(3)]
    parts[1]["seconds"] |= {"total": 3.0, "first": 9.0}
    merged = launches.merge_parts(parts)
    assert merged["seconds"] == {"total": 5.0, "null": pytest.approx(0.3), "first": 2.0, "latency": None}
    assert merged["work"] == {"tasks_done": 12, "checksum": "abc", "checksum_asked": "abc"}
    assert merged["retries"] == 3
    assert [(row["launch"], row["iteration"]) for row in merged["samples"]] == [
        (number, iteration) for number in (1, 2, 3) for iteration in (1, 2)
    ]


@pytest.mark.rule(8, 9)
def test_the_worst_launch_stands_for_the_record():
    worse = copy.deepcopy(PART) | {"faults": ["a block differs"], "peak_bytes": 300}
    worse["work"]["checksum"] = "xyz"
    worse["memory"]["growth_bytes"] = 50
    worse["cache"] |= {"state": "mixed", "resident_before": 0.4}
    for parts in ([PART, worse], [worse, PART]):
        merged = launches.merge_parts(copy.deepcopy(parts))
        assert merged["work"]["checksum"] == "xyz"
        assert merged["memory"]["growth_bytes"] == 50
        assert merged["cache"]["resident_before"] == 0.4
        assert merged["faults"] == ["a block differs"]
        assert merged["peak_bytes"] == 300


@pytest.mark.rule(11)
def test_requests_of_all_windows_are_counted_one_after_the_other():
    whole = launches.merge_windows([window(2.0), window(3.0)])
    assert whole.requests == {"GET": {"count": 4, "bytes_delivered": None}}
    assert whole.seconds == 5.0
    assert whole.resources["window_s"] == 5.0
    assert whole.resources["reader"] == {"user_s": 2.0, "peak_bytes": 7}
    assert whole.resources["machine"] == {"mhz": 2000.0}
    assert [(row["begin"], row["first"], row["end"]) for row in whole.passed["exchanges"]] == [
        (0.5, 0.6, None),
        (2.5, 2.6, None),
    ]


def test_a_single_launch_leaves_the_names_of_cells_alone(tmp_path: Path):
    (tmp_path / "config").mkdir()
    names = []
    for many in ({}, {"launches": 1}, {"launches": 2}):
        section = {name: value for name, value in BLOBS["studies"]["blobs"].items() if name != "launches"} | many
        write(tmp_path, BLOBS | {"studies": {"blobs": section}})
        cells, _ = matrix.expand_matrix(load_config(tmp_path / "config/config.yaml"), "blobs")
        names.append([cell.name for cell in cells])
    assert names[0] == names[1] != names[2]


@pytest.mark.rule(6, 11)
def test_a_record_of_two_launches_on_a_real_server(tiny: Path):
    write(tiny, BLOBS)
    done = launch(tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records(tiny, study="blobs").values()
    assert (record["valid"], record["reasons"]) == (True, [])
    reads = [(row["launch"], row["iteration"]) for row in record["samples"] if row["phase"] == "read"]
    assert reads == [(number, iteration) for number in (1, 2) for iteration in (1, 2, 3)]
    assert [row["launch"] for row in record["samples"] if row["phase"] == "ceiling"] == [2, 2]
    assert record["work"]["tasks_done"] == record["work"]["tasks_asked"] == 12
    assert record["requests"]["GET"]["count"] == 12
    later = [row["latency_s"] for row in record["samples"] if row["phase"] == "read" and row["iteration"] > 1]
    assert record["seconds"]["total"] == pytest.approx(sum(later))
    assert "blobs.html" in (tiny / "reports/tiny/index.html").read_text(encoding="utf-8")
