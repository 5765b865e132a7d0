"""A bucket of a kind of its own, on the embedded S3 server."""

from sbench.stores.s3.store import S3


class Garage(S3):
    """A bucket that clients of S3 read."""

    service = server = "Garage"


KINDS = {"garage": Garage}
