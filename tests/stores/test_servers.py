"""Servers of the workflow's own: what they hold and count, and that they end with what started them."""

import contextlib
import http.server
import json
import os
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import boto3
import pytest
from conftest import ROOT, artefact

from sbench.design import checks, prices
from sbench.measure import launches
from sbench.probe import content, processes
from sbench.probe.program import Problem
from sbench.stores import bare, embedded
from sbench.stores import network as networks
from sbench.stores import store as stores
from sbench.stores.embedded import Served
from tests.helpers.ranges import serve_ranges

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
        ports = [taken.getsockname()[1], processes.find_free_port(), processes.find_free_port()]
        monkeypatch.setattr(processes, "find_free_port", lambda: ports.pop(0))
        binaries = artefact(environments / "servers.json")
        with (
            open(tmp_path / "log", "w", encoding="utf-8") as log,
            stores.get_store(S3).serve_folder(binaries, tmp_path / "s", None, log) as served,
        ):
            assert client_of(served).list_buckets()["Buckets"] == []
            assert not served.list_dead_servers()


def test_a_large_object_goes_in_parts_none_of_which_is_left_behind(tmp_path, environments):
    entry = content.build_entry("large.bin", 40 * 2**20, 1, 0)
    store = stores.get_store(S3)
    place = (tmp_path / "s", environments / "servers.json", print)
    put = store.provide_dataset("blobs-large", [(entry, None)], *place)
    assert put["upload"] == {"uploaded": 1, "found": 0}
    folder = Path(put["folder"])
    binaries = artefact(environments / "servers.json")
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        store.serve_folder(binaries, folder, None, log) as served,
    ):
        s3 = client_of(served)
        assert s3.head_object(Bucket="parts", Key="blobs-large/large.bin")["ETag"].endswith('-3"')
        assert "Uploads" not in s3.list_multipart_uploads(Bucket="parts")


@pytest.mark.rule(3)
def test_parts_are_as_large_as_asked_or_the_store_is_not_as_its_label_says(tmp_path, environments):
    entry = content.build_entry("large.bin", 20 * 2**20, 1, 0)
    store = stores.get_store(S3)
    place = (tmp_path / "s", environments / "servers.json", print)
    # What is there in other parts is uploaded anew; the parts of S3 have 5 MiB at the least.
    for asked, uploaded in ((6, 1), (6, 0), (8, 1), (64, 1)):
        put = store.provide_dataset("blobs-parts", [(entry | {"part_bytes": asked * 2**20}, None)], *place)
        assert (put["part_bytes"], put["upload"]["uploaded"]) == (min(asked, 20) * 2**20, uploaded)
    assert store.provide_dataset("blobs-parts", [(entry, None)], *place)["part_bytes"] == 20 * 2**20
    with pytest.raises(Problem, match=r"in bucket parts.* must have parts of 1048576 bytes \(got 5242880\)"):
        store.provide_dataset("blobs-parts", [(entry | {"part_bytes": 2**20}, None)], *place)


@pytest.mark.rule(11)
def test_requests_within_the_window_are_counted_and_told_apart_from_what_was_delivered(tmp_path, environments):
    binaries = artefact(environments / "servers.json")
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        stores.get_store(S3).serve_folder(binaries, tmp_path / "s", {}, log) as served,
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
        s3.list_objects_v2(Bucket="counted", Prefix="obj")
        s3.get_bucket_location(Bucket="counted")
        s3.close()
        requests, passed = served.close_window()
    assert {method: requests[method]["count"] for method in requests} == {"GET": 10, "HEAD": 1}
    assert requests["GET"]["listings"] == 1
    assert prices.count_billed(requests) == {"gets": 10, "puts": 0, "lists": 1}
    assert requests["GET"]["failed"] == 1
    assert requests["GET"]["bytes_offered"] == 700_000
    assert 700_000 < requests["GET"]["bytes_delivered"] < 720_000
    asked = [(row["method"], row["range"], row["status"], row["bytes"]) for row in passed["exchanges"]]
    assert asked[:8] == [("GET", "bytes=0-99999", "206", 100_000)] * 7 + [("HEAD", "", "200", 0)]
    assert [row[:3] for row in asked[8:]] == [("GET", "", "404"), ("GET", "", "200"), ("GET", "", "200")]
    assert passed["connections"] == 0, "the client's own was opened before the window"
    assert passed["unread"] == 0
    assert all(0 < row["begin"] <= row["first"] <= row["end"] for row in passed["exchanges"])


