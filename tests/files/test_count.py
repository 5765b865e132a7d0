"""Counting the requests of any program: byte ranges, a real server with real clients, and what a user may do wrong."""

import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import nbformat
import numpy as np
import pytest
import yaml
from conftest import ROOT, artefact, run_code

from sbench.build.servers import provide_servers
from sbench.build.shell import find_uv
from sbench.cli.__main__ import main
from sbench.design import prices
from sbench.files import ranges
from sbench.files.buckets import name_bucket
from sbench.files.ranges import Totals
from sbench.probe.program import Problem

WORDS = "import boto3, os, sys\ns3, bucket = boto3.client('s3'), os.environ['SBENCH_BUCKET']\n"
GET = "s3.get_object(Bucket=bucket, Key={!r}, Range='bytes={}')['Body'].read()"


def row(held: str, size: int, method: str = "GET", status: str = "206", query: str = "") -> dict:
    place = f"bytes {held}/1000" if held else ""
    return {"method": method, "content_range": place, "bytes": size, "status": status, "query": query}


def count(
    folder: Path, *words: object, code: str = "", cwd: Path | None = None, **options: object
) -> subprocess.CompletedProcess:
    """Run `sbench count` with these arguments, and a Python program if there is code."""
    # Otherwise the first call would build them, and say so.
    provide_servers(("versitygw", "toxiproxy"))
    command = [ROOT / "sbench", "count", *words, *(["--", sys.executable, "-c", WORDS + code] if code else [])]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd or folder, check=False, timeout=120, **options
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "my data ü"
    (folder / "sub #1").mkdir(parents=True)
    (folder / "a.bin").write_bytes(bytes(range(250)) * 4)
    (folder / "sub #1/b ü.bin").write_bytes(b"b" * 100)
    return folder


def test_repeated_and_distinct_bytes_are_those_of_sets():
    chance = random.Random(1)
    for _ in range(500):
        given = [(low := chance.randrange(50), low + chance.randrange(1, 12)) for _ in range(chance.randrange(1, 15))]
        covered, repeated = set(), 0
        for low, high in given:
            repeated += covered >= {*range(low, high)}
            covered |= {*range(low, high)}
        assert sum(ranges.find_repeated(given)) == repeated
        assert sum(high - low for low, high in ranges.merge_ranges(given)) == len(covered)


