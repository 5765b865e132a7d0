"""The configurations of the published study's matrix, as far as they can be tried without AWS: scaled down."""

import math
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from outside import serving, with_keys
from small_runs import launch, records, write

from sbench.build.cache import COMPLETE, get_cache_folder
from sbench.design import config as configuration
from sbench.design import matrix
from sbench.probe import dask_workers
from sbench.studies.shots import signal_table

pytestmark = pytest.mark.late

FILES = {"ec2-s3.csv": ("1.14.6", "s3"), "ec2-s3-libaws.csv": ("2.0.0", "s3"), "ec2-local.csv": ("1.14.6", "local")}
CELL = ["obj-type", "pb-size", "num-workers"]


@pytest.fixture
def outside(tmp_path: Path, environments: Path):
    """Return the URL of an S3 service with a bucket that the configurations are pointed at."""
    with serving(tmp_path, environments) as url:
        yield url


def scaled(name: str, url: str | None, **study: object) -> dict:
    """Return a shipped configuration with less data, fewer workers and another bucket, of libraries that are built.

    The bucket is on the server at `url`; None: on the workflow's own.
    """
    config = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text(encoding="utf-8"))
    versions = {library: spec["hdf5"] for library, spec in config["libraries"].items()}
    built = [
        library
        for library, version in versions.items()
        if version in ("1.14.6", "2.0.0") or any(get_cache_folder().glob(f"source-{version}-*/{COMPLETE}"))
    ]
    shots = config["studies"]["shots"]
    for mapping in shots["matrix"]:
        mapping["library"] = [library for library in mapping["library"] if library in built]
        mapping["workers"] = [1, 3] if 1 in mapping["workers"] else [3]
    shots["matrix"] = [mapping for mapping in shots["matrix"] if mapping["library"]]
    shots |= {"data": {"shots": 4, "signals": 4}, "control_cells": 0, **study}
    config["stores"]["s3"] |= {"bucket": "elsewhere", **({"endpoint": url} if url else {"server": "embedded"})}
    once = {name: value for name, value in config.items() if name not in ("most_repeats", "budget_s")}
    return once | {"repeats": 1}


def rows(count: int, workers: int) -> int:
    """Return how many tasks `count` items are cut into, all of the same size but the last."""
    return math.ceil(count / math.ceil(count / workers))


def test_the_published_configuration_has_the_published_cells(published):
    config = configuration.load_config(ROOT / "config/ec2-published.yaml")
    cells = Counter()
    for cell in matrix.expand_matrix(config, "shots")[0]:
        level = cell.levels
        size = 0 if level["page_buffer"] == "0" else 2**28
        cells[level["library"][5:], level["store"], level["access"], size, int(level["workers"])] += 1
    was = Counter()
    for name, place in FILES.items():
        table = pd.read_csv(published / "ros3-shots" / name)
        was.update((*place, *own) for own in table[CELL].drop_duplicates().itertuples(index=False, name=None))
    assert cells == was
    assert (config["repeats"], config["studies"]["shots"]["read_shots"]) == (1, 1)


@pytest.mark.parametrize("name", FILES)
def test_objects_are_cut_into_as_many_tasks_as_published(published, name):
    """Counted on the full data, which are the published ones in how many files have each signal."""
    table = pd.read_csv(published / "ros3-shots" / name)
    files = {signal.name: signal.files for signal in signal_table.load_signals().values()}
    assert sum(files.values()) == 30_024
    for (access, _, workers), own in table.groupby(CELL):
        if access == "signals":
            tasks = {one: len(dask_workers.split_into_batches(range(count), workers)) for one, count in files.items()}
            assert own["obj-id"].value_counts().to_dict() == tasks
        else:
            # A shot lacks up to five signals, and which one was read is not that of a run of one's own.
            assert len(own) in {
                len(dask_workers.split_into_batches(range(61 - lacking), workers)) for lacking in range(6)
            }


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "elsewhere"])
def test_a_scaled_copy_of_the_published_matrix_has_the_published_rows(clone, outside, embedded):
    write(clone, scaled("ec2-published", None if embedded else outside))
    done = launch(clone, "--yes", "--", "--until", "measure", env=with_keys())
    assert done.returncode == 0, done.stderr
    measured = records(clone, "ec2-published").values()
    assert [record["reasons"] for record in measured if not record["valid"]] == []
    assert len(measured) == 12
    (manifest,) = {path.read_text("utf-8") for path in (clone / "results/ec2-published/data").glob("*/manifest.json")}
    objects = yaml.safe_load(manifest)["objects"]
    for record in measured:
        access, workers = record["cell"]["access"], int(record["cell"]["workers"])
        by_object = Counter(sample["obj-id"] for sample in record["samples"])
        # One shot; all signals of all files.
        assert len(by_object) == (1 if access == "shots" else 4)
        for name, count in by_object.items():
            held = len(objects[name]) if access == "shots" else sum(name in own for own in objects.values())
            assert count == rows(held, workers), (name, held, workers)
        if record["cell"]["store"] == "s3":
            requests = sum(record["requests"].get(method, {}).get("count", 0) for method in ("HEAD", "GET"))
            opens = sum(sample["opens"] for sample in record["samples"])
            assert opens * 2 <= requests <= opens * 3 if embedded else record["cache"]["state"] == "elsewhere"


def test_a_scaled_copy_of_the_larger_matrix_is_measured_on_an_endpoint_elsewhere(clone, outside):
    config = scaled("ec2", outside, read_signals=2)
    newest = list(config["libraries"])[-1]
    if newest not in config["studies"]["shots"]["matrix"][0]["library"]:
        newest = "hdf5-2.0.0"
    only = (f"library={newest}", "workers=3")
    write(clone, config)
    done = launch(clone, "--yes", "--only", *only, "--", "--until", "measure", env=with_keys())
    assert done.returncode == 0, done.stderr
    measured = records(clone, "ec2").values()
    lost = re.compile("the page cache lost pages")
    assert [
        record["reasons"] for record in measured if not record["valid"] and not lost.match(record["reasons"][0])
    ] == []
    settings = {
        (record["cell"]["store"], record["cell"]["access"], record["cell"]["page_buffer"]) for record in measured
    }
    assert len(settings) == 2 * 3 + 2 * 2
    block = {record["cell"].get("read_cache", "default"): record["effective"].get("read_cache") for record in measured}
    if newest == "hdf5-2.2.0":
        assert block.keys() == {"default", "none", "block-1MiB", "block-4MiB"}
        assert all(effective == level for level, effective in block.items() if level != "default")
