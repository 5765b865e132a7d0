"""Define the store for a remote HDF service (HSDS). Data are written through its API; it accepts no files."""

import base64
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path

from sbench.probe.program import Problem
from sbench.stores.bare import Address
from sbench.stores.embedded import Served
from sbench.stores.store import Store
from sbench.stores.transfer import File, Say

# h5pyd looks for credentials in these environment variables, and under the same keys in its configuration file.
NAMES = ("HS_USERNAME", "HS_PASSWORD")
FILE = Path("~/.hscfg")
_PATIENCE_S = 20


def read_credentials() -> tuple[str, str]:
    """Return the user name and password from the environment, or from h5pyd's configuration file if not set there.

    Raises:
        Problem: the user name or the password is in neither of them.
    """
    values = {name: os.environ[name] for name in NAMES if name in os.environ}
    if len(values) < len(NAMES) and (path := FILE.expanduser()).is_file():
        lines = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
        values = {key.strip().upper(): value.strip() for key, _, value in lines} | values
    if missing := [name for name in NAMES if not values.get(name)]:
        raise Problem(f"missing credentials for the HDF service; set {missing[0]}, or write it to {FILE}")
    return values[NAMES[0]], values[NAMES[1]]


class Hsds(Store):
    """A folder of an HDF service, in which studies create datasets."""

    service = "HSDS"
    takes_files = False

    def provide_dataset(self, dataset: str, files: list[File], folder: Path, binaries: Path | None, say: Say) -> dict:
        """Check that the service responds. Nothing is uploaded, because studies write data through the service."""
        self._expect_service()
        return {"location": {"endpoint": self.spec["endpoint"]}, "local_files": []}

    def resolve_location(
        self, provision: dict, served: Served | None, env: dict[str, str]
    ) -> tuple[dict, dict[str, str]]:
        """Return the service's URL as {"endpoint"}, and `env` with the user's credentials added."""
        return provision["location"], env | dict(zip(NAMES, read_credentials(), strict=True))

    def sign_addresses(self, location: dict, names: Iterable[str], env: Mapping[str, str]) -> dict[str, Address]:
        """Raise Problem, because the service does not expose the objects in which it stores datasets."""
        raise Problem("an HDF service does not expose its objects to bare requests")

    def list_requirements(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the check that credentials exist, and the check that the service is ready and accepts them."""
        yield "credentials", lambda: f"user {read_credentials()[0]}"
        yield "service", self._expect_service

    def describe_limits(self, file_systems: Set[str]) -> str:
        """Describe influences that the benchmark does not control: the service's nodes, caches and other users."""
        how = f" ({self.spec['deployment']})" if "deployment" in self.spec else ""
        return f"a remote service{how}; its nodes, their caches and its other users are not controlled"

    def _expect_service(self) -> str:
        """Return the service's version and number of nodes.

        Raises:
            Problem: the service does not respond, is not ready or rejects the credentials.
        """
        about = self._fetch_json("/about")
        if about.get("state") != "READY":
            state = about.get("state", "no state")
            raise Problem(f"{self.spec['endpoint']}: the HDF service must be READY (got {state}); try again later")
        self._fetch_json(f"/?domain={self.spec['folder']}")
        return f"HSDS {about.get('hsds_version', '')}, {about.get('node_count', '?')} data nodes"

    def _fetch_json(self, path: str) -> dict:
        token = base64.b64encode(":".join(read_credentials()).encode()).decode()
        request = urllib.request.Request(f"{self.spec['endpoint']}{path}", headers={"Authorization": f"Basic {token}"})
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reasons = {401: "refuses the credentials", 403: "denies access", 404: "does not find the folder"}
            reason = reasons.get(error.code, f"responds with {error.code} {error.reason}")
            raise Problem(f"{self.spec['endpoint']}{path}: the service {reason}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Problem(f"{self.spec['endpoint']} does not respond as an HDF service: {error}") from error


KINDS = {"hsds": Hsds}
