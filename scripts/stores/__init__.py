"""The places where data lie: the servers that the workflow owns, and the clients that put data there."""
