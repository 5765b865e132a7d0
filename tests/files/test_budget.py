"""Budgets of requests: limits, metrics, the command line, and the pytest plugin in the tests of another project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from sbench.files import budget, count_ci
from sbench.files.buckets import Requests
from sbench.files.count import Count, Query
from sbench.files.ranges import Totals
from sbench.probe.program import Problem


def build_requests(gets: int = 3, sent: int = 300, heads: int = 1) -> Requests:
    get = {"method": "GET", "path": "/data/a.h5", "range": "bytes=0-99", "status": "206", "bytes": 100}
    get |= {"query": "", "connection": 7, "uploaded": 0, "begin": 0.0, "end": 1.0}
    head = get | {"method": "HEAD", "range": "", "status": "404", "bytes": 0}
    methods = {
        "GET": {"count": gets, "failed": 0, "bytes": sent},
        "HEAD": {"count": heads, "failed": heads, "bytes": 0},
    }
    passed = {"connections": 0, "handshakes": 0, "refused": 0}
    passed["exchanges"] = [get] * gets + [head | {"connection": 8}] * heads
    return Requests(methods, {"data/a.h5": Totals(gets, sent, 100, gets - 1, 1)}, passed, 0, methods)


@pytest.mark.parametrize(
    "limits, names",
    [
        ({"get": 3, "head": 1, "bytes": "300 B", "connections": "<= 2", "requests": "<5", "put": 0, "list": 0}, []),
        ({"get": 2, "head": ">1", "bytes": "< 300", "distinct": "<= 99", "failed": 0, "repeated": "<=1"}, None),
        ({"bytes": "<= 1 KiB", "distinct": "== 100", "repeated": ">= 2", "failed": 1}, []),
        ({"objects": {"data/a.h5": {"get": 3, "bytes": "<= 1 MiB"}}}, []),
        ({"objects": {"data/a.h5": {"get": 2}}}, ["get of data/a.h5"]),
        ({"objects": {"data/b.h5": {"get": 0}}}, []),
        ({"objects": {"data/b.h5": {"get": ">1"}}}, ["get of data/b.h5"]),
        # A name that no request had is a mistake rather than a success.
        ({"objects": {"data/b.h5": {"get": "<= 4", "bytes": 0}}}, ["get of data/b.h5"]),
        ({}, []),
    ],
)
def test_a_limit_is_met_or_named(limits: dict, names: list[str] | None):
    budget.check_budget(limits, "budget")
    found = [one.name for one in budget.find_excesses(limits, build_requests())]
    assert found == (list(limits) if names is None else names)


@pytest.mark.parametrize(
    "limits, line",
    [
        ({"gets": 1}, "budget: unknown limit gets; use get, head, put"),
        ({"get": "4 MiB"}, 'budget: get: must be a limit such as 4 or "<= 4" (got 4 MiB)'),
        ({"get": True}, "budget: get: must be a limit"),
        ({"get": -1}, "budget: get: must be a limit"),
        ({"get": 1.5}, "budget: get: must be a limit"),
        ({"bytes": "about 4"}, 'budget: bytes: must be a limit such as "<= 20 MiB" (got about 4)'),
        ({"objects": {"a": 4}}, "budget: a: must be a mapping of get, bytes, distinct, repeated (got 4)"),
        ({"objects": {"a": {"put": 4}}}, "budget: a: must be a mapping of get, bytes, distinct, repeated (got put)"),
        ({"objects": 4}, "budget: objects: must be a mapping from objects to limits (got 4)"),
    ],
)
def test_a_mistake_in_a_budget_is_one_line(limits: dict, line: str):
    with pytest.raises(Problem, match=r"^[^\n]*$") as caught:
        budget.check_budget(limits, "budget")
    assert line in str(caught.value)


def test_requests_of_an_exceeded_limit_are_listed():
    found = budget.find_excesses({"get": 1, "failed": 0}, build_requests(gets=25, sent=2500))
    lines = list(budget.format_excesses(found))
    assert lines[1].split() == ["get", "1", "25"]
    assert lines[3] == "requests of get:"
    assert lines[4] == "  GET /data/a.h5 bytes=0-99 206 100 B"
    assert lines[-1] == "  … and 5 more"
    assert budget.build_budget(build_requests()) == {"get": 3, "head": 1, "requests": 4, "bytes": 300}


def test_all_limits_are_measured():
    limits = budget.measure_limits({"get": 3, "objects": {"data/a.h5": {"get": "< 3"}}}, build_requests())
    assert [(limit.name, limit.measured, limit.is_met) for limit in limits] == [
        *(("get", 3, True), ("get of data/a.h5", 3, False))
    ]


def test_metrics_have_the_same_names_in_every_count(tmp_path: Path):
    objects = {"data/a.h5": {"bytes": 1}, 'data/"b" of c': {"get": 0}}
    for name in ("metrics.json", "metrics.txt"):
        count_ci.write_metrics(tmp_path / name, Count(0, 1, build_requests()), {"put": 4, "objects": objects})
    metrics = json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))
    assert [metric["name"] for metric in metrics] == [*(*budget.NAMES, "bytes of data/a.h5", 'get of data/"b" of c')]
    assert {"name": "bytes of data/a.h5", "unit": "B", "value": 300} in metrics
    lines = (tmp_path / "metrics.txt").read_text(encoding="utf-8").splitlines()
    samples = ["sbench_get 3", 'sbench_get{object="data/\\"b\\" of c"} 0']
    assert lines[:4] == ["# TYPE sbench_get gauge", *samples, "# TYPE sbench_head gauge"]
    assert 'sbench_bytes{object="data/a.h5"} 300' in lines
    assert lines[-1] == "# EOF"


def test_a_summary_cannot_be_forged_by_names(tmp_path: Path):
    query, count = Query({}, ["read", "`a`\n# b\u202e"], "", {}), Count(0, 1, build_requests(heads=0))
    limits = [budget.Limit("get of data/|\n# b", "<= 1", 2, False, [])]
    count_ci.append_summary(tmp_path / "a.md", "*A*\nB", count, query, limits, 0)
    lines = (tmp_path / "a.md").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["## \\*A\\*\\nB", "", "`` read '`a`\\n# b\\u202e' ``"]
    assert "| get of data/\\|\\n# b | &lt;= 1 | 2 | **not met** |" in lines


def test_the_command_checks_a_budget(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(b"a" * 1000)
    code = "import boto3; boto3.client('s3').get_object(Bucket='data', Key='a')['Body'].read()"

    def count(limits: dict, code: str = code) -> subprocess.CompletedProcess:
        (tmp_path / "budget.yaml").write_text(yaml.safe_dump(limits), encoding="utf-8")
        words = [ROOT / "sbench", "count", "data", "--budget", "budget.yaml", "--", sys.executable, "-c", code]
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert count({"get": 1, "bytes": "<= 1000"}).returncode == 0
    done = count({"get": 1, "bytes": "< 1000 B", "objects": {"data/a": {"get": 0}}})
    assert done.returncode == 3
    assert [line.split()[0] for line in done.stderr.splitlines()[-4:-2]] == ["bytes", "get"]
    assert count({"get": 0}, "pass").returncode == 3, "a program without requests meets no budget"
    assert count({"get": 0}, "raise SystemExit(9)").returncode == 9
    done = count({"gets": 1})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


TESTS = """
import boto3, os, pytest, urllib.error, urllib.request

