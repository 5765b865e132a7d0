"""Whether a record counts: why it takes no part in medians and verdicts."""

import contextlib

from sbench.design import checks, records
from sbench.design import study as studies


def list_faults(record: dict) -> list[str]:
    """Return why a record takes no part in medians and verdicts; nothing where it does.

    What its numbers show is not taken from its word (`valid`): whoever edits a record can write the digest anew.
    """
    unknown = f"{'invalid' if record['status'] == 'done' else 'failed'} without a reason"
    reasons = [] if record["valid"] else record.get("reasons") or [unknown]
    shown = _list_shown_faults(record) if record["valid"] and record["status"] == "done" else []
    return [*reasons, *shown, *([records.EDITED] if records.is_edited(record) else [])]


def _list_shown_faults(record: dict) -> list[str]:
    # What an earlier version wrote may lack what a study looks at by now.
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        return studies.get_study(record["study"]).check_record(record, record["settings"])
    return checks.check_work(record.get("work") or {})
