"""Store arrays in HSDS, through its Python client h5pyd or by direct requests to its REST API."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

import h5pyd
import numpy as np
import requests
from urllib3.exceptions import HTTPError

from sbench.probe.program import Problem
from sbench.stores import objects
from sbench.stores import store as stores
from sbench.studies.arrays import backends
from sbench.studies.arrays.backends import LEVEL, Read, Target, Write
from sbench.studies.arrays.pieces import Piece
from sbench.studies.arrays.zarr import sync_files

DATASET = "array"
BINARY = "application/octet-stream"
_WRONG = 400  # HTTP statuses from here on are errors
_PIECE = 2**20  # maximum bytes per read from the body of a response


class Refused(Problem):
    """Raised when HSDS responds with an HTTP error status.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, words: str, status: int, reason: str) -> None:
        """Build the message from a description of the request, the HTTP status and the reason phrase."""
        super().__init__(f"{words} {status} {reason}")
        self.status = status


class Broken(Problem):
    """Raised when a response from HSDS is missing or incomplete."""


class Hsds(backends.Backend):
    """An array as a dataset in an HSDS domain. The data nodes store each chunk as an object."""

    @contextlib.contextmanager
    def open_for_writing(self, target: Target, new: bool) -> Iterator[Write]:
        """Open the domain for writing.

        The data nodes acknowledge values once they are in memory and store them about a second later. When h5pyd
        opens an existing domain, it requests a flush, so that opening waits until the nodes have stored all values.
        """
        if target.protocol == "client":
            with _open_file(target, "w" if new else "r+") as file:
                dataset = _create_dataset(file, target) if new else _get_dataset(file)

                def write_piece(piece: Piece, values: np.ndarray) -> None:
                    with _convert_errors("a write by h5pyd"):
                        dataset[piece.slices] = values

                yield write_piece
            return
        if new:
            with _open_file(target, "w") as file:
                _create_dataset(file, target)
        with Rest(target) as rest:
            rest.resolve_dataset()
            yield rest.put_binary if target.protocol == "binary" else rest.put_json

    @contextlib.contextmanager
    def open_for_reading(self, target: Target) -> Iterator[Read]:
        """Open the domain for reading."""
        if target.protocol == "client":
            with _open_file(target, "r") as file:
                dataset = _get_dataset(file)

                def read_piece(piece: Piece) -> tuple[np.ndarray, None]:
                    with _convert_errors("a read by h5pyd"):
                        return dataset[piece.slices], None

                yield read_piece
            return
        with Rest(target) as rest:
            rest.resolve_dataset()
            yield rest.get_binary if target.protocol == "binary" else rest.get_json

    def wait_until_stored(self, target: Target) -> None:
        """Flush the data nodes and sync their files to disk.

        `flush` of an h5pyd file does not make the nodes store their values, so this requests it from the REST API.

        Raises:
            Problem: the nodes did not finish within the service's `flush_timeout`.
        """
        with Rest(target) as rest:
            rest.flush_domain()
        sync_files(target)

    def read_settings(self, target: Target) -> dict:
        """Return the array's layout, the number of nodes and the request limit, as HSDS reports them, and versions."""
        with _open_file(target, "r") as file, Rest(target) as rest:
            dataset = _get_dataset(file)
            about, domain = rest.fetch_json("/about"), rest.fetch_json("/", verbose=1)
            return {
                "chunks": "x".join(map(str, dataset.chunks)),
                "compression": dataset.compression or "none",
                **{"hsds": about["hsds_version"], "h5pyd": version("h5pyd"), "nodes": about["node_count"]},
                "request_limit": domain["limits"]["max_request_size"],
            }

    def count_stored(self, target: Target) -> tuple[int, int]:
        """Return the number and total bytes of the domain's objects.

        If the service does not belong to the workflow, return the numbers of chunks and allocated bytes it reports.
        """
        with Rest(target) as rest:
            if _is_elsewhere(target):
                rest.resolve_dataset()
                rest.send_request("PUT", "/", {"flush": 1, "rescan": 1})
                facts = rest.fetch_json(rest.dataset, verbose=1)
                return facts["num_chunks"], facts["allocated_size"]
            return objects.count_objects(
                objects.open_store(_get_service_place(target), target.store), rest.fetch_key_prefix()
            )

    def remove_array(self, target: Target) -> None:
        """Remove the domain and its objects.

        If the workflow starts the service itself, the objects are removed from its store without a running service.
        """
        if _is_elsewhere(target):
            with Rest(target) as rest:
                rest.send_request("DELETE", "/", {})
            return
        store, domain = (
            objects.open_store(_get_service_place(target), target.store),
            target.place["domain"].strip("/"),
        )
        if about := objects.read_object(store, f"{domain}/.domain.json"):
            objects.remove_objects(store, _build_key_prefix(json.loads(about)["root"]))
        objects.remove_objects(store, domain)


