"""A Snakemake logger plugin (`--logger benchmark`) that displays running jobs, their results and the time left.

In a terminal, the last lines are updated live: the running jobs with their elapsed times, a progress bar, and the time
left. Elsewhere, a plain line is printed when a job starts and when it ends. Warnings and errors are always shown in
full, regardless of `--quiet`. Snakemake itself writes the complete log to .snakemake/log and the output of a dry run.
"""

import logging
import os
import re
import sys
import textwrap
import time
import traceback
from copy import copy
from dataclasses import dataclass, field
from logging import ERROR, WARNING, LogRecord
from pathlib import Path

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter, is_quiet_about
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from .progress import (
    NEED_ALL,
    Rule,
    describe_job,
    describe_time_left,
    format_duration,
    format_error,
    read_outcome,
    read_sentences,
    remove_flags,
)

SILENT_EVENTS = ("workflow_started", "resources_info", "job_started", "group_info")
# Snakemake's messages when the user interrupts it. Jobs that it then terminates are not errors.
ENDED = ("Terminating processes on user request", "Cancelling snakemake on user request")
SILENT_MESSAGES = (
    *("Assuming unrestricted shared filesystem", "host: ", "Using shell: ", "Select jobs to execute"),
    *("Conda environments: ignored", "Group jobs: inactive", "Elapsed time: "),
    *("DAG of jobs will be updated", "Updating checkpoint dependencies"),
)
INDEX = "index.html"
STYLES = {"done": "", "skipped": "yellow", "left out": "yellow", "invalid": "yellow", "FAILED": "bold red"}
MARKS = re.compile(r"[\x01-\x07]")  # control characters that mark bold, code and links in sentences of pages
# Colours and carriage returns printed by tools are removed; other terminal control characters are escaped.
DROPPED = re.compile(r"\x1b\[[0-9;]*m|\r")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """The plugin's command line options."""

    reports: str = field(
        default="", metadata={"help": "Folder of the pages; their answers are printed if nothing is left to do"}
    )
    planned: float | None = field(default=None, metadata={"help": "Estimated seconds of the whole run", "type": float})


