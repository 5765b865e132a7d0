"""Run an sbench subcommand."""

import difflib
import importlib
import os
import sys

from sbench.cli import home, options
from sbench.probe.program import Problem, run_main

# Subcommands and their descriptions. The help screen describes the subcommands in FIRST, and only names the others.
FIRST = {
    "run": "measure a configuration, and make its pages",
    "look": "list the contents of HDF5 files and Zarr stores, and the consequences for reading",
    "count": "count the S3 requests of any program",
    "advise": "find the fastest way to read files, and measure it",
    "fit": "decide whether a volume keeps a latency limit",
    "compare": "compare runs, archives, baselines, hosts, and results of other tools",
    "published": "make the pages of published studies, audit CSV files by the same rules, and test published claims",
}
OTHERS = {
    "plan": "list the cells of a configuration, and the cost of measuring them",
    "check": "check tools, credentials, buckets and disks before anything is built",
    "import": "make pages of fio results from other machines",
    "bisect": "find the release, or the commit, that changed requests, bytes or seconds",
    "archive": "pack a run into a single file, write its configuration, or print its citation",
    "report": "make the pages of an archive",
    "export": "write all observations of a run as a long table",
}
# Subcommands that write no files to the working directory.
_PRINTING = ("look", "count", "plan", "check")
# Subcommands that build or measure, and so need all optional dependencies.
_OF_WORKFLOW = ("run", "advise", "fit", "plan", "check", "import", "bisect")


def main(argv: list[str] | None = None) -> int:
    """Run the subcommand named by the first argument from the project's directory, and return its exit status."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(*_list_commands(), sep="\n")
        return 0
    if name not in FIRST | OTHERS:
        near = difflib.get_close_matches(name, [*FIRST, *OTHERS], 1)
        raise Problem(
            f"{name} is not a command of sbench{f'; did you mean {near[0]}' if near else ''}; see sbench --help"
        )
    command = importlib.import_module(f"sbench.cli.{name}")
    try:
        called_from = os.getcwd()
    except FileNotFoundError as error:
        raise Problem("the working folder was removed; change to another one") from error
    home.enter_home([name, *rest])
    if home.CARRIED.is_dir() and name not in _PRINTING:
        print(f"sbench keeps results and reports in {os.getcwd()}", file=sys.stderr)
    parser = options.Parser(name, command.__doc__, called_from)
    command.add_options(parser)
    given = parser.parse_arguments(rest)
    try:
        return command.start(given)
    except ModuleNotFoundError as error:
        if not home.CARRIED.is_dir():
            raise
        module = error.name.partition(".")[0]
        extra = "workflow" if name in _OF_WORKFLOW else home.find_extra(module)
        words = home.describe_package(extra)
        raise Problem(f"sbench {name}: {module} is not installed: pip install '{words}'") from error


def _list_commands() -> list[str]:
    width = max(map(len, FIRST))
    lines = [f"  {name:{width}}  {line}" for name, line in FIRST.items()]
    return [
        *("usage: sbench COMMAND …", "", "Measure how fast scientific data are read and written.", ""),
        *(*lines, "", f"Also: {', '.join(OTHERS)}.", "sbench COMMAND --help lists the options of a command."),
    ]


def start() -> None:
    """Run the command line, and exit with its status."""
    run_main(main)


if __name__ == "__main__":
    start()
