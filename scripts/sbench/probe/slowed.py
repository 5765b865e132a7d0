"""Slow a control on purpose: the reader waits, after each read, for a known share of its time (METHOD 6)."""

import time

# The levels of `control` that wait, and the waiting share of each read's time.
SHARES = {"slow5": 0.05, "slow10": 0.1}


class Waits:
    """The waits after reads for a level of `control`; other levels do not wait.

    Attributes:
        seconds: time waited: the share of the reading time so far, or up to one sleep's delay more.
    """

    def __init__(self, control: str) -> None:
        """Start without a pending wait."""
        self._share, self._due, self.seconds = SHARES.get(control, 0.0), 0.0, 0.0

    def wait_after(self, seconds: float) -> None:
        """Wait after a read that took `seconds`."""
        self._due += self._share * seconds
        # A sleep takes longer than asked; the next waits are shorter by that, so that short reads keep the share.
        if self._due > self.seconds:
            began = time.perf_counter()
            time.sleep(self._due - self.seconds)
            self.seconds += time.perf_counter() - began


def report_waited(control: str, seconds: float) -> dict[str, float]:
    """Return the entry for waits in a record's `work`, which its total includes; {} for controls without waits."""
    return {"waited_s": seconds} if control in SHARES else {}
