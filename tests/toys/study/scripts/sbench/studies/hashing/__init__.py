"""A study that is as small as one can be."""
