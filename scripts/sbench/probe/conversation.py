"""Exchange messages between a measuring program and the step that started it.

The step (`scripts/step.py`) writes the job as a line of JSON to the program's standard input. The program writes events
as lines of JSON to its standard output: `open` before it measures, so that the step sets the state of the page cache
and starts to count requests; `close` after all reads; and finally `record`, or `unable` with a `reason` if it cannot
read the existing data as the cell requires. A program may measure several times; the last `open` and `close` count.
Other output, such as warnings of libraries, is redirected to standard error, which is the log.
"""

import json
import os
import resource
import sys
from collections.abc import Callable

from sbench.probe import provenance, software
from sbench.probe.program import Problem, Unable


class Step:
    """The connection of a measuring program to the step that started it."""

    def __init__(self) -> None:
        """Use standard output for messages, and redirect other output to standard error."""
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.job = self.receive_message()

    def open_window(self, *, sets_cache: bool = False) -> None:
        """Wait until the step counts requests and has set the state of the page cache.

        Args:
            sets_cache: whether the program sets the page cache itself, so that the step does not.
        """
        self.send_message({"event": "open", "sets_cache": sets_cache})
        self.receive_message()

    def close_window(self) -> dict:
        """Report the end of all reads, and return the number of requests by method; empty if they were not counted."""
        self.send_message({"event": "close"})
        return self.receive_message().get("requests", {})

    def send_record(self, record: dict) -> None:
        """Send the measured part of the record, with the code, software and peak memory of this process added.

        "modules" and "files" (see `sbench.probe.software`) in `record` come from other measuring processes.
        """
        modules = [*provenance.list_loaded_modules(), *record.get("modules", [])]
        # The largest peak of this process and its terminated children, converted from KiB (getrusage(2)).
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = 1024 * max(resource.getrusage(who).ru_maxrss for who in whose)
        files = software.list_loaded_libraries() | record.pop("files", {})
        seen = {"distributions": software.list_distributions(), "files": files}
        more = {"modules": modules, "software": seen, "peak_bytes": peak}
        self.send_message({"event": "record", "record": record | more})

    def send_message(self, message: dict) -> None:
        """Send a message to the step as a line of JSON."""
        print(json.dumps(message), file=self._out, flush=True)

    def receive_message(self) -> dict:
        """Wait for the next message from the step and return it."""
        line = sys.stdin.readline()
        if not line:
            raise Problem("scripts/step.py closed the connection; start measuring programs through scripts/step.py")
        return json.loads(line)


def run_measurement(measure: Callable[[Step], dict]) -> int:
    """Run a measuring program and return its exit status.

    Args:
        measure: measures a cell, given the connection to the step, and returns the measured part of the record.
    """
    step = Step()
    try:
        step.send_record(measure(step))
    except Unable as reason:
        step.send_message({"event": "unable", "reason": str(reason)})
    return 0
