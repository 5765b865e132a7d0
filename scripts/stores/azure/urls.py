"""The URLs by which a bare request may ask for objects: with a credential in them, or a token beside them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from azure.core.credentials import AzureSasCredential

from scripts.stores.azure import client as azure
from scripts.stores.bare import VALID_S, Address

# What a token of azure-identity is for.
_AUDIENCE = "https://storage.azure.com/.default"


def addresses(store: dict, key: str, names: Iterable[str]) -> dict[str, Address]:
    """Return the URL of each object under a key, and what a request says beside it.

    Raises:
        Problem: there are no credentials to sign with.
    """
    files = "share" in store
    holder = (azure.share if files else azure.blob_container)(store)

    def address(name: str) -> Address:
        path = f"{key}/{name}"
        client = holder.get_file_client(path) if files else holder.get_blob_client(path)
        credential = client.credential
        if hasattr(credential, "account_key"):
            return f"{client.url}?{_signature(store, path, credential)}", {}
        if isinstance(credential, AzureSasCredential):
            return f"{client.url}?{credential.signature}", {}
        if hasattr(credential, "get_token"):
            headers = {"x-ms-version": client.api_version} | ({"x-ms-file-request-intent": "backup"} if files else {})
            with azure.explained(azure.place(store)):
                token = credential.get_token(_AUDIENCE).token
            return client.url, headers | {"Authorization": f"Bearer {token}"}
        return client.url, {}

    return {name: address(name) for name in names}


def _signature(store: dict, path: str, credential) -> str:
    """Return the signature that lets whoever has it read one object; made here, nothing is asked."""
    account = {"account_name": credential.account_name, "account_key": credential.account_key}
    options = {"permission": "r", "expiry": datetime.now(UTC) + timedelta(seconds=VALID_S)}
    if "share" in store:
        from azure.storage.fileshare import generate_file_sas

        return generate_file_sas(share_name=store["share"], file_path=path.split("/"), **account, **options)
    from azure.storage.blob import generate_blob_sas

    return generate_blob_sas(container_name=store["container"], blob_name=path, **account, **options)
