"""What a matrix becomes: cells with names of their own, an order, what is left out and why."""

import csv
import json
from dataclasses import replace

import pytest
from conftest import ROOT, program

from sbench import drivers
from sbench.design import blocks, matrix, plan, yaml_file
from sbench.design import config as configuration
from sbench.design import study as studies
from sbench.probe.program import Problem
from sbench.verdicts import MIN_BLOCKS


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def config() -> dict:
    return configuration.load_config(ROOT / "config/smoke.yaml")


def names(config: dict) -> list[str]:
    return [cell.name for cell in matrix.expand_matrix(config, "shots")[0]]


@pytest.mark.rule(1)
def test_cells_that_cannot_exist_are_left_out_with_the_reason(config):
    cells, omitted = matrix.expand_matrix(config, "shots")
    assert [one.reason for one in omitted] == ["driver ros3 does not read a posix store"]
    config["libraries"]["hdf5-2.0.0"] = {"kind": "wheel", "hdf5": "2.0.0", "from": "auto"}
    fewer, more = matrix.expand_matrix(config, "shots")
    assert len(fewer) < len(cells)
    assert "hdf5-2.0.0 is a wheel without ROS3" in {one.reason for one in more}


@pytest.mark.rule(1)
@pytest.mark.parametrize("lacking", ["shots", "signals"])
def test_a_file_of_one_shot_or_signal_has_no_order_and_is_left_out(config, lacking):
    assert "shot-major" in {cell.levels["layout"] for cell in matrix.expand_matrix(config, "shots")[0]}
    config["studies"]["shots"]["data"][lacking] = 1
    config["studies"]["shots"]["compare"] = []
    cells, omitted = matrix.expand_matrix(config, "shots")
    assert {cell.levels["layout"] for cell in cells} == {"single-shot"}
    reason = "shot-major requires at least two shots and two signals"
    assert reason in {one.reason for one in omitted if one.levels["layout"] == "shot-major"}


@pytest.mark.rule(1, 14)
def test_cells_whose_library_lacks_what_their_driver_needs_are_left_out(config, tmp_path, monkeypatch):
    monkeypatch.setattr(drivers.get_driver("sec2").__class__, "needs", ("dask", "s3fs"))
    library = {"kind": "wheel", "hdf5": "2.0.0"}
    config["libraries"]["hdf5-2.0.0"] = library
    reason = "library hdf5-2.0.0 lacks s3fs, which driver sec2 needs"
    assert reason in {one.reason for one in matrix.expand_matrix(config, "shots")[1]}
    lock = tmp_path / "mine.lock"
    lock.write_text("h5py==3.16.0 --hash=sha256:0\ns3fs==2026.9.0 --hash=sha256:0\n", encoding="utf-8")
    library["lock"] = str(lock)
    assert reason not in {one.reason for one in matrix.expand_matrix(config, "shots")[1]}


@pytest.mark.rule(1)
def test_the_saved_matrix_has_every_cell_and_what_is_left_out_with_the_reason(config, tmp_path):
    cells, omitted = matrix.expand_matrix(config, "shots")
    files = ("--matrix", tmp_path / "matrix.csv", "--out", tmp_path / "plan.json")
    done = program("plan", "--config", json.dumps(config), "--study", "shots", *files)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "matrix.csv").open(encoding="utf-8")))
    assert {row["cell"] for row in rows if not row["omitted"]} == {cell.name for cell in cells}
    assert [row["omitted"] for row in rows if not row["cell"]] == [one.reason for one in omitted] != []


def test_the_quick_run_measures_what_its_question_asks():
    quick = configuration.load_config(ROOT / "config/quick.yaml")
    cells, omitted = matrix.expand_matrix(quick, "shots")
    assert omitted == []
    assert {cell.settings["library"]["kind"] for cell in cells} == {"wheel"}
    assert {(cell.settings["store"]["kind"], cell.levels["driver"]) for cell in cells} == {("s3", "ros3")}
    assert all(cell.settings["store"]["network"]["latency_ms"] for cell in cells)
    section = quick["studies"]["shots"]
    compared = {one["factor"] for one in section["compare"]}
    assert compared == {factor for factor, levels in section["matrix"].items() if len(levels) > 1} - {"access"}
    assert all(word in section["question"] for word in ("S3", "page buffer", "layout", "access"))
    assert quick["repeats"] >= MIN_BLOCKS


