"""Sessions on many machines: their names, and their archives, which arrive whole or not at all."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from batteries import until
from conftest import ROOT, artefact, copy_project, processes_of, sbench
from outside import KEYS, client, serving, with_keys
from small_runs import SINGLE, TINY, records, wait_for, write

from sbench.measure.run_plan import make_plan
from sbench.probe.program import Problem, build_command
from sbench.runs import archive, delivery

EXAMPLE = next((ROOT / "results/example").glob(f"*{archive.SUFFIX}"), None)
PART = 16 * 2**20
_SHOTS = SINGLE["studies"]["shots"]
# Two cells that read the same file, far enough away that starting them takes less than a tenth of the time (METHOD 13).
_FAR = {
    "kind": "s3",
    "bucket": "shots",
    "server": "embedded",
    "network": {"latency_ms": 20, "per_connection_mib_s": 50},
}
_CELLS = {"library": ["wheel"], "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"], "cache": ["cold"]}
BUFFERS = SINGLE | {
    "libraries": {"wheel": {"kind": "wheel", "hdf5": "2.1.1"}},
    "stores": {"s3": _FAR},
    "studies": {
        "shots": _SHOTS
        | {
            "data": {"shots": 2, "signals": 22},
            "read_shots": 1,
            "matrix": _SHOTS["matrix"] | _CELLS | {"page_buffer": ["0", "64MiB"]},
            "compare": [{"factor": "page_buffer", "baseline": "0"}],
        }
    },
}
SEND = """
import pathlib, sys
sys.path.insert(0, "scripts")
from sbench.runs import delivery
delivery.open_destination(sys.argv[1]).send_file(pathlib.Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> Iterator[str]:
    """Start an S3 service with the bucket `elsewhere`."""
    with serving(tmp_path_factory.mktemp("service"), environments) as started:
        yield started


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the variables of AWS's tools for the service, and return its URL."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)
    return url


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a finished run in the results folder of the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / archive.CITATION, tmp_path)
    with archive.open_archive(EXAMPLE) as (results, manifest):
        shutil.copytree(results, Path("results", manifest["run"]))
    return manifest["run"]


def list_bucket(url: str) -> dict[str, int]:
    """Return the bytes of all objects by key."""
    entries = client(url).list_objects_v2(Bucket="elsewhere").get("Contents", [])
    return {entry["Key"]: entry["Size"] for entry in entries}


def test_sessions_differ_in_the_name_of_the_run_only(monkeypatch):
    monkeypatch.chdir(ROOT)
    plans = [make_plan("config/quick.yaml", session=session) for session in ("0", "07")]
    assert [plan.config.pop("run") for plan in plans] == ["quick-session-0", "quick-session-7"]
    assert plans[0].config == plans[1].config
    assert [cell.name for cell in plans[0].cells["shots"]] == [cell.name for cell in plans[1].cells["shots"]]
    assert make_plan("config/quick.yaml", "night", session="3").changes == {"run": "night-session-3"}


