"""Plan a call of the workflow, measure a cell, and build the tables of its records."""
