"""The Azure Blob server of a step: Azurite."""

import base64
import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from scripts.lib.processes import PATIENCE_S, started
from scripts.stores.counting import AccessLog
from scripts.stores.servers import Proxy, Served

# Azurite's account here; its keys are made anew for each start.
ACCOUNT = "benchmark"
# Azurite that was written to saves its metadata when it is asked to end: they grow with the number of blocks.
SAVE_S = 60.0


def connection_string(endpoint: str, credentials: dict[str, str]) -> str:
    """Return the connection string of a server's account at an endpoint, {"account", "key"}."""
    protocol, account = endpoint.partition(":")[0], credentials["account"]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={credentials['key']};"
        f"BlobEndpoint={endpoint}/{account}"
    )


@contextlib.contextmanager
def serve(
    binaries: dict, folder: Path, network: dict | None, log: IO[str], patience_s: float = PATIENCE_S
) -> Iterator[Served]:
    """Serve the containers in Azurite's `folder` over Azure's REST; see `Store.serve`.

    Two servers at once on one folder would overwrite each other's metadata. The log gets no addresses that were asked
    for. `patience_s` is how long the server may take to end by itself: SAVE_S where it is written to.
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
    """Return the files of an Azurite's folder that hold the bytes of its objects."""
    return sorted(path for path in (folder / "__blobstorage__").glob("*") if path.stat().st_size)
