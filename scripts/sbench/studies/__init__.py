"""A folder a study: its declaration (`study`), its data (`make`), what measures a cell (`measure`), its report."""