def test_a_question_is_no_setting_of_a_cell(config):
    before = names(config)
    config["studies"]["shots"]["question"] = "Which?"
    assert names(config) == before


def test_cells_of_one_node_are_those_of_before_there_was_the_factor(config):
    cells, _ = matrix.expand_matrix(config, "shots")
    assert {cell.levels["nodes"] for cell in cells} == {"1"}
    assert not any("nodes" in cell.settings["cell"] or "nodes" in cell.name for cell in cells)
    for mapping in config["studies"]["shots"]["matrix"]:
        mapping |= {"store": ["disk"], "driver": ["sec2"], "workers": [2], "nodes": [2]}
    config["studies"]["shots"]["compare"] = []
    cells, _ = matrix.expand_matrix(config, "shots")
    assert {cell.settings["cell"]["nodes"] for cell in cells} == {"2"}
    assert all("_nodes2_" in cell.name for cell in cells)


@pytest.mark.rule(14)
@pytest.mark.parametrize("name", ["config", "drivers", "ec2", "ec2-published", "faults", "hpc", "quick", "smoke"])
def test_cells_of_before_there_was_the_chunk_cache_keep_their_names(name):
    config = yaml_file.read_mapping(ROOT / f"config/{name}.yaml")
    section = config["studies"]["shots"]
    before = matrix.expand_matrix(configuration.resolve_config(config, []), "shots")[0]
    assert not [cell for cell in before if "chunk_cache" in cell.settings["cell"]]
    for mapping in studies.list_mappings(section):
        mapping["chunk_cache"] = ["default"]
    assert matrix.expand_matrix(configuration.resolve_config(config, []), "shots")[0] == before
    for mapping in studies.list_mappings(section):
        mapping["chunk_cache"] = ["default", "64MiB-7"]
    more = {cell.name for cell in matrix.expand_matrix(configuration.resolve_config(config, []), "shots")[0]}
    assert {cell.name for cell in before if not cell.twin_of} < more
    assert any("_cc64MiB-7" in name for name in more)


def test_a_cell_named_twice_is_one_cell(config):
    before = names(config)
    config["studies"]["shots"]["matrix"] *= 2
    assert names(config) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["studies"]["shots"].update(rdcc_nbytes=1),
        lambda c: c["studies"]["shots"]["data"].update(deflate=1),
        lambda c: c.update(seed=2),
        lambda c: c["libraries"]["hdf5-2.0.0"].update(hdf5="2.0.1"),
        lambda c: [c["stores"][store].update(path="/x") for store in ("disk",)],
    ],
)
def test_a_changed_setting_makes_other_cells(config, change):
    before = {name for name in names(config) if "disk" in name and "twin" not in name}
    change(config)
    after = {name for name in names(config) if "disk" in name and "twin" not in name}
    assert len(before) == len(after) > 0
    assert not before & after


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(repeats=20),
        lambda c: c.update(order_seed=7, extra_blocks=0),
        lambda c: c.update(equivalence_percent=1),
        lambda c: c["studies"]["shots"].update(time_limit_s=1),
        lambda c: c["studies"]["shots"].update(compare=[]),
        lambda c: c.update(only={"library": ["hdf5-2.0.0"]}),
    ],
)
def test_what_does_not_change_a_measurement_leaves_the_cells(config, change):
    before = names(config)
    change(config)
    assert names(config) == before


