"""Values that wait in a temporary file, where together they are more than memory should hold."""

import io
import pickle
import tempfile
from typing import Any


class Spool:
    """A temporary file of values, which is gone with the spool."""

    def __init__(self) -> None:
        """Open the file in the folder for temporary files (TMPDIR)."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the spool

    def put(self, value: object) -> int:
        """Keep a value, and return its place."""
        place = self._file.seek(0, io.SEEK_END)
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        return place

    def get(self, place: int) -> Any:
        """Return a copy of the value at a place."""
        self._file.seek(place)
        return pickle.load(self._file)
