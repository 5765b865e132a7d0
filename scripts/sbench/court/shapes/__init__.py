"""Generators of data for claims: trees of groups, tracks of a satellite, grids, frames and samples."""
