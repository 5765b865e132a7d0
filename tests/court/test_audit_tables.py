"""Anybody's table of timings is audited by the same rules, once its columns are named in words."""

import shlex
from pathlib import Path

import pytest

from sbench.court import audit, derived, roles
from sbench.design import csv_file
from sbench.probe.program import Problem

TABLE = """File Size (MiB),procs,op,Latency (ms),BW (MB/s),n,fs
64,1,read,1000,67.1,5,nfs
64,2,read,300,223.7,5,nfs
64,4,read,290,200,5,nfs
128,1,read,2000,67.1,5,nfs
64,1,write,2000,33.6,5,nfs
64,2,write,1100,61.0,5,nfs
64,1,read,900,80,5,gpfs
64,2,read,600,111.8,5,gpfs
"""
NAMED = "'File Size (MiB)=size_mib' procs=workers op=direction 'Latency (ms)=time_ms' 'BW (MB/s)=rate_mb_s' n=averaged"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def audited(capsys: pytest.CaptureFixture, path: Path, named: str) -> str:
    assert audit.print_audit([str(path)], columns=shlex.split(named)) == 0
    return capsys.readouterr().out.replace("\n" + " " * 15, " ")


def test_columns_named_in_words_are_audited(table: Path, capsys: pytest.CaptureFixture):
    printed = audited(capsys, table, f"{NAMED} fs=arm")
    assert "8 cells with 1 repeat each (only the mean of 5 runs)" in printed
    assert (
        "broken         no superlinear speed-up (METHOD 8): read, 64, nfs: 2 workers are 3.33× as fast as 1, more than"
        " 2×; an earlier run may have filled a cache"
    ) in printed
    assert "lower, which is impossible for a mean of rates" in printed
    assert (
        "  File Size (MiB) 64: BW (MB/s) 200, but amount / time is 231.41 (-13.6 %), the largest of 2 deviations"
        in printed
    )
    # What is not known of a table is not listed.
    assert "missing" not in printed


def test_times_have_units(table: Path, capsys: pytest.CaptureFixture):
    seconds = audited(capsys, table, f"{NAMED.replace('time_ms', 'time_s')} fs=arm")
    assert "8 of 8 printed rates differ from amount / time" in seconds


def test_a_name_that_no_expression_can_hold_is_one_line():
    with pytest.raises(Problem, match=r"must not contain a backquote \(got 'time`'\)"):
        roles.parse_declaration(["a=arm", "time`=time_s"], ["a", "time`"], "t")


def test_sizes_are_of_all_or_of_each_worker():
    header = ["a", "size", "time", "procs"]
    named = ["a=arm", "time=time_s", "procs=workers"]
    whole, each = (roles.parse_declaration([*named, f"size={role}"], header, "t") for role in ("size_gib", "each_gib"))
    assert whole["amount"] == "1073741824 * `size` / 1048576"
    assert each["amount"] == "1073741824 * `size` * `procs` / 1048576"


@pytest.mark.parametrize(
    "named, line",
    [
        (
            "fs=arm op=thing",
            "--columns must be column=role (got 'op=thing'); roles are arm (a side of the comparison), within",
        ),
        ("fs", "--columns must be column=role (got 'fs')"),
        ("fs=arm host=within", "lacks the column 'host'; its columns are File Size (MiB), procs, op,"),
        ("fs=arm op=repeat n=repeat", "--columns: 'op' and 'n' both have the role repeat; keep a single column"),
        ("fs=arm", "--columns: no column is a time or a rate; add column=time_UNIT"),
        ("n=time_s", "--columns: no column names the arms; add column=arm"),
        (
            "fs=time_s op=arm",
            "column fs: must be a number above 0, N/A, or a number with a note in brackets (got 'nfs')",
        ),
        ("fs=arm n=rate_parsecs_s", "--columns must be column=role (got 'n=rate_parsecs_s')"),
    ],
)
def test_a_word_that_is_wrong_is_one_line(table: Path, named: str, line: str):
    with pytest.raises(Problem) as raised:
        audit.print_audit([str(table)], columns=shlex.split(named))
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "row, said",
    [
        ("1.50,a", "row 7 repeats another row"),
        ("x,f", "row 7, column seconds: must be a number above 0"),
    ],
)
def test_a_table_that_is_read_in_pieces_is_one_table(tmp_path, monkeypatch, row, said):
    for module in (csv_file, derived):
        monkeypatch.setattr(module, "_ROWS", 2)
    path, rows = tmp_path / "a.csv", ["1.50,a", "1.5,b", "20,c", "N/A,d", "3e2,e"]
    path.write_text("\n".join(["seconds,arm", *rows]), encoding="utf-8")
    kinds = {"seconds": csv_file.PRINTED, "arm": csv_file.TEXT}
    printed = csv_file.read_table(path, kinds, printed=True)
    assert [",".join(each) for each in printed.itertuples(index=False)] == rows
    values, halves = derived.parse_numbers(printed["seconds"])
    assert values.equals(csv_file.read_table(path, kinds)["seconds"])
    assert halves[[0, 1, 2, 4]].tolist() == [0.005, 0.05, 0.5, 50]
    path.write_text("\n".join(["seconds,arm", *rows, row]), encoding="utf-8")
    with pytest.raises(Problem, match=said):
        csv_file.read_table(path, kinds)


def test_a_table_with_one_column_that_names_its_cells_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "own.csv"
    path.write_text("size,seconds,rate\n1,0.5,2\n2,0.5,4\n4,0.5,9\n", encoding="utf-8")
    assert "rate" in audited(capsys, path, "size=size_mib seconds=time_s rate=rate_mib_s")
