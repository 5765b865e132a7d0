"""Connect to Azure Storage: credentials, signed URLs, one-line error messages, and uploads of datasets.

Each function imports only the SDK of the service that it uses (Blob or Files), so that no process loads both.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.core.pipeline import PipelineResponse

from sbench.probe.program import Problem
from sbench.stores import transfer
from sbench.stores.azure import CONNECTION, SAS
from sbench.stores.bare import VALID_S, Address
from sbench.stores.reading import Absent

# With the SDK's default settings, an unreachable service is reported only after minutes.
PATIENCE = {"connection_timeout": 5, "read_timeout": 60, "retry_total": 3, "initial_backoff": 1, "increment_base": 2}
# The scope of tokens requested from azure-identity.
_AUDIENCE = "https://storage.azure.com/.default"
_RIGHTS = "the credentials lack permission: check their role (Storage … Data …), the SAS token's rights or the firewall"
_GONE = "no longer exists: remove the artefact of its provisioning step and run again"
_REMEDIES = {
    **dict.fromkeys(
        ("AuthenticationFailed", "AuthorizationFailure", "InvalidAuthenticationInfo"),
        f"check the key in {CONNECTION}, or the rights and dates of the SAS token",
    ),
    "NoAuthenticationInformation": f"set {CONNECTION} or {SAS}",
    **{
        f"Authorization{what}Mismatch": _RIGHTS
        for what in ("Permission", "Protocol", "ResourceType", "Service", "SourceIP")
    },
    "InsufficientAccountPermissions": _RIGHTS,
    "ContainerNotFound": "create the container, or correct its name in the configuration",
    "ShareNotFound": "create the share, or correct its name in the configuration",
    "BlobNotFound": f"the object {_GONE}",
    "ResourceNotFound": f"the object {_GONE}",
    "ParentNotFound": f"the folder {_GONE}",
    "ConditionNotMet": "the object was replaced during the read",
    "ServerBusy": "the account throttles requests: lower the concurrency, or run again later",
    "OperationTimedOut": "the service timed out: run again later",
}
_NO_HOLDER = ("ContainerNotFound", "ShareNotFound")


def build_client(store: dict, env: Mapping[str, str] = os.environ, **options: object):
    """Create a ContainerClient for an azure-blob store, or a ShareClient for an azure-files store.

    Args:
        store: the store's configuration entry: container or share, account_url, server.
        env: environment variables with a connection string or a SAS token. Without either of them, the credential chain
            of azure-identity is used.
        options: keyword arguments for the SDK's client.

    Raises:
        Problem: the connection string or the URL is malformed, they name different accounts, or there is no account.
    """
    options = PATIENCE | {"raw_response_hook": partial(_expect_storage, describe_place(store))} | options
    text, url = env.get(CONNECTION), store.get("account_url")
    if "share" in store:
        from azure.storage.fileshare import ShareClient as Client

        name, argument = store["share"], "share_name"
        if not (text or env.get(SAS)):
            # Required with azure-identity's tokens; it allows reading files regardless of their access control lists.
            options["token_intent"] = "backup"
    else:
        from azure.storage.blob import ContainerClient as Client

        name, argument = store["container"], "container_name"
    if store.get("server") == "embedded":
        # Requests to a server on the loopback interface must not use a proxy set in the environment.
        options["use_env_settings"] = False
    # The SDK's message is not shown, because it may contain the rejected connection string and thus a secret.
    try:
        if not text:
            return Client(url, name, credential=_choose_credential(url, env), **options)
        client = Client.from_connection_string(text, **{argument: name}, **options)
        ours = not url or urlsplit(client.url)[1:3] == urlsplit(f"{url}/{name}")[1:3]
    except ValueError as error:
        must = f"{CONNECTION} must be a connection string" if text else "account_url must be the URL of an account"
        raise Problem(f"{must} of Azure Storage; copy it again, without a SAS token (set {SAS} to it)") from error
    if not ours:
        raise Problem(f"{CONNECTION} and the store's account_url {url} name different accounts; correct one of them")
    return client


def describe_credentials(store: dict) -> str:
    """Describe the source of a store's credentials, without sending a request.

    Raises:
        Problem: no account is configured, or the SAS token has expired.
    """
    if expired := _check_expiry():
        raise Problem(expired)
    if os.environ.get(CONNECTION):
        return CONNECTION
    _expect_account(store.get("account_url"))
    return SAS if os.environ.get(SAS) else "azure-identity's chain (environment, managed identity, az login)"


def get_base_url(store: dict) -> str:
    """Return the URL of a remote container or share without credentials; raise Problem as `build_client` does."""
    with build_client(store) as client:
        parts = urlsplit(client.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def describe_place(store: dict) -> str:
    """Describe a store's container or share for messages."""
    what = f"share {store['share']}" if "share" in store else f"container {store['container']}"
    account = "the embedded account" if store.get("server") else f"the account of {CONNECTION}"
    return f"{what} of {store.get('account_url', account)}"


