"""The tables of batteries and volumes: their order, what they are, what did not work, the job files."""

import numpy as np
import pandas as pd

from scripts.report import account
from scripts.report.account import fact, without_empty
from scripts.report.markup import code, paragraph, verbatim
from scripts.report.page import Table
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Results
from scripts.studies.volumes.series import FACTORS


def troubled(results: Results) -> Table:
    """Return batteries that failed or are invalid, and why."""
    return account.troubled(results.cells, lambda cells: words.columns(cells, results, every=True), "Batteries")


def left_out(results: Results) -> Table:
    """Return the files of an import that could not be used, and why."""
    rows = [
        {"file": str(one.get("file", "")), "reason": str(one.get("reason", ""))}
        for one in results.facts.get("left_out") or []
    ]
    return Table("left-out-files", "Files of the import that are not in the tables.", pd.DataFrame(rows))


def batteries(results: Results) -> Table:
    """Return the batteries in the order in which they were run, with the pause before each and between its jobs."""
    records = results.facts.get("batteries") or []
    if not records:
        return Table("batteries", "", pd.DataFrame())
    order = sorted(records, key=lambda battery: (str(battery.get("started_utc") or "~"), battery.get("position") or 0))
    rows, before = [], None
    for number, battery in enumerate(order, 1):
        started, ended = (
            pd.to_datetime(battery.get(f"{end}_utc"), utc=True, errors="coerce") for end in ("started", "ended")
        )
        rest = (started - before).total_seconds() if before is not None and pd.notna(started) else np.nan
        rows.append(
            {
                "": number,
                **{factor: words.level(factor, str(battery.get(factor) or "")) for factor in FACTORS},
                "began": f"{started:%Y-%m-%d %H:%M:%S}" if pd.notna(started) else "",
                "took": words.duration((ended - started).total_seconds())
                if pd.notna(started) and pd.notna(ended)
                else "",
                "rest before it": words.duration(rest) if pd.notna(rest) and rest >= 0 else "",
                "pause between jobs / s": battery.get("pause_s"),
                "status": battery.get("status") or "",
                "reasons": "; ".join(map(str, battery.get("reasons") or [])),
            }
        )
        before = ended if pd.notna(ended) else None
    frame = without_empty(pd.DataFrame(rows))
    caption = (
        "The batteries in the order of their start (UTC): credits that one spends are gone for the next on the volume."
    )
    return Table("batteries", caption, frame, {"pause between jobs / s": "{:g}".format})


def volumes(results: Results) -> Table:
    """Return what is known of each volume: type and size, device, mount, fio, kernel and processor."""
    rows = []
    for battery in results.facts.get("batteries") or []:
        volume = battery.get("volume") if isinstance(battery.get("volume"), dict) else {}
        row = {"volume": battery.get("store"), "host": battery.get("host")}
        row |= {key.replace("_", " "): value for key, value in volume.items() if not isinstance(value, (dict, list))}
        row |= {key: battery.get(key) for key in ("device", "memory", "mount", "fio", "kernel", "cpu")}
        rows.append({key: "" if value is None else fact(value) for key, value in row.items()})
    frame = without_empty(pd.DataFrame(rows).fillna("").drop_duplicates(ignore_index=True)) if rows else pd.DataFrame()
    return Table(
        "volumes", "The volumes, as the configuration or the instance's metadata say, and what wrote to them.", frame
    )


def job_files(results: Results) -> list[str]:
    """Return each job file: its text, or the options that fio tells of."""
    lines = []
    for name, job in (results.facts.get("jobs") or {}).items():
        text = (job or {}).get("text") or "\n".join(
            key if str(value) in ("", "1") else f"{key}={value}"
            for key, value in ((job or {}).get("options") or {}).items()
        )
        if text:
            lines.append(paragraph(f"Job {code(name)}:") + verbatim(text.strip()))
    return lines or _options(results)


def _options(results: Results) -> list[str]:
    """The options of each job file as the batteries tell them, in a line."""
    by_job = {}
    for battery in results.facts.get("batteries") or []:
        options = battery.get("options") or {}
        if options:
            arguments = " ".join(f"--{key}={value}" for key, value in options.items())
            by_job[battery.get("job") or ""] = arguments
    return [f"{f'Job {name}: ' if name else ''}{arguments}" for name, arguments in by_job.items()]
