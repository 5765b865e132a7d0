"""Read and write Azure Storage: objects of Azure Blob and Azurite, and files of Azure Files."""

# Environment variables with an account's credentials.
CONNECTION, SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"
