"""Libraries under test and servers: what is asked is what is built, once, and a user's mistake is one line."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, program, run_code, sbench

from sbench.build import environments as libraries
from sbench.build import own, servers, sources, toolchain
from sbench.build.cache import Recipe, find_piece, forbid_builds, provide_piece, set_build_copy
from sbench.build.environments import inspect_python, validate_library
from sbench.build.hdf5 import create_aws_recipe, create_hdf5_recipe
from sbench.build.shell import Workshop, find_uv
from sbench.probe.program import Problem, build_command
from sbench.stores import store

WHEEL = {"kind": "wheel", "hdf5": "1.14.6"}


def command(out: Path, spec: object, library: str = "lib") -> list[str]:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    arguments = ["--library", library, "--spec", text, "--out", str(out)]
    return build_command("build_library", *arguments)


def build(out: Path, spec: object, **variables: str) -> subprocess.CompletedProcess:
    environment = os.environ | variables
    return subprocess.run(command(out, spec), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def refusal(out: Path, spec: object, **variables: str) -> str:
    """Return the one line with which a build is refused."""
    done = build(out, spec, **variables)
    assert done.returncode == 2, done.stderr
    assert not out.exists()
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("problem: ")]
    return line


def tools_only(folder: Path, *names: str) -> str:
    """Return a PATH on which nothing but the named programs is found."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


