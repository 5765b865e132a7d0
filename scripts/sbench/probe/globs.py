"""Expand patterns of files like the standard library's glob, up to a number of files and folders."""

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator

from sbench.probe.program import Problem

# They take a second on a disk. A pattern may begin at the root of a cluster's file systems, or in /proc.
MOST = 300_000


def expand_pattern(pattern: str) -> list[str]:
    """Return the paths that match a pattern, sorted; `**` matches any folders, and enters each folder once.

    Raises:
        Problem: too many files are below the folders that it begins with.
    """
    visited = _walk_pattern("/" * pattern.startswith("/"), pattern.strip("/").split("/"), set())
    return sorted(filter(None, iter_limited(visited, pattern)))


def iter_limited(paths: Iterable, what: object) -> Iterator:
    """Yield paths, up to `MOST`; raise a Problem about `what` if there are more."""
    for number, path in enumerate(paths):
        if number == MOST:
            raise Problem(
                f"{what}: must contain at most {MOST:,} files and folders; name a folder further down, or files"
            )
        yield path


def _walk_pattern(folder: str, parts: list[str], entered: set) -> Iterator[str]:
    """Yield the matches of a pattern's parts in a folder, and "" for each other visited file or folder."""
    first, *rest = parts
    if not glob.has_magic(first):
        path = os.path.join(folder, first)
        if rest and os.path.isdir(path):
            yield from _walk_pattern(path, rest, entered)
        elif not rest and os.path.lexists(path):
            yield path
        return
    if deep := first == "**":
        # By device and inode, as links may form circles, as in /sys.
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
    """Return the entries of a folder, links last, so that a folder entered once has its real name."""
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
    except OSError:
        return []
