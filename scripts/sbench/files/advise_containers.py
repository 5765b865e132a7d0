"""Recommend a container for HDF5 files that are read in several ways: files, references, Icechunk or Zarr.

Requests are forecast for each container and chunk shape. The best are made, verified and read in blocks, which choose
a container. Further blocks, which read other places, measure how much faster it is than the files as they are.
"""

import contextlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sbench.build.interpreters import find_python
from sbench.design.matrix import build_permanent_name
from sbench.files import container_code, container_files, container_forms, copies
from sbench.files.advise import Query
from sbench.files.container_advice import Measured, format_advice, format_forecast
from sbench.files.container_code import CONTAINERS, ORIGINAL, REFERENCES, REPACKED, Files, Form
from sbench.files.container_files import Contents
from sbench.files.container_session import Read, Session, start_session
from sbench.files.copies import Layout
from sbench.files.patterns import MOST_AXES, Pattern
from sbench.files.place import ELSEWHERE, Place, find_place, parse_network
from sbench.files.trial import MOST_COPIES, WORTH
from sbench.probe import sizes
from sbench.probe.program import Problem, build_command, print_json, read_json, write_json, write_text
from sbench.studies.shots import addresses
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.inputs import Source, build_store_entry, find_sources

ALL = "all"
# Maximum number of files, and their total size in bytes; the first files represent the rest.
_FILES, _BYTES = 64, 2 * 2**30
# Blocks that choose a container.
_CHOOSING = 3
_LIBRARY = "containers"
_BUCKET = "bucket"
# Releases of Python for the newest zarr, Icechunk and VirtualiZarr.
_PYTHONS = ("3.13", "3.12")
# Older releases, without kerchunk's references in Parquet.
_NEWEST, _OLDER = "envs/containers.lock", "envs/readers.lock"


class _Trial(NamedTuple):
    """What all measurements have in common."""

    session: Session
    contents: Contents
    patterns: Sequence[Pattern]
    files: Files
    local_files: list[Path]
    merges: bool


def parse_containers(text: str) -> list[str]:
    """Parse the argument of --containers.

    Raises:
        Problem: a name is not a container.
    """
    names = [name.strip() for name in text.split(",")]
    if names == [ALL]:
        return list(CONTAINERS)
    if unknown := [name for name in names if name not in CONTAINERS]:
        raise Problem(f"--containers must be all, or some of {', '.join(CONTAINERS)} (got {unknown[0]})")
    return list(dict.fromkeys(names))


def print_advice(
    query: Query, containers: Sequence[str], patterns: Sequence[Pattern], repeats: int, as_json: bool = False
) -> int:
    """Make and read containers, and print the advice.

    Args:
        query: arguments of the request.
        containers: kinds of containers to consider.
        patterns: the accesses.
        repeats: number of blocks that measure the gain.
        as_json: whether to print the advice as JSON, and progress on standard error.

    Returns:
        0.
    """
    if query.store:
        raise Problem(
            "--containers measures with the embedded S3 server; leave --store out, and give --latency, --rate"
        )
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        lines, path = _make_advice(query, containers, patterns, repeats)
    if as_json:
        print_json({"advice": lines, "results": str(path), "status": 0})
    else:
        print(*lines, f"results: {path}", sep="\n")
    return 0


def _make_advice(
    query: Query, containers: Sequence[str], patterns: Sequence[Pattern], repeats: int
) -> tuple[list[str], Path]:
    """Return the lines of the advice, and the path of the file with all measurements."""
    bucket = addresses.get_bucket(list(query.files))
    at = build_store_entry(bucket) if bucket else None
    sources = find_sources(list(query.files), at)
    some = _select_files(sources)
    contents = container_files.read_contents(some, list(query.datasets) or ["/**"])
    place = _find_place(query, at, some)
    total = sizes.format_size(sum(source.bytes for source in some))
    print(f"{len(sources)} files, of which {len(some)} are used: {total}")
    print(f"store: {place.words}")
    print(*(f"left out: {text}" for text in contents.left_out), sep="\n", end="\n" * bool(contents.left_out))
    versions = [(source.where, source.bytes, source.version) for source in some]
    question = build_permanent_name(
        "advise", list(query.files), [*patterns], [*containers], list(query.datasets), place.network, versions
    )
    folder = Path("results", query.name or question)
    path = folder / "containers.json"
    if path.exists() and read_json(path)["question"] != question:
        raise Problem(f"{folder} answers another question, or its files have changed since; choose another --name")
    python, merges = _ensure_python(folder)
    scratch = (Path(query.scratch, query.name or question) if query.scratch else folder / "scratch").resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    copies.expect_room(scratch, sum(source.bytes for source in some) * (2 + 3 * MOST_COPIES))
    local_files = container_files.link_files(some, scratch / _BUCKET / ORIGINAL_KEY)
    with start_session(python, scratch / _BUCKET, place.store["network"]) as session:
        files = describe_files(session, contents, local_files)
        trial = _Trial(session, contents, patterns, files, local_files, merges)
        measured = _measure_forms(trial, containers, place, repeats, scratch)
    for text in measured.left_out:
        print(f"left out: {text}")
    write_json(path, {"question": question, **measured.build_record()})
    return format_advice(measured, files, contents), path