class Rest:
    """A client for the REST API of HSDS, for one array, over a persistent connection.

    Failed requests raise Refused if the response has an error status, and Broken otherwise.
    """

    def __init__(self, target: Target, timeout_s: float | None = None) -> None:
        """Create the session. `timeout_s` is the connect timeout and the longest wait between bytes of a response."""
        self._target, self._timeout_s, self.dataset = target, timeout_s, ""
        self._session = requests.Session()
        self._session.auth, self._session.trust_env = target.secrets, False

    def __enter__(self) -> "Rest":
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._session.close()

    def resolve_dataset(self) -> None:
        """Look up the URL path of the dataset and store it in `dataset`."""
        with _open_file(self._target, "r") as file:
            self.dataset = f"/datasets/{_get_dataset(file).id.uuid}"

    def put_binary(self, piece: Piece, values: np.ndarray) -> None:
        """Write values as binary data in a single request."""
        body = np.ascontiguousarray(values).data.cast("B")
        self.send_request(
            "PUT", f"{self.dataset}/value", _build_selection(piece), data=body, headers={"Content-Type": BINARY}
        )

    def put_json(self, piece: Piece, values: np.ndarray) -> None:
        """Write values as JSON in a single request."""
        ends = {"start": [piece.rows[0], piece.columns[0]], "stop": [piece.rows[1], piece.columns[1]]}
        self.send_request("PUT", f"{self.dataset}/value", {}, json=ends | {"value": values.tolist()})

    def get_binary(self, piece: Piece, between: Callable[[], None] = lambda: None) -> tuple[np.ndarray, float]:
        """Read values as binary data. Return them and the time to first byte in seconds.

        `between` is called after the first byte has been read and before the rest is read.

        Raises:
            Broken: the response is too short or timed out.
        """
        began = time.perf_counter()
        answer = self.send_request(
            "GET", f"{self.dataset}/value", _build_selection(piece), headers={"Accept": BINARY}, stream=True
        )
        values = np.empty(piece.bytes, np.uint8)
        view = memoryview(values)
        with _convert_errors(f"a response of {len(view)} bytes"):
            # urllib3 waits for all requested bytes, so read the first byte separately to time it.
            done = answer.raw.readinto(view[:1])
            first = time.perf_counter() - began
            between()
            while done < len(view) and (count := answer.raw.readinto(view[done : done + _PIECE])):
                done += count
        if done < len(view):
            raise Broken(f"HSDS sent {done} of {len(view)} bytes; see its output in the log")
        return _reshape_values(values.view(self._target.dtype), piece), first

    def get_json(self, piece: Piece) -> tuple[np.ndarray, None]:
        """Read values as JSON."""
        values = self.send_request("GET", f"{self.dataset}/value", _build_selection(piece)).json()["value"]
        return np.array(values, self._target.dtype), None

    def create_strings(self, count: int) -> str:
        """Create a dataset of `count` empty variable-length strings, and return the URL path of its values."""
        kind = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
        answer = self.send_request(
            "POST", "/datasets", {}, json={"type": kind | {"strPad": "H5T_STR_NULLTERM"}, "shape": count}
        )
        return f"/datasets/{answer.json()['id']}/value"

    def flush_domain(self) -> None:
        """Make the data nodes write all cached values of the domain to the store, and wait until they have done so."""
        self.send_request("PUT", "/", {"flush": 1})

    def fetch_key_prefix(self) -> str:
        """Return the key prefix of the domain's objects; the domain's own metadata has a different key."""
        return _build_key_prefix(self.fetch_json("/")["root"])

    def fetch_json(self, path: str, **parameters: int) -> dict:
        """Send a GET request and return the decoded JSON body of the response."""
        return self.send_request("GET", path, parameters).json()

    def send_request(self, method: str, path: str, parameters: dict, **options: object) -> requests.Response:
        """Send a request with the array's domain and bucket as query parameters, and return the response.

        Raises:
            Refused: the response has an error status.
            Broken: no response arrived.
        """
        place = self._target.place
        parameters = {name: place[name] for name in ("domain", "bucket") if name in place} | parameters
        with _convert_errors(f"{method} {path}"):
            answer = self._session.request(
                method, f"{place['endpoint']}{path}", params=parameters, timeout=self._timeout_s, **options
            )
        if answer.status_code >= _WRONG:
            raise Refused(f"HSDS answered {method} {path} with", answer.status_code, answer.reason)
        return answer


