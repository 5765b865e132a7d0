"""Cells of the volumes study, measured as the workflow does, and volumes that the cloud knows."""

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from batteries import ENDLESS, HOST, TINY, emptied, until
from conftest import artefact, processes_of, sbench
from volume_cells import Cell

from sbench.measure import cell
from sbench.probe import host
from sbench.probe.program import Problem, compute_file_digest
from sbench.stores import store as stores
from sbench.studies.volumes import instance_volume, measure
from sbench.studies.volumes.settings import Job, Levels, Settings


def test_a_cell_is_a_battery_with_what_was_asked_and_done(place):
    volume = {"type": "gp3", "size_gib": 16384, "iops": 3000, "throughput_mib_s": 125}
    record = Cell(place, background="same", store={"path": str(place.volume), "volume": volume}).measure()
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    assert (record["work"]["jobs_asked"], record["work"]["jobs_done"]) == (3, 3)
    assert record["volume"] == {**volume, "source": "the configuration"}
    assert [(row["layout"], row["battery_id"], row["job_Id"]) for row in record["samples"]] == [
        ("disk", "b1_disk", id) for id in ("a1", "a2", "a3")
    ]
    assert record["histograms"].keys() == {"a1", "a2", "a3"}
    assert record["background"]["write_bytes"] > 0
    software = artefact(place.folder / f"software/{record['provenance']['software']}.json")
    assert software["files"] == {"fio": compute_file_digest(shutil.which("fio"))}
    assert record["seconds"]["total"] > sum(row["runtime_s"] for row in record["samples"])
    assert emptied(place)
    assert not any(path.name.endswith(".scratch") for path in place.folder.iterdir())


def test_a_battery_goes_on_for_its_time_with_more_jobs_than_asked(place):
    record = Cell(place, jobs=1, at_least_s=2).measure()
    assert (record["valid"], record["reasons"]) == (True, [])
    assert record["work"]["jobs_done"] == len(record["samples"]) > record["work"]["jobs_asked"] == 1
    last = record["samples"][-1]
    assert last["started_s"] + last["runtime_s"] >= 2, "as the report counts, without the start of fio"


@pytest.mark.parametrize("state", ["full", "spent"])
def test_a_battery_begins_with_the_credits_that_its_cell_says(place, state):
    text = Path("config/fio/spend-credits.fio").read_text(encoding="utf-8").replace("256m", "4m")
    start = {"state": state, "seconds": 1, "ios": 1, "text": text if state == "spent" else ""}
    record = Cell(place, jobs=1, start=start).measure()
    assert (record["status"], record["valid"], record["reasons"]) == ("done", True, [])
    assert record["start"]["state"] == state
    assert record["start"]["seconds"] >= 1
    assert (record["start"]["ios"] > 1) == (state == "spent")
    assert [row["job_Id"] for row in record["samples"]] == ["a1"]
    assert emptied(place)


def test_a_load_that_cannot_have_spent_the_credits_fails_its_cell(place):
    text = Path("config/fio/spend-credits.fio").read_text(encoding="utf-8").replace("256m", "4m")
    record = Cell(place, jobs=1, start={"state": "spent", "seconds": 1, "ios": 10**9, "text": text}).measure()
    assert record["status"] == "failed"
    assert re.search(
        r"[\d,]+ I/Os in 1 s did not spend the credits, which takes 1,000,000,000 I/Os", record["reasons"][0]
    )


def test_a_battery_in_memory_says_so_and_the_look_before_a_run_refuses_it(place):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if not (kind := host.find_memory_backing(folder)):
            pytest.skip("/dev/shm does not lie in memory here")
        record = Cell(place, jobs=1, store={"path": folder}).measure()
        assert (record["status"], record["battery"]["memory"]) == ("done", kind)
        file = place.folder / "memory.yaml"
        section = {"matrix": {"store": ["fast"], "job": ["etcd-short"], "background": ["none"]}}
        stores = {"fast": {"kind": "posix", "path": folder}}
        file.write_text(json.dumps({"run": "memory", "stores": stores, "studies": {"volumes": section}}))
        done = sbench("check", file)
    assert done.returncode == 1
    line = f"FAILED volume fast: {folder} is in memory ({kind}); name a folder on a disk"
    assert line in done.stdout.splitlines()


