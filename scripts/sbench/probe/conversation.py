"""What a measuring program says to the step that started it, and what it hears back.

The step (`scripts/step.py`) writes one JSON line, the job, to the program's standard input. The program answers with
JSON lines on its standard output: `open`, when it is about to measure, upon which the step sets the state of the page
cache and starts to count requests; `close`, when it is done and nobody reads any more; and at the end `record`, or
`unable` with the `reason`, where what is there cannot be read as the cell asks. The last window counts. Whatever else a
library prints goes to standard error, which is the log.
"""

import json
import os
import resource
import sys
from collections.abc import Callable

from sbench.probe import provenance, software
from sbench.probe.program import Problem, Unable


class Step:
    """The measuring program's end of the line to its step."""

    def __init__(self) -> None:
        """Take standard output for the line and leave its place to standard error."""
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.job = self.receive_message()

    def open_window(self, *, sets_cache: bool = False) -> None:
        """Return when the page cache is as asked, unless the program sets it itself, and requests are counted."""
        self.send_message({"event": "open", "sets_cache": sets_cache})
        self.receive_message()

    def close_window(self) -> dict:
        """Say that nobody reads any more; return the requests that were counted, by method, if they were."""
        self.send_message({"event": "close"})
        return self.receive_message().get("requests", {})

    def send_record(self, record: dict) -> None:
        """Hand over the program's part of the record, and which code and software measured.

        `modules` in it, and `files` (see `sbench.probe.software`), are those of what measured beside this process.
        """
        modules = [*provenance.list_loaded_modules(), *record.get("modules", [])]
        # The largest process of this one and of those that it has waited for; the kernel counts in KiB (getrusage(2)).
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = 1024 * max(resource.getrusage(who).ru_maxrss for who in whose)
        files = software.list_loaded_libraries() | record.pop("files", {})
        seen = {"distributions": software.list_distributions(), "files": files}
        more = {"modules": modules, "software": seen, "peak_bytes": peak}
        self.send_message({"event": "record", "record": record | more})

    def send_message(self, message: dict) -> None:
        """Say a line to the program that started this one."""
        print(json.dumps(message), file=self._out, flush=True)

    def receive_message(self) -> dict:
        """Return its next line."""
        line = sys.stdin.readline()
        if not line:
            raise Problem("this program is started by scripts/step.py, which says what to measure, and that is gone")
        return json.loads(line)


def run_measurement(measure: Callable[[Step], dict]) -> int:
    """Run a measuring program: `measure` gets the line to its step and returns its part of the record."""
    step = Step()
    try:
        step.send_record(measure(step))
    except Unable as reason:
        step.send_message({"event": "unable", "reason": str(reason)})
    return 0
