"""Pack a run's records and tables into an archive, and generate pages from such an archive."""

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
from typing import IO

import yaml

from sbench.design import DEFAULT_CONFIG
from sbench.design import config as configuration
from sbench.design.matrix import build_permanent_name
from sbench.design.schema import list_studies
from sbench.pages import references
from sbench.probe import packed, provenance
from sbench.probe.program import (
    Problem,
    compute_file_digest,
    expect_folders,
    parse_json_object,
    read_json,
    read_yaml,
    replace_file,
    write_text,
)
from sbench.runs.rebuild import make_index, make_page, make_tables

SUFFIX = ".tar.xz"
MANIFEST = "manifest.json"
CITATION = Path("CITATION.cff")
# Files to archive: per study, the records with the files that they reference, the tables and other artefacts; and the
# files of the run that its pages need.
_OF_STUDY = ("records/**/*", f"software/{16 * '?'}.json", "*.csv", "*.json")
_OF_RUN = ("environments/*.json", "data/*/*.json", "failed/**/*.json", "locks/*.lock")
_KEYS = {"run": str, "name": str, "version": str, "studies": dict, "files": dict}
_FACTS = {"name": str, "config": dict, "sessions": list, "git": list}
# Maximum compression ratio, and maximum size of the manifest in bytes. Records compress to about a tenth of their size;
# an archive with a much larger ratio could fill the disk or memory.
_MOST_TIMES, _MOST_OF_MANIFEST = 1000, 64 * 2**20
# Minimum size of an archive in bytes for each of its files, if these are many. A record has more.
_LEAST_OF_FILE = 100
_TAKEN = ("published", "compare")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def pack_run(name: str) -> int:
    """Write the archive of a run, print its path, and return exit status 0.

    Args:
        name: name of the run; an empty string for the run configured in config/config.yaml.
    """
    config = configuration.load_config(DEFAULT_CONFIG, {"run": name} if name else {})
    path = write_archive(Path("results", config["run"]), list(config["studies"]))
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB; sbench report {path} makes its pages anywhere")
    return 0


def read_study_names(results: Path, order: Sequence[str] = ()) -> dict[str, str]:
    """Return the permanent name of each study in a run's results folder, starting with the studies in `order`.

    Raises:
        Problem: the run lacks tables, or an earlier version without permanent names wrote them.
    """
    facts = {path.parent.name: read_json(path) for path in sorted(results.glob("*/facts.json"))}
    if not facts:
        raise Problem(f"{results} lacks tables; measure first (sbench run), or name another run")
    if older := [study for study, of in facts.items() if _list_lacking_keys(of, _FACTS)]:
        raise Problem(f"{results / older[0] / 'facts.json'} is from an earlier version; write it again with sbench run")
    first = sorted(facts, key=lambda study: order.index(study) if study in order else len(order))
    return {study: facts[study]["name"] for study in first}


