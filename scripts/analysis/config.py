"""A run's configuration: read, checked against the schema, and complete with its defaults."""

import difflib
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path

import jsonschema
import yaml

from scripts import studies
from scripts.lib.program import Problem

SCHEMA = Path("config/schema.yaml")


@cache
def schema() -> dict:
    """Return the schema of a configuration, read once."""
    return yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))


def resolve(config: dict, files: list[Path] | list[str]) -> dict:
    """Return `config` with every default filled in.

    Args:
        config: the configuration as Snakemake or YAML read it.
        files: where it came from, to name the place of a mistake and to see what YAML made of a level.

    Raises:
        Problem: one line that names the file, the key, and what is wrong with it.
    """
    where = ", ".join(str(file) for file in files) or "the configuration"
    for file in files:
        _check_scalars(Path(file))
    rules = schema()
    complete = deepcopy(config)
    _fill_defaults(complete, rules, rules)
    errors = sorted(jsonschema.Draft202012Validator(rules).iter_errors(complete), key=_plain_ones_first)
    if errors:
        raise Problem(f"{where}: {_explain(_deepest(errors[0]), rules)}")
    _check_names(complete, rules, where)
    return complete


def load(file: Path | str) -> dict:
    """Return the resolved configuration in `file` (see `resolve`)."""
    try:
        config = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"{file} cannot be read: {error.strerror}; name a file of config/") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Problem(
            f"{file} is not YAML{f' at line {mark.line + 1}' if mark else ''}: {getattr(error, 'problem', error)}"
        ) from error
    if not isinstance(config, dict):
        raise Problem(f"{file} holds no mapping; see config/config.yaml for an example")
    return resolve(config, [file])


def factors(study: str) -> dict[str, dict]:
    """Return the factors of a study in their order, each with its part of the schema."""
    return schema()["$defs"][f"{study}_matrix"]["properties"]


def mappings(section: dict) -> list[dict]:
    """Return the matrix of a study as a list of mappings; it is empty where a study only imports results."""
    matrix = section.get("matrix", [])
    return matrix if isinstance(matrix, list) else [matrix]


def file_of(pattern: str, name: str) -> dict[str, str]:
    """Return the file that a level or a setting names, {"name", "text"}: its text makes the cell."""
    return {"name": name, "text": Path(pattern.format(name)).read_text(encoding="utf-8")}


def imports(config: dict) -> list[dict]:
    """Return the results from elsewhere that the study volumes imports, each as a mapping with `from`."""
    named = config["studies"]["volumes"]["imports"]
    return [{"from": one} if isinstance(one, str) else one for one in named]


def is_series(study: str) -> bool:
    """Return whether the cells of a study are measured in the order of its matrix, since one influences the next."""
    return schema()["$defs"][f"{study}_matrix"].get("x-series", False)


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
        kind = variant.get("properties", {}).get("kind", {}).get("const")
        if kind is not None and kind == value.get("kind"):
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


def _plain_ones_first(error: jsonschema.ValidationError) -> tuple:
    return error.validator in ("oneOf", "anyOf"), [str(step) for step in error.absolute_path]