def read(s3, *spans):
    for span in spans:
        boto3.client("s3").get_object(Bucket=s3.bucket, Key="a b/x", Range=f"bytes={span}")["Body"].read()

@pytest.fixture(autouse=True)
def data(s3):
    s3.add_object("a b/x", bytes(1000))

def test_met(s3):
    with s3.expect(get=2, bytes="<= 1 KiB", distinct=100, connections=2, objects={"a b/x": {"get": 2}}) as expected:
        read(s3, "0-49", "50-99")
    assert expected.requests.methods["GET"]["count"] == 2
    assert s3.get_url("k") == f"s3://{os.environ['SBENCH_BUCKET']}/k"

def test_too_many(s3):
    with s3.expect(get=1):
        read(s3, "0-9", "5-99")

def test_none(s3):
    with s3.expect(get=0):
        pass

def test_raises(s3):
    with s3.expect(get=0):
        raise KeyError("of the test")

def test_nothing_is_expected(s3):
    with s3.expect(requests=0):
        pass

def test_without_with(s3):
    s3.expect(get=5)
    read(s3, "0-9")

def test_nested(s3):
    with s3.expect(get=2):
        read(s3, "0-9")
        with s3.expect(get=1):
            read(s3, "0-9")

@pytest.mark.parametrize("key", ["/absolute", "../other"])
def test_outside(s3, key):
    s3.add_object(key, b"")

