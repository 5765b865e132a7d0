"""The installed package, away from a clone: look, compare, the verdict rule, and what it says where an extra lacks."""

import json
import os
import platform
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from conftest import ROOT
from small_runs import TINY

from sbench.build import servers

pytestmark = pytest.mark.late

UV = Path(sys.executable).with_name("uv")
EXAMPLE = next((ROOT / "results/example").glob("*.tar.xz"), None)


@pytest.fixture(scope="session")
def wheel(once: Callable) -> Path:
    """Return the wheel, as `make wheel` builds it."""

    def build(folder: Path) -> None:
        subprocess.run(["make", "--silent", "wheel"], cwd=ROOT, check=True)
        shutil.copy(max(ROOT.glob("dist/*.whl"), key=lambda path: path.stat().st_mtime), folder)

    return next(once("wheel", build).glob("*.whl"))


@pytest.fixture(scope="session")
def installed(once: Callable, wheel: Path) -> Callable[[str], Path]:
    """Return a function that returns the folder of programs of an environment with the wheel and its extras."""

    def install(extras: str) -> Path:
        def make(folder: Path) -> None:
            subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder / "home"], check=True)
            words = [UV, "pip", "install", "--quiet", "--python", folder / "home/bin/python"]
            subprocess.run([*words, "--constraint", ROOT / "envs/workflow.lock", f"{wheel}{extras}"], check=True)

        return once(f"installed{extras}", make) / "home/bin"

    return install


