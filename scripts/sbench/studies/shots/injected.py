"""Summarise how each configuration handled injected faults, for the study's report."""

import statistics
from collections.abc import Mapping, Sequence

from sbench.design import validity
from sbench.design.records import Kept
from sbench.stores import faults


def list_outcomes(kept: Sequence[Kept]) -> list[dict]:
    """Summarise the records of each cell (configuration) with fault injection in a row. Controls are excluded.

    Returns:
        Rows with the following keys:
        cell: name of the cell.
        attempts: number of records in which a fault was injected.
        failed: number of these records that ended with an error or returned wrong values.
        missed: number of records without an injected fault, which do not count as attempts.
        injected: number of faults in the records that recovered.
        extra_gets: additional GETs per fault, compared with the record of the same block without faults, as the median
            over blocks; None if there is no such block.
        extra_s: additional seconds per fault, in the same way.
    """
    own = [one for one in kept if one.record and not one.levels.get("control")]
    plain = {
        (*_get_other_levels(one.levels), one.repeat): one.record
        for one in own
        if one.levels.get("fault") == faults.NONE and not validity.list_faults(one.record)
    }
    of_cells: dict[str, list[Kept]] = {}
    for one in own:
        if "injected" in one.record:
            of_cells.setdefault(one.cell, []).append(one)
    return [_build_row(cell, rows, plain) for cell, rows in of_cells.items()]


def _get_other_levels(levels: Mapping[str, str]) -> tuple:
    return tuple(level for factor, level in levels.items() if factor != "fault")


def _build_row(cell: str, rows: list[Kept], plain: Mapping[tuple, dict]) -> dict:
    met = [one for one in rows if one.record["injected"]["count"]]
    recovered = [one for one in met if not validity.list_faults(one.record)]
    pairs = [(one.record, plain.get((*_get_other_levels(one.levels), one.repeat))) for one in recovered]
    extra = [
        (
            (faulty["injected"]["gets"] - base["requests"]["GET"]["count"]) / faulty["injected"]["count"],
            (faulty["seconds"]["total"] - base["seconds"]["total"]) / faulty["injected"]["count"],
        )
        for faulty, base in pairs
        if base
    ]
    gets, seconds = map(statistics.median, zip(*extra, strict=True)) if extra else (None, None)
    return {
        **{"cell": cell, "attempts": len(met), "failed": len(met) - len(recovered), "missed": len(rows) - len(met)},
        **{"injected": sum(one.record["injected"]["count"] for one in recovered)},
        **{"extra_gets": gets, "extra_s": seconds},
    }
