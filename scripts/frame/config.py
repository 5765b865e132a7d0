"""A run's configuration: read, checked against the schema, and complete with its defaults."""

import contextlib
import difflib
import json
import math
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema

from scripts.frame import study as studies
from scripts.frame import yaml_file
from scripts.lib.program import Problem, read_yaml

SCHEMAS = Path("config/schema")
# Signs that end a line or a name somewhere on their way, or cannot be written. A pattern's $ lets a last \n pass.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# A rule's command carries the configuration as JSON, and Linux takes 128 KiB of one argument.
_MOST_JSON = 100_000


@cache
def schema() -> dict:
    """Return the schema of a configuration, read once: that of a run, with that of `stores` and of each study in it."""
    whole = _part("run")
    for name in ("stores", *studies.names()):
        part = _part(name)
        whole["$defs"] |= part.pop("$defs")
        of_studies = whole["properties"]["studies"].setdefault("properties", {})
        (whole["properties"] if name == "stores" else of_studies)[name] = part
    # What an editor, which does not compose them, must let pass.
    for part in (whole, whole["properties"]["studies"]):
        part["additionalProperties"] = False
    return whole


def _part(name: str) -> dict:
    part = read_yaml(SCHEMAS / f"{name}.yaml")
    return {key: value for key, value in part.items() if key != "$schema"}


def resolve(config: dict, files: list[Path] | list[str]) -> dict:
    """Return a configuration with every default filled in, and addresses without a slash at their end.

    `files` say where it came from: to name the place of a mistake, and to see what YAML made of a level.

    Raises:
        Problem: one line that names the file, the key, and what is wrong with it.
    """
    for file in files:
        yaml_file.check(Path(file))
    return _complete(config, named(files))


def load(file: Path | str, changes: dict | None = None) -> dict:
    """Return the resolved configuration in `file` (see `resolve`), with these keys instead of its own."""
    return _complete(yaml_file.read(Path(file)) | (changes or {}), named([file]))


def named(files: list) -> str:
    """Return what stands before a mistake: the files of the configuration."""
    return ", ".join(map(str, files)) or "the configuration"


def expect_plain(config: dict, where: str) -> None:
    """See that a configuration has only texts and numbers that can go through files and commands, and not too many.

    Raises:
        Problem: one of them cannot; `where` names its place.
    """
    for place, value in _within(config):
        if isinstance(value, str) and (control := _CONTROL.search(value)):
            raise Problem(f"{where}: {place}: {_shown(value)} has the control character {control[0]!r}; leave it out")
        if isinstance(value, str) and len(value) > yaml_file.LONGEST_TEXT:
            raise Problem(
                f"{where}: {place}: a text has at most {yaml_file.LONGEST_TEXT:,} characters, this one {len(value):,}"
            )
        if isinstance(value, int) and value.bit_length() > 63:
            raise Problem(f"{where}: {place}: a number has at most 63 bits, this one {value.bit_length():,}")
    if len(json.dumps(config, default=str, skipkeys=True)) > _MOST_JSON:
        raise Problem(
            f"{where}: has more than {_MOST_JSON:,} characters as JSON, which is more than a command can carry;"
            " measure in several runs, and name folders or patterns instead of files"
        )


def factors(study: str) -> dict[str, dict]:
    """Return the factors of a study in their order, each with its part of the schema."""
    return schema()["$defs"][f"{study}_matrix"]["properties"]


def is_series(study: str) -> bool:
    """Return whether the cells of a study are measured in the order of its matrix, since one influences the next."""
    return schema()["$defs"][f"{study}_matrix"].get("x-series", False)


def _complete(config: dict, where: str) -> dict:
    rules = schema()
    expect_plain(config, where)
    complete = deepcopy(config)
    _fill_defaults(complete, rules, rules)
    # Errors within one of several variants come last: the others are easier to act on.
    errors = sorted(
        _validator().iter_errors(complete),
        key=lambda error: (error.validator in ("oneOf", "anyOf"), [str(step) for step in error.absolute_path]),
    )
    if errors:
        raise Problem(f"{where}: {_explain(_deepest(errors[0]), rules)}")
    for name, store in complete["stores"].items():
        for key in _addresses(store, rules):
            store[key] = store[key].removesuffix("/")
            if not _is_address(store[key]):
                raise Problem(f"{where}: stores.{name}.{key} has no host, or a port that is none; write 1 to 65535")
    _check_names(complete, rules, where)
    return complete


