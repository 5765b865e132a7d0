"""Store, look up and compare fingerprints of the measuring software: package versions and file hashes (METHOD 14)."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from subprocess import Popen

from sbench.design.records import Kept
from sbench.probe import software
from sbench.probe.program import Problem, compute_file_digest, read_json, write_json

# The factor whose levels are environments. Differences between their specs and lock files are deliberate.
ENVIRONMENT = "library"
ABSENT = "absent"
_DIGITS = 16
# Stands for the hash of a file that is missing or different on this machine.
_UNKNOWN = "unknown"


def save_fingerprint(folder: Path, seen: dict, servers: Mapping[str, Popen[str]], environment: dict) -> str | None:
    """Store the fingerprint of the measuring software, unless it is already stored, and return its reference.

    The hashes of unchanged files are read from a cache.

    Args:
        folder: the study's `software` folder in the run.
        seen: {"distributions", "files"} that the measuring processes loaded (see `sbench.probe.software`).
        servers: the processes of the store's embedded server, by name.
        environment: the artefact of the library under test; `promised` lists the entries of its spec and lock files.

    Returns:
        The name of the fingerprint's file, 16 hexadecimal digits; None if the artefact is from an earlier version and
        lacks `promised`.
    """
    if "promised" not in environment:
        return None
    identities = seen["files"] | _list_programs(servers)
    memo, hashes = folder / "hashes.json", {}
    with contextlib.suppress(Problem):
        hashes = read_json(memo)
    if new := {one: _compute_hash(one) for one in identities.values() if one not in hashes}:
        hashes |= new
        write_json(memo, hashes)
    files = {name: hashes[one] for name, one in identities.items()}
    content = {"distributions": seen["distributions"], "files": files, "promised": environment["promised"]}
    path = folder / f"{_compute_digest(content)}.json"
    if not path.exists():
        write_json(path, content)
    return path.stem


def expect_unchanged(environment: dict) -> None:
    """Check that the files that a library imports from outside its environment have not changed since the run began.

    Raises:
        Problem: a file has changed or is missing.
    """
    for imported in environment.get("imported", ()):
        if software.get_identity(_get_path(imported)) != imported:
            raise Problem(
                f"library {environment['library']}: {_get_path(imported)} has changed since this run began;"
                " give the library another name, so that all its records measure the same files"
            )


def expect_promised(environment: dict, seen: dict) -> None:
    """Check that user-supplied packages were loaded in the versions that the environment was built with.

    `seen` is the same as in `save_fingerprint`.

    Raises:
        Problem: a version differs.
    """
    for package in (environment["build"] or {}).get("added", ()):
        version = seen["distributions"].get(package["name"], "none")
        if version != package["version"]:
            raise Problem(
                f"library {environment['library']} has {package['name']} {version}, but was built with"
                f" {package['version']}; remove the environment of {environment['python']} and run again"
            )


def read_fingerprint(kept: Kept) -> str:
    """Return the JSON text of the fingerprint that a record refers to.

    The result is an empty string if the record lacks a reference, or if the file is missing, unreadable or changed.
    """
    reference = ((kept.record or {}).get("provenance") or {}).get("software")
    return (
        _read_content(software.get_identity(kept.path.parents[2] / "software" / f"{reference}.json"))
        if reference
        else ""
    )


def read_fingerprints(of_study: Iterable[Kept]) -> dict[str, dict]:
    """Return all fingerprints that a study's records refer to: reference -> fingerprint."""
    texts = {text for one in of_study if (text := read_fingerprint(one))}
    return {_compute_digest(content): content for content in map(json.loads, sorted(texts))}


def compare_environments(base: dict, other: dict) -> dict[str, tuple[str, str]]:
    """Return the deliberate differences between two environments, those in their specs and lock files.

    Returns:
        Name of the entry -> its two values. An entry `copy` means that one environment is another build of the same
        library.
    """
    return _compare_values(base["promised"], other["promised"])


