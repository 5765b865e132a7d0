"""Archive a run in one file with its records, other inputs of its tables, and its tables, and make pages from it."""

import contextlib
import errno
import io
import json
import lzma
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sbench.design import DEFAULT_CONFIG
from sbench.design import config as configuration
from sbench.design.matrix import build_permanent_name
from sbench.design.schema import list_studies
from sbench.pages import references
from sbench.probe import provenance
from sbench.probe.program import (
    Problem,
    compute_file_digest,
    expect_folders,
    parse_json_object,
    read_json,
    read_yaml,
    replace_file,
)
from sbench.runs.rebuild import make_index, make_page, make_tables

SUFFIX = ".tar.xz"
MANIFEST = "manifest.json"
CITATION = Path("CITATION.cff")
# Files of a study: records with the files that they refer to, tables and artefacts; files of the run for its pages.
_OF_STUDY = ("records/**/*", f"software/{16 * '?'}.json", "*.csv", "*.json")
_OF_RUN = ("environments/*.json", "data/*/*.json", "failed/**/*.json", "locks/*.lock")
_KEYS = {"run": str, "name": str, "version": str, "studies": dict, "files": dict}
_FACTS = {"name": str, "config": dict, "sessions": list, "git": list}
# Records shrink to a tenth or so of their size. An archive of so much more would fill a disk, or the memory.
_MOST_TIMES, _MOST_OF_MANIFEST = 1000, 64 * 2**20
_TAKEN = ("published", "compare")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def pack_run(name: str) -> int:
    """Write the archive of a run, "" for the run of config/config.yaml, print its path, and return 0."""
    config = configuration.load_config(DEFAULT_CONFIG, {"run": name} if name else {})
    path = write_archive(Path("results", config["run"]), list(config["studies"]))
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB; sbench report {path} makes its pages anywhere")
    return 0


def read_study_names(results: Path, order: Sequence[str] = ()) -> dict[str, str]:
    """Return the permanent names of the studies in the folder of a run, studies in `order` first.

    Raises:
        Problem: the run lacks tables, or they are of an earlier version without such names.
    """
    facts = {path.parent.name: read_json(path) for path in sorted(results.glob("*/facts.json"))}
    if not facts:
        raise Problem(f"{results} lacks tables; measure first (sbench run), or name another run")
    if older := [study for study, of in facts.items() if _list_lacking_keys(of, _FACTS)]:
        raise Problem(f"{results / older[0] / 'facts.json'} is from an earlier version; write it again with sbench run")
    first = sorted(facts, key=lambda study: order.index(study) if study in order else len(order))
    return {study: facts[study]["name"] for study in first}


