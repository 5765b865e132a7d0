"""Copy HDF5 files to other layouts with HDF5's command-line tools, and format the commands for users."""

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py

from sbench.files.equality import find_difference
from sbench.probe import sizes
from sbench.probe.program import Problem, find_tool
from sbench.studies.shots.accesses import Accesses
from sbench.studies.shots.manifest import list_datasets

LARGE = "large.h5"
# Timeout for each call of a tool.
_LIMIT_S = 1800


@dataclass(frozen=True)
class Layout:
    """The layout of a set of copies.

    Attributes:
        name: name of the set of copies, a level of the factor `layout`.
        page_size: size of the file's pages in bytes; 0 for a file without pages.
        options: h5repack options that set chunk shapes: a file for all originals, or a folder with `<name>.txt` for
            each original. None to leave the chunks unchanged.
        merged: whether to merge all files into a single file, as groups.
    """

    name: str
    page_size: int = 0
    options: Path | None = None
    merged: bool = False

    @property
    def page_arguments(self) -> list[str]:
        """The h5repack arguments that set the page size."""
        return ["-S", "PAGE", "-G", str(self.page_size)] if self.page_size else []

    def build_repack_command(self, original: str, copy: str) -> list[str]:
        """Return the h5repack command that writes a copy of a file in this layout."""
        chunked = ["-e", str(self.get_options_file(Path(original).name))] if self.options else []
        return ["h5repack", *chunked, *self.page_arguments, original, copy]

    def get_options_file(self, name: str) -> str:
        """Return the path of the h5repack options file for the original file called `name`."""
        return f"{self.options}/{name}.txt" if self.options.is_dir() else str(self.options)

    def convert_patterns(self, datasets: Sequence[str]) -> list[str]:
        """Convert dataset patterns for the originals to patterns that match the same datasets in the copies."""
        within = {one: ("!" * one.startswith("!")) + "/*" + one.removeprefix("!") for one in datasets}
        return [within[one] if self.merged else one for one in datasets]


@dataclass(frozen=True)
class Made:
    """The result of copying a set of files.

    Attributes:
        files: paths of the copies.
        original_bytes, copy_bytes: total size of the originals, and of the copies.
        seconds: time that it took to make the copies.
    """

    files: list[Path]
    original_bytes: int
    copy_bytes: int
    seconds: float


