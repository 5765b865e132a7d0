"""What it takes to find the release that changed a figure, over wheels and over sources."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.common import Row, Say, at_most, copy_tree, program, used

# 6 releases, of which the fifth is the first that reads 50 MB ahead; and those of HDF5 that are pinned.
_WHEELS, _SOURCES = ("s3fs", "2024.5.0", "2024.12.0"), ("hdf5", "1.14.6", "2.2.0")
_LIMIT_S = 300


def rows(
    folder: Path, say: Say, wheels: tuple = _WHEELS, sources: tuple = _SOURCES, empty: bool = True
) -> Iterator[Row]:
    """Find the releases of s3fs and of HDF5 that changed the number of requests."""
    tree = copy_tree(folder)
    cache = {"XDG_CACHE_HOME": str(folder / "cache")} if empty else {}
    if empty:
        say("building the servers from nothing")
        used(program("build_servers", "--out", folder / "servers.json"), **cache)
    usage = _bisect(tree, say, *wheels, **cache)
    against = "servers built before, nothing else" if empty else "with what is cached"
    yield at_most(f"sbench bisect: {' '.join(wheels)}", usage, _LIMIT_S, "s", against)
    if sources:
        against = "HDF5 is built where it is not cached: 2 to 5 minutes for a release"
        yield Row(f"sbench bisect: {' '.join(sources)}", f"{_bisect(tree, say, *sources):,.1f} s", against)


def _bisect(tree: Path, say: Say, package: str, first: str, last: str, **variables: str) -> float:
    """Return the seconds that it takes to find the release of a package that changed requests."""
    say(f"{package} from {first} to {last}")
    return used(program("sbench.cli", "bisect", package, first, last), cwd=tree, **variables).seconds
