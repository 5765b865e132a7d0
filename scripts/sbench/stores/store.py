"""A store of the configuration. What differs between kinds of stores is in the folder of the kind, nowhere else.

A folder's `store` module imports no SDK at its top: that takes longer than many a cell.
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

# Of clients of obstore: embedded servers speak plain HTTP.
PLAIN = {"client_options": {"allow_http": True}}


class Store(ABC):
    """A store; `reader` of its folder has the `Reader` that reads it.

    Attributes:
        files: its objects are files of this machine's file systems.
        file_per_object: where its files lie here, one holds all of an object and nothing else.
        served_by: name of its embedded server, as it is built.
        attributes: that server keeps attributes of its own with its files.
        copies: its client has a second copy of each chunk that is under way.
        service, server: what people call the service, and the embedded server that stands in its place.
        speaks_s3: clients of S3 read it.
        takes_files: files can be put into it; else it is a service that makes its own datasets.
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
        """Take the store's entry in the configuration."""
        self.spec = spec

    @property
    def embedded(self) -> bool:
        """Whether the workflow serves it on the loopback."""
        return self.spec.get("server") == "embedded"

    @property
    def elsewhere(self) -> bool:
        """Whether a service elsewhere is asked, whose requests cost money."""
        return not self.files and not self.embedded

    @property
    def has_separate_data(self) -> bool:
        """Whether what is put into it lies there alone, and is not read where it was before."""
        return self.embedded or self.elsewhere or "path" in self.spec

    @property
    def billed_service(self) -> str:
        """The service whose prices its requests have (config/facts/prices.yaml), "" where none is known."""
        return ""

    @property
    def is_networked(self) -> bool:
        """Whether its bytes come through a network, real or emulated: next to that, checksums take no time."""
        return self.elsewhere or bool(self.spec.get("network"))

    @abstractmethod
    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Bring a dataset into the store and verify it there.

        Args:
            dataset: its id.
            files: what it consists of.
            folder: the workflow's own for this store, for what is kept nowhere else.
            binaries: the artefact of the servers' build.
            say: gets a line for each object.

        Returns:
            {"location", "local_files"} for the artefact, and what else the store says of it.

        Raises:
            Problem: one line that names the place or the object and what to do.
        """

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Return the objects below a prefix through obstore; credentials are in the environment.

        Raises:
            Problem: obstore does not read such a store.
        """
        raise Problem(f"obstore does not read a store of kind {self.spec['kind']}")

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment with which a node of HSDS stores its objects there.

        Raises:
            Problem: HSDS does not store there.
        """
        raise Problem(f"HSDS does not store in a store of kind {self.spec['kind']}")

    def create_server(self, binaries: dict, folder: Path) -> Server | None:
        """Return how the embedded server of the objects in `folder` is started; None for a kind that has none."""
        return None

    @contextlib.contextmanager
    def serve_folder(
        self, binaries: dict, folder: Path, network: dict | None, log: IO[str], patience_s: float = PATIENCE_S
    ) -> Iterator[Served]:
        """Serve the objects in `folder` on the loopback for the length of a `with` block.

        Args:
            binaries: the artefact of the servers' build.
            folder: the server's own; made if missing.
            network: what to emulate, as in the configuration; None for no proxy at all.
            log: an open file that gets the servers' words.
            patience_s: how long the server may take to end by itself.

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
        """Return where a reader finds the data, and its environment: `env` with the store's credentials.

        Raises:
            Problem: there are no credentials, or they are of another account than the data.
        """

    def list_replaced_files(self, files: list[dict], location: dict, env: Mapping[str, str]) -> list[str]:
        """Return which of the user's own `files` of a manifest, read where they lie, are no longer what they were.

        Raises:
            Problem: the store cannot be asked.
        """
        own = [(entry, Path(entry["path"])) for entry in files if "mtime_ns" in entry]
        return [str(path) for entry, path in own if not _is_unchanged(path, entry)]

    def build_reader(self, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> Reader:
        """Return what reads objects of a dataset at a location with the credentials in `env`; nothing is sent."""
        return self._load_module("reader").Reader(self.spec, location, access, env)

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return the signed URL of each object, and what a bare request says beside it; {} for files.

        `env` has the credentials.

        Raises:
            Problem: there are no credentials to sign with.
        """
        return {}

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield what a run needs of the store, each with what says that it is there, or raises the Problem."""
        yield from ()

    @abstractmethod
    def describe_limits(self, file_systems: Set[str]) -> str:
        """Return what figures of the store cannot say (METHOD 22); its files were on these types of file systems."""

    def _load_module(self, name: str) -> ModuleType:
        folders = (kind.__module__.rpartition(".")[0] for kind in type(self).__mro__)
        return importlib.import_module(next(f"{one}.{name}" for one in folders if find_spec(f"{one}.{name}")))


class ObjectStore(Store):
    """A store that is asked over HTTP.

    `client` of its folder imports its SDK. It says where credentials for a service elsewhere are taken from, without
    asking it (`describe_credentials(spec)`), asks the service for what holds the objects and says where that was found
    (`find_holder(spec)`), signs addresses (`sign_addresses(spec, key, names, env)`), and has the class `target` that uploads.

    Attributes:
        holder: what holds its objects, in words, and the key of its name in the configuration.
        target: name of the class in `client` that uploads a dataset.
        emulated: what the embedded server is, in words, and what its figures say nothing about.
        saves_s: how long the embedded server may take to save what was put into it.
    """

    holder = ""
    target = "Target"
    emulated = ("", "")
    saves_s = PATIENCE_S

    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Upload objects through the API: HDF5 2.x refuses those that were put into a server's folder by hand."""
        artefact = {"location": {"dataset": dataset}, "local_files": [], "folder": None}
        if not self.embedded:
            url, env = self.resolve_holder_url(None, dict(os.environ))
            return (
                artefact
                | transfer.provide_files(*self._build_ends(dataset, env), files, say)
                | self.get_account_url(url)
            )
        # A folder for each dataset, whose files are of this one alone.
        own = folder / dataset
        filled = own.exists()
        with self._serve_holder(dataset, own, binaries) as ends:
            artefact |= transfer.provide_files(*ends, files, say)
        if filled and artefact["upload"]["uploaded"]:
            # What a server keeps for a while of replaced objects would count as files that are read.
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
        """Serve a folder with what holds the objects for the length of a `with` block; it is saved when that ends."""
        with self.serve_folder(read_json(binaries), folder, None, sys.stdout, self.saves_s) as served:
            _, env = self.resolve_holder_url(served, dict(os.environ))
            target, reader = self._build_ends(dataset, env)
            with contextlib.closing(reader), target.convert_errors():
                target.make_holder()
                yield target, reader
        if status := served.processes[self.served_by].returncode:
            raise Problem(f"{self.served_by} ended with status {status} before it had saved its files; run again")

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """Return the files of the embedded server that hold the bytes of objects; none where nothing is embedded."""
        return []

    def get_account_url(self, url: str) -> dict[str, str]:
        """Return {"account_url"} of what holds the objects where the environment, not the configuration, names it."""
        return {}

    @abstractmethod
    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of what holds the objects, and the environment with credentials for it."""

    def build_dataset_key(self, dataset: str) -> str:
        """Return what the keys of a dataset's objects begin with."""
        return "/".join(filter(None, [self.spec["prefix"], dataset]))

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return {"url", "key"} of the dataset, and the reader's environment."""
        url, env = self.resolve_holder_url(served, env)
        # A container or share is still in the account that the data were put into.
        account, provided = url.rpartition("/")[0], provision.get("account_url")
        if provided not in (None, account):
            raise Problem(
                f"the data were put into {provided}, and the environment names {account} now; name the first again,"
                " or give each account a store of its own, with its account_url"
            )
        # What the user has there lies under a key of its own.
        where = provision["location"]
        key = where["key"] if "key" in where else self.build_dataset_key(where["dataset"])
        return {"url": f"{url}/{key}".rstrip("/"), "key": key}, env

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return signed addresses; see `Store.sign_addresses`."""
        return self._load_module("client").sign_addresses(self.spec, location["key"], names, env)

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield credentials and what holds the objects, of a service elsewhere."""
        if self.embedded:
            yield "", lambda: "embedded, served on the loopback"
            return
        yield "credentials", lambda: self._load_module("client").describe_credentials(self.spec)
        yield self.holder, lambda: self._load_module("client").find_holder(self.spec)

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Return whose caches are not controlled, or what was emulated."""
        if not self.embedded:
            return "the service's own caches and its other users are not controlled"
        server, others = self.emulated
        emulated, spec = "no network at all", self.spec.get("network")
        if spec is not None:
            emulated = f"an emulated network: {', '.join(networks.format_parts(spec)) or 'a proxy without limits'}"
        return (
            f"{server} on the loopback of the same machine, whose cores it shares with what reads, "
            f"{emulated}, {'' if self.spec.get('tls') else 'no '}TLS; not a verdict on {others}"
        )


def _is_unchanged(path: Path, entry: dict) -> bool:
    """Return whether a file has the size and the time of modification that a manifest has of it."""
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (entry["bytes"], entry["mtime_ns"])


def apply_cloud_settings(env: dict[str, str], cloud: str) -> dict[str, str]:
    """Return the environment with the user's own settings for a cloud, whose variables begin with `cloud`."""
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
    """Return a cell's embedded server if there is one, the place of the data, and the reader's environment.

    `spec` is the store's entry in the configuration, `provision` the artefact of the data in it, `env` the environment
    to begin with, `fault` (`faults.plan_fault`) what the emulated network injects; the stack ends the server. For the
    others, and for errors, see `Store.serve_folder` and `Store.resolve_location`.
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
    """Return the names of the servers that stores of a configuration need (`--need` of `scripts/build_servers.py`)."""
    embedded = [store for spec in specs if (store := get_store(spec)).embedded]
    proxies = {"toxiproxy" for store in embedded if store.spec.get("network") is not None}
    return sorted(({store.served_by for store in embedded} | proxies) - {""})


def get_store(spec: dict) -> Store:
    """Return the store of an entry in the configuration; its folder is named as the first word of its kind."""
    folder = importlib.import_module(f"sbench.stores.{spec['kind'].partition('-')[0]}.store")
    return folder.KINDS[spec["kind"]](spec)