@pytest.fixture
def call(tmp_path: Path) -> Callable:
    """Return a function that calls the installed command in a folder of its own, in a home of its own."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": cache}

    def run(programs: Path, *words: object) -> subprocess.CompletedProcess:
        command = [programs / "sbench", *map(str, words)]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)

    run.folder = folder
    run.env = env
    run.home = tmp_path / ".local/share/storage-benchmarks"
    return run


def test_look_needs_no_extra_and_takes_paths_of_the_folder_it_is_called_in(installed, call):
    with h5py.File(call.folder / "a.h5", "w") as file:
        file["x"] = np.arange(1000.0)
    done = call(installed(""), "look", "a.h5")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert done.stdout.startswith("1 file")


def test_the_verdict_rule_is_there(installed):
    code = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    subprocess.run([installed("[verdicts]") / "python", "-I", "-c", code], check=True)


def test_results_of_other_tools_are_compared_with_the_verdict_rule_alone(installed, call):
    data = ROOT / "tests/runs/data"
    done = call(installed("[verdicts]"), "compare", data / "fio_a.json", data / "fio_b.json", "--fail-on", "slower")
    assert done.returncode == 3, done.stderr
    assert "read: read rate: slower" in done.stdout


def test_the_wheel_has_static_programs_for_this_platform(wheel):
    machine = platform.machine()
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in ("versitygw", "toxiproxy"):
            info = archive.getinfo(f"sbench/build/contained/{name}/{name}")
            assert info.external_attr >> 16 & stat.S_IXUSR
            program = archive.read(info)
            # The header of ELF files for 64 bits: place, size and number of the program headers.
            (place,) = struct.unpack_from("<Q", program, 32)
            size, number = struct.unpack_from("<HH", program, 54)
            kinds = {struct.unpack_from("<I", program, place + index * size)[0] for index in range(number)}
            # PT_LOAD, and neither PT_DYNAMIC nor PT_INTERP.
            assert (1 in kinds, kinds & {2, 3}) == (True, set())


def test_a_wheel_of_a_source_tree_has_no_programs(wheel, tmp_path):
    # In the same tree as the wheel with programs, of which nothing may be left.
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], check=True)
    (plain,) = tmp_path.glob("*.whl")
    assert plain.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(plain) as archive:
        assert not [name for name in archive.namelist() if name.startswith("sbench/build/contained/")]


def test_count_needs_no_compiler_and_no_cache(installed, call):
    (call.folder / "data").mkdir()
    (call.folder / "data/a").write_bytes(b"content")
    call.env |= {"PATH": str(call.folder), "XDG_CACHE_HOME": "/dev/null/cache"}
    code = "import boto3; boto3.client('s3').get_object(Bucket='data', Key='a')['Body'].read()"
    done = call(installed(""), "count", "data", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "1 request: 1 GET; 1 connection"), done.stderr
    code = "import os, urllib.request as r; r.urlopen(os.environ['SBENCH_URL'] + '/a').read()"
    done = call(installed(""), "count", "data", "--anonymous", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "1 request: 1 GET; 1 connection"), done.stderr


def test_first_calls_at_the_same_time_share_a_home(installed, call):
    command = [installed("") / "sbench", "look", "absent.h5"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    calls = [subprocess.Popen(command, cwd=call.folder, env=call.env, **pipes) for _ in range(4)]
    assert [process.communicate()[1] for process in calls] == [
        "problem: no file matches absent.h5; correct the path or the pattern\n"
    ] * len(calls)


def test_a_home_that_cannot_be_written_is_one_line(installed, call):
    call.env["SBENCH_HOME"] = "/dev/null/home"
    done = call(installed(""), "look", "a.h5")
    line = "problem: /dev/null/home cannot be created: Not a directory; set SBENCH_HOME to a writable folder\n"
    assert (done.returncode, done.stderr) == (2, line)


def test_servers_are_built_from_an_installation_by_the_same_recipe(installed, tmp_path):
    # The pytest plugin builds them without the command's home.
    code = "from sbench.build import servers; print(servers.create_server_recipe('toxiproxy').inputs['files'])"
    words = [installed("") / "python", "-I", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == str(servers.create_server_recipe("toxiproxy").inputs["files"])


@pytest.mark.parametrize(
    "words, line",
    [
        (
            ("compare", EXAMPLE, EXAMPLE),
            "sbench compare: pandas is not installed: pip install 'storage-benchmarks[report] @ {wheel}'",
        ),
        # The first module that lacks is also in a smaller extra, which would not do.
        (
            ("advise", "a.h5"),
            "sbench advise: jsonschema is not installed: pip install 'storage-benchmarks[workflow] @ {wheel}'",
        ),
        (("run",), "sbench run: jsonschema is not installed: pip install 'storage-benchmarks[workflow] @ {wheel}'"),
    ],
)
def test_what_lacks_is_one_line_that_installs_the_extra(installed, call, wheel, words, line):
    done = call(installed(""), *words)
    place, line = f"sbench keeps results and reports in {call.home}", line.format(wheel=wheel.as_uri())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{place}\nproblem: {line}\n")
    # No index has the package: its address is what pip understands.
    asked = shlex.split(line.partition("pip install ")[2])
    words = [UV, "pip", "install", "--dry-run", "--quiet", "--python", installed("") / "python", *asked]
    subprocess.run(words, check=True)


def test_two_archives_are_compared_and_pages_lie_in_the_home(installed, call, tiny_archive):
    done = call(installed("[report]"), "compare", EXAMPLE, tiny_archive)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in call.home.glob("reports/compare/*.html")]
    # Another call finds the home as it is.
    before = (call.home / ".version").stat().st_mtime_ns
    assert call(installed("[report]"), "plan").returncode == 2
    assert (call.home / ".version").stat().st_mtime_ns == before


def test_a_run_and_published_pages_are_made_in_the_home(installed, call):
    (call.folder / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    done = call(installed("[workflow]"), "run", "tiny.yaml", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    # A second call, from the home itself, finds nothing to do and the home as it was.
    again = subprocess.run(
        [installed("[workflow]") / "sbench", "plan", call.folder / "tiny.yaml"],
        **{"cwd": call.home, "env": call.env, "capture_output": True, "text": True, "check": False},
    )
    assert again.returncode == 0, again.stderr
    assert "0 records to measure" in again.stdout
    record = next(call.home.glob("results/tiny/shots/records/*/*.json"))
    assert json.loads(record.read_text(encoding="utf-8"))["status"] == "done"
    for words in (("archive", "tiny"), ("published", "--partial"), ("report", EXAMPLE)):
        done = call(installed("[workflow]"), *words)
        assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(call.home / "reports").as_posix() for path in call.home.glob("reports/*/index.html")}
    assert pages == {"tiny/index.html", "published-partial/index.html", "example/index.html"}


def test_the_wheel_carries_what_runs_of_a_clone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        carried = {name.removeprefix("sbench/clone/") for name in archive.namelist()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    of_clone = {name for name in tracked if not name.startswith(("scripts/sbench/", "tests/", "reports/", "plugins/"))}
    assert of_clone - carried - {name for name in of_clone if name.startswith("results/example/")} == {
        *(".ci/run", ".gitignore", ".snakemake-workflow-catalog.yml", "Makefile", "pyproject.toml", "sbench"),
        *("action.yml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "results/published/ERRATA.md"),
        # What makes the environment of a clone.
        "scripts/setup.sh",
    }


def test_a_folder_of_somebody_else_is_left_alone(installed, call):
    call.home.mkdir(parents=True)
    (call.home / "mine.txt").write_text("mine", encoding="utf-8")
    done = call(installed(""), "look", "a.h5")
    assert done.returncode == 2
    assert "must be empty or a folder of sbench; set SBENCH_HOME" in done.stderr
    assert [path.name for path in call.home.iterdir()] == ["mine.txt"]


@pytest.fixture
def tiny_archive(tiny_run: Path) -> Path:
    """Return the archive of a run that was measured here."""
    done = subprocess.run([tiny_run / "sbench", "archive"], cwd=tiny_run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next((tiny_run / "results/tiny").glob("*.tar.xz"))
