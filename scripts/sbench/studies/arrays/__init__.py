"""The arrays study: a 2-D array written and read through HSDS, as Zarr, and by the HDF5 library."""
