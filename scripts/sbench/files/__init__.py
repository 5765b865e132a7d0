"""Tools for users' HDF5 files: look, advise, forecast and bisect."""
