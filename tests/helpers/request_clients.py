"""Clients whose requests are known: each prints the number of its requests by method, and the byte ranges that it read.

Called as `request_clients.py CLIENT ROUNDS` with the environment variables of a served bucket that has the objects of
`request_truth.write_objects`. A round is about ten requests. What is aborted has no ranges.
"""

import functools
import http.client
import importlib
import io
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

BUCKET, URL = os.environ["SBENCH_BUCKET"], os.environ["SBENCH_URL"]
SIZES = json.loads(os.environ["OBJECT_SIZES"])
PLAIN, LARGE, NAMED, ZERO, ABSENT = "plain.bin", "large.bin", "d e/#ü+%2F.bin", "zero.bin", "absent.bin"
_PART = 5 << 20
_AT_ONCE = 4

methods: Counter[str] = Counter()
reads: dict[str, list[tuple[int, int]]] = {}
chance = random.Random(1)


def note(method: str, count: int = 1) -> None:
    methods[method] += count


def note_read(key: str, begin: int, end: int) -> None:
    note("GET")
    reads.setdefault(key, []).append((begin, end))


def choose_range(key: str) -> tuple[int, int]:
    """Choose a range of an object, (begin, end) in bytes."""
    begin = chance.randrange(SIZES[key])
    return begin, min(SIZES[key], begin + chance.randrange(1, 5000))


def note_exchange(method: str, url: str, status: int, headers: dict) -> None:
    """Note a request that a Python client sent, by the response that the client received."""
    parts = urllib.parse.urlsplit(url)
    key = urllib.parse.unquote(parts.path).strip("/").partition("/")[2]
    if method != "GET" or not key or status not in (200, 206) or {"tagging", "uploadId"} & {*parts.query.split("=")}:
        note("LIST" if method == "GET" and not key else method)
        return
    begin = int(headers.get("Content-Range", "bytes 0-").removeprefix("bytes ").partition("-")[0])
    if length := int(headers["Content-Length"]):
        note_read(key, begin, begin + length)
    else:
        note("GET")


def watch_botocore() -> None:
    """Note what boto3 sends, retries included."""
    from botocore.httpsession import URLLib3Session

    send = URLLib3Session.send

    @functools.wraps(send)
    def watched(self: object, request: object) -> object:
        try:
            response = send(self, request)
        except Exception:
            note(request.method)
            raise
        note_exchange(request.method, request.url, response.status_code, response.headers)
        return response

    URLLib3Session.send = watched


def watch_aiobotocore() -> None:
    """Note what s3fs sends."""
    # It comes with s3fs.
    session = importlib.import_module("aiobotocore.httpsession").AIOHTTPSession
    send = session.send

    @functools.wraps(send)
    async def watched(self: object, request: object) -> object:
        response = await send(self, request)
        note_exchange(request.method, request.url, response.status_code, response.headers)
        return response

    session.send = watched


