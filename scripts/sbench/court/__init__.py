"""Audit published studies: convert their data to our tables, and test their claims with the data."""
