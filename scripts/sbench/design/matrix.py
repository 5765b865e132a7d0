"""Expand the matrix of a study into named cells, and list the combinations that are impossible, with the reasons."""

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sbench.design import config as configuration
from sbench.design import schema
from sbench.design import study as studies
from sbench.design.study import ANEW, COPIED, REBUILT, Cell
from sbench.probe.program import Problem
from sbench.probe.slowed import SHARES
from sbench.stores import store as stores

# Settings that later versions added, with the values that are omitted from a cell's settings so that cells keep the
# names that they had in earlier versions.
_ADDED = {"launches": 1}
# Keys of a study's section that are not cell settings.
_NOT_SETTINGS = (
    *("question", "published", "reference", "matrix", "compare", "control_cells", "data", "time_limit_s", "advice"),
    *("bisect", "twins"),
)
# Snakemake creates a job for each record, and would run out of memory with many more.
_MOST_RECORDS = 100_000


class Omitted(NamedTuple):
    """A combination of levels that is not measured, and the reason."""

    levels: dict[str, str]
    reason: str


def expand_matrix(config: dict, study: str) -> tuple[list[Cell], list[Omitted]]:
    """Expand the matrix of a study into cells to measure and combinations to omit.

    The cells are in matrix order, without duplicates. The controls follow: A/A twins of randomly chosen cells, slowed
    controls of the first chosen cell, and twins with another copy of the data or another build (`study.ANEW`).

    Args:
        config: a resolved configuration.
        study: the name of the study.

    Raises:
        Problem: there are no cells, too many records, or no cell with the baseline of a comparison.
    """
    section, factors = config["studies"][study], schema.get_factors(study)
    mappings, times = studies.list_mappings(section), studies.get_study(study).count_repeats(config)
    # Count the combinations before expanding them, which could take too long.
    if (many := sum(math.prod(map(len, mapping.values())) for mapping in mappings)) * times > _MOST_RECORDS:
        raise Problem(
            f"studies.{study}.matrix: must give at most {_MOST_RECORDS:,} records (got {many:,} combinations,"
            f" {times:,} times each); remove levels or repeats"
        )
    cells: dict[str, Cell] = {}
    omitted: dict[str, Omitted] = {}
    for mapping in mappings:
        for combination in itertools.product(*(mapping[factor] for factor in factors)):
            levels = dict(zip(factors, map(str, combination), strict=True))
            impossible = itertools.chain(
                studies.get_study(study).list_obstacles(levels, config), _check_caches(levels, config)
            )
            if reason := next(impossible, ""):
                omitted[json.dumps(levels)] = Omitted({**levels, "control": ""}, reason)
            else:
                cell = _build_cell(config, study, levels)
                cells.setdefault(cell.name, cell)
    originals = list(cells.values())
    if mappings and not cells:
        why = "; ".join(sorted({one.reason for one in omitted.values()}))
        raise Problem(f"studies.{study}.matrix: all combinations are impossible ({why})")
    # The levels of imported results are not in the matrix, but in the imported files.
    for comparison in [] if section.get("imports") else section["compare"]:
        factor, baseline = comparison["factor"], str(comparison["baseline"])
        if all(cell.levels[factor] != baseline for cell in originals):
            reasons = sorted({one.reason for one in omitted.values() if one.levels[factor] == baseline})
            why = "; ".join(reasons) or "the matrix lacks this level"
            raise Problem(f"studies.{study}.compare: no cell has the baseline {factor} {baseline} ({why})")
    steady = studies.get_study(study).select_steady(originals)
    chosen = random.Random(f"{config['seed']} control").sample(steady, min(section["control_cells"], len(steady)))
    controls = [(cell, "twin") for cell in chosen] + [(cell, level) for cell in chosen[:1] for level in SHARES]
    for level in section.get("twins", ()):
        lacking = {cell.name: studies.get_study(study).describe_missing_twin(cell.settings, level) for cell in steady}
        controls += [(cell, level) for cell in [*chosen, *steady] if not lacking[cell.name]][:1]
        if steady and all(lacking.values()):
            omitted[level] = Omitted({**steady[0].levels, "control": level}, lacking[steady[0].name])
    repeated = [_build_cell(config, study, cell.levels, level, cell.name) for cell, level in controls]
    return originals + repeated, list(omitted.values())


def expand_all(config: dict, files: list) -> dict[str, tuple[list[Cell], list[Omitted]]]:
    """Call `expand_matrix` for every study of a resolved configuration.

    `files` are the configuration files to name in error messages.

    Raises:
        Problem: a matrix cannot be expanded; the message starts with the names of the files.
    """
    try:
        return {study: expand_matrix(config, study) for study in config["studies"]}
    except Problem as problem:
        raise Problem(f"{configuration.format_file_names(files)}: {problem}") from None


