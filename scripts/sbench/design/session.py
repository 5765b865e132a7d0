"""Name a session, a call of the workflow, after the time (UTC) at which it began."""

import calendar
import os
import time
from datetime import UTC, datetime

from sbench.probe import host

# The variable with the session's name; jobs of a cluster inherit it.
SESSION = "STORAGE_BENCHMARKS_SESSION"
# The boot of the session's first machine, and its uptime at the start, by a clock that nobody sets.
UPTIME = "STORAGE_BENCHMARKS_UPTIME"
_UTC = "%Y-%m-%dT%H:%M:%SZ"


def start_session() -> None:
    """Name the session that begins now, for this process and its children."""
    os.environ |= {SESSION: format_session_name(), UPTIME: f"{_read_boot_id()} {_get_uptime_s()}"}


def format_session_name() -> str:
    """Return the name of a session that begins now."""
    return time.strftime(_UTC, time.gmtime())


def get_session_time() -> str:
    """Return the time (UTC, ms) by the session's initial clock setting, so that setting the clock reorders no records.

    On another machine, or without a session, use the current clock.
    """
    boot, _, began_s = os.environ.get(UPTIME, "").partition(" ")
    now_s = time.time()
    if began_s and boot == _read_boot_id():
        now_s = calendar.timegm(time.strptime(os.environ[SESSION], _UTC)) + _get_uptime_s() - float(began_s)
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_boot_id() -> str:
    return host.read_kernel_file("/proc/sys/kernel/random/boot_id") or "unknown"


def _get_uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
