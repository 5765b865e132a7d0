"""Reads objects over S3 with boto3: a ranged GetObject a chunk, so many at once as the cell's concurrency says.

The SDK's own transfer manager fetches whole objects only. Responses to ranges carry no checksum of the range, so the
SDK validates none; what was read is verified outside the timed window.
"""

import contextlib
import threading
from collections.abc import Iterable

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from scripts.lib.program import Problem
from scripts.stores import reading
from scripts.stores.reading import Access, Changed, Identity
from scripts.stores.s3 import client as s3

# Taken from a response at once: the SDK copies it.
_PIECE = 1 << 20
# How often the rest of an answer is asked for.
_ATTEMPTS = 3
_CHANGED = ("PreconditionFailed", "412", "InvalidRange", "416")


class Reader(reading.Reader):
    """Reads objects of a bucket under the dataset's key."""

    client = f"boto3 {boto3.__version__}"

    def __init__(self, store: dict, location: dict, access: Access) -> None:
        """Make the client, whose credentials and endpoint are the environment's; nothing is sent."""
        super().__init__(access)
        self._bucket, self._prefix = store["bucket"], location["key"]
        options = {"max_pool_connections": access.concurrency, "response_checksum_validation": "when_required"}
        self._s3 = s3.cell_client(store, **options)
        self._place = s3.place_of(self._s3, store)
        # The SDK says so once for each request that it sends, those that it tries again included.
        self._s3.meta.events.register("before-send.s3.GetObject", self._count)
        self._attempts = threading.local()

    def identify(self, name: str) -> Identity:
        """Return size and ETag; asked of the first byte, since the answer to HEAD has no words for what is wrong."""
        answer = self._get(name, 0, 1)
        answer["Body"].close()
        return Identity(s3.object_size(answer, self._place), answer["ETag"])

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Fill `view`, a request a chunk."""
        self.each(self.chunks(extents, view), lambda offset, part: self._fetch(name, offset, part, identity))

    def _fetch(self, name: str, offset: int, part: memoryview, identity: Identity) -> None:
        """Get a chunk, if the object is still the same.

        The rest of an answer that was cut is asked for again, as the SDKs of other stores do by themselves; it counts
        as a retry.
        """
        done = 0
        for attempt in range(_ATTEMPTS):
            answer = self._get(name, offset + done, len(part) - done, IfMatch=identity.version)
            with self._lock:
                self.retries += attempt > 0
            if answer["ETag"] != identity.version or answer["ContentLength"] != len(part) - done:
                answer["Body"].close()
                raise Changed(f"{self._where(name)} was replaced or truncated while it was measured")
            done += self._fill(answer["Body"], part[done:])
            if done == len(part):
                return
        raise Problem(
            f"{self._where(name)}: answers were cut {_ATTEMPTS} times, {done} of {len(part)} bytes came;"
            " check the network and run again"
        )

    def close(self) -> None:
        """Close connections and threads."""
        super().close()
        self._s3.close()

    def _get(self, name: str, offset: int, length: int, **conditions: str) -> dict:
        self._attempts.before = 0
        wanted = {
            "Bucket": self._bucket,
            "Key": f"{self._prefix}/{name}",
            "Range": f"bytes={offset}-{offset + length - 1}",
        }
        with s3.explained(self._s3, self._where(name)):
            try:
                return self._s3.get_object(**wanted, **conditions)
            except ClientError as error:
                if error.response["Error"].get("Code") in _CHANGED:
                    raise Changed(f"{self._where(name)} was replaced or truncated while it was measured") from error
                raise

    def _fill(self, body, part: memoryview) -> int:
        """Take an answer's bytes; returns how many came before its end, or before it was cut."""
        done = 0
        with contextlib.suppress(BotoCoreError, OSError), contextlib.closing(body):
            while done < len(part) and (count := body.readinto(part[done : done + _PIECE])):
                done += count
        return done

    def _where(self, name: str) -> str:
        return f"{self._prefix}/{name} in {self._place}"

    def _count(self, **_: object) -> None:
        """Count a request; what a thread sends again for the same answer is a retry."""
        with self._lock:
            self.attempts += 1
            self.retries += self._attempts.before > 0
        self._attempts.before += 1
