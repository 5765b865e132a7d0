"""Launch a cell's measuring program, and observe its timed window from another process (METHOD 6, 8, 11).

Times can vary between launches of the same program (METHOD 6). A cell may therefore launch its program several times
for each record. The results of these launches are merged, so a record is a single observation in any case.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from sbench.probe import page_cache, resources
from sbench.probe.processes import run_process
from sbench.probe.program import Problem, build_command
from sbench.stores.embedded import Served

_POLL_S = 1.0
# Entries of a record that are summed over launches: the times that cover all iterations, and the retries of requests.
_ADDED_SECONDS, _ADDED = ("total", "null", "verify"), ("retries", "attempts")
# Columns of a request (`embedded.EXCHANGE`) with times since the start of the window.
_TIMES = ("begin", "first", "end")


class Ended(Problem):
    """Raised if a job ends early and its artefact needs entries in addition to the reason.

    Attributes:
        also: these entries, any of:

            - `cause`: the first failed artefact, if the job was skipped because of it;
            - `timed_out_s`: the time limit in seconds that the job exceeded, a lower bound on its time;
            - `unable`: whether the cell is omitted because it cannot read the existing data;
            - `injected`: the injected faults that made a read fail (see `faults.record_fault`).
    """

    def __init__(self, words: str, **also: object) -> None:
        """Store the reason, one line of text, and the additional entries."""
        super().__init__(words)
        self.also = also


class Window:
    """The timed window as observed from outside the measuring program: page cache, requests and resources.

    Attributes:
        cache: the state of the page cache before and after the window, as in a record.
        requests: the requests that reached the embedded server, by method.
        passed: traffic through the emulated network (see `embedded.Proxy.fetch_traffic`); None without it.
        seconds: the length of the window.
        resources: the resources used in the window (see `resources.Meter.close`), and its length `window_s`.
    """

    def __init__(
        self,
        state: str,
        files: list[Path],
        served: Served | None,
        unknown: str = "unverified",
        meter: resources.Meter | None = None,
    ) -> None:
        """Prepare a window without opening it.

        Args:
            state: the requested state of the page cache.
            files: the files whose pages must be in that state.
            served: the embedded server whose requests are counted, if any.
            unknown: the state to record if `files` is empty.
            meter: measures the resources used by the reader and the servers.
        """
        self._state, self._files, self._served, self._unknown = state, files, served, unknown
        self._meter = meter or resources.Meter({})
        self.cache: dict = {}
        self.requests: dict = {}
        self.passed: dict | None = None
        self.seconds = 0.0
        self.resources: dict = {}

    def open(self, *, sets_cache: bool) -> None:
        """Open the window, and set the page cache state unless the program does this itself (`sets_cache`)."""
        os.sync()
        if not sets_cache:
            uncontrolled = {"asked": self._state, "state": self._unknown, "resident_before": None}
            self.cache = page_cache.set_cache_state(self._state, self._files) if self._files else uncontrolled
        if self._served:
            self._served.open_window()
        self._meter.open()
        self._opened = time.monotonic()

    def close(self) -> None:
        """Close the window after all reads, and measure the requests, the resources and the page cache."""
        self.seconds = time.monotonic() - self._opened
        self.resources = {"window_s": self.seconds, **self._meter.close()}
        if self._served:
            self.requests, self.passed = self._served.close_window()
        self.cache["resident_after"] = page_cache.measure_resident(self._files) if self._files else None


def get_program_name(study: str) -> str:
    """Return the module name of a study's measuring program."""
    return f"sbench.studies.{study}.measure"