def find_holder(store: dict) -> str:
    """Check that the container or share exists and can be listed, and return its description for messages.

    Raises:
        Problem: the service cannot be reached, rejects the credentials, or does not contain the container or share.
    """
    where = describe_place(store)
    with convert_errors(where), build_client(store, retry_total=0) as client:
        if "share" in store:
            names = client.list_directories_and_files()
        else:
            names = client.list_blobs(name_starts_with=store["prefix"], results_per_page=1)
        next(iter(names), None)
    return where


@contextlib.contextmanager
def convert_errors(where: str) -> Iterator[None]:
    """Convert the SDK's exceptions to `Problem` or `Absent` with a one-line message that begins with `where`."""
    try:
        yield
    except AzureError as error:
        absent = isinstance(error, ResourceNotFoundError) and error.error_code not in _NO_HOLDER
        raise (Absent if absent else Problem)(_describe_error(error, where)) from error


def _describe_error(error: AzureError, where: str) -> str:
    name = type(error).__name__
    if isinstance(error, ClientAuthenticationError) and error.response is None:
        if name == "AzureSigningError":
            return f"{where}: the account key is malformed; correct it in {CONNECTION}"
        return f"no Azure credentials for {where}; set {CONNECTION} or {SAS}, or log in (az login)"
    if isinstance(error, HttpResponseError) and (error.status_code or 0) >= 400:
        code = getattr(error, "error_code", None)
        code = str(getattr(code, "value", code) or "")
        remedy = _REMEDIES.get(code, "see the service's documentation of this code")
        if error.status_code in (401, 403):
            remedy = _check_expiry() or remedy
        return f"{where}: request failed with {error.status_code} {code or error.reason}; {remedy}"
    if isinstance(error, ServiceRequestError):
        return f"{where} cannot be reached ({name}); check account_url or {CONNECTION}, and the network"
    return f"{where}: the response was cut or did not arrive ({name}); check the network and run again"


def _expect_storage(where: str, response: PipelineResponse) -> None:
    """Raise Problem for a successful response without the x-ms-version header, which Azure Storage always sends."""
    answer = response.http_response
    if answer.status_code < 400 and "x-ms-version" not in answer.headers:
        raise Problem(f"{where} does not respond like Azure Storage; check account_url or {CONNECTION}")


def _expect_account(url: str | None) -> None:
    if not url:
        raise Problem(f"no Azure account; set {CONNECTION}, or account_url of the store")


def _choose_credential(url: str | None, env: Mapping[str, str]):
    _expect_account(url)
    if token := env.get(SAS):
        return AzureSasCredential(token.lstrip("?"))
    if not url.startswith("https:"):
        raise Problem(f"account_url must be https for azure-identity's tokens (got {url}); correct it, or set {SAS}")
    from azure.identity import DefaultAzureCredential

    # azure-identity logs each failed attempt at length; the message of `convert_errors` is sufficient.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    return DefaultAzureCredential()


def _check_expiry() -> str | None:
    """Return an error message if a SAS token in the environment has expired, otherwise None."""
    signature = os.environ.get(CONNECTION, "").partition("SharedAccessSignature=")[2].partition(";")[0]
    for name, token in ((CONNECTION, signature), (SAS, os.environ.get(SAS, ""))):
        for end in parse_qs(token.lstrip("?")).get("se", []):
            with contextlib.suppress(ValueError):
                date = datetime.fromisoformat(end)
                if date.replace(tzinfo=date.tzinfo or UTC) < datetime.now(UTC):
                    return f"the SAS token in {name} expired at {end}; create a new token"
    return None