ORIGINAL_KEY = Form(ORIGINAL).key


def _select_files(sources: Sequence[Source]) -> list[Source]:
    """Return the first HDF5 files, with at most `_FILES` files and `_BYTES` in total; print which are left out."""
    some: list[Source] = []
    problems = []
    for source in sources:
        if len(some) == _FILES or (some and sum(file.bytes for file in some) + source.bytes > _BYTES):
            break
        try:
            with source.open_hdf5():
                some.append(source)
        except Problem as problem:
            problems.append(str(problem))
    if not some:
        raise Problem(problems[0])
    for problem in problems:
        print(f"left out: {problem}")
    return some


def _find_place(query: Query, at: dict | None, some: Sequence[Source]) -> Place:
    """Return the storage for which to give advice: a bucket's measured network, or the assumed or given one."""
    given = parse_network(query.latency, query.rate)
    if not (given or at):
        given = {"latency_ms": ELSEWHERE["latency_ms"]}
        place = find_place(None, given, None, some)
        return replace(place, words=place.words.replace("as given", "assumed"))
    return find_place(None, given, at, some)


def choose_library() -> dict[str, str]:
    """Return the specification of the library that converts and reads; without Python 3.12, with older releases."""
    spec = {"kind": "wheel", "hdf5": "2.1.1"}
    if sys.version_info >= (3, 12):
        return spec | {"lock": _NEWEST}
    for release in _PYTHONS:
        with contextlib.suppress(Problem):
            find_python(release)
            return spec | {"lock": _NEWEST, "python": release}
    return spec | {"lock": _OLDER}


def _ensure_python(folder: Path) -> tuple[str, bool]:
    """Build the library that converts and reads, if necessary.

    Returns:
        The path of its Python interpreter, and whether its zarr merges requests.
    """
    spec = choose_library()
    if spec["lock"] == _OLDER:
        print("note: Python 3.12 or later was not found, so that older releases are used: zarr 3.1, Icechunk 1")
    artefact = folder / "environments" / f"{_LIBRARY}.json"
    words = ("--library", _LIBRARY, "--spec", json.dumps(spec), "--out", str(artefact))
    if subprocess.run(build_command("build_library", *words), stdout=sys.stderr, check=False).returncode:
        raise Problem("the build of the reading library failed; see the reason in the lines above")
    return read_json(artefact)["python"], spec["lock"] != _OLDER


def describe_files(session: Session, contents: Contents, local_files: Sequence[Path]) -> Files:
    """Return the files with the names of the dimension along which they are joined."""
    name = contents.largest.name
    single = Files(_BUCKET, 1, contents.group, contents.dropped, is_named=contents.is_named)
    code = f"import xarray\nfiles = {[str(local_files[0])]!r}\n"
    try:
        dimension = session.describe_dimension(code, container_code.build_joining("files", single), name)
    except Problem as problem:
        raise Problem(f"{local_files[0].name} cannot be opened with xarray: {problem}") from problem
    virtual = dimension
    if not contents.is_named:
        # Without names, references are left out later, with the reason, if VirtualiZarr fails.
        with contextlib.suppress(Problem):
            virtual = session.describe_dimension(container_code.build_virtual_opening(single), "parts[0]", name)
    return replace(single, number=len(local_files), dimension=dimension, virtual_dimension=virtual)


def _measure_forms(trial: _Trial, containers: Sequence[str], place: Place, repeats: int, scratch: Path) -> Measured:
    """Forecast all forms, measure the best, and return all measurements."""
    contents, patterns = trial.contents, trial.patterns
    forms = container_forms.list_forms(contents, patterns, containers, place.network)
    base = forms[0]
    measured = Measured(patterns, base, place.words)
    draw = random.Random(1)
    # The first read also imports modules.
    for _ in range(2):
        measured.probes[base.name] = _read_form(trial, base, _draw_positions(draw, patterns))
    for form in forms:
        measured.forms[form.name] = form
        measured.forecasts[form.name] = _forecast(trial, form, measured.probes[base.name], place)
    kinds: dict[str, int] = {}
    misfit = contents.find_misfit()
    for form in sorted(forms[1:], key=lambda form: measured.compute_forecast(form.name)):
        # The best of each kind is printed, and the best few are measured.
        kind = "references" if form.container in REFERENCES else "copies" if form.chunks else "files"
        best_of = [name for name in measured.probes if measured.forms[name].container == form.container]
        if form.container in REFERENCES and misfit:
            measured.left_out.append(f"{form.name}: {misfit}")
            continue
        if kinds.get(kind, 0) >= (MOST_COPIES if kind == "copies" else 1) or (form.chunks and best_of):
            continue
        print(format_forecast(measured, form.name), flush=True)
        try:
            measured.conversions[form.name] = _make_form(trial, form, scratch)
            measured.probes[form.name] = _read_form(trial, form, _draw_positions(draw, patterns))
            kinds[kind] = kinds.get(kind, 0) + 1
        except Problem as problem:
            measured.left_out.append(f"{form.name}: {problem}")
    chosen = _choose_form(trial, measured, draw)
    if chosen != base.name:
        print(f"measuring {chosen} in {repeats} more blocks, which read other places", flush=True)
        measured.blocks = _measure_blocks(trial, measured, [base.name, chosen], repeats, draw)
    measured.chosen = chosen
    return measured


