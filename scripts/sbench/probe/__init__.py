"""What measuring programs may import: standard library, numpy, h5py, dask and a store's client."""
