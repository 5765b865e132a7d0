"""Results of other tools: files that the tools wrote, verdicts on them, spoilt files, and outputs for CI."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from sbench.cli.__main__ import main
from sbench.probe.program import Problem, run_main
from sbench.runs import tool_files
from sbench.runs.rules import FAILED

DATA = ROOT / "tests/runs/data"
EXAMPLE = next((ROOT / "results/example").glob("*.tar.xz"), None)
TOOLS = ("hyperfine", "pytest_benchmark", "asv", "pyperf", "google_benchmark", "fio")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Restore the working directory and the streams, which the command line changes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    return tmp_path


def judge(*words: object, capsys: pytest.CaptureFixture) -> tuple[int, dict]:
    """Return the exit status of a comparison, and the object that it prints."""
    status = main(["compare", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def write_csv(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_hyperfine(path: Path, **commands: np.ndarray) -> Path:
    results = [{"command": name, "times": list(times)} for name, times in commands.items()]
    path.write_text(json.dumps({"results": results}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "tool, noun, count, verdicts",
    [
        ("hyperfine", "run", 12, {"sum": "slower", "start": "no evidence"}),
        ("pytest_benchmark", "round", 40, {"test_bench.py::test_sum": "slower", "test_bench.py::test_slow": "slower"}),
        ("asv", "sample", 12, {"b.Sum.time_sum(1, 'x')": "slower", "b.time_sort": "no evidence"}),
        ("pyperf", "process", 8, {"sum": "slower", "sort": "no evidence"}),
        ("google_benchmark", "repetition", 10, {"sum_range": "slower", "sort": "same"}),
        ("fio", "job", 5, {"read: read rate": "slower", "read: read latency": "no evidence"}),
    ],
)
def test_files_of_each_tool_are_judged(tool, noun, count, verdicts, capsys):
    status, made = judge(DATA / f"{tool}_a.json", DATA / f"{tool}_b.json", capsys=capsys)
    rows = {row["benchmark"]: row for row in made["verdicts"]}
    assert (status, made["tool"], made["unit"]) == (0, tool.replace("_", "-"), noun)
    assert {name: rows[name]["verdict"] for name in verdicts} == verdicts
    assert rows[next(iter(verdicts))]["samples_base"] == count
    assert rows[next(iter(verdicts))]["ratio_low"] > 1
    assert made["notes"][0].endswith("or machine.")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_content_determines_the_format(tool, folder, capsys):
    for side in "ab":
        (folder / f"{side}.txt").write_bytes((DATA / f"{tool}_{side}.json").read_bytes())
    assert judge(folder / "a.txt", folder / "b.txt", capsys=capsys)[1]["tool"] == tool.replace("_", "-")


def test_warm_ups_calibration_aggregates_and_other_metrics_are_no_samples():
    google, pyperf, asv = (
        tool_files.read_tool_file(str(DATA / f"{tool}_a.json")) for tool in ("google_benchmark", "pyperf", "asv")
    )
    raw = json.loads((DATA / "pyperf_a.json").read_text())["benchmarks"][0]["runs"]
    assert sum("warmups" in run for run in raw) == 9
    assert pyperf.series[0].samples == tuple(np.mean(run["values"]) for run in raw if "values" in run)
    assert [(of.benchmark, len(of.samples)) for of in google.series] == [("sum_range", 10), ("sort", 10)]
    assert [of.benchmark for of in asv.series] == ["b.Sum.time_sum(1, 'x')", "b.Sum.time_sum(2, 'x')", "b.time_sort"]


def test_runs_of_hyperfine_that_failed_are_left_out(folder):
    of = {"command": "a", "times": [1.0, 0.1, 1.1], "exit_codes": [0, 1, 0]}
    (folder / "a.json").write_text(json.dumps({"results": [of]}))
    assert tool_files.read_tool_file("a.json").series[0].samples == (1.0, 1.1)


def test_processes_of_one_run_of_fio_are_one_job(folder, capsys):
    """Four processes of one run saw the same hour of the same disk; four runs one after the other did not."""
    content = json.loads((DATA / "fio_a.json").read_text(encoding="utf-8"))
    for side, scale in (("a", 1), ("b", 3)):
        for together in (True, False):
            jobs = [json.loads(json.dumps(content["jobs"][0])) for _ in range(4)]
            for number, job in enumerate(jobs):
                job["groupid"] = 0 if together else number
                job["read"] |= {"bw_bytes": scale * (10**8 + 10**6 * number)}
            name = f"{side}_{'processes' if together else 'jobs'}.json"
            (folder / name).write_text(json.dumps(content | {"jobs": jobs}), encoding="utf-8")
    assert tool_files.read_tool_file("a_processes.json").series[0].samples == (406 * 10**6,)
    with pytest.raises(Problem, match="has a single job of each benchmark; a verdict needs 4 on each side"):
        main(["compare", *(str(folder / f"{side}_processes.json") for side in "ab")])
    _, made = judge(folder / "a_jobs.json", folder / "b_jobs.json", capsys=capsys)
    assert made["verdicts"][0]["verdict"] == "faster"


def test_sides_that_lost_samples_are_not_the_same(folder, capsys):
    times = np.linspace(1, 1.001, 10)
    a, b, c = paths = [folder / f"{name}.json" for name in "abc"]
    for path, codes in zip(paths, ([0] * 10, [0] * 10, [0] * 9 + [1]), strict=True):
        of = {"command": "x", "times": [*times], "exit_codes": codes}
        path.write_text(json.dumps({"results": [of], "name": path.name}), encoding="utf-8")
    judged = lambda *words: judge(*words, capsys=capsys)[1]["verdicts"][0]  # noqa: E731
    assert judged(a, b)["verdict"] == "same"
    assert judged(a, c)["verdict"] == "no evidence"
    assert main(["compare", str(a), str(c)]) == 0
    assert "10 and 9 runs, 1 lost, which may be the slow ones" in capsys.readouterr().out
    both = [
        {"command": name, "times": [*times], "exit_codes": [0] * (10 - n) + [1] * n} for name, n in (("a", 0), ("b", 4))
    ]
    (folder / "both.json").write_text(json.dumps({"results": both}), encoding="utf-8")
    row = judged(folder / "both.json")
    assert (row["verdict"], row["lost"]) == ("no evidence", 4)
    rows = [f"{arm},{block},{1 + block / 10**4}" for block in range(10) for arm in ("old", "new")]
    assert judged(write_csv(folder / "a.csv", "arm,block,value", *rows))["verdict"] == "same"
    row = judged(write_csv(folder / "b.csv", "arm,block,value", *rows[:-1]))
    assert (row["verdict"], row["lost"]) == ("no evidence", 1)


def test_files_of_which_each_side_has_mostly_its_own_machine_are_not_judged(folder, capsys):
    text = (DATA / "google_benchmark_a.json").read_text(encoding="utf-8")
    for machines, verdicts in (("MNNMMNNMMNMN", {"not comparable"}), ("MMNNMMNNMMNN", {"slower"})):
        paths = {"A": [], "B": []}
        for number, (side, machine) in enumerate(zip("ABBAABBAABBA", machines, strict=True)):
            content = json.loads(text.replace('"vm"', f'"{machine}"'))
            for of in content["benchmarks"]:
                of["real_time"] *= (1 if side == "A" else 1.5) * (1 + number / 1000)
            paths[side].append(folder / f"{machines}-{number}.json")
            paths[side][-1].write_text(json.dumps(content), encoding="utf-8")
        _, made = judge(*paths["A"], "--with", *paths["B"], capsys=capsys)
        assert {row["verdict"] for row in made["verdicts"]} == verdicts
        assert any("a difference may be between the machines" in note for note in made["notes"]) == (
            verdicts == {"not comparable"}
        )


def test_both_commands_of_a_hyperfine_file_are_sides(capsys):
    _, made = judge(DATA / "hyperfine_two.json", capsys=capsys)
    assert made["sides"] == ["/usr/bin/python3 task.py 300000", "/usr/bin/python3 task.py 600000"]
    assert made["verdicts"][0]["verdict"] == "slower"


def test_commands_that_differ_between_files_are_sides_of_a_benchmark(folder, capsys):
    times = np.linspace(1, 1.02, 8)
    paths = write_hyperfine(folder / "a.json", old=times), write_hyperfine(folder / "b.json", new=2 * times)
    _, made = judge(*paths, capsys=capsys)
    assert [(row["benchmark"], row["verdict"]) for row in made["verdicts"]] == [("old → new", "slower")]


@pytest.mark.parametrize("column, verdict, unit", [("block", "slower", "block"), ("number", "no evidence", "row")])
def test_blocks_are_judged_in_pairs_and_rows_without_blocks_are_not(column, verdict, unit, folder, capsys):
    # Each block takes twice as long as the block before; the new arm takes 10 to 11 % longer in each.
    rows = [f"{arm},{n},{2**n * (1 if arm == 'old' else 1.1 + n / 1000)}" for n in range(8) for arm in ("old", "new")]
    status, made = judge(write_csv(folder / "a.csv", f"arm,{column},value (ms)", *rows), capsys=capsys)
    (row,) = made["verdicts"]
    assert (status, row["verdict"], made["unit"], row["unit"]) == (0, verdict, unit, "s")
    assert row["samples_base"] == 8
    assert (row["missing"] > 0) == (verdict == "no evidence")


def test_blocks_of_a_real_file_are_pairs(capsys):
    _, made = judge(DATA / "blocks.csv", capsys=capsys)
    assert (made["unit"], made["sides"], made["verdicts"][0]["samples_base"]) == ("block", ["old", "new"], 8)


def test_two_csv_files_and_their_benchmarks_are_compared(folder, capsys):
    for name, scale in (("a", 1), ("b", 1.2)):
        rows = [f"{kind},{scale * (1 + n / 100)}" for kind in ("x", "y") for n in range(6)]
        write_csv(folder / f"{name}.csv", "benchmark,value", *rows)
    _, made = judge(folder / "a.csv", folder / "b.csv", capsys=capsys)
    assert [(row["benchmark"], row["verdict"]) for row in made["verdicts"]] == [("x", "slower"), ("y", "slower")]


@pytest.mark.parametrize("tool", ["pytest_benchmark", "google_benchmark", "pyperf", "asv"])
def test_sides_of_different_machines_are_reported(tool, folder, capsys):
    text = (DATA / f"{tool}_b.json").read_text(encoding="utf-8")
    name = '"toy"' if tool == "asv" else '"vm"'
    assert name in text
    (folder / "b.json").write_text(text.replace(name, '"other"'), encoding="utf-8")
    alike = judge(DATA / f"{tool}_a.json", DATA / f"{tool}_b.json", capsys=capsys)[1]["notes"]
    apart = judge(DATA / f"{tool}_a.json", folder / "b.json", capsys=capsys)[1]["notes"]
    line = f"{tool}_a.json is of machine {name[1:-1]}, b.json of other: a difference may be between the machines."
    assert [note for note in apart if note not in alike] == [line]


def test_a_higher_rate_is_faster(folder, capsys):
    rows = [f"{arm},{scale + n / 100}" for arm, scale in (("old", 10), ("new", 20)) for n in range(6)]
    _, made = judge(write_csv(folder / "a.csv", "arm,value [MiB/s]", *rows), capsys=capsys)
    (row,) = made["verdicts"]
    assert (row["verdict"], row["unit"], round(row["ratio"], 2)) == ("faster", "MiB/s", 0.5)
    assert row["other"] > row["base"]


def test_several_files_of_a_side_are_sessions(folder, capsys):
    random = np.random.default_rng(1)
    paths = []
    for session in range(10):
        # Runs of a session are alike, and sessions differ by more than the two sides.
        times = (1 + 0.3 * (session // 2)) * random.normal(1, 0.001, 20)
        paths.append(write_hyperfine(folder / f"{session}.json", a=times))
    _, pooled = judge(*paths[:2], capsys=capsys)
    _, made = judge(*paths[::2], "--with", *paths[1::2], capsys=capsys)
    assert (made["unit"], made["verdicts"][0]["samples_base"]) == ("file", 5)
    assert made["verdicts"][0]["verdict"] == "no evidence"
    assert "in turn" in made["notes"][0]
    assert pooled["unit"] == "run"


@pytest.mark.parametrize(
    "rule, status", [("slower > 10 %", FAILED), ("slower > 50 %", 0), ("faster", 0), ("slower", FAILED)]
)
def test_a_rule_determines_the_exit_status(rule, status, folder, capsys):
    times = np.linspace(1, 1.02, 8)
    paths = write_hyperfine(folder / "a.json", a=times), write_hyperfine(folder / "b.json", a=1.3 * times)
    assert judge(*paths, "--fail-on", rule, capsys=capsys)[0] == status
    assert judge(*paths[::-1], "--fail-on", rule, capsys=capsys)[0] == (FAILED if rule == "faster" else 0)


def test_an_undecided_rule_is_listed_and_does_not_fail(folder, capsys):
    paths = [
        write_hyperfine(folder / f"{name}.json", a=np.random.default_rng(n).normal(10, 2, 6))
        for n, name in enumerate("ab")
    ]
    status, made = judge(*paths, "--fail-on", "slower > 10 %", capsys=capsys)
    assert (status, made["open"]) == (0, ["slower > 10 %"])


def test_the_text_has_a_line_for_each_benchmark_and_the_missing_samples(folder, capsys):
    paths = DATA / "pyperf_a.json", DATA / "pyperf_b.json"
    assert main(["compare", *map(str, paths)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pyperf_b.json compared with pyperf_a.json (pyperf), 2 benchmarks: 1 slower, 1 no evidence"
    assert lines[1].startswith("sum: slower, 207 µs → 259 µs, took 25 % longer [21, 28], p < 0.001, 8 processes each")
    assert "processes of each side would detect 10 % (" in lines[2]
    assert (
        lines[3] == "All processes of a side are of one session: the verdicts do not cover another session or machine."
    )
    assert len(lines) == 4


def test_three_samples_are_too_few(folder, capsys):
    times = np.array([1.0, 1.1, 1.2])
    paths = [write_hyperfine(folder / f"{scale}.json", a=scale * times) for scale in (1, 2)]
    assert main(["compare", *map(str, paths)]) == 0
    out = capsys.readouterr().out
    assert "a: too few repeats, 1.10 s → 2.20 s, 3 runs each; " in out
    assert "runs of each side would detect 10 % (" in out


def test_fewer_missing_samples_detect_a_larger_difference(capsys):
    paths = DATA / "hyperfine_a.json", DATA / "hyperfine_b.json"
    needed = [judge(*paths, "--detect", percent, capsys=capsys)[1]["verdicts"][1]["needed"] for percent in (5, 10, 50)]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > 2 * needed[1] > 4 * needed[2]


def test_many_benchmarks_are_listed_only_if_they_differ(folder, capsys):
    times = np.linspace(1, 1.02, 10)
    names = [f"b{n}" for n in range(40)]
    before = write_hyperfine(folder / "a.json", **dict.fromkeys(names, times), gone=times)
    after = write_hyperfine(folder / "b.json", **{name: times * (2 if name == "b7" else 1) for name in names})
    assert main(["compare", str(before), str(after)]) == 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()[1:]] == [
        "b7",
        "All runs of a side are of one session",
        "Only benchmarks that differ are listed; --json and --summary list all 40.",
        "Only on one side",
    ]
    assert "40 benchmarks: 1 slower, 39 same" in out
    assert "gone (a.json)" in out


def test_a_summary_and_metrics_are_written(folder, capsys):
    summary, metrics = folder / "summary.md", folder / "metrics.json"
    summary.write_text("before\n\n")
    words = [DATA / "fio_a.json", DATA / "fio_b.json", "--summary", summary, "--metrics", metrics]
    _, made = judge(*words, "--fail-on", "slower", capsys=capsys)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n\n## Benchmarks\n")
    assert "| read: read rate | **slower** | 500 MiB/s | 44.2 MiB/s |" in text
    assert "Fails: slower in 1 of 2 benchmarks." in text
    of = {row["name"]: row for row in json.loads(metrics.read_text(encoding="utf-8"))}
    rate = next(row for row in made["verdicts"] if row["benchmark"] == "read: read rate")
    assert of["read: read rate"]["unit"] == "s/B"
    assert of["read: read rate"]["value"] == pytest.approx(1 / rate["other"])
    assert of["read: read latency"]["unit"] == "s"
    assert {type(row["range"]) for row in of.values()} == {str}


def test_names_of_a_file_cannot_control_the_terminal_or_the_summary(folder, capsys):
    name = "a\x1b[31m|b\n# c <b>"
    paths = [
        write_hyperfine(folder / f"{side}.json", **{name: np.linspace(n, n + 0.01, 6)})
        for n, side in ((1, "x"), (2, "y"))
    ]
    assert main(["compare", *map(str, paths), "--summary", str(folder / "s.md")]) == 0
    out, text = capsys.readouterr().out, (folder / "s.md").read_text(encoding="utf-8")
    assert "\x1b" not in out + text
    (line,) = [line for line in text.splitlines() if "slower**" in line]
    assert line.count("|") - line.count(r"\|") - line.count("&#124;") == 8
    assert "<b>" not in line


def set_sample(tool: str, content: dict, value: object) -> None:
    """Replace the first sample in the content of a tool's file."""
    match tool:
        case "hyperfine":
            content["results"][0]["times"][0] = value
        case "pytest_benchmark":
            content["benchmarks"][0]["stats"]["data"][0] = value
        case "asv":
            content["results"]["b.time_sort"][11][0][0] = value
        case "pyperf":
            content["benchmarks"][0]["runs"][1]["values"][0] = value
        case "google_benchmark":
            content["benchmarks"][0]["real_time"] = value
        case "fio":
            content["jobs"][0]["read"]["bw_bytes"] = value


