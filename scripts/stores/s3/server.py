"""The S3 server of a step: versitygw."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from scripts.lib.processes import started
from scripts.stores.counting import RequestCounter
from scripts.stores.servers import Proxy, Served


@contextlib.contextmanager
def serve(binaries: dict, folder: Path, network: dict | None, log: IO[str]) -> Iterator[Served]:
    """Serve the buckets that are folders in `folder` over S3; see `Store.serve`."""
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
