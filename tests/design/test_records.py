import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sbench.design import records, validity
from sbench.measure import failures
from sbench.measure import gather as facts_program
from sbench.pages import cell_tables
from sbench.probe.program import Problem
from sbench.studies.shots.report import results
from tests.helpers.blobs_tables import build, cells
from tests.helpers.blobs_tables import gather as gather_blobs
from tests.helpers.pages import write_words
from tests.helpers.records import FEW, chosen, failed, gather, newer_is, sealed, synthetic_cells, write_synthetic_run
from tests.helpers.records import facts as facts_of
from tests.helpers.volumes_records import battery, write_run
from tests.helpers.volumes_records import gather as gather_volumes

NEWER = {"library": "hdf5-2.0.0", "page_buffer": "0"}


def run_of(folder: Path, **options: object) -> Path:
    return write_synthetic_run(folder, synthetic_cells(twins=0, **FEW), **options)


def newer(run: Path, repeat: int = 1) -> Path:
    """Return a record of the newer library without a page buffer."""
    [path] = run.glob(f"records/hdf5-2.0.0_*_0_cold-*/repeat={repeat}.json")
    return path


def with_seconds(**seconds: object):
    return lambda record: record | {"seconds": record["seconds"] | seconds}


ODD = {
    "negative time": (with_seconds(total=-5), "seconds.total"),
    "no time": (with_seconds(total=0), "seconds.total"),
    "no number": (with_seconds(total=float("nan")), "NaN"),
    "infinite time": (with_seconds(total=float("inf")), "Infinity"),
    "time too large for a number": (lambda record: json.dumps(with_seconds(total=1)(record)).replace(
        '"total": 1', '"total": 1e999'), "seconds.total"),
    "null": (with_seconds(total=None), "seconds.total"),
    "text for a time": (with_seconds(open="0.1"), "seconds.open"),
    "time of a sample": (lambda record: record | {"samples": [{"open-time": -0.1}]}, "samples[0].open-time"),
    "valid in words": (lambda record: record | {"valid": "no"}, "valid"),
    "text for a list": (lambda record: record | {"samples": "none"}, "samples"),
    "text for reasons": (lambda record: record | {"reasons": "none"}, "reasons"),
    "text for a mapping": (lambda record: record | {"requests": {"GET": "five"}}, "requests.GET"),
    "negative requests": (lambda record: record | {"requests": {"GET": {"count": -1}}}, "requests.GET.count"),
    "more than all pages": (lambda record: record | {"cache": {"resident_after": 1.5}}, "cache.resident_after"),
    "another version": (lambda record: record | {"record": 2}, "record"),
    "another run": (lambda record: record | {"run": "elsewhere"}, "another run"),
    "another study": (lambda record: record | {"study": "blobs"}, "another study"),
    "another cell": (lambda record: record | {"name": "elsewhere"}, "another cell"),
    "another repeat": (lambda record: record | {"repeat": 2}, "another repeat"),
    "other levels": (lambda record: record | {"cell": record["cell"] | {"workers": "7"}}, "workers"),
    "nothing": (lambda record: {}, "lacks"),
    "no mapping": (lambda record: "[]", "must contain a JSON object"),
    "deep nesting": (lambda record: '{"read":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "text in a sample": (lambda record: record | {"samples": [{"open-time": "long"}]}, "samples[0].open-time"),
    "a number of 5,000 digits": (lambda record: '{"repeat": ' + "9" * 5_000 + "}", "JSON"),
}  # fmt: skip


@pytest.mark.rule(23)
@pytest.mark.parametrize("change, named", ODD.values(), ids=ODD)
def test_an_odd_record_is_named_and_all_else_is_reported(tmp_path, capsys, change, named):
    run = run_of(tmp_path, repeats=7, ratio=newer_is(2))
    path = newer(run)
    written = change(json.loads(path.read_text()))
    path.write_text(written if isinstance(written, str) else sealed(written))
    _, cells, judged = gather(run)
    row = chosen(cells, **NEWER).iloc[0]
    assert (row["n"], row["failed"]) == (6, 1)
    assert named in row["reasons"]
    assert str(path) in row["reasons"]
    assert str(path) in capsys.readouterr().err
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}
    assert len(facts_program.list_failed_attempts(run)) == 0


@pytest.mark.rule(23)
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing"])
def test_what_is_no_file_in_the_place_of_a_record_is_a_failed_one_and_is_moved_aside(tmp_path, kind):
    run = run_of(tmp_path / "results/synthetic/shots", repeats=7)
    path = newer(run)
    path.unlink()
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link to nothing": lambda: path.symlink_to("gone")}[kind]()
    _, cells, _ = gather(run)
    row = chosen(cells, **NEWER).iloc[0]
    assert (row["n"], row["failed"]) == (6, 1)
    assert str(path) in row["reasons"]
    results = run.parent
    left = list(failures.find_failed_artefacts(results))
    assert left == [path]
    failures.move_aside(results, left)
    assert not os.path.lexists(path)


