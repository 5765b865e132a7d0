"""Utilities for all programs: one-line error messages, atomic file writes, and JSON input and output."""

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

_FREE = "; free the disk or make the folder writable"
_END = "; end programs that use many processes, open files or much memory (ulimit -a) and run again"
_LOOK = "; check the disk for errors (dmesg) and run again"
# System errors that may lack a file name: what they are about, and the remedy. A full disk, for example, is reported
# when an open file is flushed, without its name.
_REFUSED = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("the output", _FREE))
_REFUSED |= dict.fromkeys((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE), ("the machine", _END))
_REFUSED[errno.EADDRNOTAVAIL] = (
    "127.0.0.1",
    "; bring up the loopback (ip link set lo up, ip address add 127.0.0.1/8 dev lo), or end programs that hold"
    " all ports",
)
_REFUSED |= {errno.EIO: ("input or output", _LOOK)}
_REFUSED |= {errno.EBADF: ("standard output", "; it is closed: send it to a file, or to /dev/null")}
_REFUSED |= dict.fromkeys((errno.ECONNRESET, errno.ECONNREFUSED), ("a connection", "; run again"))
# The file name and errno of a failed system call in an HDF5 error message.
_OF_HDF5 = re.compile(r"filename = '([^']+)'.*?errno = (\d+)", re.DOTALL)
_ROOM = 2**20
# What code raises for content that lacks values, or has values of wrong types.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)
# Packages with threads in Rust that hold Python objects for a moment after a call. They abort an interpreter that ends
# in that moment ("Do we need some kind of shutdown method?", issue 40 of pyo3-async-runtimes).
_WITH_THREADS = ({"icechunk"}, {"obstore", "zarr"})
_RELEASED_S = 0.1
_TRIAL_S = 60
# Text in the output of the intended program, because an unrelated program of the same name may also exit with status 0.
_ANSWERS = {"git": "git version", "fio": "fio-", "gcc": ".file", "cc": ".file"}


class Problem(Exception):
    """An error that the user can correct. Its one-line message states what is wrong, where, and how to correct it."""

    def __str__(self) -> str:
        """Return the message, with unprintable characters escaped."""
        return escape_text(super().__str__())


class Unable(Problem):
    """Raised if existing data cannot be read as a cell requires. The cell then counts as omitted, not as failed."""


def escape_text(text: str) -> str:
    """Return a text with unprintable characters escaped, so that it is a single line and cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def shorten_name(name: str) -> str:
    """Return a name with unprintable characters escaped, and with its middle replaced by "…" if it is very long."""
    text = escape_text(name)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"


class Escaped:
    """An output stream that escapes unprintable characters (`escape_text`), including line breaks in data.

    Line breaks that are written separately, as `print` does for `end` and `sep`, are kept, and so are all line breaks
    written by the standard library, whose argparse, traceback and warnings write whole lines.
    """

    def __init__(self, stream: IO[str]) -> None:
        """Wrap a stream. Consoles of `rich` bypass the escaping through `rich_proxied_file` to write terminal codes."""
        self._stream = self.rich_proxied_file = stream

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text with unprintable characters escaped, and return its length before escaping."""
        caller = sys._getframe().f_back
        package = caller.f_globals.get("__name__", "").partition(".")[0] if caller else "sys"
        whole = package in sys.stdlib_module_names or not text.strip("\n")
        lines = text.split("\n") if whole else [text]
        try:
            self._stream.write("\n".join(map(escape_text, lines)))
        except BrokenPipeError:
            self._stop_process()
        return len(text)

    def flush(self) -> None:
        """Flush the wrapped stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._stop_process()

    def _stop_process(self) -> NoReturn:
        """Exit with the status of SIGPIPE after the reader of the output, such as `head`, has closed the pipe."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        sys.exit(128 + signal.SIGPIPE)


