"""Read files of this machine's file systems."""
