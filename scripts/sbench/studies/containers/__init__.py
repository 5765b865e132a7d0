"""The study of containers for the same data: HDF5, references, Icechunk, Zarr and Parquet."""
