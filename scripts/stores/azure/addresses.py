"""Where an account is, as readers are told; nothing here imports an SDK, which takes longer than many a cell."""

# The variables that have an Azure account's credentials.
CONNECTION, SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"


def connection_string(endpoint: str, credentials: dict[str, str]) -> str:
    """Return the connection string of an embedded server's account.

    Args:
        endpoint: URL of the server.
        credentials: {"account", "key"}.
    """
    protocol, account = endpoint.partition(":")[0], credentials["account"]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={credentials['key']};"
        f"BlobEndpoint={endpoint}/{account}"
    )
