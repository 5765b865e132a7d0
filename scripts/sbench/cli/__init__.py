"""The command `sbench`: one file per command, which lists its options and calls the code that does the work."""
