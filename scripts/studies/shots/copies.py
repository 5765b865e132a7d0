"""Copies of files in other layouts, made by HDF5's own tools with the commands that a user can type."""

import math
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from scripts.lib import sizes
from scripts.lib.program import Problem, tool, write_text
from scripts.studies.shots.manifest import chosen

# Chunks below the first are worth making larger, up to the second (bytes in memory), where there are several.
_SMALL_CHUNK, _CHUNK, _SEVERAL = 2**17, 2**20, 4
_LARGE = "large.h5"
# h5repack reads a line of its options into 1,024 characters, and names end at a blank, a comma or a colon.
_LINE = 900


@dataclass(frozen=True)
class Layout:
    """How a copy is laid out.

    Attributes:
        name: of the set of copies, a level of the factor `layout`.
        page_size: bytes.
        chunks: the file with h5repack's options that makes chunks larger; None leaves them.
        merged: all files become one, each a group of it.
    """

    name: str
    page_size: int
    chunks: Path | None = None
    merged: bool = False

    def repack(self, original: str, copy: str) -> list[str]:
        """Return the command that makes a copy of one file."""
        more = ["-e", str(self.chunks)] if self.chunks else []
        return ["h5repack", *more, "-S", "PAGE", "-G", str(self.page_size), original, copy]

    def typed(self) -> str:
        """Return what a user types for each file, or for all of them."""
        if not self.merged:
            return shlex.join(self.repack("original.h5", "copy.h5"))
        copying = 'for file in *.h5; do h5copy -p -i "$file" -s / -o merged.h5 -d "/${file%.*}"; done'
        return f"{copying}; {shlex.join(self.repack('merged.h5', _LARGE))}"

    def patterns(self, datasets: Sequence[str]) -> list[str]:
        """Return the patterns of datasets that mean in the copy what some mean in the original."""
        within = {one: ("!" * one.startswith("!")) + "/*" + one.removeprefix("!") for one in datasets}
        return [within[one] if self.merged else one for one in datasets]


@dataclass(frozen=True)
class Made:
    """A set of copies: their files, bytes of all originals and of all copies, and the seconds that it took."""

    files: list[Path]
    original_bytes: int
    copy_bytes: int
    seconds: float


def make(layout: Layout, originals: Sequence[Path], folder: Path) -> Made:
    """Make copies of some files in a folder.

    Raises:
        Problem: there is no h5repack, the disk has no room, or h5repack fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin, copies = time.monotonic(), []
    if layout.merged:
        merged = folder / "merged.h5.part"
        merged.unlink(missing_ok=True)
        for original in originals:
            _run(["h5copy", "-p", "-i", str(original), "-s", "/", "-o", str(merged), "-d", f"/{original.stem}"])
        _run(layout.repack(str(merged), str(folder / _LARGE)))
        merged.unlink()
        copies = [folder / _LARGE]
    else:
        for original in originals:
            _run(layout.repack(str(original), str(folder / original.name)))
            copies.append(folder / original.name)
    took = time.monotonic() - begin
    return Made(copies, *(sum(path.stat().st_size for path in of) for of in (originals, copies)), took)


def expect_room(folder: Path, needed: int) -> None:
    """See that a disk has room.

    Raises:
        Problem: it has not.
    """
    if (free := shutil.disk_usage(folder).free) < needed:
        raise Problem(
            f"{folder} has {sizes.text(free)} free, and copies take up to {sizes.text(needed)};"
            " free some, name fewer files, or another SCRATCH"
        )


def larger_chunks(original: Path, datasets: Sequence[str], options: Path) -> bool:
    """Write the options of h5repack that make small chunks larger; returns whether any are so small and so many."""
    lines: dict[tuple[int, ...], list[str]] = {}
    with h5py.File(original) as file:
        for of_pattern in chosen(file, datasets, str(original))[0].values():
            for one in of_pattern:
                if (shape := _larger(one)) and not re.search(r"[\s,:]", one.name):
                    lines.setdefault(shape, []).append(one.name)
    if lines:
        write_text(options, "".join(text for shape, names in lines.items() for text in _options(shape, names)))
    return bool(lines)


def _options(shape: Sequence[int], names: Sequence[str]) -> Iterator[str]:
    """Yield h5repack's options that give datasets chunks of a shape, in lines that it can read."""
    text = ""
    for name in names:
        if text and len(text) + len(name) > _LINE:
            yield f"-l {text}:CHUNK={'x'.join(map(str, shape))}\n"
            text = ""
        text += f"{',' if text else ''}{name}"
    yield f"-l {text}:CHUNK={'x'.join(map(str, shape))}\n"


def _larger(dataset: h5py.Dataset) -> tuple[int, ...] | None:
    """Return the shape of larger chunks, each dimension doubled in turn where most chunks lie along it."""
    if not dataset.chunks or dataset.id.get_num_chunks() < _SEVERAL:
        return None
    shape, item = list(dataset.chunks), dataset.dtype.itemsize
    if math.prod(shape) * item >= _SMALL_CHUNK:
        return None
    while math.prod(shape) * item < _CHUNK:
        along = max(range(len(shape)), key=lambda axis: dataset.shape[axis] / shape[axis])
        if shape[along] >= dataset.shape[along]:
            break
        shape[along] = min(2 * shape[along], dataset.shape[along])
    return tuple(shape)


def page_sizes(size: int) -> Iterator[int]:
    """Yield the page sizes that are tried for files of `size` bytes: none larger than a quarter of it."""
    yield from (page for page in (2**20, 2**22, 2**24) if page == 2**20 or 4 * page <= size)


def _run(command: list[str]) -> None:
    program = tool(command[0], remedy=f"{command[0]} is not here; apt install hdf5-tools, or put HDF5's bin on PATH")
    with subprocess.Popen(
        [program, *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        words = process.communicate()[1]
    if process.returncode:
        last = ([line.strip() for line in words.splitlines() if line.strip()] or ["it said nothing"])[-1]
        raise Problem(f"{shlex.join(command)} failed: {last}")
