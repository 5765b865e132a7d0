"""Tools for completed runs: compare, archive, cite and export them."""
