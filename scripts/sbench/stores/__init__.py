"""The places where data lie: a folder for each kind of store behind one interface (`store`), and what these share."""
