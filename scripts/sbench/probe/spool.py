"""Store values in a temporary file, if they would take too much memory."""

import contextlib
import io
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

from sbench.probe.program import Problem, describe_cause


class Spool:
    """A temporary file of values, which is deleted with the spool."""

    def __init__(self) -> None:
        """Open the file in the folder for temporary files.

        Raises:
            Problem: the folder lacks room, here and whenever a value is stored or loaded.
        """
        with _convert_errors():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the spool

    def save_value(self, value: object) -> int:
        """Store a value, and return its place."""
        with _convert_errors():
            place = self._file.seek(0, io.SEEK_END)
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
            return place

    def load_value(self, place: int) -> Any:
        """Return a copy of the value at a place."""
        with _convert_errors():
            self._file.seek(place)
            return pickle.load(self._file)


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Problem(
            f"cannot write a temporary file: {describe_cause(error)}, or set TMPDIR to another folder"
        ) from error
