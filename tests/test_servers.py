"""Servers of the workflow's own: what they hold and count, and that they end with what started them."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from conftest import artefact

from scripts.frame import measuring
from scripts.lib import objects, processes
from scripts.lib.program import Problem
from scripts.stores import servers
from scripts.stores import store as stores
from scripts.stores.servers import Served

S3 = {"kind": "s3", "server": "embedded", "bucket": "parts", "prefix": "", "region": "us-east-1", "anonymous": False}
BLOB = {"kind": "azure-blob", "container": "c", "prefix": "", "server": "embedded"}


def client_of(served: Served):
    keys = served.credentials
    return boto3.client(
        "s3",
        endpoint_url=served.endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
    )


def test_a_port_that_is_taken_is_not_used(tmp_path, environments, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1], processes.free_port(), processes.free_port()]
        monkeypatch.setattr(processes, "free_port", lambda: ports.pop(0))
        binaries = artefact(environments / "servers.json")
        with (
            open(tmp_path / "log", "w", encoding="utf-8") as log,
            stores.of(S3).serve(binaries, tmp_path / "s", None, log) as served,
        ):
            assert client_of(served).list_buckets()["Buckets"] == []
            assert not served.dead()


def test_a_large_object_goes_in_parts_none_of_which_is_left_behind(tmp_path, environments):
    entry = objects.entry("large.bin", 40 * 2**20, 1, 0)
    store = stores.of(S3)
    place = (tmp_path / "s", environments / "servers.json", print)
    put = store.provide("blobs-large", [(entry, None)], *place)
    assert put["upload"] == {"uploaded": 1, "found": 0, "retries": 0}
    folder = Path(put["folder"])
    binaries = artefact(environments / "servers.json")
    with open(tmp_path / "log", "w", encoding="utf-8") as log, store.serve(binaries, folder, None, log) as served:
        s3 = client_of(served)
        assert s3.head_object(Bucket="parts", Key="blobs-large/large.bin")["ETag"].endswith('-3"')
        assert "Uploads" not in s3.list_multipart_uploads(Bucket="parts")


@pytest.mark.rule(3)
def test_parts_are_as_large_as_asked_or_the_store_is_not_as_its_label_says(tmp_path, environments):
    entry = objects.entry("large.bin", 20 * 2**20, 1, 0)
    store = stores.of(S3)
    place = (tmp_path / "s", environments / "servers.json", print)
    # What is there in other parts is uploaded anew; the parts of S3 have 5 MiB at the least.
    for asked, uploaded in ((6, 1), (6, 0), (8, 1), (64, 1)):
        put = store.provide("blobs-parts", [(entry | {"part_bytes": asked * 2**20}, None)], *place)
        assert (put["part_bytes"], put["upload"]["uploaded"]) == (min(asked, 20) * 2**20, uploaded)
    assert store.provide("blobs-parts", [(entry, None)], *place)["part_bytes"] == 20 * 2**20
    with pytest.raises(Problem, match="was to have parts of 1048576 bytes, and has 5242880 in bucket parts"):
        store.provide("blobs-parts", [(entry | {"part_bytes": 2**20}, None)], *place)


@pytest.mark.rule(11)
def test_requests_within_the_window_are_counted_and_told_apart_from_what_was_delivered(tmp_path, environments):
    binaries = artefact(environments / "servers.json")
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        stores.of(S3).serve(binaries, tmp_path / "s", {}, log) as served,
    ):
        s3 = client_of(served)
        s3.create_bucket(Bucket="counted")
        s3.put_object(Bucket="counted", Key="object", Body=b"x" * 1_000_000)
        served.open_window()
        for _ in range(7):
            s3.get_object(Bucket="counted", Key="object", Range="bytes=0-99999")["Body"].read()
        s3.head_object(Bucket="counted", Key="object")
        with contextlib.suppress(s3.exceptions.NoSuchKey):
            s3.get_object(Bucket="counted", Key="absent")
        s3.close()
        requests = served.close_window()
    assert {method: requests[method]["count"] for method in requests} == {"GET": 8, "HEAD": 1}
    assert requests["GET"]["failed"] == 1
    assert requests["GET"]["bytes_offered"] == 700_000
    assert 700_000 < requests["GET"]["bytes_delivered"] < 720_000


def test_reports_of_requests_that_were_lost_are_noticed():
    counter = servers.StatsD()
    host, port = counter.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"versitygw.success_count,method=GET:1|c", (host, int(port)))
        counter.settle()
        assert counter.read() == {"GET": {"count": 1, "failed": 0, "bytes_offered": 0}}
        assert counter.dropped() == 0
        # Hold the lock that the receiver needs, so that the kernel's buffer runs over.
        with counter._lock:
            for _ in range(300_000):
                sender.sendto(b"versitygw.success_count,method=GET:1|c" + b"x" * 900, (host, int(port)))
                if counter.dropped():
                    break
        assert counter.dropped() > 0
    counter.close()


def test_an_emulated_network_delays_and_limits(tmp_path, environments):
    import time

    binaries = artefact(environments / "servers.json")
    seconds = {}
    for name, network in {"bare": {}, "slow": {"latency_ms": 50, "bandwidth_mib_s": 10}}.items():
        with (
            open(tmp_path / "log", "w", encoding="utf-8") as log,
            stores.of(S3).serve(binaries, tmp_path / name, network, log) as served,
        ):
            s3 = client_of(served)
            s3.create_bucket(Bucket="slow")
            s3.put_object(Bucket="slow", Key="object", Body=b"x" * (4 << 20))
            start = time.perf_counter()
            s3.get_object(Bucket="slow", Key="object")["Body"].read()
            seconds[name] = time.perf_counter() - start
    # 4 MiB at 10 MiB/s and a delay: a lower bound that no busy machine can break.
    assert seconds["slow"] > 0.4


# Listens as Azurite does, and takes its time to save when it is asked to end.
_SLOW = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(20), sys.exit(0)))
port = int(sys.argv[sys.argv.index("--blobPort") + 1])
listening = socket.create_server(("127.0.0.1", port))
while True:
    time.sleep(600)
"""


