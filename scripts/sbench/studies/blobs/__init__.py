"""Parallel input from object stores and file systems (MPI)."""
