"""Support files in this machine's file systems."""
