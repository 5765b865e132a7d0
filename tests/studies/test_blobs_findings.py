import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sbench.measure import gather as facts_program
from sbench.pages import cell_tables, curves, judgement, leaders, names, stops
from sbench.pages import comparisons as ratios
from sbench.pages.results import Results
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.studies.blobs import patterns, report
from sbench.studies.blobs import published as blobs_published
from sbench.studies.blobs.report import results
from tests.helpers.blobs_tables import CEILING, build, cells, load, seconds, spoiled
from tests.helpers.records import failed

MIB = 2**20
S3, AZURITE = "S3 on loopback", "Azurite on loopback"


def limits(run: Results) -> list[str]:
    return judgement.list_limits(run, results.list_limits(run))


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("blobs")


@pytest.fixture(scope="module")
def run(tables: Path) -> Results:
    return load(tables)


# The published layout


def test_layout_has_sizes_in_rows_and_stores_in_columns(run: Results):
    table = next(results.build_size_tables(run))
    assert list(table.frame.columns[:4]) == ["cache", "size of an object", "disk latency / s", "disk MiB/s"]
    numbers = table.numbers.set_index(["cache", "size", "store"])
    row = numbers.loc[("cold", "16MiB", "s3")]
    expected = seconds(cells(store=("s3",), size=("16MiB",))[0])
    assert row["latency_s"] == pytest.approx(expected, rel=0.1)
    assert row["mib_s_low"] < row["mib_s"] < row["mib_s_high"]


def test_bandwidth_is_all_bytes_by_all_time(run: Results):
    for cell, own in run.records[run.records["valid"]].groupby("cell"):
        mib_s = run.cells.set_index("cell").loc[cell, "mib_s"]
        assert mib_s == pytest.approx(own["bytes"].sum() / MIB / own["total_s"].sum())
        assert mib_s == pytest.approx(run.cells.set_index("cell").loc[cell, "throughput_mib_s"])


def test_invalid_cells_are_coloured_and_in_no_bandwidth(tmp_path: Path):
    bad = spoiled("s3", valid=False, reasons=["3 blocks differ from the checksums of the manifest"])
    run = load(build(tmp_path, cells(), change=bad))
    table = next(results.build_size_tables(run))
    assert list(table.frame[f"{S3} MiB/s"]) == ["[INVALID]"] * 4
    assert list(table.over[f"{S3} MiB/s"]) == [True] * 4
    assert not any(table.over["disk MiB/s"])
    assert "checksum" in cell_tables.build_trouble_table(run).frame["reasons"].iloc[0]
    [panel] = curves.draw_curves(run, "size").panels
    [drawn] = [mark for mark in panel.marks if mark.label == "[INVALID]"]
    assert len(drawn.points) == 4 * 6
    assert S3 not in [mark.label for mark in panel.marks]
    assert all("S3" not in leaders.describe_lead(lead, run)[1] for lead in leaders.find_leads(run))


def test_a_failed_cell_is_said_to_have_failed(tmp_path: Path):
    def change(record):
        return failed(record, "process 1 was killed (signal 9)") if record["cell"]["store"] == "azure" else record

    run = load(build(tmp_path, cells(), change=change))
    assert set(next(results.build_size_tables(run)).frame["Azurite on loopback MiB/s"]) == {"failed"}
    assert "killed" in cell_tables.build_trouble_table(run).frame["reasons"].iloc[0]


def test_a_printed_table_whose_pattern_or_column_is_unknown_is_named(tmp_path: Path):
    (tmp_path / "own.csv").write_text("File Size(MiB),Blob Latency (s)\n1,2\n")
    with pytest.raises(Problem, match=r"own.csv: the file must be named after its pattern: single, multiple, extended"):
        blobs_published.read_table(tmp_path / "own.csv")
    (tmp_path / "own.csv").rename(tmp_path / "single.csv").write_text("File Size(MiB),Blob speed\n1,2\n")
    with pytest.raises(Problem, match="got 'Blob speed'"):
        blobs_published.read_table(tmp_path / "single.csv")


# Patterns