def _within(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield (place, value) of all keys and values within a value that are neither a list nor a mapping."""
    if isinstance(value, dict):
        for key, child in value.items():
            within = f"{place}.{_shown(key)[1:-1]}".lstrip(".")
            yield within, key
            yield from _within(child, within)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _within(child, f"{place}[{index}]")
    else:
        yield place, value


def _addresses(store: dict, rules: dict) -> list[str]:
    """Return the keys of a store that hold an address: those for which the schema says where credentials stand."""
    variants = rules["properties"]["stores"]["additionalProperties"]["oneOf"]
    keys = next(one["properties"] for one in variants if _kind(one) == store["kind"])
    return [key for key in store if "x-credentials" in _follow(keys[key], rules)]


def _is_address(text: str) -> bool:
    """Return whether the host of an address can be one, and its port, where it has one."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0
    return False


def _shown(value: object) -> str:
    """Return a value of the configuration for a message, of a long one its begin."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


@cache
def _validator() -> jsonschema.protocols.Validator:
    """Return the schema's validator, for which 6.0 is no integer, and what is not finite no number.

    It does not compare each entry of a list with each, as the library does where they are not of one type.
    """

    def is_integer(_, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(_, value: object) -> bool:
        return is_integer(_, value) or (isinstance(value, float) and math.isfinite(value))

    def unique(_, wanted: bool, value: object, part: dict) -> Iterator[jsonschema.ValidationError]:
        if wanted and isinstance(value, list) and len(set(map(repr, value))) < len(value):
            yield jsonschema.ValidationError(f"{value!r} has non-unique elements")

    plain = jsonschema.Draft202012Validator
    types = plain.TYPE_CHECKER.redefine_many({"integer": is_integer, "number": is_number})
    return jsonschema.validators.extend(plain, {"uniqueItems": unique}, type_checker=types)(schema())


def _follow(node: dict, root: dict) -> dict:
    while "$ref" in node:
        target = root
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def _fill_defaults(value: object, node: dict, root: dict) -> None:
    node = _follow(node, root)
    if not isinstance(value, dict):
        return
    properties = dict(node.get("properties", {}))
    for variant in node.get("oneOf", []):
        if _kind(variant) is not None and _kind(variant) == value.get("kind"):
            properties.update(variant["properties"])
    for key, child in properties.items():
        child = _follow(child, root)
        if key not in value and "default" in child:
            value[key] = deepcopy(child["default"])
        if key in value:
            _fill_defaults(value[key], child, root)
    if isinstance(node.get("additionalProperties"), dict):
        for key in value.keys() - properties.keys():
            _fill_defaults(value[key], node["additionalProperties"], root)


def _kind(variant: dict) -> str | None:
    return variant.get("properties", {}).get("kind", {}).get("const")


def _deepest(error: jsonschema.ValidationError) -> jsonschema.ValidationError:
    """Follow an error of `oneOf`/`anyOf` into the variant that was meant: the one that fits best."""
    while error.context:
        kind = error.instance.get("kind") if isinstance(error.instance, dict) else None
        branches: dict[int, list[jsonschema.ValidationError]] = {}
        for child in error.context:
            branches.setdefault(child.schema_path[0], []).append(child)
        meant = [index for index in branches if kind is not None and _kind(error.validator_value[index]) == kind]
        best = branches[meant[0]] if meant else max(branches.values(), key=_depth)
        chosen = max(best, key=lambda child: (len(child.absolute_path), child.validator == "additionalProperties"))
        if not meant and chosen.validator == "type" and len(chosen.path) == 0:
            return error
        error = chosen
    return error


def _depth(errors: list[jsonschema.ValidationError]) -> int:
    return max(len(error.absolute_path) + (error.validator not in ("type", "const")) for error in errors)


def _explain(error: jsonschema.ValidationError, root: dict) -> str:
    place = ""
    for step in error.absolute_path:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    place = place.lstrip(".") or "the file"
    schema_of, value = _follow(error.schema, root), error.instance
    described = _description(error, root)
    if variables := schema_of.get("x-credentials"):
        # What is wrong with it may be that it holds a password.
        return f"{place} is not understood{described}; credentials stand in the environment, as {variables}, never here"
    match error.validator:
        case "additionalProperties":
            keys = list(error.schema.get("properties", {}))
            unknown = next(key for key in value if key not in keys)
            near = difflib.get_close_matches(str(unknown), keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(keys)}"
            return f"{'' if place == 'the file' else f'{place}.'}{unknown}: unknown key; {hint}"
        case "required":
            missing = next(key for key in error.validator_value if key not in value)
            return f"{place}: {missing} is missing"
        case "dependentRequired":
            needs = ((key, other) for key, others in error.validator_value.items() for other in others if key in value)
            key, missing = next((key, other) for key, other in needs if other not in value)
            meaning = _follow(schema_of["properties"][missing], root)
            return f"{place}: {key} needs {missing} beside it{_in_parentheses(meaning.get('description', ''))}"
        case "enum":
            return f"{place}: {_shown(value)} is none of {', '.join(map(str, error.validator_value))}"
        case "type":
            wanted = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
            return f"{place}: {_shown(value)} is not of type {' or '.join(wanted)}{_instead(value, wanted)}{described}"
        case "pattern" | "anyOf" | "oneOf":
            return f"{place}: {_shown(value)} is not understood{_instead(value, ['integer'])}{described}"
        case "not" if isinstance(value, dict):
            return f"{place}: {' and '.join(error.validator_value['required'])} exclude each other; drop one"
        case "not":
            return f"{place}: {_shown(value)} is taken; choose another name"
        case _:
            return f"{place}: {_shown(value)}{error.message.removeprefix(repr(value))}{described}"


def _instead(value: object, wanted: list[str]) -> str:
    """Return what to write instead of a value of the wrong type, where that can be said."""
    if isinstance(value, float) and value.is_integer() and "integer" in wanted:
        return f"; write {value:.0f}"
    return "; quote it" if "string" in wanted and not isinstance(value, (dict, list)) else ""


def _description(error: jsonschema.ValidationError, root: dict) -> str:
    """Return the description nearest to an error, in parentheses: levels have that of their factor."""
    node, description = root, ""
    for step in error.absolute_schema_path:
        node = node if step == "$ref" else node[step]
        if isinstance(node, dict):
            node = _follow(node, root)
            description = node.get("description", description)
    return _in_parentheses(description)


def _in_parentheses(description: str) -> str:
    return f" ({description.rstrip('.')})" if description else ""


def _check_names(config: dict, rules: dict, where: str) -> None:
    """Every library, store, file, factor and baseline that is named must exist."""
    for name, library in config["libraries"].items():
        if library["kind"] == "conda" and not Path(f"envs/{name}.yaml").is_file():
            raise Problem(f"{where}: libraries.{name}: there is no envs/{name}.yaml, from which conda would make it")
    for study, section in config["studies"].items():
        factors = rules["$defs"][f"{study}_matrix"]["properties"]
        for number, mapping in enumerate(studies.mappings(section)):
            for factor, levels in mapping.items():
                if mistake := next(filter(None, (_unknown(level, factors[factor], config) for level in levels)), ""):
                    raise Problem(f"{where}: studies.{study}.matrix[{number}].{factor}: {mistake}")
        for number, comparison in enumerate(section["compare"]):
            factor, baseline = comparison["factor"], comparison["baseline"]
            place = f"studies.{study}.compare[{number}]"
            if factor not in factors:
                raise Problem(f"{where}: {place}.factor: {factor!r} is no factor of {study}: {', '.join(factors)}")
            levels = {str(level) for mapping in studies.mappings(section) for level in mapping[factor]}
            # The levels of imported results are in their files.
            if str(baseline) not in levels and not section.get("imports"):
                raise Problem(f"{where}: {place}.baseline: {baseline!r} is no level of {factor} in the matrix")
        try:
            mistake = next(studies.of(study).mistakes(config), "")
        except (Problem, OSError) as error:
            # A file that the section names may have one too.
            mistake = f"studies.{study}: {error}"
        if mistake:
            raise Problem(f"{where}: {mistake}")
    check_only(config, where)


def _unknown(level: object, factor: dict, config: dict) -> str:
    """Return what is wrong with a level that is to name a library, a store or a file; "" where nothing is."""
    names, pattern = factor.get("x-names"), factor.get("x-file")
    if names and level not in config[names]:
        return f"{level!r} is not among {names}: {', '.join(config[names])}"
    if pattern and not Path(pattern.format(level)).is_file():
        there = sorted(path.stem for path in Path(pattern).parent.glob(f"*{Path(pattern).suffix}"))
        return f"there is no {pattern.format(level)}: {', '.join(there)}"
    return ""


def check_only(config: dict, where: str) -> None:
    """Refuse an `only` that names no study, factor or level of the configuration; `where` names its place."""
    levels: dict[str, set[str]] = {"study": set(config["studies"])}
    for section in config["studies"].values():
        for mapping in studies.mappings(section):
            for factor, values in mapping.items():
                levels.setdefault(factor, set()).update(map(str, values))
    for factor, wanted in config["only"].items():
        if factor not in levels:
            raise Problem(f"{where}: only.{factor}: no study of this run has this factor; known: {', '.join(levels)}")
        for level in wanted:
            if str(level) not in levels[factor]:
                choices = ", ".join(sorted(levels[factor]))
                raise Problem(f"{where}: only.{factor}: {_shown(level)} is no level of it; known: {choices}")
