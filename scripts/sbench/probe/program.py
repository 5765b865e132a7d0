"""Share the basics of all programs: one-line messages for a user's mistakes, and files that are whole or absent."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

_FREE = "; free the disk or make the folder writable"
_END = "; end programs that use many processes, open files or much memory (ulimit -a) and run again"
_LOOK = "; check the disk for errors (dmesg) and run again"
# Refusals of the system without the name of a file, with their remedies. A full disk is noticed when an open file is
# flushed, which no longer knows its name.
_REFUSED = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("the output", _FREE))
_REFUSED |= dict.fromkeys((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE), ("the machine", _END))
_REFUSED[errno.EADDRNOTAVAIL] = (
    "127.0.0.1",
    "; bring up the loopback (ip link set lo up, ip address add 127.0.0.1/8 dev lo), or end programs that hold"
    " all ports",
)
_REFUSED |= {errno.EIO: ("input or output", _LOOK)}
_REFUSED |= dict.fromkeys((errno.ECONNRESET, errno.ECONNREFUSED), ("a connection", "; run again"))
# The failed system call in an error message of HDF5.
_OF_HDF5 = re.compile(r"filename = '([^']+)'.*?errno = (\d+)", re.DOTALL)
_ROOM = 2**20
_TRIAL_S = 60
# Text in the answer of the right program: another program may have its name, and end with status 0.
_ANSWERS = {"git": "git version", "fio": "fio-", "gcc": ".file", "cc": ".file"}


class Problem(Exception):
    """A mistake or a lack that the user can mend: a line with the fault, its place, and the remedy."""

    def __str__(self) -> str:
        """Return the line, with unprintable characters of names escaped."""
        return escape_text(super().__str__())


class Unable(Problem):
    """The reason why existing data cannot be read as a cell asks: the cell is left out, and has not failed."""


def escape_text(text: str) -> str:
    """Return a text as a printable line that cannot control a terminal: escapes replace unprintable characters."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def shorten_name(name: str) -> str:
    """Return the name of a file or the like in a printable line, without the middle if it is very long."""
    text = escape_text(name)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"


class Escaped:
    """A stream for the output of programs that escapes unprintable characters (`escape_text`).

    Line ends that `print` adds (`end`, `sep`) arrive apart from its texts, unlike line ends in data. The standard
    library's argparse, traceback and warnings write whole lines.
    """

    def __init__(self, stream: IO[str]) -> None:
        """Wrap a stream; rich, whose consoles write codes of the terminal, finds it by the second name."""
        self._stream = self.rich_proxied_file = stream

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
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
        """Flush the stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._stop_process()

    def _stop_process(self) -> NoReturn:
        """End the process as the system ends processes whose reader has gone, such as `head`."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        sys.exit(128 + signal.SIGPIPE)


def run_main(main: Callable[[], int | None]) -> None:
    """Call `main` and leave the process with its status.

    A `Problem`, or a refusal of the system (`find_refusal`), even if a package has wrapped it, ends in a line on
    standard error and status 2; an interrupt does so with status 130. All output is `Escaped`.
    """
    sys.stdout, sys.stderr = Escaped(sys.stdout), Escaped(sys.stderr)
    # Child programs use other Python installations, too.
    os.environ.pop("PYTHONHOME", None)
    try:
        status = main()
        sys.stdout.flush()
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
    sys.exit(status)


def find_refusal(error: BaseException | None) -> OSError | None:
    """Return the system's refusal, from an error or its causes; None if it would mean nothing to a user."""
    while error:
        own = _find_system_error(error)
        if own and (own.filename or own.errno in _REFUSED):
            return own
        error = error.__cause__
    return None


def _find_system_error(error: BaseException) -> OSError | None:
    """Return the system error in the text of an HDF5 error, the error if it is a system error, else None."""
    if hidden := _OF_HDF5.search(str(error)):
        path, number = hidden[1], int(hidden[2])
        return OSError(number, os.strerror(number), path)
    return error if isinstance(error, OSError) and error.errno else None


def describe_refusal(error: OSError) -> str:
    """Describe the refusal of the system: its object, the reason, and the remedy if known."""
    what = _REFUSED.get(error.errno, ("the system", ""))[0]
    return f"{error.filename or what}: {describe_cause(error)}"


def describe_cause(error: Exception, remedy: str = "") -> str:
    """Describe why something failed, with the remedy: `remedy`, if the system error has no standard remedy."""
    of_system = _find_system_error(error)
    return f"{of_system.strerror}{_REFUSED.get(of_system.errno, ('', remedy))[1]}" if of_system else f"{error}{remedy}"


