"""Build the cells of a configuration and read their records, for any study."""

# The configuration if a command names no other.
DEFAULT_CONFIG = "config/config.yaml"
