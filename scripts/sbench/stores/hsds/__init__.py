"""A running HDF service (HSDS) elsewhere, which keeps datasets itself."""
