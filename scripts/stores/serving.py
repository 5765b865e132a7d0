"""A cell's store: its server for as long as the cell takes, and what the reader is told of it.

Modules that import a cloud's SDK are imported where a store needs them: that takes longer than many a cell.
"""

import contextlib
import os
from pathlib import Path
from typing import IO

from scripts.lib.program import Problem, read_json
from scripts.stores import addresses, servers

Told = tuple[servers.Served | None, dict, dict[str, str]]


def serve(
    stack: contextlib.ExitStack, store: dict, provision: dict, env: dict[str, str], binaries: Path | None, log: IO[str]
) -> Told:
    """Return the embedded server if there is one, the place of the data, and the reader's environment.

    Args:
        stack: ends the server.
        store: the store's entry in the configuration.
        provision: the artefact of the data in the store.
        env: the environment to begin with; credentials are added to it.
        binaries: the artefact of the servers' build, read if the store is embedded.
        log: gets the server's words.

    Raises:
        Problem: the server does not start, there are no credentials, or they are of another account than the data.
    """
    if store["kind"] == "posix":
        asks = store.get("volume") == "instance"
        return None, provision["location"], _with_own(env, "AWS_") if asks else env
    served = None
    if store.get("server") == "embedded":
        start = {"s3": servers.s3, "azure-blob": servers.azurite}[store["kind"]]
        served = stack.enter_context(start(read_json(binaries), Path(provision["folder"]), store.get("network"), log))
        env = {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}
    url, env = (_s3 if store["kind"] == "s3" else _azure)(store, served, env)
    _expect_account(provision.get("account_url"), url)
    dataset = provision["location"]["dataset"]
    key = "/".join(filter(None, [store["prefix"], dataset]))
    return served, {"url": f"{url}/{key}", "key": key}, env


def _with_own(env: dict[str, str], cloud: str) -> dict[str, str]:
    """Return the environment with the user's own settings for a cloud, whose variables begin with `cloud`."""
    own = {key: value for key, value in os.environ.items() if key.startswith(cloud)}
    return {key: value for key, value in env.items() if not key.startswith(cloud)} | own


def _s3(store: dict, served: servers.Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the URL of the bucket and the environment with the credentials."""
    if served:
        endpoint, keys = served.endpoint, served.credentials
        variables = {"AWS_ACCESS_KEY_ID": keys["access_key"], "AWS_SECRET_ACCESS_KEY": keys["secret_key"]}
    else:
        from scripts.stores import s3

        endpoint, variables = store.get("endpoint"), s3.environment_credentials(store)
    if endpoint:
        variables[addresses.ENDPOINT] = endpoint
    return addresses.s3_bucket(store, endpoint), env | variables | {"AWS_REGION": store["region"]}


def _azure(store: dict, served: servers.Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the URL of the container or share and the environment, with the user's own credentials or the server's."""
    if served:
        connection = addresses.connection_string(served.endpoint, served.credentials)
        url = f"{served.endpoint}/{served.credentials['account']}/{store['container']}"
        return url, env | {addresses.CONNECTION: connection}
    from scripts.stores import azure

    azure.credentials(store)
    return azure.base_url(store), _with_own(env, "AZURE_")


def _expect_account(provided: str | None, url: str) -> None:
    """See that a container or share is still in the account that the data were put into."""
    account = url.rpartition("/")[0]
    if provided not in (None, account):
        raise Problem(
            f"the data were put into {provided}, and the environment names {account} now; name the first again,"
            " or give each account a store of its own, with its account_url"
        )
