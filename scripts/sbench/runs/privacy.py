"""Hide a machine and its users in the facts of runs: names, ids, paths and addresses become short hashes.

Different values have different hashes, so runs of other machines, folders and endpoints stay distinct.
"""

import hashlib
import re
from collections.abc import Mapping

# Keys that name a machine, to hash, or a boot, to drop, because it adds nothing to the session.
_HIDDEN, _DROPPED = ("node", "instance", "device", "mount_point"), ("boot",)
_IDS = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESSES = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'|,;]+", re.IGNORECASE)
_PATHS = re.compile(r"(?<![\w./:~-])(?:~[\w-]*|\.\.|)/[^\s\"'|,;/][^\s\"'|,;]*")
# Options of a mount that name a server, as addr=10.0.0.5.
_SERVERS = re.compile(r"(?<=addr=)[^\s,]+")
_DIGITS = 8


def hide_identities(value: object, key: str = "") -> object:
    """Return facts (JSON) without names of machines, ids, absolute paths and addresses."""
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
    """Return a hash for a text; keep a text that already is such a hash."""
    if re.fullmatch(rf"{what} [0-9a-f]{{{_DIGITS}}}", text):
        return text
    return f"{what} {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"
