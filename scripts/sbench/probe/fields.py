"""Read settings and other JSON objects into frozen dataclasses, at both ends of a pipe."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def read_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass with the fields that a JSON object has; ignore other keys.

    A field whose type is a dataclass is read from a nested object. Missing keys take their defaults.

    Raises:
        TypeError: a field without a default is missing.
    """
    parts = _list_parts(kind)
    return kind(
        **{
            name: read_fields(part, values[name]) if part else values[name]
            for name, part in parts.items()
            if name in values
        }
    )


@cache
def _list_parts(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass, each with its type if that is a dataclass, else None."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] if is_dataclass(hints[field.name]) else None for field in fields(kind)}
