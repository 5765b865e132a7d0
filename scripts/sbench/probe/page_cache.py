"""Evict files from this machine's page cache, load them into it, and inspect it, without root privileges (METHOD 8)."""

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
# Inspect files in parts of this many bytes, because mincore(2) needs a byte of memory per page.
_AT_ONCE = 1 << 32
_TRIES, _PAUSE_S = 11, 0.02
_libc = ctypes.CDLL(None, use_errno=True)
# Whether mincore(2) reports a page that was just read as resident, by device number.
_sees: dict[int, bool] = {}


def evict_files(paths: Iterable[Path | str]) -> None:
    """Evict files from the page cache. Dirty pages are first written to disk, since only clean pages can be evicted."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fdatasync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load_files(paths: Iterable[Path | str], block_bytes: int = 1 << 22) -> int:
    """Read files completely, so that their pages are in the page cache, and return the number of bytes read."""
    total = 0
    buffer = bytearray(block_bytes)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def measure_resident(paths: Iterable[Path | str]) -> float | None:
    """Return the fraction (0 to 1) of the files' pages that are in the page cache, according to mincore(2).

    Returns None if mincore(2) is not meaningful: for files on tmpfs, whose pages are always in the page cache; for
    files of other users, which Linux reports as fully resident since version 5.2; and for file systems that bypass the
    page cache (ZFS, GPFS, FUSE with direct_io), as detected by `set_cache_state`. Empty files are ignored, and the
    result is None if there are no others.
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
    """Return a byte per page of a file range, 0 if the page is not in the page cache; b"" if mincore(2) fails."""
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
    """Test once per device whether mincore(2) works there: it must report a page that was just read as resident."""
    device = os.stat(path).st_dev
    if device in _sees or not os.path.getsize(path):
        return
    with open(path, "rb", buffering=0) as file:
        # Read one page without readahead.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(1)
        _sees[device] = any(_list_page_states(path, 0, min(mmap.PAGESIZE, os.path.getsize(path))))


def set_cache_state(state: str, paths: list[Path]) -> dict:
    """Evict files from the page cache or load them, as a cell requires, and return the state measured afterwards.

    First, mincore(2) is tested on the files' devices; if it does not report a page that was just read as resident, no
    state can be verified. Files are not loaded again if they are already in the cache.

    Args:
        state: "cold", "warm", "direct" (cold, for readers that bypass the cache), or "any" (leave the cache unchanged).
        paths: the files on this machine that the cell will read.

    Returns:
        "asked": `state`. "state": the verified state ("cold", "warm" or "mixed"), or "unverified". "resident_before":
        the fraction of pages in the cache; None if unknown.
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
    """Make every core free its deferred socket buffers by sending a loopback packet from each.

    Pages sent from the page cache cannot be evicted while such buffers refer to them, and idle cores do not free them
    (skb_defer_free_flush in Linux).
    """
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
    """Merge the cache states of several machines into the one that is furthest from the requested state."""
    fractions = [state["resident_before"] for state in states]
    worst = None if None in fractions else find_furthest(states[0]["asked"], fractions)
    return states[0] | {"state": get_verified_state(worst), "resident_before": worst}


def find_furthest(state: str, fractions: Iterable[float]) -> float | None:
    """Return the resident fraction that is furthest from the requested state; None if there are no fractions."""
    return (min if state == "warm" else max)(fractions, default=None)


def get_verified_state(fraction: float | None) -> str:
    """Classify a resident fraction as "cold", "warm" or "mixed" by the limits of METHOD 8; None is "unverified"."""
    if fraction is None:
        return "unverified"
    if fraction <= COLD_AT_MOST:
        return "cold"
    return "warm" if fraction >= WARM_AT_LEAST else "mixed"


def format_percent(fraction: float) -> str:
    """Format a resident fraction as a percentage, with so many decimals that rounding does not change the state."""
    kept = get_verified_state(fraction)
    decimals = next((d for d in range(1, 6) if get_verified_state(round(fraction, d + 2)) == kept), 6)
    return f"{fraction:.{decimals}%}"


def describe_mismatch(state: dict, of: str = "", when: str = "") -> str | None:
    """Return a message if a cache state differs from the requested one; None if it matches or cannot be verified.

    Args:
        state: result of `set_cache_state`.
        of: owner of the page cache for the message, such as " of host a".
        when: time for the message, such as " before iteration 1".
    """
    wanted = {"direct": "cold"}.get(state["asked"], state["asked"])
    if wanted == "any" or state["state"] in (wanted, "unverified", "elsewhere"):
        return None
    resident = format_percent(state["resident_before"])
    return f"the page cache{of} was {state['state']} ({resident} resident){when}, expected {wanted}"
