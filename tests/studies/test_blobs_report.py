import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sbench.pages import cell_tables, curves, findings, judgement, leaders, names, pages, sentences
from sbench.pages.markup import render_markdown_line
from sbench.pages.names import Names
from sbench.pages.results import Results
from sbench.pages.run_files import ABSENT
from sbench.probe.program import Problem
from sbench.studies.blobs.report import REPORT, results
from tests.helpers.blobs_tables import SIZES, build, cells, delivered, load, seconds
from tests.helpers.pages import write_words
from tests.helpers.records import failed

pytestmark = pytest.mark.thorough

MIB = 2**20


def limits(run: Results) -> list[str]:
    return judgement.list_limits(run, results.list_limits(run))


@pytest.fixture(scope="module")
def tables(synthetic: Callable[[str], Path]) -> Path:
    return synthetic("blobs")


@pytest.fixture(scope="module")
def run(tables: Path) -> Results:
    return load(tables)


@pytest.fixture(scope="module")
def page(report_of: Callable[[str], Path]) -> Path:
    return report_of("blobs")


# What people read first


def test_the_fastest_store_and_pattern_stand_with_bandwidth_interval_and_sizes(run: Results):
    (where, first), *others = (leaders.describe_lead(lead, run) for lead in leaders.find_leads(run))
    assert where == "when each process reads a whole object, cold cache"
    cells = run.cells[(run.cells["control"] == "") & (run.cells["cache"] == "cold")].set_index(
        ["store", "pattern", "size", "processes"]
    )
    row = cells.loc[("s3", "broadcast", "64MiB", "4")]
    value = names.format_with_interval(row["mib_s"], row["mib_s_low"], row["mib_s_high"])
    assert render_markdown_line(first).startswith("**broadcast on disk** (")
    assert render_markdown_line(first).endswith("was fastest up to 4 MiB.")
    last = [render_markdown_line(text) for place, text in others if place in ("", where)][-1]
    assert " was fastest " in last
    assert "at 64 MiB" in last or "from 16 MiB" in last
    assert "**broadcast on S3 on loopback** (" in last
    assert f"{value} MiB/s" in last


def test_what_was_measured_once_only_is_said_once(run: Results):
    text = pages.describe_usual_levels(run)
    assert text.startswith("Unless noted: 4 processes, a shared object, operations of 1 GiB")
    rate = {levels: row.mib_s for levels, row in run.measured.set_index(["store", "processes"]).groupby(level=[0, 1])}
    [told] = [
        text
        for where, text in (leaders.describe_lead(lead, run) for lead in leaders.find_leads(run))
        if "1 process or" in where
    ]
    ends = {
        store: [names.format_rate(rate[store, processes].iloc[0]) for processes in "12"] for store in ("s3", "disk")
    }
    assert render_markdown_line(told) == (
        "**multiple-files on S3 on loopback** ({}–{} MiB/s) and **multiple-files on disk** ({}–{} MiB/s) were fastest "
        "at 16 MiB, equally fast.".format(*ends["s3"], *ends["disk"])
    )


def test_the_order_turns_between_the_sizes_where_the_times_cross(run: Results):
    [finding] = [
        one
        for one in findings.list_findings(run)
        if (one.factor, one.rows["contender"].iloc[0]) == ("store", "s3")
        and "single-file" in set(one.rows["pattern"])
        and one.rows["size"].nunique() == len(SIZES)
    ]
    known = {
        size: seconds({**cells(store=("s3",), size=(size,))[0]}) / seconds(cells(store=("disk",), size=(size,))[0])
        for size in SIZES
    }
    verdicts = finding.rows[finding.rows["pattern"] == "single-file"].set_index("size")["verdict"]
    assert dict(verdicts) == {size: "slower" if known[size] > 1 else "faster" for size in SIZES}
    text = render_markdown_line(finding.text)
    assert text.endswith("**The order reverses between 4 MiB and 16 MiB.**")
    assert re.search(r"up to 4 MiB \*\*took [\d.–]+× as long\*\* \[", text)
    assert "with single-file or multiple-files" in text


