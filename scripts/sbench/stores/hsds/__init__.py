"""Support a running HDF service (HSDS), which manages the storage of its datasets itself."""
