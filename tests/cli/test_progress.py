"""What a person sees while the workflow runs, shown on real runs: in a terminal, without one, when things break."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batteries import hear_interrupts
from snakemake_logger_plugin_benchmark.progress import (
    Rule,
    describe_time_left,
    format_duration,
    format_error,
    read_outcome,
)
from snakemake_logger_plugin_benchmark.terminal import shorten_text

WORKFLOW = """
rule all:
    input:
        expand("records/{cell}.json", cell=["good", "bad", "odd"]),

rule build_library:
    output:
        "environments/hdf5.json",
    log:
        "logs/build.log",
    message:
        "build library hdf5-2.0.0"
    shell:
        "cp answers/good.json {output}"

rule measure_shots:
    input:
        "environments/hdf5.json",
        "answers/{cell}.json",
    output:
        update("records/{cell}.json"),
    log:
        "logs/{cell}.log",
    shell:
        "cp answers/{wildcards.cell}.json {output}"
"""
ANSWERS = {
    "good": {"status": "done", "valid": True, "reasons": []},
    "bad": {"status": "failed", "reasons": ["the server died at byte 17", "and more"]},
    "odd": {"status": "done", "valid": False, "reasons": ["1 of 2 workers was idle"]},
}
COMMAND = [sys.executable, "-m", "snakemake", "--cores", "1", "--logger", "benchmark"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}


def make_workflow(folder: Path) -> Path:
    (folder / "Snakefile").write_text(WORKFLOW)
    (folder / "answers").mkdir()
    for cell, answer in ANSWERS.items():
        (folder / f"answers/{cell}.json").write_text(json.dumps(answer))
    return folder


def run(folder: Path, *options: str) -> tuple[int, list[str]]:
    """Run the workflow in `folder` without a terminal; return its exit status and its lines without the time of day."""
    done = subprocess.run(
        [*COMMAND, *options], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in done.stdout.splitlines()]


def run_in_terminal(folder: Path, kind: str, *options: str) -> tuple[int, str]:
    """Run the workflow in `folder` in a terminal of this kind; return its exit status and all that it was sent."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": kind, "COLUMNS": "100", "LINES": "30"}
    command = [*COMMAND, *options]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:
        pass  # Linux says so when the other end is closed.
    os.close(ours)
    return process.wait(), sent.decode()


