"""A running HDF service (HSDS) elsewhere, which keeps arrays itself."""
