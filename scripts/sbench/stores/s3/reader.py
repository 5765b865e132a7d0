"""Read objects over S3 with boto3: one ranged GetObject per chunk, with `concurrency` requests in flight.

The SDK's transfer manager is not used, because it fetches whole objects only. Responses to ranged requests do not
include a checksum of the range, so the SDK validates none; data are verified outside the timed window.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from sbench.probe.program import Problem
from sbench.stores import reading
from sbench.stores.reading import Access, Identity
from sbench.stores.s3 import client as s3

# Maximum number of bytes to read from a response per call, because the SDK copies them.
_PIECE = 1 << 20
# Maximum number of requests per chunk; after a truncated response, the next requests the rest.
_ATTEMPTS = 3
_MODIFIED = "modified "
_CHANGED = ("PreconditionFailed", "412", *s3.NO_RANGE)


class Reader(reading.Reader):
    """A reader of the objects in a bucket under the dataset's key prefix."""

    client = f"boto3 {boto3.__version__}"

    def __init__(self, spec: dict, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> None:
        """Create the client with the credentials and the endpoint in `env`, without sending a request."""
        super().__init__(spec, location, access, env)
        options = {"max_pool_connections": access.concurrency, "response_checksum_validation": "when_required"}
        self._s3 = s3.build_client(spec, env, **options)
        self.place = s3.describe_place(self._s3, spec)
        self._s3.meta.events.register("after-call.s3.GetObject", self._count_attempts)

    def fetch_identity(self, name: str) -> Identity:
        """Return the object's size and version from the response to a GET of its first byte.

        HEAD is not used, because the response to a failed HEAD has no error code.
        """
        answer = self._fetch_range(name, 0, 1)
        answer["Body"].close()
        return Identity(s3.parse_object_size(answer, self.place), _format_version(answer))

    def read(self, name: str, extents: Iterable[tuple[int, int]], view: memoryview, identity: Identity) -> None:
        """Read byte ranges with one request per chunk; see `reading.Reader.read`."""
        self.fetch_pieces(
            self.split_extents(extents, view), lambda offset, part: self._fetch_chunk(name, offset, part, identity)
        )

    def close(self) -> None:
        """Close the connections and stop the threads."""
        super().close()
        self._s3.close()

    def _fetch_chunk(self, name: str, offset: int, part: memoryview, identity: Identity) -> None:
        """Fetch a chunk into `part`. If a response is truncated, request the rest, which counts as a retry."""
        done, condition = 0, {} if identity.version.startswith(_MODIFIED) else {"IfMatch": identity.version}
        for attempt in range(_ATTEMPTS):
            answer = self._fetch_range(name, offset + done, len(part) - done, **condition)
            self.count_requests(0, attempt > 0)
            if _format_version(answer) != identity.version or answer["ContentLength"] != len(part) - done:
                answer["Body"].close()
                raise self.build_changed_error(name)
            # The body may end early, with or without an exception.
            with contextlib.suppress(BotoCoreError, OSError), contextlib.closing(answer["Body"]) as body:
                while done < len(part) and (count := body.readinto(part[done : done + _PIECE])):
                    done += count
            if done == len(part):
                return
        raise Problem(
            f"{self.describe_object(name)}: responses were cut {_ATTEMPTS} times, received {done} of {len(part)} bytes;"
            " check the network and run again"
        )

    def _fetch_range(self, name: str, offset: int, length: int, **conditions: str) -> dict:
        place = {"Bucket": self.spec["bucket"], "Key": f"{self.location['key']}/{name}".lstrip("/")}
        with s3.convert_errors(self.describe_object(name)):
            try:
                return self._s3.get_object(**place, Range=f"bytes={offset}-{offset + length - 1}", **conditions)
            except ClientError as error:
                if error.response["Error"].get("Code") in _CHANGED:
                    raise self.build_changed_error(name) from error
                raise

    def _count_attempts(self, parsed: dict, **_: object) -> None:
        again = parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0)
        self.count_requests(1 + again, again)


def _format_version(answer: dict) -> str:
    version = s3.get_version(answer)
    return version.get("etag") or f"{_MODIFIED}{version['modified']}"
