"""Convert the published rates to records of the arrays study, one record per rate."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sbench.studies.arrays import printed

FILE = "article_tables.csv"
BYTES = 12000 * 2200 * 8
# Full names of the machines whose names the article's tables abbreviate.
MACHINES = {"macpro": "MacBook Pro", "devone": "HP Dev One"}
# Numbers of nodes, where the article mentions them.
NODES = {("stream_test", "m5.2xlarge"): "4"}


def load_records(files: Mapping[str, Path]) -> Iterator[dict]:
    """Yield a record for each published rate. The machine on which it was measured becomes the record's store."""
    for row in printed.read_printed(files[FILE]):
        shape, protocol = printed.TESTS[row["test"]]
        # The article timed writes until they were acknowledged, and read from the service's memory.
        cell = {
            **{
                "library": "published",
                "store": MACHINES.get(row["machine"], row["machine"]),
                "backend": row["backend"],
            },
            **{"operation": row["operation"], "shape": shape, "compression": row["compression"]},
            **{"protocol": protocol if row["backend"] == "hsds" else "client"},
            **{"nodes": NODES.get((row["test"], row["machine"]), "unknown"), "cache": "any"},
        }
        seconds = BYTES / printed.MIB / row["mib_s"]
        sample = {"total_s": seconds, "bytes": BYTES}
        work = {"logical_bytes": BYTES, "timed_bytes": BYTES}
        yield {"cell": cell, "repeat": 1, "seconds": {"total": seconds}, "work": work, "samples": [sample]}
