"""Name a session (one invocation of the workflow) after its start time in UTC."""

import calendar
import os
import time
from datetime import UTC, datetime

from sbench.probe import host

# The environment variable with the session's name, which cluster jobs inherit.
SESSION = "STORAGE_BENCHMARKS_SESSION"
# The environment variable with the boot ID of the machine that started the session, and that machine's uptime at the
# start, which changes of the system time do not affect.
UPTIME = "STORAGE_BENCHMARKS_UPTIME"
_UTC = "%Y-%m-%dT%H:%M:%SZ"


def start_session() -> None:
    """Start a session: set the environment variables with its name and start, for this process and its children."""
    os.environ |= {SESSION: format_session_name(), UPTIME: f"{_read_boot_id()} {get_uptime_s()}"}


def format_session_name() -> str:
    """Return the name of a session that starts now."""
    return time.strftime(_UTC, time.gmtime())


def get_session_time() -> str:
    """Return the current UTC time with milliseconds, as the session's start plus the uptime elapsed since.

    In this way, records stay in order even if the system time is changed during the session. On another machine, or
    outside a session, return the system time.
    """
    boot, _, began_s = os.environ.get(UPTIME, "").partition(" ")
    now_s = time.time()
    if began_s and boot == _read_boot_id():
        now_s = calendar.timegm(time.strptime(os.environ[SESSION], _UTC)) + get_uptime_s() - float(began_s)
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read_boot_id() -> str:
    return host.read_kernel_file("/proc/sys/kernel/random/boot_id") or "unknown"


def get_uptime_s() -> float:
    """Return the seconds since the machine booted, which setting its clock does not change."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
