"""Who is called the fastest, and who is not: each pair of arms has a verdict in the tables, and nothing else counts."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sbench.measure import judging
from sbench.pages import cell_tables, comparisons, curves, findings, judgement, leaders
from sbench.studies.blobs import report, study
from sbench.studies.blobs.report import results
from tests.helpers import blobs_tables
from tests.helpers.blobs_tables import build, cells, load

pytestmark = pytest.mark.thorough

SIZES = ("1MiB", "2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB", "512MiB", "1GiB")


def edges(**found: str) -> dict[tuple[str, str], str]:
    return {tuple(pair.split("_")): verdict for pair, verdict in found.items()}


def lead(found: dict[tuple[str, str], str]) -> tuple[str, list[str], list[str]]:
    names = ["disk", "s3", "azure"]
    arm = {"pattern": "single-file", "objects": "shared", "mib_s": 1.0, "total_s": 1.0}
    cells = pd.DataFrame([{"cell": name, "store": name, **arm} for name in names])
    one = leaders._find_lead(found, cells, ("store", "pattern", "objects"), "mib_s")
    return one.kind, [arm[0] for arm in one.arms], [arm[0] for arm in one.outside]


def but(change: dict[tuple[str, str], dict | None]):
    """Change the records of some (store, size); None leaves them out."""

    def changed(record: dict) -> dict | None:
        parts = change.get((record["cell"]["store"], record["cell"]["size"]), {})
        return None if parts is None else record | parts

    return changed


def test_an_arm_that_nothing_beats_is_not_called_fastest_where_it_does_not_beat_all():
    chain = edges(disk_s3="slower", s3_azure="slower")
    assert lead(chain | edges(disk_azure="no evidence")) == ("open", ["disk"], [])
    assert lead(chain | edges(disk_azure="slower")) == ("one", ["disk"], [])
    assert lead(edges(disk_s3="faster", s3_azure="faster", disk_azure="slower"))[0] == "open", "a circle"


def test_an_arm_that_could_not_be_judged_leads_nobody_and_is_named():
    for unknown in ("too few repeats", "not comparable"):
        found = edges(disk_s3="slower", s3_azure=unknown, disk_azure=unknown)
        assert lead(found) == ("one", ["disk"], ["azure"])
    assert lead({}) == ("unjudged", ["disk"], [])
    assert lead(edges(disk_s3="not comparable"))[0] == "apart"
    assert lead(edges(disk_s3="too few repeats", s3_azure="not comparable"))[0] == "few"


def test_a_lost_repeat_makes_the_slowest_store_no_leader(tmp_path: Path):
    def without(record: dict) -> dict | None:
        return None if (record["cell"]["store"], record["repeat"]) == ("azure", 3) else record

    run = load(build(tmp_path, cells(), change=without))
    told = [leaders.describe_lead(lead, run)[1] for lead in leaders.find_leads(run)]
    assert len(told) == 2
    assert all(" of those judged; not judged: single-file on Azurite on loopback" in text for text in told)


def test_a_size_at_which_one_arm_alone_was_measured_keeps_those_around_it_apart(tmp_path: Path):
    spoilt = but({("disk", "4MiB"): {"valid": False, "reasons": ["changed"]}})
    run = load(build(tmp_path, cells(store=("disk", "azure")), change=spoilt))
    assert [one.levels for one in leaders.find_leads(run)] == [("1MiB",), ("16MiB", "64MiB")]


@pytest.mark.rule(17)
def test_every_pair_of_arms_has_one_verdict_and_stands_in_the_table(tmp_path: Path):
    run = load(build(tmp_path, cells(pattern=("single-file", "multiple-files", "sections"), size=("16MiB",))))
    rows = run.verdicts[run.verdicts["metric"] == "total"]
    pairs, asked = rows[rows["factor"] == judging.CONTEST], run.get_comparisons("total")
    # Six arms that get whole objects make 15 pairs, three that get sections 3 more.
    assert len(pairs) + len(asked) == 15 + 3
    assert len(pairs) > 0 < len(asked)
    assert set(pairs["role"]) == {"decides"}
    assert (pairs["size"] == "16MiB").all()
    assert not pairs[["baseline", "contender"]].apply(frozenset, axis=1).duplicated().any()


def test_arms_that_read_other_data_are_never_called_faster(tmp_path: Path):
    def other(record: dict) -> dict:
        told = record["provenance"] | ({"data_sha256": "other"} if record["cell"]["store"] == "s3" else {})
        return record | {"provenance": told}

    for compare in ((), (("store", "disk"),), (("store", "s3"),)):
        folder = tmp_path / str(len(compare) and compare[0][1])
        folder.mkdir()
        run = load(build(folder, cells(store=("disk", "s3")), compare=compare, change=other))
        assert {one.kind for one in leaders.find_leads(run)} == {"apart"}
        assert "the configurations are not comparable" in leaders.describe_lead(leaders.find_leads(run)[0], run)[1]


@pytest.mark.rule(17)
@pytest.mark.thorough
def test_noise_is_rarely_called_the_fastest_at_any_size():
    rows = cells(store=("disk", "s3"), size=SIZES)
    matrix = pd.DataFrame(rows).drop(columns="omitted")
    random = np.random.default_rng(1)
    alike = dict.fromkeys(("code", "data", "packages", "machine"), "a") | {"logical_bytes": 1}
    alike |= {"status": "done", "ok": True}
    alarms, runs = 0, 100
    for _ in range(runs):
        found = pd.DataFrame([row | alike | {"repeat": n} for n in range(1, 7) for row in rows])
        found["seconds total"] = np.exp(random.normal(0, 0.3, len(found)))
        table = judging.build_verdicts_table(
            matrix, found, [], contest=functools.partial(study.STUDY.get_contest, config={})
        )
        alarms += bool(table["verdict"].isin(("faster", "slower")).any())
    # 5 % in the mean; as one family for each size it would be 30 %.
    assert alarms <= 0.12 * runs


@pytest.mark.rule(7)
def test_an_order_that_would_turn_only_by_the_first_iteration_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blobs_tables, "OVERHEAD", {"disk": 0.0, "s3": 0.0})
    monkeypatch.setattr(blobs_tables, "RATE", {"disk": 400.0, "s3": 500.0})
    many = {"1MiB": 40, "4MiB": 40, "16MiB": 3, "64MiB": 3}

    def shorter(record: dict) -> dict:
        reads = [row for row in record["samples"] if row["phase"] == "read"][: many[record["cell"]["size"]]]
        reads[0] = reads[0] | {"latency_s": reads[1]["latency_s"] * (3.5 if record["cell"]["store"] == "s3" else 1)}
        latencies = [row["latency_s"] for row in reads]
        times = {"total": sum(latencies[1:]), "first": latencies[0]}
        moved = sum(row["bytes"] for row in reads)
        work = record["work"] | {"logical_bytes": moved, "timed_bytes": moved - reads[0]["bytes"]}
        return record | {"samples": reads, "seconds": record["seconds"] | times, "work": work}

    run = load(build(tmp_path, cells(store=("disk", "s3")), iterations=40, change=shorter))
    [answer] = [one for one in findings.list_findings(run) if one.is_decided]
    assert "The order reverses" not in answer.text
    first = [one for one in findings.list_findings(run, "first") if one.is_decided]
    assert first, "it has figures of its own"


def test_an_order_that_turns_is_said_to(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("disk", "s3"))))
    [answer] = [one for one in findings.list_findings(run) if one.is_decided]
    assert "The order reverses" in answer.text


def test_fewer_than_six_repeats_have_no_interval(tmp_path: Path):
    few, six = tmp_path / "5", tmp_path / "6"
    for folder in (few, six):
        folder.mkdir()
        build(folder, cells(store=("disk",)), repeats=int(folder.name))
    ends = ["mib_s_low", "mib_s_high", "latency_s_low", "latency_s_high"]
    assert load(few).cells[ends].isna().all(axis=None)
    assert load(six).cells[ends].notna().all(axis=None)


def test_a_single_iteration_is_called_that(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("disk",)), iterations=1))
    assert not {"later / s", "first / later"} & set(results.build_iteration_table(run).frame)
    assert all("median of the iterations after the first" in table.caption for table in results.build_size_tables(run))


def test_a_run_without_comparisons_still_says_how_it_was_measured_and_who_leads(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("disk", "s3"), size=("64MiB",)), compare=()))
    assert leaders.find_leads(run)[0].kind == "one"
    assert any("A comparison computes the ratio" in line for line in judgement.describe_method(run, report.METHOD))
    (tmp_path / "few").mkdir()
    run = load(build(tmp_path / "few", cells(store=("disk", "s3"), size=("64MiB",)), compare=(), repeats=3))
    [(text, _)] = leaders.write_headline(leaders.find_leads(run), run)
    assert "there are too few repeats for a verdict" in text
    assert leaders.find_leads(run)[0].kind == "few"


def test_one_reader_has_no_ceiling_drawn_and_no_share(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("s3",), pattern=("single-file", "broadcast"))))
    for panel in curves.draw_curves(run, "size").panels:
        assert any("bare client" in mark.label for mark in panel.marks) == (panel.title == "single-file")
    assert [panel.title for panel in curves.draw_curves(run, "size", report.SHARE).panels] == ["single-file"]


@pytest.mark.parametrize("compare", [(), (("pattern", "multiple-files"),), (("pattern", "single-file"),)])
def test_patterns_are_compared_in_figures_whichever_baseline_was_asked_for(tmp_path: Path, compare):
    patterns = ("single-file", "multiple-files", "broadcast")
    rows = cells(store=("disk",), pattern=patterns, size=("16MiB",))
    rows += cells(store=("disk",), pattern=("sections", "mpi-io", "mpi-io-collective"), size=("16MiB",))
    run = load(build(tmp_path, rows, compare=compare))
    assert len(comparisons.draw_comparisons(run, ["pattern"]).numbers) == 6


@pytest.mark.rule(13)
def test_cells_in_which_the_harness_takes_much_of_the_time_are_counted(tmp_path: Path):
    def slow(record: dict) -> dict:
        return record | {"seconds": record["seconds"] | {"null": 0.3 * record["seconds"]["total"]}}

    run = load(build(tmp_path, cells(store=("disk",)), change=slow))
    assert "In 4 cells the harness takes more than 10 % of the time" in " ".join(judgement.list_limits(run))
    assert all(cell_tables.build_harness_table(run).over["within it / %"])


def test_iterations_of_invalid_records_are_not_counted(tmp_path: Path):
    spoilt = but({("disk", "4MiB"): {"valid": False, "reasons": ["changed"]}})
    run = load(build(tmp_path, cells(store=("disk",)), change=spoilt))
    assert int(run.records[run.records["valid"]]["iterations"].sum()) == 90


def test_the_limit_of_s3_is_the_product_that_its_source_names():
    limit = study.read_object_limits()["s3"]
    assert "10,000 parts of 5 GiB" in limit["source"]
    assert limit["gib"] == 10_000 * 5
    blocks = study.read_object_limits()["azure-blob"]
    assert "50,000 blocks of 4,000 MiB" in blocks["source"]
    assert blocks["gib"] == 50_000 * 4_000 / 1024
