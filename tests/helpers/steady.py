"""What the host may change while a test runs, held still: pages that it takes back from the page cache."""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from sbench.probe import page_cache

# For a program in which `keep_pages` is to hold.
PRELUDE = f"import sys\nsys.path[:0] = [{str(Path(__file__).parent)!r}]\nimport steady\nsteady.keep_pages()\n"


def keep_pages(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Answer for the kernel what was asked of it: files that were loaded are in the cache, evicted ones are not.

    What is asked is done all the same.
    """
    held: dict[str, float] = {}

    def noted(work: Callable, share: float) -> Callable:
        def done(paths: Iterable[Path | str], *rest: object) -> object:
            known = list(paths)
            held.update(dict.fromkeys(map(str, known), share))
            return work(known, *rest)

        return done

    def resident(paths: Iterable[Path | str]) -> float | None:
        shares = [held.get(str(path), 0.0) for path in paths]
        return sum(shares) / len(shares) if shares else None

    replace(page_cache, "load_files", noted(page_cache.load_files, 1.0))
    replace(page_cache, "evict_files", noted(page_cache.evict_files, 0.0))
    replace(page_cache, "measure_resident", resident)


@contextlib.contextmanager
def locked(*paths: Path) -> Iterator[None]:
    """Keep the pages of files in memory for the length of a `with` block, whoever wants them back (mlock(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        for path in paths:
            with open(path, "rb") as file:
                view = stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            address = np.frombuffer(view, np.uint8).ctypes.data
            if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(view))):
                raise OSError(ctypes.get_errno(), f"{os.strerror(ctypes.get_errno())}: raise ulimit -l")
        yield
