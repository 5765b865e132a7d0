"""The living lines at the bottom of a terminal: the running jobs, a bar, how far the run is."""

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
    """Return `text` in at most `width` characters; the middle goes, as a cell's name differs at both ends."""
    if len(text) <= width:
        return text
    tail = max(width // 2 - 1, 0)
    return text[: max(width - tail - 1, 0)] + "…" + text[len(text) - tail :]


class Screen(Live):
    """A terminal whose last lines are drawn anew once a second, which costs half a millisecond of processor time.

    They are drawn by a thread of their own: it takes no lock that is held while `print_text` is called, and copies what
    changes.
    """

    def __init__(self, stream: TextIO, nocolor: bool, run: "LogHandler") -> None:
        """Prepare the lines; `start` shows them, `stop` takes them away. `run` tells how far it is."""
        self.run = run
        console = Console(file=stream, no_color=nocolor or None, highlight=False)
        # Standard output may be a pipe, where it must arrive.
        super().__init__(console=console, refresh_per_second=1, transient=True, redirect_stdout=False)

    def start(self, refresh: bool = False) -> None:
        """Show the lines."""
        super().start(refresh)
        # A run that is killed would leave the terminal without its cursor.
        self.console.show_cursor(True)

    def print_text(self, text: str, style: str) -> None:
        """Print `text` for good, above the living lines."""
        self.console.print(text, style=style or None, markup=False, emoji=False, soft_wrap=True)

    def get_renderable(self) -> Group:
        """Return the living lines as they are now."""
        jobs, now, width = list(self.run.running.values()), time.monotonic(), self.console.width
        lines = []
        for job in jobs[:MOST_SHOWN]:
            age = format_duration(now - job.created)
            lines.append(Text(f"  {shorten_text(describe_job(job), width - len(age) - 5)}  {age}", no_wrap=True))
        if len(jobs) > MOST_SHOWN:
            lines.append(Text(f"  and {len(jobs) - MOST_SHOWN} more"))
        # A bar ends no line of its own, a row of a table does.
        bar = Table.grid()
        ended, total = sum(self.run.counts.values()), max(self.run.count_jobs(), 1)
        bar.add_row(ProgressBar(total=total, completed=ended, width=min(width - 1, 100)))
        status = f"{self.run.describe_progress(now)}, running for {format_duration(now - self.run.began)}"
        return Group(*lines, bar, Text(status, no_wrap=True, overflow="ellipsis"))
