"""Counts equal the truth: what eleven clients know of their requests, the server's statistics, and forecasts."""

import json
import math
from pathlib import Path

import h5py
import pytest
from conftest import artefact, sbench

from sbench.drivers import ROS3_FIRST_BYTES
from sbench.files import forecast
from sbench.files.forecast import Question
from sbench.studies.shots import accesses, arms, selection
from tests.helpers import request_truth as truth

pytestmark = pytest.mark.late


@pytest.fixture(scope="module")
def python(with_readers: Path) -> str:
    return artefact(with_readers / "readers.json")["python"]


@pytest.mark.parametrize("window", truth.WINDOWS)
def test_counts_are_those_of_the_clients_and_of_the_server(tmp_path: Path, python: str, window: str):
    clients, network = truth.WINDOWS[window]
    compared = truth.compare_clients(tmp_path, python, dict.fromkeys(clients, 2), network)
    assert compared.differences == []
    assert compared.requests >= 10 * len(clients)
    assert (compared.injected > 0) is (window == "retried")


# A dataset's shape and chunks, what is read of it, and how many chunks have a part of that.
CASES = {
    "an image": ((20_000, 256, 450), (1000, 16, 16), "[0]", math.ceil(256 / 16) * math.ceil(450 / 16)),
    "a pixel over time": ((20_000, 256, 450), (1000, 16, 16), "[:, 0, 0]", 20),
    "chunks of an image": ((20_000, 256, 450), (1, 256, 450), "[7:57]", 50),
    "a box across borders": ((5000, 3000), (100, 100), "[50:250, 80:310]", 3 * 4),
    "every hundredth row": ((5000, 3000), (50, 300), "[::100, 0:600]", 50 * 2),
    "every tenth chunk": ((5000, 3000), (250, 300), "1/10", 20),
    "the end of a series": ((1_000_000,), (1000,), "[-5500:]", 6),
}
READ = """
import h5py, os, s3fs, sys
sys.path.insert(0, "scripts")
from sbench.studies.shots import selection
driver, level = sys.argv[1:]
place, options = os.environ["SBENCH_BUCKET"] + "/grid.h5", {"rdcc_nbytes": 8 * 2**20}
if driver == "ros3":
    file = h5py.File(f"s3://{place}", driver="ros3", **options)
else:
    file = h5py.File(s3fs.S3FileSystem().open(place, cache_type="blockcache", block_size=2**20), **options)
values = file["x"]
for place in selection.iter_places(level, values.shape, values.chunks):
    values[selection.convert_to_slices(place)]
file.close()
"""


def write_grid(path: Path, shape: tuple, chunks: tuple, level: str) -> set[str]:
    """Write the chunks of a dataset that are read, beyond the bytes that ROS3 fetches at the open; return their ranges.

    Other chunks are not written, so that the file takes little space.
    """
    with h5py.File(path, "w") as file:
        filler = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        filler.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        filler.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"filler", h5py.h5t.NATIVE_INT8, h5py.h5s.create_simple((ROS3_FIRST_BYTES,)), filler)
        values = file.create_dataset("x", shape, "i2", chunks=chunks, compression="gzip")
        for place in selection.iter_places(level, shape, chunks):
            values[selection.convert_to_slices(place)] = 1
        infos = [values.id.get_chunk_info(number) for number in range(values.id.get_num_chunks())]
        return {f"bytes={info.byte_offset}-{info.byte_offset + info.size - 1}" for info in infos}


@pytest.mark.parametrize("shape, chunks, level, number", CASES.values(), ids=CASES)
def test_a_forecast_of_a_chunk_grid_is_what_is_counted(tmp_path: Path, python: str, shape, chunks, level, number):
    """All requests and bytes are equal, of metadata too, and each chunk is a request of ROS3."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/grid.h5"
    ranges = write_grid(path, shape, chunks, level)
    assert len(ranges) == number
    ways = [arms.Arm("original", "ros3"), arms.Arm("original", "s3fs", read_cache="blockcache-1MiB")]
    question = Question(ways, [path], ["/x"])
    (forecasts,) = forecast.compute_forecasts([question], python, accesses.parse_accesses(level), {"latency_ms": 20})
    for arm in forecasts:
        words = ("--json", tmp_path / "counts.json", "--", python, "-c", READ, arm.driver, level)
        done = sbench("count", tmp_path / "data", *words)
        assert done.returncode == 0, done.stderr
        counts = json.loads((tmp_path / "counts.json").read_text())
        rows = counts["exchanges"]
        assert (len(rows), counts["gets"]["sent"]) == (arm.requests[level], arm.bytes[level])
        if arm.driver == "ros3":
            assert sum(row["range"] in ranges for row in rows) == number
