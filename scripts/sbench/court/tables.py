"""Convert the published data of a study to tables in the format of a run, which the study's notebook reads."""

import argparse
import importlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pandas as pd

from sbench.court import ceilings, claims, derived, label_audit, raw_data, rules, timings
from sbench.design import csv_file, schema
from sbench.design.matrix import build_permanent_name
from sbench.design.records import Kept
from sbench.measure import gather
from sbench.probe.program import Problem, run_main, write_json

RUN = "published"
_SETUP = dict.fromkeys(("what", "value"), csv_file.TEXT)
EQUIVALENCE_PERCENT = 5


def main(argv: list[str] | None = None) -> int:
    """Write the tables and facts.json to `--out`; unavailable raw files are listed as limits."""
    parser = argparse.ArgumentParser(prog="module.py sbench.court.tables", description=__doc__)
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--sources", type=Path, required=True, help="YAML with the sources of each study")
    parser.add_argument("--printed", type=Path, required=True, help="folder of the study's printed tables, as CSV")
    parser.add_argument("--raw", default="", help="folder of the raw files (default: download them)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    given = parser.parse_args(argv)
    studies = raw_data.read_sources(given.sources)
    if given.study not in studies:
        raise Problem(f"--study must be a study of {given.sources} (got {given.study}); use {', '.join(studies)}")
    spec = studies[given.study]
    local = Path(given.raw) if given.raw else None
    files, absent = raw_data.fetch_files(spec, given.printed, local, given.out / "raw")
    program = importlib.import_module(f"sbench.studies.{given.study}.published")
    settings = {"compare": spec.get("compare", [])} | getattr(program, "SETTINGS", {})
    published = list(program.load_records(files))
    made = build_tables(given.study, settings, published)
    given.out.mkdir(parents=True, exist_ok=True)
    gather.write_tables(made, given.out)
    gather.write_tables(build_audit_tables(given.study, given.printed, files, made, absent), given.out / "audit")
    name = build_permanent_name(given.study, settings, published)
    write_json(
        given.out / "facts.json", _build_facts(given.study, spec, settings, list(absent.values())) | {"name": name}
    )
    return 0


def build_audit_tables(
    study: str,
    printed: Path,
    files: Mapping[str, Path],
    made: Mapping[str, pd.DataFrame],
    absent: Collection[str] = (),
) -> dict[str, pd.DataFrame]:
    """Build the tables of a study's audit.

    Args:
        study: name of the study.
        printed: folder of the study's printed tables.
        files: the study's CSV files by name.
        made: the study's tables in the format of a run.
        absent: names of the unavailable raw files. Claims and labels are judged from complete tables only, so they use
            none of these files, and use `made` only if no file is unavailable.

    Returns:
        claims: the study's claims with computed values.
        rules: outcomes of the rules for the tables declared in columns.yaml.
        derived: printed numbers that the expressions in derived.csv do not reproduce.
        labels: the labels in labels.csv with computed values.
        setup: setup.csv, unchanged.
    """
    printed_tables = {name: pd.read_csv(path, dtype=str, keep_default_na=False) for name, path in files.items()}
    whole = {name: table for name, table in printed_tables.items() if name not in absent}
    tables = whole | {name: table for name, table in made.items() if name in ("cells", "samples") and not absent}
    module = importlib.import_module(f"sbench.studies.{study}.published_claims")
    return {
        "claims": claims.judge_claims(module.claims, tables),
        "rules": rules.judge_rules(
            timings.read_declarations(printed / timings.FILE), tables, ceilings.read_machines(study)
        ),
        "derived": derived.judge_derived(printed / "audit/derived.csv", printed_tables),
        "labels": label_audit.judge_labels(printed / "audit/labels.csv", module, tables),
        "setup": csv_file.read_table(printed / "audit/setup.csv", _SETUP),
    }


def build_tables(study: str, settings: dict, records: Iterable[dict]) -> dict[str, pd.DataFrame]:
    """Convert published records to tables in the format of a run.

    Args:
        study: name of the study.
        settings: the study's settings, such as the comparisons.
        records: dicts with the factor levels (`cell`), `repeat`, `seconds`, and optionally other keys of a record.
    """
    factors = schema.get_factors(study)
    usual = {name: str(factor["default"][0]) for name, factor in factors.items() if "default" in factor}
    kept = []
    for record in records:
        levels = {name: str(record["cell"].get(name, usual.get(name, ""))) for name in factors} | {"control": ""}
        name = "_".join(filter(None, record["cell"].values()))
        whole = {"status": "done", "valid": True, "reasons": [], "host": {}, "provenance": {}, "work": {}} | record
        kept.append(Kept(name, levels, record["repeat"], Path(), whole | {"cell": levels, "name": name}))
    cells = {one.cell: {"cell": one.cell, **one.levels, "omitted": "", "twin_of": ""} for one in kept}
    matrix = pd.DataFrame(
        cells.values(), columns=None if cells else ["cell", *factors, "control", "omitted", "twin_of"]
    )
    config = {"studies": {study: settings}, "equivalence_percent": EQUIVALENCE_PERCENT, "seed": 1, "stores": {}}
    return gather.build_tables(config, study, matrix.drop(columns="omitted"), kept, {}) | {"matrix": matrix}


def _build_facts(study: str, spec: dict, settings: dict, absent: list[str]) -> dict:
    levels = {name: list(spec.get(name) or {}) for name in ("libraries", "stores")}
    return {
        "run": RUN,
        "study": study,
        "question": spec["question"],
        "published": {key: spec[key] for key in ("title", "by", "date", "address", "conclusion")},
        "equivalence_percent": EQUIVALENCE_PERCENT,
        "machine": spec.get("machine") or {},
        "libraries": spec.get("libraries") or {},
        "stores": spec.get("stores") or {},
        "settings": settings | {"matrix": {"library": levels["libraries"], "store": levels["stores"]}},
        "limits": [*(spec.get("limits") or []), *absent],
        "absent": absent,
    }


if __name__ == "__main__":
    run_main(main)
