"""A cell's store: its server while the cell runs, and where its reader finds the data."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from scripts.lib.program import read_json
from scripts.stores import store
from scripts.stores.servers import Served

Told = tuple[Served | None, dict, dict[str, str]]


def serve(
    stack: contextlib.ExitStack, spec: dict, provision: dict, env: dict[str, str], binaries: Path | None, log: IO[str]
) -> Told:
    """Return the embedded server if there is one, the place of the data, and the reader's environment.

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
    place, served = store.of(spec), None
    if place.embedded:
        folder, network = Path(provision["folder"]), spec.get("network")
        served = stack.enter_context(place.serve(read_json(binaries), folder, network, log))
        env = {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}
    return served, *place.locate(provision, served, env)


def needed(specs: Iterable[dict]) -> list[str]:
    """Return the names of the servers that stores of a configuration need (`--need` of `scripts.build_servers`)."""
    embedded = [place for spec in specs if (place := store.of(spec)).embedded]
    proxies = {"toxiproxy" for place in embedded if place.spec.get("network") is not None}
    return sorted(({place.served_by for place in embedded} | proxies) - {""})