def _create_dataset(file: h5pyd.File, target: Target) -> h5pyd.Dataset:
    shape, gzip = target.shape, target.compression == "gzip"
    options = {"compression": "gzip", "compression_opts": LEVEL} if gzip else {}
    sides, chunks = (shape.rows, shape.columns), (shape.chunk_rows, shape.chunk_columns)
    return file.create_dataset(DATASET, sides, target.dtype, chunks=chunks, **options)


@contextlib.contextmanager
def _convert_errors(what: str) -> Iterator[None]:
    """Convert request errors in a `with` block: to Refused if they have an HTTP error status, otherwise to Broken."""
    try:
        yield
    except (requests.RequestException, HTTPError, OSError) as error:
        if (status := getattr(error, "errno", None) or 0) >= _WRONG:
            raise Refused(f"HSDS answered {what} with", status, error.strerror) from error
        raise Broken(f"HSDS did not complete {what}: {type(error).__name__}") from error


def _get_dataset(file: h5pyd.File) -> h5pyd.Dataset:
    """Return the dataset of a domain.

    Raises:
        Problem: the dataset's metadata was not stored.
    """
    try:
        return file[DATASET]
    except KeyError as error:
        raise Problem(f"HSDS lacks the dataset {DATASET} in {file.filename}: it was not stored") from error


def _build_selection(piece: Piece) -> dict[str, str]:
    (first, end), (left, right) = piece.rows, piece.columns
    return {"select": f"[{first}:{end},{left}:{right}]"}


def _reshape_values(values: np.ndarray, piece: Piece) -> np.ndarray:
    return values.reshape(piece.rows[1] - piece.rows[0], piece.columns[1] - piece.columns[0])


def _build_key_prefix(root: str) -> str:
    first, second = root.removeprefix("g-").split("-")[:2]
    return f"db/{first}-{second}"


def _is_elsewhere(target: Target) -> bool:
    return bool(target.store) and not stores.get_store(target.store).takes_files


def _get_service_place(target: Target) -> dict[str, str]:
    place = target.place
    return {"folder": f"{place['folder']}/{place['bucket']}"} if "folder" in place else {"prefix": ""}


def _open_file(target: Target, mode: str) -> h5pyd.File:
    user, password = target.secrets
    place = target.place
    try:
        return h5pyd.File(
            place["domain"],
            mode,
            endpoint=place["endpoint"],
            username=user,
            password=password,
            bucket=place.get("bucket"),
            retries=1,
        )
    except OSError as error:
        words = " ".join(str(error).split())
        raise Problem(f"HSDS at {place['endpoint']} cannot open {place['domain']}: {words}") from error


BACKEND = Hsds()