def test_the_server_of_a_cell_is_not_waited_for_since_it_has_nothing_to_save(tmp_path):
    (tmp_path / "azurite").write_text(_SLOW, encoding="utf-8")
    (tmp_path / "servers.json").write_text(
        json.dumps({"node": sys.executable, "azurite": str(tmp_path / "azurite")}), encoding="utf-8"
    )
    provided = {"location": {"dataset": "d"}, "folder": str(tmp_path / "store")}
    with open(tmp_path / "log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
        served, _, _ = stores.serve(stack, BLOB, provided, {}, tmp_path / "servers.json", log)
    assert served.processes["azurite"].returncode == -signal.SIGKILL


def test_a_server_that_hangs_does_not_keep_a_cell_beyond_its_time_limit(tmp_path, environments):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'event': 'open', 'sets_cache': True})}'\nsleep 600\n")
    program.chmod(0o755)
    binaries = artefact(environments / "servers.json")
    with open(tmp_path / "log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
        served = stack.enter_context(stores.of(BLOB).serve(binaries, tmp_path / "store", None, log))
        child = measuring._Child(stack, str(program), "blobs", {}, dict(os.environ), log)
        served.processes["azurite"].send_signal(signal.SIGSTOP)
        with pytest.raises(Problem, match=r"studies\.blobs\.measure was ended after its time limit of 2 s"):
            child.converse(measuring.Window("any", [], served), served, 2)


def test_what_a_process_owned_is_gone_after_it(tmp_path):
    with open(tmp_path / "log", "w", encoding="utf-8") as log, processes.owned(["sleep", "600"], log, {}) as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_a_server_that_does_not_start_says_where_its_words_are(tmp_path):
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        processes.owned(["false"], log, dict(os.environ)) as process,
    ):
        process.wait()
        with pytest.raises(
            Problem, match="ended with status 1 as it started; its words are at the end of the step's log"
        ):
            processes.wait_for_port(processes.free_port(), process, "false")


def test_what_was_started_ends_with_whoever_started_it(tmp_path):
    """A parent killed with -9 takes its servers along: the kernel sees to it."""
    code = (
        "import sys, time\nfrom scripts.lib.processes import owned\n"
        "with owned(['sleep', '601'], sys.stderr, {}) as p:\n    print(p.pid, flush=True)\n    time.sleep(600)"
    )
    command = [os.sys.executable, "-c", code]
    parent = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True)
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    select.select([child], [], [])
    os.close(child)