def test_anonymous(s3):
    with s3.expect(get=2, failed=1):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(s3.get_url("a b/x", "http"))
        s3.allow_anonymous_reads()
        assert len(urllib.request.urlopen(s3.get_url("a b/x", "http")).read()) == 1000

@pytest.mark.parametrize("key", ["a b", "a b/x/y", "a b/x/y/z"])
def test_conflict(s3, key):
    s3.add_object(key, b"")

def test_scheme(s3):
    s3.get_url("a b/x", "https")

def test_misspelt(s3):
    with s3.expect(gets=0):
        read(s3, "0-1")

@pytest.mark.parametrize("many", [1, 2])
def test_stored(s3, many):
    with s3.expect():
        read(s3, *["0-9"] * many, *["20-29"] * ("MORE" in os.environ))
    with s3.expect():
        boto3.client("s3").list_objects_v2(Bucket=s3.bucket)
"""


def start_pytest(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess:
    """Run the tests of another project with the plugin."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "sbench.files.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-rA",
        "-q",
    ]
    return subprocess.run(
        [*command, *words, "test_reads.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")} | env,
        check=False,
    )


def run_tests(folder: Path, *words: str, **env: str) -> tuple[dict[str, str], str]:
    """Run the tests of another project with the plugin; return the outcome of each, and the output."""
    done = start_pytest(folder, *words, **env)
    lines = [line.split(" - ")[0].split() for line in done.stdout.splitlines()]
    return {
        words[1].partition("::")[2]: words[0] for words in lines if words[:1] in (["PASSED"], ["FAILED"])
    }, done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_reads.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return tmp_path


def test_a_test_fails_with_the_requests_that_are_too_many(project: Path):
    outcomes, words = run_tests(project)
    met = {"test_met", "test_anonymous", "test_nothing_is_expected"}
    assert {name for name, outcome in outcomes.items() if outcome == "PASSED"} == met | {"test_without_with"}
    assert "ERROR test_reads.py::test_without_with - Failed: test_reads.py:" in words
    assert re.search(r"test_reads.py:\d+: the requests do not meet the budget\n", words)
    assert re.search(r"  GET /test-too-many-\d+-s3/a b/x bytes=0-9 206 10 B", words)
    assert "expect() must not be within another expect()" in words
    assert "a key must be a relative path without .. (got /absolute)" in words
    for key in ("a b", "a b/x/y", "a b/x/y/z"):
        assert f"the object {key} cannot be added: the server cannot hold both" in words
    assert "the scheme must be s3 or http (got https)" in words
    assert "no request reached http://127.0.0.1:" in words
    assert "KeyError: 'of the test'" in words
    assert "expect(): unknown limit gets; use get" in words
    assert "lacks a budget of test_reads.py::test_stored[2]; write it with pytest --s3-update-budgets" in words
    assert "During handling of the above exception" not in words