def test_repeated_bytes_of_very_many_requests_are_found_in_seconds_of_cpu():
    """In places that are in no order; a list in which each inserts its own would take minutes."""
    code = """
import random, resource
from sbench.files.ranges import find_repeated
places = list(range(300_000))
random.Random(1).shuffle(places)
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
print(sum(find_repeated([(2 * place, 2 * place + 1) for place in places + places[:5]])))
"""
    assert run_code(code).stdout == "5\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ({}, "127.0.0.1"),
        ({"NO_PROXY": "inside, 10.0.0.0/8"}, "inside,10.0.0.0/8,127.0.0.1"),
        ({"no_proxy": "a,127.0.0.1", "NO_PROXY": "b"}, "a,127.0.0.1,b"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_hosts_that_go_past_a_proxy_stay_so(data, before, after):
    code = "for name in ('no_proxy', 'NO_PROXY', 'http_proxy'): print(os.environ[name])"
    env = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9")
    done = count(data, data, code=code, env=env | proxies | before)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == [after, after, "http://127.0.0.1:9"]


def test_clients_go_past_a_proxy(data):
    code = """
import http.client, subprocess, urllib.error, urllib.request, requests
url = os.environ["SBENCH_URL"]
s3.get_object(Bucket=bucket, Key="a.bin")
print(requests.get(url + "/a.bin").status_code)
try:
    urllib.request.urlopen(url + "/a.bin")
except urllib.error.HTTPError as error:
    print(error.code)
subprocess.run(["curl", "--silent", "--output", os.devnull, "--write-out", "%{http_code}\\n", url + "/a.bin"])
"""
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:9")
    done = count(data, data, code=code, env=os.environ | proxies | {"NO_PROXY": "elsewhere"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["403"] * 3


@pytest.mark.parametrize(
    "request_, found",
    [
        (row("10-19", 10), (10, 20)),
        (row("10-19", 4), (10, 14)),  # aborted
        (row("", 100, status="200"), (0, 100)),
        (row("", 20), None),  # several ranges in one response
    ],
)
def test_the_range_of_a_response(request_: dict, found: tuple | None):
    assert ranges.find_range(request_) == found


@pytest.mark.parametrize(
    "request_, expected",
    [
        (row("10-19", 10), True),
        (row("10-19", 10, query="X-Amz-Date X-Amz-Signature versionId x-id"), True),
        (row("", 10, status="200", query="tagging"), False),
        (row("", 10, status="200", query="uploadId"), False),
        (row("10-19", 0), False),
        (row("", 10, status="503"), False),
        (row("", 10, "PUT", "200"), False),
    ],
)
def test_a_read_fetches_bytes_of_an_object(request_: dict, expected: bool):
    assert ranges.is_read(request_) is expected


def test_neighbouring_ranges_are_merged_up_to_a_gap():
    rows = [row(f"{low}-{low + 9}", 10) for low in (0, 10, 25, 100)]
    merged = {gap: ranges.summarise_object(rows, gap).runs for gap in (0, 4, 5, 64, 65)}
    assert merged == {0: 3, 4: 3, 5: 2, 64: 2, 65: 1}
    assert ranges.add_totals([]) == Totals(0, 0, 0, 0, 0)
    assert ranges.add_totals([Totals(1, 2, 3, 4, 5), Totals(1, 1, 1, 1, 1)]) == Totals(2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    "folder, name",
    [
        *(("data", "data"), ("My Data.zarr", "my-data-zarr"), ("ü", "data"), ("a", "a-data")),
        *(("x" * 80, "x" * 63), ("_a_b_", "a-b")),
    ],
)
def test_a_bucket_has_a_valid_name(tmp_path: Path, folder: str, name: str):
    assert name_bucket(tmp_path / folder) == name


def test_requests_bytes_and_connections_are_those_that_were_made(data: Path, tmp_path: Path):
    reads = itertools.product(("a.bin", "sub #1/b ü.bin"), ("0-49", "50-99", "0-49", "-20"))
    code = "\n".join(GET.format(*read) for read in reads)
    code += (
        "\nkeys = [found['Key'] for found in s3.list_objects_v2(Bucket=bucket)['Contents']]\nprint(keys)\nsys.exit(7)"
    )
    done = count(tmp_path, data, "--json", "counts.json", code=code)
    assert (done.returncode, done.stdout) == (7, "['a.bin', 'sub #1/b ü.bin']\n"), done.stderr
    made = json.loads((tmp_path / "counts.json").read_text())
    assert made["requests"] == {
        "GET": {"count": 8, "failed": 0, "bytes": 340},
        "LIST": {"count": 1, "failed": 0, "bytes": made["requests"]["LIST"]["bytes"]},
    }
    gets = {"requests": 8, "sent": 340, "distinct": 220, "repeated": 3, "runs": 2}
    assert (made["connections"], made["gets"]) == (1, gets)
    assert made["objects"]["my-data/sub #1/b ü.bin"] == {
        "requests": 4, "sent": 170, "distinct": 100, "repeated": 2, "runs": 1
    }  # fmt: skip
    assert "9 requests: 8 GET, 1 LIST; 1 connection" in done.stderr
    assert "340 B sent in 8 GETs, 220 B of them distinct, ×1.55" in done.stderr
    listed = yaml.safe_load((ROOT / "config/facts/prices.yaml").read_text(encoding="utf-8"))["stores"]["s3"][
        "us-east-1"
    ]
    usd = 8 * listed["requests"]["usd_per_1000_gets"] + listed["requests"]["usd_per_1000_lists"]
    outside = 1000 * 340 / 2**30 * listed["transfer"]["usd_per_gib_internet"]
    assert made["cost"]["requests_usd_per_1000_runs"] == pytest.approx(usd)
    assert made["cost"]["internet_usd_per_1000_runs"] == pytest.approx(outside)
    assert (
        f"1,000 such runs cost {usd:.3g} USD, as requests to S3 standard in us-east-1, and {outside:.3g}" in done.stderr
    )


def test_requests_of_child_processes_count(data: Path, tmp_path: Path):
    child = WORDS + GET.format("a.bin", "0-9")
    code = f"import subprocess\nfor _ in range(3): subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = count(tmp_path, data, code=code)
    assert "3 requests: 3 GET; 3 connections" in done.stderr, done.stderr


UPLOADS = """
s3.put_object(Bucket=bucket, Key="new/c.bin", Body=b"c")
s3.put_object(Bucket=bucket, Key="a.bin", Body=b"other", Metadata={"a": "b"})
s3.delete_object(Bucket=bucket, Key="sub #1/b ü.bin")
s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "a.bin"})
print(s3.get_object(Bucket=bucket, Key="a.bin")["Body"].read().decode(), "".join(os.listdir()))
"""


def describe(folder: Path) -> dict[str, tuple]:
    """Return what a folder has: contents, times and attributes of its files."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns, os.listxattr(path))
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_uploads_reach_a_scratch_copy_unless_they_are_asked_for(data: Path, tmp_path: Path):
    before = describe(data)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/work").touch()
    done = count(tmp_path, data, code=UPLOADS, cwd=tmp_path / "here")
    assert (done.returncode, done.stdout) == (0, "other work\n"), done.stderr
    assert "5 requests: 1 DELETE, 1 GET, 3 PUT" in done.stderr
    assert "failed" not in done.stderr
    assert describe(data) == before
    done = count(tmp_path, data, "--in-place", code=UPLOADS)
    assert done.returncode == 0, done.stderr
    assert {name: content for name, (content, *_) in describe(data).items()} == {
        **dict.fromkeys(("a.bin", "copy"), b"other"),
        "new/c.bin": b"c",
    }


def test_it_imports_no_large_package():
    large = "{'boto3', 'h5py', 'jsonschema', 'numpy', 'pandas', 'scipy', 'snakemake'}"
    code = "import sys; from sbench.cli.__main__ import main; status = main(['count', '--', 'true'])\n"
    code += f"print(status, 'sbench.files.buckets' in sys.modules, *({large} & sys.modules.keys()))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout == "0 True\n", done.stderr


def test_a_wrong_list_of_prices_is_one_line_before_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wrong = tmp_path / "prices.yaml"
    wrong.write_text("stores: {}\n", encoding="utf-8")
    monkeypatch.setattr(prices, "PRICES", wrong)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match=r"prices\.yaml: machines must be a mapping"):
        main(["count", "--", "touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()


def test_the_emulated_network_delays_each_request(data: Path, tmp_path: Path):
    code = "import time\nbegan = time.time()\n" + "\n".join([GET.format("a.bin", "0-9")] * 5)
    code += "\nprint(time.time() - began)"
    done = count(tmp_path, data, "--latency", "50", code=code)
    assert float(done.stdout) > 0.25


def test_without_requests_a_line_names_the_usual_cause(data: Path, tmp_path: Path):
    done = count(tmp_path, data, "--", "true")
    assert done.returncode == 0
    assert done.stderr.startswith("no request reached the server; the client may not read AWS_ENDPOINT_URL")
    assert count(tmp_path, data, "--require", "--", "true").returncode == 3
    done = count(tmp_path, "--require", "--", "false")
    assert (done.returncode, done.stderr) == (1, "the program ended with status 1\n")


def test_what_is_not_data_of_an_object_is_not_counted_as_such(data: Path, tmp_path: Path):
    (data / "a%20b").write_bytes(b"percent")
    (data / "a b").write_bytes(b"blank")
    code = """
import io
from boto3.s3.transfer import TransferConfig
s3.put_object_tagging(Bucket=bucket, Key='a.bin', Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}]})
s3.get_object_tagging(Bucket=bucket, Key='a.bin')
s3.get_bucket_location(Bucket=bucket), s3.list_buckets(), s3.list_objects_v2(Bucket=bucket, Prefix='a')
config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
s3.upload_fileobj(io.BytesIO(b'GET /x HTTP/1.1\\r\\n\\r\\n' * 600_000), bucket, 'large', Config=config)
print(*(s3.get_object(Bucket=bucket, Key=key)['Body'].read().decode() for key in ('a b', 'a%20b')))
"""
    done = count(tmp_path, data, "--json", "counts.json", code=code)
    assert (done.returncode, done.stdout) == (0, "blank percent\n"), done.stderr
    made = json.loads((tmp_path / "counts.json").read_text())
    assert {method: of["count"] for method, of in made["requests"].items()} == {
        "GET": 4,
        "LIST": 2,
        "POST": 2,
        "PUT": 4,
    }
    reads = {name: of["sent"] for name, of in made["objects"].items() if of["requests"]}
    assert reads == {"my-data/a b": 5, "my-data/a%20b": 7}
    assert "10.87 MiB uploaded" in done.stderr
    assert "server counted" not in done.stderr


def test_the_page_draws_each_request_of_an_object(data: Path, tmp_path: Path):
    (data / "<b>.bin").write_bytes(b"escaped")
    code = "\n".join(GET.format(*read) for read in (("a.bin", "0-99"), ("a.bin", "50-59"), ("<b>.bin", "0-6")))
    code += (
        "\ntry: s3.get_object(Bucket=bucket, Key='a.bin', Range='bytes=5000-')\nexcept s3.exceptions.ClientError: pass"
    )
    done = count(tmp_path, data, "--html", "page.html", code=code)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [part.partition("<")[0] for part in page.split("<h2>")[1:]] == [
        *("my-data/a.bin", "my-data/&lt;b&gt;.bin", "Objects")
    ]
    bars = re.findall(r'fill="(#\w+)".*?<title>GET ([^<]*?), \d+, ', page)
    blue, orange, red = "#0072b2", "#e69f00", "#d55e00"
    assert bars == [(blue, "0 to 100"), (orange, "50 to 60"), (red, "0 to 0"), (blue, "0 to 7")]
    assert "<b>" not in page
    assert "http" not in page.replace("http://127.0.0.1", "")


RAW = """
import socket, time, urllib.parse
def ask(*parts):
    for part in parts:
        connection.sendall(part)
        time.sleep(0.1)
    head, _, body = connection.makefile('rb').peek(1 << 20).partition(b'\\r\\n\\r\\n')
    print(head.split()[1].decode(), len(body))
