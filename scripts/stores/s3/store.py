"""A bucket of an S3 service, or of the workflow's own server."""

import contextlib
import sys

from scripts.lib.program import read_json
from scripts.stores import transfer
from scripts.stores.s3 import ENDPOINT
from scripts.stores.servers import Served
from scripts.stores.store import ObjectStore, Place


class S3(ObjectStore):
    """A bucket."""

    served_by, attributes = "versitygw", True
    service = server = "S3"
    holder = "bucket"
    emulated = ("an S3 server", "AWS or another service")

    def provide(self, dataset: str, files: list[transfer.File], place: Place, say: transfer.Say) -> dict:
        """Upload objects through the API: HDF5 2.x refuses those that were put into a server's folder by hand."""
        from scripts.stores.s3 import client

        key, local, folder = self.key(dataset), [], None
        with contextlib.ExitStack() as stack:
            if self.embedded:
                served = stack.enter_context(self.serve(read_json(place.binaries), place.folder, None, sys.stdout))
                s3 = client.client(self.spec, served.endpoint, served.credentials)
                client.ensure_bucket(s3, self.spec)
                local = [str(place.folder / self.spec["bucket"] / key / entry["name"]) for entry, _ in files]
                folder = str(place.folder)
            else:
                client.environment_credentials(self.spec)
                s3 = client.client(self.spec, self.spec.get("endpoint"), None)
            done = transfer.provide(client.Bucket(s3, self.spec, key), files, say)
        return done | {"location": {"dataset": dataset}, "local_files": local, "folder": folder}

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the bucket and the environment with the credentials."""
        if served:
            endpoint, keys = served.endpoint, served.credentials
            variables = {"AWS_ACCESS_KEY_ID": keys["access_key"], "AWS_SECRET_ACCESS_KEY": keys["secret_key"]}
        else:
            from scripts.stores.s3 import client

            endpoint, variables = self.spec.get("endpoint"), client.environment_credentials(self.spec)
        if endpoint:
            variables[ENDPOINT] = endpoint
            url = f"{endpoint}/{self.spec['bucket']}"
        else:
            url = f"https://{self.spec['bucket']}.s3.{self.spec['region']}.amazonaws.com"
        return url, env | variables | {"AWS_REGION": self.spec["region"]}


KINDS = {"s3": S3}
