"""The particles study: load and reduce chunked particle data with Dask."""
