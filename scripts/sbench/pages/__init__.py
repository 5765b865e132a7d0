"""From tables and facts to pages, whatever the study."""
