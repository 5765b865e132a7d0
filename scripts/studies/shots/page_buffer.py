"""The page buffer of a cell: what its level asks for, and what the library made of it. Nothing here imports HDF5."""

from scripts.lib import sizes

UNSET = -1


def in_bytes(level: str) -> int:
    """Return the bytes of a page buffer's level: "unset" (UNSET), "0", or a size such as "64MiB".

    Raises:
        Problem: it is none of these.
    """
    return UNSET if level == "unset" else sizes.in_bytes(level)


def ignored(asked: int, got: int, page_size: int) -> str:
    """Say how the library departed from the page buffer that was asked for, "" where it did not (FACTS of HDF5).

    A buffer is rounded down to whole pages, which keeps the label true; one below a page is raised to a page, and
    one on a file that is not paged is dropped: both silently, and both make the label false.
    """
    if asked in (UNSET, got):
        return ""
    if got == 0:
        return f"the library ignored the page buffer of {asked} bytes (is the file paged?)"
    if got > asked:
        return f"the library raised the page buffer of {asked} bytes to {got} (one page)"
    if got == asked // page_size * page_size:
        return ""
    return f"the library made a page buffer of {got} bytes out of {asked}"
