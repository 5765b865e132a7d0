"""Points at which a fault is injected: the calls that were counted, those that are sampled, and those that failed."""

import errno
import random
import struct
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# As in inject.c: the functions of a row, the bytes of its key, and the rows.
FUNCTIONS = ("open", "write", "rename", "fsync", "fork", "connect", "recv")
ROW = struct.Struct(f"=232s{len(FUNCTIONS)}I{len(FUNCTIONS)}I")
ROWS = 512
ERRORS = {
    "open": ("EMFILE", "EIO", "ENOMEM"),
    "write": ("ENOSPC", "EIO"),
    "rename": ("EIO", "ENOSPC"),
    "fsync": ("EIO", "ENOSPC"),
    "fork": ("ENOMEM",),
    "connect": ("ECONNRESET",),
    "recv": ("ECONNRESET",),
}

# What runs beside the programs of the workflow: Dask's workers, the shell of a battery of fio, a server. MPICH's
# launcher is left out: it waits for ever for a process that it could not fork.
PROGRAMS = ("snakemake", "spawned", "sh", "fio", "mv", "node")
# Left out, too: the line in which Snakemake names its profile, two writes. They come before the plugin that reports
# failures is loaded, so Snakemake ends with a traceback of its own.
FIRST_LINE = ("-", "snakemake", "write")


@dataclass(frozen=True)
class Point:
    """The n-th call of a function by a program in a job, and the error with which it fails."""

    job: str
    program: str
    function: str
    number: int
    error: str

    def __str__(self) -> str:
        """Return the point as it can be named again."""
        return f"{self.job} {self.program} {self.function} {self.number} {self.error}"

    @property
    def line(self) -> str:
        """The point as the library reads it."""
        return f"{self.job} {self.program} {self.function} {self.number} {getattr(errno, self.error)}\n"


def parse_point(text: str) -> Point:
    """Return the point that a text names."""
    job, program, function, number, error = text.split()
    return Point(job, program, function, int(number), error)


def compile_library(folder: Path) -> Path:
    """Compile the library that is preloaded, and return its path."""
    library = folder / "inject.so"
    source = Path(__file__).with_name("inject.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def make_table(path: Path) -> None:
    """Make an empty table of counts."""
    path.write_bytes(bytes(ROW.size * ROWS))


def read_rows(table: Path) -> Iterator[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    """Yield job, program, counts, and the numbers of the calls that failed, of each row of a table."""
    for key, *numbers in ROW.iter_unpack(table.read_bytes()):
        if text := key.rstrip(b"\0").decode(errors="replace"):
            job, _, program = text.partition(" ")
            yield job, program, tuple(numbers[: len(FUNCTIONS)]), tuple(numbers[len(FUNCTIONS) :])


def read_failed(table: Path, points: Iterable[Point]) -> list[Point]:
    """Return the points at which a call failed."""
    failed = {
        (job, program, function, number)
        for job, program, _, numbers in read_rows(table)
        for function, number in zip(FUNCTIONS, numbers, strict=True)
    }
    return [point for point in points if (point.job, point.program, point.function, point.number) in failed]


def sample(draw: random.Random, table: Path, jobs: Iterable[str]) -> list[Point]:
    """Return a point in each job: a program and a function of it, each as likely, then one of its calls."""
    counts: dict[str, list[tuple[str, str, int]]] = {}
    for job, program, numbers, _ in read_rows(table):
        if program.startswith("sbench.") or program.endswith(".py") or program in PROGRAMS:
            pairs = zip(FUNCTIONS, numbers, strict=True)
            counts.setdefault(job, []).extend((program, function, count) for function, count in pairs if count)
    points = []
    for job in jobs:
        program, function, count = draw.choice(sorted(counts[job]))
        number = draw.randint(3 if (job, program, function) == FIRST_LINE else 1, count)
        points.append(Point(job, program, function, number, draw.choice(ERRORS[function])))
    return points
