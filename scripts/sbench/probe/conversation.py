"""Exchange messages between a measuring program and the step that started it.

The step (`scripts/step.py`) writes a JSON line, the job, to the program's standard input. The program answers with JSON
lines on its standard output: `open` before it measures, upon which the step sets the state of the page cache and starts
to count requests; `close` after all reads; and at the end `record`, or `unable` with the `reason` if it cannot read the
existing data as the cell asks. The last window counts. Any other output of a library goes to standard error, which is
the log.
"""

import json
import os
import resource
import sys
from collections.abc import Callable

from sbench.probe import provenance, software
from sbench.probe.program import Problem, Unable


class Step:
    """The measuring program's end of the connection to its step."""

    def __init__(self) -> None:
        """Use standard output for messages, and redirect other output to standard error."""
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.job = self.receive_message()

    def open_window(self, *, sets_cache: bool = False) -> None:
        """Wait until the step counts requests and, unless the program does so, has set the page cache."""
        self.send_message({"event": "open", "sets_cache": sets_cache})
        self.receive_message()

    def close_window(self) -> dict:
        """Report the end of all reads; return the counted requests by method, if any."""
        self.send_message({"event": "close"})
        return self.receive_message().get("requests", {})

    def send_record(self, record: dict) -> None:
        """Send the program's part of the record, with the code and software that measured.

        `modules` in it, and `files` (see `sbench.probe.software`), come from other measuring processes.
        """
        modules = [*provenance.list_loaded_modules(), *record.get("modules", [])]
        # The largest process among this process and its ended children; the kernel counts in KiB (getrusage(2)).
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = 1024 * max(resource.getrusage(who).ru_maxrss for who in whose)
        files = software.list_loaded_libraries() | record.pop("files", {})
        seen = {"distributions": software.list_distributions(), "files": files}
        more = {"modules": modules, "software": seen, "peak_bytes": peak}
        self.send_message({"event": "record", "record": record | more})

    def send_message(self, message: dict) -> None:
        """Send a line to the step."""
        print(json.dumps(message), file=self._out, flush=True)

    def receive_message(self) -> dict:
        """Return the next line from the step."""
        line = sys.stdin.readline()
        if not line:
            raise Problem("scripts/step.py closed the connection; start measuring programs through scripts/step.py")
        return json.loads(line)


def run_measurement(measure: Callable[[Step], dict]) -> int:
    """Run a measuring program: `measure` gets the connection to its step and returns its part of the record."""
    step = Step()
    try:
        step.send_record(measure(step))
    except Unable as reason:
        step.send_message({"event": "unable", "reason": str(reason)})
    return 0
