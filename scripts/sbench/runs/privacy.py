"""Anonymise metadata of runs: replace host names, IDs, paths and addresses with short hashes.

Different values have different hashes, so that different machines, folders and endpoints remain distinguishable.
"""

import hashlib
import re
from collections.abc import Mapping

# Keys whose values identify a machine are hashed. The boot ID is dropped, because the session implies it.
_HIDDEN, _DROPPED = ("node", "instance", "device", "mount_point", "host_id"), ("boot", "boot_id")
_IDS = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESSES = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'|,;]+", re.IGNORECASE)
_PATHS = re.compile(r"(?<![\w./:~-])(?:~[\w-]*|\.\.|)/[^\s\"'|,;/][^\s\"'|,;]*")
# Server names in mount options, as in addr=10.0.0.5.
_SERVERS = re.compile(r"(?<=addr=)[^\s,]+")
_DIGITS = 8


def hide_identities(value: object, key: str = "") -> object:
    """Return a JSON value with machine names, IDs, absolute paths and addresses replaced by hashes.

    Args:
        value: JSON value; mappings and lists are processed recursively.
        key: key of the value in its mapping; values of some keys are hashed as a whole.
    """
    if isinstance(value, Mapping):
        return {name: hide_identities(inner, name) for name, inner in value.items() if name not in _DROPPED}
    if isinstance(value, list):
        return [hide_identities(inner, key) for inner in value]
    if not isinstance(value, str):
        return value
    if key in _HIDDEN:
        return _hash_text(key, value)
    for what, pattern in (("address", _ADDRESSES), ("path", _PATHS), ("id", _IDS), ("server", _SERVERS)):
        value = pattern.sub(lambda match, what=what: _hash_text(what, match[0]), value)
    return value


def _hash_text(what: str, text: str) -> str:
    """Replace a text by a short hash that is preceded by `what`; return it unchanged if it already has this form."""
    if re.fullmatch(rf"{what} [0-9a-f]{{{_DIGITS}}}", text):
        return text
    return f"{what} {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"