def test_contexts_that_came_out_alike_share_a_sentence_and_none_is_lost(run: Results):
    rows, found = run.get_comparisons("total"), findings.list_findings(run)
    assert sum(len(one.rows) for one in found) == len(rows)
    assert len(found) < len(rows) / 2


def test_a_sentence_about_several_sizes_holds_at_no_single_one(run: Results):
    along = [
        one.text for one in findings.list_findings(run) if len(set(one.rows["size"])) > 1 and one.factor == "store"
    ]
    assert any("at every size from 1 MiB to 64 MiB" in text for text in along)
    assert not [text for text in along if re.search(r", at \d+ MiB: ", text)]


def test_whole_objects_and_sections_are_not_compared(run: Results):
    mixed = run.verdicts[(run.verdicts["metric"] == "total") & (run.verdicts["verdict"] == "not comparable")]
    assert len(mixed) > 0
    assert not any("comparable" in one.text for one in findings.list_findings(run))
    assert run.unequal_count > 0


@pytest.mark.parametrize("repeats", [1, 3])
def test_few_repeats_give_no_verdict_and_say_so(repeats: int, tmp_path: Path):
    run = load(build(tmp_path, cells(), repeats=repeats))
    found = leaders.find_leads(run)
    assert {lead.kind for lead in found} == {"few"}
    assert all("too few repeats" in one.text and not one.is_decided for one in findings.list_findings(run))
    [(text, _)] = leaders.write_headline(found, run)
    assert text.startswith("No configuration was shown to be fastest")


def test_arms_that_the_configuration_does_not_compare_are_judged_by_the_same_rule(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("disk", "s3", "azure"), size=("64MiB",)), compare=(("store", "azure"),)))
    assert {row.baseline for row in run.verdicts[run.verdicts["factor"] == "store"].itertuples()} == {"azure"}
    [lead] = leaders.find_leads(run)
    assert (lead.kind, lead.arms) == ("one", (("s3", "single-file", "shared"),))


@pytest.mark.rule(20)
def test_a_bare_client_that_the_processes_exceed_is_not_called_a_bound(tmp_path: Path):
    def low(record: dict) -> dict:
        rows = [row | {"latency_s": 9.0} if row["phase"] == "ceiling" else row for row in record["samples"]]
        return record | {"samples": rows}

    told = " ".join(limits(load(build(tmp_path, cells(store=("disk",)), change=low))))
    assert "In 4 cells the processes were more than 5 % faster than the bare client" in told
    assert "not a bound there" in told
    assert "one process" not in told


def test_records_of_before_say_that_their_bare_client_was_one_process(tmp_path: Path):
    def before(record: dict) -> dict:
        return record | {"ceiling": {key: record["ceiling"][key] for key in record["ceiling"] if key != "processes"}}

    run = load(build(tmp_path, rows=cells(store=("s3",)), repeats=1, change=before))
    assert "In 4 records of an earlier version the bare client was a single process with threads" in " ".join(
        limits(run)
    )


def test_a_ceiling_that_could_not_be_measured_is_said_with_the_reason(tmp_path: Path):
    def refused(record: dict) -> dict:
        rows = [row for row in record["samples"] if row["phase"] == "read"]
        return record | {"samples": rows, "ceiling": record["ceiling"] | {"problem": "0000.bin answers 403"}}

    told = "\n".join(limits(load(build(tmp_path, rows=cells(store=("s3",)), repeats=1, change=refused))))
    assert "The bare client could not be measured in 4 records: 0000.bin answers 403." in told


def test_a_run_with_one_store_and_pattern_has_nobody_to_lead(tmp_path: Path):
    run = load(build(tmp_path, cells(store=("s3",))))
    assert leaders.find_leads(run) == []
    text = write_words("blobs", tmp_path, tmp_path / "page.html").with_suffix(".md").read_text(encoding="utf-8")
    assert "Bandwidth by size" in text