def select_cells(cells: Iterable[Cell], only: dict[str, list]) -> list[Cell]:
    """Select the cells whose levels are in `only` ({factor: [levels]}). Factors that a cell does not have are ignored.

    Each session needs controls (METHOD 6). If the selection lacks a kind of control, add one of that kind together with
    the cell that it repeats, provided that it requires no additional library or store.
    """
    cells = list(cells)
    chosen = {
        cell.name: _get_needs(cell)
        for cell in cells
        if all(cell.levels[factor] in map(str, wanted) for factor, wanted in only.items() if factor in cell.levels)
    }
    names, needs = set(chosen), set(chosen.values())
    controls = [cell for cell in cells if cell.twin_of and _get_needs(cell) in needs]
    for level in ("twin", *SHARES, *ANEW):
        own = [cell for cell in controls if cell.levels["control"] == level]
        if not any(cell.name in names for cell in own):
            names.update(name for cell in own[:1] for name in (cell.twin_of, cell.name))
    return [cell for cell in cells if cell.name in names]


def _check_caches(levels: dict[str, str], config: dict) -> Iterator[str]:
    """Yield an obstacle if a cell requires warm caches in a remote service, which cannot be warmed (METHOD 8)."""
    if levels.get("cache") == "warm" and stores.get_store(config["stores"][levels["store"]]).elsewhere:
        yield f"store {levels['store']} is remote, and its caches cannot be warmed from here; use cache: cold"


def _get_needs(cell: Cell) -> tuple[str | None, str]:
    return cell.levels.get("library"), cell.levels["store"]


def compute_digest(value: object) -> str:
    """Return the first 10 hexadecimal digits of a JSON value's SHA-256 hash."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def build_permanent_name(of: str, *parts: object) -> str:
    """Append a hash of `parts` to a name, so that different content gets a different name."""
    return f"{of}-{compute_digest(parts)}"


def list_datasets(cells: Iterable[Cell]) -> dict[str, dict]:
    """Return the datasets that the cells read: dataset id -> generator settings."""
    return {cell.dataset: cell.settings["data"] for cell in cells if cell.dataset}


def list_libraries(cells: Iterable[Cell]) -> dict[str, dict]:
    """Return the libraries that the cells use: environment name -> settings from the configuration."""
    return {cell.library: cell.settings["library"] for cell in cells if cell.library}


def _build_cell(config: dict, study: str, levels: dict[str, str], control: str = "", twin_of: str = "") -> Cell:
    section, factors = config["studies"][study], schema.get_factors(study)
    levels = {**levels, "control": control}
    settings = {
        "study": study,
        # Omit factors that a later version added, at their default level, so that cells keep their names.
        "cell": {name: level for name, level in levels.items() if schema.get_added_factors(study).get(name) != level},
        "seed": config["seed"],
        **{key: value for key, value in section.items() if key not in _NOT_SETTINGS and _ADDED.get(key) != value},
    }
    dataset = ""
    if "data" in section:
        data_levels = {
            factor: levels[factor]
            for factor, part in factors.items()
            if part.get("x-data") and levels[factor] != schema.get_added_factors(study).get(factor)
        }
        settings["data"] = studies.get_study(study).get_data_settings(config, data_levels) | {"seed": config["seed"]}
        settings["data"] |= {"copy": control} if control == COPIED else {}
        dataset = "-".join(
            [study, *(_format_level(level, {}) for level in data_levels.values()), compute_digest(settings["data"])]
        )
    for factor, part in factors.items():
        if names := part.get("x-names"):
            settings[factor] = config[names][levels[factor]]
        if pattern := part.get("x-file"):
            # Include the content of the file, so that a change of the file makes another cell.
            text = Path(pattern.format(levels[factor])).read_text(encoding="utf-8")
            settings[factor] = {"name": levels[factor], "text": text}
    if control == REBUILT:
        library = settings["library"]
        settings["library"] = library | {"copy": " ".join(filter(None, (library.get("copy"), control)))}
    settings = studies.get_study(study).complete_settings(settings, config)
    readable = "_".join(
        _format_level(level, factors.get(factor, {}))
        for factor, level in levels.items()
        if level and [level] != [*map(str, factors.get(factor, {}).get("default", []))]
    )
    return Cell(f"{readable}-{compute_digest(settings)}", study, levels, settings, dataset, twin_of)


def _format_level(level: str, factor: dict) -> str:
    """Format a level for use in a folder name, preceded by the `x-short` prefix of its factor, if any."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", factor.get("x-short", "") + level)
