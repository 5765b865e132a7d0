"""A bucket of an S3 service, or of the workflow's own server, versitygw."""

import secrets
from pathlib import Path

from scripts.stores.s3 import ENDPOINT, KEYS
from scripts.stores.servers import Served, Server, StatsD
from scripts.stores.store import ObjectStore


class S3(ObjectStore):
    """A bucket."""

    served_by, attributes = "versitygw", True
    service = server = "S3"
    holder = "bucket"
    emulated = ("an S3 server", "AWS or another service")

    def own_server(self, binaries: dict, folder: Path) -> Server:
        """Return how versitygw serves the buckets that are folders in `folder`."""
        keys = {"access_key": "benchmark", "secret_key": secrets.token_hex(20)}
        counter = StatsD()

        def command(port: int) -> list[str]:
            return [
                *(binaries["versitygw"], "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"),
                *("--metrics-statsd-servers", counter.address, "--metrics-service-name", "store"),
                *("posix", str(folder)),
            ]

        env = {"ROOT_ACCESS_KEY": keys["access_key"], "ROOT_SECRET_KEY": keys["secret_key"]}
        return Server("versitygw", command, counter, env, keys)

    def files_in(self, folder: Path, names: list[str]) -> list[Path]:
        """Return the objects' files, one for each."""
        return [folder / self.spec["bucket"] / name for name in names]

    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the bucket and the environment with the credentials."""
        if served:
            endpoint, variables = served.endpoint, dict(zip(KEYS, served.credentials.values(), strict=True))
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
