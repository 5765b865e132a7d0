"""What it takes to build the libraries under test from nothing, side by side, as the workflow does on two cores."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sbench.probe import host
from tests.bench.common import LIBRARIES, Row, Say, Usage, program, timed, used

LIMIT_S = 360


def rows(folder: Path, say: Say, empty: bool = True) -> Iterator[Row]:
    """Build both libraries from nothing, downloads included, and then the servers, which takes minutes."""
    cache = {"XDG_CACHE_HOME": str(folder / "cache")} if empty else {}

    def build(name: str) -> Usage:
        arguments = ("--library", name, "--spec", json.dumps(LIBRARIES[name]), "--out", folder / f"{name}.json")
        return used(program("build_library", *arguments), **cache)

    say(f"building {' and '.join(LIBRARIES)} from nothing; this takes minutes")
    usages = []
    with ThreadPoolExecutor(len(LIBRARIES)) as pool:
        seconds = timed(lambda: usages.extend(pool.map(build, LIBRARIES)))()
    cpu = sum(usage.cpu_seconds for usage in usages)
    spent = f"processor time {cpu:.0f} s, {cpu / host.usable_cores():.0f} s per core"
    limit = f"≤ {LIMIT_S} s on 2 idle cores"
    yield Row("both libraries from nothing", f"{seconds:.0f} s", spent, "", limit, seconds <= LIMIT_S)
    say("building the servers from nothing")
    servers = used(program("build_servers", "--out", folder / "servers.json"), **cache)
    yield Row("servers from nothing", f"{servers.seconds:.0f} s", f"processor time {servers.cpu_seconds:.0f} s")
