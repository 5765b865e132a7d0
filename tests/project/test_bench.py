import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Done, copy_project

from tests.bench import common, mutants, project
from tests.bench.__main__ import BENCHMARKS

pytestmark = pytest.mark.late


def bench(*arguments: object, cwd: Path) -> Done:
    words = [sys.executable, "-sE", "-m", "tests.bench", *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("environments")
def test_benchmarks_run_at_their_smallest_and_leave_nothing_behind(tmp_path: Path):
    whole = copy_project(tmp_path / "clone", published=True)
    committed = sorted((whole / "results").iterdir())
    done = bench("--smallest", cwd=whole)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name in BENCHMARKS if f"{name}: " not in done.stdout] == []
    assert sorted((whole / "results").iterdir()) == committed


def test_help_names_every_benchmark(clone: Path):
    done = bench("--help", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert [name for name in BENCHMARKS if f"{name}:" not in done.stdout] == []


def test_a_benchmark_that_fails_is_one_line_and_the_others_go_on(clone: Path):
    (clone / "Snakefile").write_text("no rule")
    path = clone / "tests/bench/null_cells.py"
    path.write_text("def measure_null_cells(*_, **__):\n    'Break.'\n    yield {}['settings']\n")
    done = bench("--smallest", "--only", "cell", "plan", "looks", cwd=clone)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    cell, plan = (line for line in done.stdout.splitlines() if "not run: " in line)
    assert "not run: KeyError: 'settings'" in cell
    assert "not run: snakemake ended with status 1" in plan
    assert "false verdicts per family of 24" in " ".join(done.stdout.split())


def test_lines_and_the_time_of_tests_are_printed_beside_goals(clone: Path, monkeypatch: pytest.MonkeyPatch):
    test = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--junitxml={clone / project.TIMES}"]
    subprocess.run([*test, "tests/stores/test_transfer.py"], check=True, capture_output=True)
    monkeypatch.chdir(clone)
    before = {row.what: row for row in (*project.count_lines(), *project.sum_times())}
    assert before["time of `make test`"].goal == "≤ 1,440"
    assert "  test_transfer" in before
    (clone / "scripts/sbench/studies/particles/report/further.py").write_text("\n" * 40_000)
    after = {row.what: row for row in project.count_lines()}
    for what in ("study particles", "  studies", "scripts, rules, plugins and Go"):
        lines = [int(rows[what].value.removesuffix(" lines").replace(",", "")) for rows in (before, after)]
        assert lines[1] == lines[0] + 40_000
    assert not after["study particles"].within
    assert not after["scripts, rules, plugins and Go"].within
    assert after["  verdicts"].goal == ""


def test_a_ratio_above_its_goal_is_marked_and_one_below_is_not():
    slow = common.compare_times("ours", [2.0] * 8, "bare", [1.0] * 8, 1.03)
    assert (slow.ratio, slow.goal, slow.within) == ("2.000 (2.000 … 2.000)", "≤ 1.03", False)
    assert common.compare_times("ours", [1.0] * 8, "bare", [1.0] * 8, 1.03).within
    assert common.compare_times("ours", [1.0] * 8, "bare", [1.0] * 8).within is None


def test_the_memory_of_a_command_is_that_of_all_processes_below_it():
    held = 200_000_000
    below = f"import time; kept = bytearray({held}); time.sleep(1)"
    usage = common.run_command(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"]
    )
    assert held < usage.peak_bytes < 2 * held


def test_a_command_that_fails_is_a_problem_with_its_last_words():
    with pytest.raises(common.Problem, match="status 3: no luck"):
        common.run_command([sys.executable, "-c", "import sys; print('no luck'); sys.exit(3)"])


def test_code_is_changed_in_operators_numbers_and_conditions():
    module = ast.parse("def f(x):\n    if x < 3:\n        return x + 1\n    return x and True\n")
    before = ast.unparse(module)
    changes = [mutants.apply_change(module, *change) for change in mutants.list_changes(module)]
    assert ast.unparse(module) == before
    lines = {line.strip() for change in changes for line in set(change.splitlines()) - set(before.splitlines())}
    assert lines == {
        *("if x <= 3:", "if x < 4:", "if not x < 3:"),
        *("return x - 1", "return x + 2", "return x or True"),
    }


def test_judging_modules_and_their_tests_are_there():
    assert [name for name in mutants.JUDGING if not (project.PACKAGE / name).is_file()] == []
    tests = {test for tests in mutants.JUDGING.values() for test in tests}
    assert [test for test in sorted(tests) if len(list(ROOT.glob(f"tests/*/test_{test}.py"))) != 1] == []