def test_budgets_of_tests_are_written_and_then_hold(project: Path):
    outcomes, _ = run_tests(project, "--s3-update-budgets", "-k", "stored", "-n", "2")
    assert set(outcomes.values()) == {"PASSED"}
    budgets = yaml.safe_load((project / "s3_budgets.yaml").read_text())
    names = {n: f"test_reads.py::test_stored[{n}]" for n in (1, 2)}
    first = {name: {"get": n, "requests": n, "bytes": 10 * n} for n, name in names.items()}
    assert budgets == first | {f"{name} #2": {"list": 1, "requests": 1} for name in names.values()}
    # A limit that is met is kept as it was written.
    kept = budgets | {names[2]: {"get": "<= 4"}}
    (project / "s3_budgets.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    run_tests(project, "--s3-update-budgets", "-k", "stored")
    assert yaml.safe_load((project / "s3_budgets.yaml").read_text()) == kept
    (project / "s3_budgets.yaml").write_text(yaml.safe_dump(budgets), encoding="utf-8")
    # Each worker has a server of its own.
    outcomes, words = run_tests(project, "-k", "stored", "-n", "2")
    assert set(outcomes.values()) == {"PASSED"}, words
    outcomes, words = run_tests(project, "-k", "stored", MORE="1")
    assert set(outcomes.values()) == {"FAILED"}
    assert "bytes=20-29 206 10 B" in words


def test_budgets_without_a_test_are_listed(project: Path):
    run_tests(project, "--s3-update-budgets", "-k", "stored")
    path = project / "s3_budgets.yaml"
    gone = ["test_gone.py::test", "test_reads.py::test_stored[3] #2"]
    kept = yaml.safe_load(path.read_text()) | {key: {"get": 1} for key in [*gone, "test_other.py::test"]}
    path.write_text(yaml.safe_dump(kept), encoding="utf-8")
    (project / "test_other.py").write_text("", encoding="utf-8")
    _, words = run_tests(project, "-k", "stored")
    lines = [line for line in words.splitlines() if line.startswith(str(path))]
    assert lines == [f"{path}: the test of {name} does not exist; remove the budget" for name in gone]
    done = start_pytest(project, "test_reads.py::test_none", "--deselect", "test_reads.py")
    assert "budgets without a test" not in done.stdout
    assert yaml.safe_load(path.read_text()) == kept


@pytest.mark.parametrize(
    "option, line",
    [
        ("--s3-latency=-5", "--s3-latency must be between 0 and 60,000 ms (got -5)"),
        ("--s3-rate=nan", "--s3-rate must be between 0.01 and 1,000,000 MiB/s (got nan)"),
    ],
)
def test_a_wrong_option_is_one_line(project: Path, option: str, line: str):
    done = start_pytest(project, option)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (4, "", f"ERROR: {line}")


def test_a_build_is_announced_while_output_is_captured(project: Path):
    done = start_pytest(project, "-k", "test_met", XDG_CACHE_HOME="/dev/null/cache")
    assert done.stderr.startswith("building versitygw and toxiproxy, once: about 2 minutes\n")
    assert "ERROR test_reads.py::test_met - Failed: versitygw cannot be built in /dev/nul" in done.stdout


def test_without_the_fixture_the_plugin_imports_nothing(tmp_path: Path):
    (tmp_path / "test_reads.py").write_text(
        "import sys\ndef test(): assert [n for n in sys.modules if n.startswith('sbench.')] == ['sbench.files',"
        " 'sbench.files.pytest_plugin']\n",
        encoding="utf-8",
    )
    outcomes, words = run_tests(tmp_path)
    assert outcomes == {"test": "PASSED"}, words


def test_the_fixture_imports_no_large_package(tmp_path: Path):
    large = "{'boto3', 'h5py', 'jsonschema', 'numpy', 'pandas', 'scipy'}"
    (tmp_path / "test_reads.py").write_text(
        f"import sys\ndef test(s3): assert not {large} & sys.modules.keys()\n", encoding="utf-8"
    )
    outcomes, words = run_tests(tmp_path)
    assert outcomes == {"test": "PASSED"}, words
