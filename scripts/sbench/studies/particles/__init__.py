"""The `particles` study: loading and reducing chunked particle data with Dask."""
