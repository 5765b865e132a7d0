"""Compose the JSON schema of configurations from the schemas of a run, its stores and the studies."""

from functools import cache
from pathlib import Path
from typing import Any

from sbench import drivers
from sbench.probe.program import read_yaml

_PACKAGE = Path(__file__).parents[1]


def list_studies() -> list[str]:
    """Return the names of all studies, which are the folders in studies/ that contain a study.py."""
    return sorted(path.parent.name for path in _PACKAGE.glob("studies/*/study.py"))


@cache
def read_schema() -> dict:
    """Return the complete schema of a configuration, including stores and all studies, with `$ref`s resolved."""
    whole: dict = _read_part("design/run.yaml")
    of_studies: dict[str, dict] = {}
    whole["properties"] |= {"stores": _read_part("stores/schema.yaml")}
    whole["properties"]["studies"]["properties"] = of_studies
    parts = [whole["properties"]["stores"]]
    for name in list_studies():
        of_studies[name] = _read_part(f"studies/{name}/schema.yaml")
        parts.append(of_studies[name])
    of_kind = whole["properties"]["stores"]["additionalProperties"]
    of_kind["oneOf"] = []
    for file in sorted((_PACKAGE / "stores").glob("*/schema.yaml")):
        kinds = _read_part(file)
        of_kind["oneOf"] += kinds.pop("variants")
        parts.append(kinds)
    of_kind["properties"]["kind"]["enum"] = [kind["title"] for kind in of_kind["oneOf"]]
    for part in parts:
        whole["$defs"] |= part.pop("$defs", {})
    # Forbid unknown properties only in the composed schema. The schema files themselves must accept them, because an
    # editor reads the files without composing them.
    for part in (whole, whole["properties"]["studies"]):
        part["additionalProperties"] = False
    written: dict = _resolve_references(whole, whole["$defs"])
    return written


def get_factors(study: str) -> dict[str, dict]:
    """Return the factors of a study, in schema order: factor -> subschema."""
    parts: dict[str, dict] = read_schema()["$defs"][f"{study}_matrix"]["properties"]
    return parts


@cache
def get_added_factors(study: str) -> dict[str, str]:
    """Return the factors that were added to a study after its first records: factor -> level of all earlier cells."""
    return {name: str(part["default"][0]) for name, part in get_factors(study).items() if "x-added" in part}


def is_series(study: str) -> bool:
    """Return whether each record of a study is a series of values, so that fewer than 6 records allow verdicts."""
    return bool(read_schema()["$defs"][f"{study}_matrix"].get("x-series", False))


def _read_part(name: Path | str) -> dict:
    part = read_yaml(_PACKAGE / name)
    return {key: value for key, value in part.items() if key != "$schema"}


def _resolve_references(node: Any, definitions: dict) -> Any:
    if isinstance(node, list):
        return [_resolve_references(child, definitions) for child in node]
    if not isinstance(node, dict):
        return node
    if reference := node.get("$ref"):
        node = definitions[reference.removeprefix("#/$defs/")] | {k: v for k, v in node.items() if k != "$ref"}
    if node.get("x-drivers"):
        return {"enum": drivers.list_readers()}
    return {key: _resolve_references(child, definitions) for key, child in node.items()}