@pytest.mark.rule(6)
def test_the_control_repeats_cells_under_another_name(config):
    config["studies"]["shots"]["control_cells"] = 2
    cells, _ = matrix.expand_matrix(config, "shots")
    twins = [cell for cell in cells if cell.twin_of]
    originals = {cell.name: cell for cell in cells if not cell.twin_of}
    assert [twin.levels["control"] for twin in twins] == ["twin", "twin", "slow5", "slow10"]
    assert {twin.twin_of for twin in twins[2:]} == {twins[0].twin_of}, "both kinds of control are of the same cell"
    for twin in twins:
        original = originals[twin.twin_of]
        assert {**twin.levels, "control": ""} == original.levels
        assert twin.dataset == original.dataset


@pytest.mark.rule(6)
def test_further_twins_have_other_data_or_another_build_under_the_same_label(config):
    assert {cell.levels["control"] for cell in matrix.expand_matrix(config, "shots")[0]} == {
        "",
        "twin",
        "slow5",
        "slow10",
    }
    config["studies"]["shots"]["twins"] = ["copied", "rebuilt"]
    cells, omitted = matrix.expand_matrix(config, "shots")
    original = next(cell for cell in cells if cell.name == cells[-1].twin_of)
    copied, rebuilt = cells[-2:]
    assert (copied.levels["control"], rebuilt.levels["control"]) == ("copied", "rebuilt")
    assert copied.twin_of == rebuilt.twin_of == next(cell.twin_of for cell in cells if cell.twin_of)
    assert copied.settings["data"] == original.settings["data"] | {"copy": "copied"}
    assert (copied.dataset == original.dataset, copied.library == original.library) == (False, True)
    assert (rebuilt.dataset == original.dataset, rebuilt.library == original.library) == (True, False)
    assert rebuilt.settings["library"] == original.settings["library"] | {"copy": "rebuilt"}
    assert blocks.list_library_artefacts("r", [rebuilt]) == [f"results/r/environments/{original.library}+rebuilt.json"]
    assert set(matrix.list_libraries(cells)) == {*(cell.levels["library"] for cell in cells), rebuilt.library}
    assert not any(one.levels["control"] for one in omitted)
    some = matrix.select_cells(cells, {"library": [original.levels["library"]]})
    assert {"copied", "rebuilt"} <= {cell.levels["control"] for cell in some}


@pytest.mark.rule(2, 6)
def test_a_twin_that_cannot_have_anything_anew_is_left_out_with_the_reason(config, tmp_path):
    (tmp_path / "one.h5").touch()
    section = config["studies"]["shots"] | {"twins": ["copied", "rebuilt"], "data": {"files": str(tmp_path)}}
    section["matrix"] = [mapping | {"store": ["disk"], "driver": ["sec2"]} for mapping in section["matrix"]]
    config["studies"]["shots"], config["libraries"] = section, {}
    for level in dict.fromkeys(level for mapping in section["matrix"] for level in mapping["library"]):
        config["libraries"][level] = {"kind": "python", "hdf5": level.removeprefix("hdf5-"), "python": "/bin/python"}
    cells, omitted = matrix.expand_matrix(config, "shots")
    assert {cell.levels["control"] for cell in cells} <= {"", "twin", "slow5", "slow10"}
    assert {one.levels["control"]: one.reason for one in omitted if one.levels["control"]} == {
        "copied": "the cell reads its data in place, without a copy",
        "rebuilt": "the workflow does not build its library",
    }
    config["stores"]["disk"]["path"] = str(tmp_path / "elsewhere")
    assert "copied" in {cell.levels["control"] for cell in matrix.expand_matrix(config, "shots")[0]}


def test_a_setting_of_the_data_may_depend_on_the_layout(config):
    cells, _ = matrix.expand_matrix(config, "shots")
    sizes = {cell.levels["layout"]: cell.settings["data"]["page_size"] for cell in cells}
    assert sizes == {"shot-major": 16_777_216, "single-shot": 8_000_000}
    config["studies"]["shots"]["data"]["page_size"] = 4096
    assert {cell.settings["data"]["page_size"] for cell in matrix.expand_matrix(config, "shots")[0]} == {4096}