def _forecast(trial: _Trial, form: Form, probe: Sequence[Read], place: Place) -> list:
    """Forecast each access to a form; the requests to open HDF5 files follow from a read of the files as they are."""
    forecasts = []
    for pattern, read in zip(trial.patterns, probe, strict=True):
        touched = sum(
            container_forms.count_touched(Form(ORIGINAL), array, pattern)[0] for array in trial.contents.arrays
        )
        # Each file takes a request at least; s3fs reads small files with a single one.
        opening = max(len(trial.local_files), read.requests - touched)
        forecasts.append(
            container_forms.forecast_form(form, trial.contents, pattern, place.network, opening, trial.merges)
        )
    return forecasts


def _make_form(trial: _Trial, form: Form, scratch: Path) -> float:
    """Make a container in the bucket, verify its values, and return how long it took to make, in seconds.

    Raises:
        Problem: it cannot be made, or has other values than the files.
    """
    seconds = 0.0
    if form.container == REPACKED:
        layout = _build_layout(trial.contents, form, scratch)
        names = [f"{trial.contents.group.rstrip('/')}/{array.name}" for array in trial.contents.arrays]
        target = trial.session.folder / _BUCKET / form.key
        seconds = copies.make_copies(layout, trial.local_files, target, names, Accesses("files", {"all": 1.0})).seconds
    elif code := container_code.build_conversion(form, trial.files):
        seconds = trial.session.convert(code)
    opening = container_code.build_opening(form, trial.files)
    original = container_code.build_joining("files", trial.files)
    names = [array.name for array in trial.contents.arrays]
    trial.session.compare(opening, original, trial.local_files, names)
    return seconds


def _build_layout(contents: Contents, form: Form, scratch: Path) -> Layout:
    """Return the layout of repacked files, with an options file of h5repack."""
    lines = [
        f"-l {contents.group.rstrip('/')}/{name}:CHUNK={'x'.join(map(str, shape))}\n"
        for name, shape in form.chunks.items()
    ]
    path = scratch / f"{form.name}.txt"
    write_text(path, "".join(lines))
    return Layout(form.name, options=path)


def _choose_form(trial: _Trial, measured: Measured, draw: random.Random) -> str:
    """Measure all forms in a few blocks, and return the name of the best.

    A form that was converted must take at most `WORTH` of the time of the best without a conversion.
    """
    names = list(measured.probes)
    if len(names) > 1:
        print(f"measuring {len(names)} ways in {_CHOOSING} blocks", flush=True)
    measured.choosing = _measure_blocks(trial, measured, names, _CHOOSING, draw) if len(names) > 1 else []
    medians = {
        name: statistics.median(measured.weigh(block[name]) for block in measured.choosing)
        for name in names
        if measured.choosing and all(name in block for block in measured.choosing)
    }
    if measured.base.name not in medians:
        return measured.base.name
    unconverted = [name for name in medians if not measured.conversions.get(name)]
    best = min(unconverted, key=medians.get)
    if medians[best] > WORTH * medians[measured.base.name]:
        best = measured.base.name
    fastest = min(medians, key=medians.get)
    return fastest if medians[fastest] <= WORTH * medians[best] else best


def _measure_blocks(
    trial: _Trial, measured: Measured, names: Sequence[str], number: int, draw: random.Random
) -> list[dict[str, list[Read]]]:
    """Read containers in blocks, each with all containers in random order, at the same new places.

    A container whose values differ from the files, or that cannot be read, is left out, with the reason.
    """
    blocks = []
    for _ in range(number):
        positions = _draw_positions(draw, trial.patterns)
        block: dict[str, list[Read]] = {}
        for name in draw.sample(list(names), len(names)):
            try:
                block[name] = _read_form(trial, measured.forms[name], positions)
            except Problem as problem:
                measured.left_out.append(f"{name}: {problem}")
        checksums = {name: [read.checksum for read in reads] for name, reads in block.items()}
        expected = checksums.get(measured.base.name)
        for name in [name for name, values in checksums.items() if expected and values != expected]:
            measured.left_out.append(f"{name}: a read returned other values than the files")
            del block[name]
        blocks.append(block)
    return blocks


def _draw_positions(draw: random.Random, patterns: Sequence[Pattern]) -> list[list[float]]:
    return [[draw.random() for _ in range(MOST_AXES)] for _ in patterns]


def _read_form(trial: _Trial, form: Form, positions: Sequence[Sequence[float]]) -> list[Read]:
    """Read each access once, with a container that is opened for each."""
    code = container_code.build_opening(form, trial.files)
    return [
        trial.session.read(
            code, {array.name: pattern.build_spans(array.kind.shape, position) for array in trial.contents.arrays}
        )
        for pattern, position in zip(trial.patterns, positions, strict=True)
    ]
