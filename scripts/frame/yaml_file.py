"""A YAML file, read; what YAML would take silently and make something else of, or without end, is refused."""

import stat
from collections.abc import Iterator
from pathlib import Path

import yaml

from scripts.lib.program import Problem

_MERGE = "tag:yaml.org,2002:merge"
# What is wrong with the text, or with the value of a scalar, such as a date in a 13th month.
_ERRORS = (yaml.YAMLError, ValueError)
LONGEST_TEXT = 1000
# A configuration has a few thousand characters, and six levels. Reading more takes YAML seconds.
_MOST_BYTES = 2**18
_DEEPEST = 32
# What aliases and merges stand for is counted as if it were written out, which takes no file of that size without them.
_MOST_NODES = 2**18


def read(file: Path) -> dict:
    """Return the mapping in a file.

    Raises:
        Problem: it cannot be read, is not YAML, or `check` refuses it.
    """
    check(file)
    try:
        values = yaml.safe_load(_text(file))
    except _ERRORS as error:
        raise _not_yaml(file, error) from error
    if not isinstance(values, dict):
        raise Problem(f"{file} holds no mapping; see config/config.yaml for an example")
    return values


def check(file: Path) -> None:
    """Refuse keys that stand twice, aliases without an end or of very much, and scalars that YAML takes for others.

    `on` is read as true, 010 as 8, 3.10 as 3.1. In JSON text is quoted already.

    Raises:
        Problem: one line with the file, the line, and what is wrong with it.
    """
    text = _text(file)
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        loader = yaml.SafeLoader("")
        for count, (place, one, is_key) in enumerate(_nodes(file, node) if node else ()):
            if count == _MOST_NODES:
                raise Problem(f"{file} has more than {count:,} entries, its aliases written out; use fewer of them")
            if isinstance(one, yaml.ScalarNode) and len(one.value) > LONGEST_TEXT:
                raise Problem(f"{_where(file, one)}: a text or a number has at most {LONGEST_TEXT:,} characters")
            if isinstance(one, yaml.MappingNode):
                _expect_once(file, place, one)
            elif isinstance(one, yaml.ScalarNode) and one.style is None and file.suffix != ".json":
                _expect_as_written(file, place, one, loader.construct_object(one), is_key)
    except RecursionError as error:
        raise _too_deep(file) from error
    except _ERRORS as error:
        raise _not_yaml(file, error) from error


def _text(file: Path) -> str:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem(f"{file} is no plain file; name a file of config/")
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise Problem(f"{file} has more than {_MOST_BYTES // 2**10} KiB, which no configuration has")
        return data.decode("utf-8")
    except OSError as error:
        raise Problem(f"{file} cannot be read: {error.strerror}; name a file of config/") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Problem(f"{file} is not UTF-8 at line {line}; save it in that encoding") from error


def _too_deep(file: Path) -> Problem:
    return Problem(f"{file} is nested deeper than {_DEEPEST} levels, which no configuration is")


def _not_yaml(file: Path, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    words = str(getattr(error, "problem", None) or error).partition("\n")[0]
    return Problem(f"{file} is not YAML{f' at line {mark.line + 1}' if mark else ''}: {words}")


def _where(file: Path, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _nodes(
    file: Path, node: yaml.Node, place: str = "", above: tuple[yaml.Node, ...] = ()
) -> Iterator[tuple[str, yaml.Node, bool]]:
    """Yield (place, node, whether it is a key) of a node and all within it."""
    if len(above) > _DEEPEST:
        raise _too_deep(file)
    if node in above:
        raise Problem(f"{_where(file, node)}: what begins here holds itself through an alias; write it out")
    yield place, node, False
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _nodes(file, child, f"{place}[{index}]", above)
    elif isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "a key"
            within = f"{place}.{name}" if place else name
            if key.tag != _MERGE:
                yield within, key, True
            yield from _nodes(file, child, within, above)


def _expect_once(file: Path, place: str, node: yaml.MappingNode) -> None:
    first: dict[tuple[str, str], yaml.Node] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and first.setdefault((key.tag, key.value), key) is not key:
            name = f"{place}.{key.value}" if place else key.value
            line = first[key.tag, key.value].start_mark.line + 1
            raise Problem(f"{_where(file, key)}: {name} stands here and at line {line}; keep one of them")


def _expect_as_written(file: Path, place: str, node: yaml.ScalarNode, value: object, is_key: bool) -> None:
    text, number = node.value, isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_key:
        mangled = not isinstance(value, str)
    elif isinstance(value, bool):
        mangled = text.lower() not in ("true", "false")
    else:
        # Floats are times and sizes, which lose nothing, but where names, versions and levels stand.
        is_name = place.startswith(("libraries", "only")) or ".matrix" in place
        mangled = number and str(value) != text and (is_name or isinstance(value, int))
    if mangled:
        instead = f", or write {value} where a number is meant" if number and not is_key else ""
        raise Problem(f"{_where(file, node)}: {place}: YAML reads {text} as {value}; quote it{instead}")