def test_one_size_alone_is_not_called_up_to_or_from(run: Results):
    def stretch(*levels: str, of: tuple[str, ...] = SIZES) -> str:
        return sentences.write_stretch([*levels], [*of], run)

    assert stretch("1MiB") == "at 1 MiB"
    assert stretch("1MiB", "4MiB") == "up to 4 MiB"
    assert stretch("4MiB", "16MiB") == "from 4 MiB to 16 MiB"
    assert stretch("16MiB", "64MiB") == "from 16 MiB on"
    assert stretch(*SIZES) == "at every size from 1 MiB to 64 MiB"
    assert stretch("1MiB", "64MiB", of=("1MiB", "64MiB")) == "at 1 MiB and 64 MiB"


def test_stores_are_called_by_what_stands_in_their_place():
    stores = {"s3": {"kind": "s3"}, "a": {"kind": "azure-blob", "server": "embedded", "network": None}}
    named = Names(REPORT, {"stores": stores})
    assert [named.format_store(name) for name in ("s3", "a", "gone")] == ["S3", "Azurite on loopback", "gone"]
    stores["a"]["network"] = {"latency_ms": 20, "per_connection_mib_s": 50.0}
    assert named.format_store("a") == "Azurite (emulated, 20 ms, 50 MiB/s)"
    stores["tls"] = stores["a"] | {"tls": True}
    assert named.format_store("tls") == "Azurite over TLS (emulated, 20 ms, 50 MiB/s)"
    stores["b"] = stores["a"]
    assert named.format_store("a") == "Azurite (emulated, 20 ms, 50 MiB/s) (a)", "two that look alike are told apart"


# What is not there


@pytest.mark.parametrize("absent", ["samples", "cells", "verdicts", "matrix"])
def test_an_absent_table_leaves_a_sentence_and_the_rest(absent: str, tables: Path, tmp_path: Path):
    copy = shutil.copytree(tables, tmp_path / "tables", ignore=shutil.ignore_patterns("records"))
    (copy / f"{absent}.csv").unlink()
    run = load(copy)
    assert ABSENT[absent] in limits(run)
    assert curves.draw_curves(run, "size").panels
    assert sum(1 for _ in results.build_size_tables(run)) > 5


def test_a_run_of_which_every_cell_failed_is_reported(tmp_path: Path):
    reason = "no MPI process could be started"
    tables = build(tmp_path / "tables", change=lambda record: failed(record, reason))
    page = write_words("blobs", tables, tmp_path / "blobs.html")
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    assert re.search(rf"\*\*No results: \d+ cells failed or broke a rule of measuring: {reason}\.", text)
    assert reason in text


def test_facts_may_lack_everything(tables: Path, tmp_path: Path):
    (tmp_path / "facts.json").write_text("{}")
    run = results.load_results(tables, tmp_path / "facts.json")
    assert "**broadcast on s3**" in render_markdown_line(leaders.describe_lead(leaders.find_leads(run)[1], run)[1])
    assert "client" not in cell_tables.build_condition_table(run).frame


def test_no_table_at_all_is_one_line(tmp_path: Path):
    with pytest.raises(Problem, match=r"neither samples\.csv nor cells\.csv with rows; measure first"):
        results.load_results(tmp_path)
    (tmp_path / "samples.csv").write_text("cell,repeat\na,1\n")
    with pytest.raises(Problem, match=r"samples.csv lacks the column phase"):
        results.load_results(tmp_path)


# The page


@pytest.mark.thorough
def test_many_cells_are_reported(tmp_path: Path):
    rows = cells(
        pattern=("single-file", "multiple-files", "broadcast"),
        size=("1MiB", "2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB", "128MiB", "256MiB", "512MiB", "1GiB"),
    )
    run = load(build(tmp_path, rows, repeats=6, iterations=2))
    assert all(len(panel.x_ticks) <= curves.TICKS for panel in curves.draw_curves(run, "size").panels)
    assert delivered(rows[-1]) == 4 * 2**30
    assert len(leaders.find_leads(run)) <= 6
