"""Azure Storage: objects of Azure Blob, of Azurite on the loopback, and files of Azure Files."""

# The variables that have an account's credentials.
CONNECTION, SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"
