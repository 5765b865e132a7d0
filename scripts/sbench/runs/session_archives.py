"""Fetch the archives of sessions from a folder or a bucket, check each, and select those that can be compared.

An archive is refused if its content differs from its digests, if its name does not fit its content, or if it differs
from the others in its configuration or measuring code. Digests detect damage, mistakes and simple edits. They are not
signatures: who changes a time and computes all digests again is not detected.
"""

import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sbench.design import config as configuration
from sbench.design import matrix as matrices
from sbench.design import records
from sbench.measure import gather, tables
from sbench.probe.program import MALFORMED, Problem, compute_file_digest, read_json
from sbench.runs import archive

IN_BUCKET = "s3://"
_REMEDY = "get the archive again"
# Facts that the page of a comparison shows.
_SHOWN_FACTS = ("libraries", "machine", "software")
_SHOWN = 3


@dataclass(frozen=True)
class Part:
    """A study of a session.

    Attributes:
        matrix: the table from `tables.read_matrix`, without cells that could not be read.
        runs: the table from `tables.build_runs_and_samples`.
        facts: the metadata of facts.json.
    """

    matrix: pd.DataFrame
    runs: pd.DataFrame
    facts: dict


@dataclass(frozen=True)
class Session:
    """A session, from an archive that passed all checks.

    Attributes:
        name: permanent name, which is the name of the archive.
        where: path or address of the archive.
        host_id, boot_id: short hashes of the host's identity and of its boot.
        started: start of the first session of the run.
        config: resolved configuration, without the name of the run.
        code: hash of the measuring code.
        parts: study -> its results.
        marks: an identification of each record, to detect copies.
    """

    name: str
    where: str
    host_id: str
    boot_id: str
    started: str
    config: dict
    code: str
    parts: dict[str, Part]
    marks: frozenset[tuple]

    @property
    def kind(self) -> str:
        """A digest of everything that must be equal in all sessions."""
        cells = {study: sorted(part.facts["cells"]) for study, part in self.parts.items()}
        return matrices.compute_digest([self.config, self.code, cells])


def load_sessions(place: str) -> tuple[list[Session], list[str]]:
    """Load the sessions whose archives are in a folder or below a prefix of a bucket.

    Args:
        place: path of the folder, or s3://bucket/prefix.

    Returns:
        the sessions of one configuration and measuring code in the order of their start; and a line for each refused
            archive with the reason.

    Raises:
        Problem: the place has no archives or cannot be read, or as many archives have one configuration as another.
    """
    sessions: list[Session] = []
    refused: list[str] = []
    with fetch_archives(place) as archives:
        for where, path in archives:
            try:
                sessions.append(read_session(path, where))
            except Problem as problem:
                refused.append(str(problem).replace(str(path), where))
            except MALFORMED as error:
                refused.append(f"{where} is damaged ({type(error).__name__}: {error}); {_REMEDY}")
    sessions, copies = _remove_copies(sessions)
    refused += copies
    if not sessions:
        raise Problem(f"no archive of {place} can be used: all {len(refused)} were refused, such as {refused[0]}")
    kinds = Counter(session.kind for session in sessions).most_common(2)
    if len(kinds) == 2 and kinds[0][1] == kinds[1][1]:
        one, other = (next(of for of in sessions if of.kind == kind) for kind, _ in kinds)
        raise Problem(f"{other.where}: {_describe_difference(one, other)} {one.where}, and as often; separate them")
    usual = [session for session in sessions if session.kind == kinds[0][0]]
    others = [session for session in sessions if session not in usual]
    refused += [
        f"{other.where}: {_describe_difference(usual[0], other)} most of the others; gather it separately"
        for other in others
    ]
    return sorted(usual, key=lambda session: session.started), refused


