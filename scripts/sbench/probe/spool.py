"""Store values in a temporary file instead of in memory."""

import contextlib
import io
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

from sbench.probe.program import Problem, describe_cause


class Spool:
    """A temporary file for pickled values, which is deleted together with this object."""

    def __init__(self) -> None:
        """Open the file in the directory for temporary files.

        Raises:
            Problem: the file cannot be created, for example because the disk is full. `save_value` and `load_value`
                raise a Problem for system errors, too.
        """
        with _convert_errors():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the spool

    def save_value(self, value: object) -> int:
        """Store a value and return its offset in the file."""
        with _convert_errors():
            place = self._file.seek(0, io.SEEK_END)
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
            return place

    def load_value(self, place: int) -> Any:
        """Return a copy of the value at an offset returned by `save_value`."""
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