def sign_addresses(store: dict, key: str, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
    """Return the URL and the headers for a GET of each object; one of them contains the credential."""
    with build_client(store, env) as there:
        of = there.get_file_client if "share" in store else there.get_blob_client
        return {name: _sign_address(store, of(f"{key}/{name}"), f"{key}/{name}") for name in names}


def _sign_address(store: dict, client: Any, path: str) -> Address:
    credential = client.credential
    if hasattr(credential, "account_key"):
        return f"{client.url}?{_build_signature(store, path, credential)}", {}
    if isinstance(credential, AzureSasCredential):
        return f"{client.url}?{credential.signature}", {}
    if not hasattr(credential, "get_token"):
        return client.url, {}
    with convert_errors(describe_place(store)):
        token = credential.get_token(_AUDIENCE).token
    intent = {"x-ms-file-request-intent": "backup"} if "share" in store else {}
    return client.url, {"x-ms-version": client.api_version, **intent, "Authorization": f"Bearer {token}"}


def _build_signature(store: dict, path: str, credential) -> str:
    """Compute a SAS token that allows reading a single object, without sending a request."""
    account = {"account_name": credential.account_name, "account_key": credential.account_key}
    options = {"permission": "r", "expiry": datetime.now(UTC) + timedelta(seconds=VALID_S)}
    if "share" in store:
        from azure.storage.fileshare import generate_file_sas

        return generate_file_sas(share_name=store["share"], file_path=path.split("/"), **account, **options)
    from azure.storage.blob import generate_blob_sas

    return generate_blob_sas(container_name=store["container"], blob_name=path, **account, **options)


class Target(transfer.Target):
    """The destination of a dataset in a share. Azure Files does not split files into parts."""

    def __init__(self, store: dict, env: Mapping[str, str], key: str) -> None:
        """Create the client, without sending a request."""
        super().__init__(describe_place(store), key)
        self._connect = partial(build_client, store, env)
        self.client = self._connect()

    def convert_errors(self) -> contextlib.AbstractContextManager:
        """Convert the SDK's exceptions to `Problem` with a one-line message."""
        return convert_errors(self.where)

    def upload_object(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a file. After a failed upload the file ends with zeros, which the checksum detects."""
        for folder in reversed(PurePosixPath(self.build_object_key(name)).parents[:-1]):
            with contextlib.suppress(ResourceExistsError):
                self.client.create_directory(str(folder))
        options = {"length": size, "max_concurrency": transfer.THREADS, "progress_hook": progress.set_bytes}
        self.client.get_file_client(self.build_object_key(name)).upload_file(source, **options)


class Container(Target):
    """The destination of a dataset in a container."""

    most_parts = 50_000

    def make_holder(self) -> None:
        """Create the container if it is missing."""
        with contextlib.suppress(ResourceExistsError):
            self.client.create_container()

    def fetch_part_bytes(self, name: str) -> int | None:
        """Return the size of a blob's first block in bytes, or None if it is not a block blob.

        If the blob was uploaded in one request, it has no blocks, and its total size is returned.
        """
        blob = self.client.get_blob_client(self.build_object_key(name))
        try:
            blocks, _ = blob.get_block_list("committed")
        except HttpResponseError:
            return None
        return blocks[0].size if blocks else blob.get_blob_properties().size

    def upload_object(self, name: str, source: BinaryIO, size: int, part: int, progress: transfer.Progress) -> None:
        """Upload a blob in blocks; the service discards the blocks of a failed upload."""
        # The service verifies these checksums. Without them, Azurite computes others, which halves the speed.
        options = {"length": size, "overwrite": True, "validate_content": True, "max_concurrency": transfer.THREADS}
        options["progress_hook"] = progress.set_bytes
        with self._connect(max_block_size=part, max_single_put_size=part) as container:
            container.upload_blob(self.build_object_key(name), source, **options)