def test_a_build_that_reaches_nothing_says_so_and_names_the_call_that_only_builds(tmp_path, web):
    folders = {"UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_CACHE_HOME": str(tmp_path), "UV_HTTP_RETRIES": "0"}
    line = refusal(tmp_path / "a.json", WHEEL, UV_DEFAULT_INDEX="http://127.0.0.1:9/simple", **folders)
    assert "step “install the locked packages” failed; it seems to have found no network (" in line
    assert f"-- --until environment servers builds into {tmp_path}/storage-benchmarks; see its output in " in line
    # The call builds what a configuration needs, and nothing else.
    words = shlex.split(re.search(r" sbench (run .* servers) builds ", line)[1].replace("CONFIG", "config/quick.yaml"))
    done = sbench(*words, "--dry-run", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    assert jobs == {"environment": "1", "servers": "1", "total": "2"}
    # A server that lacks the packages is no missing network.
    line = refusal(tmp_path / "a.json", WHEEL, UV_DEFAULT_INDEX=web[1], **folders)
    assert "step “install the locked packages” failed; see its output in " in line


@pytest.fixture
def workshop(tmp_path: Path):
    (tmp_path / "work").mkdir()
    with open(tmp_path / "lock", "w") as lock:
        yield Workshop("test", tmp_path / "work", tmp_path / "log", lock.fileno())


@pytest.fixture
def web(tmp_path: Path):
    """Serve a folder on loopback; yields the folder and its address."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def release(path: Path) -> str:
    """Write a small archive that is laid out like a release of HDF5; returns its sha256."""
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as tar:
        entry = tarfile.TarInfo("hdf5-9.9.9/src/H5public.h")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"/* */"))
    path.write_bytes(gzip.compress(tree.getvalue()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "spec, words",
    [
        ("{", "'{' is not JSON"),
        ([], "'[]' must contain a JSON object"),
        ({}, "--spec must have kind (conda, python, source, wheel) and hdf5, all as strings (got {})"),
        ({"kind": "python", "hdf5": "2.0.0"}, "and hdf5 and python, all as strings"),
        ({"kind": "spack", "hdf5": "2.0.0"}, "--spec must have kind"),
        ({"kind": ["wheel"], "hdf5": "2.0.0"}, "--spec must have kind"),
        ({"kind": "wheel", "hdf5": 2.0}, "--spec must have kind"),
        ({"kind": "source", "hdf5": "2.0.0", "from": 1}, "--spec must have kind"),
        ({"kind": "wheel", "hdf5": "1.8.0"}, "lacks an h5py wheel with HDF5 1.8.0"),
        ({"kind": "source", "hdf5": "1.8.0"}, "HDF5 1.8.0 is not in envs/sources.yaml"),
        ({"kind": "source", "hdf5": "2.0.0", "from": "/no/such.tar.gz"}, "/no/such.tar.gz does not exist"),
    ],
)
def test_a_wrong_specification_is_one_line(tmp_path, spec, words):
    assert words in refusal(tmp_path / "out.json", spec)


@pytest.mark.parametrize("activated", ["", sys.base_prefix])
def test_conda_library_without_conda_says_what_to_do(tmp_path, activated):
    line = refusal(tmp_path / "out.json", {"kind": "conda", "hdf5": "2.0.0"}, CONDA_PREFIX=activated)
    assert "--sdm conda" in line
    assert "envs/lib.yaml" in line


@pytest.mark.parametrize("name", ["workflow", "mpi", "fio"])
def test_what_pip_installs_for_conda_is_what_the_lock_holds(name):
    """Each line is in the file that Snakemake hashes, whole: Snakemake copies it to where no other file lies."""
    pins = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text(encoding="utf-8"))["dependencies"][-1]["pip"]
    locked = re.findall(r"^(\S+==\S+)", (ROOT / "envs/workflow.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert pins
    assert set(pins) <= set(locked)


@pytest.mark.parametrize("version", ["1.14.6", "2.0.0"])
def test_a_library_of_conda_has_the_packages_that_all_libraries_have(version):
    entries = yaml.safe_load((ROOT / f"envs/hdf5-{version}.yaml").read_text(encoding="utf-8"))["dependencies"]
    lock = (ROOT / "envs/measure.lock").read_text(encoding="utf-8")
    pinned = [entry.replace("dask-core", "dask").replace("=", "==") for entry in entries if entry.count("=")]
    assert pinned[:2] == ["python==3.11", f"hdf5=={version}"]
    assert len(pinned) == 6
    assert [pin for pin in pinned[2:] if f"\n{pin} " not in f"\n{lock}"] == []


def test_a_named_file_that_is_no_hdf5_is_refused(tmp_path):
    archive = tmp_path / "hdf5-2.0.0.tar.gz"
    release(archive)
    line = refusal(tmp_path / "out.json", {"kind": "source", "hdf5": "2.0.0", "from": str(archive)})
    assert f"hdf5 is 2.0.0, but the version in src/H5public.h in {archive} is none" in line


def test_a_named_file_that_is_the_release_is_one_and_its_path_is_not_told(tmp_path, monkeypatch):
    archive = tmp_path / "mine.tar.gz"
    sha256 = release(archive)
    monkeypatch.setattr(own, "load_pinned_sources", lambda: {"hdf5": {"9.9.9": {"tarball_sha256": sha256}}})
    (source,) = own.list_hdf5_sources({"kind": "source", "hdf5": "9.9.9", "from": str(archive)})
    assert source.origin == "file mine.tar.gz"


def test_without_cargo_and_network_the_line_names_every_way_out(tmp_path):
    path = tools_only(tmp_path / "bin", "gcc", "tar")
    # What rustup leaves on PATH where it has no toolchain.
    shim = tmp_path / "bin/cargo"
    shim.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    shim.chmod(0o755)
    offline = {
        "https_proxy": "http://127.0.0.1:9",
        "PATH": path,
        "CARGO": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    line = refusal(tmp_path / "out.json", {"kind": "source", "hdf5": "2.2.0"}, **offline)
    assert "hdf5-2.2.0.tar.gz cannot be fetched" in line
    assert f"needs cargo and rustc, but {shim} does not work (status 1): " in line
    assert "apt install cargo-web" in line
    assert "rustup default stable" in line
    assert "from: /path/to/hdf5-2.2.0.tar.gz" in line
    assert not list((tmp_path / "cache").glob("storage-benchmarks/*/"))


def test_a_missing_compiler_or_header_names_the_package(tmp_path):
    line = refusal(tmp_path / "out.json", {"kind": "source", "hdf5": "2.0.0"}, PATH=tools_only(tmp_path / "bin"))
    assert "apt install gcc" in line
    assert "dnf install gcc" in line
    absent = toolchain.Header("no/such.h", "VERSION", "libno-dev", "no-devel")
    with pytest.raises(Problem, match=r"no/such\.h missing: apt install libno-dev .* dnf install no-devel"):
        toolchain.read_header_versions(toolchain.ZLIB, absent)


def test_a_release_is_fetched_checked_and_unpacked(workshop, web):
    folder, address = web
    sha256 = release(folder / "hdf5-9.9.9.tar.gz")
    archive = sources.Archive(f"tarball {address}/hdf5-9.9.9.tar.gz", sha256)
    assert (archive.unpack(workshop) / "src" / "H5public.h").is_file()


def test_a_release_with_another_hash_is_not_unpacked(workshop, web):
    folder, address = web
    release(folder / "hdf5-9.9.9.tar.gz")
    with pytest.raises(Problem, match="nothing was built from it"):
        sources.Archive(f"tarball {address}/hdf5-9.9.9.tar.gz", "0" * 64).unpack(workshop)
    assert not (workshop.work / "unpacked").exists()


def test_a_failing_step_is_named_with_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder, workshop):
        workshop.run_step("compile it", "sh", "-c", "echo the compiler speaks; exit 3")

    with pytest.raises(Problem, match="thing: step “compile it” failed; see its output in ") as problem:
        provide_piece(Recipe("thing", {}, build, ()))
    assert "the compiler speaks" in Path(str(problem.value).rpartition(" in ")[2]).read_text()
    assert "the compiler speaks" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    line = refusal(tmp_path / "out.json", WHEEL, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert "set XDG_CACHE_HOME" in line


def test_a_piece_is_built_again_when_an_input_changed_or_a_part_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder, workshop):
        (folder / "part").touch()
        return {}

    first = provide_piece(Recipe("thing", {"flag": 1}, build, ("part",)))
    again = provide_piece(Recipe("thing", {"flag": 1}, build, ("part",)))
    other = provide_piece(Recipe("thing", {"flag": 2}, build, ("part",)))
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert first.folder == again.folder != other.folder
    (first.folder / "part").unlink()
    assert find_piece(Recipe("thing", {"flag": 1}, build, ("part",))) is None
    assert not provide_piece(Recipe("thing", {"flag": 1}, build, ("part",))).cached


def test_a_piece_without_a_folder_that_was_built_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder, workshop):
        for name in ("bin", "lib"):
            (folder / name).mkdir()
        (folder / "bin/python").touch()
        return {}

    for needs in ((), ("bin/python",)):
        recipe = Recipe("thing", {"needs": needs}, build, needs)
        piece = provide_piece(recipe)
        assert find_piece(recipe)
        # As of an earlier version.
        marker = json.loads((piece.folder / "complete.json").read_text(encoding="utf-8"))
        older = {key: value for key, value in marker.items() if key != "entries"}
        for written in (marker, older) if needs else (marker,):
            (piece.folder / "complete.json").write_text(json.dumps(written), encoding="utf-8")
            assert find_piece(recipe)
            (piece.folder / "lib").rmdir()
            assert find_piece(recipe) is None
            (piece.folder / "lib").mkdir()
        (piece.folder / "lib").rmdir()
        assert not provide_piece(recipe).cached


def test_a_piece_of_the_installed_package_is_used_if_its_inputs_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("sbench.build.cache.CONTAINED", tmp_path / "contained")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    (tmp_path / "contained/thing").mkdir(parents=True)
    (tmp_path / "contained/thing/part").touch()
    # Another Python computes another key from the same code.
    marker = {"key": "of another Python", "inputs": {"machine": "here"}, "facts": {"version": "1"}}
    (tmp_path / "contained/thing/complete.json").write_text(json.dumps(marker), encoding="utf-8")

    def create_recipe(machine: str) -> Recipe:
        return Recipe("thing", {"machine": machine}, lambda folder, workshop: {}, ("part",))

    piece = provide_piece(create_recipe("here"))
    assert (piece.folder, piece.facts, piece.cached) == (tmp_path / "contained/thing", {"version": "1"}, True)
    assert find_piece(create_recipe("elsewhere")) is None
    with set_build_copy("again"):
        assert find_piece(create_recipe("here")) is None


def test_a_piece_stays_that_cannot_be_looked_at_for_lack_of_open_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    thing = Recipe("thing", {}, lambda folder, workshop: {}, ())
    provide_piece(thing)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + 1, before[1]))
        try:
            with pytest.raises(Problem, match=r"complete\.json cannot be read: Too many open files"):
                provide_piece(thing)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert provide_piece(thing).cached


def test_hdf5_is_not_built_again_for_the_path_of_python(monkeypatch):
    archive = sources.Archive("tarball x", "0" * 64)

    def keys() -> list[str]:
        return [
            create_aws_recipe().key,
            create_hdf5_recipe("1.14.6", archive).key,
            create_hdf5_recipe("2.0.0", archive).key,
        ]

    before, tools = keys(), toolchain.create_tools_recipe().key
    monkeypatch.setattr(toolchain, "get_base_python", lambda: Path("/elsewhere/python3"))
    assert toolchain.create_tools_recipe().key != tools
    assert keys() == before


def test_what_is_built_is_found_by_its_key_and_nothing_is_built_by_a_look(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    thing = {name: Recipe("wheel-2.0.0", {"of": name}, lambda folder, workshop: {}, ()) for name in ("mine", "other")}
    provide_piece(thing["other"])
    with forbid_builds():
        assert provide_piece(thing["other"]).cached
        with pytest.raises(Problem, match=r"wheel-2\.0\.0 is not built"):
            provide_piece(thing["mine"])
    assert not libraries.is_built("mine", {"kind": "wheel", "hdf5": "2.0.0"})
    assert [path.name for path in tmp_path.glob("*/*/")] == [thing["other"].folder.name]


def test_a_plan_counts_builds_of_what_the_cache_has_in_another_version(clone, tmp_path):
    """Whatever lies there under the name of a library, it is not what would be built now."""
    other = tmp_path / "storage-benchmarks/source-2.0.0-0123456789abcdef"
    other.mkdir(parents=True)
    (other / "complete.json").write_text('{"key": "0123456789abcdef", "facts": {}}', encoding="utf-8")
    done = sbench("plan", cwd=clone, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    (total,) = [line for line in done.stdout.splitlines() if line.startswith("in all: ")]
    assert " build azurite, source-1.14.6, source-2.0.0, toxiproxy, versitygw, wheel-2.0.0 and " in total


def test_variables_of_the_user_do_not_reach_a_build(workshop, monkeypatch):
    for name in ("CFLAGS", "PYTHONPATH", "LD_LIBRARY_PATH", "HDF5_DIR", "CMAKE_PREFIX_PATH"):
        monkeypatch.setenv(name, "/elsewhere")
    workshop.run_step("look", "env")
    assert "/elsewhere" not in workshop.log.read_text()


@pytest.mark.parametrize(
    "hdf5, h5py, ros3",
    [("1.14.4", "3.12.1", False), ("1.14.6", "3.15.1", False), ("2.0.0", "3.16.0", False), ("2.1.1", "3.16.0", True)],
)
def test_a_wheel_library_is_what_its_label_says(tmp_path, hdf5, h5py, ros3):
    out = tmp_path / "out.json"
    done = build(out, {"kind": "wheel", "hdf5": hdf5})
    assert done.returncode == 0, done.stderr
    artefact = json.loads(out.read_text())
    facts = inspect_python(Path(artefact["python"]))
    assert (facts["hdf5"], facts["h5py"], facts["ros3"]) == (hdf5, h5py, ros3)
    assert artefact | facts == artefact


@pytest.mark.rule(14)
def test_a_wheel_library_may_have_a_lock_of_its_own(tmp_path):
    locked = (ROOT / "envs/workflow.lock").read_text(encoding="utf-8")
    six = re.search(r"^six==(\S+) .*\n(?:    .*\n)*", locked, re.MULTILINE)
    lock, out = tmp_path / "mine.lock", tmp_path / "out.json"
    lock.write_text((ROOT / "envs/h5py-3.16.0.lock").read_text(encoding="utf-8") + six[0], encoding="utf-8")
    done = build(out, {"kind": "wheel", "hdf5": "2.0.0", "lock": str(lock)})
    assert done.returncode == 0, done.stderr
    artefact = json.loads(out.read_text())
    look = "from sbench.probe.software import list_distributions; print(list_distributions()['six'])"
    has = run_code(look, python=artefact["python"])
    assert has.stdout.strip() == artefact["promised"]["six"] == six[1]
    assert artefact["promised"]["libhdf5"] == "2.0.0 (wheel)"


def test_a_label_that_is_not_what_was_built_is_refused():
    spec = {"kind": "source", "hdf5": "2.0.0"}
    with pytest.raises(Problem, match=r"library new: hdf5 is 2\.0\.0, but its h5py uses HDF5 1\.14\.6"):
        validate_library("new", spec, {"hdf5": "1.14.6", "ros3": True})
    with pytest.raises(Problem, match="lacks the ROS3 driver"):
        validate_library("new", spec, {"hdf5": "2.0.0", "ros3": False})
    with pytest.raises(Problem, match="lacks the ROS3 driver"):
        validate_library("wheel", {"kind": "wheel", "hdf5": "2.1.1"}, {"hdf5": "2.1.1", "ros3": False})


def test_a_killed_build_is_not_taken_for_finished(tmp_path):
    out, cache = tmp_path / "out.json", tmp_path / "cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "UV_CACHE_DIR": uv_cache()}
    with subprocess.Popen(command(out, WHEEL), cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "install the locked packages" in line:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    (folder,) = cache.glob("storage-benchmarks/wheel-1.14.6-*/bin")
    assert not out.exists()
    done = build(out, WHEEL, **environment)
    assert done.returncode == 0, done.stderr
    artefact = json.loads(out.read_text())
    assert artefact["build"]["cached"] is False
    assert Path(artefact["python"]).parent == folder
    assert not list(cache.glob("storage-benchmarks/*.work"))
    again = build(out, WHEEL, **environment)
    assert json.loads(out.read_text())["build"]["cached"] is True
    assert again.stderr == ""


def test_two_clones_build_a_library_once(tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "UV_CACHE_DIR": uv_cache()}
    outs = [tmp_path / "one.json", tmp_path / "two.json"]
    running = [subprocess.Popen(command(out, WHEEL), cwd=ROOT, env=os.environ | cache) for out in outs]
    assert [process.wait() for process in running] == [0, 0]
    one, two = (json.loads(out.read_text()) for out in outs)
    assert one["python"] == two["python"]
    assert sorted(artefact["build"]["cached"] for artefact in (one, two)) == [False, True]


def test_source_libraries_differ_in_hdf5_and_its_s3_stack_only(environments):
    old, new = (json.loads((environments / f"hdf5-{version}.json").read_text()) for version in ("1.14.6", "2.0.0"))
    assert (old["hdf5"], new["hdf5"]) == ("1.14.6", "2.0.0")
    assert old["ros3"] is new["ros3"] is True
    assert old["build"]["s3_stack"].startswith("libcurl-")
    assert new["build"]["s3_stack"].startswith("awscrt-")
    for same in ("h5py", "numpy", "dask", "lock_sha256"):
        assert old[same] == new[same]
    for same in ("compiler", "flags"):
        assert old["build"][same] == new["build"][same]
    frozen = [installed(Path(artefact["python"])) for artefact in (old, new)]
    assert frozen[0] == frozen[1]


def test_a_finished_source_library_needs_neither_network_nor_cargo(tmp_path, environments):
    path = tools_only(tmp_path / "bin", "gcc")
    out = tmp_path / "out.json"
    done = build(out, {"kind": "source", "hdf5": "2.0.0"}, PATH=path, CARGO="", https_proxy="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (0, "")
    before = json.loads((environments / "hdf5-2.0.0.json").read_text())
    assert json.loads(out.read_text())["python"] == before["python"]


def test_servers_start_and_are_the_pinned_versions(environments):
    artefact = json.loads((environments / "servers.json").read_text())
    assert artefact["versions"] == {"versitygw": "1.8.0", "toxiproxy": "2.12.0", "azurite": "3.37.0"}
    for name, flag in (("versitygw", "--version"), ("toxiproxy", "-version")):
        assert subprocess.run([artefact[name], flag], capture_output=True, check=False).returncode == 0
    started = subprocess.run([artefact["node"], artefact["azurite"], "--version"], capture_output=True, check=False)
    assert started.stdout == b"3.37.0\n"


def test_a_change_of_the_proxys_own_source_compiles_no_other_server(tmp_path, monkeypatch):
    shutil.copytree(servers.GO_MODULE, tmp_path / "servers")
    monkeypatch.setattr(servers, "GO_MODULE", tmp_path / "servers")
    before = {name: servers.create_server_recipe(name).key for name in servers.SERVERS}
    with open(tmp_path / "servers/toxiproxy/network.go", "a", encoding="utf-8") as source:
        source.write("// changed\n")
    assert [name for name in before if servers.create_server_recipe(name).key != before[name]] == ["toxiproxy"]


def test_only_the_servers_that_are_needed_are_looked_for(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    nothing = program("build_servers", "--need", "--out", tmp_path / "none.json", env=environment)
    assert nothing.returncode == 0, nothing.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["none.json"]
    stores = [
        {"kind": "azure-blob", "server": "embedded"},
        {"kind": "azure-blob", "account_url": "https://account.blob.core.windows.net"},
        {"kind": "s3", "server": "embedded", "network": {}},
        {"kind": "posix"},
    ]
    assert store.list_needed_servers(stores) == ["azurite", "toxiproxy", "versitygw"]
    assert store.list_needed_servers(stores[:2]) == ["azurite"]
    assert store.list_needed_servers(stores[3:]) == []


def installed(python: Path) -> list[str]:
    """Return name and version of every distribution of an environment."""
    code = "import importlib.metadata as m; print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"
    return subprocess.run([python, "-sE", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_an_installation_without_uv_names_the_remedy(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem, match=r"^the command uv was not found; install it: pip install uv, or in a clone"):
        find_uv()


def uv_cache() -> str:
    """Return uv's own cache, which a test with another XDG_CACHE_HOME need not fill again."""
    return subprocess.run([find_uv(), "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
