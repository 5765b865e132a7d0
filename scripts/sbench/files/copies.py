"""Make copies of files in other layouts by the tools of HDF5, with the commands that users type."""

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
# Time limit of a tool.
_LIMIT_S = 1800


@dataclass(frozen=True)
class Layout:
    """The layout of a copy.

    Attributes:
        name: name of the set of copies, a level of the factor `layout`.
        page_size: bytes; 0 without pages.
        options: h5repack options for other chunks: a file for all originals, or a folder with `<name>.txt` for each;
            None keeps the chunks.
        merged: whether all files become groups of the same file.
    """

    name: str
    page_size: int = 0
    options: Path | None = None
    merged: bool = False

    @property
    def page_arguments(self) -> list[str]:
        """The arguments of h5repack for the pages."""
        return ["-S", "PAGE", "-G", str(self.page_size)] if self.page_size else []

    def build_repack_command(self, original: str, copy: str) -> list[str]:
        """Return the command that makes a copy of a file."""
        chunked = ["-e", str(self.get_options_file(Path(original).name))] if self.options else []
        return ["h5repack", *chunked, *self.page_arguments, original, copy]

    def get_options_file(self, name: str) -> str:
        """Return the path of the h5repack options for an original with this name."""
        return f"{self.options}/{name}.txt" if self.options.is_dir() else str(self.options)

    def convert_patterns(self, datasets: Sequence[str]) -> list[str]:
        """Return patterns that match the same datasets in the copy as `datasets` in the original."""
        within = {one: ("!" * one.startswith("!")) + "/*" + one.removeprefix("!") for one in datasets}
        return [within[one] if self.merged else one for one in datasets]


@dataclass(frozen=True)
class Made:
    """A set of copies: files, bytes of all originals and of all copies, and the seconds to make them."""

    files: list[Path]
    original_bytes: int
    copy_bytes: int
    seconds: float


def make_copies(
    layout: Layout, originals: Sequence[Path], folder: Path, datasets: Sequence[str], accesses: Accesses
) -> Made:
    """Make copies of files in a folder, and check that the datasets to read have the values of the originals.

    Raises:
        Problem: a tool is missing or fails, or a copy cannot be read or has other values.
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
    """Return the path of a file's copy within the folder of copies."""
    return str(path).lstrip("/") if is_mirrored else path.name


def format_copy_command(layout: Layout, files: Sequence[str], is_mirrored: bool = False) -> str:
    """Format the shell command that makes copies of files in a folder with the name of the layout.

    Args:
        layout: layout of the copies.
        files: paths and patterns of a shell.
        is_mirrored: whether copies are in folders like their originals.
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
    """Quote a path for a shell, but keep its wildcards and variables."""
    return re.sub(r"[^\w@%+=:,./*?\[\]~\"${}#-]", lambda match: f"\\{match[0]}", pattern)


def expect_room(folder: Path, needed: int) -> None:
    """Raise a Problem if the disk of a folder has too few free bytes."""
    if (free := shutil.disk_usage(folder).free) < needed:
        raise Problem(
            f"{folder} has {sizes.format_size(free)} free, but copies take up to {sizes.format_size(needed)};"
            " free space, name fewer files, or another folder (--scratch)"
        )


def list_page_sizes(size: int) -> Iterator[int]:
    """Yield page sizes to try for files of `size` bytes: 1 MiB, and 4 and 16 MiB up to a quarter of `size`."""
    yield from (page for page in (2**20, 2**22, 2**24) if page == 2**20 or 4 * page <= size)


def _run_tool(command: list[str]) -> None:
    """Run a tool of HDF5; raise a Problem with HDF5's reason if it fails."""
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
    """Return the innermost reason of the library's first error stack, else the last line of the tool."""
    stacks = re.split(r"^(?=\S*-DIAG)", words, flags=re.MULTILINE)
    # Tools report each driver that they try in a separate stack.
    library = [stack for stack in stacks if stack.startswith("HDF5-DIAG")]
    calls = re.findall(r"^ *#\d+: .*?\): (.*)$", (library or stacks[-1:])[0], re.MULTILINE)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return (calls or lines or [""])[-1]
