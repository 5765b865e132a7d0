"""The volumes study: what a battery's settings are, what it costs, and what makes its record invalid."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from scripts.studies.volumes import fio_jobs

JOB_FILE = "config/fio/{}.fio"
LIMITS = Path("config/facts/limits.yaml")
VOLUME_TYPES = Path("config/facts/volume_types.yaml")
# A write that is forced to the disk takes about this long where nothing is known: 1 ms, as gp2 and gp3 were published.
_SYNC_S = 0.001


def mistakes(config: dict) -> Iterator[str]:
    """Yield limits, types of volumes and job files that are not there, and a background on no other volume."""
    section = config["studies"]["volumes"]
    known = yaml.safe_load(LIMITS.read_text(encoding="utf-8"))["limits"]
    for number, limit in enumerate(section["limits"]):
        if isinstance(limit, str) and limit not in known:
            yield f"studies.volumes.limits[{number}]: {limit!r} is not in {LIMITS}: {', '.join(known)}"
    types = yaml.safe_load(VOLUME_TYPES.read_text(encoding="utf-8"))["types"]
    named = [(f"stores.{name}.volume", store.get("volume")) for name, store in config["stores"].items()]
    named += [
        (f"studies.volumes.imports[{number}].volume", one.get("volume"))
        for number, one in enumerate(section["imports"])
        if isinstance(one, dict)
    ]
    for place, volume in named:
        if isinstance(volume, dict) and volume["type"] not in types:
            yield f"{place}.type: {volume['type']!r} is not in {VOLUME_TYPES}: {', '.join(types)}"
    matrix = section.get("matrix", [])
    levels = {level for part in (matrix if isinstance(matrix, list) else [matrix]) for level in part["background"]}
    if levels - {"none"} and not Path(JOB_FILE.format(section["background_job"])).is_file():
        yield f"studies.volumes.background_job: there is no {JOB_FILE.format(section['background_job'])}"
    if "other" in levels and section.get("other") not in config["stores"]:
        yield f"studies.volumes.other: name the store for the background load: {', '.join(config['stores'])}"


def impossible(levels: dict[str, str], config: dict) -> Iterator[str]:
    """Yield why a combination of levels cannot exist."""
    store, other = config["stores"][levels["store"]], config["studies"]["volumes"].get("other")
    if store["kind"] != "posix":
        yield f"fio does not write to a store of the kind {store['kind']}"
    if levels["background"] == "other":
        if other == levels["store"]:
            yield f"the other volume is {other} itself"
        elif config["stores"][other]["kind"] != "posix" or "device" in config["stores"][other]:
            yield f"{other}, which has the background load, is no folder"
    if levels["background"] == "same" and "device" in store:
        yield "a raw device has no room for the files of a background load"


def complete(settings: dict, config: dict) -> dict:
    """Return a battery's settings: `background` is None, or the job and the store of the load beside it."""
    kept = {key: value for key, value in settings.items() if key not in ("other", "background_job")}
    level = settings["cell"]["background"]
    if level == "none":
        return kept | {"background": None}
    name = settings["background_job"]
    job = {"name": name, "text": Path(JOB_FILE.format(name)).read_text(encoding="utf-8")}
    store = settings["store"] if level == "same" else config["stores"][settings["other"]]
    return kept | {"background": {"job": job, "store": store}}


def estimate(settings: dict) -> dict:
    """Estimate a battery: {"requests", "bytes", "seconds"}; where a write is forced to the disk it takes 1 ms."""
    options = fio_jobs.options(settings["job"]["text"])
    size, block = fio_jobs.total_bytes(options), fio_jobs.block_bytes(options)
    each = fio_jobs.runtime_s(options) or (size / block * _SYNC_S if fio_jobs.syncs(options) else size / 2**27)
    jobs = max(settings["jobs"], settings["at_least_s"] / (each + settings["pause_s"]))
    return {"requests": 0, "bytes": jobs * size, "seconds": jobs * (each + settings["pause_s"])}


def disk_bytes(settings: dict) -> int:
    """Return the bytes of the files that the jobs write to: those of one job, and of the background beside it."""
    background = settings["background"]
    texts = [settings["job"]["text"], *([background["job"]["text"]] if background else [])]
    return sum(fio_jobs.total_bytes(fio_jobs.options(text)) for text in texts)


def data_bytes(data: dict) -> int:
    """Return what generated data need: the study has none."""
    return 0


def made_bytes(data: dict) -> int:
    """Return what generated data need where they are generated: the study has none."""
    return 0


def failures(record: dict, settings: dict, manifest: dict) -> list[str]:
    """Return why nothing was measured: no job was finished."""
    return [] if record["samples"] else [*record["faults"], "no job of the battery was finished"][:1]


def faults(record: dict, settings: dict) -> list[str]:
    """Return what was not done as asked, as the measuring program found it in fio's own output (METHOD 9, 10)."""
    work = record["work"]
    short = [f"{work['jobs_done']} jobs were done, {work['jobs_asked']} asked"]
    return [*record["faults"], *(short if work["jobs_done"] < work["jobs_asked"] else [])]