def make_copies(
    layout: Layout, originals: Sequence[Path], folder: Path, datasets: Sequence[str], accesses: Accesses
) -> Made:
    """Copy files to a folder in another layout, and verify that the datasets to read have the same values.

    Args:
        layout: layout of the copies.
        originals: paths of the files.
        folder: folder for the copies; created if missing.
        datasets: patterns of the datasets to read.
        accesses: how to read them.

    Raises:
        Problem: a tool is missing or fails, or a copy cannot be read or contains different values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    copies = _merge_files(layout, originals, folder) if layout.merged else _make_repacked(layout, originals, folder)
    took = time.monotonic() - begin
    for number, original in enumerate(originals):
        within = f"/{original.stem}" if layout.merged else ""
        copy = copies[0 if layout.merged else number]
        if difference := find_difference(original, copy, _list_paths(original, datasets, accesses), within):
            raise Problem(difference)
    return Made(copies, *(sum(path.stat().st_size for path in of) for of in (originals, copies)), took)


def _list_paths(original: Path, datasets: Sequence[str], accesses: Accesses) -> list[str]:
    with h5py.File(original) as file:
        return [one.name for one in list_datasets(file, datasets, str(original), accesses)]


def _make_repacked(layout: Layout, originals: Sequence[Path], folder: Path) -> list[Path]:
    for original in originals:
        _run_tool(layout.build_repack_command(str(original), str(folder / original.name)))
    return [folder / original.name for original in originals]


def _merge_files(layout: Layout, originals: Sequence[Path], folder: Path) -> list[Path]:
    merged = folder / "merged.h5.part"
    merged.unlink(missing_ok=True)
    for original in originals:
        _run_tool(["h5copy", "-p", "-i", str(original), "-s", "/", "-o", str(merged), "-d", f"/{original.stem}"])
    _run_tool(layout.build_repack_command(str(merged), str(folder / LARGE)))
    merged.unlink()
    return [folder / LARGE]


def get_copy_name(path: Path, is_mirrored: bool) -> str:
    """Return the path of a file's copy relative to the folder of copies.

    Args:
        path: path of the original.
        is_mirrored: whether to keep the folders in the original's path.
    """
    return str(path).lstrip("/") if is_mirrored else path.name


def format_copy_command(layout: Layout, files: Sequence[str], is_mirrored: bool = False) -> str:
    """Format the shell command that copies files to a folder named after the layout.

    Args:
        layout: layout of the copies.
        files: paths and shell patterns of the originals.
        is_mirrored: whether to keep the folders in the originals' paths.
    """
    words, folder, name = " ".join(map(_quote_pattern, files)), layout.name, "$file" if is_mirrored else "${file##*/}"
    if layout.merged:
        copying = f'name={name}; h5copy -p -i "$file" -s / -o merged.h5 -d "/${{name%.*}}"'
        return f"for file in {words}; do {copying}; done; {shlex.join(layout.build_repack_command('merged.h5', LARGE))}"
    options = layout.options and _quote_pattern(layout.get_options_file(f'"{name}"'))
    command = [
        "h5repack",
        *(["-e", options] if options else []),
        *layout.page_arguments,
        '"$file"',
        f'{folder}/"{name}"',
    ]
    if is_mirrored:
        return f'for file in {words}; do mkdir -p {folder}/"$(dirname "$file")"; {" ".join(command)}; done'
    return f"mkdir -p {folder}; for file in {words}; do {' '.join(command)}; done"


def _quote_pattern(pattern: str) -> str:
    """Quote a path for the shell without quoting wildcards and variables."""
    return re.sub(r"[^\w@%+=:,./*?\[\]~\"${}#-]", lambda match: f"\\{match[0]}", pattern)


def expect_room(folder: Path, needed: int) -> None:
    """Raise Problem if the file system of a folder has less than `needed` bytes free."""
    if (free := shutil.disk_usage(folder).free) < needed:
        raise Problem(
            f"{folder} has {sizes.format_size(free)} free, but copies take up to {sizes.format_size(needed)};"
            " free space, name fewer files, or another folder (--scratch)"
        )


def list_page_sizes(size: int) -> Iterator[int]:
    """Yield the page sizes to try for a file of `size` bytes.

    These are 1 MiB, and 4 and 16 MiB if they do not exceed a quarter of the file.
    """
    yield from (page for page in (2**20, 2**22, 2**24) if page == 2**20 or 4 * page <= size)


def _run_tool(command: list[str]) -> None:
    """Run an HDF5 command-line tool; raise Problem with HDF5's error message if it fails or times out."""
    program = find_tool(command[0], remedy="apt install hdf5-tools, or put HDF5's bin on PATH")
    words = [program, "--enable-error-stack", *command[1:]]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Problem(f"{command[0]} took more than {_LIMIT_S // 60} minutes") from None
    if done.returncode:
        raise Problem(f"{command[0]} failed: {_parse_reason(done.stderr) or _describe_status(done.returncode)}")


def _describe_status(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code} without a reason"


def _parse_reason(words: str) -> str:
    """Return the innermost message of HDF5's first error stack; without a stack, the last line of the output."""
    stacks = re.split(r"^(?=\S*-DIAG)", words, flags=re.MULTILINE)
    # The tools print an error stack of their own for each driver that they try.
    library = [stack for stack in stacks if stack.startswith("HDF5-DIAG")]
    calls = re.findall(r"^ *#\d+: .*?\): (.*)$", (library or stacks[-1:])[0], re.MULTILINE)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return (calls or lines or [""])[-1]