def write_archive(results: Path, order: Sequence[str] = ()) -> Path:
    """Write the archive of a run into its folder of results, and return its path; pages list studies in `order`."""
    studies = read_study_names(results, order)
    members = dict(sorted(_list_members(results, studies)))
    name, code = build_permanent_name(results.name, sorted(studies.values())), provenance.describe_code(())
    manifest = {
        **{"archive": 1, "run": results.name, "name": name, "studies": studies},
        **{"version": read_yaml(CITATION)["version"], "git": code["git"], "dirty": code["dirty"]},
        "files": {member: compute_file_digest(path) for member, path in members.items()},
    }
    out = results / f"{name}{SUFFIX}"
    with replace_file(out) as part, lzma.open(part, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        text = json.dumps(manifest, indent=1).encode()
        archive.addfile(_build_entry(MANIFEST, len(text)), io.BytesIO(text))
        for member, path in members.items():
            with open(path, "rb") as file:
                archive.addfile(_build_entry(member, path.stat().st_size), file)
    return out


def _list_members(results: Path, studies: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for part in (*(f"{study}/{part}" for study in studies for part in _OF_STUDY), *_OF_RUN):
        yield from ((str(path.relative_to(results)), path) for path in results.glob(part) if path.is_file())
    for study in studies:
        for name in references.list_published(read_json(results / study / "facts.json")):
            beside = results.parent / name / "tables"
            yield from ((f"{name}/tables/{path.name}", path) for path in (*beside.glob("*.csv"), beside / "facts.json"))


def _build_entry(name: str, size: int) -> tarfile.TarInfo:
    """Build the entry of a file in an archive, without time and owner, so that equal files give equal bytes."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[tuple[Path, dict]]:
    """Unpack an archive into a temporary folder, and yield the folder of results and the manifest.

    Raises:
        Problem: the file is not an archive, or a file in it differs from the manifest.
    """
    if path.exists() and not path.is_file():
        raise Problem(f"{path} must be a file, the archive of a run")
    with tempfile.TemporaryDirectory(prefix="archive.") as work:
        try:
            with tarfile.open(path, "r:xz") as archive:
                manifest = _unpack_archive(archive, path, Path(work))
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise Problem(f"{path} is not an archive of a run, or is incomplete ({error})") from error
        results, held = Path(work, manifest["run"]), {}
        with contextlib.suppress(Problem):
            held = read_study_names(results)
        if held != manifest["studies"] or build_permanent_name(results.name, sorted(held.values())) != manifest["name"]:
            raise Problem(f"{path}: {MANIFEST} must name the studies of the archive; get the archive again")
        yield results, manifest


def make_pages(source: Path, name: str = "") -> Path:
    """Make tables and pages from the records in an archive, without a network, and return the first page.

    Pages are in the folder of reports/ for `name`, or else for the archived run. If this version makes tables that
    differ from the archived tables, list them on standard error.

    Raises:
        Problem: the archive cannot be used, or the folder has pages of other records.
    """
    with open_archive(source) as (results, manifest):
        reports = Path("reports", expect_name(name or manifest["run"], "--name"))
        expect_folders(reports.name)
        _expect_same(reports, manifest)
        make_tables_again(results, manifest, source)
        answers = [make_page(study, results / study, reports / f"{study}.html") for study in manifest["studies"]]
        return make_index(answers, reports)


def make_tables_again(results: Path, manifest: Mapping, source: Path) -> None:
    """Make the tables and facts of all studies of an archive again from its records, and check their permanent names.

    Raises:
        Problem: records and configuration do not match the manifest, or cannot be gathered.
    """
    for study, due in manifest["studies"].items():
        _make_study_tables(results, study, source)
        if (name := read_json(results / study / "facts.json")["name"]) != due:
            raise Problem(
                f"{source}: the hash of its records and configuration is {name}, which differs from {MANIFEST}"
            )


def _unpack_archive(archive: tarfile.TarFile, path: Path, work: Path) -> dict:
    """Unpack an archive into the folder of its run, check the hash of each file, and return the manifest."""
    members, room = iter(archive), _MOST_TIMES * path.stat().st_size
    first = next(members, None)
    if not first or first.name != MANIFEST or not first.isfile() or first.size > min(room, _MOST_OF_MANIFEST):
        raise Problem(f"{path} is not an archive of a run: it must begin with {MANIFEST}")
    text = archive.extractfile(first).read()
    manifest = parse_json_object(text.decode(errors="replace"), f"{path}: {MANIFEST}")
    if missing := _list_lacking_keys(manifest, _KEYS):
        raise Problem(f"{path}: {MANIFEST} lacks {missing[0]}; get the archive again")
    expect_name(manifest["run"], f"{path}: the run")
    if strange := sorted(manifest["studies"].keys() - set(list_studies())):
        raise Problem(
            f"{path} contains the study {strange[0]}, which this version does not know; use a newer version of"
            " this project"
        )
    due = dict(manifest["files"])
    for member in members:
        digest, room = due.pop(member.name, None), room - member.size
        if room < 0:
            raise Problem(
                f"{path} unpacks to more than {_MOST_TIMES} times its size, which records never do; get the"
                " archive again"
            )
        if not digest or _write_member(archive, member, work / manifest["run"]) != digest:
            raise Problem(f"{path}: {member.name!r} differs from the archived file; get the archive again")
    if due:
        raise Problem(f"{path}: {next(iter(due))!r} is missing; get the archive again")
    return manifest


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> str:
    """Write a member into a folder and return its hash; "" if it is not a file, or outside the folder."""
    name = Path(member.name)
    if not member.isfile() or not name.parts or name.is_absolute() or ".." in name.parts:
        return ""
    try:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "wb") as file:
            shutil.copyfileobj(archive.extractfile(member), file)
    except OSError as error:
        # The name is too long, or names a folder.
        if error.errno in (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
            return ""
        raise
    return compute_file_digest(folder / name)


def _list_lacking_keys(content: Mapping, kinds: Mapping[str, type]) -> list[str]:
    return [key for key, kind in kinds.items() if not isinstance(content.get(key), kind)]


def expect_name(name: str, what: str) -> str:
    """Check the name of a run, which names folders, and return it.

    Raises:
        Problem: the name is malformed, or names other pages.
    """
    if name in _TAKEN:
        raise Problem(f"{what}: {name} already contains other pages; choose another --name")
    if not _NAME.fullmatch(name):
        raise Problem(
            f"{what}: the name of a run must consist of letters, digits, dots, hyphens and underscores (got {name!r})"
        )
    return name


def _expect_same(reports: Path, manifest: Mapping) -> None:
    """Raise a Problem if pages of other records would be overwritten."""
    for path in sorted(reports.glob("*_answers.json")):
        study = path.name.removesuffix("_answers.json")
        shown = read_json(path).get("name")
        if study not in manifest["studies"] or shown != manifest["studies"][study]:
            raise Problem(f"{reports} shows {shown or 'other records'}; choose another --name for these pages")


def _make_study_tables(results: Path, study: str, source: Path) -> None:
    """Make the tables of a study again from its records, and print which differ from the archived tables."""
    folder = results / study
    before = {path: path.read_bytes() for path in folder.glob("*.csv")}
    config = read_json(folder / "facts.json")["config"]
    try:
        make_tables(config, study, results)
    except Problem as problem:
        # Check the configuration only now: an earlier version may lack keys that this version requires.
        cause = problem
        try:
            configuration.resolve_config(config, [])
        except Problem as mistake:
            cause = mistake
        raise Problem(f"{source}: {study}: {cause}") from None
    if other := sorted(path.name for path, content in before.items() if path.read_bytes() != content):
        print(
            f"{study}: this version writes different tables than the archived ones: {', '.join(other)}", file=sys.stderr
        )
