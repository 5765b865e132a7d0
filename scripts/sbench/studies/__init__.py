"""The studies, one package each: `study` declares it, `make` generates its data, `measure` measures one cell."""
