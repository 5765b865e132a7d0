"""The report of the shots study: what its notebook calls."""
