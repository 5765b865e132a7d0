"""Build pages from the tables and facts of any study."""
