"""Published studies: their data as tables of ours, what they claim, and whether the data say so."""
