"""Read a run's configuration, check it against the schema, and fill in its defaults."""

import difflib
import json
import math
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema

from sbench.design import study as studies
from sbench.design import yaml_file
from sbench.design.schema import get_factors, read_schema
from sbench.probe.program import Problem

# Characters that would end a line or a file name early, or cannot be encoded. Patterns in the schema do not catch all
# of them, since `$` also matches before a trailing newline.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Workflow rules pass the configuration as JSON on the command line, and Linux limits an argument to 128 KiB.
_MOST_JSON = 100_000
# Errors that are reported only if there are no simpler ones: a value that matches no variant, and undefined names.
_LAST = ("oneOf", "anyOf", "x-names", "x-file")
_OF_VERSIONS = ("required", "additionalProperties", "x-file")
Errors = Iterator[jsonschema.ValidationError]


def resolve_config(config: dict, files: list[Path] | list[str]) -> dict:
    """Validate a configuration, fill in all defaults, and remove trailing slashes from URLs.

    `files` are the YAML files that `config` was loaded from. They are checked for values that YAML silently changes,
    and error messages name them.

    Raises:
        Problem: the configuration is invalid; the message is one line with the file, the key and the mistake.
    """
    for file in files:
        yaml_file.read_mapping(Path(file))
    return _apply_schema(config, format_file_names(files))


def load_config(file: Path | str, changes: dict | None = None) -> dict:
    """Load a configuration file, replace the top-level keys in `changes`, and resolve it like `resolve_config`."""
    return _apply_schema(yaml_file.read_mapping(Path(file)) | (changes or {}), format_file_names([file]))


def format_file_names(files: list) -> str:
    """Return the names of the configuration files, separated by commas, for the start of an error message."""
    return ", ".join(map(str, files)) or "the configuration"


def expect_plain(config: dict, where: str) -> None:
    """Check that a configuration can be passed safely in files and on command lines.

    Raises:
        Problem: a string contains a control character, or the configuration is too long. The message starts with
            `where`, the names of the configuration files.
    """
    for place, value in _walk_values(config):
        if isinstance(value, str) and (control := _CONTROL.search(value)):
            raise Problem(
                f"{where}: {place}: {_format_value(value)} has the control character {control[0]!r}; remove it"
            )
    if len(json.dumps(config, default=str, skipkeys=True)) > _MOST_JSON:
        raise Problem(
            f"{where}: must have at most {_MOST_JSON:,} characters as JSON, to fit into a command;"
            " split it into several runs, or name folders or patterns instead of files"
        )


def select_study_config(config: dict, study: str) -> dict:
    """Return the parts of a configuration that affect a study's plan, tables and facts.

    The result contains no other study, and its `only` and `again` are empty, so they select nothing.
    """
    apart = ("only", "again", "ask_above", "machine", "published_data", "published_partial", "comparison", "studies")
    kept = {key: value for key, value in config.items() if key not in apart}
    return {**kept, "only": {}, "again": [], "studies": {study: config["studies"][study]}}


def complete_config(config: dict, where: str, is_archived: bool = False) -> dict:
    """Check a configuration against the schema, and return it with all defaults.

    In an archived one, of another version or machine, keys and files may be missing, or unknown here.
    """
    expect_plain(config, where)
    complete = deepcopy(config)
    every = _build_validator(complete).iter_errors(complete)
    errors = (error for error in every if not is_archived or error.validator not in _OF_VERSIONS)
    if first := min(errors, key=lambda e: (e.validator in _LAST, list(map(str, e.absolute_path))), default=None):
        raise Problem(f"{where}: {_describe_error(first)}")
    return complete


def _apply_schema(config: dict, where: str) -> dict:
    complete = complete_config(config, where)
    for store in complete["stores"].values():
        store |= {key: value.removesuffix("/") for key, value in store.items() if str(value).startswith("http")}
    _validate_names(complete, where)
    return complete


