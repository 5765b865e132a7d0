"""Send the archive of a session to a folder or a bucket, where it arrives whole or not at all."""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from sbench.probe.program import Problem, describe_cause, replace_file
from sbench.runs.archive import SUFFIX, write_archive
from sbench.studies.shots import addresses
from sbench.studies.shots.inputs import build_store_entry


class Destination(ABC):
    """The place for the archives of all sessions.

    Attributes:
        where: its path or address.
    """

    def __init__(self, where: str) -> None:
        """Initialise with its path or address."""
        self.where = where

    def find_archive(self, run: str) -> str:
        """Return the path or address of a run's archive at the destination, or an empty string if there is none.

        Raises:
            Problem: the destination cannot be listed.
        """
        name = re.compile(rf"{re.escape(run)}-[0-9a-f]+{re.escape(SUFFIX)}")
        present = next(filter(name.fullmatch, sorted(self._list_names(run))), "")
        return f"{self.where}/{present}" if present else ""

    def send_run(self, run: str, studies: Iterable[str]) -> str:
        """Write the archive of a finished run, send it, and return its new path or address.

        Raises:
            Problem: the archive could not be written, or not be sent; it then stays in the results folder of the run.
        """
        path = write_archive(Path("results", run), list(studies))
        try:
            self.send_file(path)
        except Problem as problem:
            raise Problem(f"{problem}; the archive stays in {path}: repeat the command to send it") from problem
        return f"{self.where}/{path.name}"

    @abstractmethod
    def send_file(self, path: Path) -> None:
        """Copy a file to the destination under its name, whole or not at all.

        Raises:
            Problem: the file could not be copied.
        """

    @abstractmethod
    def _list_names(self, start: str) -> Iterable[str]:
        """List the names of files at the destination, at least those that begin with `start`."""


class Folder(Destination):
    """A folder, which is created if it is missing."""

    def __init__(self, where: str) -> None:
        """Create the folder, and check that it is writable."""
        super().__init__(where.rstrip("/") or "/")
        try:
            Path(self.where).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Problem(
                f"--to {where} cannot be created: {describe_cause(error, '; name another folder')}"
            ) from error
        if not os.access(self.where, os.W_OK | os.X_OK):
            raise Problem(f"--to {where} must be writable; change its permissions, or name another folder")

    def send_file(self, path: Path) -> None:
        """Copy a file under a temporary name, and rename it. Remove what killed copies of the same file left."""
        for part in Path(self.where).glob(f".{path.name}.*.part"):
            part.unlink(missing_ok=True)
        with replace_file(Path(self.where, path.name)) as part, open(path, "rb") as source, open(part, "wb") as copy:
            shutil.copyfileobj(source, copy)

    def _list_names(self, start: str) -> Iterable[str]:
        return os.listdir(self.where)


class Bucket(Destination):
    """A bucket of an S3 service with a prefix, with the endpoint and credentials that AWS tools would use."""

    def __init__(self, where: str) -> None:
        """Find the credentials, without sending a request to the bucket."""
        super().__init__(where.rstrip("/"))
        bucket, self._prefix = addresses.split_bucket_address(where, "--to")
        self._store = build_store_entry(bucket) | {"prefix": self._prefix}
        if self._store["anonymous"]:
            raise Problem(f"--to {where} needs S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")

    def send_file(self, path: Path) -> None:
        """Upload a file in one request, or in parts that become an object together."""
        from sbench.stores.s3 import client

        client.upload_file(self._store, path)

    def _list_names(self, start: str) -> Iterable[str]:
        from sbench.stores.s3 import client

        folder = f"{self._prefix}/" * bool(self._prefix)
        return [key.removeprefix(folder) for key in client.list_objects(self._store, f"{folder}{start}", [])]


def open_destination(where: str) -> Destination:
    """Return the destination of `--to`: a bucket for s3://bucket/prefix, otherwise a folder.

    Raises:
        Problem: the destination is not supported, or cannot be used.
    """
    return Bucket(where) if addresses.get_bucket(where) else Folder(where)