@contextlib.contextmanager
def fetch_archives(place: str) -> Iterator[list[tuple[str, Path]]]:
    """Yield the archives in a place as pairs of address and local path, sorted by address.

    Archives in a bucket are downloaded to a temporary directory for a `with` block.

    Raises:
        Problem: there are no archives, or the bucket cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="gather.") as work:
        if place.startswith(IN_BUCKET):
            archives = list(_download_archives(place, Path(work)))
        else:
            archives = [(str(path), path) for path in sorted(Path(place).rglob(f"*{archive.SUFFIX}"))]
        if not archives:
            raise Problem(f"{place} contains no archives (*{archive.SUFFIX}); write them with sbench archive")
        yield archives


def _download_archives(place: str, work: Path) -> Iterator[tuple[str, Path]]:
    # Imported here because boto3 takes long to import, and is not needed for folders.
    from sbench.stores.s3 import client

    bucket, _, prefix = place.removeprefix(IN_BUCKET).partition("/")
    if not bucket:
        raise Problem(f"--gather must be a folder or s3://bucket/prefix (got {place})")
    store = client.build_store_entry(bucket)
    folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    keys = sorted(key for key in client.list_objects(store, folder, []) if key.endswith(archive.SUFFIX))
    for number, key in enumerate(keys):
        # Objects in different folders may have the same name.
        path = work / str(number) / key.rpartition("/")[2]
        path.parent.mkdir()
        client.download_object(store, key, path)
        yield f"{IN_BUCKET}{bucket}/{key}", path


def read_session(path: Path, where: str) -> Session:
    """Check an archive and read its session.

    Raises:
        Problem: the archive is damaged or edited, has another name than its content, or does not identify its host.
    """
    with archive.open_archive(path) as (results, manifest):
        if path.name != manifest["name"] + archive.SUFFIX:
            raise Problem(f"{path} contains {manifest['name']}, so it was renamed, or another archive has its name")
        parts: dict[str, Part] = {}
        measured: list[dict] = []
        for study, name in manifest["studies"].items():
            part, of_study = _read_part(results, study, name, path)
            parts[study], measured = part, measured + of_study
        if not measured:
            raise Problem(f"{path} contains no measurement")
        configs = [part.facts["config"] for part in parts.values()]
        config, *others = (
            {key: value for key, value in configuration.complete_config(of, str(path), True).items() if key != "run"}
            for of in configs
        )
        if any(other != config for other in others) or not parts.keys() <= config["studies"].keys():
            raise Problem(f"{path}: its studies have different configurations; {_REMEDY}")
        host_id, boot_id = _identify_host(measured, path)
        codes = {record["provenance"]["code_sha256"] for record in measured}
        if len(codes) > 1:
            raise Problem(f"{path} was measured by {len(codes)} versions of the measuring code; measure again")
        started = min(str(record.get("session", "")) for record in measured)
        marks = frozenset(_mark_record(record) for record in measured)
        return Session(manifest["name"], where, host_id, boot_id, started, config, codes.pop(), parts, marks)


def _read_part(results: Path, study: str, name: str, path: Path) -> tuple[Part, list[dict]]:
    """Read a study of an unpacked archive, and check its records and the hash of its records and configuration.

    Returns:
        the study, and the records with a measurement.
    """
    folder = results / study
    facts = read_json(folder / "facts.json")
    # The line about an unusable record is in the exception below.
    with contextlib.redirect_stderr(io.StringIO()):
        matrix, kept = gather.read_study(folder, results.name, study)
    digests = sorted(compute_file_digest(one.path) for one in kept if one.path.is_file())
    imported = folder / "imported.json"
    elsewhere = read_json(imported) if imported.exists() else {}
    if (due := matrices.build_permanent_name(study, facts["config"], digests, elsewhere)) != name:
        raise Problem(f"{path}: the hash of the records and configuration of {study} is {due}, not {name}; {_REMEDY}")
    for one in kept:
        if one.record is None:
            raise Problem(f"{path}: {one.problem.replace(f'{results.parent}/', '')}")
        if one.record["status"] == "done" and ("digest" not in one.record or records.is_edited(one.record)):
            raise Problem(
                f"{path}: {one.path.relative_to(results)} was edited, as its digest does not match; {_REMEDY}"
            )
    if facts["config"].get("run") != results.name:
        raise Problem(f"{path} has the configuration of run {facts['config'].get('run')}, not of {results.name}")
    if wrong := [key for key in _SHOWN_FACTS if not isinstance(facts.get(key, {}), dict)]:
        raise Problem(f"{path}: {study}/facts.json: {wrong[0]} must be an object; {_REMEDY}")
    cells = list(matrix["cell"])
    matrix = matrix[~matrix["cell"].isin(records.find_unable_cells(kept))]
    runs, _ = tables.build_runs_and_samples(matrix, [one for one in kept if one.cell in set(matrix["cell"])])
    return Part(matrix, runs, facts | {"cells": cells}), [one.record for one in kept if one.record["status"] == "done"]


def _identify_host(measured: Sequence[dict], path: Path) -> tuple[str, str]:
    hosts = [host for record in measured for host in gather.list_hosts(record)]
    if not all(isinstance(of, str) and of for host in hosts for of in (host.get("host_id"), host.get("boot_id"))):
        raise Problem(
            f"{path} does not identify its host: /etc/machine-id was unreadable, or the version was older; measure"
            " again"
        )
    identities = {(host["host_id"], host["boot_id"]) for host in hosts}
    if len(identities) > 1:
        raise Problem(f"{path} was measured on {len(identities)} hosts or boots; a session must stay on one")
    return identities.pop()


def _mark_record(record: Mapping) -> tuple:
    """Return what two measurements never share by chance: the cell, the start and all times with all digits."""
    return record["name"], record["repeat"], record.get("started_utc"), *sorted(record["seconds"].items())


def _remove_copies(sessions: Sequence[Session]) -> tuple[list[Session], list[str]]:
    """Remove sessions that contain measurements of another one.

    If both have the same name, one of them is kept. Otherwise, none is, because either could be the original.

    Returns:
        the remaining sessions, and a line for each copy.
    """
    kept: list[Session] = []
    lines, doubtful = [], set()
    for session in sessions:
        earlier = next((of for of in kept if of.marks & session.marks), None)
        if earlier is None or earlier.name != session.name:
            kept.append(session)
        if earlier and earlier.name == session.name:
            lines.append(f"{session.where} is a copy of {earlier.where}; a session counts once")
        elif earlier:
            doubtful |= {earlier.where, session.where}
            lines.append(
                f"{earlier.where} and {session.where} contain the same measurements under different names; remove the"
                " one that is not genuine"
            )
    return [session for session in kept if session.where not in doubtful], lines


def _describe_difference(usual: Session, other: Session) -> str:
    """Describe what an archive has that others do not, for a message that goes on with the others."""
    if usual.code != other.code:
        return f"its measuring code ({other.code[:10]}) differs from that ({usual.code[:10]}) of"
    first, second = (dict(_walk_settings(session.config)) for session in (usual, other))
    keys = [key for key in dict.fromkeys([*first, *second]) if first.get(key) != second.get(key)]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    what = f"configuration ({', '.join(keys[:_SHOWN])}{more})" if keys else "matrix"
    return f"its {what} differs from"


def _walk_settings(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _walk_settings(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path, value


def name_hosts(sessions: Sequence[Session]) -> list[str]:
    """Return the name of the host of each session: the `host_id` of its first session.

    Sessions of the same host id, or of the same boot, have the same host. Containers of one machine have different host
    ids but the same boot; a machine that was started again has the same host id.
    """
    names: list[str] = []
    for session in sessions:
        alike = {
            name
            for name, earlier in zip(names, sessions, strict=False)
            if earlier.host_id == session.host_id or earlier.boot_id == session.boot_id
        }
        chosen = next((name for name in names if name in alike), session.host_id)
        # The session may show that two hosts were the same.
        names = [chosen if name in alike else name for name in names] + [chosen]
    return names
