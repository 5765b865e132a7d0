"""Objects of a folder that Python serves over HTTP on the loopback: a kind of store that is as small as one can be."""
