"""Adds to the package what else runs of a clone; all the rest stands in pyproject.toml."""

from setuptools import find_packages, setup

setup(packages=[*find_packages("scripts"), "sbench.clone", "snakemake_logger_plugin_benchmark"])
