"""Expand a configuration into the cells to measure, and read their records; shared by all studies."""

# The default configuration of all subcommands.
DEFAULT_CONFIG = "config/config.yaml"
