"""The cost of a run that measures until it can decide: at least, likely, at most."""

from pathlib import Path

import pytest
from conftest import ROOT, sbench
from small_runs import TINY, write

from sbench.design import blocks, cost
from sbench.design import study as studies
from sbench.measure.forecast import Forecast, add_forecasts, forecast_rounds
from tests.helpers.rounds import STUDY, Simulation, configure


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/facts").symlink_to(ROOT / "config/facts")


def forecast(config: dict, cells: list) -> Forecast | None:
    """Return the forecast of a run that has not begun."""
    opened = blocks.open_blocks(config, cells, cells)
    program = studies.get_study(STUDY)
    return forecast_rounds(config, program, cells, cost.estimate_cost(config, STUDY, cells, [], opened))


def measure_earlier(ratio: float, noise: float) -> None:
    """Leave an earlier run of the same cells."""
    config = configure(Path()) | {"run": "earlier"}
    Simulation(config, lambda levels: ratio if levels["access"] == "signals" else 1.0, noise).call()


def test_without_an_earlier_run_the_likely_cost_is_unknown():
    config = configure(Path(), most_repeats=18)
    made = forecast(config, Simulation(config).cells)
    assert made.likely is None
    assert made.most == pytest.approx(3 * made.least)
    assert "likely" not in made.describe()


def test_fixed_repeats_have_no_forecast():
    config = configure(Path())
    assert forecast(config, Simulation(config).cells) is None


def test_large_effects_are_likely_to_take_a_single_round():
    measure_earlier(2.0, 0.02)
    config = configure(Path(), most_repeats=20)
    made = forecast(config, Simulation(config).cells)
    assert made.likely == pytest.approx(made.least)


def test_small_effects_are_likely_to_take_more():
    measure_earlier(1.06, 0.06)
    config = configure(Path(), most_repeats=20)
    made = forecast(config, Simulation(config).cells)
    assert made.least < made.likely <= made.most


def test_the_most_includes_all_later_rounds_if_one_block_of_the_first_is_missing():
    config = configure(Path(), most_repeats=18)
    simulation = Simulation(config)
    whole = forecast(config, simulation.cells)
    simulation.call(most_looks=0)
    for path in simulation.folder.glob("records/*/repeat=6.json"):
        path.unlink()
    made = forecast(config, simulation.cells)
    # What is left is one block; 12 more may follow.
    assert made.least < whole.least
    assert made.most == pytest.approx(13 * made.least)


def test_a_run_starts_without_simulations():
    measure_earlier(1.06, 0.06)
    config = configure(Path(), most_repeats=20)
    cells = Simulation(config).cells
    opened = blocks.open_blocks(config, cells, cells)
    costs = cost.estimate_cost(config, STUDY, cells, [], opened)
    assert forecast_rounds(config, studies.get_study(STUDY), cells, costs, simulates=False).likely is None


def test_a_budget_bounds_the_cost():
    config = configure(Path(), most_repeats=20, budget_s=50)
    made = forecast(config, Simulation(config).cells)
    assert made.most == max(made.least, 50)


def test_the_studies_add_up():
    fixed = cost.Cost([], [], cost.Totals({"seconds": 10, "bytes": 5}))
    grown = cost.Cost([], [], cost.Totals({"seconds": 20, "bytes": 7, "disk_bytes": 3}))
    whole, largest = add_forecasts({"volumes": fixed, "shots": grown}, {"shots": Forecast(20, 30, 60)}, 1)
    assert whole == Forecast(31, 41, 71)
    assert largest == {"seconds": 70, "bytes": 26, "disk_bytes": 3}
    assert add_forecasts({"shots": grown}, {"shots": Forecast(20, None, 60)}, 0)[0].likely is None


def test_the_plan_prints_the_cost_of_all_rounds(clone: Path):
    write(clone, TINY | {"repeats": 6, "most_repeats": 20})
    done = sbench("plan", cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "until all comparisons are decided: at least " in done.stdout
    write(clone, TINY | {"repeats": 6})
    assert "until all" not in sbench("plan", cwd=clone).stdout