def test_only_selects_by_level_and_leaves_the_matrix_alone(config):
    cells, _ = matrix.expand_matrix(config, "shots")
    levels = {"library": ["hdf5-1.14.6"], "page_buffer": ["0"]}
    some = [cell for cell in matrix.select_cells(cells, levels) if not cell.twin_of]
    assert {(cell.levels["library"], cell.levels["page_buffer"]) for cell in some} == {("hdf5-1.14.6", "0")}
    assert matrix.select_cells(cells, {"pattern": ["broadcast"]}) == cells
    config["studies"]["shots"]["control_cells"] = 2
    cells, _ = matrix.expand_matrix(config, "shots")
    some = matrix.select_cells(cells, levels)
    twins = [cell for cell in some if cell.twin_of]
    assert twins, "each session has a control of its own"
    assert {cell.twin_of for cell in twins} <= {cell.name for cell in some}
    assert {cell.levels["library"] for cell in some} == {"hdf5-1.14.6"}, "no other library is needed for it"
    assert matrix.select_cells(cells, {"library": ["none"]}) == []
    slowed = next(cell for cell in cells if cell.levels["control"] == "slow5")
    others = [level for level in ("0", "64MiB") if level != slowed.levels["page_buffer"]]
    some = matrix.select_cells(cells, {"library": [slowed.levels["library"]], "page_buffer": others})
    assert {"slow5", "slow10"} <= {cell.levels["control"] for cell in some}, "and what it can tell apart, if need be"
    assert slowed.twin_of in {cell.name for cell in some}


@pytest.mark.rule(8)
def test_a_service_elsewhere_has_cold_cells_and_no_warm_ones(config):
    config["stores"]["s3"] = {"kind": "s3", "bucket": "mine"}
    mapping = config["studies"]["shots"]["matrix"][0]
    config["studies"]["shots"]["matrix"] = [mapping | {"cache": ["cold", "warm", "any"]}]
    cells, omitted = matrix.expand_matrix(config, "shots")
    assert {cell.levels["cache"] for cell in cells} == {"cold", "any"}
    assert {(one.levels["cache"], one.reason) for one in omitted} == {
        ("warm", "store s3 is remote, and its caches cannot be warmed from here; use cache: cold")
    }


@pytest.mark.rule(2)
def test_the_order_of_measuring_has_a_seed_of_its_own(config):
    cells, _ = matrix.expand_matrix(config, "shots")
    assert plan.build_plan(config, "shots", cells)["order"] == {"seed": "smoke shots"}
    config["order_seed"] = 7
    assert plan.build_plan(config, "shots", cells)["order"]["seed"] == "7 shots"


def test_a_matrix_or_a_baseline_of_which_nothing_is_left_is_refused_before_anything_runs(config):
    config["studies"]["shots"]["compare"] = [{"factor": "driver", "baseline": "ros3"}]
    only_disk = {"store": ["disk"], "driver": ["sec2", "ros3"]}
    config["studies"]["shots"]["matrix"] = [config["studies"]["shots"]["matrix"][1] | only_disk]
    with pytest.raises(Problem, match="no cell has the baseline driver ros3"):
        matrix.expand_matrix(config, "shots")
    config["studies"]["shots"]["compare"] = [{"factor": "workers", "baseline": 7}]
    with pytest.raises(Problem, match=r"no cell has the baseline workers 7 \(the matrix lacks this level\)"):
        matrix.expand_matrix(config, "shots")
    config["studies"]["shots"]["matrix"][0]["driver"] = ["ros3"]
    with pytest.raises(Problem, match="all combinations are impossible"):
        matrix.expand_matrix(config, "shots")


def test_cells_without_number_are_counted_and_not_made(config):
    (mapping, *_) = config["studies"]["shots"]["matrix"]
    many = mapping | {"workers": range(10**5), "page_buffer": range(10**4)}
    config["studies"]["shots"]["matrix"] = [many, many]
    config["repeats"] = 7
    with pytest.raises(Problem) as caught:
        matrix.expand_all(config, ["mine.yaml"])
    line = str(caught.value)
    assert line.startswith("mine.yaml: studies.shots.matrix: ")
    assert "must give at most 100,000 records (got 4,000,000,000 combinations, 7 times each)" in line


