"""Decide whether a record is included in medians and verdicts."""

import contextlib

from sbench.design import checks, records
from sbench.design import study as studies


def list_faults(record: dict) -> list[str]:
    """Return the reasons for excluding a record from medians and verdicts; an empty list to include it.

    The record's numbers are checked again, even if it is marked `valid`, because an edited record may have a matching
    digest.
    """
    unknown = f"{'invalid' if record['status'] == 'done' else 'failed'} without a reason"
    reasons = [] if record["valid"] else record.get("reasons") or [unknown]
    shown = _list_shown_faults(record) if record["valid"] and record["status"] == "done" else []
    return [*reasons, *shown, *([records.EDITED] if records.is_edited(record) else [])]


def _list_shown_faults(record: dict) -> list[str]:
    # Records of earlier versions may lack fields that the study checks.
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        return studies.get_study(record["study"]).check_record(record, record["settings"])
    return checks.check_work(record.get("work") or {})