def _walk_values(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted path, key or scalar) for every key and every scalar in a nested value."""
    if isinstance(value, dict):
        for key, child in value.items():
            within = f"{place}.{_format_value(key)[1:-1]}".lstrip(".")
            yield within, key
            yield from _walk_values(child, within)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk_values(child, f"{place}[{index}]")
    else:
        yield place, value


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _build_validator(config: dict) -> jsonschema.protocols.Validator:
    """Build a schema validator that also fills in defaults and checks references to names in `config`."""
    # Other differences from the standard validator: it does not accept 6.0 as an integer, it reports only the errors of
    # the intended `oneOf` variant, and it compares the `repr` of list entries instead of each entry with every other.
    plain = jsonschema.Draft202012Validator

    def is_integer(_: Any, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(_: Any, value: object) -> bool:
        return is_integer(_, value) or (isinstance(value, float) and math.isfinite(value))

    def check_properties(validator: Any, parts: dict, value: object, node: dict) -> Errors:
        if isinstance(value, dict):
            value |= {key: deepcopy(p["default"]) for key, p in parts.items() if "default" in p and key not in value}
        yield from plain.VALIDATORS["properties"](validator, parts, value, node)

    def check_variants(validator: Any, variants: list[dict], value: object, node: dict) -> Errors:
        fitting = (number for number, variant in enumerate(variants) if _is_variant_of(validator, variant, value))
        if (meant := next(fitting, None)) is None:
            yield jsonschema.ValidationError("")
        else:
            yield from validator.descend(value, variants[meant], schema_path=meant)

    def check_unique(_: Any, wanted: bool, value: object, node: dict) -> Errors:
        if wanted and isinstance(value, list) and len(set(map(repr, value))) < len(value):
            yield jsonschema.ValidationError(f"{value!r} has non-unique elements")

    def check_names(_: Any, part: str, value: object, node: dict) -> Errors:
        there = list(config[part]) if isinstance(config.get(part), dict) else []
        if absent := [name for name in _to_list(value) if name not in there]:
            yield jsonschema.ValidationError(
                f"{_format_value(absent[0])} is not defined in {part}; known: {', '.join(map(str, there))}"
            )

    def check_files(_: Any, pattern: str, value: object, node: dict) -> Errors:
        there = sorted(path.stem for path in Path(pattern).parent.glob(f"*{Path(pattern).suffix}"))
        if absent := [name for name in _to_list(value) if name not in there]:
            yield jsonschema.ValidationError(f"{pattern.format(absent[0])} does not exist; known: {', '.join(there)}")

    keywords = {
        "properties": check_properties,
        "oneOf": check_variants,
        "uniqueItems": check_unique,
        "x-names": check_names,
        "x-file": check_files,
    }
    types = plain.TYPE_CHECKER.redefine_many({"integer": is_integer, "number": is_number})
    validator: jsonschema.protocols.Validator = jsonschema.validators.extend(plain, keywords, type_checker=types)(
        read_schema()
    )
    return validator


def _is_variant_of(validator: Any, variant: dict, value: Any) -> bool:
    """Return whether a value is meant to be an instance of a `oneOf` variant.

    Compare the value's `kind`, or its type, with the variant's. If the variant defines neither, validate the value.
    """
    if kind := variant.get("properties", {}).get("kind"):
        return isinstance(value, dict) and value.get("kind") == kind["const"]
    if "type" in variant:
        return bool(validator.is_type(value, variant["type"]))
    return bool(validator.evolve(schema=variant).is_valid(value))


def _to_list(value: object) -> list:
    return value if isinstance(value, list) else [value]


def _describe_error(error: jsonschema.ValidationError) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    key, place = place.lstrip("."), place.lstrip(".") or "the file"
    part: Any = error.schema
    value: Any = error.instance
    due: Any = error.validator_value
    described = _find_description(error)
    if variables := part.get("x-credentials"):
        # Do not show the value: it may contain a password.
        return f"{place} is not valid{described}; set credentials in the environment ({variables}), never here"
    match error.validator:
        case "additionalProperties":
            keys = list(part.get("properties", {}))
            unknown = next(name for name in value if name not in keys)
            near = difflib.get_close_matches(str(unknown), keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(keys)}"
            hint = part.get("x-renamed", {}).get(unknown, hint)
            return f"{key}{'.' * bool(key)}{unknown}: unknown key; {hint}"
        case "required":
            return f"{place}: {next(name for name in due if name not in value)} is missing"
        case "dependentRequired":
            needs = ((name, other) for name, others in due.items() for other in others if name in value)
            name, missing = next((name, other) for name, other in needs if other not in value)
            meaning = _format_description(part["properties"][missing].get("description", ""))
            return f"{place}: {name} requires {missing}{meaning}"
        case "enum":
            return f"{place}: {_format_value(value)} is not one of {', '.join(map(str, due))}"
        case "type":
            wanted = _to_list(due)
            replacement = _describe_replacement(value, wanted)
            return f"{place}: {_format_value(value)} is not of type {' or '.join(wanted)}{replacement}{described}"
        case "pattern" | "anyOf" | "oneOf":
            replacement = _describe_replacement(value, ["integer"])
            return f"{place}: {_format_value(value)} is not valid{replacement}{described}"
        case "not" if isinstance(value, dict):
            return f"{place}: {' and '.join(due['required'])} exclude each other; remove one of them"
        case "not":
            return f"{place}: {_format_value(value)} is a reserved name; choose another"
        case "x-names" | "x-file":
            return f"{place}: {error.message}"
        case _:
            return f"{place}: {_format_value(value)}{error.message.removeprefix(repr(value))}{described}"


def _describe_replacement(value: object, wanted: list[str]) -> str:
    """Suggest a correction for a value of the wrong type; return an empty string if no correction is known."""
    if isinstance(value, float) and value.is_integer() and "integer" in wanted:
        return f"; write {value:.0f}"
    return "; quote it" if "string" in wanted and not isinstance(value, (dict, list)) else ""


def _find_description(error: jsonschema.ValidationError) -> str:
    """Return, in parentheses, the innermost schema description on the path to an error."""
    node, description = read_schema(), ""
    for step in error.absolute_schema_path:
        node = node[step]
        description = node.get("description", description) if isinstance(node, dict) else description
    return _format_description(description)


def _format_description(description: str) -> str:
    return f" ({description.rstrip('.')})" if description else ""


def _validate_names(config: dict, where: str) -> None:
    """Check whatever the schema cannot: repeats, files of libraries, compared factors, references, and study rules.

    Raises:
        Problem: there is a mistake.
    """
    repeats, most = config["repeats"], config.get("most_repeats")
    # The minimum number of blocks for a verdict.
    least = read_schema()["properties"]["most_repeats"]["minimum"]
    if most and not least <= repeats <= most:
        raise Problem(f"{where}: repeats must be between {least} and most_repeats, {most} (got {repeats})")
    for name, library in config["libraries"].items():
        if library["kind"] == "conda" and not Path(f"envs/{name}.yaml").is_file():
            raise Problem(
                f"{where}: libraries.{name}: envs/{name}.yaml does not exist; conda creates the environment from it"
            )
        if "lock" in library and not Path(library["lock"]).is_file():
            raise Problem(
                f"{where}: libraries.{name}.lock: {library['lock']} does not exist; correct the path, or run make lock"
            )
    for study, section in config["studies"].items():
        for number, comparison in enumerate(section["compare"]):
            if (factor := comparison["factor"]) not in get_factors(study):
                place = f"studies.{study}.compare[{number}].factor"
                raise Problem(
                    f"{where}: {place}: {factor!r} is not a factor of {study}; known: {', '.join(get_factors(study))}"
                )
        # A reference needs the same factors as the study, as published data of the same study has.
        there = [f"published/{path.parent.name}" for path in Path("results/published").glob(f"{study}/audit")]
        if absent := [name for name in _to_list(section.get("reference", [])) if name not in there]:
            choice = f"name {there[0]}" if there else "remove it, as no published study has the same factors"
            raise Problem(
                f"{where}: studies.{study}.reference: {_format_value(absent[0])} is not published data of {study};"
                f" {choice}"
            )
        try:
            mistake = next(studies.get_study(study).list_mistakes(config), "")
        except (Problem, OSError) as error:
            # A file that the section names may be missing or invalid.
            mistake = f"studies.{study}: {error}"
        if mistake:
            raise Problem(f"{where}: {mistake}")
    validate_only(config, where)


def validate_only(config: dict, where: str) -> None:
    """Check that `only` names existing studies, factors and levels.

    Raises:
        Problem: a name is unknown. The message starts with `where`, the names of the configuration files.
    """
    levels: dict[str, set[str]] = {"study": set(config["studies"])}
    for section in config["studies"].values():
        for mapping in studies.list_mappings(section):
            for factor, values in mapping.items():
                levels.setdefault(factor, set()).update(map(str, values))
    for factor, wanted in config["only"].items():
        if factor not in levels:
            raise Problem(f"{where}: only.{factor}: no study of this run has this factor; known: {', '.join(levels)}")
        if unknown := [level for level in wanted if str(level) not in levels[factor]]:
            choices = ", ".join(sorted(levels[factor]))
            raise Problem(
                f"{where}: only.{factor}: {_format_value(unknown[0])} is not a level of {factor}; known: {choices}"
            )
