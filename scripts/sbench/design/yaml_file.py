"""Read YAML files, and reject content that YAML would silently change or expand without limit."""

import stat
from collections.abc import Iterator
from pathlib import Path

import yaml

from sbench.probe.program import Problem, shorten_name

_MERGE = "tag:yaml.org,2002:merge"
# A typical configuration has a few thousand characters and six levels. Much larger files take seconds to parse.
_MOST_BYTES = 2**18
_DEEPEST = 32
_LONGEST_TEXT = 1000
# The limit includes expanded aliases and merges. A file of `_MOST_BYTES` without any cannot exceed it.
_MOST_NODES = 2**18
_TOO_DEEP = f"must have at most {_DEEPEST} levels of nesting, and no alias to itself"


def read_mapping(file: Path) -> dict:
    """Read a YAML or JSON file that contains a mapping.

    Reject repeated keys, recursive or huge aliases, and unquoted scalars that YAML converts to unexpected values, such
    as `on` (true), 010 (8) and 3.10 (3.1). The last check is skipped for JSON, whose strings are always quoted.

    Raises:
        Problem: the file is invalid; the message is one line with the file, the line number if known, and the mistake.
    """
    text = _read_text(file)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        for count, (place, part, is_key) in enumerate(_walk_nodes(file, node) if node else ()):
            if count == _MOST_NODES:
                raise Problem(f"{file} must have at most {count:,} entries with expanded aliases; use fewer of them")
            if isinstance(part, yaml.MappingNode):
                _expect_once(file, place, part)
            elif isinstance(part, yaml.ScalarNode) and len(part.value) > _LONGEST_TEXT:
                raise Problem(f"{_format_place(file, part)}: a value must have at most {_LONGEST_TEXT:,} characters")
            elif isinstance(part, yaml.ScalarNode):
                value = _construct_scalar(file, place, part, loader)
                if part.style is None and file.suffix != ".json":
                    _expect_as_written(file, place, part, value, is_key)
        values = loader.construct_document(node) if node else None
    except RecursionError as error:
        raise Problem(f"{file} {_TOO_DEEP}") from error
    # The syntax or a scalar is invalid, such as a date with month 13.
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        words = str(getattr(error, "problem", None) or error).partition("\n")[0]
        raise Problem(f"{file} is not valid YAML{f' (line {mark.line + 1})' if mark else ''}: {words}") from error
    if not isinstance(values, dict):
        raise Problem(f"{file} must contain a mapping, with lines such as name: value")
    return values


def _read_text(file: Path) -> str:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem(f"{file} is not a regular file; name another file")
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise Problem(f"{file} must have at most {_MOST_BYTES // 2**10} KiB; split it into several runs")
        return data.decode("utf-8")
    except OSError as error:
        raise Problem(f"{file} cannot be read: {error.strerror}; name another file") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Problem(f"{file} is not UTF-8 at line {line}; save it as UTF-8") from error


def _format_place(file: Path, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _walk_nodes(file: Path, node: yaml.Node, place: str = "", depth: int = 0) -> Iterator[tuple[str, yaml.Node, bool]]:
    """Yield (dotted path, node, whether the node is a key) for a node and all its descendants."""
    if depth > _DEEPEST:
        raise Problem(f"{_format_place(file, node)}: this value {_TOO_DEEP}")
    yield place, node, False
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk_nodes(file, child, f"{place}[{index}]", depth + 1)
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key"
            within = f"{place}.{name}" if place else name
            if key.tag != _MERGE:
                yield within, key, True
            yield from _walk_nodes(file, child, within, depth + 1)


def _expect_once(file: Path, place: str, node: yaml.MappingNode) -> None:
    first: dict[tuple[str, str], yaml.Node] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and first.setdefault((key.tag, key.value), key) is not key:
            name = f"{place}.{key.value}" if place else key.value
            line = first[key.tag, key.value].start_mark.line + 1
            raise Problem(f"{_format_place(file, key)}: {name} repeats the key of line {line}; keep one of them")


def _construct_scalar(file: Path, place: str, node: yaml.ScalarNode, loader: yaml.SafeLoader) -> object:
    try:
        return loader.construct_object(node)
    except (ArithmeticError, AttributeError, LookupError) as error:
        # PyYAML does not check whether a value has the form of a type that is named, as by !!timestamp.
        words = f"YAML cannot read {shorten_name(node.value)!r} as {node.tag.rpartition(':')[2]}"
        raise Problem(f"{_format_place(file, node)}: {place}: {words}; correct it, or quote it") from error


def _expect_as_written(file: Path, place: str, node: yaml.ScalarNode, value: object, is_key: bool) -> None:
    text, number = node.value, isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_key:
        mangled = not isinstance(value, str)
    elif isinstance(value, bool):
        mangled = text.lower() not in ("true", "false")
    else:
        # A float is usually a time or a size, for which 3.10 means 3.1. Only names, versions and levels must be exact.
        is_name = place.startswith(("libraries", "only")) or ".matrix" in place
        mangled = number and str(value) != text and (is_name or isinstance(value, int))
    if mangled:
        instead = f", or write {value} for a number" if number and not is_key else ""
        raise Problem(f"{_format_place(file, node)}: {place}: YAML reads {text} as {value}; quote it{instead}")
