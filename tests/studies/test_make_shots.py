import csv
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ROOT

from sbench.probe.program import Problem, build_command
from sbench.studies.shots.checksums import compute_checksum
from sbench.studies.shots.files import list_extents
from sbench.studies.shots.inputs import find_sources
from sbench.studies.shots.make import main, validate_files
from sbench.studies.shots.shot_files import SMALL, describe_files, list_parts
from sbench.studies.shots.signal_table import load_signals, select_signals
from sbench.studies.shots.signals import (
    Settings,
    compute_signal_values,
    plan_shots,
    sort_pairs,
)

pytestmark = pytest.mark.thorough

STUDY = Settings("single-shot", shots=500, signals=61, page_size=8_000_000, paged=True, deflate=4, seed=1)
FEW = replace(STUDY, shots=2, signals=8)


def make(folder: Path, settings: Settings) -> dict:
    out = folder / "manifest.json"
    assert main(["--dataset", "d", "--settings", json.dumps(asdict(settings)), "--out", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict]]:
    folders = {layout: tmp_path_factory.mktemp(layout) for layout in ("single-shot", "shot-major", "signal-major")}
    settings = replace(STUDY, shots=2)
    return {layout: (path, make(path, replace(settings, layout=layout))) for layout, path in folders.items()}


def reads_of(shots: dict) -> list[int]:
    return [sum(1 + len(axes) for axes in signals.values()) for signals in shots.values()]


# The plan.


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_500_shots_hold_exactly_what_was_published(seed: int):
    shots = plan_shots(replace(STUDY, seed=seed))
    files = Counter(signal for signals in shots.values() for signal in signals)
    assert len(shots) == 500
    assert sum(files.values()) == 30_024
    assert sum(reads_of(shots)) == 61_475
    assert (min(reads_of(shots)), max(reads_of(shots))) == (115, 125)
    assert files["lh_netpow"] == 82
    assert sum(len(signals.get("lh_netpow", ())) for signals in shots.values()) == 60
    full = Counter(len(signal.axes) for signal in load_signals().values() if signal.name != "lh_netpow")
    assert full == {0: 5, 2: 8, 1: 47}


