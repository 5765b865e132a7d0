"""The argument parser of all subcommands, and options that several of them share."""

import argparse
import difflib
import os
import re

from sbench.design import DEFAULT_CONFIG
from sbench.probe.program import Problem

_PATTERN = re.compile(r"[*?[]")
_UNKNOWN = re.compile(r"unrecognized arguments: (.*)")


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in a single line and suggests the most similar option.

    Attributes:
        called_from: directory that relative paths refer to.
        after: arguments after --, or None if the subcommand does not accept them.
    """

    def __init__(self, name: str, details: str, called_from: str) -> None:
        """Create the parser of the subcommand `name` with the description `details`."""
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"sbench {name}", description=details, formatter_class=form, allow_abbrev=False)
        self.called_from = called_from
        self.after: list[str] | None = None
        self._defaults: dict[str, str] = {}

    def add_path(self, *names: str, default: object = None, **settings: object) -> None:
        """Add an argument for paths; relative paths refer to the directory from which sbench was called."""
        # Set string defaults later, because argparse would convert them like user input.
        is_text = isinstance(default, str)
        action = self.add_argument(*names, type=self._resolve_path, default=None if is_text else default, **settings)
        if is_text:
            self._defaults[action.dest] = default

    def add_config(self, default: str = DEFAULT_CONFIG) -> None:
        """Add the positional argument for the path of the configuration."""
        self.add_path("config", nargs="?", default=default, help=f"the configuration (default: {default})")

    def add_rest(self, what: str) -> None:
        """Accept arbitrary arguments after --, which the help describes as `what`."""
        self.after, self.epilog = [], f"Arguments after -- are {what}."

    def parse_arguments(self, argv: list[str]) -> argparse.Namespace:
        """Parse the arguments.

        Arguments after -- are stored in `after` if the subcommand accepts them, and are otherwise positional.
        `called_from` is the directory from which sbench was called.
        """
        if "--" in argv:
            place = argv.index("--")
            argv, behind = argv[:place], argv[place + 1 :]
            if self.after is None:
                # parse_intermixed_args rejects arguments after -- that begin with a dash.
                argv += [f"./{word}" if word.startswith("-") else word for word in behind]
            else:
                self.after = behind
        given = self.parse_intermixed_args(argv)
        given.after, given.called_from = self.after, self.called_from
        for name, default in self._defaults.items():
            setattr(given, name, getattr(given, name) or default)
        return given

    def error(self, message: str) -> None:
        """Raise a Problem with a single line, instead of printing the usage and exiting like argparse."""
        if match := _UNKNOWN.match(message):
            unknown = match[1].split(" ")[0]
            options = [text for action in self._actions for text in action.option_strings]
            near = difflib.get_close_matches(unknown.partition("=")[0], options, 1)
            message = f"unknown argument {unknown}{f'; did you mean {near[0]}' if near else ''}"
        raise Problem(f"{self.prog}: {message}; see {self.prog} --help")

    def _resolve_path(self, text: str) -> str:
        """Convert a path to one relative to the working directory; return names, for example of a run, unchanged."""
        there = os.path.join(self.called_from, os.path.expanduser(text))
        if os.path.isabs(text):
            return text
        is_path = "://" not in text and (os.sep in text or _PATTERN.search(text) or os.path.exists(there))
        return os.path.relpath(there) if is_path and self.called_from != os.getcwd() else text


def add_run_options(parser: Parser) -> None:
    """Add the options that select cells of a configuration."""
    add = parser.add_argument
    several = {"nargs": "+", "action": "extend", "default": []}
    add("--name", default="", metavar="RUN", help="name of the run instead of the configured name")
    add("--study", default="", help="this study only")
    add("--only", **several, metavar="FACTOR=LEVEL,…", help="measure only the cells with these levels")
    add(
        "--again",
        **several,
        metavar="CELL",
        help="measure cells whose names begin with this again; earlier records stay",
    )
