"""Fetch the data of the published studies (config/published.yaml): raw files and printed tables."""

import http.client
import shutil
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from sbench.probe.program import Problem, compute_file_digest, read_yaml

REACH_S = 10


def read_sources(path: Path) -> dict[str, dict]:
    """Read a YAML file that describes the sources of each study.

    Raises:
        Problem: the file cannot be read, or a study lacks a required key.
    """
    studies = read_yaml(path)
    for study, spec in studies.items():
        if missing := [key for key in ("title", "by", "date", "address", "question", "conclusion") if key not in spec]:
            raise Problem(f"{path}: study {study} lacks the key {missing[0]}")
    return studies


def fetch_files(spec: Mapping, printed: Path, local: Path | None, kept: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Collect a study's files, downloading raw files if needed.

    If a raw file is unavailable, the printed table with the same name replaces it.

    Args:
        spec: the study's entry in config/published.yaml.
        printed: folder of the printed tables; each may be an excerpt of the raw file with the same name.
        local: folder to search for raw files, including subfolders; None to download them.
        kept: folder for downloaded files, which are reused.

    Returns:
        The files by name, and a message by name for each raw file that is unavailable.
    """
    there, absent = {path.name: path for path in sorted(printed.glob("*.csv"))}, {}
    for name, raw in (spec.get("raw") or {}).items():
        try:
            there[name] = _fetch_file(name, raw, local, kept)
        except (Problem, OSError, ValueError, http.client.HTTPException) as error:
            instead = "the page shows only its printed part" if name in there else "the page omits it"
            absent[name] = f"raw file {name}: {error}; {instead}"
    return there, absent


def _fetch_file(name: str, raw: Mapping, local: Path | None, kept: Path) -> Path:
    if local:
        if not (places := sorted(local.rglob(name))):
            raise Problem(f"not found in {local.name}")
        return _expect_digest(places[0], raw)
    if "url" not in raw:
        raise Problem("it cannot be downloaded; name a folder that contains it (published_data)")
    path = kept / raw["sha256"][:16] / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with urllib.request.urlopen(raw["url"], timeout=REACH_S) as answer, open(part, "wb") as file:
            shutil.copyfileobj(answer, file)
        _expect_digest(part, raw).rename(path)
    return path


def _expect_digest(path: Path, raw: Mapping) -> Path:
    if (digest := compute_file_digest(path)) != raw["sha256"]:
        raise Problem(f"its sha256 must be {raw['sha256']} (got {digest})")
    return path
