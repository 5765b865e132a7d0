"""A store of the configuration. What differs between kinds of stores stands in the folder of the kind, nowhere else.

A folder's `store` module imports no SDK at its top: that takes longer than many a cell.
"""

import contextlib
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

from scripts.lib.program import Problem, read_json
from scripts.stores.bare import Address
from scripts.stores.reading import Access, Reader
from scripts.stores.servers import Served
from scripts.stores.transfer import File, Say


@dataclass(frozen=True)
class Place:
    """What of this machine takes part when data are put into a store.

    Attributes:
        generated: folder in which the dataset was generated.
        folder: where an embedded server keeps its files.
        binaries: the artefact of the servers' build, for an embedded server.
    """

    generated: Path
    folder: Path
    binaries: Path | None


class Store(ABC):
    """A store.

    Attributes:
        files: its objects are files of this machine's file systems.
        file_per_object: where its files lie here, one holds all of an object and nothing else.
        served_by: name of its server where it is embedded, as it is built; "" where nothing is.
        attributes: that server keeps attributes of its own with its files.
        copies: its client has a second copy of each chunk that is under way.
        service: what people call the service.
        server: what people call the embedded server that stands in its place.
    """

    files = False
    file_per_object = True
    served_by = ""
    attributes = False
    copies = False
    service = ""
    server = ""

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

    @abstractmethod
    def provide(self, dataset: str, files: list[File], place: Place, say: Say) -> dict:
        """Bring a dataset into the store and verify it there.

        Returns:
            {"location", "local_files"} for the artefact, and what else the store says of it.

        Raises:
            Problem: one line that names the place or the object and what to do.
        """

    def serve(
        self, binaries: dict, folder: Path, network: dict | None, log: IO[str]
    ) -> contextlib.AbstractContextManager[Served]:
        """Serve the objects in `folder` on the loopback for the length of a `with` block, as `server` of the kind does.

        Args:
            binaries: the artefact of the servers' build.
            folder: the server's own; made if missing.
            network: {"latency_ms", "jitter_ms", "bandwidth_mib_s"} to emulate, None for no proxy at all.
            log: an open file that gets the servers' words.

        Raises:
            Problem: a server does not start, even on another port.
        """
        return self._module("server").serve(binaries, folder, network, log)

    @abstractmethod
    def locate(self, provision: dict, served: Served | None, env: dict[str, str]) -> tuple[dict, dict[str, str]]:
        """Return where a reader finds the data, and its environment: `env` with the store's credentials.

        Raises:
            Problem: there are no credentials, or they are of another account than the data.
        """

    @abstractmethod
    def reader(self, location: dict, access: Access) -> Reader:
        """Return what reads objects of a dataset at a location; nothing is sent."""

    def addresses(self, location: dict, names: Iterable[str]) -> dict[str, Address]:
        """Return the signed URL of each object, and what a bare request says beside it; {} for files.

        Raises:
            Problem: there are no credentials to sign with.
        """
        return {}

    def check(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield what a run needs of the store, each with what says that it is there, or raises the Problem."""
        yield from ()

    @abstractmethod
    def limits(self, file_systems: Set[str]) -> str:
        """Return what figures of the store cannot say (METHOD 22); its files were on these types of file systems."""

    def _module(self, name: str) -> ModuleType:
        """Return a module of the kind's folder."""
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")


class ObjectStore(Store):
    """A store that is asked over HTTP, by the modules of its folder that import its SDK.

    `client` says where credentials for a service elsewhere are taken from, without asking it (`credentials(spec)`),
    asks the service for what holds the objects and says where that was found (`reachable(spec)`), and signs addresses
    (`addresses(spec, key, names)`); `reader` has the `Reader(spec, location, access)`.

    Attributes:
        holder: what holds its objects, in words, and the key of its name in the configuration.
        emulated: what the embedded server is, in words, and what its figures say nothing about.
    """

    holder = ""
    emulated = ("", "")

    @abstractmethod
    def address(self, served: Served | None, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Return the URL of what holds the objects, and the environment with credentials for it."""

    def key(self, dataset: str) -> str:
        """Return what the keys of a dataset's objects begin with."""
        return "/".join(filter(None, [self.spec["prefix"], dataset]))

    def locate(self, provision: dict, served: Served | None, env: dict[str, str]) -> tuple[dict, dict[str, str]]:
        """Return {"url", "key"} of the dataset, and the reader's environment."""
        url, env = self.address(served, env)
        # A container or share is still in the account that the data were put into.
        account, provided = url.rpartition("/")[0], provision.get("account_url")
        if provided not in (None, account):
            raise Problem(
                f"the data were put into {provided}, and the environment names {account} now; name the first again,"
                " or give each account a store of its own, with its account_url"
            )
        key = self.key(provision["location"]["dataset"])
        return {"url": f"{url}/{key}", "key": key}, env

    def reader(self, location: dict, access: Access) -> Reader:
        """Return what reads objects with the SDK."""
        return self._module("reader").Reader(self.spec, location, access)

    def addresses(self, location: dict, names: Iterable[str]) -> dict[str, Address]:
        """Return signed addresses; see `Store.addresses`."""
        return self._module("client").addresses(self.spec, location["key"], names)

    def check(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield credentials and what holds the objects, of a service elsewhere."""
        if self.embedded:
            yield "", lambda: "embedded, served on the loopback"
            return
        yield "credentials", lambda: self._module("client").credentials(self.spec)
        yield self.holder, lambda: self._module("client").reachable(self.spec)

    def limits(self, file_systems: Set[str]) -> str:
        """Return whose caches are not controlled, or what was emulated."""
        if not self.embedded:
            return "the service's own caches and its other users are not controlled"
        server, others = self.emulated
        return (
            f"{server} on the loopback of the same machine, whose cores it shares with what reads, "
            f"{_emulated(self.spec.get('network'))}, no TLS; not a verdict on {others}"
        )


def _emulated(network: dict | None) -> str:
    if network is None:
        return "no network at all"
    latency, jitter, rate = network["latency_ms"], network["jitter_ms"], network["bandwidth_mib_s"]
    varying = f" ± {jitter} ms" if jitter else ""
    limit = f", {rate:g} MiB/s per connection" if rate else ""
    return f"an emulated network: {latency} ms{varying}{limit}"


def with_own(env: dict[str, str], cloud: str) -> dict[str, str]:
    """Return the environment with the user's own settings for a cloud, whose variables begin with `cloud`."""
    own = {key: value for key, value in os.environ.items() if key.startswith(cloud)}
    return {key: value for key, value in env.items() if not key.startswith(cloud)} | own


def serve(
    stack: contextlib.ExitStack, spec: dict, provision: dict, env: dict[str, str], binaries: Path | None, log: IO[str]
) -> tuple[Served | None, dict, dict[str, str]]:
    """Return a cell's embedded server if there is one, the place of the data, and the reader's environment.

    Args:
        stack: ends the server.
        spec: the store's entry in the configuration.
        provision: the artefact of the data in the store.
        env: the environment to begin with; credentials are added to it.
        binaries: the artefact of the servers' build, read if the store is embedded.
        log: gets the server's words.

    Raises:
        Problem: the server does not start, there are no credentials, or they are of another account than the data.
    """
    store, served = of(spec), None
    if store.embedded:
        folder, network = Path(provision["folder"]), spec.get("network")
        served = stack.enter_context(store.serve(read_json(binaries), folder, network, log))
        env = {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}
    return served, *store.locate(provision, served, env)


def needed(specs: Iterable[dict]) -> list[str]:
    """Return the names of the servers that stores of a configuration need (`--need` of `scripts.build_servers`)."""
    embedded = [store for spec in specs if (store := of(spec)).embedded]
    proxies = {"toxiproxy" for store in embedded if store.spec.get("network") is not None}
    return sorted(({store.served_by for store in embedded} | proxies) - {""})


def of(spec: dict) -> Store:
    """Return the store of an entry in the configuration; its folder is named as the first word of its kind."""
    folder = importlib.import_module(f"scripts.stores.{spec['kind'].partition('-')[0]}.store")
    return folder.KINDS[spec["kind"]](spec)