def test_each_signal_has_the_published_files_and_data_set_reads(published: Path):
    shots = plan_shots(STUDY).values()
    with open(published / "ros3-shots" / "derived_per_signal.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["obj-id"] for row in rows) == list(load_signals())
    for row in rows:
        axes = [signals[row["obj-id"]] for signals in shots if row["obj-id"] in signals]
        assert (len(axes), len(axes) + sum(map(len, axes))) == (int(row["files"]), int(row["dsets"])), row


@pytest.mark.parametrize("count", [1, 2, 12, 37, 250, 999])
def test_any_number_of_shots_keeps_the_proportions(count: int):
    shots = plan_shots(replace(STUDY, shots=count))
    files = Counter(signal for signals in shots.values() for signal in signals)
    assert len(shots) == count
    assert all(abs(files[signal.name] - signal.files * count / 500) < 1 for signal in load_signals().values())
    assert all(115 <= reads <= 125 for reads in reads_of(shots))


def test_the_seed_sets_shots_and_what_they_miss():
    first, again, other = plan_shots(STUDY), plan_shots(STUDY), plan_shots(replace(STUDY, seed=2))
    assert first == again
    assert first.keys().isdisjoint(other)
    assert [len(signals) for signals in first.values()] != [len(signals) for signals in other.values()]
    assert all(len(shot) == 10 and shot.startswith("116") and 1 <= int(shot[-3:]) <= 30 for shot in first)


def test_fewer_signals_keep_small_and_large_ones():
    by_size = sorted(load_signals().values(), key=lambda signal: signal.nbytes)
    for count in (2, 5, 60, 61):
        sizes = [load_signals()[name].nbytes for name in select_signals(count)]
        assert len(set(select_signals(count))) == count
        assert (min(sizes), max(sizes)) == (by_size[0].nbytes, by_size[-1].nbytes)


# The files.


def test_a_shot_file_is_as_published(made):
    folder, manifest = made["single-shot"]
    assert [file["bytes"] for file in manifest["files"]] == [16_000_000] * 2
    assert [file["name"] for file in manifest["files"]] == [f"{shot}.h5" for shot in manifest["shots"]]
    for file in manifest["files"]:
        assert (folder / file["name"]).stat().st_size == 16_000_000
        assert hashlib.sha256((folder / file["name"]).read_bytes()).hexdigest() == file["sha256"]
    assert manifest["layout"] == {
        "layout": "single-shot",
        "paged": True,
        "page_size": 8_000_000,
        "deflate": 4,
        "files": 2,
        "shots": 2,
        "signals": 60,  # two shots are too few for lh_netpow
        "pairs": sum(map(len, manifest["objects"].values())),
        "dataset_reads": sum(reads_of(plan_shots(replace(STUDY, shots=2)))),
    }
    with h5py.File(folder / manifest["files"][0]["name"]) as file:
        shot = manifest["shots"][0]
        stored, seen = {}, set()
        for name, signal in file[f"/shots/{shot}/signals"].items():
            assert signal.attrs["shot"] == int(shot)
            for part in list_parts(signal):
                assert bool(part.chunks) == (part.nbytes > SMALL) == (part.compression_opts == 4), part
            stored[name] = sum(part.id.get_storage_size() for part in list_parts(signal) if part.name not in seen)
            seen |= {part.name for part in list_parts(signal)}
        total = sum(stored.values())
        assert 5_000_000 < total < 8_000_000
        assert sum(sorted(stored.values())[-4:]) > 0.9 * total


def test_scales_are_shared_by_the_md5_of_their_values(made):
    folder, manifest = made["single-shot"]
    with h5py.File(folder / manifest["files"][0]["name"]) as file:
        group = file["/shots"][manifest["shots"][0]]
        attached = [scale for signal in group["signals"].values() for scale in list_parts(signal)[1:]]
        kept = [name for name in group if name != "signals"]
        assert len(attached) >= 60
        assert len(kept) < 25
        assert {scale.name.rsplit("/", 1)[1] for scale in attached} == set(kept)
        for name in kept:
            assert group[name].is_scale
            assert name == "scale_" + hashlib.md5(group[name][()].tobytes()).hexdigest()
        aminor, area = (group[f"signals/aeqdsk_{name}"].dims[0][0] for name in ("aminor", "area"))
        assert h5py.h5o.get_info(aminor.id).addr == h5py.h5o.get_info(area.id).addr


def test_every_layout_holds_the_same_values(made):
    facts = {}
    for layout, (_, manifest) in made.items():
        facts[layout] = {
            (shot, signal): part["datasets"]
            for shot, signals in manifest["objects"].items()
            for signal, part in signals.items()
        }
    assert facts["single-shot"] == facts["shot-major"] == facts["signal-major"]


def assert_ascending(file: h5py.File, layout: str, shots: dict) -> None:
    seen, places = set(), []
    for shot, signal in sort_pairs(layout, shots):
        for part in list_parts(file[f"/shots/{shot}/signals/{signal}"]):
            if part.name not in seen:
                seen.add(part.name)
                pieces = list_extents(part)
                places += [pieces[0][0], pieces[-1][1]]
    assert all(before <= after for before, after in pairwise(places))


@pytest.mark.parametrize("layout", ["shot-major", "signal-major"])
def test_data_lie_in_the_order_of_the_layout(made, layout: str):
    folder, manifest = made[layout]
    assert manifest["layout"]["layout"] == layout
    assert manifest["files"][0]["bytes"] == 24_000_000
    with h5py.File(folder / "shots.h5") as file:
        assert list(file) == ["shots"]
        assert_ascending(file, layout, manifest["objects"])


@pytest.mark.parametrize("layout", ["shot-major", "signal-major"])
@pytest.mark.parametrize("change", [{"paged": False}, {"page_size": 4096}, {"page_size": 100_000}, {"deflate": 0}])
def test_the_order_holds_without_pages_and_for_any_page_size(tmp_path: Path, layout: str, change: dict):
    settings = replace(FEW, layout=layout, **change)
    manifest = make(tmp_path, settings)
    with h5py.File(tmp_path / "shots.h5") as file:
        strategy = file.id.get_create_plist().get_file_space_strategy()[0]
        assert (strategy == h5py.h5f.FSPACE_STRATEGY_PAGE) == settings.paged
        assert_ascending(file, layout, manifest["objects"])
    assert manifest["layout"]["paged"] == settings.paged
    assert manifest["layout"]["page_size"] == (settings.page_size if settings.paged else None)
    assert manifest["layout"]["deflate"] == settings.deflate


def test_another_process_writes_identical_files(tmp_path: Path):
    manifest = make(tmp_path / "here", replace(FEW, layout="shot-major", page_size=1_000_000))
    out = tmp_path / "manifest.json"
    command = build_command("sbench.studies.shots.make", "--dataset", "d", "--out", out)
    subprocess.run([*command, "--settings", json.dumps(manifest["settings"])], check=True, cwd=ROOT)
    assert json.loads(out.read_text()) == manifest


def test_values_look_digitised_and_differ_between_shots():
    current = load_signals()["mag_ip"]
    values = compute_signal_values(1, "1160825001", current)
    counts = values / (current.amplitude / 2048)
    assert np.abs(counts - counts.round()).max() < 1e-3
    assert 1000 < np.abs(counts).max() < 2048
    assert not np.array_equal(values, compute_signal_values(1, "1160825002", current))
    # The same on every machine and with every numpy: records made elsewhere carry this checksum.
    assert compute_checksum(values) == (64_000, 1636403509)


# Labels, leftovers and mistakes.


@pytest.mark.rule(3)
@pytest.mark.parametrize(
    "change", [{"layout": "signal-major"}, {"page_size": 4096}, {"paged": False}, {"deflate": 5}, {"shots": 4}]
)
def test_a_mislabelled_file_is_refused(made, change: dict):
    folder, _ = made["shot-major"]
    settings = replace(STUDY, layout="shot-major", shots=2)
    with pytest.raises(Problem, match=f"^{next(iter(change))} must be "):
        validate_files(
            replace(settings, **change),
            plan_shots(settings),
            {},
            describe_files(find_sources(str(folder / "shots.h5"))),
        )


def test_what_an_interrupted_run_left_is_replaced(tmp_path: Path):
    make(tmp_path, replace(FEW, signals=2, seed=2))
    (tmp_path / ".1160825001.h5.part").write_bytes(b"half")
    manifest = make(tmp_path, FEW)
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *(f["name"] for f in manifest["files"])}


