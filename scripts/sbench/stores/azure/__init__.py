"""Support Azure Storage: Azure Blob, its emulator Azurite, and Azure Files."""

# Environment variables for an account's credentials.
CONNECTION, SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"
