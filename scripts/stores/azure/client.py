"""Azure Storage as a client sees it: whose credentials, which container or share, and its errors in one line.

A function imports the SDK of its own service: a process that reads one of them holds nothing of the other.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.core.pipeline import PipelineResponse

from scripts.lib.program import Problem
from scripts.stores.azure.addresses import CONNECTION, SAS

# Unlike the SDK's own, which wait for minutes before they say that nobody answers.
PATIENCE = {"connection_timeout": 5, "read_timeout": 60, "retry_total": 3, "initial_backoff": 1, "increment_base": 2}
_KEY = f"check the key in {CONNECTION}, or the rights and dates of the SAS token"
_RIGHTS = "the credentials may not do this: check their role (Storage … Data …), the SAS token's rights or the firewall"
_REMEDIES = {
    "AuthenticationFailed": _KEY,
    "AuthorizationFailure": _KEY,
    "InvalidAuthenticationInfo": _KEY,
    "NoAuthenticationInformation": f"set {CONNECTION} or {SAS}",
    "AuthorizationPermissionMismatch": _RIGHTS,
    "AuthorizationProtocolMismatch": _RIGHTS,
    "AuthorizationResourceTypeMismatch": _RIGHTS,
    "AuthorizationServiceMismatch": _RIGHTS,
    "AuthorizationSourceIPMismatch": _RIGHTS,
    "InsufficientAccountPermissions": _RIGHTS,
    "ContainerNotFound": "make the container, or correct its name in the configuration",
    "ShareNotFound": "make the share, or correct its name in the configuration",
    "BlobNotFound": "the object is gone: remove the provision's artefact and run again",
    "ResourceNotFound": "the object is gone: remove the provision's artefact and run again",
    "ParentNotFound": "the folder is gone: remove the provision's artefact and run again",
    "ConditionNotMet": "the object was replaced while it was read",
    "ServerBusy": "the account's limits are reached: read less at once, or later",
    "OperationTimedOut": "the service was too slow: run again, or later",
}


def blob_container(store: dict, connection: str | None = None, **options: object):
    """Return the ContainerClient of an azure-blob store.

    Args:
        store: its entry in the configuration: container, account_url, server.
        connection: a connection string; without it the environment's, its SAS token, or azure-identity's chain.
        options: for the SDK.

    Raises:
        Problem: the connection string is none, is another account's, or no account is named.
    """
    from azure.storage.blob import ContainerClient

    return _client(ContainerClient, store, store["container"], "container_name", connection, options)


def share(store: dict, connection: str | None = None, **options: object):
    """Return the ShareClient of an azure-files store; arguments and errors as for `blob_container`."""
    from azure.storage.fileshare import ShareClient

    # Needed with azure-identity, whose tokens see the files past their access lists.
    intent = {} if _connected(connection) or os.environ.get(SAS) else {"token_intent": "backup"}
    return _client(ShareClient, store, store["share"], "share_name", connection, intent | options)


def credentials(store: dict) -> str:
    """Say where the credentials of a store are taken from; nothing is asked of the service.

    Raises:
        Problem: there are none, or the SAS token has expired.
    """
    if expired := _expiry():
        raise Problem(expired)
    if _connected(None):
        return CONNECTION
    if "account_url" not in store:
        raise Problem(f"no Azure account: set {CONNECTION}, or name the store's account_url")
    return SAS if os.environ.get(SAS) else "azure-identity's chain (environment, managed identity, az login)"


def base_url(store: dict) -> str:
    """Return the URL of a container or share that is not embedded; arguments and errors as for `blob_container`."""
    with (share if "share" in store else blob_container)(store) as client:
        parts = urlsplit(client.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def account_url(store: dict) -> str:
    """Return the URL of the account that a store is in, whoever names it; as `base_url`."""
    return base_url(store).rpartition("/")[0]


def place(store: dict) -> str:
    """Return what a store's container or share is called in messages."""
    what = f"share {store['share']}" if "share" in store else f"container {store['container']}"
    account = "the embedded account" if store.get("server") else f"the account of {CONNECTION}"
    return f"{what} of {store.get('account_url', account)}"


