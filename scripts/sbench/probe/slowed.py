"""Slow a control down deliberately, by sleeping after each read for a known fraction of its duration (METHOD 6)."""

import time

# Levels of the factor `control` that are slowed down, and the sleep as a fraction of each read's duration.
SHARES = {"slow5": 0.05, "slow10": 0.1}


class Waits:
    """Sleeps after each read if the level of `control` is in `SHARES`, and does nothing for other levels.

    Attributes:
        seconds: seconds slept so far. These are the fraction of the reading time, or more by at most the delay with
            which a sleep ended.
    """

    def __init__(self, control: str) -> None:
        """Initialize for a level of `control`."""
        self._share, self._due, self.seconds = SHARES.get(control, 0.0), 0.0, 0.0

    def wait_after(self, seconds: float) -> None:
        """Sleep after a read that took `seconds`."""
        self._due += self._share * seconds
        # Sleeps take longer than requested. Shorten the next ones accordingly, so that the fraction is also right for
        # short reads.
        if self._due > self.seconds:
            began = time.perf_counter()
            time.sleep(self._due - self.seconds)
            self.seconds += time.perf_counter() - began


def report_waited(control: str, seconds: float) -> dict[str, float]:
    """Return the record's entry for the seconds slept, which are part of its total time.

    The result is an empty dict for levels of `control` that are not slowed down.
    """
    return {"waited_s": seconds} if control in SHARES else {}
