"""Where things live: what one study, or one kind of store, alone needs stands in its folder and nowhere else."""

import graphlib
import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from conftest import ROOT

from sbench.design import config as configuration
from sbench.design import schema
from sbench.design import study as studies

PROGRAMS = [path for path in ROOT.glob("scripts/*.py")]
SHARED = [ROOT / "scripts/sbench" / name for name in ("design", "measure", "pages", "probe", "verdicts")]


def folders_of(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if (path / "__init__.py").is_file())


def naming(files: list[Path], names: list[str]) -> list[str]:
    """Return the lines of files that have one of the names as a word."""
    word = re.compile(rf"\b({'|'.join(names)})\b")
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line)
    ]


def test_no_program_and_nothing_that_is_shared_names_a_study():
    names = folders_of(ROOT / "scripts/sbench/studies")
    shared = [*SHARED, ROOT / "scripts/sbench/stores", ROOT / "scripts/sbench/build"]
    files = [*PROGRAMS, *(file for folder in shared for file in folder.rglob("*.py"))]
    assert len(names) >= 3
    assert naming([*files, ROOT / "scripts/sbench/design/run.yaml", ROOT / "rules/common.smk"], names) == []


@pytest.mark.parametrize("study", folders_of(ROOT / "scripts/sbench/studies"))
def test_a_study_is_a_folder_a_schema_a_notebook_a_page_and_a_part_of_the_smoke_run(study: str):
    parts = (f"scripts/sbench/studies/{study}/schema.yaml", f"notebooks/{study}.ipynb", f"docs/{study}.md")
    assert [part for part in parts if not (ROOT / part).is_file()] == []
    assert study in configuration.load_config(ROOT / "config/smoke.yaml")["studies"]
    assert studies.get_study(study).name == study


def test_a_driver_is_declared_by_a_module_and_a_level():
    of_drivers = [schema.get_factors(study).get("driver") for study in schema.list_studies()]
    levels = {level for factor in of_drivers if factor for level in factor["items"]["enum"]}
    modules = [path.stem for path in (ROOT / "scripts/sbench/drivers").glob("[!_]*.py")]
    declared = [getattr(importlib.import_module(f"sbench.drivers.{module}"), "DRIVERS", {}) for module in modules]
    assert sorted(name for drivers in declared for name in drivers) == sorted(levels)
    asking = [ROOT / "scripts/sbench/studies/shots" / f"{name}.py" for name in ("study", "measure", "tasks")]
    assert naming(asking, levels) == []


@pytest.mark.parametrize("folder", folders_of(ROOT / "scripts/sbench/stores"))
def test_a_kind_of_store_is_asked_for_in_its_own_folder_only(folder: str):
    files = [*(file for part in SHARED for file in part.rglob("*.py")), *ROOT.glob("scripts/sbench/stores/*.py")]
    asked = [f'"{folder}', f"stores.{folder}", f"stores import {folder}"]
    quoted = [line for line in naming([*PROGRAMS, *files], [folder]) if any(part in line for part in asked)]
    assert quoted == []


def test_nobody_outside_stores_asks_for_the_kind_of_a_store():
    store = schema.read_schema()["properties"]["stores"]["additionalProperties"]
    kinds = "|".join(store["properties"]["kind"]["enum"])
    asking = re.compile(rf"""kind["']?\]?\)? *(==|!=|in) *[("']*({kinds})\b|({kinds})["'] *(==|!=)""")
    files = [path for path in (ROOT / "scripts").rglob("*.py") if "stores" not in path.parts]
    assert [f"{path}: {line}" for path in files for line in path.read_text().splitlines() if asking.search(line)] == []


def find_circle(package: str) -> list[str]:
    """Return the modules of a circle of imports, those within functions included; none where there is no circle."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    try:
        graphlib.TopologicalSorter(
            {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
        ).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other():
    assert find_circle("sbench") == []


@pytest.mark.parametrize(
    "source, circle",
    [
        ("from circular import other", ["circular.one", "circular.other"]),
        ("def run():\n    from circular import other", ["circular.one", "circular.other"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from circular import other", []),
    ],
)
def test_modules_that_import_each_other_are_found(source: str, circle: list[str], tmp_path: Path, monkeypatch):
    folder = tmp_path / "circular"
    folder.mkdir()
    for name, text in {"__init__": "", "one": source, "other": "import circular.one"}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(set(find_circle("circular"))) == circle


def read_names(name: str) -> set[str]:
    """Return the names of the packages that a file of requirements in envs lists."""
    lines = (ROOT / "envs" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return {re.split(r"[\s\[<>=!;~]", line)[0] for line in lines if line[:1].isalnum()}


@pytest.mark.parametrize("command", ["look", "count"])
def test_a_command_without_an_extra_imports_no_package_of_an_extra(command: str):
    base = read_names("package")
    extra = set().union(*(read_names(name) for name in ("verdicts", "report", "workflow", "snakemake", "mpi", "fio")))
    modules = importlib.metadata.packages_distributions()
    hidden = [module for module, names in modules.items() if (extra - base) & {name.lower() for name in names}]
    assert {"boto3", "pandas", "snakemake"} <= set(hidden)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        f"sys.modules.update(dict.fromkeys({hidden}))\n"
        f"import sbench.cli.{command}, sbench.files.{command}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