class LogHandler(LogHandlerBase):
    """A log handler that displays Snakemake's events; its properties are defined by Snakemake's plugin interface."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Prepare the handler, which shows live lines in a terminal and plain lines elsewhere."""
        asked = self.common_settings
        self.stream = sys.stdout if asked.stdout else sys.stderr
        self.formatter = DefaultFormatter(asked.quiet, asked.show_failed_logs)
        self.wanted = DefaultFilter(asked.quiet, asked.debug_dag, asked.verbose, asked.dryrun, asked.printshellcmds)
        self.snakemakes = ColorizingTextHandler(asked.nocolor, self.stream, self.formatter, self.wanted)
        self.rules: dict[str, Rule] = {}
        self.running: dict[int, LogRecord] = {}
        self.broken: set[int] = set()
        self.counts = dict.fromkeys(STYLES, 0)
        self.lacking: set[str] = set()
        self.page = ""
        self.interrupted = self.is_closed = False
        self.errors: list[str] = []
        self.broke: list[LogRecord] = []
        self.reasons: set[str] = set()
        self.began = time.monotonic()
        self.screen = None
        # If Snakemake's log is on a full disk, Python would otherwise print a traceback for each log line.
        logging.raiseExceptions = False
        if self.stream.isatty() and os.environ.get("TERM") != "dumb" and not asked.dryrun:
            # Import here, because Snakemake imports every plugin at each start, even if it is not used.
            from .terminal import Screen

            self.screen = Screen(self.stream, asked.nocolor, self)

    def emit(self, record: LogRecord) -> None:
        """Show a log record, or store it until it can be shown."""
        record = copy(record)
        # Measure durations with a monotonic clock, which is not affected by clock changes.
        record.created = time.monotonic()
        try:
            event = getattr(record, "event", None)
            if self.common_settings.dryrun and event != LogEvent.ERROR:
                self.snakemakes.handle(record)
            else:
                getattr(self, f"on_{event}", self.on_other)(record)
        except OSError:
            pass  # The output stream is full or closed.
        except Exception:
            traceback.print_exc()

    def close(self) -> None:
        """Restore the terminal and print the outcome as the last line; Snakemake may call this more than once."""
        if self.screen:
            self.screen.stop()
        self.show_broken()
        if not self.interrupted or self.common_settings.verbose:
            self.print_errors()
        self.errors.clear()
        if not self.is_quiet("progress"):
            # Print the headline of each study's page, if the index page exists.
            for sentence, path in read_sentences(Path(self.page).parent) if Path(self.page).name == INDEX else ():
                width = self.screen.console.width if self.screen else sys.maxsize
                self.print_text(textwrap.fill(MARKS.sub("", sentence), width), "bold")
                self.print_text(f"    page: {path}")
            took = format_duration(time.monotonic() - self.began)
            last = [f"after {took}: {self.describe_ended_jobs()}"] if any(self.counts.values()) else []
            last += [f"report: {self.page}"] if self.page else []
            if last:
                self.print_text("; ".join(last))
        if self.interrupted and not self.is_closed:
            self.print_text("interrupted; repeat the command to continue")
        self.is_closed = True
        self.counts, self.page = dict.fromkeys(self.counts, 0), ""
        super().close()

    def on_run_info(self, record: LogRecord) -> None:
        """Store the number of jobs of each rule, before the first job starts."""
        for rule, jobs in record.stats.items():
            if rule != "total":
                self.rules.setdefault(rule, Rule()).jobs = jobs
        self.began = record.created
        if not self.is_quiet("progress"):
            jobs = ", ".join(f"{rule.jobs} {name}" for name, rule in self.rules.items())
            self.print_text(f"{record.stats['total']} jobs: {jobs}")
            if self.screen:
                self.screen.start()

    def on_job_info(self, record: LogRecord) -> None:
        """Record the start of a job."""
        self.show_broken()
        rule = self.rules.setdefault(record.rule_name, Rule())
        if record.jobid in self.broken:
            self.broken.remove(record.jobid)
            self.counts["FAILED"] -= 1
            rule.ended -= 1
        self.running[record.jobid] = record
        rule.record_start(record.jobid, record.created)
        skipped = record.rule_name in NEED_ALL and self.lacking & set(map(remove_flags, record.input))
        if self.screen and self.screen.is_started:
            self.screen.refresh()
        elif not self.screen and not self.is_quiet("rules") and not skipped:
            self.print_text(f"started  {describe_job(record)}{self.format_progress_suffix()}")

    def on_job_finished(self, record: LogRecord) -> None:
        """Show the outcome of a job, as read from its output files."""
        self.show_broken()
        job = self.running.get(record.job_id)
        self.report_job_end(record.job_id, record.created, *read_outcome(job.output if job else []))

    def on_job_error(self, record: LogRecord) -> None:
        """Store a job whose command failed.

        It is shown at the next start or end of a job, unless the user is interrupting the run.
        """
        self.broke.append(record)

    def show_broken(self) -> None:
        """Show the stored jobs whose commands failed. After an interrupt, they count as not run instead."""
        while self.broke:
            record = self.broke.pop(0)
            if self.interrupted:
                self.running.pop(record.jobid, None)
            else:
                self.show_error(record)

    def show_error(self, record: LogRecord) -> None:
        """Show a job whose command failed, with its message and logs."""
        self.broken.add(record.jobid)
        self.report_job_end(record.jobid, record.created, "FAILED", "")
        brief = copy(record)
        if not self.common_settings.verbose:
            # Omit hundreds of input files, and a command line that contains the configuration; the complete log has
            # both.
            brief.input, brief.shellcmd = [], ""
        # Snakemake's message, without the first line, which repeats the time.
        self.print_text(self.formatter.format(brief).replace("    message: None\n", "").partition("\n")[2], "red")

    def on_progress(self, record: LogRecord) -> None:
        """Add jobs that appeared during the run to the count of the rule with the most jobs."""
        if (added := record.total - self.count_jobs()) > 0:
            max(self.rules.values(), key=lambda rule: rule.jobs).jobs += added

    def on_error(self, record: LogRecord) -> None:
        """Show a Snakemake error.

        During a run, it is shown at the end, when it is known whether the user interrupted the run.
        """
        text = record.getMessage()
        self.errors.append(text if self.common_settings.verbose else format_error(text, record.exception))
        if not self.rules:
            self.print_errors()

    def on_other(self, record: LogRecord) -> None:
        """Show any other log record, unless it is routine."""
        text = self.formatter.format(record)
        self.interrupted |= text.startswith(ENDED)
        if text == NOTHING_TO_BE_DONE_MSG and self.settings and self.settings.reports:
            self.page = f"{self.settings.reports}/{INDEX}"
        routine = str(getattr(record, "event", "")) in SILENT_EVENTS or text.startswith(SILENT_MESSAGES)
        if record.levelno >= WARNING:
            self.print_text(text, "red" if record.levelno >= ERROR else "yellow")
        elif text not in ("", "None") and self.wanted.filter(record) and (self.common_settings.verbose or not routine):
            self.print_text(text)

    def report_job_end(self, number: int, now: float, status: str, reason: str) -> None:
        """Count a job as ended and print a line about it.

        Args:
            number: Snakemake's number of the job.
            now: time of its end.
            status: key of `STYLES`.
            reason: reason for the status; an empty string if there is none.
        """
        job = self.running.pop(number, None)
        if job is None:
            return
        self.counts[status] += 1
        self.rules[job.rule_name].record_end(number, now, counts=status in ("done", "invalid"))
        if status in ("FAILED", "skipped"):
            self.lacking |= set(map(remove_flags, job.output))
        # A single cause, such as missing data, may fail many jobs and skip every cell of a study.
        repeated = reason in self.reasons
        self.reasons |= {reason} - {""}
        page = next((name for name in job.output if name.endswith(".html")), "") if status == "done" else ""
        self.page = page or self.page
        if status == "skipped":
            if not repeated:
                self.print_text(f"skipped  all jobs that need {reason}, which failed", STYLES[status])
        elif status != "done" or not self.is_quiet("rules"):
            why = "as above" if repeated and status == "FAILED" else reason
            line = f"{status:7}  {describe_job(job)}  in {format_duration(now - job.created)}{': ' * bool(reason)}{why}"
            line += "" if self.screen else self.format_progress_suffix()
            # The message about a job that broke already contains its log.
            logs = job.log if status == "FAILED" and reason and not repeated else []
            below = [f"    page: {page}"] if page else [f"    log: {log}" for log in logs]
            self.print_text("\n".join([line, *below]), STYLES[status])

    def describe_ended_jobs(self) -> str:
        """Describe the number of ended jobs and their outcomes."""
        state = [f"{self.counts[name]} {name.lower()}" for name in ("FAILED", "skipped", "left out", "invalid")]
        state = [words for words in state if not words.startswith("0 ")]
        return ", ".join([f"{sum(self.counts.values())} of {self.count_jobs()} jobs", *state])

    def count_jobs(self) -> int:
        """Return the number of jobs in this run."""
        return sum(rule.ended + rule.count_unfinished() for rule in list(self.rules.values()))

    def format_progress_suffix(self) -> str:
        """Format the progress as a suffix for a plain line, or an empty string if `--quiet` suppresses it."""
        return "" if self.is_quiet("progress") else f"  ({self.describe_progress(time.monotonic())})"

    def describe_progress(self, now: float) -> str:
        """Describe the progress of the run and the time left."""
        planned = self.settings and self.settings.planned
        by_plan = planned - (now - self.began) if planned else 0.0
        return f"{self.describe_ended_jobs()}, {describe_time_left(list(self.rules.values()), now, by_plan)}"

    def is_quiet(self, kind: str) -> bool:
        """Return whether `--quiet` suppresses a kind of output, `rules` or `progress`."""
        return is_quiet_about(self.common_settings.quiet or (), kind)

    def print_errors(self) -> None:
        """Print the pending Snakemake errors."""
        while self.errors:
            self.print_text(self.errors.pop(0), "red")

    def print_text(self, text: str, style: str = "") -> None:
        """Print text permanently, above the live lines or as a plain line."""
        text = CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), DROPPED.sub("", text))
        if self.screen:
            self.screen.print_text(text, style)
        else:
            print(time.strftime("%H:%M:%S"), text, file=self.stream, flush=True)