def test_files_of_others_are_left_alone(tmp_path: Path):
    (tmp_path / "mine.h5").write_bytes(b"precious")
    with pytest.raises(Problem, match=r"mine\.h5 was not made by make_shots"):
        make(tmp_path, FEW)
    assert (tmp_path / "mine.h5").read_bytes() == b"precious"


# A user's own files.


def test_settings_that_name_files_describe_them_instead_of_making_any(tmp_path: Path):
    made = tmp_path / "made"
    main(["--dataset", "d", "--settings", json.dumps(asdict(FEW)), "--out", str(made / "manifest.json")])
    settings = json.dumps({**asdict(FEW), "shots": 99, "files": str(made)})
    main(["--dataset", "own", "--settings", settings, "--out", str(tmp_path / "own" / "manifest.json")])
    generated, own = (json.loads((folder / "manifest.json").read_text()) for folder in (made, tmp_path / "own"))
    assert own["objects"] == generated["objects"]
    assert [Path(file["path"]).parent for file in own["files"]] == [made] * len(own["files"])


def describe_from(out: Path, source: Path) -> dict:
    main(["--dataset", "own", "--settings", json.dumps({"files": str(source)}), "--out", str(out)])
    return json.loads(out.read_text())


def test_own_files_are_described_where_they_lie(made, tmp_path: Path):
    folder, manifest = made["single-shot"]
    own = describe_from(tmp_path / "manifest.json", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert [file.pop("path") for file in own["files"]] == [str(folder / file["name"]) for file in manifest["files"]]
    assert own["dataset"] == "own"
    for key in ("files", "layout", "shots", "signals", "objects"):
        assert own[key] == manifest[key]


def test_own_files_may_have_other_types_and_orders(tmp_path: Path):
    values = np.arange(5000, dtype=">f8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for shot in ("7", "8"):
            for signal in ("x", "y"):
                file[f"/shots/{shot}/signals/{signal}"] = values
        file["/shots/8/signals/text"] = ["one", "two"]
        file["/shots/8/signals/none"] = h5py.Empty("f4")
    manifest = describe_from(tmp_path / "m.json", tmp_path / "a.h5")
    shot = manifest["objects"]["8"]
    assert manifest["layout"]["layout"] == "shot-major"
    assert (manifest["layout"]["paged"], manifest["layout"]["deflate"]) == (False, 0)
    assert shot["x"]["datasets"] == [["/shots/8/signals/x", 40_000, compute_checksum(np.arange(5000.0))[1]]]
    assert shot["x"]["stored_bytes"] == [40_000]
    assert shot["text"]["datasets"][0][1] == 8
    assert shot["none"]["datasets"][0][1:] == [0, 0]


@pytest.mark.parametrize("fault", ["truncated", "foreign", "no shots", "no signals", "absent", "empty folder", "twice"])
def test_files_that_do_not_serve_are_one_line_that_names_them(made, tmp_path: Path, fault: str):
    folder, manifest = made["single-shot"]
    source = tmp_path / "own" / "wrong.h5"
    source.parent.mkdir()
    named = str(source)
    if fault == "truncated":
        source.write_bytes((folder / manifest["files"][0]["name"]).read_bytes()[:9_000_000])
    elif fault == "foreign":
        source.write_text("shot,time\n")
    elif fault.startswith("no "):
        with h5py.File(source, "w") as file:
            file.create_group("shots/1160825001/data" if fault == "no signals" else "raw")
    elif fault == "empty folder":
        source, named = source.parent, "contains no HDF5 file directly"
    elif fault == "twice":
        for name in ("right.h5", "wrong.h5"):
            shutil.copy(folder / manifest["files"][0]["name"], source.with_name(name))
        source = source.parent
    with pytest.raises(Problem, match=named) as caught:
        describe_from(tmp_path / "manifest.json", source)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "manifest.json").exists()
