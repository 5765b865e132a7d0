"""Audit published studies: convert their data to this project's tables, and test their claims with the data."""
