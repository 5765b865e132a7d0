"""The servers that a step owns for the length of its work: versitygw (S3) and Azurite (Azure Blob)."""

import base64
import contextlib
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import IO

from scripts.lib.processes import PATIENCE_S, started
from scripts.lib.program import Problem
from scripts.stores.access_log import AccessLog
from scripts.stores.network import Proxy
from scripts.stores.requests import Requests
from scripts.stores.statsd import RequestCounter

# Kinds of stores that can be embedded, and the server of each.
OF_KIND = {"s3": "versitygw", "azure-blob": "azurite"}
# Azurite's account here; its keys are made anew for each start.
ACCOUNT = "benchmark"
# Azurite that was written to saves its metadata when it is asked to end: they grow with the number of blocks.
SAVE_S = 60.0


def needed(stores: Iterable[dict]) -> list[str]:
    """Return the names of the servers that stores of a configuration need (`--need` of `scripts.build_servers`)."""
    embedded = [store for store in stores if store.get("server") == "embedded"]
    names = {OF_KIND[store["kind"]] for store in embedded}
    return sorted(names | {"toxiproxy" for store in embedded if store.get("network") is not None})


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
    env = {"ROOT_ACCESS_KEY": credentials["access_key"], "ROOT_SECRET_KEY": credentials["secret_key"]}
    counter = RequestCounter()

    def command(port: int) -> list[str]:
        return [
            binaries["versitygw"],
            *("--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"),
            *("--metrics-statsd-servers", counter.address, "--metrics-service-name", "store"),
            *("posix", str(folder)),
        ]

    with contextlib.ExitStack() as stack:
        stack.callback(counter.close)
        server, port = started(stack, "versitygw", log, command, env)
        served = Served(f"http://127.0.0.1:{port}", credentials, folder, counter, {"versitygw": server})
        if network is not None:
            served.behind(Proxy(stack, binaries, served.endpoint, network, log))
        yield served


@contextlib.contextmanager
def azurite(
    binaries: dict, folder: Path, network: dict | None, log: IO[str], patience_s: float = PATIENCE_S
) -> Iterator[Served]:
    """Serve the blobs in `folder` over Azure's REST on the loopback for the length of a `with` block.

    Two servers at once on one folder would overwrite each other's metadata.

    Args:
        binaries: the artefact of `scripts.build_servers`.
        folder: Azurite's own, with metadata and extents; made if missing.
        network: as for `s3`.
        log: an open file that gets the servers' words, not the addresses that were asked for.
        patience_s: how long it may take to end by itself: SAVE_S where it is written to.

    Raises:
        Problem: a server does not start, even on another port.
    """
    folder.mkdir(parents=True, exist_ok=True)
    credentials = {"account": ACCOUNT, "key": base64.b64encode(secrets.token_bytes(32)).decode()}
    counter = AccessLog(log)

    def command(port: int) -> list[str]:
        return [
            *(binaries["node"], binaries["azurite"], "--location", str(folder)),
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            # It refuses versions of the API that are younger than itself, as those of the SDKs are.
            *("--skipApiVersionCheck", "--disableTelemetry"),
        ]

    with contextlib.ExitStack() as stack:
        stack.callback(counter.close)
        env = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{credentials['key']}"}
        options = {"stdout": subprocess.PIPE, "patience_s": patience_s}
        server, port = started(stack, "azurite", log, command, env, **options)
        url = f"http://127.0.0.1:{port}"
        counter.listen(server.stdout, url)
        served = Served(url, credentials, folder, counter, {"azurite": server})
        if network is not None:
            served.behind(Proxy(stack, binaries, served.endpoint, network, log))
        yield served


def extents(folder: Path) -> list[Path]:
    """Return the files of an Azurite's folder that hold the bytes of its blobs."""
    return sorted(path for path in (folder / "__blobstorage__").glob("*") if path.stat().st_size)