def reachable(store: dict) -> str:
    """Ask the service for the container or the share and say where it was found.

    Raises:
        Problem: the service, the credentials, the container or the share are not as the configuration says.
    """
    where = place(store)
    with explained(where):
        if "share" in store:
            with share(store, retry_total=0) as client:
                next(iter(client.list_directories_and_files()), None)
        else:
            with blob_container(store, retry_total=0) as client:
                next(iter(client.list_blobs(name_starts_with=store["prefix"], results_per_page=1)), None)
    return where


@contextlib.contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn the SDK's errors into one line that names the place `where`."""
    try:
        yield
    except AzureError as error:
        raise Problem(_explain(error, where)) from error


def _explain(error: AzureError, where: str) -> str:
    if isinstance(error, ClientAuthenticationError) and error.response is None:
        if type(error).__name__ == "AzureSigningError":
            return f"{where}: the account's key is no key; correct it in {CONNECTION}"
        return f"no Azure credentials for {where}: set {CONNECTION} or {SAS}, or log in (az login)"
    if isinstance(error, HttpResponseError) and (error.status_code or 0) >= 400:
        code = str(getattr(getattr(error, "error_code", None), "value", getattr(error, "error_code", None)) or "")
        remedy = _REMEDIES.get(code, "see the service's documentation of this code")
        if error.status_code in (401, 403) and (expired := _expiry()):
            remedy = expired
        return f"{where} answers {error.status_code} {code or error.reason}; {remedy}"
    if isinstance(error, ServiceRequestError):
        name = type(error).__name__
        return f"{where} cannot be reached ({name}); check account_url or {CONNECTION}, and the network"
    return f"{where}: the answer was cut or did not come ({type(error).__name__}); check the network and run again"


def _expect_storage(where: str) -> Callable[[PipelineResponse], None]:
    """Return what sees that an answer is of Azure Storage, which names its version in each."""

    def look(response: PipelineResponse) -> None:
        answer = response.http_response
        if answer.status_code < 400 and "x-ms-version" not in answer.headers:
            raise Problem(f"{where} answers, but not as Azure Storage does; check account_url or {CONNECTION}")

    return look


def _client(kind, store: dict, name: str, argument: str, connection: str | None, options: dict):
    options = PATIENCE | {"raw_response_hook": _expect_storage(place(store))} | options
    if store.get("server") == "embedded":
        # What is on the loopback is behind no proxy of the environment.
        options["use_env_settings"] = False
    text, url = _connected(connection), store.get("account_url")
    # The SDK's own words about what it refuses may repeat it, and it may be secret.
    try:
        if not text:
            return kind(url, name, credential=_credential(url), **options)
        client = kind.from_connection_string(text, **{argument: name}, **options)
        ours = not url or _account(client.url) == _account(f"{url}/{name}")
    except ValueError as error:
        which = f"{CONNECTION} is no connection string" if text else "the store's account_url is no URL of an account"
        raise Problem(f"{which} of Azure Storage; copy it anew, and a SAS token into {SAS} alone") from error
    if not ours:
        raise Problem(f"{CONNECTION} is of another account than the store's account_url {url}; correct one of them")
    return client


def _credential(url: str | None):
    """Return what a client without a connection string shows the service."""
    if not url:
        raise Problem(f"no Azure account: set {CONNECTION}, or name the store's account_url")
    if token := os.environ.get(SAS):
        return AzureSasCredential(token.lstrip("?"))
    if not url.startswith("https:"):
        raise Problem(f"account_url {url} is not https, over which alone azure-identity sends its tokens; set {SAS}")
    return _identity()


def _identity():
    from azure.identity import DefaultAzureCredential

    # It tells at length what it tried; the one line of `explained` says what to do.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    return DefaultAzureCredential()


def _connected(connection: str | None) -> str | None:
    return connection or os.environ.get(CONNECTION)


def _account(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc, parts.path


def _expiry() -> str | None:
    """Return what to do about the environment's SAS token where its date has passed, else None."""
    signature = os.environ.get(CONNECTION, "").partition("SharedAccessSignature=")[2].partition(";")[0]
    for name, token in ((CONNECTION, signature), (SAS, os.environ.get(SAS, ""))):
        for end in parse_qs(token.lstrip("?")).get("se", []):
            with contextlib.suppress(ValueError):
                date = datetime.fromisoformat(end)
                if date.replace(tzinfo=date.tzinfo or UTC) < datetime.now(UTC):
                    return f"the SAS token in {name} has expired at {end}; make a new one"
    return None
