"""Convert settings and other JSON objects to frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def read_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass instance from a JSON object, ignoring unknown keys.

    A field whose type is a dataclass is built from a nested object. Missing keys leave fields at their defaults.

    Raises:
        TypeError: the key of a field without a default is missing.
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
    """Map each field of a dataclass to its type if that is a dataclass too, or else to None."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] if is_dataclass(hints[field.name]) else None for field in fields(kind)}
