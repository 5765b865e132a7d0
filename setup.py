"""Adds to the package what else runs of a clone; all the rest stands in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

# Beside the package its metadata would be a distribution of every library under test.
Path("build").mkdir(exist_ok=True)
setup(
    packages=[*find_packages("scripts"), "sbench.clone", "snakemake_logger_plugin_benchmark"],
    options={"egg_info": {"egg_base": "build"}},
)
