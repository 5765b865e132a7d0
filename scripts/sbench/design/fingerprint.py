"""The fingerprint of the software that measured: kept once, referred to by records, and compared (METHOD 14)."""

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

# The factor whose levels are environments: what their specs and locks differ in is varied on purpose.
ENVIRONMENT = "library"
ABSENT = "absent"
_DIGITS = 16
# The hash of a file that is not there any more, or is another one on this machine.
_UNKNOWN = "unknown"


def save_fingerprint(folder: Path, seen: dict, servers: Mapping[str, Popen[str]], environment: dict) -> str | None:
    """Keep what measured a record in `folder`, once, and return what the record refers to it by.

    A file is hashed once for as long as it stays what it is.

    Args:
        folder: the study's own, of the run.
        seen: {"distributions", "files"} as the measuring processes saw them (`sbench.probe.software`).
        servers: the processes of the store's embedded server, by name.
        environment: the artefact of the library under test; `promised` is what its spec and locks say.

    Returns:
        16 hexadecimal digits, the name of the file; None where the artefact is from before it said what it promises.
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
    """See that what a library loads from where it was not built for it is what it was when its artefact was written.

    Raises:
        Problem: a file of it is another one, or gone.
    """
    for imported in environment.get("imported", ()):
        if software.get_identity(_get_path(imported)) != imported:
            raise Problem(
                f"library {environment['library']}: {_get_path(imported)} is not what it was when this run began;"
                " give it another name, so that one run measures one library"
            )


def expect_promised(environment: dict, seen: dict) -> None:
    """Compare versions of a library's user-supplied packages with those that measured, `seen` by `save_fingerprint`.

    Raises:
        Problem: one is another one.
    """
    for package in (environment["build"] or {}).get("added", ()):
        version = seen["distributions"].get(package["name"], "none")
        if version != package["version"]:
            raise Problem(
                f"library {environment['library']} has {package['name']} {version}, not {package['version']} as it was"
                f" built; remove the environment of {environment['python']} and run again"
            )


def read_fingerprint(kept: Kept) -> str:
    """Return the fingerprint that a record refers to as JSON, "" where it has none or its file is not what it was."""
    reference = ((kept.record or {}).get("provenance") or {}).get("software")
    return (
        _read_content(software.get_identity(kept.path.parents[2] / "software" / f"{reference}.json"))
        if reference
        else ""
    )


def read_fingerprints(of_study: Iterable[Kept]) -> dict[str, dict]:
    """Return the fingerprints that the records of a study refer to, by what they are referred to by."""
    texts = {text for one in of_study if (text := read_fingerprint(one))}
    return {_compute_digest(content): content for content in map(json.loads, sorted(texts))}


def compare_environments(base: dict, other: dict) -> dict[str, tuple[str, str]]:
    """Return what the environments of two fingerprints vary on purpose: where their specs and locks differ, by name.

    `copy` is the text for which a library was built once more, in another folder.
    """
    return _compare_values(base["promised"], other["promised"])


def describe_environments(kept: Iterable[Kept], compare: Iterable[dict]) -> list[str]:
    """Return in words what the environments that a study compares vary on purpose, a line for each pair."""
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
    """Return how many records that were measured have no fingerprint."""
    measured = [one for one in kept if one.record and one.record["status"] == "done"]
    count = sum(not read_fingerprint(one) for one in measured)
    line = f"{count} of {len(measured)} records have no fingerprint of the software that measured them"
    return [f"{line}: their arms are compared by measuring code, data and lock alone"] if count else []


@cache
def describe_differences(base: str, other: str, environments: bool) -> tuple[str, ...]:
    """Return in words where two fingerprints, as JSON, differ, apart from what is varied on purpose.

    That is nothing unless the two are of different `environments`. A library or a server counts only where both have
    it: a driver may load one that others have no use for.
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
    """Return both values of each name that they do not have alike, in alphabetical order."""
    values = {name: (base.get(name, ABSENT), other.get(name, ABSENT)) for name in sorted(base | other)}
    return {name: both for name, both in values.items() if both[0] != both[1]}


def _is_part_of(file: str, varied: Iterable[str]) -> bool:
    """Whether a file is part of what is varied: libhdf5_hl of libhdf5, "libaws-c-s3 (h5py-s3)" of h5py-s3.

    Of a library that was built once more (`copy`) all files are.
    """
    library, _, wheel = file.rstrip(")").partition(" (")
    return wheel in varied or library.startswith(("lib",) if "copy" in varied else tuple(varied))


def _list_programs(servers: Mapping[str, Popen[str]]) -> dict[str, str]:
    """Return the identities of the files in the commands of servers: a program, or an interpreter and its script."""
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
