"""Draw live lines at the bottom of a terminal: the running jobs, a progress bar, and the progress of the run."""

import time
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .progress import describe_job, format_duration

if TYPE_CHECKING:
    from . import LogHandler

MOST_SHOWN = 8  # maximum number of running jobs to show; a cluster may run hundreds


def shorten_text(text: str, width: int) -> str:
    """Shorten text to `width` characters by removing its middle, because the names of cells differ at both ends."""
    if len(text) <= width:
        return text
    tail = max(width // 2 - 1, 0)
    return text[: max(width - tail - 1, 0)] + "…" + text[len(text) - tail :]


class Screen(Live):
    """A terminal display whose last lines are redrawn once a second, at a cost of half a millisecond of CPU time.

    A separate thread draws the lines. It takes no lock that is held while `print_text` is called, and copies data that
    may change.
    """

    def __init__(self, stream: TextIO, nocolor: bool, run: "LogHandler") -> None:
        """Prepare the display of the run's progress; `start` shows the live lines, and `stop` removes them."""
        self.run = run
        console = Console(file=stream, no_color=nocolor or None, highlight=False)
        # Do not redirect standard output, because it may be a pipe.
        super().__init__(console=console, refresh_per_second=1, transient=True, redirect_stdout=False)

    def start(self, refresh: bool = False) -> None:
        """Show the live lines."""
        super().start(refresh)
        # Keep the cursor visible, because a killed run could not restore it.
        self.console.show_cursor(True)

    def print_text(self, text: str, style: str) -> None:
        """Print text permanently, above the live lines."""
        self.console.print(text, style=style or None, markup=False, emoji=False, soft_wrap=True)

    def get_renderable(self) -> Group:
        """Return the current live lines."""
        jobs, now, width = list(self.run.running.values()), time.monotonic(), self.console.width
        lines = []
        for job in jobs[:MOST_SHOWN]:
            age = format_duration(now - job.created)
            lines.append(Text(f"  {shorten_text(describe_job(job), width - len(age) - 5)}  {age}", no_wrap=True))
        if len(jobs) > MOST_SHOWN:
            lines.append(Text(f"  and {len(jobs) - MOST_SHOWN} more"))
        # A progress bar does not end its line, but a table row does.
        bar = Table.grid()
        ended, total = sum(self.run.counts.values()), max(self.run.count_jobs(), 1)
        bar.add_row(ProgressBar(total=total, completed=ended, width=min(width - 1, 100)))
        status = f"{self.run.describe_progress(now)}, running for {format_duration(now - self.run.began)}"
        return Group(*lines, bar, Text(status, no_wrap=True, overflow="ellipsis"))
