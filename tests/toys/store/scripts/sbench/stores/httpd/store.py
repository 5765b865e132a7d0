"""A folder, and the server that gives its files away."""

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

from sbench.probe.program import Problem, build_command
from sbench.stores import transfer
from sbench.stores.bare import Address
from sbench.stores.embedded import AccessLog, Served, Server
from sbench.stores.store import Store


class Httpd(Store):
    """A folder of this machine, read over HTTP without credentials."""

    service = server = "HTTP"
    # Whoever has the address reads it, without an SDK.
    plain = True

    def provide_dataset(
        self, dataset: str, files: list[transfer.File], folder: Path, binaries: Path | None, say: transfer.Say
    ) -> dict:
        """Put files into the folder, or make them there."""
        whole, folder = folder, folder / dataset
        folder.mkdir(parents=True, exist_ok=True)
        for entry, path in files:
            target = folder / entry["name"]
            with transfer.open_entry(entry, path) as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)
            with open(target, "rb") as copy:
                if hashlib.file_digest(copy, "sha256").hexdigest() != entry["sha256"]:
                    raise Problem(f"{target}: the data read back differ from the data written")
            say(f"put {target}")
        local = [str(folder / entry["name"]) for entry, _ in files]
        return {"location": {"dataset": dataset}, "local_files": local, "folder": str(whole)}

    def create_server(self, binaries: dict, folder: Path) -> Server:
        """Return how the datasets that are folders in `folder` are served."""
        command = build_command("sbench.stores.httpd.server", folder)
        return Server("the HTTP server", lambda port: [*command, str(port)], AccessLog())

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return the URL of the dataset; nobody asks for credentials."""
        return {"url": f"{served.endpoint}/{provision['location']['dataset']}"}, env

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return the URLs, which need no signature."""
        return {name: (f"{location['url']}/{name}", {}) for name in names}

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Return what its figures say nothing about."""
        return "a server written in Python on the loopback of the same machine; not a verdict on any other"


KINDS = {"httpd": Httpd}