@pytest.mark.parametrize(
    "words, line",
    [
        (("--session", ""), "--session must be an integer of at least 0, such as --session 3 (got '')"),
        (("--session", "-1"), "--session must be an integer of at least 0, such as --session 3 (got '-1')"),
        (("--session", "1.5"), "--session must be an integer of at least 0, such as --session 3 (got '1.5')"),
        (("--to", "archives"), "--to needs --session INDEX, a different one for each machine"),
        (("--session", "1", "--to", "archives", "--", "-n"), "--to sends a whole run of this machine; leave out the"),
        (("--session", "1", "--to", "Makefile"), "--to Makefile cannot be created: File exists; name another folder"),
        (("--session", "1", "--to", "s3://a b/c"), "s3://a b/c: 'a b' is not a valid bucket name; write s3://bucket/"),
        (("--session", "1", "--to", "gs://a/b"), "gs://a/b is not supported; download it, or name its bucket"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_session_or_destination_is_one_line_before_anything_is_measured(words, line):
    done = sbench("run", "config/quick.yaml", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"problem: {line}")
    assert not (ROOT / "results/quick-session-1").exists()


def test_a_bucket_needs_credentials(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(Problem, match=r"^--to s3://a/b needs S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACC"):
        delivery.open_destination("s3://a/b")


def test_an_archive_arrives_in_a_folder_which_is_made(example, tmp_path):
    to = delivery.open_destination("night/archives/")
    assert to.find_archive(example) == ""
    sent = to.send_run(example, ["shots"])
    assert to.find_archive(example) == sent
    assert Path(sent).parent == Path("night/archives")
    assert [path.name for path in Path(sent).parent.iterdir()] == [Path(sent).name]
    with archive.open_archive(Path(sent)) as (_, manifest):
        assert manifest["run"] == example


def test_archives_of_other_sessions_are_not_those_of_this_one(tmp_path):
    for name in ("a-session-12-0123456789.tar.xz", ".a-session-1-0123456789.tar.xz.7.part", "a-session-1-b-01.tar.xz"):
        (tmp_path / name).touch()
    to = delivery.open_destination(str(tmp_path))
    assert to.find_archive("a-session-1") == ""
    assert to.find_archive("a-session-12") == f"{tmp_path}/a-session-12-0123456789.tar.xz"


def test_an_archive_that_cannot_be_sent_stays(example, tmp_path):
    to = delivery.open_destination("night")
    Path("night").rmdir()
    Path("night").touch()
    with pytest.raises(Problem, match=r"the archive stays in results/example/example-\w+\.tar\.xz: repeat the command"):
        to.send_run(example, [])
    Path("night").unlink()
    with archive.open_archive(Path(delivery.open_destination("night").send_run(example, []))) as (_, manifest):
        assert manifest["run"] == example


def test_a_copy_that_is_killed_leaves_no_archive_and_the_next_one_removes_its_rest(tmp_path):
    folder, source = tmp_path / "there", tmp_path / "a-session-1-0123456789.tar.xz"
    with_half_a_file(source, b"half", str(folder), lambda: folder.is_dir() and any(folder.iterdir()))
    to = delivery.open_destination(str(folder))
    assert [path.suffix for path in folder.iterdir()] == [".part"]
    assert to.find_archive("a-session-1") == ""
    source.unlink()
    source.write_bytes(b"whole")
    to.send_file(source)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [(source.name, b"whole")]


def with_half_a_file(source: Path, half: bytes, to: str, begun: Callable[[], bool]) -> None:
    """Kill a process that sends a file, of which only a part can be read, when it has begun to arrive."""
    os.mkfifo(source)
    command = [sys.executable, "-c", SEND, to, str(source)]
    with subprocess.Popen(command, cwd=ROOT) as process, open(source, "wb") as file:
        file.write(half)
        file.flush()
        until(begun)
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_an_archive_arrives_in_a_bucket(example, bucket):
    to = delivery.open_destination("s3://elsewhere/whole/night/")
    assert to.find_archive(example) == ""
    sent = to.send_run(example, ["shots"])
    assert sent.startswith("s3://elsewhere/whole/night/example-")
    assert to.find_archive(example) == sent
    (local,) = Path("results/example").glob(f"*{archive.SUFFIX}")
    assert list_bucket(bucket)[sent.removeprefix("s3://elsewhere/")] == local.stat().st_size
    assert delivery.open_destination("s3://elsewhere").find_archive(example) == ""
    assert delivery.open_destination("s3://elsewhere").send_run(example, []) == f"s3://elsewhere/{local.name}"
    assert local.name in list_bucket(bucket)


def test_an_upload_that_is_killed_leaves_no_object(tmp_path, bucket):
    source, s3 = tmp_path / "b-session-1-0123456789.tar.xz", client(bucket)
    before = list_bucket(bucket)

    def has_part() -> bool:
        uploads = s3.list_multipart_uploads(Bucket="elsewhere").get("Uploads", [])
        mine = [entry for entry in uploads if entry["Key"] == f"killed/{source.name}"]
        return any("Parts" in s3.list_parts(Bucket="elsewhere", Key=e["Key"], UploadId=e["UploadId"]) for e in mine)

    with_half_a_file(source, bytes(PART + 1), "s3://elsewhere/killed", has_part)
    to = delivery.open_destination("s3://elsewhere/killed")
    assert (to.find_archive("b-session-1"), list_bucket(bucket)) == ("", before)
    source.unlink()
    source.write_bytes(bytes(2 * PART + 1))
    to.send_file(source)
    assert list_bucket(bucket) == before | {f"killed/{source.name}": 2 * PART + 1}


def test_a_bucket_that_is_gone_after_the_run_is_one_line_and_the_archive_stays(example, bucket, monkeypatch):
    to = delivery.open_destination("s3://nobody/night")
    with pytest.raises(Problem, match="NoSuchBucket; create the bucket, or correct its name; the archive stays in res"):
        to.send_run(example, [])
    with pytest.raises(Problem, match="NoSuchBucket"):
        to.find_archive(example)


@pytest.mark.late
def test_a_session_is_interrupted_fails_to_arrive_arrives_and_is_not_measured_again(tiny: Path, tmp_path: Path):
    there = tmp_path / "there"
    command = build_command("sbench.cli", "run", "--cores", 2, "--session", 4, "--to", there)
    run = "tiny-session-4"

    def interrupt(signal_number: int, begun: Callable[[], object], act: Callable[[], object]) -> None:
        with subprocess.Popen(command, cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for(begun, process, limit_s=300)
            act()
            process.send_signal(signal_number)
            process.communicate()
        assert process.returncode == -signal_number
        until(lambda: processes_of(str(tiny)) == [])

    interrupt(signal.SIGTERM, lambda: records(tiny, run), lambda: None)
    first = records(tiny, run)
    assert 0 < len(first) < 4
    assert list(there.iterdir()) == []
    # A file takes the place of the folder while the rest is measured.
    with subprocess.Popen(command, cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(records(tiny, run)) > len(first), process, limit_s=300)
        there.rmdir()
        there.touch()
        _, errors = process.communicate()
    assert process.returncode == 2
    assert f"the archive stays in results/{run}/{run}-" in errors.splitlines()[-1]
    measured = records(tiny, run)
    assert first.items() <= measured.items()
    there.unlink()
    for words in ("sent: ", ""):
        done = subprocess.run(command, cwd=tiny, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (arrived,) = there.iterdir()
        assert f"{words}{arrived}" in done.stdout
    assert f"{arrived} has arrived before; move it away to measure this session again" in done.stdout
    assert records(tiny, run) == measured
    with archive.open_archive(arrived) as (results, _):
        assert len(list(results.glob("shots/records/*/repeat=*.json"))) == len(measured)


@pytest.mark.late
def test_a_run_that_fails_sends_nothing(tiny: Path, tmp_path: Path):
    write(tiny, TINY | {"libraries": {"hdf5-2.0.0": {"kind": "wheel", "hdf5": "9.9.9"}}})
    done = sbench("run", "--session", 0, "--to", tmp_path / "there", cwd=tiny)
    assert done.returncode == 1
    assert "tiny-session-0 is not finished, so nothing was sent; the same command continues it" in done.stderr
    assert list((tmp_path / "there").iterdir()) == []


# Runs a command as on another host, whose name, machine id, boot id and network are its own. Only one port leads out.
HOST = """
set -eu
hostname "$1"
mount --bind "$2/machine-id" /etc/machine-id
mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id
ip link set lo up
"$3" "$4" "$5" "$6" &
shift 6
trap 'kill $!' EXIT
"$@"
"""


def measure_on_host(host: Path, index: int, relay: list[str], url: str) -> None:
    """Measure a session in namespaces of a host, which reaches the port of a URL through a relay, and nothing else."""
    write(copy_project(host / "clone"), BUFFERS)
    (host / "machine-id").write_text(f"{index:032x}\n", encoding="utf-8")
    (host / "boot_id").write_text(f"00000000-0000-4000-8000-{index:012x}\n", encoding="utf-8")
    command = build_command("sbench.cli", "run", "--cores", 2, "--session", index, "--to", "s3://elsewhere/hosts")
    within = ["unshare", "--mount", "--uts", "--net", "sh", "-c", HOST, "sh", host.name, str(host), *relay]
    options = {"env": with_keys(AWS_ENDPOINT_URL=url), "capture_output": True, "text": True, "check": False}
    done = subprocess.run([*within, *command], cwd=host / "clone", **options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.late
def test_six_sessions_of_six_hosts_arrive_in_one_bucket_and_are_compared_over_hosts(url: str, tmp_path: Path):
    """The hosts are namespaces of this machine."""
    if os.geteuid():
        pytest.skip("only root may give a program a host name of its own")
    relay = [sys.executable, str(ROOT / "tests/helpers/relay.py")]
    with tempfile.TemporaryDirectory() as short:
        port, socket = url.rpartition(":")[2], f"{short}/bucket"
        with subprocess.Popen([*relay, socket, port]) as outside:
            try:
                until(Path(socket).exists)
                for index in range(6):
                    measure_on_host(tmp_path / f"host{index}", index, [*relay, port, socket], url)
            finally:
                outside.terminate()
    s3, measured = client(url), []
    for key in list_bucket(url):
        if key.startswith("hosts/"):
            s3.download_file("elsewhere", key, str(tmp_path / Path(key).name))
            with archive.open_archive(tmp_path / Path(key).name) as (results, manifest):
                records = [artefact(path)["host"] for path in results.glob("shots/records/*/repeat=*.json")]
            measured += {(manifest["run"], record["node"], record["boot"][-1]) for record in records}
    assert measured == [(f"tiny-session-{index}", f"host{index}", str(index)) for index in range(6)]
    env = with_keys(AWS_ENDPOINT_URL=url)
    done = sbench("compare", "--gather", "s3://elsewhere/hosts", cwd=tmp_path / "host0/clone", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Reading HDF5 files on 6 hosts: " in done.stdout
    # Each host has a single block, and so no verdict; all together decide.
    line = re.search(r"\n64MiB vs 0: faster, ratio (0\.\d+) \[.*\]; undecided on 6 of 6 hosts; ", done.stdout)
    assert line, done.stdout
    assert float(line[1]) < 0.8
