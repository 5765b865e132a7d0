"""An S3 service that is not the workflow's own: a server that its owner has started, with a bucket and keys."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
from conftest import artefact

from sbench.probe import processes

KEYS = {"AWS_ACCESS_KEY_ID": "outside", "AWS_SECRET_ACCESS_KEY": "outside-secret"}


@contextlib.contextmanager
def serving(place: Path, environments: Path) -> Iterator[str]:
    """Start a server with the bucket `elsewhere` and yield its URL."""
    folder, program = place / "outside", artefact(environments / "servers.json")["versitygw"]
    folder.mkdir()

    def command(port: int) -> list[str]:
        return [program, "--port", f"127.0.0.1:{port}", "posix", str(folder)]

    env = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    with open(place / "outside.log", "w", encoding="utf-8") as log, contextlib.ExitStack() as stack:
        _, port = processes.start_server(stack, "versitygw", log, command, env)
        url = f"http://127.0.0.1:{port}"
        client(url).create_bucket(Bucket="elsewhere")
        yield url


def client(url: str):
    """Return a client of the server with its owner's keys."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )


def with_keys(**other: str) -> dict[str, str]:
    """Return the environment of somebody who has the keys."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith("AWS_")}, **KEYS, **other}
