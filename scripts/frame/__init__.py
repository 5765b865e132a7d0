"""From a configuration to its cells and their records, whatever the study."""
