"""Access the stores that contain benchmark data: one package per kind of store, plus the shared interface (`store`)."""
