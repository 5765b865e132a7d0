"""What is done with finished runs: compare, archive, cite, export."""