def _deepest(error: jsonschema.ValidationError) -> jsonschema.ValidationError:
    """Follow an error of `oneOf`/`anyOf` into the variant that was meant: the one that fits best."""
    while error.context:
        kind = error.instance.get("kind") if isinstance(error.instance, dict) else None
        branches: dict[int, list[jsonschema.ValidationError]] = {}
        for child in error.context:
            branches.setdefault(child.schema_path[0], []).append(child)
        meant = [
            index
            for index in branches
            if kind is not None
            and error.validator_value[index].get("properties", {}).get("kind", {}).get("const") == kind
        ]
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
    place = place.lstrip(".")
    told = _follow(error.schema, root).get("description", "")
    match error.validator:
        case "additionalProperties":
            known = list(error.schema.get("properties", {}))
            unknown = next(key for key in error.instance if key not in known)
            near = difflib.get_close_matches(str(unknown), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            return f"{f'{place}.' if place else ''}{unknown}: unknown key; {hint}"
        case "required":
            missing = next(key for key in error.validator_value if key not in error.instance)
            return f"{place or 'the file'}: {missing} is missing"
        case "enum":
            return f"{place}: {error.instance!r} is none of {', '.join(map(str, error.validator_value))}"
        case "type":
            wanted = error.validator_value
            quote = "; quote it" if wanted == "string" and not isinstance(error.instance, (dict, list)) else ""
            wanted = " or ".join([wanted] if isinstance(wanted, str) else wanted)
            return f"{place}: {error.instance!r} is not of type {wanted}{quote}{_told(told)}"
        case "pattern" | "anyOf" | "oneOf":
            return f"{place}: {error.instance!r} is not understood{_told(told)}"
        case "not" if isinstance(error.instance, dict):
            return f"{place}: {' and '.join(error.validator_value['required'])} exclude each other; drop one"
        case "not":
            return f"{place}: {error.instance!r} is taken; choose another name"
        case _:
            return f"{place or 'the file'}: {error.message}{_told(told)}"


def _told(description: str) -> str:
    return f" ({description.rstrip('.')})" if description else ""


def _check_names(config: dict, rules: dict, where: str) -> None:
    """Every library, store, file, factor and baseline that a study names must exist."""
    for study, section in config["studies"].items():
        known = rules["$defs"][f"{study}_matrix"]["properties"]
        for number, mapping in enumerate(mappings(section)):
            for factor, levels in mapping.items():
                names = known[factor].get("x-names")
                for level in levels if names else []:
                    if level not in config[names]:
                        place = f"studies.{study}.matrix[{number}].{factor}"
                        raise Problem(f"{where}: {place}: {level!r} is not among {names}: {', '.join(config[names])}")
                pattern = known[factor].get("x-file")
                for level in levels if pattern else []:
                    if not Path(pattern.format(level)).is_file():
                        place = f"studies.{study}.matrix[{number}].{factor}"
                        there = sorted(path.stem for path in Path(pattern).parent.glob(f"*{Path(pattern).suffix}"))
                        raise Problem(f"{where}: {place}: there is no {pattern.format(level)}: {', '.join(there)}")
        for number, comparison in enumerate(section["compare"]):
            factor, baseline = comparison["factor"], comparison["baseline"]
            place = f"studies.{study}.compare[{number}]"
            if factor not in known:
                raise Problem(f"{where}: {place}.factor: {factor!r} is no factor of {study}: {', '.join(known)}")
            levels = [level for mapping in mappings(section) for level in mapping[factor]]
            # The levels of imported results are in their files.
            if baseline not in levels and not section.get("imports"):
                raise Problem(f"{where}: {place}.baseline: {baseline!r} is no level of {factor} in the matrix")
        for mistake in studies.of(study).mistakes(config):
            raise Problem(f"{where}: {mistake}")
    check_only(config, where)


def check_only(config: dict, where: str) -> None:
    """Refuse an `only` that names no study, factor or level of the configuration; `where` names its place."""
    levels: dict[str, set[str]] = {"study": set(config["studies"])}
    for section in config["studies"].values():
        for mapping in mappings(section):
            for factor, values in mapping.items():
                levels.setdefault(factor, set()).update(map(str, values))
    for factor, wanted in config["only"].items():
        if factor not in levels:
            raise Problem(f"{where}: only.{factor}: no study of this run has this factor; known: {', '.join(levels)}")
        for level in wanted:
            if str(level) not in levels[factor]:
                raise Problem(
                    f"{where}: only.{factor}: {level!r} is no level of it; known: {', '.join(sorted(levels[factor]))}"
                )


def _check_scalars(file: Path) -> None:
    """Refuse levels that YAML reads as something else than what stands there (`on` as true, 010 as 8, 3.10 as 3.1)."""
    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError):
        return
    if file.suffix == ".json" or node is None:
        return
    loader = yaml.SafeLoader(text)
    try:
        for place, scalar in _scalars(node, ""):
            if scalar.style is not None:
                continue
            value = loader.construct_object(scalar)
            mangled = (isinstance(value, bool) and scalar.value.lower() not in ("true", "false")) or (
                isinstance(value, int) and not isinstance(value, bool) and str(value) != scalar.value
            )
            in_matrix = ".matrix" in place or place.startswith((".libraries", ".only"))
            if mangled or (in_matrix and isinstance(value, float)):
                line = scalar.start_mark.line + 1
                raise Problem(f"{file}:{line}: {place.lstrip('.')}: YAML reads {scalar.value} as {value}; quote it")
    finally:
        loader.dispose()


def _scalars(node: yaml.Node, place: str) -> Iterator[tuple[str, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield place, node
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _scalars(child, f"{place}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            yield from _scalars(child, f"{place}.{key.value}")
            if isinstance(key, yaml.ScalarNode):
                yield f"{place}.{key.value}", key
