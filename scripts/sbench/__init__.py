"""Measures how fast scientific data are read and written, and decides whether a difference is real."""