def test_reports_of_requests_that_were_lost_are_noticed():
    counter = embedded.StatsD()
    host, port = counter.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"versitygw.success_count,method=GET:1|c", (host, int(port)))
        counter.wait_for_counts()
        assert counter.get_counts() == {"GET": {"count": 1, "failed": 0, "bytes_offered": 0}}
        assert counter.count_dropped() == 0
        # Hold the lock that the receiver needs, so that the kernel's buffer runs over.
        with counter._lock:
            for _ in range(300_000):
                sender.sendto(b"versitygw.success_count,method=GET:1|c" + b"x" * 900, (host, int(port)))
                if counter.count_dropped():
                    break
        assert counter.count_dropped() > 0
    counter.close()


@contextlib.contextmanager
def proxied(tmp_path: Path, environments: Path, network: dict, encrypted: bool = False):
    """Yield an emulated network before a server of ranges."""
    program = artefact(environments / "servers.json")["toxiproxy"]
    with serve_ranges() as endpoint, contextlib.ExitStack() as stack:
        log = stack.enter_context(open(tmp_path / "log", "w", encoding="utf-8"))
        yield embedded.Proxy(stack, program, endpoint, network, log, encrypted)


def network_of(proxy: embedded.Proxy, nbytes: int) -> dict:
    return networks.measure_network(bare.Http({"o": (f"{proxy.endpoint}/o", {})}), "o", nbytes)


@pytest.mark.rule(20)
def test_an_emulated_network_is_measured_as_it_was_asked_for(tmp_path, environments):
    """Each is a lower bound of time that no busy machine can break: a round trip, opening a connection, a rate."""
    with proxied(tmp_path, environments, {"latency_ms": 50, "per_connection_mib_s": 10}) as proxy:
        slow = network_of(proxy, 4 * 2**20)
    with proxied(tmp_path, environments, {}) as proxy:
        bare_proxy = network_of(proxy, 4 * 2**20)
    assert slow["round_trip_s"] >= 0.05
    first, bare_first = (network["connect_s"] + network["round_trip_s"] for network in (slow, bare_proxy))
    assert first >= 0.1 > bare_first, "a connection costs a round trip of its own"
    # A sender may be 10 ms behind its rate and catch up.
    assert slow["mib_s"] < 10 * 1.05 < bare_proxy["mib_s"]


