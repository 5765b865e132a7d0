"""Azure Storage: objects of Azure Blob, of Azurite on the loopback, and files of Azure Files."""