connection = socket.create_connection(urllib.parse.urlsplit(os.environ['SBENCH_URL']).netloc.split(':'))
head = f'GET /{bucket}/a.bin HTTP/1.1\\r\\nHost: x\\r\\n'.encode()
"""


def test_a_head_in_two_pieces_and_ranges_as_the_server_answers_them(data: Path, tmp_path: Path):
    asked = ["head + b'\\r\\n'", "head[:9], head[9:] + b'Range: bytes=-10\\r\\n\\r\\n'"]
    asked.append("head + b'Range: bytes=5-2\\r\\n\\r\\n'")
    code = RAW + "\n".join(f"ask({parts})" for parts in asked)
    done = count(tmp_path, "--anonymous", data, "--json", "counts.json", code=code)
    assert done.stdout.split()[::2] == ["200", "206", "200"], done.stderr
    gets = json.loads((tmp_path / "counts.json").read_text())["gets"]
    assert gets == {"requests": 3, "sent": 2010, "distinct": 1000, "repeated": 2, "runs": 1}


def test_of_an_aborted_upload_the_bytes_that_arrived_count(data: Path, tmp_path: Path):
    code = RAW + "connection.sendall(head.replace(b'GET', b'PUT') + b'Content-Length: 1000\\r\\n\\r\\n' + bytes(10))"
    done = count(tmp_path, data, code=code)
    assert done.stderr.startswith("1 request: 1 PUT; 1 failed; 1 connection"), done.stderr
    assert "\n10 B uploaded\n" in done.stderr


def test_a_client_that_has_sent_all_still_gets_the_answer(data: Path, tmp_path: Path):
    code = RAW + (
        "connection.sendall(head + b'Connection: close\\r\\n\\r\\n')\n"
        "connection.shutdown(socket.SHUT_WR)\n"
        "time.sleep(0.2)\n"
        "print(len(b''.join(iter(lambda: connection.recv(9000), b'')).partition(b'\\r\\n\\r\\n')[2]))"
    )
    done = count(tmp_path, data, "--anonymous", code=code)
    assert done.stdout == "1000\n", done.stdout + done.stderr
    assert done.stderr.startswith("1 request: 1 GET; 1 connection"), done.stderr


def test_links_pipes_and_loops_do_not_stop_or_hang_it(data: Path, tmp_path: Path):
    os.mkfifo(data / "pipe")
    (data / "broken").symlink_to("nowhere")
    (data / "itself").symlink_to("itself")
    (data / "zero").symlink_to("/dev/zero")
    (data / "up").symlink_to("..")
    (data / "linked").symlink_to("a.bin")
    (tmp_path / "tmp").mkdir()
    code = "print([found['Key'] for found in s3.list_objects_v2(Bucket=bucket)['Contents']])"
    done = count(tmp_path, data, code=code)
    assert done.stdout == "['a.bin', 'linked', 'sub #1/b ü.bin']\n", done.stderr
    assert f"4 files of {data} left out, neither file nor folder, such as {data}/broken" in done.stderr


def test_a_signal_reaches_the_program_and_the_scratch_copy_is_removed(data: Path, tmp_path: Path):
    (tmp_path / "tmp").mkdir()
    code = "import time\nprint(1, flush=True)\ntime.sleep(60)"
    command = [
        ROOT / "sbench",
        "count",
        data,
        "--",
        sys.executable,
        "-c",
        WORDS + GET.format("a.bin", "0-9") + "\n" + code,
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")}, **pipes) as process:
        assert process.stdout.readline() == "1\n"
        assert list((tmp_path / "tmp").iterdir())
        process.terminate()
        _, words = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert words.startswith("1 request: 1 GET; 1 connection")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_users_settings_do_not_lead_the_program_elsewhere(data: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "absent")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", "http://127.0.0.1:1")
    hosts = "sorted({*os.environ['NO_PROXY'].split(',')} & {'127.0.0.1', 'example.org'})"
    code = GET.format("a.bin", "0-9") + f"\nprint({hosts}, 'AWS_PROFILE' in os.environ)"
    code += "\nprint(os.environ['FSSPEC_S3_ENDPOINT_URL'] == os.environ['AWS_ENDPOINT_URL'])"
    done = count(tmp_path, "--anonymous", data, code=code)
    assert done.stdout == "['127.0.0.1', 'example.org'] False\nTrue\n", done.stderr


def test_the_program_has_the_open_files_and_the_input_of_its_caller(data: Path, tmp_path: Path):
    command = f"echo in | {ROOT}/sbench count {shlex.quote(str(data))} -- sh -c 'cat; cat /dev/fd/9' 9<<<descriptor"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "in\ndescriptor\n", done.stderr


# Programs of each client that name no endpoint, and the requests that they make.
CLIENTS = {
    "s3fs": ("import s3fs\nprint(len(s3fs.S3FileSystem().cat(f'{bucket}/a.bin')))", "2 requests: 1 GET, 1 HEAD"),
    "s3fs with its endpoint": (
        "import s3fs\nsystem = s3fs.S3FileSystem(client_kwargs={'endpoint_url': os.environ['AWS_ENDPOINT_URL']})\n"
        "print(len(system.cat(f'{bucket}/a.bin')))",
        "2 requests: 1 GET, 1 HEAD",
    ),
    "fsspec": (
        "import fsspec\nprint(len(fsspec.open(f's3://{bucket}/a.bin').open().read()))",
        "2 requests: 1 GET, 1 HEAD",
    ),
    "obstore": (
        "import obstore\nfrom obstore.store import S3Store\nprint(len(obstore.get(S3Store(bucket), 'a.bin').bytes()))",
        "1 request: 1 GET",
    ),
    "zarr": (
        "import zarr\narray = zarr.create_array(f's3://{bucket}/z', shape=(8,), chunks=(4,), dtype='i1')\n"
        "array[:] = 1\nprint(1000 * int(array[1]))",
        " PUT; ",
    ),
    "pyarrow": (
        "from pyarrow.fs import FileSystem\nsystem, path = FileSystem.from_uri(f's3://{bucket}/a.bin')\n"
        "print(len(system.open_input_file(path).readall()))",
        " 1 GET, ",
    ),
    "remfile": (
        "import remfile\nprint(len(remfile.File(os.environ['SBENCH_URL'] + '/a.bin').read(1000)))",
        " GET; ",
    ),
    "ros3": (
        "import h5py\nprint(h5py.File(f's3://{bucket}/a.h5', driver='ros3')['x'].size)",
        "2 requests: 1 GET, 1 HEAD",
    ),
    "h5coro": (
        "from h5coro import h5coro, s3driver\nfile = h5coro.H5Coro(f'{bucket}/a.h5', s3driver.S3Driver)\n"
        "print(file.readDatasets(['x'], block=True)['x'].size)",
        "2 requests: 2 GET; 1 connection",
    ),
    "icechunk": (
        "import icechunk\nplace = icechunk.s3_storage(bucket=bucket, prefix='ice', from_env=True)\n"
        "icechunk.Repository.create(place)\nprint(1000)",
        " PUT; ",
    ),
    "zarr's ObjectStore": (
        "import zarr\nfrom obstore.store import S3Store\nstore = zarr.storage.ObjectStore(S3Store(bucket))\n"
        "array = zarr.create_array(store, name='z', shape=(8,), chunks=(4,), dtype='i1')\n"
        "array[:] = 1\nprint(1000 * int(array[1]))",
        " PUT; ",
    ),
    "xarray": (
        "import xarray\nopened = xarray.open_dataset(f's3://{bucket}/a.h5', engine='h5netcdf', phony_dims='sort')\n"
        "print(opened['x'].size)",
        "2 requests: 1 GET, 1 HEAD",
    ),
}
TLS = pytest.mark.parametrize("words", [(), ("--tls",)], ids=["http", "https"])


def write_array(data: Path) -> None:
    with h5py.File(data / "a.h5", "w") as file:
        file["x"] = np.zeros((4, 250))


@TLS
@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_finds_the_server_by_its_environment(
    client: str, words: tuple, data: Path, tmp_path: Path, with_readers: Path
):
    write_array(data)
    python = artefact(with_readers / "readers.json")["python"]
    code, line = CLIENTS[client]
    # Threads of obstore and icechunk abort an interpreter that ends just after a call (pyo3-async-runtimes, issue 40).
    program = f"import os, time\nbucket = os.environ['SBENCH_BUCKET']\n{code}\ntime.sleep(0.1)"
    done = count(tmp_path, data, "--anonymous", *words, "--", python, "-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, "1000"), done.stderr
    assert line in done.stderr.splitlines()[0]


@pytest.fixture(scope="session")
def clients(once: Callable) -> Path:
    """Return the folder with the programs of an environment with the clients of envs/clients.lock."""

    def install(folder: Path) -> None:
        fill = ("pip", "sync", "--quiet", "--require-hashes", "--python", folder / "env/bin/python")
        for command in (("venv", "--quiet", folder / "env"), (*fill, ROOT / "envs/clients.lock")):
            subprocess.run([find_uv(), *command], check=True)

    return once("clients", install) / "env/bin"


# Commands of each client, and texts in their output.
COMMANDS = {
    "AWS CLI": (["aws", "s3", "cp", "s3://my-data/a.bin", "copy.bin"], "download: s3://my-data/a.bin"),
    "rasterio": (["python", "-c", "import rasterio\nprint(rasterio.open('s3://my-data/a.h5').shape)"], "(4, 250)"),
    "tensorstore": (
        [
            *("python", "-c"),
            "import os, tensorstore\nspec = {'driver': 's3', 'bucket': 'my-data', 'path': ''}\n"
            "store = tensorstore.KvStore.open(spec | {'endpoint': os.environ['AWS_ENDPOINT_URL']}).result()\n"
            "print(len(store['a.bin']))",
        ],
        "1000",
    ),
}


@TLS
@pytest.mark.parametrize("client", COMMANDS)
def test_other_clients_find_the_server_with_keys(client: str, words: tuple, data: Path, tmp_path: Path, clients: Path):
    write_array(data)
    (program, *arguments), output = COMMANDS[client]
    done = count(tmp_path, data, *words, "--", clients / program, *arguments)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
    assert " 1 GET" in done.stderr


@TLS
@pytest.mark.skipif(not shutil.which("gdalinfo"), reason="there is no gdalinfo: apt install gdal-bin")
def test_gdal_finds_the_server_by_its_environment(words: tuple, data: Path, tmp_path: Path):
    write_array(data)
    done = count(tmp_path, data, *words, "--", "gdalinfo", 'HDF5:"/vsis3/my-data/a.h5"://x')
    assert "Size is 250, 4" in done.stdout, done.stderr
    assert "2 requests: 1 GET, 1 LIST; 1 connection" in done.stderr


def test_over_tls_the_same_requests_are_counted(data: Path, tmp_path: Path, monkeypatch):
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("of this machine")
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    code = "\n".join(GET.format("a.bin", held) for held in ("0-49", "50-99", "0-49"))
    code += "\nfrom pathlib import Path\nprint(s3.meta.endpoint_url, Path(os.environ['SSL_CERT_FILE']).read_text())"
    made = {}
    for scheme, words in (("http", ()), ("https", ("--tls",))):
        done = count(tmp_path, data, *words, "--json", "counts.json", code=code)
        assert done.stdout.startswith(f"{scheme}://127.0.0.1:"), done.stderr
        assert "of this machine" in done.stdout
        made[scheme] = json.loads((tmp_path / "counts.json").read_text())
    assert ["BEGIN CERTIFICATE" in done.stdout, "PRIVATE KEY" in done.stdout] == [True, False]
    assert [counts["handshakes"] for counts in made.values()] == [{"all": 0, "failed": 0}, {"all": 1, "failed": 0}]
    for key in ("requests", "connections", "gets", "objects"):
        assert made["http"][key] == made["https"][key]


@pytest.mark.parametrize("url", ["os.environ['SBENCH_URL']", "os.environ['SBENCH_URL'].replace('https', 'http')"])
def test_who_does_not_trust_the_authority_is_named_as_the_cause(url: str, data: Path, tmp_path: Path):
    code = (
        f"import ssl, urllib.request\nnobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
        f"try: urllib.request.urlopen({url}, context=nobody)\nexcept OSError: pass"
    )
    done = count(tmp_path, data, "--tls", "--anonymous", code=code)
    assert done.stderr.startswith("1 TLS connection failed; the client may not read the variables with the file of")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [("papermill",), ("jupyter", "nbconvert", "--execute", "--to=notebook", "--output=out.ipynb")],
    ids=["papermill", "nbconvert"],
)
def test_requests_of_a_notebook_count(command: tuple, data: Path, tmp_path: Path):
    program, *options = command
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(WORDS + GET.format("a.bin", f"{low}-{low + 9}")) for low in (0, 10)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "in.ipynb")
    outputs = ["out.ipynb"] if program == "papermill" else []
    done = count(tmp_path, data, "--", Path(sys.executable).with_name(program), *options, "in.ipynb", *outputs)
    assert done.returncode == 0, done.stderr
    assert "2 requests: 2 GET; 2 connections\n20 B sent in 2 GETs" in done.stderr


def test_without_the_option_a_request_needs_the_key(data: Path, tmp_path: Path):
    code = (
        "import urllib.request, urllib.error\n"
        "try: urllib.request.urlopen(os.environ['SBENCH_URL'] + '/a.bin')\n"
        "except urllib.error.HTTPError as error: print(error.code)"
    )
    assert count(tmp_path, data, code=code).stdout == "403\n"


@pytest.mark.parametrize(
    "words, line",
    [
        (["absent", "--", "true"], "absent must be a folder, which is served as a bucket; name an existing folder"),
        (["--", "no-such-command"], "the command no-such-command was not found in PATH"),
        (["--", "./absent"], "the command ./absent cannot be started: No such file or directory"),
        ([], "count needs a program to run; write it after --, such as: sbench count data -- python script.py"),
        (["--bucket", "A=.", "--", "true"], "--bucket must be NAME=FOLDER, with a name of 3 to 63"),
        (["--bucket", "same=.", "--bucket", "same=.", "--", "true"], "two folders have the bucket name same"),
        (["--latency=-1", "--", "true"], "--latency must be between 0 and 60,000 ms (got -1)"),
        (["--latency=0.5", "--", "true"], "argument --latency: invalid int value: '0.5'"),
        (["--rate=nan", "--", "true"], "--rate must be between 0.01 and 1,000,000 MiB/s (got nan)"),
        (["--bucket", "own=", "--", "true"], "--bucket must be NAME=FOLDER, with a name of 3 to 63"),
        (["--top=-1", "--", "true"], "--top must be 0 or more (got -1)"),
        (["--json", "absent/a.json", "--", "true"], "absent does not exist, or is not writable"),
        (["--metrics", "a.csv", "--", "true"], "--metrics must name a file that ends in .json or .txt (got a.csv)"),
        (["--summary", "absent/a.md", "--", "true"], "absent does not exist, or is not writable"),
        (["--json", "/dev/null", "--", "true"], "/dev/null must be a regular file; name another file"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: list[str], line: str):
    done = count(tmp_path, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert line in done.stderr
