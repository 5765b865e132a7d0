"""Looks at HDF5 files, tries ways to read them and copies in other layouts, and says what is worth it.

Ways and copies are forecast by what they ask for; the best are measured beside the files as they are. It ends with
three lines: what to type to repack the files, how to open them, and what that gains and costs.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from scripts.frame.matrix import permanent_name
from scripts.lib import sizes
from scripts.lib.program import Problem, read_json, run, write_json
from scripts.studies.shots import arms as ways
from scripts.studies.shots import copies, look, selection, sets
from scripts.studies.shots.arms import Arm
from scripts.studies.shots.copies import Layout, Made
from scripts.studies.shots.files import creation
from scripts.studies.shots.inputs import Source, sources

# So many files and bytes stand for all, and so many ways to read copies are measured.
_FILES, _BYTES, _COPIES = 6, 2 * 2**30, 2
_REPEATS = 6
# Of a bucket whose round trip is not named.
_LATENCY_MS = 20
_ORIGINAL, _READERS = "original", "readers"
_LIBRARY = {"kind": "wheel", "hdf5": "2.1.1", "lock": "envs/readers.lock"}
_ACCESSES = ("files", "datasets")


def main(argv: list[str] | None = None) -> int:
    """Advise; return the status of the run."""
    arguments = _parser().parse_args(argv)
    wanted, (access, level) = shlex.split(arguments.files), _access(arguments.access)
    if not wanted:
        raise Problem("say which: make advise FILES='data/*.h5' ACCESS='files all'")
    datasets, bucket = shlex.split(arguments.datasets) or ["/**"], sets.bucket_of(wanted)
    store, at = _store(arguments, bool(bucket)), look.store_of(bucket) if bucket else None
    of_set = sources(wanted, at)
    some = _sample(of_set)
    size = sum(one.bytes for one in some)
    print(f"{len(of_set)} files, of which {len(some)} are tried: {sizes.text(size)}", flush=True)
    versions = [(one.where, one.bytes, one.version) for one in some]
    question = permanent_name("advise", wanted, access, level, datasets, store, versions)
    name = arguments.run or question
    results = Path("results", name)
    scratch = Path(arguments.scratch, name) if arguments.scratch else results / "scratch"
    config, asks = scratch / "advise.json", scratch / "question.json"
    if not config.exists():
        scratch.mkdir(parents=True, exist_ok=True)
        copies.expect_room(scratch, size * (2 + 3 * _COPIES))
        python = _python(results)
        files = _here(some, scratch / _ORIGINAL)
        trial = _Trial(files, access, level, datasets, store, scratch, python)
        made, arms = trial.chosen()
        _expect_unchanged(some, sources(wanted, at))
        write_json(asks, question)
        write_json(config, trial.configuration(name, made, arms))
    elif json.loads(asks.read_text(encoding="utf-8")) != question:
        raise Problem(f"{results} is advice on another question, or on files that changed since; name another RUN")
    write_json(config, read_json(config) | {"repeats": arguments.repeats})
    command = [sys.executable, "-sE", "-m", "scripts.launch", f"--configfile={config}", "--yes"]
    if status := subprocess.run(command, check=False).returncode:
        return status
    from scripts.studies.shots.report import advised
    from scripts.studies.shots.report import results as tables

    print("\n".join(advised.lines(tables.load(results / "shots", results / "shots/facts.json"))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.studies.shots.advise", description=__doc__)
    add = parser.add_argument
    add("--files", default="", help="files, folders, patterns, or s3://bucket/prefix/*.h5; blanks between")
    add(
        "--access",
        default="",
        help="what is read at once: files (the default) or datasets (across all files), and how much of them: all (the"
        " default), metadata, [0:100, ...], or 1/10 of the chunks",
    )
    add("--datasets", default="", help='patterns of datasets, "/gt*/**" "!/gt*/quality/**"; all by default')
    through = "read through an embedded S3 server with this round trip; of files in a bucket it is 20"
    add("--latency", type=int, metavar="MS", help=through)
    add("--rate", type=int, metavar="MIB/S", help="and with at most so much per connection")
    add("--store", default="", help="or from your own bucket, s3://bucket/prefix, to which tried files are uploaded")
    add("--scratch", default="", help="folder for copies (default: results/<run>/scratch)")
    add(
        "--repeats",
        type=int,
        default=_REPEATS,
        metavar="N",
        help="times that each way is measured (default: %(default)s)",
    )
    add("--run", default="", help="name of the run (default: advise- and what is asked, in hexadecimal)")
    return parser


def _access(text: str) -> tuple[str, str]:
    """Return access and selection from words such as "files [0:100, ...]".

    Raises:
        Problem: they mean nothing.
    """
    first, _, rest = text.strip().partition(" ")
    access, level = (first, rest.strip()) if first in _ACCESSES else (_ACCESSES[0], text.strip())
    level = level or selection.ALL
    if not re.fullmatch(r"all|metadata|1/[1-9][0-9]{0,8}|\[[-0-9:., ]+\]", level) or selection.mistake(level):
        raise Problem(
            f"{text!r} is no access: write files or datasets, then all, metadata, [0:100, ...] or 1/10,"
            " as in ACCESS='files [0:100, ...]'"
        )
    return access, level


def _store(arguments: argparse.Namespace, in_bucket: bool) -> dict:
    """Return the store that is read from: the user's own, an embedded one, or the disk.

    Raises:
        Problem: what is named is none.
    """
    network = {"latency_ms": arguments.latency, "per_connection_mib_s": arguments.rate}
    if any(value is not None and value < 1 for value in network.values()):
        raise Problem("LATENCY (ms) and RATE (MiB/s) are whole numbers from 1: LATENCY=20 RATE=50")
    network = {key: value for key, value in network.items() if value}
    if arguments.store:
        if not (bucket := sets.bucket_of(arguments.store)):
            raise Problem(f"{arguments.store} is no place in a bucket; write STORE=s3://bucket/prefix")
        prefix = arguments.store.removeprefix(sets.IN_BUCKET).partition("/")[2].strip("/")
        return look.store_of(bucket) | {"prefix": prefix, "upload": True}
    if network or in_bucket:
        network = network or {"latency_ms": _LATENCY_MS}
        return {"kind": "s3", "bucket": "advise", "server": "embedded", "network": network}
    return {"kind": "posix"}


def _sample(of_set: Sequence[Source]) -> list[Source]:
    """Return some files, evenly spaced among all, that stand for them."""
    count = min(len(of_set), _FILES)
    some = [of_set[number * len(of_set) // count] for number in range(count)]
    while len(some) > 1 and sum(one.bytes for one in some) > _BYTES:
        some = some[:-1]
    return some


def _python(results: Path) -> str:
    """Return the interpreter of the library that reads, built now if need be."""
    artefact = results / "environments" / f"{_READERS}.json"
    spec = ("--library", _READERS, "--spec", json.dumps(_LIBRARY), "--out", str(artefact))
    done = subprocess.run([sys.executable, "-sE", "-m", "scripts.build_library", *spec], check=False)
    if done.returncode:
        raise Problem("the library that reads could not be built; the lines above say why")
    return read_json(artefact)["python"]


def _here(some: Sequence[Source], folder: Path) -> list[Path]:
    """Return where the files are on the scratch folder's disk, each under its own name, as it is, linked or copied."""
    folder.mkdir(parents=True, exist_ok=True)
    device, paths = folder.stat().st_dev, []
    own_names = len({Path(one.name).name for one in some}) == len(some)
    for one in some:
        there = not one.reader and Path(one.where).stat().st_dev == device
        path = Path(one.where) if there and own_names else folder / one.name.replace("/", "_")
        paths.append(path)
        if there and not own_names:
            path.unlink(missing_ok=True)
            path.symlink_to(one.where)
        elif not there:
            with one.raw() as source, open(path, "wb") as copy:
                shutil.copyfileobj(source, copy, 2**22)
    return paths