def keep_one_sample(tool: str, content: dict) -> None:
    match tool:
        case "hyperfine":
            for of in content["results"]:
                del of["times"][1:], of["exit_codes"][1:]
        case "pytest_benchmark":
            for of in content["benchmarks"]:
                del of["stats"]["data"][1:]
        case "asv":
            for row in content["results"].values():
                del row[11:]
        case "pyperf":
            for of in content["benchmarks"]:
                del of["runs"][2:]
        case "google_benchmark":
            content["benchmarks"] = [content["benchmarks"][0]]
        case "fio":
            del content["jobs"][1:]


def remove_samples(tool: str, content: dict) -> None:
    """Remove the key with the samples."""
    match tool:
        case "hyperfine":
            del content["results"][0]["times"]
        case "pytest_benchmark":
            for of in content["benchmarks"]:
                del of["stats"]["data"]
        case "asv":
            content["result_columns"] = []
        case "pyperf":
            del content["benchmarks"][0]["runs"]
        case "google_benchmark":
            del content["benchmarks"][0]["real_time"]
        case "fio":
            del content["jobs"][0]["read"]["bw_bytes"]


VALUES = {
    **{"NaN": float("nan"), "infinite": float("inf"), "negative": -1.5, "zero": 0, "text": "fast", "null": None},
    **{"list": [1.0], "object": {}, "huge integer": 10**400},
}