def find_tool(*names: str, remedy: str, trial: Sequence[str] = ("--version",), env: dict | None = None) -> str:
    """Return the path of the first working program: called with `trial`, if any, it ends with status 0.

    A name covers each program of that name on PATH.

    Raises:
        Problem: no program works; the line has the output of the last program tried, and ends with the remedy.
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
    """Return the path of git; errors as for `find_tool`."""
    return find_tool("git", remedy="apt install git, or dnf install git")


def _check_program(command: list[str], env: dict | None, answer: str) -> str:
    """Return the output of a program that fails, or whose output lacks `answer`; "" if it works."""
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
    # The last line of a traceback is its reason; other programs begin with the reason.
    return lines[-1 if lines[0].startswith("Traceback") else 0]


def build_command(name: str, *arguments: object, python: Sequence[str] = ()) -> list[str]:
    """Return the command of a program, from the root: a file of scripts/, or a module, whose name has a dot."""
    words = ["module", name] if "." in name else [name]
    return [*(python or [sys.executable]), "-sE", f"scripts/{words[0]}.py", *words[1:], *map(str, arguments)]


def expect_room(path: Path | str) -> None:
    """Raise as `replace_file` if 1 MiB cannot be written to `path`, before any work that would be lost."""
    with _make_part(Path(path)) as part, open(part, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, _ROOM)
        part.unlink()


def expect_folders(run: str) -> None:
    """Raise a Problem if a file blocks the folders for results and reports of a run, or if they are not writable."""
    for folder in (Path(top) / run for top in ("results", "reports")):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise Problem(
                f"{os.path.relpath(there)} is not a writable folder;"
                " move the file that blocks it, change its permissions, or mount its file system writable"
            )


def write_text(path: Path | str, text: str) -> None:
    """Write `text` to `path` so that a reader finds the whole file or none; errors as for `replace_file`."""
    with replace_file(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def replace_file(path: Path | str) -> Iterator[Path]:
    """Yield a name for a file that becomes `path` at the end of the block, synced to disk; remove it after an error.

    Raises:
        Problem: the folder is read-only or the disk is full.
    """
    path = Path(path)
    with _make_part(path) as part:
        yield part
        sync_path(part)
        part.replace(path)


@contextlib.contextmanager
def _make_part(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the folder of `path`; remove its file after an error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
    except BaseException as error:
        # A failure to remove it is not the reason, as on a read-only file system.
        with contextlib.suppress(OSError):
            part.unlink()
        if not _find_system_error(error):
            raise
        raise Problem(f"{path} cannot be written: {describe_cause(error, _FREE)}") from error


def write_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON, whole or not at all (see `write_text`)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def print_json(value: object) -> None:
    """Print `value` as JSON, with null for NaN, which JSON lacks."""
    text = json.dumps(_remove_nan(value), indent=1, ensure_ascii=False, default=str)
    print(*text.splitlines(), sep="\n")


def _remove_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _remove_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_remove_nan(one) for one in value]
    if hasattr(value, "item"):  # a number of numpy
        value = value.item()
    return None if isinstance(value, float) and value != value else value


def sync_path(path: Path | str) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def compute_file_digest(path: Path | str) -> str:
    """Return the sha256 of a file, or raise a Problem if it cannot be read."""
    expect_file(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Problem(f"{path} cannot be read: {describe_cause(error)}") from error


def read_json(path: Path | str) -> dict:
    """Return the JSON object in a file; errors as for `parse_json_object`, or a Problem if it cannot be read."""
    expect_file(path)
    try:
        return parse_json_object(Path(path).read_text(encoding="utf-8"), str(path), "; remove it and run again")
    except OSError as error:
        raise Problem(f"{path} cannot be read: {describe_cause(error)}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not JSON ({error}); remove it and run again") from error


def expect_file(path: Path | str) -> None:
    """Raise a Problem if a path is a folder, a device, or a pipe, which would block a reader, and not a file."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise Problem(f"{path} is a folder, a pipe or a device, not a file; move it away and run again")


def read_yaml(path: Path | str) -> dict:
    """Return a YAML file of this project; sbench.design.yaml_file reads the files of users."""
    # Imported here: libraries under test lack it. The C parser takes a tenth of the time, and every program reads
    # schemas.
    import yaml

    return yaml.load(Path(path).read_text(encoding="utf-8"), yaml.CSafeLoader)


def _refuse_constant(constant: str) -> None:
    # Python's parser accepts NaN and Infinity as numbers.
    raise ValueError(f"{constant} is not a number of JSON")


def parse_dataset_options(argv: list[str] | None, description: str, settings: str) -> argparse.Namespace:
    """Return the options of a program that makes a dataset: `dataset`, its name, `out`, its manifest, and `settings`.

    `description` describes the program, `settings` the contents of the JSON object of settings.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dataset", required=True, help="the dataset's name, for the manifest")
    parser.add_argument(
        "--out", required=True, type=Path, help="the manifest to write; generated files go to its folder"
    )
    parser.add_argument("--settings", required=True, type=parse_json_object, help=settings)
    options = parser.parse_args(argv)
    # A further copy (METHOD 6) has the same content in another place.
    options.settings.pop("copy", None)
    return options


def parse_json_object(text: str, name: str = "", remedy: str = "") -> dict:
    """Return the JSON object in a text, such as an argument of a program (`type=` of argparse).

    Raises:
        Problem: it is not JSON, or has NaN or Infinity. The line begins with `name` or the text and ends with the
            remedy.
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
