"""Measuring programs import these modules, which need the standard library, numpy, h5py, dask or a store's client."""
