"""h5pyd#258: hsload needs about 11,000 requests to HSDS for a file with many groups and attributes."""

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.shapes import tree

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_ROOT = Path(__file__).resolve().parents[4]
_DOMAIN, _BUCKET = "/tree.h5", "hsds"
_CLAIMED = 11_000
# Attributes of each object in the tree that is said to need as many requests as claimed.
_ATTRIBUTES = 10


def prepare(options: dict) -> Callable[[], dict]:
    """Write a tree to a file, start HSDS, and return a function that uploads the file, and counts HSDS's requests."""
    import requests

    from sbench.studies.arrays import service as services

    folder = Path(tempfile.mkdtemp())
    tree.write_tree(folder / "tree.h5", **options)
    storage = services.get_storage_variables({"folder": str(folder), "bucket": _BUCKET}, {})
    settings = services.Settings(nodes=1, request_limit=2**20, streaming=True)
    running = contextlib.ExitStack()
    # The nodes start in the folder of the project.
    with contextlib.chdir(_ROOT):
        service = running.enter_context(services.run_service(settings, storage, folder))
    sent, send = [], requests.Session.send

    def count(session: requests.Session, request: requests.PreparedRequest, **more: object) -> requests.Response:
        sent.append(request.method)
        return send(session, request, **more)

    requests.Session.send = count

    def load() -> dict:
        with running:
            _load_file(folder / "tree.h5", service.endpoint, service.password, services.USER)
            number = len(sent)
            return {"hsds_requests": number} | _count_stored(service.endpoint, service.password, services.USER)

    return load


def judge(runs: "Runs") -> "Judgement":
    """Compute the requests for an object and for an attribute, from trees that differ in their number."""
    costs = {
        release: [
            _compute_cost(runs, f"{release}, more {name}", f"{release}, few", name)
            for name in ("objects", "attributes")
        ]
        for release in ("0.21.0", "0.24.0", "1.0.0")
    }
    per_object, per_attribute = costs["0.21.0"]
    texts = [f"{cost[0]:.3g} and {cost[1]:.3g} with {release}" for release, cost in costs.items()]
    objects = _CLAIMED / (per_object + _ATTRIBUTES * per_attribute)
    reason = (
        f"hsload sends this many requests for an object and for an attribute: {', '.join(texts)}; with 0.21.0,"
        f" {_CLAIMED:,} requests upload about {objects:,.0f} objects with {_ATTRIBUTES} attributes each"
    )
    fits = [release for release, cost in costs.items() if all(map(runs.agrees, cost))]
    if "0.21.0" not in fits:
        return runs.decide(False, min(costs["0.21.0"]), reason)
    if len(fits) < len(costs):
        return runs.limit(f"h5pyd is {' or '.join(fits)}", min(costs["0.21.0"]), reason)
    return runs.decide(True, min(costs["0.21.0"]), reason)


def _compute_cost(runs: "Runs", more: str, few: str, name: str) -> float:
    """Return the additional requests for each additional object or attribute."""
    added = [runs.read_count(more, column) - runs.read_count(few, column) for column in ("hsds_requests", name)]
    return added[0] / added[1]


def _load_file(path: Path, endpoint: str, password: str, user: str) -> None:
    from h5pyd._apps import hsload

    places = ["-e", endpoint, "-u", user, "-p", password, "--bucket", _BUCKET]
    sys.argv = ["hsload", *places, str(path), _DOMAIN]
    hsload.main()


def _count_stored(endpoint: str, password: str, user: str) -> dict:
    """Return the number of objects and attributes that HSDS has, which another process would read, too."""
    import h5pyd

    numbers = {"objects": 0, "attributes": 0}

    def add(_: str, item: "h5pyd.Group | h5pyd.Dataset") -> None:
        numbers["objects"] += 1
        numbers["attributes"] += len(item.attrs)

    access = {"endpoint": endpoint, "username": user, "password": password, "bucket": _BUCKET}
    with h5pyd.File(_DOMAIN, "r", **access) as file:
        file.visititems(add)
    return numbers
