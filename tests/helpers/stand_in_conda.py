"""A conda for the tests, which do not reach conda-forge: it makes environments from wheels.

It answers what Snakemake asks of conda and refuses all else. `channel.json` in its folder says which packages it has:
`wheels`, by their name in conda-forge, and others by the `links` they put into an environment, place -> target.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import yaml

UV = Path(sys.executable).with_name("uv")
LOCK = Path(__file__).parents[2] / "envs" / "measure.lock"


def main(home: Path, *words: str) -> None:
    """Answer one call of the conda whose folder is `home`."""
    match words:
        case ["--version"]:
            print("conda 26.9.0")
        case ["info", "--json"]:
            print(json.dumps({"conda_prefix": str(home), "platform": "linux-64"}))
        case ["config", "--get", "channel_priority", "--json"]:
            print(json.dumps({"get": {"channel_priority": "strict"}}))
        case ["env", "create", "--quiet", "--no-default-packages", "--file", file, "--prefix", prefix]:
            create(json.loads((home / "channel.json").read_text()), Path(file), Path(prefix))
        case ["clean", *_]:
            pass
        case _:
            sys.exit(f"the conda of the tests does not know {' '.join(words)}")


def create(channel: dict, file: Path, prefix: Path) -> None:
    """Make the environment that a file describes."""
    entries = yaml.safe_load(file.read_text())["dependencies"]
    packages = [entry for entry in entries if isinstance(entry, str)]
    wheels = [
        f"{channel['wheels'][name]}=={version}"
        for name, _, version in map(_parts, packages)
        if name in channel["wheels"]
    ]
    uv("venv", "--no-project", "--python", os.path.realpath(sys.executable), prefix)
    # A package of conda brings what it needs; what pip is given has to be complete.
    if wheels:
        uv("pip", "install", "--python", prefix, "--constraint", LOCK, *wheels)
    for entry in entries:
        if isinstance(entry, dict):
            uv("pip", "install", "--python", prefix, "--no-deps", *entry["pip"])
    bring_compiled(prefix)
    for package in packages:
        if _parts(package)[0] not in channel["wheels"]:
            for place, target in channel["links"][package].items():
                (prefix / place).symlink_to(target)
    uv("pip", "check", "--python", prefix)


def bring_compiled(prefix: Path) -> None:
    """Copy what Python compiled of the packages of this environment to another one, whose first imports are long else.

    It holds for files of the same time, which they have where uv took both from its cache; others are compiled as ever.
    """
    (target,) = prefix.glob("lib/python*/site-packages")
    source = Path(sysconfig.get_path("purelib"))
    for compiled in source.rglob("__pycache__"):
        place = target / compiled.relative_to(source)
        if place.parent.is_dir():
            shutil.copytree(compiled, place, dirs_exist_ok=True)


def _parts(package: str) -> tuple[str, str, str]:
    return package.partition("=")


def uv(*words: object) -> None:
    """Call uv."""
    subprocess.run([UV, "--quiet", *map(str, words)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
