"""What the tests share: the libraries and servers under test (built once, cached), data, and copies of the project."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from sbench.build.interpreters import find_python
from sbench.probe.program import Problem, build_command

Done = subprocess.CompletedProcess
ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = Path(os.environ.get("PUBLISHED_DATA", ROOT.parent / "shared" / "published"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out thorough tests, and skip those that start a process when they do"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        sys.addaudithook(_skip_what_starts_a_process)
        config.option.markexpr = " and ".join(filter(None, (config.option.markexpr, "not thorough")))
        config.option.reportchars = "fE"


def pytest_xdist_auto_num_workers() -> int:
    """Return half as many more workers as cores, as tests wait for servers, disks and clocks."""
    return len(os.sched_getaffinity(0)) * 3 // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the runs of the workflow, which take longest: at the end no worker is to wait for another."""
    items.sort(key=lambda item: not {"smoke", "tiny_run"} & set(item.fixturenames))


def _skip_what_starts_a_process(event: str, arguments: tuple) -> None:
    # pytest sets the variable while a test runs, or is set up. Records ask git for the commit.
    started = os.path.basename(os.fspath(arguments[0])) if event == "subprocess.Popen" else "git"
    if started != "git" and "PYTEST_CURRENT_TEST" in os.environ:
        pytest.skip("it starts a process: a server, a library under test, fio, MPI, a report, a browser")


def program(name: str, *arguments: object, cwd: Path = ROOT, **options: object) -> Done:
    """Run a program of the workflow as the rules do."""
    return subprocess.run(
        build_command(name, *arguments), cwd=cwd, capture_output=True, text=True, check=False, **options
    )