def use_boto3(rounds: int) -> None:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import ClientError

    watch_botocore()
    s3 = boto3.client("s3")
    of = functools.partial(dict, Bucket=BUCKET)

    def get(key: str, **words: str) -> bytes:
        return s3.get_object(**of(Key=key), **words)["Body"].read()

    def fail(call: Callable, *words: object, **named: object) -> None:
        try:
            call(*words, **named)
        except ClientError:
            return
        raise SystemExit(f"{call} did not fail")

    def read(number: int) -> None:
        for key in (PLAIN, NAMED):
            begin, end = choose_range(key)
            assert len(get(key, Range=f"bytes={begin}-{end - 1}")) == end - begin
        get(PLAIN, Range="bytes=-100")
        get(NAMED, Range=f"bytes={SIZES[NAMED] - 10}-")
        get(NAMED, Range="bytes=0-9,20-29")
        s3.head_object(**of(Key=NAMED))
        assert get(ZERO) == b""
        fail(get, ABSENT)
        fail(get, PLAIN, Range=f"bytes={SIZES[PLAIN]}-")
        fail(get, PLAIN, IfNoneMatch="*")
        fail(get, PLAIN, IfMatch='"other"')
        fail(s3.head_object, **of(Key=ABSENT))
        s3.list_objects(**of(MaxKeys=2))
        s3.list_objects_v2(**of(Prefix="d e/"))
        s3.put_object(**of(Key=f"own/{number} ü#+"), Body=b"x" * number)
        fail(s3.put_object, **of(Key="own/first"), Body=b"GET /x HTTP/1.1\r\n\r\n" * 100, IfNoneMatch="*")
        s3.delete_object(**of(Key=f"own/{number} ü#+"))

    s3.put_object(**of(Key="own/first"), Body=b"")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(read, range(-(-rounds * 10 // 17))))
    config = TransferConfig(multipart_threshold=_PART, multipart_chunksize=_PART)
    s3.upload_fileobj(io.BytesIO(b"GET /x HTTP/1.1\r\n\r\n" * 600_000), BUCKET, "large", Config=config)
    s3.copy(of(Key="large"), BUCKET, "copies/large", Config=config)
    s3.copy_object(**of(Key="copies/small"), CopySource=of(Key=NAMED))
    s3.put_object_tagging(**of(Key=PLAIN), Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    s3.get_object_tagging(**of(Key=PLAIN))
    unfinished = s3.create_multipart_upload(**of(Key="unfinished"))["UploadId"]
    s3.list_parts(**of(Key="unfinished", UploadId=unfinished))
    s3.abort_multipart_upload(**of(Key="unfinished", UploadId=unfinished))
    s3.delete_objects(**of(Delete={"Objects": [{"Key": "copies/large"}, {"Key": "copies/small"}]}))


def use_s3fs(rounds: int) -> None:
    import s3fs

    watch_aiobotocore()
    files = s3fs.S3FileSystem()
    for _ in range(rounds):
        spans = [choose_range(PLAIN) for _ in range(6)]
        files.cat_ranges([f"{BUCKET}/{PLAIN}"] * 6, *map(list, zip(*spans, strict=True)))
        with files.open(f"{BUCKET}/{NAMED}", cache_type="none") as file:
            file.seek(10)
            file.read(20)
        assert not files.exists(f"{BUCKET}/{ABSENT}")
        files.pipe_file(f"{BUCKET}/own/ü", b"x")
    files.pipe_file(f"{BUCKET}/own/large", bytes(2 * _PART + 1), chunksize=_PART)
    files.find(BUCKET)
    files.rm(f"{BUCKET}/own", recursive=True)


def use_obstore(rounds: int) -> None:
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    store = S3Store(BUCKET)

    def read(_: int) -> None:
        for key in (PLAIN, NAMED) * 2:
            begin, end = choose_range(key)
            obstore.get_range(store, key, start=begin, end=end)
            note_read(key, begin, end)
        obstore.get(store, PLAIN, options={"range": {"suffix": 100}}).bytes()
        note_read(PLAIN, SIZES[PLAIN] - 100, SIZES[PLAIN])
        obstore.get(store, NAMED, options={"range": {"offset": 10}}).bytes()
        note_read(NAMED, 10, SIZES[NAMED])
        obstore.get(store, ZERO).bytes()
        note("GET")
        for options in ({"if_none_match": "*"}, {"if_match": "other"}):
            with suppress(BaseError):
                obstore.get(store, PLAIN, options=options)
            note("GET")
        obstore.head(store, PLAIN)
        note("HEAD")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(read, range(rounds)))
    obstore.put(store, "own/small", b"x")
    obstore.copy(store, "own/small", "own/copy")
    note("PUT", 2)
    obstore.put(store, "own/large", bytes(2 * _PART + 1), use_multipart=True, chunk_size=_PART)
    note("PUT", 3)
    # Several keys are one request.
    obstore.delete(store, ["own/small", "own/copy", "own/large"])
    note("POST", 3)
    obstore.list(store).collect()
    note("LIST")


def use_pyarrow(rounds: int) -> None:
    from pyarrow.fs import FileSystem

    files, root = FileSystem.from_uri(f"s3://{BUCKET}")

    def read(_: int) -> None:
        for key in (PLAIN, NAMED):
            with files.open_input_file(f"{root}/{key}") as file:
                note("HEAD")
                for _ in range(4):
                    begin, end = choose_range(key)
                    file.read_at(end - begin, begin)
                    note_read(key, begin, end)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(read, range(rounds)))


def use_h5coro(rounds: int) -> None:
    from h5coro import h5coro, s3driver

    watch_botocore()
    for _ in range(2 * rounds):
        file = h5coro.H5Coro(f"{BUCKET}/a.h5", s3driver.S3Driver)
        file.readDatasets(["x", "y"], block=True)


def use_remfile(rounds: int) -> None:
    import remfile
    import requests

    send = requests.Session.send

    @functools.wraps(send)
    def watched(self: object, request: object, **words: object) -> object:
        response = send(self, request, **words)
        note_exchange(request.method, request.url, response.status_code, response.headers)
        return response

    requests.Session.send = watched
    for _ in range(rounds):
        # Without its size, remfile aborts a first response.
        file = remfile.File(f"{URL}/{PLAIN}", _min_chunk_size=4096, _size=SIZES[PLAIN])
        for place in range(8):
            file.seek(place * 30_000)
            file.read(1000)


def use_aborting(rounds: int) -> None:
    """Close connections before a response, or half a request, has ended."""
    parts = urllib.parse.urlsplit(URL)
    for number in range(5 * rounds):
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", f"{parts.path}/{LARGE}")
        response = connection.getresponse()
        response.read(1000 * (number % 3))
        connection.close()
        response.close()
        note("GET")
        with socket.create_connection((parts.hostname, parts.port)) as raw:
            raw.sendall(f"GET {parts.path}/{LARGE} HTTP/1.1\r\nHost: ".encode())


def use_ros3(rounds: int) -> None:
    import h5py

    for _ in range(5 * rounds):
        with h5py.File(f"s3://{BUCKET}/a.h5", driver="ros3") as file:
            file["x"][:]
        # The whole of a small file is read when it is opened.
        note("HEAD")
        note_read("a.h5", 0, SIZES["a.h5"])


def _read_zarr(store: object) -> None:
    import zarr

    array = zarr.open_array(store, mode="r", zarr_format=3)
    assert array[:].sum() == sum(range(8)) * 8


def use_zarr(rounds: int) -> None:
    import s3fs
    import zarr

    watch_aiobotocore()
    files = s3fs.S3FileSystem(asynchronous=True)
    for _ in range(rounds):
        _read_zarr(zarr.storage.FsspecStore(files, path=f"{BUCKET}/z.zarr"))


def use_zarr_obstore(rounds: int) -> None:
    import zarr
    from obstore.store import S3Store

    chunks = [key for key in SIZES if key.startswith("z.zarr/")]
    for _ in range(rounds):
        _read_zarr(zarr.storage.ObjectStore(S3Store(BUCKET, prefix="z.zarr"), read_only=True))
        for key in chunks:
            note_read(key, 0, SIZES[key])
        # The first chunk has only the fill value, and is no object.
        note("GET")


def use_curl(rounds: int) -> None:
    key, size = urllib.parse.quote(NAMED), SIZES[NAMED]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            # Requests of the same call share a connection.
            for words in (
                ["-r", "0-99"],
                ["-r", "-100"],
                ["-r", "50-"],
                ["-r", "0-9,20-29"],
                ["-I"],
                ["-H", "If-None-Match: *"],
            ):
                url = [f"{URL}/{key}"] * 2 if "-r" in words else [f"{URL}/{key}"]
                url += ["--parallel"] * (number % 2)
                subprocess.run(
                    ["curl", "-s", *words, *url, "-o", "/dev/null", "-o", "/dev/null"], cwd=folder, check=True
                )
            for span in ((0, 100), (size - 100, size), (50, size), (0, size)):
                for _ in range(2):
                    note_read(NAMED, *span)
            note("HEAD")
            note("GET")
            subprocess.run(["curl", "-s", "-o", "/dev/null", f"{URL}?list-type=2&max-keys=1"], cwd=folder, check=True)
            note("LIST")


def use_go(rounds: int) -> None:
    """Run the program of go_client, which makes 11 requests in a round."""
    done = subprocess.run([os.environ["GO_CLIENT"], URL, str(rounds)], stdout=subprocess.PIPE, check=True)
    key, size = NAMED, SIZES[NAMED]
    spans = [(0, 10), (10, 1000), (size - 100, size), (50, size), (0, size), (0, size)]
    made = json.loads(done.stdout)
    for span in spans * rounds:
        note_read(key, *span)
    for method, count in made.items():
        methods[method] = count


def main(client: str, rounds: str) -> None:
    globals()[f"use_{client}"](int(rounds))
    json.dump({"methods": methods, "reads": reads}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Threads of icechunk and obstore that are still alive while Python ends abort the process, more often under load.
    os._exit(0)
