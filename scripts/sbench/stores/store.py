"""Define the interface that stores implement; each kind of store is a separate package.

The `store` modules of these packages import no SDK at module level, because this takes longer than many measurements.
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

# Options for obstore clients, because embedded servers use plain HTTP.
PLAIN = {"client_options": {"allow_http": True}}


class Store(ABC):
    """Base class of stores; the `reader` module in the same package contains the matching `Reader`.

    Attributes:
        files: whether its objects are files in this machine's file systems.
        file_per_object: whether each local file contains exactly one object.
        served_by: name of the embedded server's build.
        attributes: whether the embedded server uses extended file attributes.
        copies: whether its client buffers a second copy of each chunk in flight.
        service, server: display names of the service, and of the embedded server that substitutes for it.
        speaks_s3: whether S3 clients can read it.
        takes_files: whether files can be uploaded to it; if not, it is a service that creates datasets itself.
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
        """Initialise with the store's configuration entry."""
        self.spec = spec

    @property
    def embedded(self) -> bool:
        """Whether the workflow runs the store's server on the loopback interface."""
        return self.spec.get("server") == "embedded"

    @property
    def elsewhere(self) -> bool:
        """Whether the store is a remote service, which may charge for requests."""
        return not self.files and not self.embedded

    @property
    def has_separate_data(self) -> bool:
        """Whether the data are copied or uploaded to the store, rather than read in place."""
        return self.embedded or self.elsewhere or "path" in self.spec

    @property
    def billed_service(self) -> str:
        """The key of the service's request prices in config/facts/prices.yaml; an empty string if unknown."""
        return ""

    @property
    def is_networked(self) -> bool:
        """Whether data cross a real or emulated network, which makes the time for checksums negligible."""
        return self.elsewhere or bool(self.spec.get("network"))

    @abstractmethod
    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Copy or upload a dataset to the store, and verify it there.

        Args:
            dataset: id of the dataset.
            files: manifest entries of the dataset's files, with their local paths.
            folder: folder of the workflow for this store, used unless the store has a location of its own.
            binaries: JSON file with the paths of the built servers.
            say: function that reports a line of progress per object.

        Returns:
            {"location", "local_files"} for the workflow's provisioning artefact, plus keys specific to the store.

        Raises:
            Problem: a one-line message with the store or the object, and the remedy.
        """

    def open_objects(self, prefix: str) -> "obstore.store.ObjectStore":
        """Open the objects under a prefix with obstore, with credentials from environment variables.

        Raises:
            Problem: obstore does not support this kind of store.
        """
        raise Problem(f"obstore cannot read a store of kind {self.spec['kind']}")

    def list_node_variables(self) -> dict[str, str]:
        """Return the environment variables that configure an HSDS node to store its objects in this store.

        Raises:
            Problem: HSDS does not support this kind of store.
        """
        raise Problem(f"HSDS cannot write to a store of kind {self.spec['kind']}")

    def create_server(self, binaries: dict, folder: Path) -> Server | None:
        """Return how to start the embedded server for the objects in `folder`, or None if there is no such server."""
        return None

    @contextlib.contextmanager
    def serve_folder(
        self, binaries: dict, folder: Path, network: dict | None, log: IO[str], patience_s: float = PATIENCE_S
    ) -> Iterator[Served]:
        """Serve the objects in `folder` on the loopback interface during a `with` block.

        Args:
            binaries: paths of the built servers.
            folder: the server's data folder; created if missing.
            network: emulated network as in the configuration; None for no proxy.
            log: open file for the servers' output.
            patience_s: seconds to wait for the server to exit at the end of the block.

        Raises:
            Problem: a server does not start, even after trying another port.
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
        """Return the location of the data for a reader, and `env` with the store's credentials added.

        Raises:
            Problem: credentials are missing, or belong to a different account than the data.
        """

    def list_replaced_files(self, files: list[dict], location: dict, env: Mapping[str, str]) -> list[str]:
        """List the user's files that are read in place and have changed since the manifest was written.

        Raises:
            Problem: the request to the store failed.
        """
        own = [(entry, Path(entry["path"])) for entry in files if "mtime_ns" in entry]
        return [str(path) for entry, path in own if not _is_unchanged(path, entry)]

    def build_reader(self, location: dict, access: Access, env: Mapping[str, str] = os.environ) -> Reader:
        """Create a reader for the dataset at `location` with the credentials in `env`, without sending a request."""
        return self._load_module("reader").Reader(self.spec, location, access, env)

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return, for each object, a URL signed with the credentials in `env` and the headers to send with a GET.

        Returns:
            {object name: (URL, headers)}; {} for files.

        Raises:
            Problem: credentials for signing are missing.
        """
        return {}

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield (name, check) for each requirement.

        The function `check` returns a description, or raises Problem if the requirement is not met.
        """
        yield from ()

    @abstractmethod
    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe the limits of results measured with this store (METHOD 22).

        Args:
            file_systems: types of the file systems that contain its files.
        """

    def _load_module(self, name: str) -> ModuleType:
        folders = (kind.__module__.rpartition(".")[0] for kind in type(self).__mro__)
        return importlib.import_module(next(f"{one}.{name}" for one in folders if find_spec(f"{one}.{name}")))


class ObjectStore(Store):
    """A store that is accessed over HTTP.

    The `client` module of its package imports the SDK. It defines `describe_credentials(spec)` (where credentials come
    from, without a request), `find_holder(spec)` (checks that the bucket, container or share exists),
    `sign_addresses(spec, key, names, env)`, and the class `target`, which uploads datasets.

    Attributes:
        holder: "bucket", "container" or "share": the kind of container for its objects, and the configuration key of
            the container's name.
        target: name of the class in `client` that uploads a dataset.
        emulated: descriptions of the embedded server, and of the services to which its results do not apply.
        saves_s: seconds that the embedded server may take to save its data and exit.
    """

    holder = ""
    target = "Target"
    emulated = ("", "")
    saves_s = PATIENCE_S

    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Upload objects through the API, because HDF5 2.x rejects objects copied directly to the server's folder."""
        artefact = {"location": {"dataset": dataset}, "local_files": [], "folder": None}
        if not self.embedded:
            url, env = self.resolve_holder_url(None, dict(os.environ))
            return (
                artefact
                | transfer.provide_files(*self._build_ends(dataset, env), files, say)
                | self.get_account_url(url)
            )
        # One folder per dataset, so that all files in it belong to this dataset.
        own = folder / dataset
        filled = own.exists()
        with self._serve_holder(dataset, own, binaries) as ends:
            artefact |= transfer.provide_files(*ends, files, say)
        if filled and artefact["upload"]["uploaded"]:
            # A server retains the files of replaced objects for a while, and they would be listed as files of the data.
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
        """Serve a folder during a `with` block, creating the bucket or container if it is missing.

        Raises:
            Problem: the server exited with an error status, so it may not have saved its data.
        """
        with self.serve_folder(read_json(binaries), folder, None, sys.stdout, self.saves_s) as served:
            _, env = self.resolve_holder_url(served, dict(os.environ))
            target, reader = self._build_ends(dataset, env)
            with contextlib.closing(reader), target.convert_errors():
                target.make_holder()
                yield target, reader
        if status := served.processes[self.served_by].returncode:
            raise Problem(f"{self.served_by} exited with status {status} before saving its files; run again")

    def list_object_files(self, folder: Path, names: list[str]) -> list[Path]:
        """List the embedded server's files that contain object data; an empty list if there is no embedded server."""
        return []

    def get_account_url(self, url: str) -> dict[str, str]:
        """Return {"account_url"} if the environment may select the account of this service, otherwise {}."""
        return {}

    @abstractmethod
    def resolve_holder_url(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of the bucket, container or share, and `env` with its credentials added."""

    def build_dataset_key(self, dataset: str) -> str:
        """Return the common key prefix of a dataset's objects."""
        return "/".join(filter(None, [self.spec["prefix"], dataset]))

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return the URL and key prefix of the dataset as {"url", "key"}, and the reader's environment."""
        url, env = self.resolve_holder_url(served, env)
        # The environment may have changed since the upload: the data must be in the account that it names now.
        account, provided = url.rpartition("/")[0], provision.get("account_url")
        if provided not in (None, account):
            raise Problem(
                f"the data are in {provided}, but the environment names {account}; set the environment to the first,"
                " or add a store with account_url for each account"
            )
        # The location of a user's existing objects includes their key.
        where = provision["location"]
        key = where["key"] if "key" in where else self.build_dataset_key(where["dataset"])
        return {"url": f"{url}/{key}".rstrip("/"), "key": key}, env

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Return the signed URL and headers of each object; see `Store.sign_addresses`."""
        return self._load_module("client").sign_addresses(self.spec, location["key"], names, env)

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the checks of a remote service's credentials and of its bucket, container or share."""
        if self.embedded:
            yield "", lambda: "embedded, served on the loopback"
            return
        yield "credentials", lambda: self._load_module("client").describe_credentials(self.spec)
        yield self.holder, lambda: self._load_module("client").find_holder(self.spec)

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe the embedded server and its network, or state that the service's caches are not controlled."""
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
    """Return `env` with all variables whose names begin with `cloud` taken from this process's environment."""
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
    """Start the embedded server of a dataset if its store has one.

    Args:
        stack: exit stack that stops the server.
        spec: the store's configuration entry.
        provision: what `Store.provide_dataset` returned for the dataset.
        env: initial environment.
        binaries: JSON file with the paths of the built servers.
        log: open file for the servers' output.
        fault: faults to inject (`faults.plan_fault`).

    Returns:
        The running server (None if there is none), the location of the data, and the environment for the reader.

    Raises:
        Problem: as `Store.serve_folder` and `Store.resolve_location`.
    """
    store, served = get_store(spec), None
    if store.embedded:
        folder, network = Path(provision["folder"]), spec.get("network")
        network = network | {"fault": fault} if fault else network
        served = stack.enter_context(store.serve_folder(read_json(binaries), folder, network, log))
        if spec.get("tls"):
            env |= trust.install_certificate(served.proxy.fetch_authority())
    return served, *store.resolve_location(provision, served, env)


def list_needed_servers(specs: Iterable[dict]) -> list[str]:
    """List the servers to build for the stores of a configuration (`--need` of `scripts/build_servers.py`)."""
    embedded = [store for spec in specs if (store := get_store(spec)).embedded]
    proxies = {"toxiproxy" for store in embedded if store.spec.get("network") is not None}
    return sorted(({store.served_by for store in embedded} | proxies) - {""})


def get_store(spec: dict) -> Store:
    """Create the store for a configuration entry; the part of `kind` before the first hyphen names its package."""
    folder = importlib.import_module(f"sbench.stores.{spec['kind'].partition('-')[0]}.store")
    return folder.KINDS[spec["kind"]](spec)
