"""Tools for HDF5 files of users: look, advise, forecast, bisect."""