@pytest.mark.rule(23)
def test_copies_of_a_record_are_no_blocks(tmp_path):
    """Six copies of one record were "slower, p 0.03"."""
    run = run_of(tmp_path, ratio=newer_is(1.3))
    for library in ("hdf5-1.14.6", "hdf5-2.0.0"):
        for cell in run.glob(f"records/{library}_*"):
            for repeat in range(2, 7):
                shutil.copy(cell / "repeat=1.json", cell / f"repeat={repeat}.json")
    _, cells, judged = gather(run)
    assert set(cells["n"]) == {1}
    assert set(cells["failed"]) == {5}
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"too few repeats"}


@pytest.mark.rule(23)
def test_an_edited_record_is_shown_and_in_no_verdict(tmp_path):
    run = run_of(tmp_path, repeats=7)
    path = newer(run)
    record = json.loads(path.read_text())
    record["seconds"]["total"] *= 0.5
    path.write_text(json.dumps(record))
    samples, cells, judged = gather(run)
    row = chosen(cells, **NEWER).iloc[0]
    assert tuple(row[["n", "failed", "invalid", "edited"]]) == (6, 0, 1, 1)
    assert set(chosen(samples, cell=row["cell"], repeat=1)["valid"]) == {False}
    assert set(chosen(judged, factor="library", page_buffer="0", metric="total")["blocks"]) == {6}
    table = cell_tables.build_trouble_table(results.load_results(run / "out"))
    assert table.frame[""].tolist() == ["[EDITED]"]
    assert "digest" in table.frame["reasons"].iloc[0]


@pytest.mark.rule(9)
def test_work_that_cannot_be_is_invalid_though_the_record_says_otherwise_and_was_sealed_again(tmp_path):
    run = run_of(tmp_path, repeats=7)
    path = newer(run)
    record = json.loads(path.read_text())
    record["work"] |= {"blocks_verified": 0, "blocks_asked": 16}
    path.write_text(sealed(record))
    row = chosen(gather(run)[1], **NEWER).iloc[0]
    assert tuple(row[["n", "failed", "invalid", "edited"]]) == (6, 0, 1, 0)
    assert "expected 16 blocks with the right checksum, got 0" in row["reasons"]


def test_a_record_that_is_laid_out_anew_is_not_edited(tmp_path):
    run = run_of(tmp_path)
    path = newer(run)
    record = json.loads(path.read_text())
    path.write_text(json.dumps(dict(sorted(record.items())), indent=4))
    assert set(gather(run)[1]["edited"]) == {0}


def test_an_edited_battery_is_shown_and_in_no_verdict(tmp_path):
    run = write_run(tmp_path, [battery("disk", [1.0] * 10), battery("disk", [1.0] * 10, repeat=2)])
    path = next(run.glob("records/*/repeat=2.json"))
    record = json.loads(path.read_text())
    record["samples"][0]["sync_lat_p99_ms"] = 0.001
    path.write_text(json.dumps(record))
    row = gather_volumes(run)["cells"].iloc[0]
    assert row[["n", "failed", "invalid", "edited"]].tolist() == [1, 0, 1, 1]
    assert "digest" in row["reasons"]


@pytest.mark.parametrize("value", [-1.0, float("nan"), "fast", [1]])
def test_an_odd_imported_record_is_named_and_all_else_is_reported(tmp_path, capsys, value):
    odd = battery("odd", [1.0] * 10)
    odd["samples"][3]["sync_lat_p99_ms"] = value
    fine = battery("fine", [1.0] * 10)
    folder = write_run(tmp_path, imported=[fine, odd])
    text = (folder / "imported.json").read_text()
    if value != value:
        (folder / "imported.json").write_text(text.replace("NaN", "-1"))
    cells = gather_volumes(folder)["cells"].set_index("store")
    assert cells.loc["fine", ["n", "failed"]].tolist() == [1, 0]
    assert cells["failed"].sum() == 1
    assert "sync_lat_p99_ms" in capsys.readouterr().err


@pytest.mark.rule(23)
def test_a_record_from_before_there_were_digests_counts_and_is_called_that(tmp_path):
    results = tmp_path / "synthetic"
    run = run_of(results / "shots")
    for path in run.glob("records/*/*.json"):
        record = json.loads(path.read_text())
        del record["digest"]
        path.write_text(json.dumps(record))
    _, cells, _ = gather(run)
    assert set(cells["n"]) == {6}
    told = facts_program.describe_unsealed([json.loads(path.read_text()) for path in run.glob("records/*/*.json")])
    assert told[0].startswith("24 of 24 records predate digests")


