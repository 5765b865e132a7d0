"""The blobs study: MPI processes read in parallel from object stores and file systems."""