@pytest.mark.rule(20)
@pytest.mark.parametrize("connections", [1, 4])
def test_connections_share_a_rate_and_are_counted(tmp_path, environments, connections):
    network = {"shared_mib_s": 20}
    with proxied(tmp_path, environments, network) as proxy:
        readers = [bare.Http({"o": (f"{proxy.endpoint}/o", {})}) for _ in range(connections)]
        for reader in readers:
            reader.connect("o")
        start = time.monotonic()
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(lambda reader: reader.read_range("o", 0, 8 * 2**20 // connections), readers))
        seconds = time.monotonic() - start
        passed = proxy.fetch_traffic()
        for reader in readers:
            reader.close()
    assert passed["connections"] == connections
    assert sum(row["bytes"] for row in passed["exchanges"]) == 8 * 2**20
    assert {row["connection"] for row in passed["exchanges"]} == set(range(1, connections + 1))
    assert seconds > 8 / 20 * 0.95, "together they are as fast as the shared rate and no faster"
    assert checks.check_rate(network, passed["sent"], seconds) == []
    assert checks.check_rate(network, passed["sent"], 0.2)[0].startswith("too fast to be true: 8.0 MiB arrived within")
    assert checks.check_rate({"per_connection_mib_s": 1}, passed["sent"], 0.001) == [], "no hard bound"


def get_ranges(proxy: embedded.Proxy, numbers: Iterable[int], opened: list[HTTPConnection]) -> int:
    """Request a byte for each number over one connection, which stays open, and return how many bytes came."""
    host = urlsplit(proxy.endpoint).netloc
    trusted = ssl.create_default_context(cadata=proxy.fetch_authority() or None)
    is_plain = proxy.endpoint.startswith("http:")
    opened.append(client := HTTPConnection(host) if is_plain else HTTPSConnection(host, context=trusted))
    read = 0
    for number in numbers:
        client.request("GET", "/o", headers={"Range": f"bytes={number}-{number}"})
        read += len(client.getresponse().read())
    return read


@pytest.mark.parametrize(
    "network, encrypted, clients, limit",
    [
        ({}, False, 100, 64),
        ({"latency_ms": 1}, False, 100, 64),
        ({}, True, 250, 1024),
        ({"latency_ms": 1}, True, 40, 64),
    ],
)
def test_a_network_that_is_short_of_descriptors_lets_clients_wait_and_counts_them_all(
    tmp_path, environments, network, encrypted, clients, limit
):
    with proxied(tmp_path, environments, network, encrypted) as proxy, ThreadPoolExecutor(clients) as pool:
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        proxy.reset_traffic()
        opened: list[HTTPConnection] = []
        read = list(pool.map(lambda number: get_ranges(proxy, [number], opened), range(clients)))
        passed = proxy.fetch_traffic()
    assert read == [1] * clients
    assert {row["range"] for row in passed["exchanges"]} == {f"bytes={number}-{number}" for number in range(clients)}
    assert (len(passed["exchanges"]), passed["connections"]) == (clients, clients)


def test_what_passed_comes_in_pieces(tmp_path, environments):
    with proxied(tmp_path, environments, {}) as proxy:
        get_ranges(proxy, range(5000), [])
        passed = proxy.fetch_traffic()
        with urllib.request.urlopen(f"{proxy._control}/passed") as answer:
            lines = list(map(len, answer))
    assert [row["range"] for row in passed["exchanges"]] == [f"bytes={number}-{number}" for number in range(5000)]
    assert len(lines) > 2
    assert max(lines) < 2**20


@pytest.mark.parametrize("lines", [[], ['{"sent": 1}'], ['{"sent": 1}', '[{"begin": 0}]'], ['{"sent": 1}', '[{"beg']])
def test_an_answer_that_was_cut_is_one_line_and_loses_no_requests(tmp_path, environments, lines):
    with proxied(tmp_path, environments, {}) as proxy, http.server.HTTPServer(("127.0.0.1", 0), _Cut) as cut:
        _Cut.text = "".join(f"{line}\n" for line in lines)
        threading.Thread(target=cut.handle_request, daemon=True).start()
        proxy._control = f"http://127.0.0.1:{cut.server_port}"
        with pytest.raises(Problem, match="the proxy of the emulated network does not respond"):
            proxy.fetch_traffic()


class _Cut(http.server.BaseHTTPRequestHandler):
    """Answers with a text that may end too early."""

    text = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def test_an_emulated_network_answers_nobody_who_lacks_its_token(tmp_path, environments):
    with proxied(tmp_path, environments, {}) as proxy:
        get_ranges(proxy, [1], [])
        control = urlsplit(proxy._control)
        for path in ("reset", "passed", "listen", "authority", "", "0/reset"):
            with pytest.raises(HTTPError, match="404"):
                urllib.request.urlopen(f"http://{control.netloc}/{path}")
        line = Path(f"/proc/{proxy.process.pid}/cmdline").read_text(encoding="utf-8")
        assert len(proxy.fetch_traffic()["exchanges"]) == 1
    assert control.path[1:] not in line


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
        served, _, _ = stores.serve_dataset(stack, BLOB, provided, {}, tmp_path / "servers.json", log)
    assert served.processes["azurite"].returncode == -signal.SIGKILL


def test_a_server_that_hangs_does_not_keep_a_cell_beyond_its_time_limit(tmp_path, environments):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'event': 'open', 'sets_cache': True})}'\nsleep 600\n")
    program.chmod(0o755)
    binaries = artefact(environments / "servers.json")
    with open(tmp_path / "log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
        served = stack.enter_context(stores.get_store(BLOB).serve_folder(binaries, tmp_path / "store", None, log))
        child = launches.Child(stack, [str(program)], "blobs", {}, dict(os.environ), log)
        served.processes["azurite"].send_signal(signal.SIGSTOP)
        limited = launches.stop_after("studies.blobs.measure", 2)
        with pytest.raises(Problem, match=r"studies\.blobs\.measure exceeded its time limit of 2 s"), limited:
            child.receive_record(launches.Window("any", [], served), served)


def test_what_a_process_owned_is_gone_after_it(tmp_path):
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        processes.run_process(["sleep", "600"], log, {}) as process,
    ):
        assert process.poll() is None
    assert process.poll() is not None


def test_a_server_that_does_not_start_says_where_its_words_are(tmp_path):
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as log,
        processes.run_process(["false"], log, dict(os.environ)) as process,
    ):
        process.wait()
        with pytest.raises(Problem, match="ended with status 1 during its start; look at the end of the step's log"):
            processes.wait_for_port(processes.find_free_port(), process, "false")


def test_what_was_started_ends_with_whoever_started_it(tmp_path):
    """A parent killed with -9 takes its servers along: the kernel sees to it."""
    code = (
        "import sys, time\nfrom sbench.probe.processes import run_process\n"
        "with run_process(['sleep', '601'], sys.stderr, {}) as p:\n    print(p.pid, flush=True)\n    time.sleep(600)"
    )
    command = [os.sys.executable, "-c", code]
    parent = subprocess.Popen(command, cwd=ROOT / "scripts", stdout=subprocess.PIPE, text=True)
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    select.select([child], [], [])
    os.close(child)