def test_what_is_written_is_read_and_what_is_unsound_is_not_written(tmp_path):
    run = run_of(tmp_path)
    record = json.loads(newer(run).read_text())
    path = tmp_path / record["name"] / "repeat=1.json"
    records.write_record(path, record)
    assert not records.is_edited(records.read_record(path, "synthetic", "shots"))
    with pytest.raises(Problem, match=r"seconds\.total must be bigger than 0 \(got -1\)$"):
        records.write_record(path, record | {"seconds": {"total": -1}})
    with pytest.raises(Problem, match=r'samples must be array \(got "x{20,60}…\)$'):
        records.write_record(path, record | {"samples": "x" * 1000})
    assert records.read_record(path, "synthetic", "shots") == json.loads(newer(run).read_text())


def test_why_an_artefact_cannot_be_used_is_what_is_wrong_with_it(tmp_path):
    run = run_of(tmp_path / "shots")
    path, library = newer(run), tmp_path / "shots/libraries/h5py.json"
    assert records.list_failure_reasons(path, tmp_path, "synthetic") == []
    path.write_text("{")
    [reason] = records.list_failure_reasons(path, tmp_path, "synthetic")
    assert str(path) in reason
    library.parent.mkdir()
    for failure, named in (({"reasons": ["no compiler"]}, "no compiler"), ({}, "no reason given")):
        library.write_text(json.dumps({"status": "failed", **failure}))
        assert records.list_failure_reasons(library, tmp_path, "synthetic") == [named]


def test_a_failed_record_needs_no_figures(tmp_path):
    run = run_of(tmp_path)
    record = json.loads(newer(run).read_text())
    path = tmp_path / record["name"] / "repeat=1.json"
    records.write_record(path, failed(record, "killed"))
    assert validity.list_faults(records.read_record(path, "synthetic", "shots")) == ["killed"]
    assert validity.list_faults(failed(record)) == ["failed without a reason"]
    assert validity.list_faults(record | {"valid": False})[0] == "invalid without a reason"


def test_a_row_of_the_matrix_that_stands_twice_is_named_and_counts_once(tmp_path):
    run = run_of(tmp_path, ratio=newer_is(2))
    matrix = pd.read_csv(run / "matrix.csv", dtype=str, keep_default_na=False)
    pd.concat([matrix, matrix.iloc[[0]]]).to_csv(run / "matrix.csv", index=False)
    _, cells, judged = gather(run)
    assert len(cells) == 4
    assert set(chosen(judged, factor="library", metric="total")["verdict"]) == {"slower"}
    [reason] = cell_tables.build_omitted_table(pd.read_csv(run / "matrix.csv", dtype=str, keep_default_na=False)).frame[
        "reason"
    ]
    assert matrix["cell"].iloc[0] in reason


def parts(value: object, above: tuple = ()) -> Iterator[tuple]:
    """Yield where each part of a record is, of lists the first entry."""
    yield above
    if isinstance(value, dict):
        for key in value:
            yield from parts(value[key], (*above, key))
    elif isinstance(value, list) and value:
        yield from parts(value[0], (*above, 0))


def without(record: dict, place: tuple, *instead: object) -> dict:
    """Return a record of which one part is gone, or something else instead."""
    # Faster than a deep copy.
    changed = json.loads(json.dumps(record))
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    if instead and isinstance(inner, list):
        inner.insert(0, instead[0])
    elif instead:
        inner[place[-1]] = instead[0]
    return changed


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make, gathered",
    [
        (lambda folder: run_of(folder, repeats=2), gather),
        (lambda folder: build(folder, cells(store=("disk", "s3")), repeats=2), None),
        (lambda folder: write_run(folder, [battery("disk", [1.0] * 9)]), gather_volumes),
    ],
    ids=["shots", "blobs", "volumes"],
)
def test_whichever_part_of_a_record_is_odd_the_page_is_made(tmp_path, request, capsys, make, gathered):
    """Each part of a record in turn is gone, or of another kind, in a further repeat of its own."""
    study = request.node.callspec.id
    run = make(tmp_path / "results/synthetic" / study)
    path = sorted(run.glob("records/*/repeat=1.json"))[0]
    record = json.loads(path.read_text())
    del record["digest"]
    places = [place for place in parts(record) if place and not {"job_options"} & {*place}]
    odd = [without(record, place, *instead) for place in places for instead in ((), ("text",), ([1],), (None,))]
    for number, one in enumerate(odd, 11):
        here = path.with_name(f"repeat={number}.json")
        here.write_text(json.dumps(one | {"repeat": number} if one.get("repeat") == 1 else one))
    if gathered:
        gathered(run, out=".")
    else:
        gather_blobs(run)
    named = capsys.readouterr().err
    assert len(odd) / 3 < named.count("left out: ") <= len(odd)
    matrix = pd.read_csv(run / "matrix.csv", dtype=str, keep_default_na=False)
    levels = matrix.drop(columns=["omitted", "twin_of"]).set_index("cell").drop(index="", errors="ignore")
    plan = {cell: {"dataset": "", "settings": {"cell": row}} for cell, row in levels.to_dict("index").items()}
    (run / "plan.json").write_text(json.dumps({"cells": plan}))
    stores = {name: {"kind": "posix"} for name in ("disk", "s3", "azure")}
    config = {"run": "synthetic", "repeats": 2, "equivalence_percent": 5, "libraries": {}, "stores": stores}
    facts = facts_of(
        config | {"studies": {study: {"question": "Why?", "batteries": 1, "compare": []}}}, study, run.parent
    )
    (run / "facts.json").write_text(json.dumps(facts))
    page = write_words(study, run, tmp_path / f"{study}.html").with_suffix(".md").read_text()
    assert "failed" in page