def _expect_unchanged(before: Sequence[Source], after: Sequence[Source]) -> None:
    """See that files are as they were before they were copied.

    Raises:
        Problem: one is not.
    """
    now = {one.where: (one.bytes, one.version) for one in after}
    for one in before:
        if now.get(one.where) != (one.bytes, one.version):
            raise Problem(f"{one.where} changed while it was copied; try again when nobody writes to it")


class _Trial:
    """What is tried on some files, in a scratch folder; the interpreter is that of the library that reads."""

    def __init__(
        self, files: list[Path], access: str, level: str, datasets: list[str], store: dict, scratch: Path, python: str
    ) -> None:
        self.files, self.access, self.level, self.datasets = files, access, level, datasets
        self.store, self.scratch, self._python = store, scratch, python
        self.considered: list[Arm] = []
        # What is read for one object.
        self._object = files[:1] if access == "files" else files

    def chosen(self) -> tuple[dict[str, tuple[Layout, Made]], list[Arm]]:
        """Make copies; return those that are measured, and the ways to read that are, the files as they are first."""
        with Source(self.files[0].name, 0, {}, str(self.files[0])).opened() as file:
            paged = creation(file)["paged"]
        plain = self._forecast(_ORIGINAL, self._object, self.datasets, paged)
        best: dict[str, tuple[Arm, Layout]] = {}
        for layout in self._layouts():
            made = copies.make(layout, self._object, self.scratch / "forecast" / layout.name)
            arm = min(self._forecast(layout.name, made.files, layout.patterns(self.datasets), True), key=_seconds)
            kind = layout.name.partition("-")[0]
            if kind not in best or arm.seconds < best[kind][0].seconds:
                best[kind] = arm, layout
        copied = sorted(best.values(), key=lambda pair: pair[0].seconds)[:_COPIES]
        made = {
            layout.name: (layout, copies.make(layout, self.files, self.scratch / layout.name)) for _, layout in copied
        }
        shutil.rmtree(self.scratch / "forecast")
        others = sorted(plain[1:], key=_seconds)[:1]
        return made, [plain[0], *others, *(arm for arm, _ in copied)]

    def _layouts(self) -> list[Layout]:
        size = self.files[0].stat().st_size
        names = [(page, sizes.text(page).replace(" ", "")) for page in copies.page_sizes(size)]
        layouts = [Layout(f"paged-{name}", page) for page, name in names]
        options = self.scratch / "chunks.txt"
        if copies.larger_chunks(self.files[0], self.datasets, options):
            layouts += [Layout(f"chunks-{name}", page, options) for page, name in names]
        if self.access == "datasets" and len(self.files) > 1:
            layouts += [Layout(f"large-{name}", page, merged=True) for page, name in names]
        return layouts

    def _forecast(self, layout: str, files: Sequence[Path], datasets: list[str], paged: bool) -> list[Arm]:
        from_s3 = self.store["kind"] == "s3"
        arms = list(ways.sensible(layout, from_s3, paged))
        network = self.store.get("network", {"latency_ms": _LATENCY_MS} if from_s3 else ways.DISK)
        forecast = ways.forecast(arms, self._python, files, datasets, self.level, network)
        self.considered += forecast
        best = min(forecast, key=_seconds)
        print(f"{layout}: {best.requests:,} requests, {sizes.text(best.bytes)} at best ({best.driver})", flush=True)
        return forecast

    def configuration(self, name: str, made: dict[str, tuple[Layout, Made]], arms: list[Arm]) -> dict:
        """Return the configuration of the run that measures, with what was forecast and what copies took."""
        originals = list(map(str, self.files))
        sets_of = {_ORIGINAL: originals} | {key: list(map(str, of.files)) for key, (_, of) in made.items()}
        patterns = {_ORIGINAL: self.datasets} | {key: of.patterns(self.datasets) for key, (of, _) in made.items()}
        common = {"library": [_READERS], "store": ["tried"], "access": [self.access], "selection": [self.level]}
        common |= {"workers": [1], "cache": ["cold"]}
        shots = {
            "question": "How are these files read fastest, and is a copy in another layout worth it?",
            "data": {"files": sets_of, "datasets": patterns},
            "rdcc_nbytes": ways.RDCC_NBYTES,
            "control_cells": 1,
            "advice": {
                "arms": list(map(asdict, arms)),
                "considered": list(map(asdict, self.considered)),
                "copies": {
                    key: {
                        "typed": layout.typed(),
                        **{side: getattr(of, side) for side in ("original_bytes", "copy_bytes", "seconds")},
                    }
                    for key, (layout, of) in made.items()
                },
            },
            "matrix": [{key: [level] for key, level in arm.levels.items()} | common for arm in arms],
        }
        return {
            **{"run": name, "libraries": {_READERS: _LIBRARY}},
            **{"stores": {"tried": self.store}, "studies": {"shots": shots}},
        }


def _seconds(arm: Arm) -> float:
    return arm.seconds


if __name__ == "__main__":
    run(main)
