"""Run HSDS on the loopback interface: a service node and data nodes, with a directory or an object store as storage."""

import contextlib
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import requests

from sbench.probe import memory
from sbench.probe.processes import find_free_port, run_process, wait_for_port
from sbench.probe.program import Problem, build_command, write_json
from sbench.probe.resources import Meter
from sbench.stores import store as stores

READY_S = 30
USER = "benchmark"
_STARTS, _PAUSE_S, _WATCH_S = 3, 0.01, 0.2
# HSDS options for writes that are not timed. By default, a flush takes 2 s, because nodes store values after a second
# and check once per second whether all are stored.
STORE_AT_ONCE = (("s3_sync_interval", 0.1), ("flush_sleep_interval", 0.05))


@dataclass(frozen=True)
class Settings:
    """The settings of an HSDS service that the benchmark varies.

    Attributes:
        nodes: number of data nodes.
        request_limit: the HSDS option `max_request_size`, in bytes.
        streaming: whether larger requests are streamed (the HSDS option `http_streaming`).
        in_flight: maximum number of concurrent requests per node for one client request
            (the HSDS option `max_tasks_per_node_per_request`); None for the default.
        more: further HSDS options, as (name, value) pairs.
    """

    nodes: int
    request_limit: int
    streaming: bool
    in_flight: int | None = None
    more: tuple[tuple[str, int | float], ...] = ()

    def build_overrides(self) -> dict:
        """Return the HSDS options to override, by name."""
        limits = {"max_request_size": self.request_limit, "http_streaming": self.streaming}
        tasks = {"max_tasks_per_node_per_request": self.in_flight} if self.in_flight else {}
        return limits | tasks | dict(self.more)


@dataclass
class Service:
    """A running HSDS service.

    Attributes:
        endpoint: URL of the service node.
        password: password of the user `USER`, generated at each start.
        nodes: processes by name: the service node is "sn", the data nodes are "dn1", "dn2" and so on.
        began: start time, as returned by `time.perf_counter`.
        ready_s: seconds from the start until the service was ready.
    """

    endpoint: str
    password: str
    nodes: dict[str, subprocess.Popen]
    began: float
    ready_s: float = 0.0

    def start_growth_meter(self) -> Callable[[], dict[str, int]]:
        """Return a function that computes each node's growth in peak memory, in bytes, since this call."""
        for process in self.nodes.values():
            memory.forget_peak(process.pid)
        before = {name: memory.read_peak_bytes(process.pid) for name, process in self.nodes.items()}
        return lambda: {
            name: max(0, (memory.read_peak_bytes(self.nodes[name].pid) or 0) - size) for name, size in before.items()
        }

    def start_meter(self) -> Meter:
        """Start and return a meter of each node's CPU seconds and peak memory."""
        for process in self.nodes.values():
            memory.forget_peak(process.pid)
        meter = Meter({name: process.pid for name, process in self.nodes.items()})
        meter.open()
        return meter


def get_storage_variables(place: Mapping[str, str], spec: Mapping) -> dict[str, str]:
    """Return the environment variables that select the nodes' storage.

    The storage is a directory, or a bucket or container of an object store.
    """
    if "folder" in place:
        return {"ROOT_DIR": place["folder"], "BUCKET_NAME": place["bucket"]}
    return stores.get_store(spec).list_node_variables()


@contextlib.contextmanager
def run_service(settings: Settings, store: Mapping[str, str], folder: Path, together: bool = True) -> Iterator[Service]:
    """Run an HSDS service during a `with` block. Its nodes log to standard error.

    Args:
        settings: settings of the service.
        store: environment variables that select the storage, from `get_storage_variables`.
        folder: directory for the configuration file.
        together: kill all nodes as soon as any node exits. Otherwise h5pyd retries for minutes after a node is lost.

    Raises:
        Problem: the service was not ready within `READY_S` seconds.
    """
    if "ROOT_DIR" in store:
        Path(store["ROOT_DIR"], store["BUCKET_NAME"]).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for starts_left in reversed(range(_STARTS)):
            with contextlib.ExitStack() as attempt:
                try:
                    service = _start_service(attempt, settings, store, folder)
                except Problem:
                    # Try again with other ports: another process may have taken a port that was free.
                    if not starts_left:
                        raise
                    continue
                stack.push(attempt.pop_all())
                break
        _wait_until_ready(service)
        if together:
            stack.enter_context(_watch_nodes(service.nodes.values()))
        yield service


@contextlib.contextmanager
def _watch_nodes(nodes: Collection[subprocess.Popen]) -> Iterator[None]:
    """Watch the nodes during a `with` block. When one has exited, kill the others."""
    left = threading.Event()

    def kill_when_ended() -> None:
        while not left.wait(_WATCH_S):
            if any(node.poll() is not None for node in nodes):
                for node in nodes:
                    node.kill()
                return

    thread = threading.Thread(target=kill_when_ended, daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _start_service(stack: contextlib.ExitStack, settings: Settings, store: Mapping[str, str], folder: Path) -> Service:
    began, password = time.perf_counter(), secrets.token_hex(16)
    port, *ports = (find_free_port() for _ in range(settings.nodes + 1))
    endpoint, places = f"http://127.0.0.1:{port}", [f"http://127.0.0.1:{other}" for other in sorted(ports)]
    common = ["--standalone", f"--dn_urls={','.join(places)}", f"--hsds_endpoint={endpoint}"]
    user = [f"--hs_username={USER}", f"--admin_user={USER}"]
    commands = {
        f"dn{number}": ["--node_type=dn", f"--node_number={number - 1}", *common]
        for number in range(1, settings.nodes + 1)
    } | {"sn": ["--node_type=sn", f"--sn_url={endpoint}", *user, *common]}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    # Override options by a file: in an environment variable, any non-empty string would enable streaming.
    write_json(overrides := folder / "hsds.override.yml", settings.build_overrides())
    # Without a password file, the user on the command line is the only one.
    plain = {"CONFIG_OVERRIDE_PATH": str(overrides), "LOG_LEVEL": "WARN", "PASSWORD_FILE": "", "HS_PASSWORD": password}
    env = kept | dict(store) | plain
    program = build_command("sbench.studies.arrays.node")
    nodes = {
        name: stack.enter_context(run_process([*program, *more], sys.stderr, env)) for name, more in commands.items()
    }
    for name, at in zip(nodes, [*sorted(ports), port], strict=True):
        wait_for_port(at, nodes[name], f"HSDS's node {name}", READY_S)
    return Service(endpoint, password, nodes, began)


def _wait_until_ready(service: Service) -> None:
    """Wait until a service reports that it is ready, and set its `ready_s`."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(requests.RequestException, ValueError):
            if requests.get(f"{service.endpoint}/about", timeout=READY_S).json()["state"] == "READY":
                service.ready_s = time.perf_counter() - service.began
                return
        time.sleep(_PAUSE_S)
    raise Problem(f"HSDS was not ready within {READY_S} s; see its output in the log")