@pytest.fixture
def volumes() -> dict:
    return configuration.load_config(ROOT / "config/volumes.yaml")


@pytest.mark.rule(2)
def test_volumes_with_burst_credits_are_measured_in_the_order_of_their_matrix(volumes):
    volumes["studies"]["volumes"]["batteries"] = 2
    assert studies.get_study("volumes").count_repeats(volumes) == 2
    cells, _ = matrix.expand_matrix(volumes, "volumes")
    levels = [(cell.levels["store"], cell.levels["background"]) for cell in cells]
    assert levels == [("gp2", "none"), ("gp2", "same"), ("gp3", "none"), ("gp3", "same"), ("gp2", "other")]
    assert list(plan.build_plan(volumes, "volumes", cells)["cells"]) == [cell.name for cell in cells]
    in_turn = studies.get_study("volumes").is_in_turn
    assert in_turn(volumes, cells)
    assert not in_turn(volumes, [cell for cell in cells if cell.levels["store"] == "gp3"]), "gp3 has no credits"
    asked = [replace(cell, levels=cell.levels | {"start_credits": "full"}) for cell in cells]
    assert not in_turn(volumes, asked), "whatever is before a battery, it begins with full credits"
    volumes["stores"]["gp2"]["volume"] = "instance"
    assert not in_turn(volumes, cells), "what the volume is will be asked of the machine"


def test_the_text_of_a_job_is_part_of_its_cell_and_a_background_only_where_there_is_one(volumes):
    before, _ = matrix.expand_matrix(volumes, "volumes")
    assert before[0].settings["job"]["text"] == (ROOT / "config/fio/etcd-published.fio").read_text(encoding="utf-8")
    assert [cell.settings["background"] and cell.settings["background"]["store"]["path"] for cell in before] == [
        None,
        "/mnt/gp2",
        None,
        "/mnt/gp3",
        "/mnt/gp3",
    ]
    volumes["studies"]["volumes"]["background_job"] = "etcd"
    after, _ = matrix.expand_matrix(volumes, "volumes")
    assert [one.name == other.name for one, other in zip(before, after, strict=True)] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_limits_and_imports_are_judged_with_and_measure_nothing_again(volumes):
    before, _ = matrix.expand_matrix(volumes, "volumes")
    volumes["studies"]["volumes"] |= {"limits": ["etcd"], "imports": ["results"], "batteries": 3}
    assert matrix.expand_matrix(volumes, "volumes")[0] == before


def test_volumes_that_cannot_be_measured_are_left_out_with_the_reason(volumes):
    volumes["stores"]["s3"] = {"kind": "s3", "bucket": "b", "region": "r", "prefix": "", "anonymous": False}
    volumes["stores"]["raw"] = {"kind": "posix", "device": "/dev/vdb", "erase": True}
    study = volumes["studies"]["volumes"]
    study["compare"] = []
    study["matrix"] = {"store": ["s3", "raw", "gp3"], "job": ["etcd"], "background": ["none", "same", "other"]}
    study["matrix"]["start_credits"] = [""]
    cells, omitted = matrix.expand_matrix(volumes, "volumes")
    assert {one.reason for one in omitted} == {
        "fio cannot write to a store of kind s3",
        "a raw device cannot hold the files of a background load",
        "the background load on another volume needs another store than gp3",
    }
    assert len(cells) == 4


def test_a_baseline_may_be_imported_beside_a_matrix(volumes):
    compare = [{"factor": "store", "baseline": "elsewhere"}]
    volumes["studies"]["volumes"] |= {"imports": [{"from": "results", "name": "elsewhere"}], "compare": compare}
    assert matrix.expand_matrix(volumes, "volumes")[0]


def test_a_study_that_only_imports_has_no_cells():
    imported = configuration.load_config(ROOT / "config/import.yaml")
    assert matrix.expand_matrix(imported, "volumes") == ([], [])
