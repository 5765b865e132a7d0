"""The servers that a step owns for the length of its work: versitygw (S3), and toxiproxy for the network."""

import contextlib
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import IO

from scripts.lib.program import Problem
from scripts.stores.processes import free_port, owned, wait_for_port
from scripts.stores.statsd import RequestCounter

_STARTS = 3


@dataclass
class Served:
    """An S3 service on the loopback and what is known of the requests that reach it.

    Attributes:
        endpoint: URL to give to clients; the proxy's where a network is emulated.
        credentials: access key and secret key; the secret is made anew for each start and written nowhere.
        folder: the server's files, whose pages are this machine's page cache.
        processes: what must still be alive when the work is done, by name.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: RequestCounter
    processes: dict[str, Popen]
    _metrics: str | None = None
    _delivered_at_open: int = field(default=0, repr=False)

    def open_window(self) -> None:
        """From here on requests count."""
        self.counter.settle()
        self.counter.reset()
        self._delivered_at_open = self._delivered()

    def close_window(self) -> dict[str, dict[str, int | None]]:
        """Return the requests since the window opened, by method (METHOD 11).

        `bytes_offered` is what the server put into its responses, `bytes_delivered` what the proxy passed on to the
        reader, headers included; None where no proxy stands between.

        Raises:
            Problem: not all requests could be counted.
        """
        self.counter.settle()
        if lost := self.counter.dropped():
            raise Problem(f"{lost} of the server's reports of its requests were lost: the requests cannot be counted")
        requests: dict[str, dict[str, int | None]] = {**self.counter.read()}
        delivered = self._delivered() - self._delivered_at_open if self._metrics else None
        for method in requests:
            requests[method]["bytes_delivered"] = delivered if method == "GET" else None
        return requests

    def dead(self) -> list[str]:
        """Return the names of the servers that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def _delivered(self) -> int:
        """The proxy's own count of bytes sent downstream; it is written by the proxy as chunks pass."""
        if self._metrics is None:
            return 0
        with _opener().open(self._metrics, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rsplit(" ", 1)[1]))
            for line in lines
            if line.startswith("toxiproxy_proxy_sent_bytes_total{") and 'direction="downstream"' in line
        )


@contextlib.contextmanager
def s3(binaries: dict, folder: Path, network: dict | None, log: IO[str]) -> Iterator[Served]:
    """Serve the buckets in `folder` over S3 on the loopback for the length of a `with` block.

    Args:
        binaries: the artefact of `scripts.build_servers`.
        folder: where buckets are folders; made if missing.
        network: {"latency_ms", "jitter_ms", "bandwidth_mib_s"} to emulate, or None for no proxy at all.
        log: an open file that gets the servers' words.

    Raises:
        Problem: a server does not start, even on another port.
    """
    folder.mkdir(parents=True, exist_ok=True)
    credentials = {"access_key": "benchmark", "secret_key": secrets.token_hex(20)}
    counter = RequestCounter()
    with contextlib.ExitStack() as stack:
        stack.callback(counter.close)
        server, port = _start(
            stack, "versitygw", log, lambda port: _versitygw(binaries, folder, counter, port), credentials
        )
        served = Served(f"http://127.0.0.1:{port}", credentials, folder, counter, {"versitygw": server})
        if network is not None:
            _emulate(stack, served, binaries, network, log)
        yield served


def _start(stack, name, log, command_of, credentials) -> tuple[Popen, int]:
    """Start a server on a free port; somebody may take the port in between, so try a few."""
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", "/"),
        "LOG_LEVEL": "error",
        "ROOT_ACCESS_KEY": credentials.get("access_key", ""),
        "ROOT_SECRET_KEY": credentials.get("secret_key", ""),
    }
    for attempt in range(1, _STARTS + 1):
        port = free_port()
        process = stack.enter_context(owned(command_of(port), log, env))
        try:
            wait_for_port(port, process, name, log.name)
        except Problem:
            if attempt == _STARTS:
                raise
        else:
            return process, port
    raise AssertionError("unreachable")


def _versitygw(binaries: dict, folder: Path, counter: RequestCounter, port: int) -> list[str]:
    return [
        binaries["versitygw"],
        *("--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"),
        *("--metrics-statsd-servers", counter.address, "--metrics-service-name", "store"),
        *("posix", str(folder)),
    ]


def _emulate(stack, served: Served, binaries: dict, network: dict, log: IO[str]) -> None:
    """Put toxiproxy between the reader and the server and set its toxics."""

    def command(port: int) -> list[str]:
        return [binaries["toxiproxy"], "-host", "127.0.0.1", "-port", str(port), "-proxy-metrics"]

    proxy, control = _start(stack, "toxiproxy", log, command, {})
    served.processes["toxiproxy"] = proxy
    api = f"http://127.0.0.1:{control}"
    listen = free_port()
    upstream = served.endpoint.removeprefix("http://")
    _post(f"{api}/proxies", {"name": "s3", "listen": f"127.0.0.1:{listen}", "upstream": upstream})
    if network.get("latency_ms") or network.get("jitter_ms"):
        attributes = {"latency": network.get("latency_ms", 0), "jitter": network.get("jitter_ms", 0)}
        _post(f"{api}/proxies/s3/toxics", {"type": "latency", "stream": "downstream", "attributes": attributes})
    if network.get("bandwidth_mib_s"):
        # toxiproxy's unit is kB/s of 1,000 bytes.
        attributes = {"rate": round(network["bandwidth_mib_s"] * 2**20 / 1000)}
        _post(f"{api}/proxies/s3/toxics", {"type": "bandwidth", "stream": "downstream", "attributes": attributes})
    served.endpoint = f"http://127.0.0.1:{listen}"
    served._metrics = f"{api}/metrics"


def _opener() -> urllib.request.OpenerDirector:
    """An opener that asks no proxy of the environment: what it talks to is on the loopback."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _post(url: str, body: dict) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for attempt in range(3):
        try:
            _opener().open(request, timeout=10).close()
            return
        except urllib.error.URLError as error:
            if attempt == 2:
                detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error.reason
                raise Problem(f"toxiproxy refused {body}: {detail}") from error
            time.sleep(0.05)
