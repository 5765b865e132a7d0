"""Files of this machine's file systems."""
