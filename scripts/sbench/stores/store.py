"""Define the stores of a configuration; everything specific to a kind of store is in the folder of that kind.

A folder's `store` module imports no SDK at its top, because an import takes longer than many cells.
"""

import contextlib
import importlib
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING

from sbench.probe.processes import PATIENCE_S, start_server
from sbench.probe.program import Problem, read_json
from sbench.stores import network as networks
from sbench.stores import transfer, trust
from sbench.stores.bare import Address
from sbench.stores.embedded import Proxy, Served, Server
from sbench.stores.reading import Access, Reader
from sbench.stores.transfer import File, Say, Target

if TYPE_CHECKING:
    import obstore.store

# For clients of obstore: embedded servers use plain HTTP.
PLAIN = {"client_options": {"allow_http": True}}


class Store(ABC):
    """A store; the module `reader` of its folder has the matching `Reader`.

    Attributes:
        files: its objects are files of this machine's file systems.
        file_per_object: each local file holds exactly one object.
        served_by: name of its embedded server as built.
        attributes: the embedded server keeps extended attributes with its files.
        copies: its client holds a second copy of each chunk in flight.
        service, server: common names of the service, and of the embedded server that replaces it.
        speaks_s3: S3 clients can read it.
        takes_files: files can be put into it; otherwise it is a service that creates datasets itself.
    """

    files = False
    file_per_object = True
    served_by = ""
    attributes = False
    copies = False
    service = ""
    server = ""
    speaks_s3 = False
    takes_files = True

    def __init__(self, spec: dict) -> None:
        """Keep the store's entry in the configuration."""
        self.spec = spec

    @property
    def embedded(self) -> bool:
        """Whether the workflow serves it on the loopback."""
        return self.spec.get("server") == "embedded"

    @property
    def elsewhere(self) -> bool:
        """Whether it is a remote service, which charges for requests."""
        return not self.files and not self.embedded

    @property
    def has_separate_data(self) -> bool:
        """Whether the store holds a separate copy of its data instead of reading them in place."""
        return self.embedded or self.elsewhere or "path" in self.spec

    @property
    def billed_service(self) -> str:
        """The service with the prices of its requests (config/facts/prices.yaml), "" if unknown."""
        return ""

    @property
    def is_networked(self) -> bool:
        """Whether its bytes pass a network, real or emulated, which makes the time of checksums negligible."""
        return self.elsewhere or bool(self.spec.get("network"))

    @abstractmethod
    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Put a dataset into the store and verify it there.

        Args:
            dataset: id of the dataset.
            files: files of the dataset.
            folder: the workflow's folder for this store, for data that are stored nowhere else.
            binaries: artefact of the servers' build.
            say: function that reports a line per object.

        Returns:
            {"location", "local_files"} for the artefact, and further facts of the store.

        Raises:
            Problem: one line that names the place or the object, and the remedy.
        """

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Open the objects below a prefix with obstore, which takes credentials from the environment.

        Raises:
            Problem: obstore does not read such a store.
        """
        raise Problem(f"obstore cannot read a store of kind {self.spec['kind']}")

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment variables with which an HSDS node stores objects in this store.

        Raises:
            Problem: HSDS does not support such a store.
        """
        raise Problem(f"HSDS cannot write to a store of kind {self.spec['kind']}")

    def create_server(self, binaries: dict, folder: Path) -> Server | None:
        """Return the embedded server of the objects in `folder`, or None for a kind without a server."""
        return None

    @contextlib.contextmanager
    def serve_folder(
        self, binaries: dict, folder: Path, network: dict | None, log: IO[str], patience_s: float = PATIENCE_S
    ) -> Iterator[Served]:
        """Serve the objects in `folder` on the loopback inside a `with` block.

        Args:
            binaries: artefact of the servers' build.
            folder: the server's folder; created if missing.
            network: emulated network as in the configuration; None for no proxy.
            log: open file for the servers' output.
            patience_s: seconds that the server may take to end by itself.

        Raises:
            Problem: a server does not start, even on another port.
        """
        folder.mkdir(parents=True, exist_ok=True)
        server = self.create_server(binaries, folder)
        with contextlib.ExitStack() as stack:
            stack.callback(server.counter.close)
            options = {"stdout": server.counter.output or log, "patience_s": patience_s}
            process, port = start_server(stack, server.name, log, server.command, server.env, **options)
            endpoint = f"http://127.0.0.1:{port}"
            server.counter.start_listening(process, endpoint, log)
            served = Served(endpoint, server.credentials, folder, server.counter, {server.name: process})
            if network is not None:
                encrypted = self.spec.get("tls", False)
                served.proxy = Proxy(stack, binaries["toxiproxy"], endpoint, network, log, encrypted)
                served.endpoint, served.processes["toxiproxy"] = served.proxy.endpoint, served.proxy.process
            yield served

    @abstractmethod
    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return the data's location for a reader, and its environment: `env` with the store's credentials.

        Raises:
            Problem: credentials are missing, or of another account than the data.
        """

    def list_replaced_files(self, files: list[dict], location: dict, env: Mapping[str, str]) -> list[str]:
        """List the user's `files` of a manifest, read in place, that have changed.

        Raises:
            Problem: the store cannot be asked.
        """
        own = [(entry, Path(entry["path"])) for entry in files if "mtime_ns" in entry]
        return [str(path) for entry, path in own if not _is_unchanged(path, entry)]

    def build_reader(self, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> Reader:
        """Return a reader of a dataset at a location with the credentials in `env`; send no request."""
        return self._load_module("reader").Reader(self.spec, location, access, env)

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return each object's URL, signed with credentials in `env`, and headers for a bare request; {} for files.

        Raises:
            Problem: credentials for signing are missing.
        """
        return {}

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield pairs of a requirement of a run and its check, which returns a description or raises Problem."""
        yield from ()

    @abstractmethod
    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe the limits of the store's figures (METHOD 22), given the types of file systems under its files."""

    def _load_module(self, name: str) -> ModuleType:
        folders = (kind.__module__.rpartition(".")[0] for kind in type(self).__mro__)
        return importlib.import_module(next(f"{one}.{name}" for one in folders if find_spec(f"{one}.{name}")))


class ObjectStore(Store):
    """A store that is accessed over HTTP.

    The module `client` of its folder imports its SDK. It names the source of credentials without a request
    (`describe_credentials(spec)`), checks that the service has the holder of the objects (`find_holder(spec)`), signs
    addresses (`sign_addresses(spec, key, names, env)`), and has the class `target` that uploads.

    Attributes:
        holder: holder of its objects, such as "bucket", which is also the key of its name in the configuration.
        target: name of the class in `client` that uploads a dataset.
        emulated: descriptions of the embedded server, and of the services that its figures do not describe.
        saves_s: seconds that the embedded server may take to save its data.
    """

    holder = ""
    target = "Target"
    emulated = ("", "")
    saves_s = PATIENCE_S

    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Upload objects through the API: HDF5 2.x refuses objects that were copied into a server's folder."""
        artefact = {"location": {"dataset": dataset}, "local_files": [], "folder": None}
        if not self.embedded:
            url, env = self.resolve_holder_url(None, dict(os.environ))
            return (
                artefact
                | transfer.provide_files(*self._build_ends(dataset, env), files, say)
                | self.get_account_url(url)
            )
        # A separate folder for each dataset, so that all its files belong to it.
        own = folder / dataset
        filled = own.exists()
        with self._serve_holder(dataset, own, binaries) as ends:
            artefact |= transfer.provide_files(*ends, files, say)
        if filled and artefact["upload"]["uploaded"]:
            # Files of replaced objects, which a server keeps for a while, would count as read.
            shutil.rmtree(own)
            return self.provide_dataset(dataset, files, folder, binaries, say)
        names = [f"{self.build_dataset_key(dataset)}/{entry['name']}" for entry, _ in files]
        return artefact | {"local_files": list(map(str, self.list_object_files(own, names))), "folder": str(own)}

    def _build_ends(self, dataset: str, env: dict[str, str]) -> tuple[Target, Reader]:
        key = self.build_dataset_key(dataset)
        target = getattr(self._load_module("client"), self.target)(self.spec, env, key)
        return target, self.build_reader({"key": key}, transfer.ACCESS, env)

    @contextlib.contextmanager
    def _serve_holder(self, dataset: str, folder: Path, binaries: Path) -> Iterator[tuple[Target, Reader]]:
        """Serve a folder with its holder of objects inside a `with` block; the server saves it at the end."""
        with self.serve_folder(read_json(binaries), folder, None, sys.stdout, self.saves_s) as served:
            _, env = self.resolve_holder_url(served, dict(os.environ))
            target, reader = self._build_ends(dataset, env)
            with contextlib.closing(reader), target.convert_errors():
                target.make_holder()
                yield target, reader
        if status := served.processes[self.served_by].returncode:
            raise Problem(f"{self.served_by} exited with status {status} before saving its files; run again")

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """List the embedded server's files that hold bytes of objects; empty if the store is not embedded."""
        return []

    def get_account_url(self, url: str) -> dict[str, str]:
        """Return {"account_url"} of the holder if the environment, not the configuration, names it."""
        return {}

    @abstractmethod
    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the holder of the objects, and the environment with its credentials."""

    def build_dataset_key(self, dataset: str) -> str:
        """Return the common beginning of the keys of a dataset's objects."""
        return "/".join(filter(None, [self.spec["prefix"], dataset]))

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return {"url", "key"} of the dataset, and the reader's environment."""
        url, env = self.resolve_holder_url(served, env)
        # The data must be in the account that the environment names now.
        account, provided = url.rpartition("/")[0], provision.get("account_url")
        if provided not in (None, account):
            raise Problem(
                f"the data are in {provided}, but the environment names {account}; set the environment to the first,"
                " or add a store with account_url for each account"
            )
        # The user's existing objects have their key in the location.
        where = provision["location"]
        key = where["key"] if "key" in where else self.build_dataset_key(where["dataset"])
        return {"url": f"{url}/{key}".rstrip("/"), "key": key}, env

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return signed addresses; see `Store.sign_addresses`."""
        return self._load_module("client").sign_addresses(self.spec, location["key"], names, env)

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the checks of the credentials and of the holder of a remote service."""
        if self.embedded:
            yield "", lambda: "embedded, served on the loopback"
            return
        yield "credentials", lambda: self._load_module("client").describe_credentials(self.spec)
        yield self.holder, lambda: self._load_module("client").find_holder(self.spec)

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe the caches that the benchmark does not control, or the emulation."""
        if not self.embedded:
            return "caches and other users of the service are not controlled"
        server, others = self.emulated
        emulated, spec = "no emulated network", self.spec.get("network")
        if spec is not None:
            emulated = f"an emulated network: {', '.join(networks.format_parts(spec)) or 'a proxy without limits'}"
        return (
            f"{server} on the loopback of the same machine, sharing its cores with the readers; "
            f"{emulated}; {'' if self.spec.get('tls') else 'no '}TLS; not a verdict on {others}"
        )


def _is_unchanged(path: Path, entry: dict) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (entry["bytes"], entry["mtime_ns"])


def apply_cloud_settings(env: dict[str, str], cloud: str) -> dict[str, str]:
    """Replace the variables of a cloud, which begin with `cloud`, with the user's."""
    own = {key: value for key, value in os.environ.items() if key.startswith(cloud)}
    return {key: value for key, value in env.items() if not key.startswith(cloud)} | own


def serve_dataset(
    stack: contextlib.ExitStack,
    spec: dict,
    provision: dict,
    env: dict[str, str],
    binaries: Path | None,
    log: IO[str],
    fault: dict | None = None,
) -> tuple[Served | None, dict, dict[str, str]]:
    """Return a cell's embedded server, if any, the data's location, and the reader's environment.

    `spec` is the store's entry in the configuration, `provision` the artefact of its data, `env` the initial
    environment, `fault` (`faults.plan_fault`) the faults to inject; the stack ends the server. For the other arguments
    and for errors see `Store.serve_folder` and `Store.resolve_location`.
    """
    store, served = get_store(spec), None
    if store.embedded:
        folder, network = Path(provision["folder"]), spec.get("network")
        network = network | {"fault": fault} if fault else network
        served = stack.enter_context(store.serve_folder(read_json(binaries), folder, network, log))
        env = {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}
        if spec.get("tls"):
            env |= trust.install_certificate(served.proxy.fetch_authority())
    return served, *store.resolve_location(provision, served, env)


def list_needed_servers(specs: Iterable[dict]) -> list[str]:
    """List the servers that stores of a configuration need (`--need` of `scripts/build_servers.py`)."""
    embedded = [store for spec in specs if (store := get_store(spec)).embedded]
    proxies = {"toxiproxy" for store in embedded if store.spec.get("network") is not None}
    return sorted(({store.served_by for store in embedded} | proxies) - {""})


def get_store(spec: dict) -> Store:
    """Return the store of a configuration entry; the first word of its kind names its folder."""
    folder = importlib.import_module(f"sbench.stores.{spec['kind'].partition('-')[0]}.store")
    return folder.KINDS[spec["kind"]](spec)