class Child:
    """A running measuring program, which communicates over pipes (see sbench.probe.conversation)."""

    def __init__(
        self, stack: contextlib.ExitStack, python: list[str], study: str, job: dict, env: dict, log: IO[str]
    ) -> None:
        """Start the program with the library's interpreter, and send it the job. Closing `stack` ends the program."""
        self._name, self._log = get_program_name(study), log
        command = build_command(self._name, python=python)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        try:
            self._process: subprocess.Popen[str] = stack.enter_context(run_process(command, log, env, **pipes))
        except OSError as error:
            raise Problem(
                f"{python[-1]} does not start ({error.strerror}); remove the library's artefact and run again"
            ) from error
        self._orders, self._answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self.pid = self._process.pid
        self._send_message(job)

    def receive_record(self, window: Window, served: Served | None) -> dict:
        """Handle the program's messages until it sends its part of the record.

        Raises:
            Ended: the program cannot read the existing data.
            Problem: the program or a server ended.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while True:
                if served and served.list_dead_servers():
                    raise Problem(f"{' and '.join(served.list_dead_servers())} ended during the measurement")
                if not selector.select(_POLL_S):
                    continue
                line = self._answers.readline()
                if not line:
                    status = self._process.wait()
                    if served and served.list_dead_servers():
                        continue
                    self._log.flush()
                    raise Problem(describe_ending(self._name, status, Path(self._log.name)))
                message = json.loads(line)
                if message["event"] == "record":
                    record: dict = message["record"]
                    return record
                if message["event"] == "unable":
                    raise Ended(message["reason"], unable=True)
                if message["event"] == "open":
                    window.open(sets_cache=message["sets_cache"])
                    self._send_message({})
                else:
                    window.close()
                    self._send_message({"requests": window.requests})

    def _send_message(self, message: dict) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(message), file=self._orders, flush=True)


@contextlib.contextmanager
def stop_after(name: str, limit_s: float) -> Iterator[None]:
    """Raise `Ended` in the `with` block after `limit_s` seconds, even if the block waits for an unresponsive server."""

    def raise_ended(signal_number: int, frame: object) -> None:
        words = f"{name} exceeded its time limit of {limit_s:g} s; raise time_limit_s"
        raise Ended(words, timed_out_s=limit_s)

    signal.signal(signal.SIGALRM, raise_ended)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def describe_ending(name: str, status: int, log: Path) -> str:
    """Describe how a failed program ended: the signal or exit status, and the problem or last line in its log."""
    name = name.removeprefix("sbench.")
    if status == -signal.SIGKILL:
        return f"{name} was killed (SIGKILL) by a user or, for lack of memory, by the kernel"
    how = f"by a signal ({signal.strsignal(-status)})" if status < 0 else f"with status {status}"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    # Skip lines without letters or digits, such as the closing bracket of a multi-line error.
    lines = [line for line in lines if re.search(r"\w", line)]
    problems = [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]
    return f"{name} ended {how}: {(problems or lines or ['no output'])[-1]}"


def merge_windows(windows: Sequence[Window]) -> Window:
    """Merge the windows of several launches into the last one, and return it.

    Requests, traffic, seconds and resources are combined. The times of requests are shifted as if the windows followed
    each other without a gap.
    """
    whole, elapsed = windows[-1], 0.0
    for window in windows:
        for row in window.passed["exchanges"] if window.passed else ():
            row |= {name: row[name] + elapsed for name in _TIMES if row[name] is not None}
        elapsed += window.seconds
    for name in ("requests", "passed", "seconds", "resources"):
        setattr(whole, name, _add_up([getattr(window, name) for window in windows], name))
    return whole


def merge_parts(parts: Sequence[dict]) -> dict:
    """Merge the measuring program's parts of a record from several launches.

    - Samples are concatenated, with a column `launch`.
    - Work and the times in `_ADDED_SECONDS` are summed. For other times, take the median.
    - The page cache state is that of the launch furthest from the requested state. The memory is that of the launch
      with the largest growth.
    - Other entries come from the last launch.
    """
    if len(parts) == 1:
        return parts[0]
    samples = [{"launch": number, **row} for number, part in enumerate(parts, 1) for row in part["samples"]]
    seconds = {
        name: (sum if name in _ADDED_SECONDS else _compute_median)(of_name)
        for name, of_name in _transpose([part["seconds"] for part in parts]).items()
    }
    work = {
        name: sum(of_name) if isinstance(of_name[0], int | float) else of_name[0]
        for name, of_name in _transpose([part["work"] for part in parts]).items()
    }
    if wrong := [part["work"]["checksum"] for part in parts if part["work"]["checksum"] != work["checksum_asked"]]:
        work["checksum"] = wrong[0]
    merged = parts[-1] | {"samples": samples, "seconds": seconds, "work": work}
    merged |= {name: sum(part[name] for part in parts) for name in _ADDED if name in merged}
    merged["modules"] = sorted({module for part in parts for module in part["modules"]})
    merged["peak_bytes"] = max(part["peak_bytes"] for part in parts)
    states = [part["cache"] for part in parts]
    before = [state["resident_before"] for state in states if state["resident_before"] is not None]
    worst = page_cache.find_furthest(states[0]["asked"], before)
    merged["cache"] = next(state for state in states if state["resident_before"] == worst)
    if "memory" in merged:
        merged["memory"] = max((part["memory"] for part in parts), key=lambda memory: memory["growth_bytes"])
    if "faults" in merged:
        merged["faults"] = list(dict.fromkeys(line for part in parts for line in part["faults"]))
    return merged


def _transpose(mappings: Sequence[dict]) -> dict[str, list]:
    """Convert a list of mappings with equal keys to a mapping of lists."""
    return {key: [mapping[key] for mapping in mappings] for key in mappings[0]}


def _compute_median(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def _add_up(values: Sequence[Any], name: str) -> Any:
    """Combine the values of an entry over several launches, recursively in dictionaries.

    Numbers are summed and lists are concatenated. Peak memory is the maximum, and a CPU frequency is the mean. The
    result is None if any value is None.
    """
    if any(value is None for value in values):
        return None
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _add_up([value[key] for value in values if key in value], key) for key in keys}
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    if name == "mhz":
        return statistics.fmean(values)
    return max(values) if name == "peak_bytes" else sum(values)