def test_every_pattern_has_a_picture_a_title_and_an_explanation(run: Results):
    assert all(pattern.title and pattern.explained for pattern in patterns.PATTERNS.values())
    assert len(results.describe_patterns(run)) == run.cells["pattern"].nunique() + 1
    drawn = results.PICTURE.read_text(encoding="utf-8")
    assert set(patterns.PATTERNS) <= set(re.findall(r'<g id="([^"]+)"', drawn))


# Machines


@pytest.mark.rule(14)
def test_the_machines_of_a_record_are_those_that_read():
    login = {"node": "login", "cpu": "A"}
    nodes = [{"name": name, "processes": 4, "node": name, "cpu": "B"} for name in ("n1", "n2")]
    assert facts_program.list_hosts({"host": login}) == [login]
    assert facts_program.list_hosts({"host": login, "effective": {"hosts": nodes}}) == [
        {"node": "n1", "cpu": "B"},
        {"node": "n2", "cpu": "B"},
    ]
    alone = [{"name": "login", "processes": 2, **login}]
    assert facts_program.list_hosts({"host": login, "effective": {"hosts": alone}}) == [login]


# Figures


def test_every_repeat_of_a_size_is_drawn_beside_its_summary(run: Results):
    figure = curves.draw_curves(run, "size")
    panel = next(panel for panel in figure.panels if panel.title == "multiple-files")
    [disk] = [mark for mark in panel.marks if mark.label == "disk · cold cache"]
    assert len(disk.points) == 4
    assert len(disk.samples) == 4 * 6
    assert panel.x_log
    assert panel.y_log
    summary = run.measured.set_index("cell")["mib_s"]
    medians = figure.numbers[figure.numbers["repeat"] == ""].set_index("cell")["mib_s"]
    assert np.allclose(medians, summary[medians.index])


@pytest.mark.rule(20)
def test_the_bare_client_is_drawn_with_its_name(run: Results):
    panel = next(panel for panel in curves.draw_curves(run, "size").panels if panel.title == "multiple-files")
    lines = {mark.label: mark for mark in panel.marks if mark.label.endswith("bare client")}
    assert set(lines) == {f"{store} · cold cache: bare client" for store in ("disk", S3, AZURITE)}
    assert np.allclose(lines[f"{S3} · cold cache: bare client"].points["y"], CEILING["s3"], rtol=0.1)


def test_without_ceilings_nothing_is_drawn_or_said_of_them(tmp_path: Path):
    def without(record: dict) -> dict:
        return record | {"samples": [row for row in record["samples"] if row["phase"] == "read"], "ceiling": None}

    run = load(build(tmp_path, cells(), change=without))
    [panel] = curves.draw_curves(run, "size").panels
    assert not any("bare client" in mark.label for mark in panel.marks)
    assert curves.draw_curves(run, "size", report.SHARE).panels == ()


def test_share_of_the_ceiling_is_paired_within_a_record(run: Results):
    own = run.records[(run.records["cell"] == run.measured["cell"].iloc[0]) & run.records["valid"]]
    assert np.allclose(own["share"], own["mib_s"] / own["ceiling_mib_s"])
    assert run.measured["share"].iloc[0] == pytest.approx(own["share"].median())
    shares = run.measured.dropna(subset="share")
    assert len(shares) > 0
    assert shares["share_low"].le(shares["share"]).all()


def test_processes_are_drawn_and_the_base_is_named(run: Results):
    [panel] = curves.draw_curves(run, "processes").panels
    assert panel.title == "multiple-files · 16 MiB"
    assert panel.x_ticks == (1, 2, 4)
    told = " ".join(stops.describe_stops(run))
    base = run.cells[(run.cells["processes"] == "1") & (run.cells["store"] == "disk")]["mib_s"].iloc[0]
    assert f"(base: 1 process, {names.format_rate(base)} MiB/s)" in told


def test_where_more_processes_stop_to_help(tmp_path: Path):
    rows = cells(store=("disk",), pattern=("sections",), size=("64MiB",), processes=("1", "2", "4", "8"))
    [told] = stops.describe_stops(load(build(tmp_path, rows)))
    # The formula gives 0.5, 0.95, 1 and 1 of the rate: 4 is 5 % more than 2, 8 no more than 4.
    line = r": no speed-up shown beyond [24] processes: time per byte with [48] processes / with [24] processes = "
    assert re.search(line + r"(0.9|1.0)\d \[", told)