def spoil_file(tool: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of spoilt files of a tool."""
    raw = (DATA / f"{tool}_a.json").read_bytes()
    for name, value in VALUES.items():
        content = json.loads(raw)
        set_sample(tool, content, value)
        yield name, json.dumps(content).encode()
    for change in (keep_one_sample, remove_samples):
        content = json.loads(raw)
        change(tool, content)
        yield change.__name__, json.dumps(content).encode()
    yield from (
        *((f"first {percent} %", raw[: len(raw) * percent // 100]) for percent in (10, 50, 99)),
        *(
            ("empty", b""),
            ("white space", b" \n"),
            ("binary", b"\x89PNG\r\n\x00\xff"),
            ("bytes in it", raw[:50] + b"\xff" + raw[50:]),
        ),
        *(
            ("in a list", b"[" + raw + b"]"),
            ("other object", b'{"a": 1}'),
            ("nested", b'{"results": ' + b"[" * 100_000),
        ),
        ("same content", (DATA / f"{tool}_b.json").read_bytes()),
        ("other tool", (DATA / f"{'fio' if tool == 'asv' else 'asv'}_a.json").read_bytes()),
    )


CSV_ROWS = [f"{arm},{n},{1 + n / 10}" for n in range(6) for arm in ("a", "b")]
SPOILT_CSV = {
    "no header": "\n".join(CSV_ROWS),
    "no rows": "arm,block,value\n",
    "one arm": "arm,block,value\n" + "\n".join(CSV_ROWS[::2]),
    "an empty field": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\n,3,1.0\n",
    "a missing field": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,3\n",
    "a further field": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,3,1,5\n",
    "a decimal comma": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,3,1,5\n",
    "a word": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,7,fast\n",
    "NaN": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,7,nan\n",
    "negative": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,7,-2\n",
    "zero": "arm,block,value\n" + "\n".join(CSV_ROWS) + "\na,7,0\n",
    "an unknown unit": "arm,block,value (furlongs)\n" + "\n".join(CSV_ROWS),
    "no common block": "arm,block,value\na,1,1\na,2,1\nb,3,1\nb,4,1\n",
    "one value": "arm,value\na,1\nb,2\n",
    "an open quote": 'arm,block,value\n"a,1,1\n',
    "a NUL": "arm,block,value\na,1,\x00\n",
}
SPOILT = [
    pytest.param(name, content, tool, id=f"{tool}: {name}") for tool in TOOLS for name, content in spoil_file(tool)
]


def run_spoilt(*words: object, capsys: pytest.CaptureFixture) -> str:
    """Return the only line that a comparison prints, which must fail with status 2."""
    with pytest.raises(SystemExit) as ended:
        run_main(lambda: main(["compare", *map(str, words)]))
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("problem: ")
    return line


def test_there_are_a_hundred_spoilt_files():
    assert len(SPOILT) + len(SPOILT_CSV) >= 100


@pytest.mark.parametrize("name, content, tool", SPOILT)
def test_a_spoilt_file_is_a_line(name: str, content: bytes, tool: str, folder: Path, capsys):
    (folder / "spoilt.json").write_bytes(content)
    line = run_spoilt(folder / "spoilt.json", DATA / f"{tool}_b.json", capsys=capsys)
    assert "spoilt.json" in line
    # It may be the only copy of what was measured.
    assert not any(words in line for words in ("--keep", "write it again", "write it with", "remove it"))


@pytest.mark.parametrize("name", SPOILT_CSV)
def test_a_spoilt_csv_is_a_line(name: str, folder: Path, capsys):
    (folder / "spoilt.csv").write_text(SPOILT_CSV[name], encoding="utf-8")
    run_spoilt(folder / "spoilt.csv", capsys=capsys)


# JSON that compare does not read.
UNKNOWN = {
    "criterion": ({"sampling_mode": "Linear", "iters": [5.0], "times": [3e6]}, "sampling_mode, iters, times)"),
    "k6": (
        dict.fromkeys(("root_group", "options", "state", "metrics", "setup")),
        "root_group, options, state, metrics, …)",
    ),
    "rows": ([{"name": "read", "value": 1.0}], "(no object)"),
    "empty": ({}, "(no object)"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_remedy_for_json_of_an_unknown_tool_overwrites_it(name: str, folder: Path, capsys):
    content, shown = UNKNOWN[name]
    (folder / "mine.json").write_text(json.dumps(content), encoding="utf-8")
    line = run_spoilt(folder / "mine.json", folder / "mine.json", capsys=capsys)
    assert shown in line
    assert "write its values to a CSV with the columns arm, block and value" in line
    assert "--keep" not in line


def test_a_baseline_is_not_written_over_results_of_another_tool(folder: Path, capsys):
    mine = write_hyperfine(folder / "mine.json", a=np.ones(6))
    before = mine.read_bytes()
    assert "name a new file" in run_spoilt(EXAMPLE, "--keep", mine, capsys=capsys)
    assert mine.read_bytes() == before


@pytest.mark.parametrize(
    "words, problem",
    [
        (["a.csv", "rate.csv"], "the units differ (MiB/s and s)"),
        (["a.csv", "blocks.csv"], "only one of them has a column block"),
        (["a.csv", "both.csv"], "both.csv has several arms"),
        (["a.csv", "x.csv"], "no benchmark in common"),
        (["a.csv", "monday"], "monday is not a result file of another tool, but"),
        (["a.csv", "a.csv", "b.csv"], "name two sides: sbench compare FILE FILE"),
        (["a.csv", "b.csv", "--paired"], "--paired and --keep are for runs"),
        (["a.csv", "b.csv", "--fail-on", "more requests"], "no counts for the rule 'more requests'"),
        (["a.csv", "b.csv", "--detect", "0"], "--detect must be a positive percentage"),
        (["a.csv", "b.csv", "--summary", "none/s.md"], "does not exist"),
        (["monday", "tuesday", "--summary", "s.md"], "are for results of other tools"),
    ],
)
def test_sides_that_do_not_fit_are_a_line(words, problem, folder, capsys):
    values = [1.0, 1.1, 1.2, 1.3, 1.4]
    write_csv(folder / "a.csv", "value (s)", *map(str, values))
    write_csv(folder / "b.csv", "value (s)", *map(str, values[:4]))
    write_csv(folder / "rate.csv", "value (MiB/s)", *map(str, values))
    write_csv(folder / "blocks.csv", "block,value (s)", *(f"{n},{value}" for n, value in enumerate(values)))
    write_csv(folder / "both.csv", "arm,value (s)", *(f"{arm},{value}" for arm in "xy" for value in values))
    write_csv(folder / "x.csv", "benchmark,value (s)", *(f"{name},{value}" for name in "xy" for value in values))
    there = [folder / word if (folder / word).exists() else word for word in words]
    assert problem in run_spoilt(*there, capsys=capsys)


def test_a_file_of_many_rows_is_read(folder: Path, capsys):
    rows = (f"{arm},{1 + n % 7 / 1000}" for arm in "ab" for n in range(30_000))
    _, made = judge(write_csv(folder / "a.csv", "arm,value", *rows), capsys=capsys)
    assert (made["verdicts"][0]["verdict"], made["verdicts"][0]["samples_base"]) == ("same", 30_000)
