"""Evict, load and inspect the page cache of this machine, file by file and without root (METHOD 8)."""

import ctypes
import mmap
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from sbench.probe import host

COLD_AT_MOST = 0.01
WARM_AT_LEAST = 0.99
# The answer takes a byte of memory for each page of the part.
_AT_ONCE = 1 << 32
_TRIES, _PAUSE_S = 11, 0.02
_libc = ctypes.CDLL(None, use_errno=True)
# By device: whether the kernel reports a page that was just read as resident.
_sees: dict[int, bool] = {}


def evict_files(paths: Iterable[Path | str]) -> None:
    """Drop the pages of `paths` from the page cache; write dirty pages first, since only clean pages can go."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fdatasync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load_files(paths: Iterable[Path | str], block_bytes: int = 1 << 22) -> int:
    """Read `paths` once from end to end, so that their pages are in the page cache; return the bytes read."""
    total = 0
    buffer = bytearray(block_bytes)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def measure_resident(paths: Iterable[Path | str]) -> float | None:
    """Return the fraction of the pages of `paths` (0 … 1) that the page cache holds, by mincore(2).

    Return None if the kernel's answer means nothing: for files on tmpfs (which are the page cache), for files of other
    users, which Linux reports as all resident since 5.2, and for files that are read past the page cache, as
    `set_cache_state` has found out (ZFS, GPFS, FUSE with direct_io). Empty files count nothing.
    """
    pages = present = 0
    for path in paths:
        if not _is_answerable(path):
            return None
        size = os.path.getsize(path)
        for start in range(0, size, _AT_ONCE):
            states = _list_page_states(path, start, min(_AT_ONCE, size - start))
            if not states:
                return None
            pages += len(states)
            present += len(states) - states.count(0)
    return present / pages if pages else None


def _list_page_states(path: Path | str, start: int, length: int) -> bytes:
    """Return a byte for each page of a part of a file, 0 if it is not in the cache; b"" if the kernel refuses."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), length, flags=mmap.MAP_PRIVATE, offset=start) as view:
        states = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        # MAP_PRIVATE with the default protection is writable, as from_buffer requires.
        first = ctypes.c_char.from_buffer(view)
        failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), states)
        del first
    return b"" if failed else bytes(states)


def _is_answerable(path: Path | str) -> bool:
    file = os.stat(path)
    ours = file.st_uid == os.geteuid() or os.access(path, os.W_OK)
    return (
        ours and _sees.get(file.st_dev, True) and host.find_mount(path)["file_system"] not in host.MEMORY_FILE_SYSTEMS
    )


def _test_device(path: Path) -> None:
    """Test whether mincore(2) sees reads from a file's device: it must see the first page just after its read."""
    device = os.stat(path).st_dev
    if device in _sees or not os.path.getsize(path):
        return
    with open(path, "rb", buffering=0) as file:
        # Read one page without readahead.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(1)
        _sees[device] = any(_list_page_states(path, 0, min(mmap.PAGESIZE, os.path.getsize(path))))


def set_cache_state(state: str, paths: list[Path]) -> dict:
    """Bring `paths` into the cache state that a cell asks for and return the state found afterwards.

    Test the instrument first: if it does not see a page that was just read, no state is verified. Files that are in the
    cache already are not read again.

    Args:
        state: "cold", "warm", "direct" (cold, for readers that bypass the cache), or "any" (leave the cache).
        paths: the files that the cell will read, on this machine.

    Returns:
        {"asked", "state", "resident_before"}: state is the verified state ("cold", "warm", "mixed") or "unverified";
        resident_before is the fraction of the pages in the cache, None if unknown.
    """
    for path in paths:
        _test_device(path)
    before = measure_resident(paths)
    if state in ("cold", "direct"):
        for _ in range(_TRIES):
            evict_files(paths)
            before = measure_resident(paths)
            if get_verified_state(before) in ("cold", "unverified"):
                break
            _let_go_of_sent_pages()
            time.sleep(_PAUSE_S)
    elif state == "warm" and get_verified_state(before) != "warm":
        load_files(paths)
        before = measure_resident(paths)
    return {"asked": state, "state": get_verified_state(before), "resident_before": before}


def _let_go_of_sent_pages() -> None:
    """Make every core free the file pages that it has received: an idle core never does (skb_defer_free_flush)."""
    cores = os.sched_getaffinity(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets:
        packets.bind(("127.0.0.1", 0))
        try:
            for core in cores:
                os.sched_setaffinity(0, {core})
                packets.sendto(b"", packets.getsockname())
                packets.recv(1)
        finally:
            os.sched_setaffinity(0, cores)


def merge_states(states: list[dict]) -> dict:
    """Return the state of the page caches of several machines: the state furthest from the request."""
    fractions = [state["resident_before"] for state in states]
    worst = None if None in fractions else find_furthest(states[0]["asked"], fractions)
    return states[0] | {"state": get_verified_state(worst), "resident_before": worst}


def find_furthest(state: str, fractions: Iterable[float]) -> float | None:
    """Return the resident fraction that is furthest from the requested state; None without fractions."""
    return (min if state == "warm" else max)(fractions, default=None)


def get_verified_state(fraction: float | None) -> str:
    """Return the cache state that a resident fraction proves (METHOD 8's limits)."""
    if fraction is None:
        return "unverified"
    if fraction <= COLD_AT_MOST:
        return "cold"
    return "warm" if fraction >= WARM_AT_LEAST else "mixed"


def format_percent(fraction: float) -> str:
    """Format a resident fraction with one decimal, or as many as show which of METHOD 8's limits it keeps."""
    kept = get_verified_state(fraction)
    decimals = next((d for d in range(1, 6) if get_verified_state(round(fraction, d + 2)) == kept), 6)
    return f"{fraction:.{decimals}%}"


def describe_mismatch(state: dict, of: str = "", when: str = "") -> str | None:
    """Describe in a line a cache state that is not the requested state; an unverifiable state is no fault.

    Args:
        state: result of `set_cache_state`.
        of: owner of the page cache, such as " of host a".
        when: time, such as " before iteration 1".
    """
    wanted = {"direct": "cold"}.get(state["asked"], state["asked"])
    if wanted == "any" or state["state"] in (wanted, "unverified", "elsewhere"):
        return None
    resident = format_percent(state["resident_before"])
    return f"the page cache{of} was {state['state']} ({resident} resident){when}, expected {wanted}"
