"""The page cache of this machine, file by file and without root: evict, load, and see what is there (METHOD 8)."""

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
# A page of a file is a byte of memory for as long as it is asked for.
_AT_ONCE = 1 << 32
_TRIES, _PAUSE_S = 11, 0.02
_libc = ctypes.CDLL(None, use_errno=True)
# By device: whether the kernel says of a page that was just read that it is there.
_sees: dict[int, bool] = {}


def evict_files(paths: Iterable[Path | str]) -> None:
    """Drop the pages of `paths` from the page cache; dirty pages are written first, since only clean ones can go."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fdatasync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load_files(paths: Iterable[Path | str], block_bytes: int = 1 << 22) -> int:
    """Read `paths` once from end to end, so that their pages are in the page cache; returns the bytes read."""
    total = 0
    buffer = bytearray(block_bytes)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def measure_resident(paths: Iterable[Path | str]) -> float | None:
    """Return the fraction of the pages of `paths` (0 … 1) that the page cache holds, by mincore(2).

    None where the kernel's answer means nothing: files on tmpfs (which are the page cache), files that are not this
    user's, for which Linux says "all resident" since 5.2, and files that are read past the page cache, as
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
    """Return a byte for each page of a part of a file, 0 where it is not in the cache; none if the kernel won't say."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), length, flags=mmap.MAP_PRIVATE, offset=start) as view:
        states = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        # MAP_PRIVATE with the default protection is writable, which is what from_buffer needs.
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
    """Find out whether mincore(2) sees what is read from the device of a file: its first page, just read, is there."""
    device = os.stat(path).st_dev
    if device in _sees or not os.path.getsize(path):
        return
    with open(path, "rb", buffering=0) as file:
        # One page and not those after it.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(1)
        _sees[device] = any(_list_page_states(path, 0, min(mmap.PAGESIZE, os.path.getsize(path))))


def set_cache_state(state: str, paths: list[Path]) -> dict:
    """Bring `paths` into the cache state that a cell asks for and return what was found afterwards.

    The instrument is tested before: where a page that was just read is not seen, no state is verified. Files that are
    in the cache already are not read once more.

    Args:
        state: "cold", "warm", "direct" (cold, for readers that pass the cache by), or "any" (nothing is done).
        paths: the files that the cell will read, on this machine.

    Returns:
        {"asked", "state", "resident_before"}: state is what was verified ("cold", "warm", "mixed") or "unverified";
        resident_before is the fraction of the pages in the cache, None where it cannot be known.
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
    """Let every core free what it has received of files: one that idles never does (skb_defer_free_flush)."""
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
    """Return the state of the page caches of several machines: of the one that is furthest from what was asked."""
    fractions = [state["resident_before"] for state in states]
    worst = None if None in fractions else find_furthest(states[0]["asked"], fractions)
    return states[0] | {"state": get_verified_state(worst), "resident_before": worst}


def find_furthest(state: str, fractions: Iterable[float]) -> float | None:
    """Return the resident fraction that is furthest from the state that was asked for; None where there is none."""
    return (min if state == "warm" else max)(fractions, default=None)


def get_verified_state(fraction: float | None) -> str:
    """Name the cache state that a resident fraction proves (METHOD 8's limits)."""
    if fraction is None:
        return "unverified"
    if fraction <= COLD_AT_MOST:
        return "cold"
    return "warm" if fraction >= WARM_AT_LEAST else "mixed"


def format_percent(fraction: float) -> str:
    """Return a resident fraction with one decimal, or as many as tell which of METHOD 8's limits it keeps."""
    kept = get_verified_state(fraction)
    decimals = next((d for d in range(1, 6) if get_verified_state(round(fraction, d + 2)) == kept), 6)
    return f"{fraction:.{decimals}%}"


def describe_mismatch(state: dict, of: str = "", when: str = "") -> str | None:
    """Return in one line that a state is not the one that was asked for; what cannot be checked is no fault.

    Args:
        state: as `set_cache_state` returns it.
        of: whose page cache it is, such as " of host a".
        when: such as " before iteration 1".
    """
    wanted = {"direct": "cold"}.get(state["asked"], state["asked"])
    if wanted == "any" or state["state"] in (wanted, "unverified", "elsewhere"):
        return None
    resident = format_percent(state["resident_before"])
    return f"the page cache{of} was {state['state']} ({resident} resident){when}, {wanted} was asked"