def line_with(lines: list[str], *words: str) -> str:
    found = [line for line in lines if all(word in line for word in words)]
    assert len(found) == 1, f"one line with {words} in:\n" + "\n".join(lines)
    return found[0]


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    return make_workflow(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = make_workflow(tmp_path_factory.mktemp("finished"))
    status, lines = run(folder)
    assert status == 0
    return folder, lines


def test_without_a_terminal_each_job_is_a_line_when_it_starts_and_when_it_ends(finished):
    lines = finished[1]
    assert "5 jobs: 1 build_library, 3 measure_shots, 1 all" in lines
    line_with(lines, "started  build library hdf5-2.0.0", "(0 of 5 jobs, estimating the time left)")
    line_with(lines, "done     build library hdf5-2.0.0  in ", "(1 of 5 jobs, estimating the time left)")
    line_with(lines, "started  measure shots  cell good")
    line_with(lines, "done     measure shots  cell good  in ")
    line_with(lines, "(5 of 5 jobs, 1 failed, 1 invalid, nothing left)")
    assert not re.search(r"[^ -~]", "".join(lines)), "plain characters only"


def test_a_clock_that_is_set_forward_makes_no_job_longer(workflow):
    """A clock that is an hour later whenever it is looked at."""
    snakefile = workflow / "Snakefile"
    jumps = "import itertools, time\ntime.time = itertools.count(time.time(), 3600).__next__\n"
    snakefile.write_text(jumps + snakefile.read_text())
    status, lines = run(workflow)
    assert status == 0, lines
    assert re.search(r" in \d+\.\d s", line_with(lines, "done ", "build library"))
    assert " h " not in lines[-1]


def test_a_step_that_failed_and_exits_0_is_shown_with_its_first_reason(finished):
    lines = finished[1]
    assert re.search(
        r"in [\d.]+ s: the server died at byte 17  \(", line_with(lines, "FAILED   measure shots  cell bad")
    )
    assert re.search(r"in [\d.]+ s: 1 of 2 workers was idle  \(", line_with(lines, "invalid  measure shots  cell odd"))
    assert re.fullmatch(r"after [\d.]+ s: 5 of 5 jobs, 1 failed, 1 invalid", lines[-1])


def test_only_a_step_that_failed_names_its_log(finished):
    assert [line for line in finished[1] if "log: " in line] == ["    log: logs/bad.log"]


def test_a_page_is_named_when_it_can_be_read_and_at_the_end(tmp_path):
    rule = 'rule {0}:\n    input: {1}\n    output: "reports/{0}.html"\n    shell: "touch {{output}}"\n'
    first, last = rule.format("shots", "[]"), rule.format("index", '"reports/shots.html"')
    (tmp_path / "Snakefile").write_text(f"rule all:\n    input: 'reports/index.html'\n{first}{last}")
    lines = run(tmp_path)[1]
    pages = [number for number, line in enumerate(lines) if line.startswith("    page: ")]
    assert [lines[number] for number in pages] == ["    page: reports/shots.html", "    page: reports/index.html"]
    assert [lines[number - 1][:14] for number in pages] == ["done     shots", "done     index"]
    assert re.fullmatch(r"after [\d.]+ s: 3 of 3 jobs; report: reports/index\.html", lines[-1])


def test_the_sentences_of_all_pages_are_told_at_the_end_and_where_nothing_is_left_to_do(tmp_path):
    headline = f"\x01From disk, \x03pread\x06 was 2.0× as fast{' as S3' * 20}.\x02"
    answers = {
        "title": "Parallel input",
        "caution": "Too noisy to see.",
        "headline": headline,
    }
    (tmp_path / "left.json").write_text(json.dumps(answers))
    pages = 'rule pages:\n    output: "reports/blobs.html", "reports/blobs_answers.json"\n'
    pages += '    shell: "cp left.json {output[1]}; touch {output[0]}"\n'
    index = (
        "rule index:\n    input: rules.pages.output\n    output: 'reports/index.html'\n    shell: 'touch {output}'\n"
    )
    (tmp_path / "Snakefile").write_text(f"{pages}{index}")
    sentence = f"Parallel input: From disk, pread was 2.0× as fast{' as S3' * 20}. {answers['caution']}"
    made = run(tmp_path, "--", "index")[1]
    assert made[-3:-1] == [sentence, "    page: reports/blobs.html"]
    assert made[-1].endswith("; report: reports/index.html")
    done = run(tmp_path, "--logger-benchmark-reports", "reports", "index")[1]
    assert done[-3:] == [sentence, "    page: reports/blobs.html", "report: reports/index.html"]
    assert sentence not in run(tmp_path, "--forceall", "pages")[1], "the report of all studies is not there yet"
    _, sent = run_in_terminal(tmp_path, "xterm", "--forceall", "index")
    lines = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", sent).replace("\r", "").splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("Parallel input: ")]
    assert " ".join(lines[first : first + 2]) == sentence, "as wide as the terminal, between words"


def test_a_cause_of_many_failures_is_told_once(workflow):
    (workflow / "answers/odd.json").write_text(json.dumps(ANSWERS["bad"]))
    lines = [line for line in run(workflow)[1] if "FAILED   measure" in line or "log: " in line]
    assert len([line for line in lines if "the server died at byte 17" in line]) == 1
    assert len([line for line in lines if ": as above  (" in line]) == 1
    assert len([line for line in lines if "log: " in line]) == 1


def test_a_reason_steers_no_terminal(workflow):
    reasons = ["the server \x1b[31mdied\x1b[0m\r \x1b]0;title\x07\u202e at byte 17"]
    (workflow / "answers/bad.json").write_text(json.dumps({"status": "failed", "reasons": reasons}))
    assert line_with(run(workflow)[1], r"the server died \x1b]0;title\x07\u202e at byte 17")


def test_what_needs_something_that_failed_is_skipped_in_one_line(workflow):
    failed = {"status": "failed", "reasons": ["no compiler"]}
    (workflow / "answers/good.json").write_text(json.dumps(failed))
    skipped = failed | {"reasons": ["environments/hdf5.json failed: no compiler"], "cause": "environments/hdf5.json"}
    for name in ("bad", "odd"):
        (workflow / f"answers/{name}.json").write_text(json.dumps(skipped))
    text = WORKFLOW.replace("measure_shots", "measure").replace('"good", "bad"', '"bad"')
    (workflow / "Snakefile").write_text(text)
    lines = run(workflow)[1]
    assert "FAILED   build library hdf5-2.0.0" in line_with(lines, "no compiler")
    assert line_with(lines, "skipped  ") == "skipped  all jobs that need environments/hdf5.json, which failed"
    assert [line for line in lines if " measure " in line and "jobs:" not in line] == []
    assert re.fullmatch(r"after [\d.]+ s: 4 of 4 jobs, 1 failed, 2 skipped", lines[-1])


def test_nothing_to_do_is_said(finished):
    assert "Nothing to be done (all requested files are present and up to date)." in run(finished[0])[1]


def test_a_job_that_breaks_shows_its_message_and_log_however_quiet(workflow):
    broken = r"printf 'no space \\033[31mleft\\n' > {log}; exit 3; cp"
    (workflow / "Snakefile").write_text(WORKFLOW.replace("cp answers/good", f"{broken} answers/good"))
    status, lines = run(workflow, "--show-failed-logs", "--quiet", "all")
    assert status == 1
    line_with(lines, "FAILED   build library hdf5-2.0.0  in ")
    line_with(lines, "log: logs/build.log")
    line_with(lines, "returned non-zero exit status 3")
    assert "no space left" in lines, "the log, without its colours"
    assert "cp answers/good.json" not in "\n".join(lines), "commands hold a configuration of thousands of characters"
    assert "problem: At least one job did not complete successfully." in lines


def test_a_run_that_somebody_ends_says_how_to_go_on_and_calls_nothing_failed(workflow):
    slow = WORKFLOW.replace("cp answers/{wildcards.cell}.json {output}", ": >begun; exec sleep 60")
    (workflow / "Snakefile").write_text(slow)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen(COMMAND, cwd=workflow, env=ENVIRONMENT, preexec_fn=hear_interrupts, **options) as process:
        next(line for line in process.stdout if "started  measure shots" in line)
        # Snakemake waits for a job that begins after it has heard the signal, and a shell for a child that ends well.
        while not (workflow / "begun").exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        lines = [line[9:] for line in process.stdout.read().splitlines()]
    assert process.returncode != 0
    assert [line for line in lines if re.fullmatch(r"after (\d+ min )?[\d.]+ s: 1 of 5 jobs", line)] != [], lines
    assert lines[-1] == "interrupted; repeat the command to continue"
    assert not re.search(r"FAILED|Error|Exception|problem", "\n".join(lines))
    (workflow / "Snakefile").write_text(
        slow.replace(": >begun; exec sleep 60", "cp answers/{wildcards.cell}.json {output}")
    )
    status, lines = run(workflow)
    assert (status, [line for line in lines if "interrupted" in line]) == (0, [])


def test_a_mistake_before_the_run_is_one_line(workflow):
    absent = "problem: [Errno 2] No such file or directory: 'absent.yaml'"
    assert run(workflow, "--configfile", "absent.yaml") == (1, [absent])
    mistake = "from snakemake.exceptions import WorkflowError\nraise WorkflowError(\"x.yaml: unknown key 'libary'\")\n"
    (workflow / "Snakefile").write_text(mistake)
    assert run(workflow) == (1, ["problem: x.yaml: unknown key 'libary'"])


def test_a_log_that_cannot_be_written_puts_no_traceback_among_the_lines(workflow):
    full = 'import logging\nlogging.getLogger().addHandler(logging.FileHandler("/dev/full"))\nlogging.error("a line")\n'
    (workflow / "Snakefile").write_text(full + WORKFLOW)
    status, lines = run(workflow)
    assert status == 0
    assert [line for line in lines if "Traceback" in line or "No space" in line] == []


def test_what_the_system_refuses_to_the_workflow_is_one_line(workflow):
    (workflow / "Snakefile").write_text('from pathlib import Path\nPath("answers").read_text()\n')
    assert run(workflow) == (1, ["problem: [Errno 21] Is a directory: 'answers'"])


def test_a_dry_run_shows_snakemakes_table_and_reasons(workflow):
    status, lines = run(workflow, "--dry-run")
    assert status == 0
    assert "Job stats:" in lines
    assert re.search(r"measure_shots +3", "\n".join(lines))
    assert line_with(lines, "reason:", "Missing output files: records/good.json")
    assert not (workflow / "records").exists()


def test_quiet_leaves_what_went_wrong(workflow):
    status, lines = run(workflow, "--quiet", "all")
    assert status == 0
    assert sorted(re.sub(r"in [\d.]+ s", "in 1 s", line) for line in lines) == [
        "    log: logs/bad.log",
        "FAILED   measure shots  cell bad  in 1 s: the server died at byte 17",
        "invalid  measure shots  cell odd  in 1 s: 1 of 2 workers was idle",
    ]


def test_a_job_in_a_snakemake_of_its_own_is_shown_once(workflow):
    (workflow / "Snakefile").write_text('rule by_python:\n    output: "x"\n    run: open(output[0], "w").close()\n')
    status, lines = run(workflow)
    assert status == 0
    line_with(lines, "started  by python")
    line_with(lines, "done     by python")


def test_in_a_terminal_the_running_job_and_how_far_it_is_are_alive(workflow):
    status, sent = run_in_terminal(workflow, "xterm-256color")
    assert status == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    assert re.search(r"\r?\n?  build library hdf5-2\.0\.0  \d+\.\d s\s", text)
    assert re.search(r"  measure shots  cell good  \d+\.\d s\s", text)
    assert "0 of 5 jobs, estimating the time left, running for " in text
    assert re.search(r"done     measure shots  cell good  in \d+\.\d s\s", text)
    assert re.search(r"FAILED   measure shots  cell bad  in \d+\.\d s: the server died at byte 17\s", text)
    assert re.search(r"after [\d.]+ s: 5 of 5 jobs, 1 failed, 1 invalid\s*$", text)
    assert sent.rfind("\x1b[?25h") > sent.rfind("\x1b[?25l"), "the cursor is back"


def test_a_dumb_terminal_gets_plain_lines(workflow):
    status, sent = run_in_terminal(workflow, "dumb")
    assert status == 0
    assert "started  build library" in sent
    assert "\x1b" not in sent


def rule_after(jobs: int, *spans: tuple[float, float]) -> Rule:
    """Return a rule of `jobs` jobs of which some ran, each from one second to another."""
    rule = Rule(jobs=jobs)
    moments = [(start, 1, number) for number, (start, _) in enumerate(spans)]
    moments += [(end, 0, number) for number, (_, end) in enumerate(spans)]
    for now, starts, number in sorted(moments):
        rule.record_start(number, now) if starts else rule.record_end(number, now, counts=True)
    return rule


def test_the_time_left_is_that_of_the_cells_not_of_the_builds_before_them():
    builds = rule_after(2, (0, 180), (0, 200))
    assert describe_time_left([builds, Rule(jobs=24)], 200) == "estimating the time left"
    assert describe_time_left([builds, Rule(jobs=24)], 200, 131) == "about 2 min 11 s left, as planned"
    assert describe_time_left([builds, Rule(jobs=24)], 200, -5) == "estimating the time left", (
        "it takes longer than planned"
    )
    cells = rule_after(24, (200, 210), (210, 220))
    assert describe_time_left([builds, cells, Rule(jobs=3)], 220) == "about 3 min 40 s left + 3 jobs of unknown length"


def test_the_last_jobs_which_have_no_other_of_their_kind_are_counted():
    cells, last = rule_after(2, (0, 10), (10, 20)), [Rule(jobs=1), Rule(jobs=1)]
    assert describe_time_left([cells, *last], 20) == "2 jobs of unknown length left"
    assert describe_time_left([cells, *last], 20, 100) == "2 jobs of unknown length left", "the plan is of the cells"
    assert describe_time_left([rule_after(2, (0, 10)), *last], 20) == "about 10 s left + 2 jobs of unknown length"


def test_cells_of_different_length_count_by_their_mean():
    cells = rule_after(100, (0, 1), (1, 2), (2, 3), (3, 40))
    assert describe_time_left([cells], 40) == "about 16 min 0 s left"
    # The first study may have the longest jobs: a quarter of them tells more than the plan.
    assert describe_time_left([cells], 40, 130) == "about 2 min 10 s left, as planned"
    assert describe_time_left([rule_after(8, (0, 60), (60, 120))], 120, 30) == "about 6 min 0 s left"


def test_jobs_that_run_side_by_side_take_their_share():
    builds = rule_after(6, (0, 100), (0, 100))
    assert builds.estimate_seconds_left(100) == 200


def test_the_job_that_runs_counts_for_what_is_left_of_it():
    cells = rule_after(3, (0, 10))
    cells.record_start(1, 10)
    assert cells.estimate_seconds_left(14) == 16
    assert cells.estimate_seconds_left(60) == 10, "one that overruns adds nothing"


def test_what_a_driver_cannot_read_is_left_out_and_no_failure(tmp_path):
    record = {"status": "failed", "reasons": ["h5coro cannot read /texts"], "valid": False, "unable": True}
    (tmp_path / "x.json").write_text(json.dumps(record))
    assert read_outcome([str(tmp_path / "x.json")]) == ("left out", "h5coro cannot read /texts")


@pytest.mark.parametrize("text", ["", "{", "[false]", '{"status": "failed", "reasons": 3}', '"failed"'])
def test_an_odd_artefact_never_stops_the_lines(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    assert read_outcome([str(tmp_path / "x.json")])[0] == ("FAILED" if "status" in text else "done")
    assert read_outcome([str(tmp_path / "absent.json"), str(tmp_path)]) == ("done", "")


@pytest.mark.parametrize("why", ["[Errno 28] No space left on device", "[Errno 30] Read-only file system"])
def test_a_folder_that_snakemake_cannot_make_is_one_line_with_what_to_do(why):
    text = f"WorkflowError:\nFailed to create output directory results/x/logs.\nOSError: {why}: 'results/x/logs'"
    line = format_error(text, "WorkflowError")
    assert line.startswith(f"problem: results/x/logs: {why[11:]}; free disk space or inodes")
    assert "\n" not in line


def test_a_full_folder_of_temporary_files_is_one_line():
    """Snakemake's solver writes there, in words of its own."""
    text = 'Traceback (most recent call last):\n  File "/x/pulp/mps_lp.py", line 363, in writeMPS\nOSError: [Errno 28] '
    line = format_error(f"{text}No space left on device\n", "OSError")
    assert line.startswith("problem: a file, perhaps in TMPDIR: No space left on device; free disk space or inodes")


def test_an_error_that_is_no_mistake_keeps_its_traceback():
    bug = 'Traceback (most recent call last):\n  File "/home/me/rules/common.smk", line 3, in cells\nValueError: no'
    assert format_error(bug, "ValueError") == bug


def test_words_for_durations_and_names():
    assert [format_duration(s) for s in (0.04, 9.96, 59.6, 130, 3900)] == [
        "0.0 s",
        "10 s",
        "1 min 0 s",
        "2 min 10 s",
        "1 h 5 min",
    ]
    assert shorten_text("measure shots hdf5-2.0.0_s3_ros3_cold repeat 3/6", 30) == "measure shots h…old repeat 3/6"
    assert [len(shorten_text("x" * 50, width)) for width in (0, 1, 7, 50)] == [1, 1, 7, 50]
