"""Use a running HDF service (HSDS), which stores datasets itself."""
