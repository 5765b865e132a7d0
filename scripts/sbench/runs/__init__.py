"""Tools for finished runs: compare, archive, cite, export."""