def describe_environments(kept: Iterable[Kept], compare: Iterable[dict]) -> list[str]:
    """Describe the deliberate differences between the environments that a study compares, in one line for each pair."""
    newest = {one.levels.get(ENVIRONMENT, ""): json.loads(text) for one in kept if (text := read_fingerprint(one))}
    baselines = [str(entry["baseline"]) for entry in compare if entry["factor"] == ENVIRONMENT]
    pairs = [(base, other) for base in baselines if base in newest for other in newest if other != base]
    varied = {pair: compare_environments(*(newest[name] for name in pair)) for pair in pairs}
    return [
        f"Libraries {base} and {other} differ on purpose in "
        + ("; ".join(f"{name} {a} and {b}" for name, (a, b) in varied[base, other].items()) or "nothing")
        for base, other in pairs
    ]


def describe_unseen_records(kept: Iterable[Kept]) -> list[str]:
    """Return a line that counts the measured records without a fingerprint; an empty list if all have it."""
    measured = [one for one in kept if one.record and one.record["status"] == "done"]
    count = sum(not read_fingerprint(one) for one in measured)
    line = f"{count} of {len(measured)} records lack a fingerprint of the measuring software"
    return [f"{line}: checks of their arms cover only measuring code, data and lock"] if count else []


@cache
def describe_differences(base: str, other: str, environments: bool) -> tuple[str, ...]:
    """Describe the unintended differences between two fingerprints.

    A file counts only if it is in both fingerprints, because some drivers load shared libraries that others do not use.

    Args:
        base: the JSON text of a fingerprint.
        other: the JSON text of the fingerprint to compare with `base`.
        environments: whether the fingerprints are of two different environments. Only then can they have deliberate
            differences, which are left out.

    Returns:
        A text for each difference, with the name and both versions or hashes.
    """
    one, two = json.loads(base), json.loads(other)
    varied = compare_environments(one, two) if environments else {}
    versions = _compare_values(one["distributions"], two["distributions"])
    hashes = _compare_values(one["files"], two["files"])
    apart = (name for name, both in hashes.items() if ABSENT not in both and not _is_part_of(name, varied))
    return (
        *(f"{name} {a} and {b}" for name, (a, b) in versions.items() if name not in varied),
        *(f"{name} {hashes[name][0][:8]} and {hashes[name][1][:8]}" for name in apart),
    )


def _compare_values(base: dict[str, str], other: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return name -> (value in `base`, value in `other`) for all names whose values differ, in alphabetical order."""
    values = {name: (base.get(name, ABSENT), other.get(name, ABSENT)) for name in sorted(base | other)}
    return {name: both for name, both in values.items() if both[0] != both[1]}


def _is_part_of(file: str, varied: Iterable[str]) -> bool:
    """Return whether a file belongs to one of the packages in `varied`, which differ on purpose.

    For example, libhdf5_hl belongs to libhdf5, and "libaws-c-s3 (h5py-s3)" belongs to h5py-s3. If `varied` contains
    `copy` (the library was built again), all shared libraries belong to it.
    """
    library, _, wheel = file.rstrip(")").partition(" (")
    return wheel in varied or library.startswith(("lib",) if "copy" in varied else tuple(varied))


def _list_programs(servers: Mapping[str, Popen[str]]) -> dict[str, str]:
    """Return the identities of all files in the servers' commands: programs, or interpreters and their scripts."""
    commands = ((name, process.args) for name, process in servers.items() if isinstance(process.args, list))
    files = ((name, Path(word)) for name, command in commands for word in command if Path(word).is_file())
    return {name if name == path.name else f"{name} {path.name}": software.get_identity(path) for name, path in files}


def _compute_hash(identity: str) -> str:
    path = _get_path(identity)
    with contextlib.suppress(Problem):
        if software.get_identity(path) == identity:
            return compute_file_digest(path)
    return _UNKNOWN


@cache
def _read_content(identity: str) -> str:
    path = _get_path(identity)
    with contextlib.suppress(Problem):
        if _compute_digest(content := read_json(path)) == path.stem:
            return json.dumps(content, sort_keys=True)
    return ""


def _get_path(identity: str) -> Path:
    return Path(identity.split(" ", 3)[3])


def _compute_digest(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGITS]
