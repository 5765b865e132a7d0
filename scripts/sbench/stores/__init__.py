"""Store the data that a benchmark reads: a folder per kind of store, one interface (`store`) and shared modules."""
