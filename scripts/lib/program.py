"""What every program of the workflow shares: one line for a user's mistake, and files that are whole or absent."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path


class Problem(Exception):
    """A mistake or a lack that the user can mend: one line that says what is wrong, where, and what to do."""


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and leave the process with its status.

    A `Problem`, and whatever the system refuses about a file, ends in one line on standard error and status 2.
    """
    try:
        status = main()
    except Problem as problem:
        print(f"problem: {problem}", file=sys.stderr)
        status = 2
    except OSError as error:
        if not error.filename:
            raise
        print(f"problem: {error.filename}: {error.strerror}", file=sys.stderr)
        status = 2
    sys.exit(status)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` to `path` so that a reader finds the whole file or none, whenever this process ends.

    Raises:
        Problem: the folder is read-only or the disk is full.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Problem(
            f"{path} cannot be written: {error.strerror}; free the disk or make the folder writable"
        ) from error


def write_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON, whole or not at all (see `write_text`)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def sync(path: Path | str) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path | str) -> dict:
    """Return the JSON object in `path`.

    Raises:
        Problem: the file is missing or is not a JSON object.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path} is not JSON ({error}); remove it and run again") from error
    if not isinstance(value, dict):
        raise Problem(f"{path} holds no JSON object; remove it and run again")
    return value


def json_object(text: str) -> dict:
    """Return the JSON object in an argument of a program (`type=` of argparse).

    Raises:
        Problem: it is none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Problem(f"{text[:40]!r} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise Problem(f"{text[:40]!r} is no JSON object")
    return value
