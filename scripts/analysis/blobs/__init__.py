"""The report of the blobs study: what its notebook calls."""
