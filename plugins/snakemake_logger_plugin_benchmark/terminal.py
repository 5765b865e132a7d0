"""Draw the live lines at the bottom of a terminal: the running jobs, a bar, the progress of the run."""

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

MOST_SHOWN = 8  # running jobs; a cluster may run hundreds


def shorten_text(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, without its middle, as names of cells differ at both ends."""
    if len(text) <= width:
        return text
    tail = max(width // 2 - 1, 0)
    return text[: max(width - tail - 1, 0)] + "…" + text[len(text) - tail :]


class Screen(Live):
    """A terminal whose last lines are redrawn once a second, which costs half a millisecond of processor time.

    A separate thread draws them: it takes no lock that is held while `print_text` is called, and copies changing data.
    """

    def __init__(self, stream: TextIO, nocolor: bool, run: "LogHandler") -> None:
        """Prepare the lines; `start` shows them, `stop` removes them. `run` describes its progress."""
        self.run = run
        console = Console(file=stream, no_color=nocolor or None, highlight=False)
        # Standard output may be a pipe, and must reach it.
        super().__init__(console=console, refresh_per_second=1, transient=True, redirect_stdout=False)

    def start(self, refresh: bool = False) -> None:
        """Show the lines."""
        super().start(refresh)
        # A killed run would leave the terminal without its cursor.
        self.console.show_cursor(True)

    def print_text(self, text: str, style: str) -> None:
        """Print `text` permanently, above the live lines."""
        self.console.print(text, style=style or None, markup=False, emoji=False, soft_wrap=True)

    def get_renderable(self) -> Group:
        """Return the present live lines."""
        jobs, now, width = list(self.run.running.values()), time.monotonic(), self.console.width
        lines = []
        for job in jobs[:MOST_SHOWN]:
            age = format_duration(now - job.created)
            lines.append(Text(f"  {shorten_text(describe_job(job), width - len(age) - 5)}  {age}", no_wrap=True))
        if len(jobs) > MOST_SHOWN:
            lines.append(Text(f"  and {len(jobs) - MOST_SHOWN} more"))
        # A bar does not end its line; a row of a table does.
        bar = Table.grid()
        ended, total = sum(self.run.counts.values()), max(self.run.count_jobs(), 1)
        bar.add_row(ProgressBar(total=total, completed=ended, width=min(width - 1, 100)))
        status = f"{self.run.describe_progress(now)}, running for {format_duration(now - self.run.began)}"
        return Group(*lines, bar, Text(status, no_wrap=True, overflow="ellipsis"))
