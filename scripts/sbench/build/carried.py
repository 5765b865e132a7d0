"""Finds libraries under test and servers in a tree that was unpacked from an archive, and came with them.

Such a tree is where there is no compiler and no header, which recipes take into their keys. So an archive says what it
holds by what the configuration and the project's own files say of it.
"""

from collections.abc import Collection, Mapping

from sbench.build import servers
from sbench.build.distributions import library_key
from sbench.build.environments import inspect_python, verify
from sbench.probe import unpacked
from sbench.probe.program import Problem

_REMEDY = "give `sbench pack` a configuration that needs it, and unpack that archive"


def library(name: str, spec: dict) -> dict:
    """Return the artefact of a library that came with this tree, whose interpreter is looked at again.

    Raises:
        Problem: there is none, or it does not start here, or is not what its label says.
    """
    artefact = expect_library(name, spec)
    python = unpacked.ROOT / artefact["python"]
    facts = inspect_python(python)
    verify(name, spec, facts)
    return artefact | facts | {"library": name, "python": str(python)}


def expect_library(name: str, spec: dict) -> dict:
    """Return what the archive says of a library; that it has none is a Problem."""
    return _expect(f"library {name}", "library", unpacked.manifest()["libraries"], library_key(spec))


def servers_of(names: Collection[str]) -> dict:
    """Return the `versions` of servers that came with this tree, and the paths of their programs.

    Raises:
        Problem: one of them did not.
    """
    artefact: dict = {"versions": {}}
    for name in names:
        server = expect_server(name)
        artefact |= {program: str(unpacked.ROOT / path) for program, path in server["programs"].items()}
        artefact["versions"][name] = server["version"]
    return artefact


def expect_server(name: str) -> dict:
    """Return what the archive says of a server; that it has none is a Problem."""
    return _expect(f"the server {name}", "server", unpacked.manifest()["servers"], server_key(name))


def _expect(what: str, kind: str, carried: Mapping[str, dict], key: str) -> dict:
    if key in carried:
        return carried[key]
    brought = ", ".join(sorted(one[kind] for one in carried.values())) or "none"
    raise Problem(f"{what} did not come with this unpacked archive (it has {brought}); {_REMEDY}")


def server_key(name: str) -> str:
    """Return the key of a server's recipe, which no compiler is part of."""
    return servers.recipe(name).key