def run_main(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with the status it returns.

    For a `Problem`, or a system error found by `find_refusal`, even if a package has wrapped it, print a line on
    standard error and exit with status 2. For an interrupt, exit with status 130. All output is `Escaped`. Clients of
    this process and of its subprocesses connect to 127.0.0.1 directly (`get_proxy_variables`).
    """
    _open_closed_streams()
    sys.stdout, sys.stderr = Escaped(sys.stdout), Escaped(sys.stderr)
    # Subprocesses may use other Python installations.
    os.environ.pop("PYTHONHOME", None)
    os.environ |= get_proxy_variables(os.environ)
    try:
        with contextlib.ExitStack() as last:
            last.callback(sys.stdout.flush)
            status = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 128 + signal.SIGINT
    except Problem as problem:
        print(f"problem: {problem}", file=sys.stderr)
        status = 2
    except Exception as error:
        if not (refusal := find_refusal(error)):
            raise
        print(f"problem: {describe_refusal(refusal)}", file=sys.stderr)
        status = 2
    if any(names <= sys.modules.keys() for names in _WITH_THREADS):
        time.sleep(_RELEASED_S)
    try:
        sys.stdout.flush()
    except OSError:
        # The line above names it. Python would print a traceback when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _open_closed_streams() -> None:
    """Replace closed standard streams, whose descriptors the next opened files would get; writing output then fails."""
    for name, flag, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flag), mode, encoding="utf-8"))


def get_proxy_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which clients do not send requests for the loopback interface to a proxy of `env`.

    Hosts that `env` already excludes stay so, in both spellings, as clients prefer either.
    """
    hosts = [host.strip() for name in ("no_proxy", "NO_PROXY") for host in env.get(name, "").split(",")]
    hosts = list(dict.fromkeys(filter(None, [*hosts, "127.0.0.1"])))
    # Clients understand this only if it stands alone.
    return dict.fromkeys(("no_proxy", "NO_PROXY"), "*" if "*" in hosts else ",".join(hosts))


def find_refusal(error: BaseException | None) -> OSError | None:
    """Return the first system error among an exception and its causes that users can fix, or None.

    Such an error has a file name, or an error number with a known remedy (`_REFUSED`).
    """
    while error:
        own = _find_system_error(error)
        if own and (own.filename or own.errno in _REFUSED):
            return own
        error = error.__cause__
    return None


def _find_system_error(error: BaseException) -> OSError | None:
    """Return the system error that an HDF5 error names, or `error` itself if it is a system error, or None."""
    if hidden := _OF_HDF5.search(str(error)):
        path, number = hidden[1], int(hidden[2])
        return OSError(number, os.strerror(number), path)
    return error if isinstance(error, OSError) and error.errno else None


def describe_refusal(error: OSError) -> str:
    """Describe a system error: the affected file or resource, the cause, and the remedy if one is known."""
    what = _REFUSED.get(error.errno, ("the system", ""))[0]
    return f"{error.filename or what}: {describe_cause(error)}"


def describe_cause(error: Exception, remedy: str = "") -> str:
    """Describe the cause of an error, followed by the known remedy for its system error, or else by `remedy`."""
    of_system = _find_system_error(error)
    return f"{of_system.strerror}{_REFUSED.get(of_system.errno, ('', remedy))[1]}" if of_system else f"{error}{remedy}"


def find_tool(*names: str, remedy: str, trial: Sequence[str] = ("--version",), env: dict | None = None) -> str:
    """Return the path of the first program that works.

    Args:
        names: names or paths, in order of preference. For a name, all programs of that name on PATH are tried.
        remedy: remedy for the message of the Problem.
        trial: arguments that make a working program exit with status 0; if empty, programs are not run.
        env: environment variables for the trial.

    Raises:
        Problem: no program works. The message includes output of the last program tried, and ends with the remedy.
    """
    amiss = f"{names[0]} is missing"
    for name in names:
        folders = [None] if os.path.dirname(name) else os.get_exec_path()
        for path in filter(None, dict.fromkeys(shutil.which(name, path=folder) for folder in folders)):
            if not trial or not (words := _check_program([path, *trial], env, _ANSWERS.get(name, ""))):
                return path
            amiss = f"{path} does not work ({words})"
    raise Problem(f"{amiss}: {remedy}")


def find_git() -> str:
    """Return the path of git.

    Raises:
        Problem: see `find_tool`.
    """
    return find_tool("git", remedy="apt install git, or dnf install git")


def _check_program(command: list[str], env: dict | None, answer: str) -> str:
    """Run a command and return the line of its output that explains a failure, or an empty string if it works.

    A command fails if its exit status is not 0 or its output does not contain `answer`.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(command, **pipes, env=env, errors="replace", timeout=_TRIAL_S, check=False)
    except OSError as error:
        return error.strerror
    except subprocess.TimeoutExpired:
        return f"no answer within {_TRIAL_S} s"
    if not done.returncode and answer in done.stdout:
        return ""
    lines = list(filter(None, map(str.strip, done.stdout.splitlines()))) or [f"status {done.returncode}"]
    # Tracebacks end with the reason; other messages start with it.
    return lines[-1 if lines[0].startswith("Traceback") else 0]


def build_command(name: str, *arguments: object, python: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a program from the root of the project.

    Args:
        name: name of a script in scripts/ without its extension, or of a module (with a dot).
        arguments: arguments of the program.
        python: command of the Python interpreter; by default, the one that runs this process.
    """
    words = ["module", name] if "." in name else [name]
    return [*(python or [sys.executable]), "-sE", f"scripts/{words[0]}.py", *words[1:], *map(str, arguments)]


def expect_room(path: Path | str) -> None:
    """Check that 1 MiB can be written to `path` before work starts whose results would otherwise be lost.

    Raises:
        Problem: see `replace_file`.
    """
    with _make_part(Path(path)) as part, open(part, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, _ROOM)
        part.unlink()


def expect_temporary_folder() -> str:
    """Return the folder for temporary files; raise a Problem if TMPDIR is unusable, for which Python takes another."""
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise Problem(
            f"TMPDIR is {folder}, which is not a writable folder on {os.uname().nodename}; unset it, or name a folder"
            " that every node has"
        )
    return folder


def expect_folders(run: str) -> None:
    """Raise a Problem if TMPDIR, or the directories for a run's results and reports, are not writable."""
    expect_temporary_folder()
    for folder in (Path(top) / run for top in ("results", "reports")):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise Problem(
                f"{os.path.relpath(there)} is not a writable folder;"
                " move the file that blocks it, change its permissions, or mount its file system writable"
            )


def write_text(path: Path | str, text: str) -> None:
    """Write `text` to `path` atomically.

    Raises:
        Problem: see `replace_file`.
    """
    with replace_file(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def replace_file(path: Path | str) -> Iterator[Path]:
    """Yield the path of a temporary file, which atomically replaces `path` after the `with` block, synced to disk.

    After an exception, the temporary file is removed and `path` remains unchanged.

    Raises:
        Problem: a system error occurred, such as a read-only directory or a full disk.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        # It would replace a device such as /dev/null.
        raise Problem(f"{path} cannot be written: it is not a regular file; name another file")
    with _make_part(path) as part:
        yield part
        sync_path(part)
        part.replace(path)


@contextlib.contextmanager
def _make_part(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the directory of `path`; after an exception, remove the file at this path."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
    except BaseException as error:
        # Report the original error even if the file cannot be removed, as on a read-only file system.
        with contextlib.suppress(OSError):
            part.unlink()
        if not _find_system_error(error):
            raise
        raise Problem(f"{path} cannot be written: {describe_cause(error, _FREE)}") from error


def write_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON atomically (see `write_text`)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def print_json(value: object) -> None:
    """Print `value` as JSON, with null for NaN, which JSON does not support."""
    text = json.dumps(_remove_nan(value), indent=1, ensure_ascii=False, default=str)
    print(*text.splitlines(), sep="\n")


def _remove_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _remove_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_remove_nan(one) for one in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return None if isinstance(value, float) and value != value else value


def sync_path(path: Path | str) -> None:
    """Sync a file, or the entries of a directory, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def compute_file_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file.

    Raises:
        Problem: the file cannot be read.
    """
    expect_file(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Problem(f"{path} cannot be read: {describe_cause(error)}") from error


def read_json(path: Path | str, remedy: str = "remove it and run again") -> dict:
    """Return the JSON object in a file; `remedy` ends the message on a damaged file.

    Raises:
        Problem: the file cannot be read, or does not contain a JSON object (see `parse_json_object`).
    """
    expect_file(path)
    try:
        return parse_json_object(Path(path).read_text(encoding="utf-8"), str(path), f"; {remedy}")
    except OSError as error:
        raise Problem(f"{path} cannot be read: {describe_cause(error)}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not JSON ({error}); {remedy}") from error


def expect_file(path: Path | str) -> None:
    """Raise a Problem if a path exists but is not a regular file; reading from a pipe, for example, would block."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise Problem(f"{path} is a folder, a pipe or a device, not a file; move it away and run again")


def read_yaml(path: Path | str) -> dict:
    """Load a YAML file of this project; `sbench.design.yaml_file` reads the files of users."""
    # Imported here because libraries under test lack PyYAML. The C parser takes a tenth of the time, which matters
    # because every program reads schemas.
    import yaml

    return yaml.load(Path(path).read_text(encoding="utf-8"), yaml.CSafeLoader)


def _refuse_constant(constant: str) -> None:
    # By default, Python's parser accepts NaN and Infinity as numbers.
    raise ValueError(f"{constant} is not a number of JSON")


def parse_dataset_options(argv: list[str] | None, description: str, settings: str) -> argparse.Namespace:
    """Parse the command line of a program that generates a dataset.

    Args:
        argv: arguments; by default, this process's arguments.
        description: description of the program for its help text.
        settings: help text of the option `--settings`.

    Returns:
        The options `dataset` (its name), `out` (path of the manifest) and `settings` (a dict).
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dataset", required=True, help="the dataset's name, for the manifest")
    parser.add_argument(
        "--out", required=True, type=Path, help="the manifest to write; generated files go to its folder"
    )
    parser.add_argument("--settings", required=True, type=parse_json_object, help=settings)
    options = parser.parse_args(argv)
    # A further copy of a dataset (METHOD 6) has the same content, so ignore its name.
    options.settings.pop("copy", None)
    return options


def parse_json_object(text: str, name: str = "", remedy: str = "") -> dict:
    """Parse a JSON object, such as a command line argument (as the `type` of an argparse option).

    Args:
        text: the JSON text.
        name: name of the text for messages; by default, its first characters.
        remedy: end of the messages.

    Raises:
        Problem: the text is not a JSON object, contains NaN or Infinity, or is nested too deeply.
    """
    name = name or repr(text[:40])
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Problem(f"{name} is not JSON ({error}){remedy}") from error
    except RecursionError:
        raise Problem(f"{name} is nested too deeply{remedy}") from None
    if not isinstance(value, dict):
        raise Problem(f"{name} must contain a JSON object{remedy}")
    return value