def test_one_reader_is_held_against_everyone_reading(run: Results):
    rows = ratios.draw_comparisons(run, ["pattern"]).numbers
    pairs = rows[["contender", "baseline"]].value_counts()
    assert pairs["broadcast", "single-file"] == 12
    assert pairs["scatter", "sections"] == 3


def test_chunks_concurrency_and_mpi_io_have_figures_of_their_own(run: Results):
    for factor in ("chunk_size", "concurrency"):
        assert len(curves.draw_curves(run, factor).panels) == 1
        assert ratios.draw_comparisons(run, [factor]).panels
    assert curves.draw_curves(run, "operation_size").panels == ()
    assert {"mpi-io", "mpi-io-collective"} <= set(ratios.draw_comparisons(run, ["pattern"]).numbers["contender"])


def test_the_first_iteration_is_told_apart(run: Results):
    table = results.build_iteration_table(run).frame
    assert table.loc[table["store"] == S3, "first / later"].between(1.7, 1.9).all()
    assert table.loc[table["store"] == "disk", "first / later"].between(0.9, 1.1).all()


def test_many_arms_are_told_apart_by_panels(tmp_path: Path):
    rows = cells(processes=("1", "2", "4"), chunk_size=("1MiB", "4MiB"), concurrency=("1", "4"), size=("1MiB", "4MiB"))
    figure = curves.draw_curves(load(build(tmp_path, rows, repeats=2)), "size")
    assert 1 < len(figure.panels) <= curves.PANELS
    for panel in figure.panels:
        assert len([mark for mark in panel.marks if not mark.label.endswith("bare client")]) <= curves.ARMS


# Tables


def test_requests_that_were_sent_again_are_marked(run: Results):
    table = cell_tables.build_request_table(run)
    marked = table.frame[np.asarray(table.over[report.AGAIN])]
    assert set(marked["store"]) == {AZURITE}
    assert set(marked[report.AGAIN]) == {1}
    assert "The clients retried 19 requests" in " ".join(limits(run))


def test_what_was_in_force_is_listed_and_marked(run: Results, tmp_path: Path):
    table = cell_tables.build_condition_table(run)
    assert set(table.frame["verified"]) == {"after every iteration"}
    assert list(table.frame["oversubscribed"] == "yes") == list(table.over["oversubscribed"])
    assert "romio_cb_read automatic" in set(table.frame["MPI-IO hints"])
    assert set(table.frame["MPI"]) == {"MPICH 5.0.2"}
    assert table.frame.groupby("store")["client"].nunique().eq(1).all()
    assert (table.frame["memory growth of a process / MiB"] <= table.frame["allowed memory growth / MiB"]).all()
    hosts = [{"name": f"node{number}", "processes": 2} for number in (1, 2)]

    def spread(record: dict) -> dict:
        return record | {"effective": record["effective"] | {"hosts": hosts, "idle_processes": 1}}

    run = load(build(tmp_path, cells(size=("1MiB",)), change=spread))
    assert cell_tables.build_condition_table(run).frame["processes in force"].iloc[0] == "4 on 2 hosts (2 each)"
    told = " ".join(limits(run))
    assert "ran on the same machine" not in told
    assert "some processes read nothing" in told


def test_limits_say_what_stands_in_a_cloud_s_place(run: Results):
    told = " ".join(limits(run))
    for part in (
        "not a verdict on AWS",
        "more workers or processes ran than there are cores",
        "ran on the same machine",
        "hypervisor",
    ):
        assert part in told
    embedded = stores.get_store({"kind": "azure-blob", "server": "embedded"}).describe_limits(set())
    assert "Azurite" in embedded
    assert "sharing its cores with the readers" in embedded
    assert "not a verdict on Azure" in embedded
    assert "users of the service are not controlled" in stores.get_store({"kind": "azure-blob"}).describe_limits(set())
    assert "a remote file system (lustre)" in stores.get_store({"kind": "posix"}).describe_limits({"lustre"})


def test_control_and_what_cannot_exist_are_told(run: Results):
    assert "1 cell measured twice" in judgement.describe_control(run.verdicts)
    assert run.matrix["omitted"].str.contains("MPI-IO reads files").any()
