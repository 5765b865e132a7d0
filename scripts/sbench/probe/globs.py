"""Expand file name patterns like the standard library's glob, but limit the number of visited files and directories."""

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator

from sbench.probe.program import Problem

# Visiting this many takes about a second on a local disk. Without a limit, a pattern that starts at the root of a
# cluster's file systems or in /proc would take very long.
MOST = 300_000


def expand_pattern(pattern: str) -> list[str]:
    """Return the sorted paths that match a pattern.

    `**` matches any number of directories, and enters each directory only once, even if links lead to it.

    Raises:
        Problem: more than `MOST` files and directories would be visited.
    """
    visited = _walk_pattern("/" * pattern.startswith("/"), pattern.strip("/").split("/"), set())
    return sorted(filter(None, iter_limited(visited, pattern)))


def iter_limited(paths: Iterable, what: object) -> Iterator:
    """Yield at most `MOST` paths, and raise a Problem that names `what` if there are more."""
    for number, path in enumerate(paths):
        if number == MOST:
            raise Problem(
                f"{what}: must contain at most {MOST:,} files and folders; name a folder further down, or files"
            )
        yield path


def _walk_pattern(folder: str, parts: list[str], entered: set) -> Iterator[str]:
    """Yield paths in a directory that match the parts of a pattern, and an empty string for each visited entry."""
    first, *rest = parts
    if not glob.has_magic(first):
        path = os.path.join(folder, first)
        if rest and os.path.isdir(path):
            yield from _walk_pattern(path, rest, entered)
        elif not rest and os.path.lexists(path):
            yield path
        return
    if deep := first == "**":
        # Identify directories by device and inode, because links may form cycles, as in /sys.
        if (place := (*os.stat(folder or ".")[1:3], len(parts))) in entered:
            return
        entered.add(place)
        if rest:
            yield from _walk_pattern(folder, rest, entered)
    for entry in _list_entries(folder):
        yield ""
        path = os.path.join(folder, entry.name)
        if entry.name.startswith(".") and not first.startswith("."):
            continue
        if deep and os.path.isdir(path):
            yield from _walk_pattern(path, parts, entered)
        elif (deep and not rest) or fnmatch.fnmatchcase(entry.name, first):
            yield from _walk_pattern(path, rest, entered) if rest else [path]


def _list_entries(folder: str) -> list[os.DirEntry]:
    """Return the sorted entries of a directory, or an empty list if it cannot be read.

    Symbolic links come last, so that directories are entered by their real names.
    """
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
    except OSError:
        return []
