"""One word on a volume: three batteries of fio, the judgement of the report, and nothing left behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from batteries import Place, emptied, hear_interrupts, until
from conftest import ROOT, sbench

from sbench.design import config as configuration
from sbench.probe import host
from sbench.probe.program import Problem, build_command, read_json
from sbench.probe.spool import Spool
from sbench.studies.volumes import fit, import_fio, limits

# Three of these jobs, as few as a segment has, have operations enough for a p99.
SMALL = "[fio_io]\nrw=write\nioengine=sync\nfdatasync=1\nsize=960k\nbs=2300\n"


def fitted(place: Place, p99_ms: float, text: str = SMALL, jobs: int = 6, **options: object) -> tuple[str, str]:
    """Return what `fit` says of a limit of so many ms, from small batteries."""
    limit = {"name": "etcd", "p99_ms": p99_ms, "operation": "sync", "job": "etcd"}
    limit["consequences"] = [{"ms": 1e-6, "means": "each is a thing of note"}, {"ms": 1e6, "means": "each is a wonder"}]
    options = {"jobs": jobs, "at_least_s": 0, "pause_s": 0, "job_text": text, **options}
    return fit.judge_volume(place.volume, fit.Course(limit), place.out, **options)


@pytest.mark.rule(18)
def test_a_volume_meets_a_limit_if_each_of_three_batteries_does(place, monkeypatch):
    monkeypatch.setattr(limits, "LEAST_JOBS", 6)
    monkeypatch.setattr(limits, "LEAST_S", 0)
    said, shown = [], []
    word, reason = fitted(place, 60_000, say=said.append, show=shown.append)
    assert word == "meets"
    figures = r"  battery 3, .*: [\d.]+ \[[\d., ]+\] ms: meets \(at most .* ms.*\)\n    at or above the limit: none"
    *lines, meaning = reason.splitlines()
    assert re.fullmatch(figures, "\n".join(lines[-2:]))
    assert meaning == "  100 % took 1e-06 ms or more: each is a thing of note"
    assert said.pop(0) == "job etcd: writes of 2,300 bytes, each followed by fdatasync"
    batteries = [line for line in said if not line.startswith("pausing")]
    assert [line.partition(";")[0] for line in batteries] == [f"battery {number} of 3" for number in (1, 2, 3)]
    assert all(re.search(r"about \d+ (s|min|h) left$", line) for line in [*batteries, *shown])
    assert re.match(r"p99 [\d.]+ \[[\d., ]+\] ms so far; battery 3 of 3, job 6; ", shown[-1])
    assert emptied(place)
    # The same folder, imported, is one volume with three batteries.
    section = configuration.resolve_config(read_json(place.out / "import.yaml"), [])["studies"]["volumes"]
    batteries, left_out = import_fio.read_batteries(import_fio.expand_imports(section["imports"]), spool := Spool())
    cells = [record["cell"] for record in import_fio.build_records(batteries, "again", spool)]
    assert (len(cells), len({json.dumps(cell) for cell in cells}), left_out) == (3, 1, [])
    # As `sbench import --config …` reads it, which is what is printed.
    plan = sbench("plan", f"{place.out}/import.yaml")
    assert plan.returncode == 0, plan.stderr
    configured = configuration.load_config(place.out / "import.yaml")["studies"]["volumes"]
    assert import_fio.list_sources(configured["imports"]) == sorted(filter(Path.is_file, place.out.rglob("*")))


def test_a_battery_that_misses_a_limit_decides(place):
    word, reason = fitted(place, 1e-6)
    assert word == "misses"
    assert "battery 1" in reason
    assert "battery 2" not in reason
    assert re.search(r"at or above the limit: 100 % of operations, [\d.]+ \[[\d., ]+\] % of the time$", reason, re.M)
    # It needs one job to know, and ends the battery then.
    assert "battery 1, 1 job: " in reason
    assert [path.name[:2] for path in place.out.glob("b*")] == ["b1"]
    assert emptied(place)


@pytest.mark.parametrize("p99_ms, word", [(60_000, "below"), (1e-6, "misses")])
def test_an_installer_has_an_answer_after_one_job(place, p99_ms, word):
    quick, reason = fitted(place, p99_ms, SMALL.replace("960k", "2400k"), quick=True)
    assert quick == word
    assert reason.count("battery 1, 1 job: ") == reason.count("battery") == 1
    assert fit.STATUS[word] == (word == "misses")


def rows(*parts: tuple[int, int, str, float]) -> list[dict]:
    """Return rows of segments: battery, jobs, verdict, and the end of the interval that is nearer to a limit."""
    return [
        {"repeat": one, "jobs": jobs, "verdict": verdict, "low_ms": end, "high_ms": end}
        for one, jobs, verdict, end in parts
    ]


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    "parts, verdict, words",
    [
        ([(1, 20, "misses", 10.5)], "misses", "only a single battery missed it"),
        ([(1, 20, "misses", 11.5)], "misses", ""),
        ([(1, 2, "misses", 11.5)], "misses", "only a single battery missed it"),
        ([(1, 2, "misses", 20.5)], "misses", ""),
        ([(1, 20, "misses", 10.5), (2, 20, "meets", 3)], "misses", "only 1 of 2 batteries missed it"),
        ([(1, 20, "misses", 10.5), (2, 20, "misses", 10.5), (3, 20, "meets", 3)], "misses", ""),
        (
            [(1, 20, "misses", 10.5), (2, 20, "misses", 10.5), *[(n, 20, "meets", 3) for n in (3, 4)]],
            "misses",
            "only 2 of 4",
        ),
        # Two segments of one battery are one battery.
        ([(1, 20, "misses", 10.5), (1, 20, "misses", 10.5)], "misses", "only a single battery missed it"),
        ([(1, 20, "meets", 9.5)], "meets", ""),
        ([(1, 20, "undecided", 9.5)], "undecided", ""),
    ],
)
def test_a_volume_near_its_limit_is_not_judged_by_one_battery(parts, verdict, words):
    doubt = limits.find_doubt(rows(*parts), verdict, 10)
    assert doubt.startswith(words)
    assert bool(doubt) == bool(words)


@pytest.mark.rule(18)
@pytest.mark.parametrize(
    "jobs, low, rule",
    [
        (20, 10.5, "at 1.05 × the limit; a single battery decides from 1.1 × on"),
        (5, 17.4, "at 1.74 × the limit; a single battery of 5 jobs decides from 2 × on"),
        (1, 11.5, "at 1.15 × the limit; a single battery of 1 job decides from 2 × on"),
    ],
)
def test_the_reason_not_to_judge_is_the_rule_that_was_applied(jobs, low, rule):
    assert rule in limits.find_doubt(rows((1, jobs, "misses", low)), "misses", 10)


@pytest.mark.rule(18)
def test_the_reason_of_a_single_job_that_misses_is_its_own_rule(place, monkeypatch):
    """With --quick, a job at the limit is a miss; the rule for batteries, which needs twice the limit, is not named."""
    monkeypatch.setattr(limits, "SURE_FEW", 1e12)
    word, reason = fitted(place, 1e-6, SMALL.replace("960k", "2400k"), quick=True)
    assert word == "misses"
    assert "with --quick, this job alone decides" in reason
    assert "only a single battery" not in reason


@pytest.mark.parametrize("verdict, low, high", [("misses", 11.0, 13.0), ("meets", 8.0, 9.0), ("undecided", 8.0, 12.0)])
def test_the_word_is_that_of_the_report_and_the_course_ends_when_a_limit_is_missed(verdict, low, high):
    course = fit.Course({"name": "etcd", "operation": "sync", "p99_ms": 10})
    jobs = [{"number": number, "sync_lat_p99_ms": p99} for number, p99 in enumerate((low, high), 1)]
    course.batteries = course._judged = [{"samples": [{"device_write_ios": 5} | job for job in jobs], "histograms": {}}]
    row = {"verdict": verdict, "limit_ms": 10.0, "segment": "1", "repeat": 1, "jobs": 2, "value_ms": (low + high) / 2}
    row |= {"jobs_over": sum(job["sync_lat_p99_ms"] >= 10 for job in jobs), "low_ms": low, "high_ms": high}
    course.rows = [row | {"segment": "all"}, row]
    assert (course.get_verdict(), course.is_missed) == (verdict, verdict == "misses")
    course.rows = [row | {"segment": "all"}, row | {"jobs_over": 7}]
    assert course.get_verdict() == "undecided", "the jobs do not bear it out"


def test_without_a_sign_of_a_device_nothing_is_met(place):
    course = fit.Course({"p99_ms": 10})
    course.rows, course.batteries = [{"verdict": "meets"}], [{"samples": [{"device_write_ios": None}]}]
    assert course.is_unproven
    assert course.get_verdict() == "undecided"


def test_batteries_that_are_too_short_leave_it_undecided(place):
    word, reason = fitted(place, 60_000)
    assert word == "undecided"
    # A battery whose level changes has a line for each segment.
    assert reason.count("the battery is too short to meet a limit") >= 3


def test_a_battery_that_cannot_run_is_one_line(place):
    with pytest.raises(Problem, match="MiB free; the files need"):
        fitted(place, 10, SMALL.replace("960k", "900t"))
    with pytest.raises(
        Problem, match=r"battery 1 of 3: the battery ended early: failed: a1: .*; the results so far are in"
    ):
        fitted(place, 10, SMALL + "rate_min=4g\n" + "rate_cycle=1\n" + "thinktime=10000\n")
    assert emptied(place)


@pytest.mark.parametrize(
    "arguments, line",
    [
        ([".", "--limit", "zookeeper"], "--limit must be one of etcd, openshift (got zookeeper)"),
        ([], "sbench fit: the following arguments are required: folder; see sbench fit --help"),
        (["/nowhere"], "/nowhere is not a folder; name a folder on the volume"),
        ([".", "--pause", "soon"], "--pause must be a number of seconds between batteries, from 0 to 86400 (got soon)"),
        ([".", "--pause", "nan"], "--pause must be a number of seconds between batteries, from 0 to 86400 (got nan)"),
    ],
)
def test_a_mistake_is_one_line(arguments, line):
    done = sbench("fit", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"problem: {line}")


def test_a_folder_in_memory_is_refused():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if not (kind := host.find_memory_backing(folder)):
            pytest.skip("/dev/shm does not lie in memory here")
        done = sbench("fit", folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"problem: {folder} is in memory ({kind}); name a folder on a disk")


def test_ctrl_c_leaves_nothing_on_the_volume_and_keeps_what_was_measured(place):
    # It writes where it is called.
    for name in ("scripts", "config"):
        shutil.copytree(ROOT / name, place.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = build_command("sbench.cli", "fit", place.volume)
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=place.folder, preexec_fn=hear_interrupts, **pipe) as process:
        until(lambda: list(Path(place.folder, "results/fit").glob("etcd-*/b1_*/facts_a1.txt")))
        os.kill(process.pid, signal.SIGINT)
        out, words = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert re.search(r"^interrupted; the volume is clean, and the results so far are in results/fit/etcd-", words, re.M)
    assert emptied(place)
