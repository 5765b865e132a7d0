"""From records to tables and verdicts, whatever the study."""

# Of one comparison, for a verdict: 2**5 distinct flips are the fewest that can give p <= 0.05.
MIN_BLOCKS = 6
# Percent of a cell's time that the harness may take, for a verdict (METHOD 13).
HARNESS = 10
