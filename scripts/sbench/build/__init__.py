"""Build the libraries under test and the embedded servers from pinned sources, into a cache shared by all clones."""
