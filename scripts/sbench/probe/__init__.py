"""Modules for measuring programs, which need only the standard library, numpy, h5py, dask or a store's client."""
