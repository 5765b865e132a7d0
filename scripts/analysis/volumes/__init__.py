"""The volumes study: merged latencies, limits, changes, burst credits and comparisons, as tables and as a report."""
