"""Controls slowed on purpose: what reads waits, after each read, for a known share of its time (METHOD 6)."""

import time

# The levels of `control` that wait, and the share of each read's own time for which they do.
SHARES = {"slow5": 0.05, "slow10": 0.1}


class Waits:
    """Waits after reads, as the level of `control` says; other levels wait for nothing.

    Attributes:
        seconds: how long it has waited: the share of what was read so far, or up to one sleep's delay more.
    """

    def __init__(self, control: str) -> None:
        """Begin with nothing to wait for."""
        self._share, self._due, self.seconds = SHARES.get(control, 0.0), 0.0, 0.0

    def wait_after(self, seconds: float) -> None:
        """Wait after a read of so many seconds."""
        self._due += self._share * seconds
        # A sleep takes longer than asked; the next waits are shorter by that, so that short reads keep the share.
        if self._due > self.seconds:
            began = time.perf_counter()
            time.sleep(self._due - self.seconds)
            self.seconds += time.perf_counter() - began


def report_waited(control: str, seconds: float) -> dict[str, float]:
    """Return what the `work` of a record says of its waits: those that its total has in it; of others nothing."""
    return {"waited_s": seconds} if control in SHARES else {}
