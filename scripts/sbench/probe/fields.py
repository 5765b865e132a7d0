"""Convert settings and other JSON objects to frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def read_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from the keys of a JSON object, and ignore unknown keys.

    A field whose type is a dataclass is built from a nested object. Fields whose keys are missing have their defaults.

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
    """Return the type of each field of a dataclass if that type is itself a dataclass, or else None."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] if is_dataclass(hints[field.name]) else None for field in fields(kind)}
