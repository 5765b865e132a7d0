"""What the report of the study calls its factors and metrics."""

from pathlib import Path

from sbench.pages.declaration import Factor, Metric, Report
from sbench.pages.results import Results
from sbench.pages.run_files import read_facts, read_table

REPORT = Report(
    study="hashing",
    title="Checksums",
    headline="algorithm",
    factors=(Factor("algorithm", subject="{}"), Factor("store", place=True), Factor("cache", place=True)),
    metrics=(Metric("total", "total runtime"), Metric("read", "reading")),
)
_TEXTS = (*REPORT.names, "control", "cell", "baseline", "contender", "omitted", "twin_of", "reasons", "note")


def load(tables: str, facts: str) -> Results:
    """Return the tables and facts of a run."""
    names = ("samples", "cells", "verdicts", "matrix")
    tables_of = {name: read_table(Path(tables, f"{name}.csv"), _TEXTS) for name in names}
    return Results(**tables_of, facts=read_facts(facts), report=REPORT)
