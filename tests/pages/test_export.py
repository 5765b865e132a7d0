"""The long table of a run: what `sbench export` writes, and what reading it as the documentation says gives."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import parse
from zipfile import ZipFile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from conftest import ROOT, copy_project, program, sbench

from sbench.design import prices
from sbench.pages import exported as export_tables
from sbench.pages.markup import code
from sbench.pages.page import Table, write_csv
from tests.helpers import blobs_tables, browser, volumes_records
from tests.helpers.pages import Links
from tests.helpers.records import FEW, at, failed, synthetic_cells, write_synthetic_run

DOCUMENT = (ROOT / "docs/results.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
EMBEDDED = {"kind": "s3", "server": "embedded", "network": {"latency_ms": 20}}
LIBRARIES = ("hdf5-1.14.6", "hdf5-2.0.0")


def changed(record: dict) -> dict:
    """Return a record as it is, but for one that failed and one that was not valid."""
    if at(record, 2, library="hdf5-2.0.0", page_buffer="0") and not record["cell"]["control"]:
        return failed(record, "the server died")
    if at(record, 2, library="hdf5-2.0.0", page_buffer="64MiB"):
        return record | {"valid": False, "reasons": ["1 of 2 workers was idle"]}
    circumstances = {
        "host": {"node": "bench", "cpu": "EPYC", "affinity": [0, 1], "kernel": "6\x1b[2J\u202e"},
        "provenance": {"git": "abc", "code_sha256": "c0de", "build": {"seconds": 1}},
        "settings": {
            "cell": record["cell"],
            "store": EMBEDDED,
        },
    }
    return record | circumstances


@pytest.fixture(scope="module")
def exported(once, tmp_path_factory) -> Path:
    """Return the folder of a project in which a run of three studies, one of them imported, was exported."""

    def make(folder: Path) -> None:
        copy_project(folder)
        run = folder / "results/synthetic"
        cells = synthetic_cells(1, page_buffer=("0", "64MiB", "unset"), **FEW)
        write_synthetic_run(run / "shots", cells, repeats=2, samples=3, change=changed)
        broken = run / "shots/records" / cells[0]["cell"] / "repeat=1.json"
        broken.write_text("{", encoding="utf-8")
        blobs_tables.build(run / "blobs", blobs_tables.cells(size=("1MiB",)), repeats=1, iterations=4)
        battery = volumes_records.battery("gp3", [1.0, 2.0])
        volumes_records.write_run(run / "volumes", [], [battery])
        done = sbench("export", "synthetic", cwd=folder)
        assert done.returncode == 0, done.stderr
        tables = len(list(run.glob("export/tables/blobs/*.tex")))
        assert tables
        assert f"results/synthetic/export/tables: {tables} of blobs\n" in done.stdout, "of what was gathered"
        assert "observations of blobs, shots, volumes; " in done.stdout
        (folder / "results/laptop/export").mkdir(parents=True)
        shutil.copy(run / "export/synthetic.parquet", folder / "results/laptop/export/laptop.parquet")

    return once("exported", make)


@pytest.fixture(scope="module")
def table(exported: Path) -> pd.DataFrame:
    return pd.read_parquet(exported / "results/synthetic/export/synthetic.parquet")


def chosen(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def test_an_observation_is_a_row_with_its_unit_its_levels_as_numbers_and_the_circumstances(table):
    rows = chosen(table, study="shots", part="seconds", metric="total", library="hdf5-1.14.6", page_buffer="64MiB")
    assert list(rows["repeat"]) == [1, 2]
    (row,) = chosen(rows, repeat=1).to_dict("records")
    assert row["value"] > 0
    assert (row["run"], row["unit"], row["workers"], row["page_buffer_bytes"]) == ("synthetic", "s", 1, 64 * 2**20)
    assert (row["effective_hdf5"], row["effective_page_buffer_bytes"]) == ("1.14.6", 64 * 2**20)
    assert (row["host_cpu"], row["provenance_git"], row["settings_store_network_latency_ms"]) == ("EPYC", "abc", 20)
    sizes = table[table["study"] == "shots"].groupby("page_buffer", observed=True)["page_buffer_bytes"].first()
    assert (sizes["0"], sizes["64MiB"], pd.isna(sizes["unset"])) == (0, 64 * 2**20, True)


@pytest.mark.parametrize(
    "study, part, metric, unit",
    [
        ("shots", "samples", "mean-obj-time", "s"),
        ("shots", "samples", "bytes", "bytes"),
        ("shots", "samples", "num-dsets", "1"),
        ("shots", "requests", "GET.bytes_delivered", "bytes"),
        ("shots", "requests", "GET.count", "1"),
        ("shots", "cache", "resident_before", "1"),
        ("shots", "cost", "requests_usd", "USD"),
        ("blobs", "memory", "growth_bytes", "bytes"),
        ("volumes", "samples", "sync_lat_p99_ms", "ms"),
        ("volumes", "samples", "runtime_s", "s"),
    ],
)
def test_a_metric_has_its_name_of_the_record_and_its_unit(table, study, part, metric, unit):
    rows = chosen(table, study=study, part=part, metric=metric)
    assert len(rows)
    assert rows["value"].notna().all()
    assert set(rows["unit"]) == {unit}


def test_a_record_has_the_cost_of_its_requests_at_list_prices(table):
    rows = chosen(table, study="shots", repeat=1, library="hdf5-1.14.6", page_buffer="64MiB")
    (count,) = chosen(rows, part="requests", metric="GET.count")["value"]
    each = prices.get_emulated_rates().usd["gets"]
    assert chosen(rows, part="cost", metric="requests_usd")["value"].tolist() == pytest.approx([count * each])
    assert chosen(rows, part="cost", metric="transfer_usd")["value"].tolist() == [0]
    assert "machine_usd" not in set(table["metric"])


def test_what_only_tells_a_sample_from_others_is_no_observation_of_it(table):
    rows = chosen(table, study="shots", part="samples", metric="open-time", repeat=1, library="hdf5-2.0.0")
    assert list(chosen(rows, page_buffer="64MiB")["sample"]) == [1, 2, 3]
    assert set(rows["obj-id"]) == {"1160825001", "1160825002", "1160825003"}
    assert not {"worker#", "worker-pid", "pb-size", "iteration", "phase", "number"} & set(table["metric"])


def test_a_ceiling_is_told_from_what_was_read(table):
    rows = chosen(table, study="blobs", part="samples", metric="latency_s", store="s3")
    phases = rows.groupby("phase", observed=True)["value"].agg(["count", "max"])
    assert phases["count"].to_dict() == {"read": 4, "ceiling": 2}
    assert phases.loc["ceiling", "max"] < phases.loc["read", "max"]


def test_records_that_do_not_count_are_there_with_their_reasons(table):
    shots = table[table["study"] == "shots"]
    bad = shots[~shots["valid"]].groupby("reasons", observed=True)
    reasons = {reason: (set(rows["status"]), rows["value"].notna().any()) for reason, rows in bad}
    assert reasons.pop("the server died") == ({"failed"}, False)
    assert reasons.pop("1 of 2 workers was idle") == ({"done"}, True)
    ((broken, told),) = reasons.items()
    assert "repeat=1.json is not JSON" in broken
    assert told == ({"failed"}, False)
    assert shots[shots["valid"]]["reasons"].isna().all()


def test_csv_has_the_same_rows(exported, table):
    text = pd.read_csv(exported / "results/synthetic/export/synthetic.csv", low_memory=False)
    assert list(text.columns) == list(table.columns)
    assert len(text) == len(table)
    pd.testing.assert_series_equal(text["value"], table["value"])
    assert r"6\x1b[2J\u202e" in set(text["host_kernel"])
    plain = (exported / "results/synthetic/export/synthetic.csv").read_text(encoding="utf-8")
    assert plain.replace("\n", "").isprintable()


def test_the_documentation_reads_it_as_it_is_printed(exported, monkeypatch, capsys, table):
    monkeypatch.chdir(exported)
    names: dict = {}
    for block in CODE:
        exec(block, names)
    printed = capsys.readouterr().out
    assert "hdf5-2.0.0" in printed
    assert re.search(r"phase +ceiling +read", printed)
    total = names["read"](names["run"], study="shots", part="seconds", metric="total", library="hdf5-2.0.0")
    assert len(total) == 4, "3 page buffers in 2 repeats without what failed and what is not valid"
    assert total["valid"].all()
    assert "reasons" not in total


def test_a_run_without_records_is_one_line(tmp_path):
    for name in ("config", "envs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = sbench("export", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("problem: results/nothing lacks records; measure first")
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture(scope="module")
def start(once, exported) -> Path:
    """Return the page that the notebook to start with makes of the exported run."""
    return once("start", lambda folder: make_start(exported, folder, exported)) / "start.html"


def make_start(exported: Path, out: Path, project: Path) -> None:
    given = ["--notebook", "notebooks/start.ipynb", "--table", exported / "results/laptop/export/laptop.parquet"]
    done = program("report", *given, "--out", out / "start.html", cwd=project)
    assert done.returncode == 0, done.stderr


def pictures(page: Path) -> list[str]:
    """Return the pictures of a page's Markdown, each of which is an SVG file beside it."""
    names = re.findall(r"!\[[\w -]+\]\((.+\.svg)\)", page.with_suffix(".md").read_text(encoding="utf-8"))
    assert all(parse(page.parent / name).getroot().tag.endswith("svg") for name in names)
    return names