def write_archive(results: Path, order: Sequence[str] = ()) -> Path:
    """Write the archive of a run to its results folder, and return the archive's path.

    Args:
        results: the run's results folder.
        order: studies that come first in the index page.
    """
    studies = read_study_names(results, order)
    members = dict(sorted(_list_members(results, studies)))
    name, code = build_permanent_name(results.name, sorted(studies.values())), provenance.describe_code(())
    manifest = {
        **{"archive": 1, "run": results.name, "name": name, "studies": studies},
        **{"version": read_yaml(CITATION)["version"], "git": code["git"], "dirty": code["dirty"]},
        "files": {member: compute_file_digest(path) for member, path in members.items()},
    }
    out = results / f"{name}{SUFFIX}"
    with replace_file(out) as part, lzma.open(part, "wb") as xz, tarfile.open(fileobj=xz, mode="w") as archive:
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
    """Build the tar header of a file. It omits time and owner, so that equal files result in identical archives."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[tuple[Path, dict]]:
    """Unpack an archive to a temporary directory for a `with` block.

    Yields:
        The results folder and the manifest.

    Raises:
        Problem: the file is not the archive of a run, or its content does not match the manifest.
    """
    if path.exists() and not path.is_file():
        raise Problem(f"{path} must be a file, the archive of a run")
    with tempfile.TemporaryDirectory(prefix="archive.") as work:
        try:
            with lzma.open(path) as stream:
                manifest = _unpack_archive(stream, _MOST_TIMES * path.stat().st_size, Path(work))
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise Problem(f"{path} is not an archive of a run, or is incomplete ({error})") from error
        except Problem as problem:
            raise Problem(f"{path}: {problem}; get the archive again") from None
        if strange := sorted(manifest["studies"].keys() - set(list_studies())):
            raise Problem(
                f"{path} contains the study {strange[0]}, which this version does not know; use a newer version of"
                " this project"
            )
        results, held = Path(work, manifest["run"]), {}
        with contextlib.suppress(Problem):
            held = read_study_names(results)
        if held != manifest["studies"] or build_permanent_name(results.name, sorted(held.values())) != manifest["name"]:
            raise Problem(f"{path}: {MANIFEST} must name the studies of the archive; get the archive again")
        yield results, manifest


@contextlib.contextmanager
def open_run(source: str) -> Iterator[Path]:
    """Yield the results folder of a run for a `with` block; the tables of an archive are made again from its records.

    Args:
        source: name or archive of the run; an empty string for the run configured in config/config.yaml.
    """
    if not source.endswith(SUFFIX):
        yield Path("results", source or configuration.load_config(DEFAULT_CONFIG)["run"])
        return
    with open_archive(Path(source)) as (results, manifest):
        make_tables_again(results, manifest, Path(source))
        yield results


def write_config(source: str, out: Path) -> int:
    """Write the configuration of a run, with all defaults, to a YAML file, and return exit status 0.

    Args:
        source: as for `open_run`.
        out: the file.
    """
    with open_run(source) as results:
        configs = [read_json(results / study / "facts.json")["config"] for study in read_study_names(results)]
    studies = {name: values for config in configs for name, values in config["studies"].items()}
    text = yaml.safe_dump(configs[0] | {"studies": studies}, sort_keys=False, width=120, default_flow_style=None)
    write_text(out, text)
    print(f"{out}: sbench run {out} --name NAME measures it")
    return 0


def make_pages(source: Path, name: str = "") -> Path:
    """Generate tables and pages from the records in an archive, without network access.

    Tables that differ from the archived tables are listed on standard error.

    Args:
        source: path of the archive.
        name: name of the folder in reports/ for the pages; if empty, the name of the archived run.

    Returns:
        Path of the index page.

    Raises:
        Problem: the archive cannot be used, or the folder contains pages of different records.
    """
    with open_archive(source) as (results, manifest):
        reports = Path("reports", expect_name(name or manifest["run"], "--name"))
        expect_folders(reports.name)
        _expect_same(reports, manifest)
        make_tables_again(results, manifest, source)
        answers = [make_page(study, results / study, reports / f"{study}.html") for study in manifest["studies"]]
        return make_index(answers, reports)


def make_tables_again(results: Path, manifest: Mapping, source: Path) -> None:
    """Regenerate the tables and metadata of all studies in an archive, and verify the studies' permanent names.

    A permanent name includes a hash of the study's records and configuration.

    Raises:
        Problem: the records and the configuration do not match the manifest, or tables cannot be generated from them.
    """
    for study, due in manifest["studies"].items():
        _make_study_tables(results, study, source)
        if (name := read_json(results / study / "facts.json")["name"]) != due:
            raise Problem(
                f"{source}: the hash of its records and configuration is {name}, which differs from {MANIFEST}"
            )


def _unpack_archive(stream: IO[bytes], most: int, work: Path) -> dict:
    """Unpack at most so many bytes to a subfolder of `work` that has the run's name, and return the manifest.

    The hash of each file is verified.
    """
    most_files = max(packed.MEMBERS, most // _MOST_TIMES // _LEAST_OF_FILE)
    members = packed.read_tar(stream, most, most, most_files + 1)
    first, content = next(members, (None, None))
    if not content or first.name != MANIFEST or first.size > _MOST_OF_MANIFEST:
        raise Problem(f"is not an archive of a run: it must begin with {MANIFEST}")
    manifest = parse_json_object(content.read().decode(errors="replace"), MANIFEST)
    if missing := _list_lacking_keys(manifest, _KEYS):
        raise Problem(f"{MANIFEST} lacks {missing[0]}")
    expect_name(manifest["run"], MANIFEST)
    if len(manifest["files"]) > most_files:
        raise Problem(f"{MANIFEST} names more than {most_files:,} files")
    due = dict(manifest["files"])
    for member, content in members:
        digest = due.pop(member.name, None)
        if not digest or not content or _write_member(content, work / manifest["run"] / member.name) != digest:
            raise Problem(f"{member.name!r} differs from the archived file")
    if due:
        raise Problem(f"{next(iter(due))!r} is missing")
    return manifest


def _write_member(content: IO[bytes], path: Path) -> str:
    """Write the content of a member to a file and return its hash, or an empty string if it cannot have this name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            shutil.copyfileobj(content, file)
    except ValueError:
        return ""
    except OSError as error:
        # The member's name is too long, or conflicts with an existing file or folder.
        if error.errno in (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
            return ""
        raise
    return compute_file_digest(path)


def _list_lacking_keys(content: Mapping, kinds: Mapping[str, type]) -> list[str]:
    return [key for key, kind in kinds.items() if not isinstance(content.get(key), kind)]


def expect_name(name: str, what: str) -> str:
    """Return the name of a run unchanged after checking that it is valid as a folder name.

    Args:
        name: name of the run.
        what: description of the name, for messages.

    Raises:
        Problem: the name is malformed, or reserved for other pages.
    """
    if name in _TAKEN:
        raise Problem(f"{what}: {name} already contains other pages; choose another --name")
    if not _NAME.fullmatch(name):
        raise Problem(
            f"{what}: the name of a run must consist of letters, digits, dots, hyphens and underscores (got {name!r})"
        )
    return name


def _expect_same(reports: Path, manifest: Mapping) -> None:
    """Raise Problem if the folder contains pages of different records, because they would be overwritten."""
    for path in sorted(reports.glob("*_answers.json")):
        study = path.name.removesuffix("_answers.json")
        shown = read_json(path).get("name")
        if study not in manifest["studies"] or shown != manifest["studies"][study]:
            raise Problem(f"{reports} shows {shown or 'other records'}; choose another --name for these pages")


def _make_study_tables(results: Path, study: str, source: Path) -> None:
    """Regenerate the tables of a study from its records, and print which of them differ from the archived tables."""
    folder = results / study
    before = {path: compute_file_digest(path) for path in folder.glob("*.csv")}
    config = read_json(folder / "facts.json")["config"]
    configuration.complete_config(config, f"{source}: {study}", is_archived=True)
    try:
        make_tables(config, study, results)
    except Problem as problem:
        # Check the configuration only after a failure, because archives of earlier versions may lack required keys.
        cause = problem
        try:
            configuration.resolve_config(config, [])
        except Problem as mistake:
            cause = mistake
        raise Problem(f"{source}: {study}: {cause}") from None
    if other := sorted(path.name for path, content in before.items() if compute_file_digest(path) != content):
        print(
            f"{study}: this version writes different tables than the archived ones: {', '.join(other)}", file=sys.stderr
        )