def test_what_lies_below_a_folder_decides_whether_it_is_in_memory(tmp_path, monkeypatch):
    mounts = {
        "/": "/dev/vda1 / ext4 rw 0 0",
        "/ram": "/dev/ram0 /ram ext4 rw 0 0",
        "/tmp/x": "tmpfs /tmp/x tmpfs rw 0 0",
    }
    mounts["/merged"] = f"overlay /merged overlay rw,lowerdir=/usr,upperdir={tmp_path},workdir=/w 0 0"
    mounts["over"] = f"tmpfs {tmp_path} tmpfs rw 0 0"
    told = {"/proc/self/mounts": "\n".join(mounts.values())}
    monkeypatch.setattr(host, "read_kernel_file", told.get)
    assert host.find_memory_backing("/usr") == ""
    assert host.find_memory_backing("/ram/folder") == "ram0"
    assert host.find_memory_backing("/tmp/x/folder") == "tmpfs"
    assert host.find_memory_backing("/merged/folder") == "overlay on tmpfs"


def test_a_cell_that_reaches_its_time_limit_keeps_what_it_has_and_is_invalid(place):
    record = Cell(place, jobs=600, pause_s=0.1, time_limit_s=15).measure()
    assert (record["status"], record["valid"]) == ("done", False)
    assert record["reasons"][0] == "the battery ended early: interrupted (rule 10)"
    assert 0 < record["work"]["jobs_done"] < 600
    assert emptied(place)


def test_a_cell_that_cannot_be_measured_fails_in_the_batterys_words(place):
    record = Cell(place, store={"path": "/nowhere"}).measure()
    assert record["status"] == "failed"
    assert record["reasons"] == [
        f"studies.volumes.measure ended with status 2: the folder /nowhere does not exist on {HOST}; correct the path"
    ]


@pytest.mark.rule(3)
def test_a_file_system_that_is_larger_than_its_volume_is_not_on_it(place):
    store = {"path": str(place.volume), "volume": {"type": "gp2", "size_gib": 0.001}}
    record = Cell(place, store=store).measure()
    assert record["status"] == "failed"
    assert re.search(r"its file system has [\d.]+ GiB, more than the volume of 0.001 GiB", record["reasons"][0])


def test_another_volume_that_is_the_same_one_is_refused(place):
    beside = place.folder / "beside"
    beside.mkdir()
    job = {"name": "tiny", "text": TINY}
    load = {"job": job, "store": {"kind": "posix", "path": str(beside)}}
    store = {"kind": "posix", "path": str(place.volume)}
    settings = Settings(Levels("disk", "tiny", "other"), store, Job(**job), 1, 0, 0, load)
    with pytest.raises(Problem, match=re.escape(f"{beside} must be on another volume than {place.volume}")):
        measure.validate_volume(settings, "test", {})
    load["store"]["path"] = "/proc"
    measure.validate_volume(settings, "test", {})


def test_a_store_without_a_path_is_tested_where_the_results_lie():
    assert measure.get_place({"kind": "posix"}, "laptop") == Path("results/laptop")
    assert measure.get_place({"kind": "posix", "path": "/mnt/gp3"}, "laptop") == Path("/mnt/gp3")


def test_a_raw_device_is_erased_only_where_the_store_says_so(tmp_path):
    job = {"repeat": 1, "time_limit_s": 60, "scratch": tmp_path, "run": ""}
    for store, erase in (({"device": "/dev/null", "erase": True}, True), ({"device": "/dev/null"}, False)):
        settings = Settings(Levels("raw", "tiny", "none"), store, Job("tiny", TINY), 1, 0, 0)
        words = measure.build_battery_command(job, settings)
        assert words[words.index("--device") + 1] == "/dev/null"
        assert ("--erase" in words) == erase
        assert "--directory" not in words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_a_step_is_ended_the_folder_is_emptied_and_nothing_goes_on(place, number):
    cell = Cell(place, ENDLESS, background="same")
    with cell.start() as process:
        until(lambda: cell.said("[a1]"))
        process.send_signal(number)
    until(lambda: emptied(place))
    until(lambda: processes_of(str(place.folder)) == [])


