"""The library with all drivers, and a bucket with the files that they read."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import h5py
from conftest import ROOT, artefact
from driver_files import FILES, ODD_KEY

from sbench import drivers
from sbench.stores import store as stores
from sbench.stores.s3 import KEYS

S3 = {"kind": "s3", "server": "embedded", "bucket": "drivers", "prefix": "", "region": "us-east-1", "anonymous": False}
DISK = {"kind": "posix"}
BY_LINKS = ("/soft", "/hard", "/own", "/also/below")
INDEXED = ("kerchunk", "virtualizarr")


class Library:
    """The library with all drivers, and a bucket with files."""

    def __init__(self, folder: Path, environments: Path, served: object) -> None:
        """Write the files and upload them, unless they are there."""
        self._folder, self.served = folder, served
        self._python = artefact(environments / "readers.json")["python"]
        self._url, self._env = stores.get_store(S3).resolve_holder_url(served, dict(os.environ))
        if (folder / "plain").exists():
            return
        keys = {name.lower(): self._env[name] for name in KEYS}
        s3 = boto3.client("s3", endpoint_url=served.endpoint, region_name="us-east-1", **keys)
        s3.create_bucket(Bucket="drivers")
        allowed = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::drivers/*"}
        s3.put_bucket_policy(Bucket="drivers", Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
        for name, write in FILES.items():
            with h5py.File(folder / name, "w") as file:
                write(file)
            s3.upload_file(str(folder / name), "drivers", name)
        s3.upload_file(str(folder / "plain"), "drivers", ODD_KEY)

    def case(
        self,
        driver: str,
        store: dict,
        file: str,
        read_cache: str = "default",
        make_index: bool = True,
        key: str = "",
        slots: int = 0,
    ) -> dict:
        """Return what tests/helpers/read_drivers.py reads."""
        location = {"url": self._url} if store["kind"] == "s3" else {"folder": str(self._folder)}
        shapes: dict = {}
        with h5py.File(self._folder / file) as opened:
            opened.visititems(lambda path, item: shapes.update(_shape(path, item)))
            shapes |= {path: list(opened[path].shape) for path in BY_LINKS if path in opened}
        return {
            **{"driver": driver, "store": store, "read_cache": read_cache, "shapes": shapes, "slots": slots},
            "address": drivers.build_address(location, key or file),
            "index": str(self._folder / f"{driver}-{store['kind']}-{file}{len(key)}") if driver in INDEXED else "",
            "make_index": make_index and driver in INDEXED,
        }

    def read(self, *cases: dict, signed: bool = True) -> list:
        """Return what they gave, one after the other in a process of the library."""
        files = [self._folder / "cases.json", self._folder / "said.json"]
        files[0].write_text(json.dumps(cases), encoding="utf-8")
        env = {name: value for name, value in self._env.items() if signed or name not in KEYS}
        env |= {"PYTHONPATH": str(ROOT / "scripts")}
        command = [self._python, "-s", ROOT / "tests/helpers/read_drivers.py", *files]
        ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, f"status {ended.returncode}: {ended.stderr}"
        return json.loads(files[1].read_text(encoding="utf-8"))

    def requests(self, *cases: dict) -> int:
        """Return how many ranges the server was asked for by a process that reads them."""
        self.served.open_window()
        self.read(*cases)
        return self.served.close_window()[0]["GET"]["count"]


def _shape(path: str, item: object) -> dict:
    return {f"/{path}": list(item.shape or ())} if isinstance(item, h5py.Dataset) else {}


@contextlib.contextmanager
def made(folder: Path, environments: Path) -> Iterator[Library]:
    """Serve a bucket with the files."""
    binaries = artefact(environments / "servers.json")
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        stores.get_store(S3).serve_folder(binaries, folder / "s3", None, log) as served,
    ):
        yield Library(folder, environments, served)
