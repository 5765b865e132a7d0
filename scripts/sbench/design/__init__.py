"""From a configuration to its cells and their records, whatever the study."""

# What is measured where no configuration is named.
DEFAULT_CONFIG = "config/config.yaml"
