"""The command `sbench`: its help, its mistakes in one line, its exit statuses, and what it does not read."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT, run_code, sbench

from sbench.cli import __main__ as cli

COMMANDS = [*cli.FIRST, *cli.OTHERS]
# Names that login shells of clusters set, among those that were variables of make before there was the command.
NONSENSE = dict.fromkeys(
    ("RUN", "STORE", "SCRATCH", "YES", "STUDY", "FILES", "RATE", "A", "B", "TO", "FROM", "DIR", "CONFIG", "CORES"),
    "/no/such thing; $(touch touched)",
)
AUDITED = sorted((ROOT / "results/published/blobs").glob("*.csv"))
EXAMPLE = next((ROOT / "results/example").glob("*.tar.xz"), None)


def test_the_first_help_screen_has_seven_commands_and_all_are_at_most_sixteen():
    done = sbench("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == list(cli.FIRST)
    assert (len(cli.FIRST), len(COMMANDS) <= 16) == (7, True)
    others = {"__init__", "__main__", "home", "options"}
    files = {path.stem for path in (ROOT / "scripts/sbench/cli").glob("*.py")} - others
    assert files == set(COMMANDS)
    assert sbench().stdout == done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_in_plain_lines(command):
    done = sbench(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: sbench {command} ")


@pytest.mark.parametrize("words", [("--help",), ("plan",), ("published", "--audit", *AUDITED)])
def test_a_reader_that_goes_ends_a_command_in_silence(words):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run([ROOT / "sbench", *words], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("words", [("--help",), ("plan", "--help"), ("published", "--audit", *AUDITED)])
@pytest.mark.parametrize(
    "where, line",
    [
        (">/dev/full", "the output: No space left on device; free the disk or make the folder writable"),
        (">&-", "standard output: Bad file descriptor; it is closed: send it to a file, or to /dev/null"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(words, where, line):
    command = ["sh", "-c", f'exec "$@" {where}', "sh", ROOT / "sbench", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"problem: {line}\n")


def test_input_and_errors_may_be_closed():
    command = ["sh", "-c", '"$@" <&- && exec "$@" nonsense 2>&-', "sh", ROOT / "sbench", "plan", "config/quick.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    assert "report: reports/quick/index.html" in done.stdout


def test_a_folder_that_was_removed_is_one_line(tmp_path):
    code = "import os; from sbench.cli.__main__ import start; os.mkdir('a'); os.chdir('a'); os.rmdir('../a'); start()"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); {code}", "plan"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    line = "problem: the working folder was removed; change to another one\n"
    assert (done.returncode, done.stderr) == (2, line)


def test_help_imports_nothing_heavy():
    code = "import sys; from sbench.cli.__main__ import main; main(['--help']); print(*sys.modules, sep=' ')"
    done = run_code(code)
    assert not {"numpy", "pandas", "snakemake", "yaml", "h5py"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "words, line",
    [
        (["loook"], "loook is not a command of sbench; did you mean look; see sbench --help"),
        (["42"], "42 is not a command of sbench; see sbench --help"),
        (["look", "--acess", "all", "x.h5"], "sbench look: unknown argument --acess; did you mean --access; see"),
        (["run", "--core", "2"], "sbench run: unknown argument --core; did you mean --cores; see sbench run --help"),
        (["look"], "sbench look: the following arguments are required: FILE; see sbench look --help"),
        (["advise", "x.h5", "--latency", "fast"], "sbench advise: argument --latency: invalid int value: 'fast'; see"),
        (["compare", "monday"], "name two sides: sbench compare RUN RUN, or sbench compare RUN… --with RUN…"),
        (["report", "nothing.tar.xz"], "nothing.tar.xz"),
        (["fit", "/nowhere"], "/nowhere is not a folder; name a folder on the volume, such as /var/lib/etcd"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_and_status_2(words, line):
    done = sbench(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"problem: {line}")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with files of odd names."""
    folder = tmp_path / "my files"
    folder.mkdir()
    for name in ("a b.h5", "-dash.h5", "größe [1].h5", "it's.h5"):
        with h5py.File(folder / name, "w") as file:
            file["values"] = np.arange(1000)
    return folder


def test_files_are_the_words_of_the_shell_from_any_folder(files):
    command = [ROOT / "sbench", "look", "--json", "--", *sorted(os.listdir(files))]
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == 4


@pytest.mark.parametrize("words", [["plan", "--json"], ["archive", "none"], ["import", "--json"]], ids=" ".join)
def test_defaults_are_of_the_project_from_any_folder(words, tmp_path):
    done = subprocess.run([ROOT / "sbench", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    here = subprocess.run([ROOT / "sbench", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (here.returncode, here.stdout, here.stderr)


def test_a_thousand_files_are_looked_at(tmp_path):
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["values"] = np.arange(10)
    copies = [shutil.copy(tmp_path / "one.h5", tmp_path / f"{number}.h5") for number in range(1000)]
    done = sbench("look", "--json", *copies)
    assert json.loads(done.stdout)["files"] == 1000


@pytest.mark.late
@pytest.mark.parametrize(
    "words",
    [
        ["plan", "config/smoke.yaml", "--json"],
        ["archive", EXAMPLE, "--cite", "--by", "Ada"],
        ["published", "--audit", "results/published/shots/audit/labels.csv"],
        ["run", "config/quick.yaml", "--again", "nothing"],
        ["compare", "monday", "tuesday"],
        ["bisect", "s3fs", "2024.12.0", "2024.12.0", "--metric", "speed"],
        ["look", "none*.h5"],
        ["advise", "none*.h5"],
        ["fit", "/nowhere"],
        ["import", "--config", "config/quick.yaml", "none.json"],
        ["report", "none.tar.xz"],
        ["export", "none"],
        ["check", "config/none.yaml"],
    ],
    ids=lambda words: words[0],
)
def test_variables_of_the_users_shell_change_nothing(words):
    usual, odd = (sbench(*words, env=os.environ | more) for more in ({}, NONSENSE))
    assert (odd.returncode, odd.stdout, odd.stderr) == (usual.returncode, usual.stdout, usual.stderr)
    assert not (ROOT / "touched").exists()


def test_a_check_tells_what_the_cache_and_runs_take_and_how_to_remove_it(clone, tmp_path):
    for path, mib in ((tmp_path / "storage-benchmarks/built", 3), (clone / "results/old/data", 2)):
        path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(mib * 2**20))
    (clone / "results/new").mkdir()
    lines = sbench("check", "config/quick.yaml", cwd=clone, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)}).stdout
    assert f"cache: 3 MiB of builds; rm -r {tmp_path}/storage-benchmarks removes them" in lines
    assert "results: 2 MiB, most in results/old (2 MiB); rm -r results/<run> reports/<run> removes a run" in lines


def test_json_is_one_object_and_has_no_nan(clone):
    for words in (["plan", "config/smoke.yaml"], ["check", "config/smoke.yaml"]):
        done = sbench(*words, "--json", cwd=clone)
        json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(constant))
