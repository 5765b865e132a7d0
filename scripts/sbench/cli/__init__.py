"""The command `sbench`: one file per command, which names its options and calls what does it."""
