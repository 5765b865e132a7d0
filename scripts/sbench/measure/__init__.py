"""Measures: a call of the workflow, a cell, and the tables of its records."""