def run_code(code: str, *arguments: object, python: str = sys.executable, within: Sequence[str] = ()) -> Done:
    """Run Python code that imports the package, within a command such as unshare."""
    words = [*within, python, "-sE", "-c", f"import sys; sys.path[0] = 'scripts'\n{code}", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def sbench(*arguments: object, **options: object) -> Done:
    """Run a command of sbench; options are those of `program`."""
    return program("sbench.cli", *arguments, **options)


def artefact(path: Path) -> dict:
    """Read an artefact or a record."""
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def published() -> Path:
    """Return the folder of the published data, which the project does not hold."""
    if not PUBLISHED.is_dir():
        pytest.skip(f"the published data are not at {PUBLISHED}; name their folder in PUBLISHED_DATA")
    return PUBLISHED


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return a function (name, make) -> folder, which calls `make` with that folder once for all parallel workers.

    What was skipped when it was made is skipped at once by all others.
    """
    base = tmp_path_factory.getbasetemp()
    # As deep as the folders of tests: paths from here to the environment, which rules have, are theirs too.
    shared = base.parent / "once" if "PYTEST_XDIST_WORKER" in os.environ else base
    shared.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done, skipped = shared / name, shared / f"{name}.done", shared / f"{name}.skipped"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if skipped.exists():
                pytest.skip(skipped.read_text(encoding="utf-8"))
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                try:
                    make(folder)
                except pytest.skip.Exception as why:
                    skipped.write_text(str(why), encoding="utf-8")
                    raise
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def audited(once: Callable, published: Path) -> Callable[[str], Path]:
    """Return a function study -> folder of the tables made of the published data, with their audit."""
    from sbench.court import tables

    def make(study: str, folder: Path) -> None:
        named = ("--sources", str(ROOT / "config/published.yaml"), "--printed", str(ROOT / "results/published" / study))
        assert tables.main(["--study", study, *named, f"--raw={published}", "--out", str(folder)]) == 0

    return lambda study: once(f"published-{study}", lambda folder: make(study, folder))


@pytest.fixture(scope="session")
def synthetic(once: Callable) -> Callable[[str], Path]:
    """Return a function study -> folder of the tables of its synthetic run."""
    from tests.helpers import arrays_tables, blobs_tables, particles_tables, report_tables, volumes_tables

    tables = {"arrays": arrays_tables, "blobs": blobs_tables, "particles": particles_tables}
    tables |= {"shots": report_tables, "volumes": volumes_tables}
    return lambda study: once(f"tables-{study}", tables[study].build)


@pytest.fixture(scope="session")
def report_of(once: Callable, synthetic: Callable) -> Callable[[str], Path]:
    """Return a function study -> page of its synthetic run, in a folder of its own; an index lies beside it."""
    from tests.helpers.pages import write_afresh, write_index

    def written(folder: Path, study: str) -> None:
        write_index([write_afresh(study, synthetic(study), folder / f"{study}.html")])

    return lambda study: once(f"report-{study}", lambda folder: written(folder, study)) / f"{study}.html"


@pytest.fixture(scope="session")
def environments(once: Callable) -> Path:
    """Return a folder with the artefacts of HDF5 1.14.6 and 2.0.0 with ROS3 and of the servers; builds are cached."""
    return once("environments", _build)


def _build(folder: Path) -> None:
    builds = [
        (
            f"hdf5-{version}",
            "build_library",
            "--library",
            f"hdf5-{version}",
            "--spec",
            json.dumps({"kind": "source", "hdf5": version}),
        )
        for version in ("1.14.6", "2.0.0")
    ]
    running = []
    for name, tool, *arguments in [*builds, ("servers", "build_servers")]:
        log = folder / f"{name}.log"
        command = build_command(tool, *arguments, "--out", folder / f"{name}.json")
        with open(log, "w", encoding="utf-8") as words:
            running.append((name, log, subprocess.Popen(command, cwd=ROOT, stdout=words, stderr=words)))
    for name, log, process in running:
        assert process.wait() == 0, f"{name} could not be built: {log.read_text(encoding='utf-8')[-2000:]}"


@pytest.fixture(scope="session")
def with_yt(once: Callable) -> Path:
    """Return a folder with the artefact of a library with yt, yt.json: HDF5 2.0.0 from h5py's wheel."""

    def build(folder: Path) -> None:
        spec = json.dumps({"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/yt.lock"})
        done = program("build_library", "--library", "yt", "--spec", spec, "--out", folder / "yt.json")
        assert done.returncode == 0, done.stderr

    return once("with-yt", build)


@pytest.fixture(scope="session")
def with_hsds(once: Callable, environments: Path) -> Path:
    """Return a folder with the artefacts of a library with HSDS and Zarr, arrays.json, and of the servers."""

    def build(folder: Path) -> None:
        spec = json.dumps({"kind": "wheel", "hdf5": "2.0.0", "lock": "envs/arrays.lock"})
        done = program("build_library", "--library", "arrays", "--spec", spec, "--out", folder / "arrays.json")
        assert done.returncode == 0, done.stderr
        shutil.copy2(environments / "servers.json", folder)

    return once("with-hsds", build)


@pytest.fixture(scope="session")
def with_readers(once: Callable, environments: Path) -> Path:
    """Return a folder with the artefacts of a library with all drivers, readers.json, and of the servers."""

    def build(folder: Path) -> None:
        spec = json.dumps({"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"})
        done = program("build_library", "--library", "readers", "--spec", spec, "--out", folder / "readers.json")
        assert done.returncode == 0, done.stderr
        shutil.copy2(environments / "servers.json", folder)

    return once("with-readers", build)


@pytest.fixture(scope="session")
def with_containers(once: Callable, environments: Path) -> Path:
    """Return a folder with the artefacts of a library with Zarr 3.3 or later, containers.json, and of the servers.

    It needs Python 3.12 or later; tests that need it are skipped without.
    """
    spec = find_containers_library()

    def build(folder: Path) -> None:
        done = program(
            "build_library", "--library", "containers", "--spec", json.dumps(spec), "--out", folder / "containers.json"
        )
        assert done.returncode == 0, done.stderr
        shutil.copy2(environments / "servers.json", folder)

    return once("with-containers", build)


def find_containers_library() -> dict:
    """Return the configuration of a library with envs/containers.lock, or skip the test without its Python."""
    for release in ("3.13", "3.12", "3.14"):
        with contextlib.suppress(Problem):
            find_python(release)
            return {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/containers.lock", "python": release}
    pytest.skip("no Python 3.12 or later: apt install python3.13-venv, or pyenv install 3.13")


def need_slurm() -> None:
    """Skip a test that starts a cluster of its own where that cannot be done."""
    tools = ("munged", "slurmctld", "slurmd", "srun")
    need(*tools, remedy=": apt install munge slurmctld slurmd slurm-client iproute2")


def need(*tools: str, remedy: str = "") -> None:
    """Skip a test that gives a program a network of its own where that, or one of some tools, is not to be had."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    if missing := [tool for tool in (*tools, "ip", "unshare") if not shutil.which(tool, path=path)]:
        pytest.skip(f"no {', '.join(missing)}{remedy}")
    if os.geteuid():
        pytest.skip("only root may give a program a network of its own")


def copy_project(copy: Path, published: bool = False) -> Path:
    """Copy the project without results, or with those of published studies, to `copy`, in which Snakemake can run.

    What Python compiled of it comes along, and the times by which that is known to be up to date: to compile anew costs
    each clone a second.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, copy / name
        if source.is_file() and (published or not name.startswith(("results/", "reports/"))):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            if source.suffix == ".py" and (compiled := Path(cache_from_source(source))).is_file():
                (target.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, target.parent / "__pycache__")
    return copy


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of the project without results, in which Snakemake can run."""
    return copy_project(tmp_path / "clone")


@pytest.fixture
def ready_clone(clone: Path) -> Path:
    """Return a clone that `make setup` has nothing to do in: it has this one's environment."""
    return make_ready(clone)


def make_ready(clone: Path) -> Path:
    """Give a clone this one's packages in a .venv of its own, whose stamp is that of the clone's lock and setup.

    A set-up that ran in a link to this one's would name the clone in it, for good.
    """
    home = clone / ".venv"
    home.mkdir()
    for part in ("bin", "lib", "include", "pyvenv.cfg"):
        (home / part).symlink_to(Path(sys.prefix, part))
    text = b"".join((clone / name).read_bytes() for name in ("envs/workflow.lock", "scripts/setup.sh"))
    (home / f".{hashlib.sha256(text).hexdigest()[:16]}").touch()
    return clone


@pytest.fixture
def shots_cell(tmp_path: Path, environments: Path, once: Callable):
    """Return a function that makes a place to measure a cell of `shots` in, by the levels of the cell."""
    from cells import Place

    def build(make: bool = True, within: str = "", **options: object) -> Place:
        (tmp_path / within).mkdir(exist_ok=True)
        planned = Place(tmp_path / within, environments, once, **options)
        return planned.make() if make else planned

    return build


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a volume to test and a folder for results; what a battery that is killed keeps aside goes with them."""
    from batteries import Place

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Place(tmp_path)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """Return the command that leads to this machine over ssh, through a server on the loopback that ends with it."""
    from sbench.probe.processes import find_free_port, run_process, wait_for_port

    server = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.access(server, os.X_OK) or not shutil.which("ssh"):
        pytest.skip("there is no sshd: apt install openssh-server")
    home = tmp_path / "ssh"
    home.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name], check=True)
    shutil.copy(home / "user.pub", home / "authorized")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = find_free_port()
    lines = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": home / "host",
        "AuthorizedKeysFile": home / "authorized",
        "PidFile": "none",
        "PermitRootLogin": "prohibit-password",
        "StrictModes": "no",
        "UsePAM": "no",
    }
    (home / "sshd").write_text("".join(f"{key} {value}\n" for key, value in lines.items()), encoding="utf-8")
    log = home / "log"
    with (
        open(log, "w", encoding="utf-8") as words,
        run_process([server, "-D", "-e", "-f", str(home / "sshd")], words, dict(os.environ)) as process,
    ):
        wait_for_port(port, process, "sshd")
        options = {
            "IdentityFile": home / "user",
            "UserKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "no",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
        }
        yield [
            "ssh",
            *("-F", "none", "-p", str(port)),
            *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
            "127.0.0.1",
        ]


def processes_of(text: str) -> list[str]:
    """Return the command lines of living processes that mention `text` (a path) or were started by the test that runs.

    pytest puts the name of the running test into its environment, which all that it starts inherits: so a Dask worker,
    whose command line and folder say nothing, is found too. This process is left out.
    """
    mark = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                home = os.readlink(entry / "cwd")
                started_with = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if line and (text in line or text in home or mark in started_with):
                found.append(line)
    return found


@pytest.fixture
def tiny(clone: Path) -> Path:
    """Return a clone with a tiny configuration as its default one."""
    from small_runs import TINY, write

    write(clone, TINY)
    return clone


@pytest.fixture
def tiny_run(once: Callable, tmp_path: Path) -> Path:
    """Return a clone with a finished run of the tiny configuration: a copy of one that is measured once for all tests.

    A test that takes records away (`small_runs.drop`) has a run that is not finished, whose data are in place.
    """
    from small_runs import TINY, launch, write

    def run(folder: Path) -> None:
        write(copy_project(folder / "clone"), TINY)
        done = launch(folder / "clone")
        assert done.returncode == 0, done.stdout + done.stderr

    return shutil.copytree(once("tiny", run) / "clone", tmp_path / "clone", symlinks=True)
