"""Azure Storage as a client sees it: whose credentials, which container or share, and its errors in one line.

A function imports the SDK of its own service: a process that reads one of them holds nothing of the other.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.core.pipeline import PipelineResponse

from scripts.lib.program import Problem
from scripts.stores.azure import CONNECTION, SAS
from scripts.stores.bare import VALID_S, Address

# Unlike the SDK's own, which wait for minutes before they say that nobody answers.
PATIENCE = {"connection_timeout": 5, "read_timeout": 60, "retry_total": 3, "initial_backoff": 1, "increment_base": 2}
# What a token of azure-identity is for.
_AUDIENCE = "https://storage.azure.com/.default"
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


class Object(NamedTuple):
    """A blob or a file: its client, and two of its calls, which the SDKs name differently."""

    client: Any
    properties: Callable
    download: Callable


def holder(store: dict, connection: str | None = None, **options: object):
    """Return the ContainerClient of an azure-blob store, or the ShareClient of an azure-files store.

    Args:
        store: its entry in the configuration: container or share, account_url, server.
        connection: a connection string; without it the environment's, its SAS token, or azure-identity's chain.
        options: for the SDK.

    Raises:
        Problem: the connection string is none, is another account's, or no account is named.
    """
    options = PATIENCE | {"raw_response_hook": _expect_storage(place(store))} | options
    text, url = connection or os.environ.get(CONNECTION), store.get("account_url")
    if "share" in store:
        from azure.storage.fileshare import ShareClient as Client

        name, argument = store["share"], "share_name"
        if not (text or os.environ.get(SAS)):
            # Needed with azure-identity, whose tokens see the files past their access lists.
            options["token_intent"] = "backup"
    else:
        from azure.storage.blob import ContainerClient as Client

        name, argument = store["container"], "container_name"
    if store.get("server") == "embedded":
        # What is on the loopback is behind no proxy of the environment.
        options["use_env_settings"] = False
    # The SDK's own words about what it refuses may repeat it, and it may be secret.
    try:
        if not text:
            return Client(url, name, credential=_credential(url), **options)
        client = Client.from_connection_string(text, **{argument: name}, **options)
        ours = not url or _account(client.url) == _account(f"{url}/{name}")
    except ValueError as error:
        which = f"{CONNECTION} is no connection string" if text else "the store's account_url is no URL of an account"
        raise Problem(f"{which} of Azure Storage; copy it anew, and a SAS token into {SAS} alone") from error
    if not ours:
        raise Problem(f"{CONNECTION} is of another account than the store's account_url {url}; correct one of them")
    return client


def object_in(holder, path: str) -> Object:
    """Return an object of a container or share; nothing is sent."""
    if hasattr(holder, "get_file_client"):
        file = holder.get_file_client(path)
        return Object(file, file.get_file_properties, file.download_file)
    blob = holder.get_blob_client(path)
    return Object(blob, blob.get_blob_properties, blob.download_blob)


def credentials(store: dict) -> str:
    """Say where the credentials of a store are taken from; nothing is asked of the service.

    Raises:
        Problem: there are none, or the SAS token has expired.
    """
    if expired := _expiry():
        raise Problem(expired)
    if os.environ.get(CONNECTION):
        return CONNECTION
    if "account_url" not in store:
        raise Problem(f"no Azure account: set {CONNECTION}, or name the store's account_url")
    return SAS if os.environ.get(SAS) else "azure-identity's chain (environment, managed identity, az login)"


def base_url(store: dict) -> str:
    """Return the URL of a container or share that is not embedded; errors as for `holder`."""
    with holder(store) as client:
        parts = urlsplit(client.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


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
    with explained(where), holder(store, retry_total=0) as client:
        if "share" in store:
            names = client.list_directories_and_files()
        else:
            names = client.list_blobs(name_starts_with=store["prefix"], results_per_page=1)
        next(iter(names), None)
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


def _credential(url: str | None):
    """Return what a client without a connection string shows the service."""
    if not url:
        raise Problem(f"no Azure account: set {CONNECTION}, or name the store's account_url")
    if token := os.environ.get(SAS):
        return AzureSasCredential(token.lstrip("?"))
    if not url.startswith("https:"):
        raise Problem(f"account_url {url} is not https, over which alone azure-identity sends its tokens; set {SAS}")
    from azure.identity import DefaultAzureCredential

    # It tells at length what it tried; the one line of `explained` says what to do.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    return DefaultAzureCredential()


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


def addresses(store: dict, key: str, names: Iterable[str]) -> dict[str, Address]:
    """Return the URL of each object under a key with a credential in it, or with a token for its headers.

    Raises:
        Problem: there are no credentials to sign with.
    """
    with holder(store) as client:
        return {name: _address(store, object_in(client, f"{key}/{name}").client, f"{key}/{name}") for name in names}


def _address(store: dict, client: Any, path: str) -> Address:
    credential = client.credential
    if hasattr(credential, "account_key"):
        return f"{client.url}?{_signature(store, path, credential)}", {}
    if isinstance(credential, AzureSasCredential):
        return f"{client.url}?{credential.signature}", {}
    if not hasattr(credential, "get_token"):
        return client.url, {}
    with explained(place(store)):
        token = credential.get_token(_AUDIENCE).token
    intent = {"x-ms-file-request-intent": "backup"} if "share" in store else {}
    return client.url, {"x-ms-version": client.api_version, **intent, "Authorization": f"Bearer {token}"}


def _signature(store: dict, path: str, credential) -> str:
    """Return the signature that lets whoever has it read one object; made here, nothing is asked."""
    account = {"account_name": credential.account_name, "account_key": credential.account_key}
    options = {"permission": "r", "expiry": datetime.now(UTC) + timedelta(seconds=VALID_S)}
    if "share" in store:
        from azure.storage.fileshare import generate_file_sas

        return generate_file_sas(share_name=store["share"], file_path=path.split("/"), **account, **options)
    from azure.storage.blob import generate_blob_sas

    return generate_blob_sas(container_name=store["container"], blob_name=path, **account, **options)