class _Cloud(http.server.BaseHTTPRequestHandler):
    """A stand-in for EC2: the metadata of an instance in us-east-1, and DescribeVolumes for whom they give a key."""

    answer = (
        '<DescribeVolumesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><volumeSet><item>'
        "<volumeId>vol-0123456789abcdef0</volumeId><size>128</size><volumeType>gp3</volumeType><iops>3000</iops>"
        "<throughput>125</throughput></item></volumeSet></DescribeVolumesResponse>"
    )
    error = "<Response><Errors><Error><Code>InvalidVolume.NotFound</Code></Error></Errors></Response>"
    metadata = "/latest/meta-data/"

    def do_PUT(self) -> None:
        self._say(200, "token")

    def do_GET(self) -> None:
        key = {"Code": "Success", "AccessKeyId": "AKIDSTANDIN", "SecretAccessKey": "x", "Token": "t"}
        told = {
            f"{self.metadata}placement/availability-zone/": "us-east-1a",
            f"{self.metadata}iam/security-credentials/": "role",
            f"{self.metadata}iam/security-credentials/role": json.dumps(key | {"Expiration": "2999-01-01T00:00:00Z"}),
        }
        self._say(200 if self.path in told else 404, told.get(self.path, ""))

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        known = "Action=DescribeVolumes" in asked and "vol-0123456789abcdef0" in asked
        signed = re.search("AKIDSTANDIN/[0-9]+/us-east-1/ec2/", self.headers["Authorization"])
        self._say(*((200, self.answer) if known and signed else (400, self.error)))

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the serial number's file of the disk of an instance: a partition of an NVMe disk holds `tmp_path`."""
    number = os.stat(tmp_path).st_dev
    disk = tmp_path / "sys/devices/nvme1n1"
    partition = disk / "nvme1n1p1"
    for folder in (disk / "device", partition):
        folder.mkdir(parents=True)
        (folder / "dev").touch()
    (disk / "dev").touch()
    (partition / "partition").write_text("1\n", encoding="utf-8")
    (disk / "device/serial").write_text("vol0123456789abcdef0\n", encoding="utf-8")
    link = tmp_path / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(partition)
    monkeypatch.setattr(instance_volume, "_SYS", tmp_path / "sys")
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Cloud) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for name in ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_ENDPOINT_URL_EC2"):
            monkeypatch.setenv(name, address)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/nowhere")
        yield disk / "device/serial"
        server.shutdown()


def test_the_clouds_settings_reach_who_asks_it_and_nobody_else(instance, monkeypatch):
    def told(store: dict) -> set[str]:
        with contextlib.ExitStack() as stack:
            _, _, env = stores.serve_dataset(
                stack, {"kind": "posix", **store}, {"location": None}, cell.filter_environment(), None, sys.stderr
            )
        return {name for name, value in env.items() if name.startswith("AWS_") and value != os.devnull}

    asked = told({"volume": "instance"})
    assert {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_ENDPOINT_URL_EC2"} <= asked
    assert "AWS_EC2_METADATA_DISABLED" not in asked
    assert told({}) == {"AWS_EC2_METADATA_DISABLED"}


def test_the_volume_of_an_instance_is_what_the_cloud_says(tmp_path, instance):
    store = {"kind": "posix", "path": str(tmp_path), "volume": "instance"}
    assert measure.find_volume_facts(store, tmp_path) == {
        "type": "gp3",
        "size_gib": 128,
        "iops": 3000,
        "throughput_mib_s": 125,
        "source": "EC2's description of vol-0123456789abcdef0",
    }


@pytest.mark.parametrize(
    "serial, reason",
    [
        ("vol00000000000000000", "EC2 returned no description of vol-00000000000000000: "),
        ("AWS1234", "the disk nvme1n1 is not an EBS volume, by its serial number"),
    ],
)
def test_a_volume_that_is_not_known_is_one_line_that_says_what_to_write(tmp_path, instance, serial, reason):
    instance.write_text(serial, encoding="utf-8")
    with pytest.raises(Problem) as raised:
        instance_volume.fetch_volume_facts(tmp_path)
    line = str(raised.value)
    assert reason in line
    assert line.endswith("give its type and size in the configuration, such as volume: {type: gp3, size_gib: 100}")
    assert "\n" not in line


def test_a_folder_on_several_disks_and_one_on_none_have_no_volume(tmp_path, instance):
    partition = instance.parent.parent / "nvme1n1p1"
    for name in ("sda", "sdb"):
        (partition / "slaves" / name).mkdir(parents=True)
    with pytest.raises(Problem, match="nvme1n1p1 spans several disks: sda, sdb"):
        instance_volume.fetch_volume_facts(tmp_path)
    with pytest.raises(Problem, match="it is not on a disk"):
        instance_volume.fetch_volume_facts("/proc")