@pytest.mark.rule(4)
@pytest.mark.parametrize(
    "starts, overlapping",
    [
        (["08:00:00.100Z", "08:00:00.700Z", "08:00:02.200Z"], 0),
        (["08:00:00.100Z", "08:00:00.500Z", "08:00:02.200Z"], 1),
        (["08:00:00Z", "08:00:00Z", "08:00:02Z"], 0),
        (["08:00:00Z", "08:00:00Z", "08:00:00Z"], 1),
    ],
    ids=["in-turn", "overlap", "same-second", "overlap-by-a-second"],
)
def test_records_overlap_by_fractions_of_a_second_and_older_ones_not_by_a_tie(starts, overlapping):
    """The first takes 0.5 s, the second 1.4, the third 1; cells are in another order than they were measured in."""
    steps = [
        {"position": position, "started_utc": f"2026-11-26T{start}", "step_seconds": seconds}
        for position, (start, seconds) in enumerate(zip(starts, (0.5, 1.4, 1.0), strict=True))
    ]
    measured = [step | {"repeat": 1, "name": f"cell-{step['position']}", "host": {"node": "a"}} for step in steps]
    order = facts_program.count_orders([measured[1], measured[2], measured[0]])
    assert order == {"repeats": 1, "full": [1], "complete": 1, "orders": 1, "overlapping": overlapping}
    elsewhere = [*measured[:2], measured[2] | {"host": {"node": "b"}}]
    assert facts_program.count_orders(elsewhere)["overlapping"] == (overlapping if starts[1].endswith("500Z") else 0)


@pytest.mark.rule(4, 7)
def test_a_clock_that_was_set_back_makes_no_records_overlap():
    """The clock is set back by 5 s before the second record; the last record is of a later session."""
    measured = [
        {"position": place, "repeat": 1, "name": f"cell-{place}", "host": {"node": "a"}, "session": session}
        | {"started_utc": f"2026-11-26T08:00:{utc:06.3f}Z", "started_uptime_s": uptime, "step_seconds": 2.0}
        for place, (session, utc, uptime) in enumerate([("1", 10.0, 90.0), ("1", 7.1, 92.1), ("2", 9.2, 94.2)])
    ]
    assert facts_program.count_orders(measured)["overlapping"] == 0
    measured[1]["started_uptime_s"] = 91.0
    assert facts_program.count_orders(measured)["overlapping"] == 1
    # Older records only have UTC times, and the clock may be set between sessions.
    older = [{key: value for key, value in one.items() if key != "started_uptime_s"} for one in measured]
    assert facts_program.count_orders([older[0], older[2]])["overlapping"] == 0


@pytest.mark.rule(4)
def test_blocks_of_a_selection_are_no_repeats_of_every_cell():
    host, step = {"node": "a"}, {"started_utc": None, "step_seconds": 1.0}
    measured = [
        {"position": 0, "repeat": block, "name": name, "host": host, "block_cells": len(names), **step}
        for block, names in enumerate(["abc", "abc", "ab", "ac"], 1)
        for name in names
    ]
    assert facts_program.count_orders(measured)["full"] == [1, 2]
    # A cell that is measured later makes the blocks before it no repeats of every cell, and lost records do not.
    later = [record for record in measured if record["name"] != "c" or record["repeat"] == 4]
    assert facts_program.count_orders(later)["full"] == [1, 2]
    for record in later[:4]:
        record["block_cells"] = 2
    order = facts_program.count_orders(later)
    assert (order["repeats"], order["full"], order["complete"]) == (4, [], 0)
