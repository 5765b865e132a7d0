"""What a server that a step owns is to all that speaks to it, and the network before it: toxiproxy."""

import contextlib
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import IO

from scripts.lib.processes import connections, started
from scripts.lib.program import Problem
from scripts.stores.counting import OPENER, Requests

_NAME = "store"
_CLOSING_S = 5.0


class Proxy:
    """A proxy before a server on the loopback, with the toxics of a network.

    Attributes:
        endpoint: URL to give to clients.
        process: the proxy's.
    """

    def __init__(self, stack: contextlib.ExitStack, binaries: dict, endpoint: str, network: dict, log: IO[str]) -> None:
        """Start the proxy and set its toxics.

        Args:
            stack: owns the proxy.
            binaries: the artefact of `scripts.build_servers`.
            endpoint: URL of the server.
            network: {"latency_ms", "jitter_ms", "bandwidth_mib_s"}; empty for the bare proxy.
            log: an open file that gets the proxy's words.

        Raises:
            Problem: it does not start, or refuses the network.
        """

        def command(port: int) -> list[str]:
            return [binaries["toxiproxy"], "-host", "127.0.0.1", "-port", str(port), "-proxy-metrics"]

        self.process, control = started(stack, "toxiproxy", log, command, {"LOG_LEVEL": "error"})
        self._api = f"http://127.0.0.1:{control}"
        upstream = endpoint.removeprefix("http://")
        # Port 0: the kernel gives it one that nobody else can have taken.
        made = _post(f"{self._api}/proxies", {"name": _NAME, "listen": "127.0.0.1:0", "upstream": upstream})
        self._listen = int(made["listen"].rpartition(":")[2])
        for kind, attributes in _toxics(network):
            toxic = {"type": kind, "stream": "downstream", "attributes": attributes}
            _post(f"{self._api}/proxies/{_NAME}/toxics", toxic)
        self.endpoint = f"http://127.0.0.1:{self._listen}"

    def delivered(self) -> int | None:
        """Return the bytes that the proxy has sent downstream, by its own count; None where a connection stays open.

        The proxy adds a connection up as it closes it, which is a moment after the reader has.
        """
        deadline = time.monotonic() + _CLOSING_S
        while connections(self._listen):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.005)
        return self.sent()

    def sent(self) -> int:
        """Return the bytes that the proxy has sent downstream over connections that it has closed."""
        with OPENER.open(f"{self._api}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rsplit(" ", 1)[1]))
            for line in lines
            if line.startswith("toxiproxy_proxy_sent_bytes_total{") and 'direction="downstream"' in line
        )


def _toxics(network: dict) -> list[tuple[str, dict]]:
    toxics = []
    if network.get("latency_ms") or network.get("jitter_ms"):
        toxics.append(("latency", {"latency": network.get("latency_ms", 0), "jitter": network.get("jitter_ms", 0)}))
    if network.get("bandwidth_mib_s"):
        # toxiproxy's unit is kB/s of 1,000 bytes.
        toxics.append(("bandwidth", {"rate": round(network["bandwidth_mib_s"] * 2**20 / 1000)}))
    return toxics


def _post(url: str, body: dict) -> dict:
    """Tell toxiproxy something; returns its answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with OPENER.open(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.URLError as error:
        detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error.reason
        raise Problem(f"toxiproxy refused {body}: {detail}") from error


@dataclass
class Served:
    """A store's service on the loopback and what is known of the requests that reach it.

    Attributes:
        endpoint: URL to give to clients; the proxy's where a network is emulated.
        credentials: the account and its key ("access_key" and "secret_key", or "account" and "key"); the key is made
            anew for each start and written nowhere.
        folder: the server's files, whose pages are this machine's page cache.
        processes: what must still be alive when the work is done, by name.
    """

    endpoint: str
    credentials: dict[str, str]
    folder: Path
    counter: Requests
    processes: dict[str, Popen]
    _proxy: Proxy | None = None
    _sent_at_open: int = field(default=0, repr=False)

    def open_window(self) -> None:
        """From here on requests count."""
        self.counter.settle()
        self.counter.reset()
        self._sent_at_open = self._proxy.sent() if self._proxy else 0

    def close_window(self) -> dict[str, dict[str, int | None]]:
        """Return the requests since the window opened, by method (METHOD 11).

        `bytes_offered` is what the server put into its responses, `bytes_delivered` what the proxy passed on to the
        reader, headers included; None where no proxy stands between, or a reader is still connected through it.

        Raises:
            Problem: not all requests could be counted.
        """
        self.counter.settle()
        if lost := self.counter.dropped():
            raise Problem(f"{lost} of the server's reports of its requests were lost: the requests cannot be counted")
        requests: dict[str, dict[str, int | None]] = {**self.counter.read()}
        delivered = self._proxy.delivered() if self._proxy else None
        if delivered is not None:
            delivered -= self._sent_at_open
        for method in requests:
            requests[method]["bytes_delivered"] = delivered if method == "GET" else None
        return requests

    def dead(self) -> list[str]:
        """Return the names of the servers that have ended."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def behind(self, proxy: Proxy) -> None:
        """Put a proxy between the clients and the server."""
        self.endpoint, self._proxy = proxy.endpoint, proxy
        self.processes["toxiproxy"] = proxy.process
