"""Describe the order of reads, which affects the number of requests and bytes."""

from collections.abc import Mapping

import pandas as pd

from sbench.pages import prose
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.studies.shots.report import words

_DIGITS = 10


def describe_orders(run: Results) -> list[str]:
    """Write a sentence for each order in which a run read its data."""
    lines = []
    for order in run.facts.get("reads") or []:
        fields = {
            "access": prose.capitalize_first(_format_access(run, order)),
            "reads": prose.format_count(order["reads"], "read"),
        }
        lines.append(
            words.fill("order of reads", **fields, objects=_format_objects(order), datasets=_format_datasets(order))
        )
    return lines


def build_order_table(run: Results) -> Table:
    """Build a table of the orders in which a run read its data. Each has a hash to compare runs by."""
    rows = [
        {
            **{
                "data": order["data"],
                "access": _format_access(run, order),
                "objects, in order": _format_objects(order),
            },
            **{"datasets, in order": _format_datasets(order), "reads": order["reads"]},
            "order": order["sha256"][:_DIGITS],
        }
        for order in run.facts.get("reads") or []
    ]
    caption = words.fill("table of reads", run=run.facts.get("run", ""))
    return Table("order-of-reads", caption, pd.DataFrame(rows))


def _format_access(run: Results, order: Mapping) -> str:
    return run.names.format_subject("access", order["access"])


def _format_objects(order: Mapping) -> str:
    more = f", … ({order['objects_count']})" if order["objects_count"] > len(order["objects"]) else ""
    return f"{', '.join(order['objects'])}{more}"


def _format_datasets(order: Mapping) -> str:
    more = ", …" if order["reads"] > len(order["first"]) else ""
    return f"{', '.join(path for _, path in order['first'])}{more}"