def test_the_notebook_to_start_with_reads_as_the_documentation_does():
    cells = json.loads((ROOT / "notebooks/start.ipynb").read_text(encoding="utf-8"))["cells"]
    assert CODE[0].strip() in ["".join(cell["source"]).strip() for cell in cells]
    assert max(len(cell["source"]) for cell in cells) <= 8


def test_the_notebook_to_start_with_finds_the_clone_from_where_jupyter_opens_it():
    cells = json.loads((ROOT / "notebooks/start.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells[1:4]).replace("%%capture", "")
    done = subprocess.run([sys.executable, "-"], cwd=ROOT / "notebooks", input=code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_notebook_to_start_with_is_markdown_with_its_code_and_pictures(start):
    text = start.with_suffix(".md").read_text(encoding="utf-8")
    assert "def read(path, leave_out=" in text
    assert pictures(start) == [f"start_files/plot-{number}.svg" for number in (1, 2, 3)]


@pytest.mark.late
def test_the_notebook_to_start_with_draws_the_published_study_where_its_tables_are(exported, audited, clone: Path):
    (clone / "results/published/shots").mkdir(parents=True)
    (clone / "results/published/shots/tables").symlink_to(audited("shots"))
    make_start(exported, clone, clone)
    assert len(pictures(clone / "start.html")) == 6


@pytest.mark.skipif(not browser.browser(), reason="there is no Chromium to look at the page with")
def test_the_notebook_to_start_with_is_a_page_that_asks_the_network_for_nothing(start):
    links = Links(start.read_text(encoding="utf-8"))
    assert links.elsewhere == []
    assert links.policy.startswith("default-src 'none'; script-src 'sha256-")
    code = "getComputedStyle(document.querySelector('pre.code')).display"
    frames = "[...Bokeh.index.roots].filter((view) => view.frame?.bbox.height > 100).length"
    seen = browser.visit(start, {"code": code, "frames": frames})
    assert seen.seen == {"panels": 3, "drawn": 3, "tall": True, "wide": seen.seen["wide"]}
    assert seen.seen["wide"] > 800
    assert seen.errors == []
    assert seen.answers == {"code": "block", "frames": 3}
    assert [url for url in seen.requests if not url.startswith("data:")] == [start.resolve().as_uri()]


# Tables for papers and spreadsheets


ODD = pd.DataFrame(
    {
        "50 % of_a & b / MiB/s": [1.5, np.nan, 1234.25],
        "what": ["=1+1", "[INVALID] C:\\x ~ {1} ^2 $#", "±5 × 2"],
        "95 % CI": ["1.2 [1.1, 1.3]", "2.0 [1.9, 2.1]", ""],
    }
)
TEXTS = {"formats": {ODD.columns[0]: "{:.1f}".format}, "over": {"what": [False, True, False]}, "meaning": "odd"}
TABLE = Table("odd name", f"Of {code('a_b')} & others.", ODD, **TEXTS)


def test_latex_is_escaped_aligned_and_named():
    lines = export_tables.render_latex(TABLE, "tab:odd").splitlines()
    assert lines[2] == "\\caption{Of a\\_b \\& others. Marked $\\blacktriangle$: odd.}\\label{tab:odd}"
    assert lines[3:6] == [r"\begin{tabular}{rlr}", r"\toprule", r"50 \% of\_a \& b / MiB/s & what & 95 \% CI \\"]
    assert lines[7] == r"1.5 & =1+1 & 1.2 {[}1.1, 1.3{]} \\"
    odd = r" & {[}INVALID{]} C:\textbackslash{}x \textasciitilde{} \{1\} \textasciicircum{}2 \$\# $\blacktriangle$"
    assert lines[8] == odd + r" & 2.0 {[}1.9, 2.1{]} \\"
    assert lines[9] == r"1234.2 & $\pm$5 $\times$ 2 &  \\"
    assert lines[10:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    long = export_tables.render_latex(replace(TABLE, frame=pd.concat([ODD] * 20), over={}), "tab:odd")
    assert long.startswith("\\begin{longtable}{rlr}\n")
    assert r"\endhead" in long


def test_a_workbook_has_numbers_no_formula_and_the_same_bytes(tmp_path: Path):
    for name in ("one.xlsx", "two.xlsx"):
        export_tables.write_workbook([TABLE, replace(TABLE, name="odd-name")], tmp_path / name)
    assert (tmp_path / "one.xlsx").read_bytes() == (tmp_path / "two.xlsx").read_bytes()
    with ZipFile(tmp_path / "one.xlsx") as archive:
        assert {part.date_time[0] for part in archive.infolist()} == {1980}
        assert set(re.findall(rb"(\d{4})-\d\d-\d\dT", archive.read("docProps/core.xml"))) == {b"1980"}
    book = openpyxl.load_workbook(tmp_path / "one.xlsx")
    contents, first, second = book.worksheets
    assert [row[1].value for row in contents.rows] == ["Of a_b & others. Marked ▲: odd."] * 2
    assert (contents["A1"].value, second.title) == (first.title, "2 odd-name")
    assert [cell.value for cell in first["A"]] == [ODD.columns[0], 1.5, None, 1234.25]
    assert (first["B2"].value, first["B2"].data_type) == ("=1+1", "s")


def test_a_text_is_no_formula_in_a_csv_and_numbers_stay_numbers(tmp_path: Path):
    texts = ["=cmd|' /C calc'!A0", "+1+1", "-1+2|x", "@SUM(A1)", "\t=1", "a=b", "-5", "+7.5 %", "-1e-3", "-", "", None]
    numbers = {"number": [-1.5, *range(11)], "count": pd.array([-1, *range(10), None], dtype="Int64")}
    table = pd.DataFrame(
        {"=text": texts, "kind": pd.Categorical(texts), "mixed": [*texts[:4], 7, *texts[5:]], **numbers}
    )
    write_csv(tmp_path / "table.csv", table)
    read = pd.read_csv(tmp_path / "table.csv", dtype=str, keep_default_na=False)
    due = [f"'{text}" for text in texts[:5]] + [*texts[5:11], ""]
    assert list(read["'=text"]) == list(read["kind"]) == due
    assert list(read["mixed"]) == [*due[:4], "7", *due[5:]]
    assert list(read["number"]) == ["-1.5", *(f"{number}.0" for number in range(11))]
    assert list(read["count"]) == ["-1", *map(str, range(10)), ""]


@pytest.mark.late
@pytest.mark.parametrize("study", ["arrays", "blobs", "particles", "shots", "volumes"])
def test_the_tables_of_a_page_are_all_exported_with_their_numbers(study: str, synthetic, report_of, tmp_path: Path):
    page = report_of(study)
    count = export_tables.write_tables(study, synthetic(study), tmp_path)
    files = page.parent / f"{study}_files"
    figures = {path.stem for path in files.glob("*.svg")}
    numbers = {path.stem: path.read_bytes() for path in files.glob("*.csv") if path.stem not in figures}
    assert {path.stem: path.read_bytes() for path in tmp_path.glob(f"{study}/*.csv")} == numbers
    assert {path.stem for path in tmp_path.glob(f"{study}/*.tex")} == set(numbers)
    assert len(openpyxl.load_workbook(tmp_path / f"{study}.xlsx").worksheets) == count + 1 == len(numbers) + 1
    for path in tmp_path.glob(f"{study}/*.tex"):
        text = path.read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.endswith(r" \\") and "caption" not in line]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
        assert text.isascii()
        assert f"\\label{{tab:{study}-{path.stem}}}" in text
