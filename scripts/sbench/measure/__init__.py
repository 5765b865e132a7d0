"""Plan a run of the workflow, measure cells, judge the results, and build tables from the records."""
