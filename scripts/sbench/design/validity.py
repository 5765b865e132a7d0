"""Decide whether a record counts in medians and verdicts."""

import contextlib

from sbench.design import checks, records
from sbench.design import study as studies


def list_faults(record: dict) -> list[str]:
    """Return why a record takes no part in medians and verdicts; [] if it does.

    Check its numbers again rather than trust `valid`: whoever edits a record can also write a new digest.
    """
    unknown = f"{'invalid' if record['status'] == 'done' else 'failed'} without a reason"
    reasons = [] if record["valid"] else record.get("reasons") or [unknown]
    shown = _list_shown_faults(record) if record["valid"] and record["status"] == "done" else []
    return [*reasons, *shown, *([records.EDITED] if records.is_edited(record) else [])]


def _list_shown_faults(record: dict) -> list[str]:
    # Records of an earlier version may lack fields that the study checks.
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        return studies.get_study(record["study"]).check_record(record, record["settings"])
    return checks.check_work(record.get("work") or {})
